"""Data by name, and users' files: data sets of sentences with scores or labels, and retrieval data.

    load_data("stsb:dev")                        the STS benchmark, 1,500 scored pairs
    load_data("snli+mnli")                       two sets of one form, joined
    load_data("hf:nyu-mll/glue:mrpc:validation") any data set of the Hub, by configuration and split
    load_data("mine.csv")                        a file with sentence1, sentence2 and perhaps score or label;
                                                 or anchor, positive, negative; or sentence
    load_data("old.csv?encoding=windows-1251")   the same with its encoding named
    load_data("mine.csv?columns=left,right,gold")   the same with its columns named
    load_data("mine.csv?split=test&scale=1-7")   the rows of one split, with the scale of their scores

    load_retrieval("beir:scifact")           a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/test.tsv
    load_retrieval("beir:scifact:dev")       the same with the judgements of qrels/dev.tsv
    load_retrieval("beir:judged.csv")        rows of query, document and relevance; without relevance, all are relevant
    load_retrieval("beir:stsb:dev")          a set of pairs: the first of two that belong together finds the second
    load_retrieval("nanobeir:SciFact")       a set of NanoBEIR, on the Hub: 50 queries, some thousand documents

A document is its title and its text, with a space between. Layout: Thakur et al. 2021, "BEIR: A
Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from training.catalogue import DATA_SETS, DataSet
from training.data.dataset import Dataset, check_form, join, parse_dataset
from training.data.tables.cells import as_text, bad_number, parse_number, quoted
from training.data.tables.columns import listed, normalize_name, split_names
from training.data.tables.reading import TableReading
from training.data.tables.table import open_table
from training.data.transforms import POSITIVE_ROWS, transform_for
from training.errors import InputError, NotFoundError, did_you_mean, first_line
from training.names import HUB, NANOBEIR, READ_AS, DataName
from training.sources import hub_dataset, resolve


def load_data(name: Path | str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """Loads a named set, a file, or several of one form joined by "+".

    Args:
        name: stsb:dev, a path, ``hf:<org>/<name>[:<config>][:<split>]``, …; docs/data.md describes
            all names.
        split: the split if the name does not state one ("stsb" instead of "stsb:dev") and the set
            has several.

    Returns:
        The rows, with scores or labels if there are any.

    Raises:
        InputError: the name, the configuration or the split is unknown, the set is gated or
            private, there is no network, the file cannot be read, it has no columns of sentences,
            or the forms differ.

    Example::

        from sbert_lab import load_data

        data = load_data("stsb:dev")
        print(len(data), data.columns[0][0], data.columns[1][0], data.scores[0])
    """
    return join([load_one(part, home, split) for part in DataName.parse_joined(name)])


def megabytes_to_fetch(name: DataName, home: str | Path | None = None) -> float | None:
    """The most megabytes that `load_one` fetches from the Hub; None if unknown. InputError if the Hub lacks the set."""
    source = name.built_in
    if source is not None and source.repo:
        # The sum is over the files of all splits, so any split will do if the name has none.
        split = check_split(name, source) or next(iter(source.splits))
        selectors = [source.config, source.splits[split].hub_name]
        return hub_dataset.megabytes_to_fetch(source.repo, selectors, home)
    if name.hub_parts is None:
        # A file, or a built-in set without a repository.
        return 0.0
    repo_id, *selectors = name.hub_parts
    return hub_dataset.megabytes_to_fetch(repo_id, selectors, home)


def check_data_name(name: str) -> str:
    """Returns ``name`` if each part of it is the name of a data set and not a path; InputError otherwise."""
    for part in DataName.parse_joined(name):
        if not part.is_set:
            raise InputError(
                f"{str(part)!r} is no data set that is known by name; choose one of {', '.join(DATA_SETS)}, or "
                "hf:org/name on the Hub"
            )
    return name


def load_one(name: DataName | str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """Loads one named set or one file, without joining; see `load_data`."""
    data_name = DataName.parse(name)
    if data_name.objective is not None:
        raise InputError(
            f"{name} states an objective, as only training data does; leave out ={data_name.objective}"
        )
    for key, value in zip(READ_AS, data_name.read_as, strict=True):
        if data_name.is_set and value:
            raise InputError(
                f"{data_name.name} is a set and not a file, so its {key} is known; leave out ?{key}="
            )
    if data_name.built_in is not None:
        return _load_built_in(data_name, data_name.built_in, split, home)
    if data_name.hub_parts is not None:
        repo_id, *selectors = data_name.hub_parts
        return _load_from_hub(repo_id, selectors, split, home)
    if data_name.is_retrieval:
        raise InputError(
            f"{data_name} holds queries, documents and judgements, which evaluate measures; name data of pairs"
        )
    if is_saved(data_name.path):
        return _load_saved(data_name, split)
    if data_name.path.is_dir():
        raise InputError(
            f"{data_name.path} is a folder; name a file in it, or beir:{data_name.path} to evaluate retrieval"
        )
    if not data_name.path.is_file():
        raise InputError(
            f"data {str(name)!r} is neither a file nor a known set; the sets are {', '.join(DATA_SETS)}, and "
            f"hf:org/name for any of the Hub{did_you_mean(data_name.name.partition(':')[0], DATA_SETS)}"
        )
    # `DataName.read_as` has the order of these parameters.
    return Dataset.from_file(data_name.path, *data_name.read_as)


# ---------------------------------------------------------------- the sets

# The benchmark without genres, for places without the package index.
STSB_ON_HUB = "sentence-transformers/stsb"
# A row holds genre, file, year, id, score, both sentences, and perhaps a licence.
STSB_COLUMNS = {"score": 4, "sentence1": 5, "sentence2": 6}


def check_split(name: DataName, source: DataSet) -> str:
    """The split in the name of a built-in set, "" if it has none. InputError if the set has no such split."""
    if name.split and name.split not in source.splits:
        head = name.name.partition(":")[0]
        raise InputError(f"{head} has no split {name.split!r}; choose {', '.join(source.splits)}")
    return name.split


def _load_built_in(name: DataName, source: DataSet, split: str, home: str | Path | None) -> Dataset:
    """A split of a built-in set: the split in its name, else ``split``, else the first that it has."""
    split = check_split(name, source) or split
    if split not in source.splits:
        split = next(iter(source.splits))
    if not source.repo:
        return _load_stsb(split, home)
    hub_name = source.splits[split].hub_name
    # The selectors state the split, so the third argument, which is for selectors without one, has
    # no effect.
    data = _load_from_hub(source.repo, (source.config, hub_name), hub_name, home, source.labels)
    head, _, _ = name.name.partition(":")
    return replace(data, name=f"{head}:{split}")


def _load_stsb(split: str, home: str | Path | None) -> Dataset:
    """A split of the STS benchmark, from the Hub if the home folder and the package index do not have it."""
    try:
        folder = resolve.stsb_folder(home)
    except NotFoundError as not_found:
        try:
            # "" is the default configuration.
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
    repo_id: str,
    selectors: Sequence[str],
    split: str,
    home: str | Path | None,
    labels: Sequence[str] = (),
) -> Dataset:
    """A split of a data set of the Hub.

    ``selectors`` are the parts of its name after the id: the configuration or the split, or both;
    "" is the default. ``split`` is read if they do not state one. ``labels`` are the names of the
    numbers 0, 1, … in its column label, if it has numbers.
    """

    def pick(columns: Sequence[str]) -> Sequence[str]:
        """Returns the columns to read, chosen by their names before a cell is read."""
        name = HUB + ":".join((repo_id, *selectors))
        reading = TableReading.of(name, dict.fromkeys(columns, ()))
        check_form(reading)
        return reading.used

    rows = hub_dataset.read_dataset(repo_id, selectors, split, pick, home)
    columns = dict(rows.columns)
    if labels and not any(isinstance(label, str) for label in columns["label"]):
        names = dict(enumerate(labels))
        columns["label"] = [names.get(label) for label in columns["label"]]
    name = f"{HUB}{repo_id}:{rows.config}:{rows.split}"
    return parse_dataset(name, columns, rows.source, rows.notes)


def is_saved(folder: Path) -> bool:
    """Whether a folder is what ``save_to_disk`` of the datasets library has written."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def _load_saved(name: DataName, split: str) -> Dataset:
    """A folder of ``save_to_disk``. InputError if it is damaged, or has no such split."""
    # datasets takes seconds to import.
    import datasets

    if any((name.encoding, name.scale, name.labels, name.raters, name.sheet)):
        raise InputError(
            f"{name.path.name} is a folder of data sets: of its settings only ?columns= and ?split= are read"
        )
    try:
        data = datasets.load_from_disk(name.path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{name.path.name} is a damaged folder of save_to_disk: {first_line(error)}"
        ) from error
    if isinstance(data, datasets.DatasetDict):
        # ``rows`` is ?split=. If it is not given, and the set lacks the default split, the first
        # one is read.
        split = name.rows or split
        if not name.rows and split not in data:
            split = next(iter(data), "")
        if split not in data:
            raise InputError(f"{name.path.name} has no split {split!r}; it has {', '.join(data)}")
        data = data[split]
    elif name.rows:
        raise InputError(f"{name.path.name} has no splits; leave out ?split=")
    loaded = Dataset.from_datasets(data, name.path.name, name.columns)
    return replace(loaded, source=str(name.path))


