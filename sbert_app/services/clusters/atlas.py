"""The export of a corpus with its map, its clusters and nearest neighbours for Apple's embedding-atlas."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.summary import Cluster
from sbert_app.services.corpus.corpus import CorpusLimits
from sbert_app.services.corpus.embedded import EmbeddedCorpus, sample_of
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.files.writers import (
    ADVICE,
    PARQUET,
    Column,
    cell_text,
    check_output,
    with_file_columns,
)
from sbert_app.services.maps.corpus_map import place_between
from sbert_app.services.maps.projection import MapSettings, project
from sbert_app.services.store.cache import DiskCache
from training.atomic import replace_file
from training.errors import unwritable

NEIGHBOURS = 10
TEXT = "sentence"
X = "projection_x"
Y = "projection_y"
NEAREST = "neighbors"
# The options of embedding-atlas 0.26.
OPTIONS = f"--text {TEXT} --x {X} --y {Y} --neighbors {NEAREST}"


def export_atlas(
    embedded: EmbeddedCorpus,
    clusters: list[Cluster],
    output: Path,
    settings: MapSettings,
    cache: DiskCache,
    home: Path,
    limits: CorpusLimits = CorpusLimits(),  # noqa: B008 - immutable
    watch: Watch = UNWATCHED,
) -> int:
    """Writes a .parquet file with a row for each sentence, and the other columns of the corpus.

    Returns the number of sentences that UMAP placed; the others are placed between their
    neighbours. InputError if there are too few distinct sentences, or the file cannot be written;
    then nothing is left behind.
    """
    check_output(output, PARQUET)
    vectors = np.asarray(embedded.vectors)
    sample = sample_of(embedded, limits.map_points)
    drawing = watch.stage(f"Drawing the map of {len(sample.rows):,} sentences")
    # One map, as there is one model.
    (sample_points,) = project([sample.embedded], settings, cache, home, drawing)
    points = place_between(vectors, sample, sample_points, watch)
    searching = watch.stage("Looking for the nearest sentences")
    # One more, as the first neighbour of a sentence is the sentence itself, which is left out.
    rows, distances = neighbours(vectors, min(NEIGHBOURS + 1, len(vectors)), searching)
    nearest_rows = pa.array(list(rows[:, 1:].astype(np.int64)))
    nearest_distances = pa.array(list(distances[:, 1:]))
    nearest = pa.StructArray.from_arrays([nearest_rows, nearest_distances], ["ids", "distances"])
    # Noise, whose number is 0, has no cluster.
    names = np.full(len(vectors), "none", dtype=object)
    for cluster in clusters:
        if cluster.number:
            names[cluster.rows] = f"{cluster.number}: {cluster.title}"
    columns: dict[str, Any] = {
        TEXT: embedded.corpus.sentences,
        X: points[:, 0],
        Y: points[:, 1],
        "cluster": names.tolist(),
        NEAREST: nearest,
    }
    all_columns = with_file_columns(columns, embedded.corpus.columns)
    watch.stage("Writing").check()
    try:
        with replace_file(output) as temporary:
            table = pa.table({name: _array(values) for name, values in all_columns.items()})
            pq.write_table(table, temporary)
    except OSError as error:
        raise unwritable(output, error, ADVICE) from error
    return len(sample.rows)


def _array(values: Column) -> Any:
    """Values as an Arrow array, of texts if they have several types."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else cell_text(value) for value in values])
