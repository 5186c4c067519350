"""Exports for embedding-atlas: the columns of its documentation, rows in order, streamed, and gone on with."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.atlas import cluster_titles, export_corpus, export_file
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.clustering import K_MEANS, ClusterSettings
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.store.cache import DiskCache
from training.data.tables.table import open_table
from training.errors import InputError, Stopped

TOPICS = ("cats sleep on mats", "stocks fell on monday", "dogs bark at night")
SENTENCES = [f"{TOPICS[n % 3]} {n}" for n in range(90)]
QUICK = MapSettings(epochs=5)
K = ClusterSettings(K_MEANS, num_clusters=3)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,projection_x,n\n" + "".join(f"{text},left,{n}\n" for n, text in enumerate(SENTENCES)))
    return open_table(path)


@pytest.fixture
def umap_home(home, tmp_path) -> Path:
    """An empty home folder with what UMAP has compiled."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "numba").symlink_to(home / "numba")
    return tmp_path / "home"


def export(table, output, home, **options):
    return export_file(table, "text", output, BagEncoder(), home, clustering=K, settings=QUICK, **options)


def test_every_row_has_its_vector_its_point_and_its_cluster(table, tmp_path, umap_home):
    summary = export(table, tmp_path / "out.parquet", umap_home, neighbour_count=4)
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == [
        *("text", "projection_x", "n"),
        *("projection_x_2", "projection_y", "cluster", "embedding", "neighbors"),
    ]
    assert found["text"].to_pylist() == SENTENCES
    vectors = np.array(found["embedding"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(vectors, BagEncoder().encode(SENTENCES), atol=1e-6)
    assert np.isfinite(found["projection_y"].to_numpy()).all()
    clusters = found["cluster"].to_pylist()
    assert len({(cluster, n % 3) for n, cluster in enumerate(clusters)}) == 3
    neighbours = found["neighbors"].to_pylist()
    assert all(len(each["ids"]) == len(each["distances"]) == 4 for each in neighbours)
    assert all(n not in each["ids"] for n, each in enumerate(neighbours))
    assert "--x projection_x_2 --y projection_y --neighbors neighbors --labels" in summary.command
    labels = pq.read_table(tmp_path / "out-labels.parquet").to_pylist()
    assert {label["text"] for label in labels} == set(clusters)
    assert list(labels[0]) == ["x", "y", "text", "level", "priority"]


def test_of_many_rows_a_sample_is_drawn_and_the_others_lie_with_their_neighbours(table, tmp_path, umap_home):
    limits = CorpusLimits(map_points=45, clustered=45)
    summary = export(table, tmp_path / "out.parquet", umap_home, limits=limits)
    assert (summary.rows, summary.drawn) == (90, 45)
    found = pq.read_table(tmp_path / "out.parquet")
    points = np.stack([found["projection_x_2"].to_numpy(), found["projection_y"].to_numpy()], axis=1)
    assert len({(cluster, n % 3) for n, cluster in enumerate(found["cluster"].to_pylist())}) == 3
    middles = np.array([points[kind::3].mean(axis=0) for kind in range(3)])
    nearest = np.linalg.norm(points[:, None] - middles, axis=2).argmin(axis=1)
    assert (nearest == np.arange(90) % 3).mean() > 0.9


def test_an_export_that_was_stopped_goes_on_from_its_vectors(table, tmp_path, umap_home):
    stop = []
    with pytest.raises(Stopped):
        export(
            table,
            tmp_path / "out.parquet",
            umap_home,
            watch=Watch(
                lambda done, text=None, total=1.0: stop.append(1) if "Drawing" in (text or "") else None,
                lambda: bool(stop),
            ),
        )
    assert not (tmp_path / "out.parquet").exists()
    encoder = BagEncoder()
    export_file(table, "text", tmp_path / "out.parquet", encoder, umap_home, clustering=K, settings=QUICK)
    assert encoder.seen == []


def test_an_open_corpus_with_names_and_columns_of_several_types(tmp_path, umap_home):
    corpus = Corpus("c", SENTENCES, {"n": list(range(90)), "mixed": [1, "a", None] * 30, "sentence": ["x"] * 90})
    embedded = EmbeddedCorpus(corpus, BagEncoder().encode(SENTENCES), "m", "mean", "key", 0.0)
    labels = np.arange(90) % 3 - 1
    titles = cluster_titles(corpus, labels, {1: "hounds"})
    assert titles[1] == "hounds"
    assert titles[0].startswith("1: ")
    output = tmp_path / "atlas.parquet"
    cache = DiskCache(umap_home / "cache")
    summary = export_corpus(embedded, labels, titles, output, QUICK, cache, umap_home)
    found = pq.read_table(output)
    assert found["n"].to_pylist() == list(range(90))
    assert found["mixed"].to_pylist()[:3] == ["1", "a", None]
    assert found["sentence (file)"].to_pylist()[0] == "x"
    assert found["cluster"].to_pylist()[:3] == ["none", titles[0], "hounds"]
    assert summary.clusters == 2


def test_what_cannot_be_written_is_said(table, tmp_path, umap_home):
    with pytest.raises(InputError, match=r"has to end with \.parquet"):
        export(table, tmp_path / "out.csv", umap_home)
    with pytest.raises(InputError, match="no folder"):
        export(table, tmp_path / "nowhere" / "out.parquet", umap_home)