# ---------------------------------------------------------------- retrieval

# For each query its relevant documents, perhaps with their grades.
Judgements = Mapping[str, Mapping[str, float] | Collection[str]]

# The first split that a folder has is taken.
SPLITS = ("test", "dev", "train")
NANO_REPO = "sentence-transformers/NanoBEIR-en"
# The values of columns that a file need not have.
ABSENT = {"title": "", "relevance": 1.0}


@dataclass(frozen=True)
class RetrievalData:
    """Q queries, each with at least one relevant document, and the N documents to rank, in the order of their ids.

    ``relevant`` holds for each query the positions of its relevant documents, and their grades
    above 0.

    Example::

        from sbert_lab import RetrievalData, evaluate

        documents = {"d1": "A man eats food.", "d2": "It snows."}
        data = RetrievalData.from_dicts({"q1": "Who eats?"}, documents, {"q1": {"d1"}})
        print(evaluate("all-MiniLM-L6-v2", data)["mrr@10"])
    """

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]]
    notes: tuple[str, ...] = ()

    @classmethod
    def from_dicts(
        cls,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        relevant_docs: Judgements,
        name: str = "retrieval",
    ) -> RetrievalData:
        """Retrieval data of texts by id, and for each query's id its documents, as in sentence-transformers.

        Grades are optional; a document with a grade of 0 or less is not relevant. Queries without a
        relevant document are left out, as a note says. InputError if a judgement is about a query or
        a document that has no text, or if no query is left.
        """
        graded: dict[str, Mapping[str, float]] = {}
        for query, judged in relevant_docs.items():
            graded[query] = judged if isinstance(judged, Mapping) else dict.fromkeys(judged, 1.0)
        _check_ids(name, "query", graded, queries)
        _check_ids(name, "document", chain.from_iterable(graded.values()), corpus)
        ids = sorted(corpus)
        row_of = {document: row for row, document in enumerate(ids)}
        texts = []
        relevant = []
        for query, text in queries.items():
            grades = graded.get(query, {})
            rows = {row_of[document]: grade for document, grade in grades.items() if grade > 0}
            if rows:
                texts.append(text)
                relevant.append(rows)
        if not texts:
            raise InputError(f"{name} has no query with a relevant document")
        notes: tuple[str, ...] = ()
        left_out = len(queries) - len(texts)
        if left_out:
            notes = (f"{left_out:,} queries without a relevant document are left out",)
        return cls(name, texts, [corpus[key] for key in ids], relevant, notes)

    def __repr__(self) -> str:
        return f"RetrievalData({self.name!r}, {len(self.queries):,} queries, {len(self.documents):,} documents)"


