"""Files and runs on Ray: without a cluster one sentence; what dies, a driver or a node, loses nothing."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Run
from paths import ROOT, linked_home
from shard_files import pairs, parts, together
from tiny_models import make_model
from waiting import wait_until

from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.background.watch import RESUMABLE, State
from sbert_app.services.files import shards
from sbert_app.services.files.blocks import ShardJob
from sbert_app.services.files.shards import RayEngine, run_job
from sbert_app.services.runs.on_ray import execute
from sbert_app.services.runs.store import RunStore
from training.errors import InputError

ROWS = 600
BLOCK_ROWS = 10
BLOCKS = ROWS // BLOCK_ROWS
LOGGED = 50  # steps between two losses in the events
# A node that does not answer is dead after a second and a half; by default after half a minute.
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    pq.write_table(pa.table(pairs(ROWS, 0)), tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


@pytest.fixture
def job(tmp_path: Path) -> ShardJob:
    return ShardJob(
        "score", str(tmp_path / "out"), "scratch:1x32", dtype="float32", block_rows=BLOCK_ROWS
    )


def test_an_address_without_a_cluster_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    services = pytest.importorskip("ray._private.services", reason="Ray is not installed")
    # Ray looks for a cluster among all processes of the machine: that of another test may be there.
    monkeypatch.setattr(services, "find_gcs_addresses", cache(set))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(
        InputError,
        match=r"there is no Ray cluster at auto: Could not find any running Ray instance",
    ):
        RayCluster("auto").connect()
    ended = tmp_path / "ray" / "ray_current_cluster"
    ended.parent.mkdir(exist_ok=True)
    ended.write_text("127.0.0.1:9")
    for address in ("auto", "127.0.0.1:9", "ray://127.0.0.1:9"):
        with pytest.raises(
            InputError,
            match=rf"there is no Ray cluster at {address}: nothing answers at 127.0.0.1:9",
        ):
            RayCluster(address).connect()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InputError,
        match=r'Ray is not installed: in the clone of SBERT Lab, pip install "\.\[ray\]"',
    ):
        RayCluster("auto").connect()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_cluster_that_ends_is_one_sentence_and_what_was_begun_is_removed(
    monkeypatch: pytest.MonkeyPatch, inputs: Path, job: ShardJob, is_killed: bool
):
    """Its actors die, or its process on this machine does."""
    data = pytest.importorskip("ray.data", reason="Ray is not installed")
    from ray.exceptions import ActorDiedError

    nobody = 2**22 - 3  # no process has this id
    begun = Path(job.output, f".part-00000-00000.parquet.{nobody}.0123abcd.part")
    is_over = threading.Event()

    class Ended:
        """A data set whose cluster ends as it is computed."""

        def flat_map(self, *_, **__):
            return self

        map = flat_map

        def iter_rows(self):
            begun.touch()
            if is_killed:
                is_over.wait(30)
            raise ActorDiedError
            yield

    def check(cluster: RayCluster) -> None:
        if is_killed and begun.exists():
            raise ConnectionError("nothing answers at 127.0.0.1:9")

    monkeypatch.setattr(RayCluster, "connect", lambda self: None)
    monkeypatch.setattr(RayCluster, "check", check)
    monkeypatch.setattr(RayCluster, "nodes", lambda self: [{"CPU": 1}])
    monkeypatch.setattr(data, "from_items", lambda *_, **__: Ended())
    reason = "nothing answers at 127.0.0.1:9" if is_killed else ".+"
    with pytest.raises(
        InputError, match=rf"Ray at auto cannot go on: {reason}\. .+ the same command goes on"
    ):
        run_job(job, str(inputs), RayEngine("auto"))
    is_over.set()
    assert not begun.exists()


@pytest.mark.slow
def test_local_ray_listens_on_loopback_and_requires_its_token():
    pytest.importorskip("ray", reason="Ray is not installed")
    own = """
