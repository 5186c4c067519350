"""Searches in a corpus: the sentences nearest to a query, the most similar pairs, and near duplicates.

Two sentences are the same text if they have the same words, regardless of case, whitespace and
punctuation. Such pairs have a cosine near 1 and would hide the interesting ones, so the most similar
pairs are sought among the first sentences of each text.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus, sentence_of
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.files.layout import Layout
from sbert_app.services.files.writers import Column, open_writers, save_table, with_file_columns
from sbert_app.services.models.unknown import check_finite, unknown_warnings
from sbert_app.services.store.cache import DiskCache, digest
from training.data.tables.columns import free_name
from training.errors import InputError
from training.models.model import PairModel, VectorModel
from training.models.texts import first_positions

MAX_K = 100
# A sentence is similar to a query if their cosine is at least UNLIKE, and exceeds the mean cosine
# of random pairs by ABOVE_RANDOM.
UNLIKE = 0.25
ABOVE_RANDOM = 0.1
# The cross-encoder reads this many times k sentences.
CANDIDATES = 4


@dataclass(frozen=True)
class Hit:
    """A sentence near to a query, with its row from 0, its ranks from 1, and the cross-encoder's score from 0 to 1."""

    row: int
    sentence: str
    cosine: float
    rank: int
    cross_score: float | None = None
    cross_rank: int | None = None


@dataclass(frozen=True)
class SearchResult:
    """The k sentences nearest to a query by cosine, and the k best ``candidates`` that the cross-encoder read.

    ``index_note`` states the measured recall of an index that is not exact. ``random_cosine`` is
    the mean cosine of two sentences of the corpus. ``warnings`` are about text that the model does
    not know.
    """

    query: str
    by_cosine: list[Hit]
    searched: int
    exact: bool
    encode_ms: float
    search_ms: float
    by_cross: list[Hit] = field(default_factory=list)
    cross_ms: float | None = None
    candidates: int = 0
    cross_encoder: str | None = None
    index_note: str = ""
    random_cosine: float = 0.0
    warnings: list[str] = field(default_factory=list)

    @property
    def finds_nothing(self) -> bool:
        """Whether not even the nearest sentence is similar to the query."""
        least = max(UNLIKE, self.random_cosine + ABOVE_RANDOM)
        return bool(self.by_cosine) and self.by_cosine[0].cosine < least

    @property
    def hits(self) -> list[Hit]:
        """The hits in the order of the cross-encoder if there is one, else by cosine."""
        return self.by_cross if self.cross_encoder else self.by_cosine

    def to_json(self) -> dict[str, Any]:
        """The hits in their final order, with rows from 1, and the time of each step, as JSON values."""
        return {
            "query": self.query,
            "searched": self.searched,
            "exact": self.exact,
            "cross_encoder": self.cross_encoder,
            "candidates": self.candidates,
            "milliseconds": {
                "encode": self.encode_ms,
                "search": self.search_ms,
                "cross_encoder": self.cross_ms,
            },
            "hits": [asdict(hit) | {"row": hit.row + 1} for hit in self.hits],
            "warnings": self.warnings,
        }


def check_query(query: str, k: int) -> None:
    """Raises InputError if the query is empty, or k is not between 1 and 100."""
    if not query.strip():
        raise InputError("the query is empty: type a sentence to search for.")
    if not 1 <= k <= MAX_K:
        raise InputError(f"k is {k:,}; it must be from 1 to {MAX_K}.")


