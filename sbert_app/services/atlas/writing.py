"""The Parquet files of an export, with the column names of Apple's embedding-atlas (0.26).

`embedding-atlas FILE --text TEXT --x projection_x --y projection_y` shows the map as it is here; with
``--labels LABELS`` it writes the names of the clusters onto it, and with ``--neighbors neighbors`` it lists the nearest
sentences of a point. Rows are written in groups, so that the size of the corpus does not matter for the memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import NOISE
from sbert_app.services.files.writers import PARQUET, discarded_on_error, open_writers
from training.atomic import replace_file
from training.data.tables.columns import free_name
from training.data.tables.table import RowBatch

X, Y, NEIGHBORS = "projection_x", "projection_y", "neighbors"  # the names in embedding-atlas' documentation
EMBEDDING, CLUSTER = "embedding", "cluster"
NO_CLUSTER = "none"


@dataclass(frozen=True, eq=False)
class AtlasColumns:
    """What an export adds to the rows of a corpus."""

    vectors: np.ndarray  # float32 (N, D), a memory map if they are many
    points: np.ndarray  # float32 (N, 2)
    labels: np.ndarray  # int64 (N,): clusters from 0; −1 is none
    titles: dict[int, str]  # of the clusters
    neighbours: tuple[np.ndarray, np.ndarray] | None = None  # rows int32 and cosine distances float32, (N, k) each


@dataclass(frozen=True)
class AtlasSummary:
    """What was exported."""

    output: str
    labels: str  # the file of the names of the clusters
    rows: int
    dimension: int
    clusters: int
    drawn: int  # sentences that UMAP has drawn; the others were placed between them
    text: str  # the column with the sentences
    columns: dict[str, str]  # what was added -> its column, whose name has a number if the file had such a column

    @property
    def command(self) -> str:
        """What opens the files."""
        words = ["embedding-atlas", self.output, "--text", self.text, "--x", self.columns[X], "--y", self.columns[Y]]
        if NEIGHBORS in self.columns:
            words += ["--neighbors", self.columns[NEIGHBORS]]
        if self.clusters:
            words += ["--labels", self.labels]
        return shlex.join(words)

    @property
    def sentence(self) -> str:
        """What was written, and how to open it."""
        placed = f", {self.rows - self.drawn:,} of them placed by their neighbours" if self.drawn < self.rows else ""
        return (
            f"{self.rows:,} rows{placed}, {self.dimension} dimensions, {self.clusters:,} clusters -> {self.output}. "
            f"Open it with: {self.command}"
        )


def write_atlas(
    output: Path,
    source: Path,
    fields: Sequence[Any],
    batches: Iterable[RowBatch],
    text: str,
    added: AtlasColumns,
    drawn: int,
    watch: Watch = UNWATCHED,
) -> AtlasSummary:
    """Write the rows with vectors, map and clusters to ``output``, and the names of the clusters beside it.

    Args:
        output: a .parquet file.
        source: the file that the rows are from, which must not be the output.
        fields: Arrow fields of the rows' columns; the name of one that is added makes way with a number.
        batches: the rows, in order.
        text: the column with the sentences.
        added: what is written beside them.
        drawn: sentences that the map was drawn from.
        watch: gets the rows done, and is asked before each batch.

    Raises InputError if the output cannot be written, or does not end with .parquet. Nothing is left behind then, nor
    after a stop.
    """
    kinds = _kinds(added)
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
    return AtlasSummary(str(output), str(names_file), start, dimension, clusters, drawn, text, names)


def _kinds(added: AtlasColumns) -> dict[str, Any]:
    """The Arrow types of the added columns."""
    import pyarrow as pa

    kinds = {X: pa.float32(), Y: pa.float32(), CLUSTER: pa.string(), EMBEDDING: added.vectors.shape[1]}
    if added.neighbours is not None:
        ids, distances = pa.field("ids", pa.list_(pa.int64())), pa.field("distances", pa.list_(pa.float32()))
        kinds[NEIGHBORS] = pa.struct([ids, distances])
    return kinds


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
    schema = pa.schema(
        [
            ("x", pa.float64()),
            ("y", pa.float64()),
            ("text", pa.string()),
            ("level", pa.int64()),
            ("priority", pa.int64()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return len(rows)
