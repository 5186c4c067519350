"""Data sets by name, and users' files, as parallel lists of sentences with scores or labels.

    load_data("stsb:dev")                        the STS benchmark, 1,500 scored pairs
    load_data("snli+mnli")                       two sets of one form, joined
    load_data("hf:nyu-mll/glue:mrpc:validation") any data set of the Hub, by configuration and split
    load_data("mine.csv")                        a file with sentence1, sentence2 and perhaps score or label;
                                                 or anchor, positive, negative; or sentence
    load_data("old.csv?encoding=windows-1251")   the same, its encoding named instead of found out

A `Dataset` has the same units whatever the source; `parse_dataset` makes one from columns of cells. Which
objective can learn from which form, and the transforms that derive it, are in `training.data.transforms`.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from training.catalogue import DATA_SETS, NLI_LABELS, DataSet, Split
from training.data.dataset import TOP_SCORE, Dataset, join
from training.data.tables.columns import as_text, bad_number, canonical_names, listed, parse_number
from training.errors import InputError
from training.names import HUB, DataName

MOST_UNPACKED = 1 << 30  # bytes of a .gz file


def load_data(name: str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """Load a named set, a file, or several of one form joined by "+".

    ``split`` is the one taken where the name gives none ("stsb" against "stsb:dev") and the set has several.

    ``hf:<org>/<name>[:<config>][:<split>]`` is any data set of the Hugging Face Hub, read with the `datasets`
    library: ``hf:sentence-transformers/quora-duplicates:pair-class:train``. Without a configuration it is the
    default one; a single part after the id is a configuration if there is one of that name, else a split
    (``hf:org/name::test`` is always a split). dev stands for validation where a set calls it so. Columns are found
    by their names as in files, labels have the names that the set gives them. Small sets are downloaded once into
    the usual cache ($HF_HOME/datasets) and can then be used offline; sets of more than 256 MB are streamed; at most
    1,000,000 rows are read. Both are said in the notes. No code of a data set is run.

    Raises:
        InputError: the name is unknown, the configuration or split does not exist, the set is gated or private,
            there is no network, the file cannot be read, there are no columns of sentences, or the forms differ.
    """
    return join([load_one(part, home, split) for part in DataName.parse_joined(name)])


def check_data_name(name: str) -> str:
    """``name``, for places where a path must not be taken. InputError unless each part of it is a data set's name."""
    for part in DataName.parse_joined(name):
        if not part.is_set:
            known = ", ".join(DATA_SETS)
            raise InputError(
                f"{str(part)!r} is no data set that is known by name; choose one of {known}, or hf:org/name on the Hub"
            )
    return name


