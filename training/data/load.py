"""Data sets by name, and users' files, as parallel lists of sentences with scores or labels.

    load_data("stsb:dev")                        the STS benchmark, 1,500 scored pairs
    load_data("snli+mnli")                       two sets of one form, joined
    load_data("hf:nyu-mll/glue:mrpc:validation") any data set of the Hub, by configuration and split
    load_data("mine.csv")                        a file with sentence1, sentence2 and perhaps score or label;
                                                 or anchor, positive, negative; or sentence
    load_data("old.csv?encoding=windows-1251")   the same, its encoding named instead of found out
    load_data("mine.csv?columns=left,right,gold")   the same, its columns named

A `Dataset` has the same units whatever the source (`training.data.dataset`). Which
objective can learn from which form, and the transforms that derive it, are in `training.data.transforms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from training.catalogue import DATA_SETS, DataSet
from training.data.dataset import Dataset, join, parse_dataset, used_columns
from training.errors import InputError, NotFoundError, did_you_mean
from training.names import HUB, DataName


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
            raise InputError(
                f"{str(part)!r} is no data set that is known by name; choose one of {', '.join(DATA_SETS)}, or "
                "hf:org/name on the Hub"
            )
    return name


def load_one(name: DataName | str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """One named set or one file, without joining. See `load_data`."""
    file = DataName.parse(name)
    if file.objective is not None:
        raise InputError(f"{name} states an objective, as only training data does; leave out ={file.objective}")
    if file.columns is not None and file.is_set:
        raise InputError(f"{file.name} is a set and no file, whose columns are known; leave out ?columns=")
    if file.built_in is not None:
        return _load_built_in(file, file.built_in, split, home)
    if file.hub_parts is not None:
        repo_id, *selectors = file.hub_parts
        return _load_from_hub(repo_id, selectors, split, home)
    if file.is_retrieval:
        raise InputError(f"{file} holds queries, documents and judgements, which evaluate measures; name data of pairs")
    path = file.path
    if not path.is_file():
        raise InputError(
            f"data {str(name)!r} is neither a file nor a known set; the sets are {', '.join(DATA_SETS)}, and "
            f"hf:org/name for any of the Hub{did_you_mean(file.name.partition(':')[0], DATA_SETS)}"
        )
    return Dataset.from_file(path, file.encoding, file.columns)


# ---------------------------------------------------------------- the sets

STSB_ON_HUB = "sentence-transformers/stsb"  # without genres, for places without the package index
STSB_COLUMNS = {"score": 4, "sentence1": 5, "sentence2": 6}  # genre, file, year, id, score, s1, s2, licence…


def check_split(name: DataName, source: DataSet) -> str:
    """The split that the name of a built-in set says, "" if it says none. InputError if the set has no such split."""
    if name.split and name.split not in source.splits:
        head = name.name.partition(":")[0]
        raise InputError(f"{head} has no split {name.split!r}; choose {', '.join(source.splits)}")
    return name.split


def _load_built_in(name: DataName, source: DataSet, split: str, home: str | Path | None) -> Dataset:
    head = name.name.partition(":")[0]
    split = check_split(name, source) or (split if split in source.splits else next(iter(source.splits)))
    if not source.repo:
        return _load_stsb(split, home)
    hub_name = source.splits[split].hub_name
    data = _load_from_hub(source.repo, (source.config, hub_name), hub_name, home, source.labels)
    return replace(data, name=f"{head}:{split}")


def _load_stsb(split: str, home: str | Path | None) -> Dataset:
    from training.sources.resolve import stsb_folder

    try:
        folder = stsb_folder(home)
    except NotFoundError as not_found:
        try:
            data = _load_from_hub(STSB_ON_HUB, ("", split), split, home)
        except InputError as error:
            details = (*not_found.details, str(error))
            raise NotFoundError(f"{not_found}; {error}", not_found.summary, details) from error
        return replace(data, name=f"stsb:{split}")
    # Tab separated and never quoted: a csv reader would swallow rows at a lone quotation mark.
    lines = (folder.path / f"sts-{split}.csv").read_text(encoding="utf-8").split("\n")
    cells = [line.split("\t") for line in lines if line.strip()]
    columns = {name: [row[at] for row in cells] for name, at in STSB_COLUMNS.items()}
    return parse_dataset(f"stsb:{split}", columns, folder.source)


def _load_from_hub(
    repo_id: str, selectors: Sequence[str], split: str, home: str | Path | None, labels: Sequence[str] = ()
) -> Dataset:
    """A data set of the Hub; ``labels`` are the names of 0, 1, … where its label column has numbers."""
    from training.sources.hub_dataset import read_dataset

    rows = read_dataset(repo_id, selectors, split, partial(used_columns, HUB + ":".join((repo_id, *selectors))), home)
    columns = {role: rows.columns[column] for column, role in used_columns(repo_id, list(rows.columns)).items()}
    if labels and not any(isinstance(label, str) for label in columns["label"]):
        names = dict(enumerate(labels))
        columns["label"] = [names.get(label) for label in columns["label"]]
    return parse_dataset(f"{HUB}{repo_id}:{rows.config}:{rows.split}", columns, rows.source, rows.notes)
