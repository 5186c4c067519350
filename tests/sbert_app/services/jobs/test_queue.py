"""`jobs/queue.py` and `worker.py`, with real processes: runs are queued, killed, stopped and resumed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from paths import ROOT, linked_home

from sbert_app.services.background.watch import AT_WORK
from sbert_app.services.jobs import worker as worker_module
from sbert_app.services.jobs.queue import RunQueue, devices
from sbert_app.services.runs.execution import PROCESS_ENDED
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import PROCESS_LOST, RunStore
from scripts.running import end_workers, workers_of
from training.errors import InputError
from training.trainer.config import RunConfig

PATIENCE = 120.0  # seconds that a busy machine may take for anything
CONFIG = RunConfig("regression", base="scratch:1x32", max_steps=1)


@pytest.fixture(scope="module")
def jobs(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunQueue]:
    """A home folder of its own with a worker that serves all tests of this file."""
    own = linked_home(home, tmp_path_factory.mktemp("jobs"))
    yield RunQueue(RunStore(own))
    end_workers(own)


@pytest.fixture
def here(home: Path, tmp_path: Path) -> RunQueue:
    """A home folder without a worker; nothing starts one but the test."""
    jobs = RunQueue(RunStore(linked_home(home, tmp_path)))
    jobs.starts_workers = False
    return jobs


def test_a_queued_run_gets_a_worker_though_nobody_opens_a_page(here, monkeypatch):
    run = here.start(CONFIG)
    launched = threading.Event()
    here.starts_workers = True
    monkeypatch.setattr(here, "_launch", lambda slot: launched.set())
    here.reconcile()
    assert launched.is_set()
    assert here.queued() == [run.id]
    here.starts_workers = False
    here.store.stop(run.id)


def test_the_queue_is_in_order_and_a_resumed_run_goes_to_its_end(here):
    first, second, third = (here.start(CONFIG).id for _ in range(3))
    here.store.stop(first)
    assert here.queued() == [second, third]
    here.resume(first)
    assert here.queued() == [second, third, first]


def test_runs_wait_for_ray_or_for_this_machine(here):
    ray = RunQueue(here.store, ray="auto")
    ray.starts_workers = False
    here_alone = here.start(CONFIG).id
    remote = ray.start(CONFIG).id
    assert (here.queued(), ray.queued()) == ([here_alone], [remote])
    # An app that is started with --ray executes there what is queued already.
    ray.reconcile()
    assert (here.queued(), ray.queued()) == ([], [here_alone, remote])


def test_a_worker_leaves_a_run_that_another_worker_has_claimed(here, monkeypatch):
    taken = []
    monkeypatch.setattr(
        worker_module, "execute_apart", lambda store, run_id, **_: taken.append(run_id)
    )
    first = here.start(CONFIG).id
    second = here.start(CONFIG).id
    with here.store.claim(first):
        worker_module.Worker(here.store.home, 0, idle_seconds=0.5).work()
    assert taken == [second]
    assert here.queued() == [first, second]


def test_a_visitor_may_have_a_limited_number_of_runs_waiting(here, monkeypatch):
    monkeypatch.setattr("sbert_app.services.jobs.queue.MOST_WAITING_OF_ONE", 2)
    monkeypatch.setattr("sbert_app.services.jobs.queue.MOST_GROUPED_OF_ONE", 3)
    first = here.start(CONFIG, "10.0.0.1")
    here.start(CONFIG, "10.0.0.1")
    with pytest.raises(InputError, match="2 runs from your address are waiting"):
        here.start(CONFIG, "10.0.0.1")
    here.start(CONFIG, "10.0.0.2")
    here.start(CONFIG)  # the owner of the home folder
    here.store.stop(first.id)
    assert here.start(CONFIG, "10.0.0.1").state == "queued"
    for _ in range(2):
        here.start(CONFIG, "10.0.0.1", grouped=True)
    with pytest.raises(
        InputError, match="2 runs from your address are waiting in the queue, and at most 3"
    ):
        here.check_room(2, "10.0.0.1")
    here.check_room(2, "10.0.0.2")
    here.check_room(2)


def test_resumed_runs_count_towards_the_limit_of_the_queue_for_all(here, monkeypatch):
    monkeypatch.setattr("sbert_app.services.jobs.queue.MOST_WAITING", 1)
    stopped = here.start(CONFIG)
    here.store.stop(stopped.id)
    here.start(CONFIG)
    with pytest.raises(InputError, match="1 runs are waiting, and at most 1 may"):
        here.start(CONFIG)
    with pytest.raises(InputError, match="at most 1 may"):
        here.resume(stopped.id)
    assert here.store.get(stopped.id).state == "stopped"
    assert len(here.store.list()) == 2


def until(jobs: RunQueue, run: Run, holds: Callable[[Run], bool]) -> Run:
    """Wait for a run as a page does: look, and see that somebody works."""
    deadline = time.monotonic() + PATIENCE
    while not holds(run := jobs.store.get(run.id)):
        assert time.monotonic() < deadline, (
            f"{run.state} at {run.progress.step}: {jobs.store.log(run.id)}"
        )
        jobs.reconcile()
        time.sleep(0.05)
    return run


def ended(run: Run) -> bool:
    return run.state not in AT_WORK


def under_way(run: Run) -> bool:
    return run.state == "running" and run.progress.step >= 3


@pytest.mark.slow
def test_one_calm_worker_executes_the_runs_of_several_apps(jobs, tiny):
    others = [RunQueue(RunStore(jobs.store.home)) for _ in range(3)]
    for other in others:
        other.start_workers()
    run = until(others[0], others[1].start(tiny()), ended)
    assert (run.state, run.record.reason, run.progress.step) == ("finished", None, 20)
    assert run.has_model
    assert "step    20  spearman" in jobs.store.log(run.id)
    (worker,) = workers_of(jobs.store.home)
    assert worker.pid != os.getpid()
    assert worker.nice() >= 5
    assert worker.environ()["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.slow
def test_runs_take_turns_and_one_stopped_while_it_waits_never_begins(jobs, tiny):
    first = until(jobs, jobs.start(tiny(max_steps=1_000_000)), under_way)
    waiting = jobs.start(tiny())
    last = jobs.start(tiny())
    assert jobs.store.stop(waiting.id).state == "stopped"
    time.sleep(0.5)
    assert jobs.store.get(last.id).state == "queued"
    jobs.store.stop(first.id)
    last = until(jobs, last, ended)
    assert (last.state, jobs.store.get(waiting.id).record.started) == ("finished", None)
    assert last.record.started >= jobs.store.get(first.id).record.ended


APP = """
import os, sys
from pathlib import Path
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore
from training.trainer.config import RunConfig
jobs = RunQueue(RunStore(Path(sys.argv[1])))
print(jobs.start(RunConfig.model_validate_json(sys.argv[2])).id, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_killed_app_loses_nothing(here, tiny):
    """The app starts the worker, is killed at once, and the run goes on to its end."""
    command = [sys.executable, "-c", APP, str(here.store.home), tiny().to_json()]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    app = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=False)
    assert app.returncode == -signal.SIGKILL
    try:
        assert until(here, here.store.get(app.stdout.strip()), ended).state == "finished"
    finally:
        end_workers(here.store.home)


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_is_interrupted_with_a_checkpoint(jobs, tiny):
    def kill(run: Run, is_worker_alone: bool) -> Run:
        (worker,) = workers_of(jobs.store.home)
        processes = worker.children(recursive=True)
        for process in [worker] if is_worker_alone else [*processes, worker]:
            process.kill()
        psutil.wait_procs([worker, *processes], PATIENCE)
        return jobs.store.get(run.id)

    run = until(jobs, jobs.start(tiny(max_steps=1_000_000, eval_every=1_000)), under_way)
    run = kill(run, is_worker_alone=True)
    assert (run.state, run.record.reason) == ("interrupted", PROCESS_ENDED)
    step = json.loads((run.folder / "checkpoint/state.json").read_text())["step"]
    run = until(
        jobs, jobs.resume(run.id), lambda run: run.state == "running" and run.progress.step > step
    )
    resumed = [
        event["resumed_from"]
        for event in jobs.store.events(run.id)
        if event.get("state") == "running"
    ]
    assert resumed == [None, step]
    run = kill(run, is_worker_alone=False)
    assert (run.state, run.record.reason) == ("interrupted", PROCESS_LOST)
    assert (run.folder / "checkpoint/state.json").exists()


@pytest.mark.slow
def test_a_stopped_run_keeps_its_checkpoint_to_resume_from(jobs, tiny):
    run = until(jobs, jobs.start(tiny(max_steps=1_000_000, eval_every=1_000)), under_way)
    run = until(jobs, jobs.store.stop(run.id), ended)
    assert run.state == "stopped"
    assert (run.folder / "checkpoint/state.json").exists()
    stopped_at = run.progress.step
    run = until(
        jobs,
        jobs.resume(run.id),
        lambda run: run.state == "running" and run.progress.step > stopped_at,
    )
    resumed = [
        event["resumed_from"]
        for event in jobs.store.events(run.id)
        if event.get("state") == "running"
    ]
    assert resumed[-1] == stopped_at
    (worker,) = workers_of(jobs.store.home)
    worker.terminate()
    psutil.wait_procs([worker], PATIENCE)
    run = jobs.store.get(run.id)
    assert run.state == "interrupted"
    assert json.loads((run.folder / "checkpoint/state.json").read_text())["step"] > stopped_at


def test_each_visible_gpu_has_a_worker_and_a_machine_without_has_one(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 3")
    assert devices() == ["1", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices() == [""]
