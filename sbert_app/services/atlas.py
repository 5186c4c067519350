"""Export a file, or an open corpus, with its vectors, its map and its clusters, as Apple's embedding-atlas reads them.

    export_file(table, column, Path("atlas.parquet"), encoder, home)        as many rows as the disk holds
    export_corpus(embedded, labels, titles, Path("atlas.parquet"), …)       what the Explore page has open

A file is read four times, in batches: to count its rows, to encode them (into a file of vectors that an interrupted
export goes on from), to take a sample, and to write. In memory are a batch, the sample, and of each row its point and
its cluster.

The columns are named as in embedding-atlas 0.26: `embedding-atlas FILE --text TEXT --x projection_x --y projection_y`
shows the map as it is here; with ``--labels LABELS`` it writes the names of the clusters onto it, and with
``--neighbors neighbors`` it lists the nearest sentences of a point.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import HDBSCAN, NOISE, ClusterSettings, cluster, join_nearest
from sbert_app.services.clusters.summary import TITLE_KEYWORDS, keywords_of
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import (
    SUFFIX,
    EmbeddedCorpus,
    Sample,
    encode_to_file,
    fingerprint,
    fixed_sample,
    sample_of,
)
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.files.writers import (
    PARQUET,
    Column,
    cell_text,
    discarded_on_error,
    open_writers,
    with_file_columns,
)
from sbert_app.services.maps.corpus_map import place_all
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.store.cache import DiskCache, digest
from training.atomic import replace_file
from training.data.tables.columns import as_text, free_name
from training.data.tables.rows import RowBatch
from training.data.tables.table import Table
from training.errors import InputError

if TYPE_CHECKING:
    from training.models.model import VectorModel


X, Y, NEIGHBORS = "projection_x", "projection_y", "neighbors"  # the names in embedding-atlas' documentation
EMBEDDING, CLUSTER = "embedding", "cluster"
NO_CLUSTER = "none"
BATCH = 8_192  # rows of an open corpus that are written at a time
LIMITS = CorpusLimits()


@dataclass(frozen=True, eq=False)
class AtlasColumns:
    """What an export adds to the rows of a corpus."""

    vectors: np.ndarray  # float32 (N, D), a memory map if they are many
    points: np.ndarray  # float32 (N, 2)
    labels: np.ndarray  # int64 (N,): clusters from 0; −1 is none
    titles: dict[int, str]  # of the clusters
    drawn: int  # rows that UMAP has drawn; the others were placed between them
    neighbours: tuple[np.ndarray, np.ndarray] | None = None  # rows int32 and cosine distances float32, (N, k) each


@dataclass(frozen=True)
class AtlasSummary:
    output: str
    labels: str  # the file of the names of the clusters
    rows: int
    dimension: int
    clusters: int
    drawn: int  # as in `AtlasColumns`
    text: str  # the column with the sentences
    columns: dict[str, str]  # what was added -> its column, whose name has a number if the file had such a column

    @property
    def command(self) -> str:
        words = ["embedding-atlas", self.output, "--text", self.text, "--x", self.columns[X], "--y", self.columns[Y]]
        if NEIGHBORS in self.columns:
            words += ["--neighbors", self.columns[NEIGHBORS]]
        if self.clusters:
            words += ["--labels", self.labels]
        return shlex.join(words)

    @property
    def sentence(self) -> str:
        placed = f", {self.rows - self.drawn:,} of them placed by their neighbours" if self.drawn < self.rows else ""
        return (
            f"{self.rows:,} rows{placed}, {self.dimension} dimensions, {self.clusters:,} clusters -> {self.output}. "
            f"Open it with: {self.command}"
        )


def export_file(
    table: Table,
    column: str,
    output: Path,
    encoder: VectorModel,
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
        _texts(table, column),
        encoder,
        watch.stage(f"Encoding {count:,} sentences"),
        count=count,
    )
    cache = DiskCache(home / "cache")
    sample = _sample(table, column, vectors, key, encoder, limits.map_points)
    points = place_all(vectors, sample, settings, cache, home, watch)
    found = cluster(sample.embedded, clustering, cache, home, watch, limits)
    labels = join_nearest(vectors, sample.rows, found, watch) if len(sample.rows) < count else found
    titles = cluster_titles(sample.embedded.corpus, found)
    nearest = _nearest(vectors, neighbour_count, watch)
    added = AtlasColumns(vectors, points, labels, titles, len(sample.rows), nearest)
    return _write(output, table.path, table.fields(), table.batches(), column, added, watch.stage("Writing"))


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
    columns = with_file_columns({"sentence": embedded.corpus.sentences}, embedded.corpus.columns)
    arrays = {name: _arrow(values) for name, values in columns.items()}

    def batches() -> Iterator[RowBatch]:
        for start in range(0, len(embedded), BATCH):
            rows = {name: array[start : start + BATCH].to_pylist() for name, array in arrays.items()}
            yield RowBatch(start + 1, rows)

    import pyarrow as pa

    fields = [pa.field(name, array.type) for name, array in arrays.items()]
    added = AtlasColumns(embedded.vectors, points, labels, titles, len(sample.rows))
    source = Path(Path(embedded.corpus.name).name)
    return _write(output, source, fields, batches(), "sentence", added, watch.stage("Writing"))


def cluster_titles(corpus: Corpus, labels: np.ndarray, names: dict[int, str] | None = None) -> dict[int, str]:
    """A title of each cluster: its name, else its number from 1 with its first keywords."""
    words = keywords_of(corpus.sentences, labels, TITLE_KEYWORDS)
    return {
        label: (names or {}).get(label) or ": ".join(filter(None, [str(label + 1), ", ".join(words[label])]))
        for label in np.unique(labels).tolist()
        if label != NOISE
    }


def _texts(table: Table, column: str) -> Iterator[str]:
    for batch in table.batches():
        for cell in batch.rows[column]:
            yield " ".join((as_text(cell) or "").split())


def _count(table: Table, column: str) -> tuple[int, str]:
    """The number of rows, and a digest of their sentences."""
    numbers = itertools.count()
    content = digest(text for text, _ in zip(_texts(table, column), numbers, strict=False))
    return next(numbers), content


def _sample(table: Table, column: str, vectors: np.ndarray, key: str, encoder: VectorModel, most: int) -> Sample:
    """A sample of a table's rows with their sentences and vectors, in memory."""
    rows = fixed_sample(len(vectors), most)
    wanted = set(rows.tolist())
    corpus = Corpus(table.path.name, [text for row, text in enumerate(_texts(table, column)) if row in wanted])
    key = digest([key, f"sample {most}"])
    return Sample(EmbeddedCorpus(corpus, np.array(vectors[rows]), encoder.name, encoder.pooling, key, 0.0), rows)


