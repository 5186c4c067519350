"""`jobs/worker.py`: `worker --once` executes one run in a process that a scheduler starts and ends."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, linked_home
from waiting import wait_until

from sbert_app.services.runs.store import RunStore

PATIENCE = 300.0  # seconds that a busy machine may take for anything


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    return linked_home(home, tmp_path / "home")


def steps(store: RunStore, run_id: str) -> list[int]:
    return [event["step"] for event in store.events(run_id) if event["kind"] == "train"]


@pytest.mark.slow
def test_once_ends_as_the_run_does_and_the_same_command_resumes_it(place, tiny, run):
    """As Slurm starts it: interrupted by SIGTERM, and started again."""
    store = RunStore(place)
    run_id = store.create(tiny(max_steps=100, eval_every=50), queue=False).id
    command = [sys.executable, "-m", "sbert_app", "worker", "--once", run_id, "--home", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(steps(store, run_id)) >= 3)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert said.endswith(f"{run_id}: interrupted; the same command resumes it\n")
    answer = run("worker", "--once", run_id, "--home", place)
    assert (answer.code, answer.out) == (0, f"{run_id}: finished\n")
    done = steps(store, run_id)
    assert (done[-1], done) == (100, sorted(set(done)))
    assert run("worker", "--once", run_id, "--home", place).out == f"{run_id}: finished\n"


def test_once_fails_as_the_run_does_and_refuses_what_cannot_be_used(place, tiny, run):
    """No file may grow beyond 1 MB; the model has 4."""
    run_id = RunStore(place).create(tiny(), queue=False).id
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        answer = run("worker", "--once", run_id, "--home", place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer.code == 1
    assert answer.err.endswith(f"{run_id}: failed; `runs show` has the reason\n")
    failed = RunStore(place).get(run_id)
    assert (failed.state, failed.has_model, "File too large" in failed.record.reason) == (
        "failed",
        False,
        True,
    )
    run_id = RunStore(place).create(tiny(train_data="/nowhere/pairs.csv"), queue=False).id
    for named, words in (
        (run_id, "error: data '/nowhere/pairs.csv'"),
        ("nothing", "error: there is no run 'nothing'"),
    ):
        answer = run("worker", "--once", named, "--home", place)
        assert (answer.code, answer.complaint[: len(words)]) == (2, words)
    assert RunStore(place).get(run_id).state == "failed"
