"""Data sets by name, and users' files, as parallel lists of sentences with scores or labels.

    load_data("stsb:dev")                        the STS benchmark, 1,500 scored pairs
    load_data("snli+mnli")                       two sets of one form, joined
    load_data("hf:nyu-mll/glue:mrpc:validation") any data set of the Hub, by configuration and split
    load_data("mine.csv")                        a file with sentence1, sentence2 and perhaps score or label;
                                                 or anchor, positive, negative; or sentence
    load_data("old.csv?encoding=windows-1251")   the same, its encoding named instead of found out

A `Dataset` has the same units whatever the source; `training.data.parsing` makes one from columns of cells. Which
objective can learn from which form, and the transforms that derive it, are in `training.data.transforms`.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from training.data.dataset import LABELLED, PAIRS, SCORED, SENTENCES, TOP_SCORE, TRIPLETS, Dataset, join
from training.data.parsing import NLI_LABELS, Columns, parse_dataset, used_columns
from training.data.reference import parse_file, split_names
from training.data.tables.columns import canonical_names
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
    "check_data_name",
    "is_data_name",
    "join",
    "load_data",
    "split_names",
]


class HubSplit(NamedTuple):
    """A split of a built-in set: its name on the Hub, and the patterns of its files, tried in order, in a folder."""

    name: str
    files: tuple[str, ...]


class HubSet(NamedTuple):
    """A built-in set: its repository on the Hub and its splits."""

    repo: str
    splits: dict[str, HubSplit]
    config: str = "default"
    labels: tuple[str, ...] = ()  # what the numbers 0, 1, 2 of its label column mean


def _sts(repo: str) -> HubSet:
    return HubSet(repo, {"test": HubSplit("test", ("*test*.parquet", "*test*.jsonl*", "*test*.json*"))})


def _splits(folder: str, **names: str) -> dict[str, HubSplit]:
    """train, dev and test by the names that the Parquet files in a folder of the repository have."""
    return {split: HubSplit(name, (f"{folder}/{name}-*.parquet",)) for split, name in names.items()}


HUB_SETS: dict[str, HubSet] = {
    **{f"sts{year}": _sts(f"mteb/sts{year}-sts") for year in (12, 13, 14, 15, 16)},
    "sickr": _sts("mteb/sickr-sts"),
    "snli": HubSet(
        "stanfordnlp/snli",
        _splits("plain_text", train="train", dev="validation", test="test"),
        "plain_text",
        NLI_LABELS,
    ),
    "mnli": HubSet(
        "nyu-mll/multi_nli",
        _splits("data", train="train", dev="validation_matched", test="validation_mismatched"),
        labels=NLI_LABELS,
    ),
    "all-nli": HubSet(
        "sentence-transformers/all-nli",
        _splits("pair-class", train="train", dev="dev", test="test"),
        "pair-class",
        NLI_LABELS,
    ),
    "wiki-sections": HubSet(
        "sentence-transformers/wikipedia-sections",
        _splits("triplet", train="train", dev="validation", test="test"),
        "triplet",
    ),
}
STSB_SPLITS = ("train", "dev", "test")
DATA_NAMES = ("stsb", *HUB_SETS)


HUB_PREFIX = "hf:"
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
    return join([load_one(part, home, split) for part in split_names(name)])


def is_data_name(name: str) -> bool:
    """Whether a single name is that of a built-in set or of one on the Hub, and not a path."""
    return name.partition(":")[0] in DATA_NAMES or name.startswith(HUB_PREFIX)


def check_data_name(name: str) -> str:
    """``name``, for places where a path must not be taken. InputError unless each part of it is a data set's name."""
    for part in split_names(name):
        if not is_data_name(part):
            known = ", ".join(DATA_NAMES)
            raise InputError(
                f"{part!r} is no data set that is known by name; choose one of {known}, or hf:org/name on the Hub"
            )
    return name


def load_one(name: str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """One named set or one file, without joining. See `load_data`."""
    head, _, rest = name.partition(":")
    if head == "stsb":
        return _load_stsb(rest or split, home)
    if head in HUB_SETS:
        return _load_built_in(head, rest, split, home)
    if name.startswith(HUB_PREFIX):
        return _load_from_hub(rest, split, home)
    file = parse_file(name)
    path = Path(file.path).expanduser()
    if not path.is_file():
        known = ", ".join(DATA_NAMES)
        raise InputError(
            f"data {name!r} is neither a file nor a known set; the sets are {known}, and hf:org/name for any of the Hub"
        )
    columns, remarks = _read(path, file.encoding)
    data = parse_dataset(path.name, columns, source=str(path))
    return replace(data, notes=(*remarks, *data.notes))


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


def _load_built_in(head: str, asked: str, split: str, home: str | Path | None) -> Dataset:
    source = HUB_SETS[head]
    chosen = asked or (split if split in source.splits else next(iter(source.splits)))
    if chosen not in source.splits:
        raise InputError(f"{head} has no split {chosen!r}; choose {', '.join(source.splits)}")
    columns, origin, notes = _rows_of(source, source.splits[chosen], home)
    names = dict(enumerate(source.labels))
    if names and not any(isinstance(label, str) for label in columns["label"]):
        columns["label"] = [names.get(label) for label in columns["label"]]
    data = parse_dataset(f"{head}:{chosen}", columns, origin)
    return replace(data, notes=(*notes, *data.notes))


def _rows_of(source: HubSet, split: HubSplit, home: str | Path | None) -> tuple[Columns, str, tuple[str, ...]]:
    """Columns, where they are from, and notes: from files that are already here, else by the `datasets` library."""
    from training.sources.hub_dataset import read_dataset
    from training.sources.resolve import local_dataset_files

    located = local_dataset_files(source.repo, split.files, home)
    if located is None:
        wanted = partial(used_columns, source.repo)
        rows = read_dataset(source.repo, (source.config, split.name), split.name, wanted, home)
        return _by_canonical_names(rows.columns), rows.source, rows.notes
    tables = [_read(path)[0] for path in located.paths]
    return {name: [cell for table in tables for cell in table[name]] for name in tables[0]}, located.source, ()


def _by_canonical_names(columns: Columns) -> Columns:
    names = canonical_names(list(columns))
    return {names[name]: cells for name, cells in columns.items()}


def _load_from_hub(rest: str, split: str, home: str | Path | None) -> Dataset:
    """``rest`` is <org>/<name>[:<config>][:<split>]."""
    from training.sources.hub_dataset import read_dataset

    repo_id, *selectors = rest.split(":")
    rows = read_dataset(repo_id, selectors, split, partial(used_columns, f"{HUB_PREFIX}{rest}"), home)
    name = f"{HUB_PREFIX}{repo_id}:{rows.config}:{rows.split}"
    data = parse_dataset(name, _by_canonical_names(rows.columns), rows.source)
    return replace(data, notes=(*rows.notes, *data.notes))


def _read(path: Path, encoding: str | None = None) -> tuple[Columns, tuple[str, ...]]:
    """A file's columns, and remarks on how it was understood; the sets on the Hub are sometimes gzipped.

    InputError also if it unpacks to too much.
    """
    from training.data.tables.table import columns_of, open_table

    if path.suffix != ".gz":
        table = open_table(path, encoding)
        return columns_of(table), table.remarks
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / path.stem
        _unpack(path, unpacked)
        table = open_table(unpacked, encoding)
        return columns_of(table), table.remarks


def _unpack(path: Path, unpacked: Path) -> None:
    """Unpack a gzip file, a piece at a time. InputError if it is damaged or larger than `MOST_UNPACKED`."""
    size = 0
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