def load_one(name: DataName | str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """One named set or one file, without joining. See `load_data`."""
    file = DataName.parse(name)
    if file.built_in is not None:
        return _load_built_in(file, file.built_in, split, home)
    if file.hub_parts is not None:
        return _load_from_hub(file.hub_parts, split, home)
    path = file.path
    if not path.is_file():
        known = ", ".join(DATA_SETS)
        raise InputError(
            f"data {str(name)!r} is neither a file nor a known set; the sets are {known}, and hf:org/name for any of "
            "the Hub"
        )
    columns, remarks = _read(path, file.encoding)
    return parse_dataset(path.name, columns, str(path), remarks)


# ---------------------------------------------------------------- the sets

STSB_COLUMNS = {"score": 4, "sentence1": 5, "sentence2": 6}  # genre, file, year, id, score, s1, s2, licence…


def check_split(name: DataName, source: DataSet) -> str:
    """The split that the name of a built-in set says, "" if it says none. InputError if the set has no such split."""
    if name.split and name.split not in source.splits:
        head = name.name.partition(":")[0]
        raise InputError(f"{head} has no split {name.split!r}; choose {', '.join(source.splits)}")
    return name.split


def _load_stsb(split: str, home: str | Path | None) -> Dataset:
    from training.sources.resolve import stsb_folder

    folder = stsb_folder(home)
    # Tab separated and never quoted: a csv reader would swallow rows at a lone quotation mark.
    lines = (folder.path / f"sts-{split}.csv").read_text(encoding="utf-8").split("\n")
    cells = [line.split("\t") for line in lines if line.strip()]
    columns = {name: [row[at] for row in cells] for name, at in STSB_COLUMNS.items()}
    return parse_dataset(f"stsb:{split}", columns, folder.source)


def _load_built_in(name: DataName, source: DataSet, split: str, home: str | Path | None) -> Dataset:
    head, chosen = name.name.partition(":")[0], check_split(name, source)
    chosen = chosen or (split if split in source.splits else next(iter(source.splits)))
    if not source.repo:
        return _load_stsb(chosen, home)
    columns, origin, notes = _rows_of(source, source.splits[chosen], home)
    names = dict(enumerate(source.labels))
    if names and not any(isinstance(label, str) for label in columns["label"]):
        columns["label"] = [names.get(label) for label in columns["label"]]
    return parse_dataset(f"{head}:{chosen}", columns, origin, notes)


def _rows_of(source: DataSet, split: Split, home: str | Path | None) -> tuple[Columns, str, tuple[str, ...]]:
    """Columns, where they are from, and notes: from files that are already here, else by the `datasets` library."""
    from training.sources.hub_dataset import read_dataset
    from training.sources.resolve import local_dataset_files

    located = local_dataset_files(source.repo, split.files, home)
    if located is None:
        wanted = partial(used_columns, source.repo)
        rows = read_dataset(source.repo, (source.config, split.hub_name), split.hub_name, wanted, home)
        return _by_canonical_names(rows.columns), rows.source, rows.notes
    tables = [_read(path)[0] for path in located.paths]
    return {name: [cell for table in tables for cell in table[name]] for name in tables[0]}, located.source, ()


def _by_canonical_names(columns: Columns) -> Columns:
    names = canonical_names(list(columns))
    return {names[name]: cells for name, cells in columns.items()}


def _load_from_hub(parts: list[str], split: str, home: str | Path | None) -> Dataset:
    from training.sources.hub_dataset import read_dataset

    repo_id, *selectors = parts
    rows = read_dataset(repo_id, selectors, split, partial(used_columns, HUB + ":".join(parts)), home)
    name = f"{HUB}{repo_id}:{rows.config}:{rows.split}"
    return parse_dataset(name, _by_canonical_names(rows.columns), rows.source, rows.notes)


def _read(path: Path, encoding: str | None = None) -> tuple[Columns, tuple[str, ...]]:
    """A file's columns, and remarks on how it was understood; the sets on the Hub are sometimes gzipped.

    InputError also if it unpacks to too much.
    """
    from training.data.tables.table import columns_of, open_table

    with tempfile.TemporaryDirectory() if path.suffix == ".gz" else nullcontext() as folder:
        table = open_table(_unpacked(path, Path(folder)) if folder else path, encoding)
        return columns_of(table), table.remarks


def _unpacked(path: Path, folder: Path) -> Path:
    """Unpack a gzip file into a folder, piece by piece. InputError if it is damaged or larger than `MOST_UNPACKED`."""
    size, unpacked = 0, folder / path.stem
    try:
        with gzip.open(path) as packed, unpacked.open("wb") as file:
            while piece := packed.read(1 << 20):
                size += len(piece)
                if size > MOST_UNPACKED:
                    raise InputError(f"{path.name} unpacks to more than {MOST_UNPACKED >> 30} GB: give a part of it")
                file.write(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path.name} is no complete gzip file: fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path.name} cannot be unpacked: {error.strerror or error}") from error
    return unpacked


# ---------------------------------------------------------------- columns to a data set

# Columns of cells have the names that `training.data.tables.columns.canonical_names` gives: sentence1, sentence2 and
# perhaps score or label; or anchor, positive, negative; or sentence. Each decision is stated in a note.


MISSING = frozenset({"", "-", "-1", "nan", "none", "null"})
MOST_LABELS = 1_000  # more are no classes but something else, such as sentences

Columns = dict[str, list[Any]]
# The first whose columns are all present is taken.
FORMS = (("anchor", "positive", "negative"), ("sentence1", "sentence2"), ("sentence",))


def used_columns(name: str, columns: Sequence[str]) -> list[str]:
    """Those of a table's columns that `parse_dataset` reads. InputError if no form fits; it lists the columns."""
    names = canonical_names(columns)
    form = _form(name, list(names.values()))
    return [column for column in columns if names[column] in (*form, "score", "label")]