def _check_ids(name: str, what: str, ids: Iterable[str], texts: Mapping[str, str]) -> None:
    """Raises InputError if the judgements name an id that has no text."""
    unknown = sorted(set(ids) - texts.keys())
    if unknown:
        more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise InputError(
            f"the judgements of {name} name the {what} {unknown[0]!r}{more}, which is not there"
        )


def load_retrieval(name: DataName | str, home: str | Path | None = None) -> RetrievalData:
    """Loads retrieval data by name, as above.

    InputError if a file is missing, empty or damaged, a judgement names what is not there, or the
    Hub has no such set.
    """
    name = DataName.parse(name)
    if name.name.startswith(NANOBEIR):
        return _read_nano(name, home)
    # The folder, file or set that "beir:" names, and the split of a folder, "" if it is not named.
    source, split = name.judged
    is_file = source.path.is_file()
    # Only the encoding and the columns of a file, the first two of `READ_AS`, can be named, and
    # nothing of a folder. `load_one` checks the settings of a set.
    unused = source.read_as[2:] if is_file else source.read_as
    if source.exists and any(unused):
        raise InputError(f"{name} holds judgements, which have no such settings; leave them out")
    if source.path.is_dir():
        return _read_folder(str(name), source.path, split)
    others: list[str] = []
    if is_file:
        columns = split_names(source.columns) or ("query", "document", "relevance")
        if len(columns) != 3:
            raise InputError(
                f"{name} has to name three columns: the query, the document and the relevance"
            )
        judgements = _by_query(_judgements(source.path, columns, source.encoding))
    else:
        data = load_one(source, home, split="test")
        # The result may be triplets, whose negatives are not relevant to the query.
        firsts, seconds, *_ = transform_for(data, POSITIVE_ROWS, "retrieval").columns
        judgements = _by_query(zip(firsts, seconds, repeat(1.0), strict=False))
        # Second sentences that belong to no query are documents too.
        others = data.columns[1]
    # Each text is its own id.
    queries = {query: query for query in judgements}
    corpus = {text: text for text in chain(others, *judgements.values())}
    return RetrievalData.from_dicts(queries, corpus, judgements, str(name))


