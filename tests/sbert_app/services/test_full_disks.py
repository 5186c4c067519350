"""`runs/` and `training/sources/home.py`: a full or read-only disk is one sentence, and nothing is left."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs import store as stores
from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.sources.home import make_home
from training.trainer.config import RunConfig

CONFIG = RunConfig("regression", base="scratch:1x32", max_steps=1, eval_data=None)
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failing(error: Exception):
    """A function that raises it, whatever it is called with."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.fixture
def jobs(tmp_path: Path) -> RunQueue:
    jobs = RunQueue(RunStore(tmp_path / "home"))
    jobs.starts_workers = False
    return jobs


def test_a_home_on_a_full_disk_can_be_used_but_not_a_read_only_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", failing(NO_SPACE))
    make_home(tmp_path)
    monkeypatch.setattr(
        tempfile, "TemporaryFile", failing(OSError(errno.EROFS, os.strerror(errno.EROFS)))
    )
    says = f"{tmp_path} cannot be written to: Read-only file system; name another one with --home"
    with pytest.raises(InputError, match=says):
        make_home(tmp_path)


def test_a_run_that_cannot_be_written_leaves_nothing(jobs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stores, "write_text", failing(NO_SPACE))
        with pytest.raises(
            InputError, match=r"no run can be written to .*: No space left on device"
        ) as error:
            jobs.start(CONFIG)
    assert error.value.public == "no run can be written: No space left on device"
    assert list(jobs.store.folder.iterdir()) == []
    assert jobs.start(CONFIG).state == "queued"


def test_a_run_on_a_full_disk_fails_with_the_reason_and_can_be_resumed(jobs, monkeypatch):
    from training.trainer import train as training

    run = jobs.start(CONFIG)
    monkeypatch.setattr(training, "train", failing(NO_SPACE))
    with pytest.raises(InputError, match="the run cannot go on: a file: No space left on device"):
        execute(jobs.store, run.id)
    failed = jobs.store.get(run.id)
    assert (failed.state, failed.record.reason) == (
        "failed",
        "the run cannot go on: a file: No space left on device",
    )
    assert jobs.resume(run.id).state == "queued"
