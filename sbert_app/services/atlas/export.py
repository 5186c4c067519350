"""Export a file, or an open corpus, with its vectors, its map and its clusters.

    export_file(table, column, Path("atlas.parquet"), encoder, home)        as many rows as the disk holds
    export_corpus(embedded, labels, titles, Path("atlas.parquet"), …)       what the Explore page has open

A file is read four times, in batches: to count its rows, to encode them (into a file of vectors that an interrupted
export goes on from), to take a sample, and to write. In memory are a batch, the sample, and of each row its point and
its cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from sbert_app.services.atlas.writing import AtlasColumns, AtlasSummary, write_atlas
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import HDBSCAN, NOISE, ClusterSettings, cluster, join_nearest
from sbert_app.services.clusters.summary import TITLE_KEYWORDS, keywords_of
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import EmbeddedCorpus, Sample, fingerprint, sample_of, sample_rows
from sbert_app.services.corpus.neighbours import neighbour_index, neighbours
from sbert_app.services.corpus.vector_file import SUFFIX, encode_to_file
from sbert_app.services.files.writers import cell_text
from sbert_app.services.maps.projection import MapSettings, project
from sbert_app.services.models.protocols import SentenceEncoder
from sbert_app.services.store.cache import DiskCache, digest
from training.data.tables.columns import as_text
from training.data.tables.table import RowBatch, Table
from training.errors import InputError

BATCH = 8_192  # rows of an open corpus that are written at a time
LIMITS = CorpusLimits()


def export_file(
    table: Table,
    column: str,
    output: Path,
    encoder: SentenceEncoder,
    home: Path,
    neighbour_count: int = 0,
    clustering: ClusterSettings = ClusterSettings(HDBSCAN),  # noqa: B008 - immutable
    settings: MapSettings = MapSettings(),  # noqa: B008 - immutable
    watch: Watch = UNWATCHED,
    limits: CorpusLimits = LIMITS,
) -> AtlasSummary:
    """Encode a column of a table; write the table with vectors, map and clusters to a .parquet file.

    Row i of the output belongs to row i of the input; a row without text has the vector of an empty text. Raises
    InputError if the table breaks off, has too few distinct sentences, or the output cannot be written. What is encoded
    is kept, and the next export goes on from it.
    """
    watch.report(0, "Counting the rows")
    count, content = _count(table, column)
    if not count:
        raise InputError(f"{table.path.name} contains no row.")
    key = digest([content, fingerprint(encoder)])
    vectors = encode_to_file(
        home / "vectors" / f"{key}{SUFFIX}",
        _Sentences(table, column, count),
        encoder,
        watch.stage(f"Encoding {count:,} sentences"),
    )
    cache = DiskCache(home / "cache")
    sample = _sample(table, column, vectors, key, encoder, limits.map_points)
    points = place_all(vectors, sample, settings, cache, home, watch)
    found = cluster(sample.embedded, clustering, cache, home, watch, limits)
    labels = found
    if len(sample.rows) < count:
        labels = join_nearest(vectors, sample.rows, found, watch)
    titles = cluster_titles(sample.embedded.corpus, found)
    added = AtlasColumns(vectors, points, labels, titles, _nearest(vectors, neighbour_count, watch))
    writing = watch.stage("Writing")
    return write_atlas(output, table.path, table.fields(), table.batches(), column, added, len(sample.rows), writing)


def export_corpus(
    embedded: EmbeddedCorpus,
    labels: np.ndarray,
    titles: dict[int, str],
    output: Path,
    settings: MapSettings,
    cache: DiskCache,
    home: Path,
    limits: CorpusLimits = LIMITS,
    watch: Watch = UNWATCHED,
) -> AtlasSummary:
    """Write an open corpus with its clusters, int64 (N,), and their titles. Errors as `export_file`."""
    sample = sample_of(embedded, limits.map_points)
    points = place_all(embedded.vectors, sample, settings, cache, home, watch)
    columns: dict[str, list[Any]] = {"sentence": embedded.corpus.sentences}
    for name, values in embedded.corpus.columns.items():
        columns[f"{name} (file)" if name in columns else name] = values
    arrays = {name: _arrow(values) for name, values in columns.items()}

    def batches() -> Iterator[RowBatch]:
        for start in range(0, len(embedded), BATCH):
            rows = {name: array[start : start + BATCH].to_pylist() for name, array in arrays.items()}
            yield RowBatch(start + 1, rows)

    import pyarrow as pa

    fields = [pa.field(name, array.type) for name, array in arrays.items()]
    added = AtlasColumns(embedded.vectors, points, labels, titles)
    source, writing = Path(Path(embedded.corpus.name).name), watch.stage("Writing")
    return write_atlas(output, source, fields, batches(), "sentence", added, len(sample.rows), writing)


def cluster_titles(corpus: Corpus, labels: np.ndarray, names: dict[int, str] | None = None) -> dict[int, str]:
    """A title of each cluster: its name, else its number from 1 with its first keywords."""
    words = keywords_of(corpus.sentences, labels, TITLE_KEYWORDS)
    return {
        label: (names or {}).get(label) or ": ".join(filter(None, [str(label + 1), ", ".join(words[label])]))
        for label in np.unique(labels).tolist()
        if label != NOISE
    }


class _Sentences(Sequence[str]):
    """The sentences of a table as a sequence that is sliced from the front to the end; nothing is kept."""

    def __init__(self, table: Table, column: str, count: int) -> None:
        self._texts, self._count, self._next = _texts(table, column), count, 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, int):
            return self[index : index + 1][0]
        start, stop, _ = index.indices(self._count)
        if start < self._next:
            raise IndexError("sentences are read in their order")
        for _ in range(start - self._next):  # what was encoded before
            next(self._texts)
        self._next = stop
        return [next(self._texts) for _ in range(stop - start)]


def _texts(table: Table, column: str) -> Iterator[str]:
    for batch in table.batches():
        for cell in batch.rows[column]:
            yield " ".join((as_text(cell) or "").split())


def _count(table: Table, column: str) -> tuple[int, str]:
    """The number of rows, and a digest of their sentences."""
    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for text in _texts(table, column):
            count += 1
            yield text

    content = digest(counted())
    return count, content


def _sample(table: Table, column: str, vectors: np.ndarray, key: str, encoder: SentenceEncoder, most: int) -> Sample:
    """A sample of a table's rows with their sentences and vectors, in memory."""
    rows = sample_rows(len(vectors), most)
    wanted = iter(rows.tolist())
    at, sentences = next(wanted), []
    for row, text in enumerate(_texts(table, column)):
        if row == at:
            sentences.append(text)
            at = next(wanted, -1)
            if at < 0:
                break
    corpus = Corpus(table.path.name, sentences)
    sampled = EmbeddedCorpus(
        corpus, np.array(vectors[rows]), encoder.name, encoder.pooling, digest([key, f"sample {most}"]), 0.0
    )
    return Sample(sampled, rows)


