"""`worker --once`: one run in a process that a scheduler starts and ends."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import ForkedWorker

from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import PROCESS_LOST, RunStore
from training.trainer.config import RunConfig

PATIENCE = 300.0  # seconds that a busy machine may take for anything
SLOW = 0.02  # seconds that a step takes longer, so that some hundred are not over before they are seen under way


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A home folder that has the models and data of the tests' one."""
    own = tmp_path / "home"
    own.mkdir()
    for kind in ("models", "data"):
        (own / kind).symlink_to(home / kind)
    return own


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


def until(store: RunStore, run_id: str, holds: Callable[[Run], bool]) -> Run:
    deadline = time.monotonic() + PATIENCE
    while not holds(run := store.get(run_id)):
        assert time.monotonic() < deadline, f"{run.state} at {run.progress.step}: {store.log(run_id)}"
        time.sleep(0.05)
    return run


def under_way(run: Run) -> bool:
    return run.state == "running" and run.progress.step >= 3


def steps(store: RunStore, run_id: str) -> list[int]:
    return [event["step"] for event in store.events(run_id) if event["kind"] == "train"]


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


def test_the_record_of_an_earlier_version_still_opens(place, tiny):
    """One that was at work on another machine when the app was replaced is interrupted, and can be resumed."""
    store = RunStore(place)
    run = store.create(tiny())
    earlier = {"state": "running", "worker": "two", "losses": 1, "attempt": 2, "is_remote": True}
    (run.folder / "run.json").write_text(json.dumps({**json.loads((run.folder / "run.json").read_text()), **earlier}))
    run = store.get(run.id)
    assert (run.state, run.record.reason) == ("interrupted", PROCESS_LOST)
    assert store.requeue(run.id).state == "queued"
