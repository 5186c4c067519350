"""Workers on several hosts, with a real Redis: one home folder, workers that are killed, a server that restarts."""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import ForkedWorker
from redis_server import RedisServer
from waiting import wait_until

from sbert_app.services.jobs.backend import QueueUnreachable
from sbert_app.services.jobs.queue import MOST_LOSSES, Jobs
from sbert_app.services.runs.record import AT_WORK, Run
from sbert_app.services.runs.store import PROCESS_LOST, RunStore
from training.errors import InputError
from training.trainer.config import RunConfig

PATIENCE = 300.0  # seconds that a busy machine may take for anything
SLOW = 0.02  # seconds that a step takes longer, so that some hundred are not over before they are seen under way


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that keeps nothing on its disk."""
    server = RedisServer(tmp_path / "redis", keeps=False).start()
    yield server
    server.kill()


def linked(home: Path, own: Path) -> Path:
    """A home folder that has the models and data of the tests' one."""
    own.mkdir()
    for kind in ("models", "data"):
        (own / kind).symlink_to(home / kind)
    return own


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """The home folder that the hosts share."""
    return linked(home, tmp_path / "home")


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunConfig]:
    """A run that is over in a second, or, with many steps, never."""
    words = ("a", "man", "plays", "the", "guitar", "while", "two", "dogs", "run", "over", "green", "grass")
    rows = [f"{' '.join(words[i % 7 : i % 7 + 5])},{' '.join(words[i % 5 : i % 5 + 6])},{i % 6}" for i in range(64)]
    file = tmp_path / "pairs.csv"
    file.write_text("\n".join(["sentence1,sentence2,score", *rows]))

    def config(max_steps: int = 20, **more: object) -> RunConfig:
        settings = {"train_data": str(file), "eval_data": str(file), "base": "scratch:1x32", "dtype": "float32"}
        return RunConfig("regression", max_steps=max_steps, **{**settings, **more})

    return config