def search(
    embedded: EmbeddedCorpus,
    query: str,
    encoder: VectorModel,
    k: int = 10,
    cross_encoder: PairModel | None = None,
    keep_unknown: bool = False,
) -> SearchResult:
    """The k sentences of a corpus nearest to a query.

    Unless ``keep_unknown``, sentences without any token that the model knows are never found, and
    such a query finds nothing. A cross-encoder scores the 4 · k nearest sentences against the query,
    and its k best are returned. Raises InputError if the query is empty, or k is not between 1 and
    100.
    """
    check_query(query, k)
    index = embedded.index
    started = time.perf_counter()
    vector = check_finite(encoder, encoder.encode([query]), ["the query"])
    warnings = unknown_warnings([encoder, cross_encoder], [query], ["the query"])
    encode_ended = time.perf_counter()
    count = k * CANDIDATES if cross_encoder else k
    # Unknown sentences may be among the nearest, and are left out afterwards. Then ``count``
    # sentences remain: the hits, or the candidates of the cross-encoder.
    most = min(count + len(embedded.unknown), len(embedded))
    cosines, rows = index.nearest(vector, most)  # (1, most) each
    is_hit = np.ones(most, dtype=bool)
    if not keep_unknown:
        is_hit = ~np.isin(rows[0], embedded.unknown)
        # If the query is unknown, no sentence is a hit.
        is_hit &= not encoder.is_unknown([query])[0]
    search_ended = time.perf_counter()
    nearest: list[Hit] = []
    hit_rows = rows[0, is_hit][:count].tolist()
    hit_cosines = cosines[0, is_hit][:count].tolist()
    for row, cosine in zip(hit_rows, hit_cosines, strict=True):
        nearest.append(Hit(row, embedded.corpus.sentences[row], cosine, rank=len(nearest) + 1))
    result = SearchResult(
        query,
        nearest[:k],
        searched=len(embedded),
        exact=index.exact,
        encode_ms=(encode_ended - started) * 1e3,
        search_ms=(search_ended - encode_ended) * 1e3,
        # Only an index that is not exact has a note.
        index_note=getattr(index, "note", ""),
        random_cosine=embedded.random_cosine,
        warnings=[*warnings, *embedded.warnings],
    )
    if cross_encoder is None or not nearest:
        return result
    return _rerank(result, nearest, k, cross_encoder)


def _rerank(
    result: SearchResult, candidates: list[Hit], k: int, cross_encoder: PairModel
) -> SearchResult:
    """Adds the k best candidates by the cross-encoder to the result."""
    started = time.perf_counter()
    scores = cross_encoder.predict([(result.query, hit.sentence) for hit in candidates])
    milliseconds = (time.perf_counter() - started) * 1e3
    by_cross: list[Hit] = []
    for position in np.argsort(-scores, kind="stable").tolist():
        score = float(scores[position])
        rank = len(by_cross) + 1
        by_cross.append(replace(candidates[position], cross_score=score, cross_rank=rank))
    # The hits by cosine state the score and the rank by the cross-encoder, too.
    by_cosine = sorted(by_cross, key=lambda hit: hit.rank)
    return replace(
        result,
        by_cosine=by_cosine[: len(result.by_cosine)],
        by_cross=by_cross[:k],
        cross_ms=milliseconds,
        candidates=len(candidates),
        cross_encoder=cross_encoder.name,
    )


MAX_PAIRS = 10_000
# Sentences with at least this cosine are near-duplicates, unless a user has another threshold.
NEAR = 0.95
# Up to this number of sentences, near-duplicates are counted when a corpus is opened.
MAX_COUNTED = 10_000
# The number of sentences that are searched for in another corpus at a time.
BLOCK = 1_024
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SimilarPairs:
    """The most similar pairs of a corpus by rows and cosine, best first, and the number of sentences compared.

    ``same_text`` is the number of sentences that were left out because the same text came before,
    ``unknown`` the number of sentences that were left out because they have no known token.
    """

    pairs: list[tuple[int, int, float]]
    compared: int
    same_text: int
    seconds: float
    unknown: int = 0

    @property
    def combinations(self) -> int:
        return self.compared * (self.compared - 1) // 2


@dataclass(frozen=True)
class NearDuplicates:
    """The sentences of a corpus that nearly duplicate an earlier sentence.

    ``original`` has the position of the earlier sentence, or of the sentence itself if there is
    none, int64 (N,).
    """

    original: np.ndarray
    threshold: float
    seconds: float

    @property
    def originals(self) -> np.ndarray:
        """Positions of the sentences without an earlier near duplicate."""
        return np.flatnonzero(self.original == np.arange(len(self.original)))


