"""Data sets by name, and users' files, as parallel lists of sentences with scores or labels.

    load_data("stsb:dev")          the STS benchmark, 1,500 scored pairs
    load_data("snli+mnli")         two sets of one form, joined
    load_data("mine.csv")          a file with sentence1, sentence2 and perhaps score or label;
                                   or anchor, positive, negative; or sentence

A `Dataset` (dataset.py) has the same units whatever the source; raw_columns.py makes one from a file's columns.
Which objective can learn from which form, and the views derived for that, are in `training.data.transforms`.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from training.data.dataset import LABELLED, PAIRS, SCORED, SENTENCES, TOP_SCORE, TRIPLETS, Dataset, join
from training.data.parsing import NLI_LABELS, Columns, parse_dataset
from training.errors import InputError

__all__ = [
    "DATA_NAMES",
    "LABELLED",
    "PAIRS",
    "SCORED",
    "SENTENCES",
    "TOP_SCORE",
    "TRIPLETS",
    "Dataset",
    "join",
    "load_data",
]


class HubSet(NamedTuple):
    """Where a named set lies on the Hub: file patterns per split, tried in order."""

    repo: str
    splits: dict[str, tuple[str, ...]]
    labels: tuple[str, ...] = ()  # what the numbers 0, 1, 2 of its label column mean


def _sts(repo: str) -> HubSet:
    return HubSet(repo, {"test": ("*test*.parquet", "*test*.jsonl*", "*test*.json*")})


HUB_SETS: dict[str, HubSet] = {
    **{f"sts{year}": _sts(f"mteb/sts{year}-sts") for year in (12, 13, 14, 15, 16)},
    "sickr": _sts("mteb/sickr-sts"),
    "snli": HubSet(
        "stanfordnlp/snli",
        {
            "train": ("plain_text/train-*.parquet",),
            "dev": ("plain_text/validation-*.parquet",),
            "test": ("plain_text/test-*.parquet",),
        },
        NLI_LABELS,
    ),
    "mnli": HubSet(
        "nyu-mll/multi_nli",
        {
            "train": ("data/train-*.parquet",),
            "dev": ("data/validation_matched-*.parquet",),
            "test": ("data/validation_mismatched-*.parquet",),
        },
        NLI_LABELS,
    ),
    "all-nli": HubSet(
        "sentence-transformers/all-nli",
        {split: (f"pair-class/{split}-*.parquet",) for split in ("train", "dev", "test")},
        NLI_LABELS,
    ),
    "wiki-sections": HubSet(
        "sentence-transformers/wikipedia-sections",
        {
            "train": ("triplet/train-*.parquet",),
            "dev": ("triplet/validation-*.parquet",),
            "test": ("triplet/test-*.parquet",),
        },
    ),
}
STSB_SPLITS = ("train", "dev", "test")
DATA_NAMES = ("stsb", *HUB_SETS)


def load_data(name: str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """Load a named set, a file, or several of one form joined by "+".

    ``split`` is the one taken where the name gives none ("stsb" against "stsb:dev") and the set has several.
    InputError if the name is unknown, the split does not exist, the file cannot be read or the forms differ.
    """
    return join([load_one(part, home, split) for part in split_names(name)])


def split_names(name: str) -> list[str]:
    """Split "snli+mnli" into ["snli", "mnli"]. A path that exists may itself contain a plus."""
    if Path(name).exists():
        return [name]
    return [part.strip() for part in name.split("+") if part.strip()] or [name]


def load_one(name: str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """One named set or one file, without joining. See `load_data`."""
    head, _, asked = name.partition(":")
    if head == "stsb":
        return _load_stsb(asked or split, home)
    if head in HUB_SETS:
        return _load_hub(head, asked, split, home)
    path = Path(name).expanduser()
    if not path.is_file():
        known = ", ".join(DATA_NAMES)
        raise InputError(f"data {name!r} is neither a file nor a known set; the sets are {known}")
    return parse_dataset(path.name, _read(path), source=str(path))


# ---------------------------------------------------------------- the sets

STSB_COLUMNS = {"score": 4, "sentence1": 5, "sentence2": 6}  # genre, file, year, id, score, s1, s2, licence…


def _load_stsb(split: str, home: str | Path | None) -> Dataset:
    from training.sources.resolve import stsb_folder

    if split not in STSB_SPLITS:
        raise InputError(f"stsb has no split {split!r}; choose {', '.join(STSB_SPLITS)}")
    folder = stsb_folder(home)
    # Tab separated and never quoted: a csv reader would swallow rows at a lone quotation mark.
    lines = (folder.path / f"sts-{split}.csv").read_text(encoding="utf-8").split("\n")
    cells = [line.split("\t") for line in lines if line.strip()]
    columns = {name: [row[at] for row in cells] for name, at in STSB_COLUMNS.items()}
    return parse_dataset(f"stsb:{split}", columns, folder.source)


def _load_hub(head: str, asked: str, split: str, home: str | Path | None) -> Dataset:
    from training.sources.resolve import dataset_files

    source = HUB_SETS[head]
    chosen = asked or (split if split in source.splits else next(iter(source.splits)))
    if chosen not in source.splits:
        raise InputError(f"{head} has no split {chosen!r}; choose {', '.join(source.splits)}")
    located = dataset_files(source.repo, source.splits[chosen], home)
    tables = [_read(path) for path in located.paths]
    merged = {name: [cell for table in tables for cell in table[name]] for name in tables[0]}
    if source.labels:
        names = dict(enumerate(source.labels))
        merged["label"] = [names.get(label) for label in merged["label"]]
    return parse_dataset(f"{head}:{chosen}", merged, located.source)


def _read(path: Path) -> Columns:
    """A file's columns; the sets on the Hub are sometimes gzipped."""
    from training.data.tables.table import read_columns

    if path.suffix != ".gz":
        return read_columns(path)
    with tempfile.TemporaryDirectory() as folder, gzip.open(path) as packed:
        unpacked = Path(folder) / path.stem
        with unpacked.open("wb") as file:
            shutil.copyfileobj(packed, file)
        return read_columns(unpacked)
