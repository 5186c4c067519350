"""`sbert-lab export` writes the columns that embedding-atlas reads, into a new file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_models import WORDS, make_model

from sbert_app import cli

ROWS = 40
NEIGHBORS = pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float32()))])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def command(tmp_path: Path, model: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """An export of forty sentences to out.parquet in the working directory, into a home of its own."""
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "home"
    own.mkdir()
    (own / "numba").symlink_to(home / "numba")  # what UMAP has compiled
    lines = [f"{WORDS[n % 14]} {WORDS[n % 9]} {WORDS[n % 5]},{n}" for n in range(ROWS)]
    (tmp_path / "in.csv").write_text("\n".join(["text,n", *lines]))
    yield ["export", "in.csv", "out.parquet", "--model", str(model), "--clusters", "3", "--home", str(own)]


def written(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {"in.csv", "home"}


def test_it_writes_the_columns_that_embedding_atlas_reads(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main([*command, "--json"]) == cli.GOOD
    opened = "embedding-atlas out.parquet --text sentence --x projection_x --y projection_y --neighbors neighbors"
    assert json.loads(capsys.readouterr().out) == {
        "output": "out.parquet",
        "rows": ROWS,
        "drawn": ROWS,
        "command": opened,
    }
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["sentence", "projection_x", "projection_y", "cluster", "neighbors", "n"]
    assert table.schema.field("projection_x").type == table.schema.field("projection_y").type == pa.float32()
    assert table.schema.field("cluster").type == pa.string()
    assert table.schema.field("neighbors").type == NEIGHBORS
    assert table["n"].to_pylist() == [str(n) for n in range(ROWS)]
    assert len(set(table["cluster"].to_pylist())) == 3
    assert written(tmp_path) == {"out.parquet"}