def similar_pairs(
    embedded: EmbeddedCorpus,
    k: int,
    threshold: float = -1.0,
    hide_same: bool = True,
    watch: Watch = UNWATCHED,
) -> SimilarPairs:
    """The k most similar pairs of a corpus with a cosine of ``threshold`` or more. InputError if k is less than 1.

    Sentences without known tokens are left out. With ``hide_same``, only the first sentence of each
    text is compared.
    """
    # The import of torch takes seconds.
    from training.search import most_similar_pairs

    started = time.perf_counter()
    distinct = np.arange(len(embedded))
    if hide_same:
        distinct = first_of_each_text(embedded.corpus.sentences)
    # Of these, the rows of sentences with known tokens (`comparable`).
    rows = np.intersect1d(distinct, embedded.comparable, assume_unique=True)
    # If all are compared, the vectors are not copied.
    vectors = embedded.vectors if len(rows) == len(embedded) else embedded.vectors[rows]
    best = most_similar_pairs(
        vectors, k, threshold, on_progress=watch.on_progress, should_stop=watch.should_stop
    )
    pairs = [(int(rows[i]), int(rows[j]), cosine) for i, j, cosine in best]
    return SimilarPairs(
        pairs,
        compared=len(rows),
        same_text=len(embedded) - len(distinct),
        seconds=time.perf_counter() - started,
        unknown=len(distinct) - len(rows),
    )