def _read_folder(name: str, folder: Path, split: str) -> RetrievalData:
    """A folder in BEIR's layout. Without a ``split`` its first one of `SPLITS` is read, or else any."""
    splits = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not split:
        # If there are no splits at all, the error below names the first usual one.
        split = next((usual for usual in (*SPLITS, *splits) if usual in splits), SPLITS[0])
    if split not in splits:
        others = f"; choose {', '.join(splits)}" if splits else ", which BEIR's layout has"
        raise InputError(f"{folder} has no judgements qrels/{split}.tsv{others}")
    queries = _texts(folder / "queries.jsonl")
    corpus = _texts(folder / "corpus.jsonl", "title")
    judgements = _by_query(_judgements(splits[split], ("query-id", "corpus-id", "score")))
    return RetrievalData.from_dicts(queries, corpus, judgements, name)


def _read_nano(name: DataName, home: str | Path | None) -> RetrievalData:
    """A set of the Hub's NanoBEIR: its configurations are corpus, queries and qrels, its splits the sets."""
    split = f"Nano{name.name.removeprefix(NANOBEIR)}"

    def rows(config: str, *columns: str) -> Iterator[Any]:
        # The columns are the same in every set, so that nothing has to be picked.
        data = hub_dataset.read_dataset(NANO_REPO, (config, split), split, lambda _: columns, home)
        return zip(*(data.columns[column] for column in columns), strict=True)

    queries = dict(rows("queries", "_id", "text"))
    corpus = dict(rows("corpus", "_id", "text"))
    # The judgements have no grades: each document that they name is relevant.
    judgements = _by_query((*pair, 1.0) for pair in rows("qrels", "query-id", "corpus-id"))
    return RetrievalData.from_dicts(queries, corpus, judgements, str(name))


def _texts(file: Path, *before: str) -> dict[str, str]:
    """Texts by id, with the cells of the columns ``before`` in front of them. InputError if an id occurs twice."""
    texts: dict[str, str] = {}
    for number, key, *parts in _rows(file, ("_id",), (*before, "text")):
        if str(key) in texts:
            raise InputError(f"{file.name}, row {number:,}: the _id {str(key)!r} occurs twice")
        texts[str(key)] = " ".join(filter(None, map(as_text, parts)))
    return texts


def _judgements(
    file: Path, columns: tuple[str, ...], encoding: str | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yields each query, document and grade of a file. InputError for a grade that is not a number."""
    for number, query, document, cell in _rows(file, columns, encoding=encoding):
        grade = parse_number(cell)
        if grade is None:
            raise InputError(f"{file.name}, {bad_number(columns[-1], cell, number)}")
        yield str(query), str(document), grade


def _by_query(judgements: Iterable[tuple[str, str, float]]) -> dict[str, dict[str, float]]:
    """The grades by query and document. InputError if a document has two grades for a query."""
    grades: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for query, document, grade in judgements:
        earlier = grades[query].setdefault(document, grade)
        if earlier != grade:
            what = f"{quoted(document)} is judged twice for the query {quoted(query)}"
            raise InputError(f"{what}, with the grades {earlier:g} and {grade:g}; keep one")
    return grades


def _rows(
    file: Path, keys: tuple[str, ...], others: tuple[str, ...] = (), encoding: str | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yields the number of each row and its cells of ``keys`` and ``others``. InputError if a key is empty."""
    table = open_table(file, encoding)
    by_key = {normalize_name(column): column for column in table.columns}
    columns = {name: by_key.get(normalize_name(name)) for name in (*keys, *others)}
    # `ABSENT` has the values of columns that a file need not have.
    missing = [name for name, column in columns.items() if column is None and name not in ABSENT]
    if missing:
        raise InputError(
            f"{file.name} has {listed(table.columns)}; it needs {', '.join(missing)} too"
        )
    for batch in table.batches():
        cells: list[Iterable[Any]] = []
        for name, column in columns.items():
            cells.append(batch.rows[column] if column else repeat(ABSENT[name]))
        # `repeat` has no end, so that the lengths differ.
        for at, row in enumerate(zip(*cells, strict=False)):
            number = batch.first_row + at
            # The cells of the keys come first.
            for key, cell in zip(keys, row, strict=False):
                if as_text(cell) is None:
                    why = f" ({batch.notes[at]})" if at in batch.notes else ""
                    raise InputError(f"{file.name}, row {number:,} has no {key}{why}")
            yield number, *row