def _nearest(vectors: np.ndarray, count: int, watch: Watch) -> tuple[np.ndarray, np.ndarray] | None:
    """The nearest other rows of each row, or None if there are to be none."""
    if count < 1 or len(vectors) < 2:
        return None
    searching = watch.stage("Looking for the nearest sentences")
    rows, distances = neighbours(np.asarray(vectors), min(count + 1, len(vectors)), searching)
    return rows[:, 1:], distances[:, 1:]


def _arrow(values: list[Any]) -> Any:
    """Values as an Arrow array; as text where they are of several types."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else cell_text(value) for value in values], pa.string())


NEIGHBOURS = 5  # in the sample, between which a sentence is placed
ROWS = 8_192  # at a time


def place_all(
    vectors: np.ndarray, sample: Sample, settings: MapSettings, cache: DiskCache, home: Path, watch: Watch = UNWATCHED
) -> np.ndarray:
    """A point for each vector of float32 (N, D): float32 (N, dimensions).

    UMAP draws the sample; every other sentence lies between its nearest neighbours in the sample, nearer to the more
    similar ones. Raises InputError if a setting is out of range, or the sample has too few distinct sentences.
    """
    drawing = watch.stage(f"Drawing the map of {len(sample.rows):,} sentences")
    drawn = project(sample.embedded, settings, cache, home, drawing)
    if len(sample.rows) == len(vectors):
        return drawn
    index = neighbour_index(sample.embedded.vectors)
    points = np.empty((len(vectors), drawn.shape[1]), dtype=np.float32)
    for start in range(0, len(vectors), ROWS):
        watch.check()
        rows = np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float32)
        cosines, nearest = index.search(rows, min(NEIGHBOURS, len(drawn)))
        weights = np.where(nearest >= 0, np.maximum(cosines, 1e-3) ** 4, 0)  # the most similar ones count most
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        points[start : start + ROWS] = np.einsum("qk,qkd->qd", weights, drawn[nearest])
        watch.report(start / len(vectors), "Placing the other sentences on the map")
    points[sample.rows] = drawn
    return points