def find_near_duplicates(
    embedded: EmbeddedCorpus, threshold: float = NEAR, watch: Watch = UNWATCHED
) -> NearDuplicates:
    """Finds the sentences that nearly duplicate an earlier original.

    In the order of the rows, a sentence is an original unless its cosine with an earlier original
    is ``threshold`` or more. A sentence without known tokens duplicates only the same text.
    """
    from training.clustering import near_duplicates

    started = time.perf_counter()
    # Sentences without known tokens are not compared by their vectors.
    rows = embedded.comparable
    # The position of the first sentence that equals each one. It stays for sentences without known
    # tokens.
    original = first_positions(embedded.corpus.sentences)
    vectors = embedded.vectors if len(rows) == len(embedded) else embedded.vectors[rows]
    # For each vector the position in ``rows`` of its original, or its own.
    positions = near_duplicates(vectors, threshold, watch.on_progress, watch.should_stop)
    original[rows] = rows[positions]
    return NearDuplicates(original, threshold, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest sentence in another corpus for each sentence: cosines (N,) and rows, int64 (N,)."""

    cosines: np.ndarray
    rows: np.ndarray

    def matches(self, threshold: float) -> np.ndarray:
        """The rows whose nearest sentence has a cosine of ``threshold`` or more, the most similar first."""
        order = np.argsort(-self.cosines, kind="stable")
        return order[self.cosines[order] >= threshold]


def nearest_in(
    embedded: EmbeddedCorpus, other: EmbeddedCorpus, cache: DiskCache, watch: Watch = UNWATCHED
) -> Nearest:
    """Finds for each sentence the nearest one in another corpus under the same model, or reads them from the cache.

    The cosine is −1 if one of the two sentences has no known token. Raises InputError if the vectors
    have different dimensions.
    """
    if embedded.vectors.shape[1] != other.vectors.shape[1]:
        raise InputError(
            f"{embedded.corpus.name} and {other.corpus.name} have vectors of different dimensions."
        )

    def compute() -> np.ndarray:
        # Cosines and rows, as the cache stores one array. Its type is float64, in which rows are
        # exact.
        nearest = np.empty((2, len(embedded)))
        for start in range(0, len(embedded), BLOCK):
            watch.check()
            part = slice(start, start + BLOCK)
            cosines, rows = other.index.nearest(np.asarray(embedded.vectors[part]), 1)
            nearest[0, part] = cosines[:, 0]
            nearest[1, part] = rows[:, 0]
            # None keeps the description of the stage.
            watch.report(start, None, len(embedded))
        return nearest

    key = digest(["nearest in another", embedded.key, other.key])
    cosines, rows = cache.get_or_compute(key, compute)
    # The array belongs to this call: what the cache has stored does not change.
    cosines[embedded.unknown] = -1
    cosines[np.isin(rows, other.unknown)] = -1
    return Nearest(cosines, rows.astype(np.int64))


def first_of_each_text(sentences: Sequence[str]) -> np.ndarray:
    """Positions of the first sentence of each text: int64, ascending."""
    return np.unique(first_positions(list(map(normalize_text, sentences))))


def normalize_text(sentence: str) -> str:
    """The words of a sentence in lower case; equal for sentences that are the same text."""
    return " ".join(WORD.findall(sentence.casefold())) or sentence


def save_pairs(similar: SimilarPairs, corpus: Corpus, folder: Path) -> Path:
    """Writes a CSV file of the pairs with row numbers from 1. Raises InputError if it cannot be written."""
    firsts = [first for first, _, _ in similar.pairs]
    seconds = [second for _, second, _ in similar.pairs]
    columns: dict[str, Column] = {
        "cosine": np.array([cosine for _, _, cosine in similar.pairs]),
        "row1": [row + 1 for row in firsts],
        "row2": [row + 1 for row in seconds],
        "sentence1": [corpus.sentences[row] for row in firsts],
        "sentence2": [corpus.sentences[row] for row in seconds],
    }
    return save_table(folder / "similar-pairs.csv", columns)


def save_rows(corpus: Corpus, rows: np.ndarray, folder: Path, name: str, **columns: Any) -> Path:
    """Writes a CSV file of sentences with ``columns`` and the columns of the corpus. InputError if that fails."""
    selected = corpus.select(rows.tolist())
    columns["sentence"] = selected.sentences
    return save_table(folder / name, with_file_columns(columns, selected.columns))


def save_like_file(
    corpus: Corpus, duplicates: NearDuplicates, output: Path, kept_only: bool
) -> Path:
    """Writes the rows of the corpus's file unchanged: only the kept ones, or all of them with two more columns.

    A row of pairs duplicates an earlier row if each of its sentences duplicates the sentence in the
    same column of that row. The first row of a group of duplicates is kept. The column ``group``
    has the number of that row; it is empty for rows without text. The column ``kept`` says whether
    a row is kept. The ending of ``output`` determines the format. InputError if it cannot be
    written.
    """
    table = corpus.table
    if table is None:
        raise ValueError("the corpus is not made of the rows of a file")
    # In the form in which the cells of the file are looked up below.
    texts = [sentence_of(sentence) for sentence in corpus.sentences]
    original_of = dict(zip(texts, duplicates.original.tolist(), strict=True))
    # The number of the first row of each group, by the originals of its sentences.
    first_row: dict[tuple[int | None, ...], int] = {}
    group_column = free_name("group", table.columns)
    kept_column = free_name("kept", table.columns)
    added = {} if kept_only else {group_column: "int64", kept_column: "bool"}
    layout = Layout.of(table)
    with open_writers([output], table.path, table.fields(), added, layout=layout) as (writer,):
        for batch in table.batches():
            groups: list[int | None] = []
            is_kept = []
            text_columns = [batch.rows[name] for name in corpus.text_columns]
            cells_of_rows = zip(*text_columns, strict=True)
            for number, cells in enumerate(cells_of_rows, start=batch.first_row):
                originals = tuple(original_of.get(sentence_of(cell)) for cell in cells)
                # A cell without text has no original.
                group = None if None in originals else first_row.setdefault(originals, number)
                groups.append(group)
                is_kept.append(group == number)
            if not kept_only:
                writer.write(batch, {group_column: groups, kept_column: is_kept})
            elif any(is_kept):
                writer.write(batch.at(np.flatnonzero(is_kept).tolist()), {})
    return output
