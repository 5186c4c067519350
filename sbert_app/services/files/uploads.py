"""Users' files that runs read later: kept in the home folder under the hash of their content.

Data is named by a line of text wherever it is used, in a run's config above all. A copy with the columns sentence1,
sentence2 and score or label needs nothing beside its path. What readers find by themselves needs no such copy.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sbert_app.services.files.writers import ParquetWriter, discarded_on_error
from training.atomic import replace_file
from training.data.tables.columns import LABELS, NLI_PAIR, as_text, canonical_names, normalize_name, parse_number
from training.data.tables.guess import SAMPLE, guess_sentences, guess_target
from training.data.tables.rows import RowBatch
from training.data.tables.table import Table, open_table
from training.errors import InputError

KEPT = ("topic",)  # further columns that are used under one name alone
LOOKED_AT = 1_000  # rows that decide whether a column of judgements holds scores or labels


@dataclass(frozen=True)
class ChosenColumns:
    """Columns of a file. ``second`` is None for single sentences, ``target`` for a file without judgements."""

    first: str
    second: str | None = None
    target: str | None = None  # scores or labels

    @property
    def names(self) -> list[str]:
        return [name for name in (self.first, self.second, self.target) if name]

    @classmethod
    def suggested(cls, table: Table) -> tuple[ChosenColumns | None, frozenset[str]]:
        """Those that are found by name, else guessed from their content, and the names of those that are guessed.

        None for triplets, which have names of their own, and where there are no sentences.
        """
        if has_triplets(table.columns):
            return None, frozenset()
        rows, named = table.preview(SAMPLE).rows, cls.found(table)
        sentences = [named.first, named.second] if named else [*guess_sentences(rows), None, None][:2]
        first, second = sentences
        if first is None:
            return None, frozenset()
        others = {name: cells for name, cells in rows.items() if name not in sentences}
        target = (named and named.target) or guess_target(others, of_pairs=second is not None)
        chosen = cls(first, second, target)
        return chosen, frozenset(chosen.names).difference(named.names if named else ())

    @classmethod
    def found(cls, table: Table) -> ChosenColumns | None:
        """Those that readers find by their names; None if they find no sentences, or triplets."""
        by_role = {role: name for name, role in canonical_names(table.columns).items()}
        if has_triplets(table.columns):
            return None
        target = by_role.get("score") or by_role.get("label")
        if {"sentence1", "sentence2"} <= set(by_role):
            return cls(by_role["sentence1"], by_role["sentence2"], target)
        if "sentence" in by_role:
            return cls(by_role["sentence"], None, target)
        names = table.columns
        return cls(names[0], names[1]) if len(names) == 2 and target is None else None


def has_triplets(columns: Sequence[str]) -> bool:
    """Whether the names are those of triplets: anchor, positive, negative."""
    return {"anchor", "positive", "negative"} <= set(canonical_names(columns).values())


def named_columns(
    path: Path, chosen: ChosenColumns | None, home: Path, encoding: str | None = None, sheet: str | None = None
) -> Path | None:
    """A copy of a file with the chosen columns alone, under their usual names; None if they are found anyway.

    It is Parquet under the name of the file, which readers know by its first bytes. ``chosen`` is None for triplets,
    whose columns all stay; ``sheet`` is that of a workbook.

    InputError if the file cannot be read, or two of the columns are the same or do not exist.
    """
    table = open_table(path, encoding, sheet)
    if chosen in (None, ChosenColumns.found(table)) and (
        sheet is None or sheet == open_table(path, encoding).reader.sheet
    ):
        return None
    names = list(table.columns) if chosen is None else chosen.names
    for name in names:
        if name not in table.columns:
            raise InputError(f"{path.name} has no column {name!r}; choose its columns again")
    if len(set(names)) < len(names):
        raise InputError(f"the column {max(names, key=names.count)} is chosen twice; choose different columns")
    roles = names if chosen is None else ["sentence1", "sentence2"] if chosen.second else ["sentence"]
    roles = [*roles, _role_of(table, chosen)] if chosen and chosen.target else roles
    kept = [name for name in table.columns if normalize_name(name) in KEPT and name not in names]
    names, roles = names + kept, roles + [normalize_name(name) for name in kept]
    copy = _place(path, home, path.name, repr((names, roles, encoding, sheet)))
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        _write(table, dict(zip(roles, names, strict=True)), copy)
    return copy


def _role_of(table: Table, chosen: ChosenColumns) -> str:
    """Whether the judgements are labels: words, 0 and 1, or what a column of a label's name holds; else scores."""
    name = chosen.target or ""
    if normalize_name(name) in LABELS:
        return "label"
    cells: Sequence[Any] = [cell for batch in islice(table.batches(LOOKED_AT), 1) for cell in batch.rows[name]]
    numbers = [parse_number(text) for cell in cells if (text := as_text(cell)) is not None]
    is_inference = (normalize_name(chosen.first), normalize_name(chosen.second or "")) == NLI_PAIR
    if None in numbers or set(numbers) <= {0.0, 1.0} or (is_inference and set(numbers) <= {0.0, 1.0, 2.0}):
        return "label"
    return "score"


def _write(table: Table, columns: dict[str, str], path: Path) -> None:
    """The columns of a table as text, under new names."""
    writer = ParquetWriter(path, [], dict.fromkeys(columns, "string"))
    with discarded_on_error([writer]):
        for batch in table.batches():
            cells = {role: [as_text(cell) for cell in batch.rows[name]] for role, name in columns.items()}
            writer.write(RowBatch(1, {}), cells)
        writer.finish()


def keep_upload(file: str | Path, home: Path) -> Path:
    """Copy a file into the home folder, where runs find it. Returns the path of the copy."""
    source = Path(file)
    kept = _place(source, home, source.name)
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(kept) as fresh:
            shutil.copyfile(source, fresh)
    return kept


def _place(source: Path, home: Path, name: str, version: str = "") -> Path:
    """Where what is made of a file is kept: HOME/data/uploads, the hash of its content and of ``version``, a name."""
    with source.open("rb") as file:
        key = hashlib.file_digest(file, "sha256")
    key.update(version.encode())
    return home / "data/uploads" / key.hexdigest()[:12] / re.sub(r"[^\w.-]+", "-", name)[-80:]


def keep_pairs(name: str, rows: Iterable[tuple[str, str, float]], home: Path) -> Path:
    """Keep scored pairs as a CSV file of that name. Returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([("sentence1", "sentence2", "score"), *rows])
        return keep_upload(file, home)
