"""Sharded jobs on a cluster of three nodes: what dies, a driver or a node, loses nothing and changes no result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paths import ROOT
from shard_files import pairs, parts, together
from tiny_models import make_model
from waiting import wait_until

from sbert_app.services.files import shards
from sbert_app.services.files.blocks import ShardJob
from sbert_app.services.files.shards import RayEngine, run_job
from training.errors import InputError
from training.models.distill import distill
from training.models.encoder import Encoder

pytestmark = pytest.mark.slow

ROWS, BLOCK_ROWS = 2_400, 20
BLOCKS = ROWS // BLOCK_ROWS
# A node that does not answer is dead after a second and a half; by default after half a minute.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static model, which a worker loads without transformers."""
    folder = tmp_path_factory.mktemp("model")
    distill(Encoder.load(str(make_model(folder / "tiny"))), 8).save(folder / "static")
    return folder / "static"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    pq.write_table(pa.table(pairs(ROWS, 0)), tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


@pytest.fixture
def job(tmp_path: Path, model: Path) -> ShardJob:
    return ShardJob("score", str(tmp_path / "out"), str(model), dtype="float32", block_rows=BLOCK_ROWS)


@pytest.fixture
def expected(inputs: Path, job: ShardJob, tmp_path: Path) -> pa.Table:
    """What one process gives."""
    run_job(ShardJob(**{**job.__dict__, "output": str(tmp_path / "here")}), str(inputs))
    return together(tmp_path / "here")


def assert_equal(found: pa.Table, expected: pa.Table) -> None:
    assert found.drop_columns("cosine").equals(expected.drop_columns("cosine"))
    np.testing.assert_allclose(found["cosine"].to_numpy(), expected["cosine"].to_numpy(), atol=1e-6)


def test_an_address_without_a_cluster_is_one_sentence(
    inputs: Path, job: ShardJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    services = pytest.importorskip("ray._private.services", reason="Ray is not installed")
    # Ray looks for a cluster among all processes of the machine: that of another test may be there.
    monkeypatch.setattr(services, "find_gcs_addresses", cache(set))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no Ray cluster at auto: Could not find any running Ray instance"):
        run_job(job, str(inputs), RayEngine("auto"))
    ended = tmp_path / "ray" / "ray_current_cluster"
    ended.parent.mkdir(exist_ok=True)
    ended.write_text("127.0.0.1:9")
    for address in ("auto", "127.0.0.1:9", "ray://127.0.0.1:9"):
        with pytest.raises(InputError, match=rf"there is no Ray cluster at {address}: nothing answers at 127.0.0.1:9"):
            run_job(job, str(inputs), RayEngine(address))


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, inputs: Path, job: ShardJob):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed: pip install 'sbert-lab\[ray\]'"):
        run_job(job, str(inputs), RayEngine())


def test_a_cluster_that_ends_is_one_sentence(monkeypatch: pytest.MonkeyPatch, inputs: Path, job: ShardJob):
    data = pytest.importorskip("ray.data", reason="Ray is not installed")
    from ray.exceptions import ActorDiedError

    class Ended:
        """A data set whose cluster ends as it is computed."""

        def flat_map(self, *_, **__):
            return self

        def map(self, *_, **__):
            return self

        def iter_rows(self):
            raise ActorDiedError
            yield

    monkeypatch.setattr(shards.RayCluster, "connect", lambda self: None)
    monkeypatch.setattr(shards.RayCluster, "nodes", lambda self: [{"CPU": 1}])
    monkeypatch.setattr(data, "from_items", lambda *_, **__: Ended())
    with pytest.raises(InputError, match=r"Ray at auto cannot go on: .+ the same command goes on"):
        run_job(job, str(inputs), RayEngine("auto"))


def test_when_its_ray_is_killed_a_command_ends_with_one_sentence_and_removes_what_was_begun(tmp_path: Path):
    pytest.importorskip("ray", reason="Ray is not installed")
    pq.write_table(pa.table(pairs(40_000, 0)), tmp_path / "in.parquet")
    command = [sys.executable, "-m", "sbert_app", "score", "in.parquet", "out/", "--model", "scratch:2x64"]
    command += ["--block-rows", "20000", "--engine", "ray", "--address", "local", "--concurrency", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any((tmp_path / "out").glob(".part-*.part")) or driver.poll() is not None)
    (raylet,) = (each for each in psutil.Process(driver.pid).children(recursive=True) if each.name() == "raylet")
    raylet.kill()
    _, said = driver.communicate()
    (line,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert re.fullmatch(
        r"error: Ray at local cannot go on: nothing answers at \S+\. .+ the same command goes on\.", line
    )
    assert driver.returncode == 2
    assert "Traceback" not in said
    assert not list((tmp_path / "out").glob(".part-*"))


# ---------------------------------------------------------------- three nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes of one core each, on this machine; a test adds the third one, which it may remove."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": HEALTH})
    nodes.add_node(num_cpus=1)
    try:
        yield nodes
    finally:
        nodes.shutdown()


def test_a_node_that_dies_loses_nothing(nodes: Any, inputs: Path, job: ShardJob, expected: pa.Table):
    import ray

    third = nodes.add_node(num_cpus=1)
    engine = RayEngine(nodes.address, concurrency=3)

    def killing(*arguments):
        for number, outcome in enumerate(engine(*arguments)):
            if number == BLOCKS // 4:
                nodes.remove_node(third, allow_graceful=False)
            yield outcome

    try:
        result = run_job(job, str(inputs), killing)
    finally:
        ray.shutdown()
    assert (result.blocks, result.rows) == (BLOCKS, ROWS)
    assert_equal(together(job.output), expected)


def test_a_worker_that_dies_while_it_starts_is_started_again(
    nodes: Any, inputs: Path, job: ShardJob, expected: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import ray

    died = tmp_path / "died"

    class DiesOnce(shards.Compute):
        def __init__(self) -> None:
            if not died.exists():
                died.touch()
                os._exit(1)
            super().__init__()

    monkeypatch.setattr(shards, "Compute", DiesOnce)
    try:
        result = run_job(job, str(inputs), RayEngine(nodes.address, concurrency=1))
    finally:
        ray.shutdown()
    assert died.exists()
    assert (result.blocks, result.rows) == (BLOCKS, ROWS)
    assert_equal(together(job.output), expected)


def test_a_driver_that_is_killed_goes_on_with_the_same_command(
    nodes: Any, inputs: Path, job: ShardJob, expected: pa.Table, tmp_path: Path
):
    command = [sys.executable, "-m", "sbert_app", "score", inputs.name, "out/", "--model", job.model, "--json"]
    command += ["--block-rows", str(BLOCK_ROWS), "--dtype", "float32", "--engine", "ray", "--address", nodes.address]
    command += ["--concurrency", "1"]
    start = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "stdout": subprocess.PIPE}
    driver = subprocess.Popen(command, **start)
    wait_until(lambda: any(parts_of(job)) or driver.poll() is not None)
    driver.kill()
    driver.communicate()
    finished = {part: part.stat().st_mtime_ns for part in parts_of(job)}
    assert 0 < len(finished) < BLOCKS
    said = json.loads(subprocess.run(command, check=True, **start).stdout)
    assert said["rows"] == ROWS
    assert said["resumed"] >= len(finished)  # the worker of the first driver may have finished another one
    assert said["computed"] == ROWS - BLOCK_ROWS * said["resumed"]
    assert {part: part.stat().st_mtime_ns for part in finished} == finished
    assert_equal(together(job.output), expected)
    assert len(parts(job.output)) == BLOCKS


def parts_of(job: ShardJob) -> list[Path]:
    return list(Path(job.output).glob("part-*.parquet"))