def parse_dataset(name: str, raw: Columns, source: str = "", notes: Sequence[str] = ()) -> Dataset:
    """Cells by canonical column name -> a clean Dataset.

    Rows with an empty sentence, an empty score or an unknown label (-1, "-", empty) are left out, and counted
    in the notes, after those of the source. InputError if no form fits, a score is no number, or nothing is left.
    """
    texts = [[(as_text(cell) or "").strip() for cell in raw[column]] for column in _form(name, list(raw))]
    score_cells, label_cells = (raw.get("score"), raw.get("label")) if len(texts) == 2 else (None, None)
    said: list[str] = []
    if score_cells is None and label_cells is not None and _are_fractions(label_cells):
        score_cells, label_cells = label_cells, None
        said.append("the column label holds fractions: read as scores")

    wrong = {"with an empty sentence": {i for column in texts for i, text in enumerate(column) if not text}}
    if score_cells is not None:
        wrong["without a score"] = {i for i, cell in enumerate(score_cells) if _is_missing(cell) and cell != -1}
    if label_cells is not None:
        wrong["without a gold label"] = {i for i, cell in enumerate(label_cells) if _is_missing(cell)}
    left_out: set[int] = set()
    for why, which in wrong.items():
        if new := which - left_out:
            said.append(f"{len(new):,} rows {why} left out")
        left_out |= which
    keep = [i for i in range(len(texts[0])) if i not in left_out]
    if not keep:
        raise InputError(f"{name} holds no usable row" + "".join(f"; {note}" for note in said))

    data = Dataset(
        name=name,
        columns=tuple([column[i] for i in keep] for column in texts),
        source=source,
        notes=(*notes, *said),
        rows=[i + 1 for i in keep],
    )
    if score_cells is not None:
        data = _with_scores(data, [score_cells[i] for i in keep])
    if label_cells is not None:
        data = _with_labels(data, [label_cells[i] for i in keep])
    return data


def _form(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that hold the sentences of a row."""
    form = next((form for form in FORMS if set(form) <= set(columns)), None)
    if form is not None:
        return form
    if len(columns) == 2 and not set(columns) & {"score", "label", "sentence", "negative"}:
        return tuple(columns)  # two columns can only be the two sentences
    raise InputError(
        f"{name} has {listed(columns)}; it needs sentence1 and sentence2 (with score or label, if there "
        "are any), or anchor, positive and negative, or sentence"
    )


def _is_missing(cell: Any) -> bool:
    return cell is None or str(cell).strip().lower() in MISSING


def _with_scores(data: Dataset, cells: list[Any]) -> Dataset:
    numbers = [parse_number(cell) for cell in cells]
    for row, cell, number in zip(data.rows, cells, numbers, strict=True):
        if number is None:
            raise InputError(f"{data.name}, {bad_number('score', cell, row)}")
    scores, note = to_gold(data.name, [number for number in numbers if number is not None])
    return replace(data, scores=scores, notes=(*data.notes, note) if note else data.notes)


SCORE_SCALES = ((0.0, 1.0), (0.0, 5.0), (-1.0, 1.0), (0.0, 10.0), (0.0, 100.0))


def to_gold(name: str, scores: list[float]) -> tuple[list[float], str]:
    """Rescale scores to 0–5. Returns (gold scores, a note on it, "" if they were on that scale already).

    The scale is the first of `SCORE_SCALES` that holds every score: a file whose scores all lie in 0–1 is taken to
    be in 0–1. InputError if none does.
    """
    low, high = min(scores), max(scores)
    for bottom, top in SCORE_SCALES:
        if bottom <= low and high <= top:
            if (bottom, top) == (0.0, TOP_SCORE):
                return scores, ""
            gold = [(score - bottom) / (top - bottom) * TOP_SCORE for score in scores]
            return gold, f"scores from {bottom:g} to {top:g} stretched to 0–5"
    raise InputError(f"the scores of {name} run from {low:g} to {high:g}; give them in 0–5, 0–1, -1–1, 0–10 or 0–100")


def _are_fractions(cells: list[Any]) -> bool:
    """True for a "label" column of numbers that are not all whole: what other tools call a similarity label."""
    fractions = False
    for cell in cells:
        if _is_missing(cell):
            continue
        number = parse_number(cell)
        if number is None:
            return False
        fractions |= not number.is_integer()
    return fractions


def _with_labels(data: Dataset, cells: list[Any]) -> Dataset:
    """Labels numbered: those of natural language inference in the Hub's order, others sorted."""
    texts = [label_text(cell) for cell in cells]
    found, notes = set(texts), data.notes
    if found == {"0", "1", "2"}:
        texts = [NLI_LABELS[int(text)] for text in texts]
        notes = (*notes, f"labels 0, 1, 2 read as {', '.join(NLI_LABELS)}")
    elif not found <= set(NLI_LABELS):
        names = tuple(sorted(found, key=lambda text: (len(text), text) if text.isdigit() else (99, text)))
        if len(names) > MOST_LABELS:
            raise InputError(
                f"{data.name} has {len(names):,} different labels, the first {names[0][:40]!r}; a label is one of "
                f"at most {MOST_LABELS}"
            )
        return replace(data, labels=[names.index(text) for text in texts], label_names=names)
    labels = [NLI_LABELS.index(text) for text in texts]
    return replace(data, labels=labels, label_names=NLI_LABELS, notes=notes)


def label_text(cell: Any) -> str:
    """3, "3" and 3.0 are one label, and so are "Neutral" and "neutral"."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip().lower()
