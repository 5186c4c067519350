"""The record of a run that a program works on: run.json, by which the list of runs in the home folder shows it.

The app writes the records of its own runs. Whoever works on a run holds the lock beside its record.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from training.atomic import write_text
from training.errors import InputError, first_line
from training.names import RUN, is_id
from training.sources.home import home_folder


@dataclass
class Record:
    """The state of a run and why; ``stop`` is the file by which it is asked to stop, None if it is not in the list."""

    state: str = "running"
    reason: str | None = None
    stop: Path | None = None

    def is_asked_to_stop(self) -> bool:
        """Whether somebody has asked for it in the list of runs."""
        return self.stop is not None and self.stop.exists()


def run_folder(folder: str | Path | None, home: str | Path | None) -> Path | None:
    """A run's folder as the caller of `train` names it; ``run:NAME`` is home/runs/NAME. InputError for a bad name."""
    if not str(folder).startswith(RUN):
        return None if folder is None else Path(folder).expanduser().absolute()
    name = str(folder).removeprefix(RUN)
    if not is_id(name):
        raise InputError(f"{folder} cannot be a run's name; take letters, digits, dots and hyphens")
    return home_folder(home) / "runs" / name


def read_object(file: Path, remedy: str) -> dict[str, Any] | None:
    """The JSON object in a file of a run's folder; None without one. InputError, with what to do, if it is damaged."""
    if not os.path.lexists(file):
        return None
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({first_line(error)}); {remedy}") from error


@contextmanager
def recorded(folder: Path | None, home: str | Path | None) -> Iterator[Record]:
    """The record of the run in ``folder``, written before the block and after it, if the folder is in home/runs.

    Nothing is written where somebody else, such as the app, works on the run and keeps its record.
    """
    record = Record()
    if folder is None or folder.parent != home_folder(home) / "runs":
        yield record
        return
    try:
        lock = FileLock(folder / "lock", timeout=0).acquire()
    except Timeout:
        yield record
        return
    with lock:
        record.stop, file, now = folder / "stop", folder / "run.json", time.time()
        record.stop.unlink(missing_ok=True)
        created = (read_object(file, "remove it to record the run anew") or {}).get("created", now)
        _write(file, record, created, now, None)
        try:
            yield record
        except BaseException as error:
            record.state = "failed" if isinstance(error, Exception) else "interrupted"
            record.reason = " ".join(str(error).split()) or type(error).__name__
            raise
        finally:
            _write(file, record, created, now, time.time())


def _write(file: Path, record: Record, created: float, started: float, ended: float | None) -> None:
    times = {"created": created, "started": started, "ended": ended}
    write_text(file, json.dumps({"state": record.state, "reason": record.reason, **times}, indent=1) + "\n")