import os, subprocess, sys
import psutil
from sbert_app.services.background.ray_cluster import RayCluster
ray = RayCluster("local").connect()
environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
code = f"import ray; ray.init(address='{ray.get_runtime_context().gcs_address}'); print('in')"
other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
refuses = other.returncode != 0 and "token" in other.stderr.lower() and "in" not in other.stdout.split()
processes = psutil.Process().children(recursive=True)
sockets = [socket for process in processes for socket in process.net_connections("tcp") if socket.status == "LISTEN"]
print(refuses, len(sockets) > 3, {socket.laddr.ip.removeprefix("::ffff:") for socket in sockets} == {"127.0.0.1"})
ray.shutdown()"""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")
    }
    ended = subprocess.run(
        [sys.executable, "-c", own], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ended.stdout.split()[-3:] == ["True"] * 3, ended.stderr[-2000:]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head that executes nothing, and nodes of one core each, all on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": HEALTH})
    try:
        yield nodes
    finally:
        nodes.shutdown()


def have(nodes: Any, count: int) -> list[Any]:
    """Returns exactly ``count`` nodes: some may be left by another test, missing ones are added."""
    for node in [*nodes.worker_nodes][count:]:
        nodes.remove_node(node)
    for _ in range(count - len(nodes.worker_nodes)):
        nodes.add_node(num_cpus=1)
    return [*nodes.worker_nodes]


@pytest.mark.slow
def test_scoring_on_ray_resumes_after_a_killed_driver_and_a_dead_node(
    nodes: Any, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
):
    import ray

    model = str(make_model(tmp_path / "tiny"))
    command = ["score", inputs.name, "out/", "--model", model, "--json", "--dtype", "float32"]
    command += [
        "--block-rows",
        str(BLOCK_ROWS),
        "--engine",
        "ray",
        "--address",
        nodes.address,
        "--concurrency",
        "2",
    ]
    *_, last = have(nodes, 2)
    monkeypatch.chdir(tmp_path)
    driver = subprocess.Popen(
        [sys.executable, "-m", "sbert_app", *command], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    wait_until(lambda: any(Path("out").glob("part-*.parquet")) or driver.poll() is not None)
    driver.kill()
    driver.communicate()
    finished = {part: part.stat().st_mtime_ns for part in Path("out").glob("part-*.parquet")}
    assert 0 < len(finished) < BLOCKS

    compute = RayEngine.__call__
    is_killed = threading.Event()

    def killing(engine: RayEngine, *arguments: Any) -> Iterator[Any]:
        for number, outcome in enumerate(compute(engine, *arguments)):
            if number == (BLOCKS - len(finished)) // 4:
                nodes.remove_node(last, allow_graceful=False)
                is_killed.set()
            yield outcome

    monkeypatch.setattr(shards.RayEngine, "__call__", killing)
    try:
        result = run(*command).json
    finally:
        ray.shutdown()
    assert is_killed.is_set()
    assert (result["rows"], result["blocks"], len(parts("out"))) == (ROWS, BLOCKS, BLOCKS)
    # The workers of the first driver may have finished others.
    assert result["resumed"] >= len(finished)
    assert result["computed"] == ROWS - BLOCK_ROWS * result["resumed"]
    assert {part: part.stat().st_mtime_ns for part in finished} == finished
    run_job(
        ShardJob("score", "here", command[4], dtype="float32", block_rows=BLOCK_ROWS), inputs.name
    )
    found = together("out")
    expected = together("here")
    assert found.drop_columns("cosine").equals(expected.drop_columns("cosine"))
    np.testing.assert_allclose(found["cosine"].to_numpy(), expected["cosine"].to_numpy(), atol=1e-6)


def losses(store: RunStore, run_id: str) -> dict[int, float]:
    events = [event for event in store.events(run_id) if event["kind"] == "train"]
    assert [event["step"] for event in events] == sorted({event["step"] for event in events}), (
        "no step is told twice"
    )
    return {event["step"]: event["loss"] for event in events}


@pytest.mark.slow
def test_a_resumed_run_on_ray_has_the_curve_of_an_uninterrupted_run(
    nodes: Any, home: Path, tmp_path: Path, tiny: Any
):
    import ray

    store = RunStore(linked_home(home, tmp_path / "home"))
    cluster = RayCluster(nodes.address, cpus=1)
    config = tiny(max_steps=1_000_000, eval_every=1_000)
    (first,) = have(nodes, 1)
    run, straight = (store.create(config, queue=False) for _ in range(2))
    should_end = threading.Event()
    threads = ThreadPoolExecutor(1)

    def goes_on_from(step: int) -> Future[Any]:
        should_end.clear()
        execution = threads.submit(
            execute, store, run.id, cluster, should_end=should_end.is_set, states=RESUMABLE
        )
        wait_until(lambda: execution.done() or is_beyond(step))
        return execution

    def is_beyond(step: int) -> bool:
        return store.get(run.id).state == State.RUNNING and store.get(run.id).progress.step > step

    def resumed_from() -> list[int | None]:
        return [
            event["resumed_from"]
            for event in store.events(run.id)
            if event.get("state") == "running"
        ]

    try:
        execution = goes_on_from(3)
        store.stop(run.id)
        execution.result(300)
        stopped = store.get(run.id)
        assert (stopped.state, (run.folder / "checkpoint/state.json").exists()) == (
            State.STOPPED,
            True,
        )
        execution = goes_on_from(stopped.progress.step + LOGGED)
        should_end.set()
        execution.result(300)
        ended = store.get(run.id)
        assert (ended.state, "can be resumed" in (ended.record.reason or "")) == (
            State.INTERRUPTED,
            True,
        )
        execution = goes_on_from(ended.progress.step)
        nodes.remove_node(first, allow_graceful=False)
        nodes.add_node(num_cpus=1)
        last = ended.progress.step + LOGGED
        steps = [None, stopped.progress.step, ended.progress.step, ended.progress.step]
        wait_until(lambda: execution.done() or (resumed_from() == steps and is_beyond(last)))
        store.stop(run.id)
        execution.result(300)
        assert "lost: " in store.log(run.id)
        short = store.create(tiny(), queue=False)
        assert execute(store, short.id, cluster, states=RESUMABLE).status == State.FINISHED
        assert (store.get(short.id).has_model, (short.folder / "checkpoint").exists()) == (
            True,
            False,
        )
        execution = threads.submit(execute, store, straight.id, cluster, states=RESUMABLE)
        wait_until(lambda: execution.done() or store.get(straight.id).progress.step > last)
        store.stop(straight.id)
        execution.result(300)
    finally:
        should_end.set()
        threads.shutdown()
        cluster.release(is_over=False)
        ray.shutdown()
    curves = [
        {step: loss for step, loss in losses(store, each.id).items() if step <= last}
        for each in (run, straight)
    ]
    assert max(curves[0]) > ended.progress.step
    assert curves[0] == curves[1]