class Hosts:
    """Worker processes, each with the name of a host of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.processes: dict[str, ForkedWorker] = {}

    def start(self, name: str, *options: str, step_seconds: float = 0.0) -> ForkedWorker:
        folder = self.home.parent / f"printed-{uuid.uuid4().hex}"
        given = ("--name", name, "--home", self.home, *options)
        self.processes[name] = ForkedWorker(*given, folder=folder, step_seconds=step_seconds)
        return self.processes[name]

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(PATIENCE)


@pytest.fixture
def hosts(place: Path) -> Iterator[Hosts]:
    hosts = Hosts(place)
    yield hosts
    hosts.end()


@pytest.fixture
def jobs(place: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("SBERT_QUEUE", server.url)
    return Jobs(RunStore(place))


def until(store: RunStore, run_id: str, holds: Callable[[Run], bool]) -> Run:
    """Wait. Nobody opens a page: what has to be done the workers do."""
    deadline = time.monotonic() + PATIENCE
    while not holds(run := store.get(run_id)):
        assert time.monotonic() < deadline, f"{run.state} at {run.progress.step}: {store.log(run_id)}"
        time.sleep(0.05)
    return run


def ended(run: Run) -> bool:
    return run.state not in AT_WORK


def under_way(run: Run) -> bool:
    return run.state == "running" and run.progress.step >= 3


def starts(store: RunStore, run_id: str) -> int:
    """How often a process has begun to work on a run."""
    return store.log(run_id, lines=10_000).count("  worker: ")


def steps(store: RunStore, run_id: str) -> list[int]:
    return [event["step"] for event in store.events(run_id) if event["kind"] == "train"]


# ---------------------------------------------------------------- one home folder


def test_two_hosts_share_the_runs_and_none_is_run_twice(jobs, hosts, tiny):
    runs = [jobs.start(tiny(seed=seed)).id for seed in range(6)]
    for name in ("one", "two"):
        hosts.start(name)
    for run_id in runs:
        assert until(jobs.store, run_id, ended).state == "finished"
        jobs.reconcile()
    assert [starts(jobs.store, run_id) for run_id in runs] == [1] * 6
    assert {jobs.store.get(run_id).record.worker for run_id in runs} == {"one", "two"}
    wait_until(lambda: jobs.queued() == [])  # an entry of a run that has ended is taken from the queue and dropped


def test_the_run_of_a_killed_worker_is_resumed_by_the_other_one(jobs, hosts, tiny):
    run_id = jobs.start(tiny(max_steps=200, eval_every=100)).id
    hosts.start("one", step_seconds=SLOW)
    until(jobs.store, run_id, under_way)
    hosts.start("two")
    hosts.processes["one"].kill()
    run = until(jobs.store, run_id, lambda run: run.state == "finished")
    assert (run.record.worker, run.record.losses) == ("two", 1)
    assert starts(jobs.store, run_id) == 2
    done = steps(jobs.store, run_id)
    assert done == sorted(set(done)), "one curve, no step twice"


def test_a_worker_that_is_asked_to_end_hands_its_run_over(jobs, hosts, tiny):
    run_id = jobs.start(tiny(max_steps=1_000_000)).id
    hosts.start("one")
    until(jobs.store, run_id, under_way)
    hosts.processes["one"].send_signal(signal.SIGTERM)
    assert hosts.processes["one"].wait(PATIENCE) == 0
    run = jobs.store.get(run_id)
    assert (run.state, (run.folder / "checkpoint/state.json").exists()) == ("interrupted", True)
    hosts.start("two")
    run = until(jobs.store, run_id, lambda run: run.state == "running" and run.record.worker == "two")
    jobs.stop(run_id)
    assert until(jobs.store, run_id, ended).state == "stopped"
    time.sleep(1)  # three looks of the worker
    assert jobs.store.get(run_id).state == "stopped", "what a user has stopped stays so"


def test_a_run_that_kills_its_workers_is_given_up(jobs, tiny):
    run_id = jobs.start(tiny()).id
    for losses in range(1, MOST_LOSSES + 2):
        with pytest.raises(KeyboardInterrupt), jobs.store.lease(run_id, worker=f"host {losses}"):
            raise KeyboardInterrupt
        assert jobs.store.get(run_id).record.losses == losses
        jobs.resume_lost()
        assert jobs.store.get(run_id).state == ("queued" if losses <= MOST_LOSSES else "interrupted")
    assert jobs.resume(run_id).record.losses == 0, "somebody has looked at it"


def test_nobody_resumes_what_was_not_taken_from_the_queue(jobs, tiny):
    """`train` in a terminal, interrupted by Ctrl-C."""
    run_id = jobs.store.create(tiny(), queue=False).id
    with pytest.raises(KeyboardInterrupt), jobs.store.lease(run_id, {"stopped"}):
        raise KeyboardInterrupt
    jobs.resume_lost()
    assert jobs.store.get(run_id).state == "interrupted"


def test_a_host_has_one_worker_of_a_name(jobs, hosts):
    hosts.start("one", "--idle-seconds", "60")
    wait_until((hosts.home / "worker-one-0.lock").exists)
    second = Hosts(hosts.home).start("one")
    _, said = second.communicate(timeout=PATIENCE)
    assert second.returncode == 2
    assert "error: a worker one has device 0 already: give this one another --name" in said


# ---------------------------------------------------------------- the server


def test_a_restart_of_the_server_disturbs_no_run(jobs, hosts, server, tiny):
    running = jobs.start(tiny(max_steps=1_000_000)).id
    hosts.start("one")
    until(jobs.store, running, under_way)
    waiting = jobs.start(tiny()).id
    server.kill()
    before = jobs.store.get(running).progress.step
    until(jobs.store, running, lambda run: run.progress.step > before + 10)
    with pytest.raises(QueueUnreachable, match="cannot be reached"):
        jobs.start(tiny())
    assert len(jobs.store.list()) == 2, "nothing half begun"
    server.start()
    assert jobs.queued() == [waiting]
    jobs.stop(running)
    assert until(jobs.store, waiting, ended).state == "finished"
    assert (starts(jobs.store, running), starts(jobs.store, waiting)) == (1, 1)


def test_a_server_that_has_lost_its_list_gets_it_back_from_the_runs(forgetful, place, hosts, tiny, monkeypatch):
    monkeypatch.setenv("SBERT_QUEUE", forgetful.url)
    jobs = Jobs(RunStore(place))
    running = jobs.start(tiny(max_steps=1_000_000)).id
    hosts.start("one")
    until(jobs.store, running, under_way)
    waiting = [jobs.start(tiny(seed=seed)).id for seed in range(2)]
    forgetful.kill()
    forgetful.start()
    assert jobs.queued() == []
    jobs.stop(running)
    for run_id in waiting:
        assert until(jobs.store, run_id, ended).state == "finished"
    assert [starts(jobs.store, run_id) for run_id in (running, *waiting)] == [1, 1, 1]


def test_workers_wait_for_a_server_that_restarts(jobs, hosts, server, tiny):
    first = jobs.start(tiny()).id
    worker = hosts.start("one")
    until(jobs.store, first, ended)
    server.kill()
    time.sleep(1.5)
    assert worker.returncode is None, worker.communicate()[1]
    server.start()
    assert until(jobs.store, jobs.start(tiny()).id, ended).state == "finished"


def test_a_server_that_is_not_there_is_one_sentence_without_the_password(place, tiny, monkeypatch):
    monkeypatch.setenv("SBERT_QUEUE", "redis://:secret@127.0.0.1:1/0")
    with pytest.raises(InputError, match=r"the queue redis://127\.0\.0\.1:1/0 cannot be reached .*: start") as error:
        Jobs(RunStore(place)).start(tiny())
    assert "secret" not in str(error.value)
    worker = Hosts(place).start("one")
    _, said = worker.communicate(timeout=PATIENCE)
    assert (worker.returncode, said.count("\n")) == (2, 1)
    assert "cannot be reached" in said


# ---------------------------------------------------------------- without a shared disk


def test_a_run_moves_between_machines_that_share_no_disk(home, tmp_path, hosts, server, tiny, monkeypatch):
    """Queued in one home folder, begun in a second, killed there, finished in a third; followed in the first."""
    monkeypatch.setattr("sbert_app.services.jobs.remote.follow.LOST_SECONDS", 6.0)
    monkeypatch.setenv("SBERT_QUEUE", server.url)
    monkeypatch.setenv("SBERT_STORE", str(tmp_path / "store"))
    jobs, ended_now = Jobs(RunStore(hosts.home)), threading.Event()
    elsewhere = {name: Hosts(linked(home, tmp_path / name)) for name in ("one", "two")}
    thread = threading.Thread(target=jobs.follow, args=(ended_now,))
    thread.start()
    try:
        config = tiny(max_steps=800, eval_every=400)
        run_id = jobs.start(config).id
        elsewhere["one"].start("one", step_seconds=SLOW)
        until(jobs.store, run_id, under_way)
        assert jobs.store.get(run_id).record.worker == "one"
        elsewhere["one"].processes["one"].kill()
        elsewhere["two"].start("two")
        run = until(jobs.store, run_id, lambda run: run.state == "finished")
        assert (run.record.worker, run.record.losses, run.has_model, run.config) == ("two", 1, True, config)
        done = steps(jobs.store, run_id)
        assert (done[-1], done) == (800, sorted(set(done)))
        assert starts(jobs.store, run_id) == 2
        endless = jobs.start(tiny(max_steps=1_000_000)).id
        until(jobs.store, endless, under_way)
        jobs.stop(endless)
        run = until(jobs.store, endless, ended)
        assert (run.state, (run.folder / "checkpoint/state.json").exists()) == ("stopped", True)
        wait_until(lambda: not list((tmp_path / "store/runs").glob("*/*")))  # what has come back is removed
    finally:
        ended_now.set()
        thread.join()
        for each in elsewhere.values():
            each.end()


def test_a_store_needs_a_queue_that_others_reach(place, tmp_path, monkeypatch):
    monkeypatch.setenv("SBERT_STORE", str(tmp_path / "store"))
    with pytest.raises(InputError, match="SBERT_STORE is for workers on other machines: set SBERT_QUEUE"):
        Jobs(RunStore(place))


# ---------------------------------------------------------------- one run


def once(place: Path, run_id: str, **more: Any) -> ForkedWorker:
    folder = place.parent / f"printed-{uuid.uuid4().hex}"
    return ForkedWorker("--once", run_id, "--home", place, folder=folder, **more)


def test_once_ends_as_the_run_does_and_the_same_command_resumes_it(place, tiny):
    """As Slurm starts it: interrupted by SIGTERM, and started again."""
    store = RunStore(place)
    run_id = store.create(tiny(max_steps=200, eval_every=100), queue=False).id
    process = once(place, run_id, step_seconds=SLOW)
    until(store, run_id, under_way)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert said.endswith(f"{run_id}: interrupted; the same command resumes it\n")
    process = once(place, run_id)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (0, f"{run_id}: finished\n")
    done = steps(store, run_id)
    assert (done[-1], done) == (200, sorted(set(done)))
    process = once(place, run_id)
    assert process.communicate(timeout=PATIENCE)[0] == f"{run_id}: finished\n"
    assert store.get(run_id).record.worker is None


def test_once_fails_as_the_run_does(place, tiny):
    """No file may grow beyond 1 MB; the model has 4."""
    run_id = RunStore(place).create(tiny(), queue=False).id
    process = once(place, run_id, file_limit=1_000_000)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert said.endswith(f"{run_id}: failed; `runs show` has the reason\n")
    assert RunStore(place).get(run_id).state == "failed"


def test_once_refuses_what_cannot_be_used(place, tiny):
    run_id = RunStore(place).create(tiny(train_data="/nowhere/pairs.csv"), queue=False).id
    for named, said in ((run_id, "error: data '/nowhere/pairs.csv'"), ("nothing", "error: there is no run 'nothing'")):
        process = once(place, named)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors.count("\n")) == (2, 1)
        assert errors.startswith(said)
    assert RunStore(place).get(run_id).state == "failed"


def test_a_run_is_written_without_being_started(place, tiny, capsys):
    from sbert_app.cli import main

    command = ["train", "--objective", "regression", "--base", "scratch:1x32", "--max-steps", "1", "--home", str(place)]
    assert main([*command, "--no-start", "--json"]) == 0
    run = RunStore(place).get(json.loads(capsys.readouterr().out)["id"])
    assert (run.state, run.record.started, run.config.max_steps) == ("stopped", None, 1)


def test_a_lost_process_is_still_what_it_was_without_a_shared_queue(place, tiny):
    """The state of a run of the app's own worker: nothing resumes it by itself."""
    store = RunStore(place)
    run = store.create(tiny())
    record = {**json.loads((run.folder / "run.json").read_text()), "state": "running"}
    (run.folder / "run.json").write_text(json.dumps(record))
    run = store.get(run.id)
    assert (run.state, run.record.reason, run.record.losses) == ("interrupted", PROCESS_LOST, 0)
