"""Retrieval data: queries, documents, and which documents are relevant to which query.

    load_retrieval("beir:scifact")           a folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/test.tsv
    load_retrieval("beir:scifact:dev")       the same with the judgements of qrels/dev.tsv
    load_retrieval("beir:judged.csv")        rows of query, document and relevance; without relevance, all are relevant
    load_retrieval("beir:stsb:dev")          a set of pairs: the first of two that belong together finds the second
    load_retrieval("nanobeir:SciFact")       a set of NanoBEIR, on the Hub: 50 queries, some thousand documents

A document is its title and its text, with a space between. Layout: Thakur et al. 2021, "BEIR: A Heterogeneous
Benchmark for Zero-shot Evaluation of Information Retrieval Models".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from training.data.load import load_one
from training.data.tables.columns import as_text, bad_number, listed, normalize_name, parse_number, split_names
from training.data.tables.table import open_table
from training.data.transforms import POSITIVE_ROWS, transform_for
from training.errors import InputError
from training.names import NANOBEIR, DataName

Judgements = Mapping[str, Mapping[str, float] | Collection[str]]  # query -> documents, perhaps with their grades

SPLITS = ("test", "dev", "train")  # the first that a folder has is taken
NANO_REPO = "sentence-transformers/NanoBEIR-en"
ABSENT = {"title": "", "relevance": 1.0}  # columns that a file need not have, and what their cells count as then


@dataclass(frozen=True)
class RetrievalData:
    """Q queries, each with a relevant document at least, and the N documents to rank, in the order of their ids."""

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]]  # of each query the rows of its relevant documents, and their grades above 0
    notes: tuple[str, ...] = ()

    @classmethod
    def from_dicts(
        cls, queries: Mapping[str, str], corpus: Mapping[str, str], relevant_docs: Judgements, name: str = "retrieval"
    ) -> RetrievalData:
        """Texts by id, and for each query's id those of its documents, as in sentence-transformers; or with grades.

        A document with a grade of 0 or less is not relevant. Queries without a relevant one are left out, as a note
        says. InputError if a judgement names what is not there, or no query is left.
        """
        judged = relevant_docs.items()
        graded = {query: dict(of) if isinstance(of, Mapping) else dict.fromkeys(of, 1.0) for query, of in judged}
        for what, named, texts in (("query", graded, queries), ("document", chain(*graded.values()), corpus)):
            if unknown := sorted(set(named) - texts.keys()):
                more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
                raise InputError(f"the judgements of {name} name the {what} {unknown[0]!r}{more}, which is not there")
        ids = sorted(corpus)
        row = {document: number for number, document in enumerate(ids)}
        relevant = {
            query: rows
            for query in queries
            if (rows := {row[document]: grade for document, grade in graded.get(query, {}).items() if grade > 0})
        }
        if not relevant:
            raise InputError(f"{name} has no query with a relevant document")
        left_out = len(queries) - len(relevant)
        notes = (f"{left_out:,} queries without a relevant document are left out",) if left_out else ()
        documents, asking = [corpus[key] for key in ids], [queries[key] for key in relevant]
        return cls(name, asking, documents, list(relevant.values()), notes)

    def __repr__(self) -> str:
        return f"RetrievalData({self.name!r}, {len(self.queries):,} queries, {len(self.documents):,} documents)"


def load_retrieval(name: DataName | str, home: str | Path | None = None) -> RetrievalData:
    """Load retrieval data by name, as above.

    Raises:
        InputError: a file is missing, empty or damaged; a judgement names what is not there; the Hub has no such set.
    """
    name = DataName.parse(name)
    if name.name.startswith(NANOBEIR):
        return _read_nano(name, home)
    source, split = name.judged
    if source.path.is_dir():
        return _read_folder(str(name), source.path, split)
    if source.path.is_file():
        named = split_names(source.columns) or ("query", "document", "relevance")
        if len(named) != 3:
            raise InputError(f"{name} has to name three columns: the query, the document and the relevance")
        judged, others = _judgements(source.path, named, source.encoding), list[str]()
    else:
        data = load_one(source, home, split="test")
        pairs = transform_for(data, POSITIVE_ROWS, "retrieval").columns[:2]
        judged, others = _by_query(zip(*pairs, strict=True)), data.columns[1]
    queries, corpus = ({text: text for text in texts} for texts in (judged, chain(others, *judged.values())))
    return RetrievalData.from_dicts(queries, corpus, judged, str(name))


def _read_folder(name: str, folder: Path, split: str) -> RetrievalData:
    splits = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    split = split or next((usual for usual in (*SPLITS, *splits) if usual in splits), SPLITS[0])
    if split not in splits:
        others = f"; choose {', '.join(splits)}" if splits else ", which BEIR's layout has"
        raise InputError(f"{folder} has no judgements qrels/{split}.tsv{others}")
    queries, corpus = _texts(folder / "queries.jsonl"), _texts(folder / "corpus.jsonl", "title")
    judged = _judgements(splits[split], ("query-id", "corpus-id", "score"))
    return RetrievalData.from_dicts(queries, corpus, judged, name)


def _texts(file: Path, *before: str) -> dict[str, str]:
    """Texts by id; the columns ``before`` are put before the text. InputError if an id occurs twice."""
    texts: dict[str, str] = {}
    for number, key, *parts in _rows(file, ("_id",), (*before, "text")):
        if str(key) in texts:
            raise InputError(f"{file.name}, row {number:,}: the _id {str(key)!r} occurs twice")
        texts[str(key)] = " ".join(filter(None, map(as_text, parts)))
    return texts


def _judgements(file: Path, columns: tuple[str, ...], encoding: str | None = None) -> dict[str, dict[str, float]]:
    """Query -> document -> grade. InputError for a grade that is no number."""
    grades: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for number, query, document, cell in _rows(file, columns, encoding=encoding):
        if (grade := parse_number(cell)) is None:
            raise InputError(f"{file.name}, {bad_number(columns[-1], cell, number)}")
        grades[str(query)][str(document)] = grade
    return grades


def _by_query(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, float]]:
    grades: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for query, document in pairs:
        grades[query][document] = 1.0
    return grades


def _rows(
    file: Path, keys: tuple[str, ...], others: tuple[str, ...] = (), encoding: str | None = None
) -> Iterator[tuple[Any, ...]]:
    """The number of each row, its cells of ``keys``, none of which is empty, and those of ``others``."""
    table = open_table(file, encoding)
    names = {normalize_name(column): column for column in table.columns}
    places = {column: names.get(normalize_name(column)) for column in (*keys, *others)}
    if needed := [column for column, place in places.items() if place is None and column not in ABSENT]:
        raise InputError(f"{file.name} has {listed(table.columns)}; it needs {', '.join(needed)} too")
    for batch in table.batches():
        cells = [repeat(ABSENT[name]) if place is None else batch.rows[place] for name, place in places.items()]
        for at, row in enumerate(zip(*cells, strict=False)):  # what is repeated has no end
            if empty := [key for key, cell in zip(keys, row, strict=False) if as_text(cell) is None]:
                why = f" ({batch.notes[at]})" if at in batch.notes else ""
                raise InputError(f"{file.name}, row {batch.first_row + at:,} has no {empty[0]}{why}")
            yield batch.first_row + at, *row


def _read_nano(name: DataName, home: str | Path | None) -> RetrievalData:
    """A set of the Hub's NanoBEIR: its configurations are corpus, queries and qrels, its splits the sets."""
    from training.sources.hub_dataset import read_dataset

    def rows(config: str, *columns: str) -> Iterator[Any]:
        split = f"Nano{name.name.removeprefix(NANOBEIR)}"
        cells = read_dataset(NANO_REPO, (config, split), split, lambda _: columns, home).columns
        return zip(*(cells[column] for column in columns), strict=True)

    corpus, queries = (dict(rows(config, "_id", "text")) for config in ("corpus", "queries"))
    judged = _by_query(rows("qrels", "query-id", "corpus-id"))
    return RetrievalData.from_dicts(queries, corpus, judged, str(name))
