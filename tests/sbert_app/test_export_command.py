"""`sbert-lab export`: what embedding-atlas reads, and nothing half-written where there is no room for it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

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


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("what", ["the vectors", "the rows"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
):
    (tmp_path / "out.parquet").write_text("an older one")
    if what == "the vectors":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    else:
        monkeypatch.setattr(pq, "write_table", full)
    assert cli.main([*command, "--json"]) == cli.WRONG_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    [complaint] = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert ("10 bytes free" if what == "the vectors" else "No space left on device") in complaint
    assert (tmp_path / "out.parquet").read_text() == "an older one"
    assert written(tmp_path) == {"out.parquet"}


def test_a_folder_that_may_not_be_written_to_is_one_sentence(command: list[str], capsys: pytest.CaptureFixture[str]):
    command[2] = "/proc/out.parquet"
    assert cli.main(command) == cli.WRONG_INPUT
    assert "/proc/out.parquet cannot be written" in capsys.readouterr().err
