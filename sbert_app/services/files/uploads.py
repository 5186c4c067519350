"""Users' files that runs read later: copies in the home folder, by the hash of their content.

A run's config names its data by a path alone, so that a file whose columns have other names is copied with the columns
sentence1, sentence2 and score or label.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert_app.services.files.writers import ParquetWriter, open_writers
from training.atomic import replace_file
from training.data.gold import NUMBER, GoldColumn, label_text
from training.data.tables.cells import as_text
from training.data.tables.columns import PairColumns, normalize_name, roles_of
from training.data.tables.guess import guess_sentences, guess_target
from training.data.tables.rows import HEAD_ROWS, OpenedTable, RowBatch
from training.errors import InputError

# The scale of the scores in a copy.
GOLD_SCALE = "0-5"
# Further columns that are used, under one name alone.
FURTHER = ("topic",)


@dataclass(frozen=True)
class ChosenColumns:
    """The columns of a file: ``second`` for pairs, and ``target`` where there are scores or labels."""

    first: str
    second: str | None = None
    target: str | None = None

    @property
    def names(self) -> list[str]:
        return [name for name in (self.first, self.second, self.target) if name]

    @classmethod
    def suggested(cls, table: OpenedTable) -> tuple[ChosenColumns | None, frozenset[str]]:
        """The columns by name or else by their content, and the names of the latter.

        None for triplets, which have names of their own, and where there are no sentences.
        """
        if has_triplets(table.columns):
            return None, frozenset()
        rows, named = table.preview(HEAD_ROWS).rows, cls.by_name(table)
        first, second = (named.first, named.second) if named else [*guess_sentences(rows), None, None][:2]
        if first is None:
            return None, frozenset()
        others = {name: cells for name, cells in rows.items() if name not in (first, second)}
        target = (named and named.target) or guess_target(others, of_pairs=second is not None)
        columns = cls(first, second, target)
        return columns, frozenset(columns.names).difference(named.names if named else ())

    @classmethod
    def by_name(cls, table: OpenedTable) -> ChosenColumns | None:
        """The columns that readers find by their names; None for triplets, and where there are no sentences."""
        roles = roles_of(table.columns, table.sample)
        first = roles.get("sentence1") or roles.get("sentence")
        return cls(first, roles.get("sentence2"), roles.get("score") or roles.get("label")) if first else None


def has_triplets(columns: Sequence[str]) -> bool:
    """Whether the names are those of triplets: anchor, positive, negative."""
    return {"anchor", "positive", "negative"} <= set(roles_of(columns))


def named_columns(
    table: OpenedTable, columns: ChosenColumns | None, home: Path, scale: str | None = None, labels: str | None = None
) -> Path | None:
    """Copy some columns of a file under their usual names. Returns None if readers find them without a copy.

    The copy is Parquet under the name of the file, as readers detect it by its first bytes; scores are on the scale
    0–5 there, from the ``scale`` or by the ``labels`` that the user has named. ``columns`` is None for triplets, whose
    columns all stay. InputError if the file cannot be read, or two of the columns are the same or do not exist.
    """
    if columns in (None, ChosenColumns.by_name(table)) and table.is_default_sheet:
        return None
    names = list(table.columns) if columns is None else columns.names
    for name in names:
        if name not in table.columns:
            raise InputError(f"{table.path.name} has no column {name!r}; choose its columns again")
    if len(set(names)) < len(names):
        raise InputError(f"the column {max(names, key=names.count)} is chosen twice; choose different columns")
    roles = names if columns is None else ["sentence1", "sentence2"] if columns.second else ["sentence"]
    gold = None
    if columns and columns.target:
        of_pairs = PairColumns(columns.first, columns.second or "", columns.target)
        gold = GoldColumn.in_table(table, of_pairs, scale, labels)
        roles = [*roles, "score" if gold and gold.kind == NUMBER else "label"]
    further = [name for name in table.columns if normalize_name(name) in FURTHER and name not in names]
    names, roles = names + further, roles + [normalize_name(name) for name in further]
    copy = _place(table.path, home, table.path.name, repr((names, roles, table.description, scale, labels)))
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        formats = {copy.suffix.lower(): ParquetWriter}
        with open_writers([copy], table.path, [], dict.fromkeys(roles, "string"), formats) as [writer]:
            for batch in table.batches():
                cells = [_read(batch.rows[name], gold if gold and gold.name == name else None) for name in names]
                writer.write(RowBatch(1, {}), dict(zip(roles, cells, strict=True)))
    return copy


def _read(cells: Sequence[Any], gold: GoldColumn | None) -> list[str | None]:
    """The texts of cells; scores on the scale 0–5 and labels by their names. A cell that is not understood stays."""
    if gold is None or (gold.kind == NUMBER and gold.scale is None):
        return [as_text(cell) for cell in cells]
    if gold.kind != NUMBER:
        return [gold.names.get(label_text(cell)) for cell in cells]
    values, bad = gold.read(cells)
    scores = enumerate(gold.gold(values).tolist())
    return [as_text(cells[at]) if at in bad else None if score != score else repr(score) for at, score in scores]


def keep_upload(file: str | Path, home: Path) -> Path:
    """Copy a file into the home folder, where runs find it. Returns the path of the copy."""
    source = Path(file)
    copy = _place(source, home, source.name)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(copy) as fresh:
            shutil.copyfile(source, fresh)
    return copy


def _place(source: Path, home: Path, name: str, version: str = "") -> Path:
    """The path of a copy: HOME/data/uploads/<hash of its content and of ``version``>/<name>."""
    with source.open("rb") as file:
        key = hashlib.file_digest(file, "sha256")
    key.update(version.encode())
    return home / "data/uploads" / key.hexdigest()[:12] / re.sub(r"[^\w.-]+", "-", name)[-80:]


def keep_pairs(name: str, rows: Iterable[tuple[str, str, float]], home: Path) -> Path:
    """Store scored pairs as a CSV file of that name. Returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([("sentence1", "sentence2", "score"), *rows])
        return keep_upload(file, home)