def _nearest(vectors: np.ndarray, count: int, watch: Watch) -> tuple[np.ndarray, np.ndarray] | None:
    """The nearest other rows of each row, or None if there are to be none."""
    if count < 1 or len(vectors) < 2:
        return None
    searching = watch.stage("Looking for the nearest sentences")
    rows, distances = neighbours(np.asarray(vectors), min(count + 1, len(vectors)), searching)
    return rows[:, 1:], distances[:, 1:]


def _arrow(values: Column) -> Any:
    """Values as an Arrow array; as text where they are of several types."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else cell_text(value) for value in values], pa.string())


def _write(
    output: Path,
    source: Path,
    fields: Sequence[Any],
    batches: Iterable[RowBatch],
    text: str,
    added: AtlasColumns,
    watch: Watch,
) -> AtlasSummary:
    """Write the rows with vectors, map and clusters to ``output``, and the names of the clusters beside it.

    Args:
        output: a .parquet file.
        source: the file that the rows are from, which must not be the output.
        fields: Arrow fields of the rows' columns; the name of one that is added makes way with a number.
        text: the column with the sentences.

    Raises InputError if the output cannot be written, or does not end with .parquet. Nothing is left behind then, nor
    after a stop.
    """
    import pyarrow as pa

    kinds = {X: pa.float32(), Y: pa.float32(), CLUSTER: pa.string(), EMBEDDING: added.vectors.shape[1]}
    if added.neighbours is not None:
        ids, distances = pa.field("ids", pa.list_(pa.int64())), pa.field("distances", pa.list_(pa.float32()))
        kinds[NEIGHBORS] = pa.struct([ids, distances])
    taken = [field.name for field in fields]
    names = {kind: free_name(kind, taken) for kind in kinds}
    writers = open_writers([output], source, fields, {names[kind]: arrow for kind, arrow in kinds.items()}, PARQUET)
    start = 0
    with discarded_on_error(writers):
        for batch in batches:
            watch.check()
            stop = start + len(batch)
            arrays = _arrays(added, slice(start, stop), kinds)
            writers[0].write(batch, {names[kind]: array for kind, array in arrays.items()})
            start = stop
            watch.report(start, None, len(added.vectors))
        names_file = output.with_name(f"{output.stem}-labels.parquet")
        with replace_file(names_file) as temporary:  # both files appear, or neither
            clusters = _write_labels(temporary, added)
            writers[0].finish()
    dimension = added.vectors.shape[1]
    return AtlasSummary(str(output), str(names_file), start, dimension, clusters, added.drawn, text, names)


def _arrays(added: AtlasColumns, rows: slice, kinds: dict[str, Any]) -> dict[str, Any]:
    import pyarrow as pa

    titles = [added.titles.get(label, NO_CLUSTER) for label in added.labels[rows].tolist()]
    arrays = {
        X: pa.array(added.points[rows, 0], pa.float32()),
        Y: pa.array(added.points[rows, 1], pa.float32()),
        CLUSTER: pa.array(titles, pa.string()),
        EMBEDDING: added.vectors[rows],
    }
    if added.neighbours is not None:
        ids, distances = (part[rows] for part in added.neighbours)
        lists = [pa.array(ids.astype(np.int64).tolist(), pa.list_(pa.int64()))]
        lists.append(pa.array(distances.tolist(), pa.list_(pa.float32())))
        arrays[NEIGHBORS] = pa.StructArray.from_arrays(lists, fields=list(kinds[NEIGHBORS]))
    return arrays


def _write_labels(path: Path, added: AtlasColumns) -> int:
    """The names of the clusters at their middle, the largest with the highest priority -> the number of clusters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for label in np.unique(added.labels).tolist():
        if label != NOISE:
            members = added.points[added.labels == label]
            x, y = np.median(members, axis=0).tolist()
            rows.append({"x": x, "y": y, "text": added.titles[label], "level": 0, "priority": len(members)})
    types = {"x": pa.float64(), "y": pa.float64(), "text": pa.string(), "level": pa.int64(), "priority": pa.int64()}
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(types.items()))), path)
    return len(rows)
