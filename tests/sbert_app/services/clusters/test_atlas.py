"""Exports for embedding-atlas: the columns that its command takes, in the order of the sentences."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.atlas import export_atlas
from sbert_app.services.clusters.summary import describe_clusters
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.store.cache import DiskCache
from training.errors import InputError, StoppedError

TOPICS = ("cats sleep on mats", "stocks fell on monday", "dogs bark at night")
SENTENCES = [f"{TOPICS[n % 3]} {n}" for n in range(90)]
LABELS = np.arange(90) % 3 - 1


@pytest.fixture
def export(home, tmp_path):
    """A function that exports the sentences to atlas.parquet; it returns how many UMAP has drawn, and the table."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "numba").symlink_to(home / "numba")
    columns = {"n": list(range(90)), "mixed": [1, "a", None] * 30, "sentence": ["x"] * 90}
    embedded = EmbeddedCorpus(
        Corpus("c", SENTENCES, columns), BagEncoder().encode(SENTENCES), "m", "mean", "key", 0.0
    )

    def run(output: Path = tmp_path / "atlas.parquet", **options):
        clusters = describe_clusters(embedded, LABELS)
        cache = DiskCache(tmp_path / "home" / "cache")
        settings = MapSettings(epochs=5)
        drawn = export_atlas(
            embedded, clusters, output, settings, cache, tmp_path / "home", **options
        )
        return drawn, pq.read_table(output)

    return run


@pytest.mark.slow
def test_the_atlas_has_points_clusters_and_neighbours_of_all_sentences(export, tmp_path):
    drawn, table = export()
    assert drawn == 90
    assert table.column_names == [
        *(
            "sentence",
            "projection_x",
            "projection_y",
            "cluster",
            "neighbors",
            "n",
            "mixed",
            "sentence (file)",
        )
    ]
    assert table["sentence"].to_pylist() == SENTENCES
    assert np.isfinite(table["projection_y"].to_numpy()).all()
    assert table["cluster"].to_pylist()[0] == "none"
    assert table["cluster"].to_pylist()[1].startswith("1: ")
    assert table["cluster"].to_pylist()[2].startswith("2: ")
    neighbours = table["neighbors"].to_pylist()
    assert all(len(row["ids"]) == len(row["distances"]) == 10 for row in neighbours)
    assert all(n not in row["ids"] for n, row in enumerate(neighbours))
    assert table["n"].to_pylist() == list(range(90))
    assert table["mixed"].to_pylist()[:3] == ["1", "a", None]
    # The map is in the cache now.
    begun = []
    watch = Watch(
        lambda done, text=None, total=1.0, /: begun.append(text == "Writing"), lambda: any(begun)
    )
    with pytest.raises(StoppedError):
        export(tmp_path / "second.parquet", watch=watch)
    assert {path.name for path in tmp_path.iterdir()} == {"home", "atlas.parquet"}


def test_an_atlas_that_cannot_be_written_is_refused(export, tmp_path):
    with pytest.raises(InputError, match=r"has to end with \.parquet"):
        export(tmp_path / "out.csv")
    with pytest.raises(InputError, match="no folder"):
        export(tmp_path / "nowhere" / "out.parquet")


def test_a_sample_is_drawn_and_other_sentences_lie_with_their_neighbours(export):
    drawn, table = export(limits=CorpusLimits(map_points=45))
    assert drawn == 45
    points = np.stack([table["projection_x"].to_numpy(), table["projection_y"].to_numpy()], axis=1)
    middles = np.array([points[kind::3].mean(axis=0) for kind in range(3)])
    nearest = np.linalg.norm(points[:, None] - middles, axis=2).argmin(axis=1)
    assert (nearest == np.arange(90) % 3).mean() > 0.9
