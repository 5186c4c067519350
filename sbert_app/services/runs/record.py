"""Run: a snapshot of one run on disk. Plain values; `sbert_app.services.runs.store` reads and changes them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from sbert_app.services.runs.errors import RunNotFound
from sbert_app.services.runs.events import RunProgress
from training.atomic import write_text
from training.trainer.config import RunConfig

STATES = ("queued", "running", "finished", "failed", "stopped", "interrupted")
QUEUED = frozenset({"queued"})
AT_WORK = QUEUED | {"running"}
INTERRUPTED = frozenset({"interrupted"})
RESUMABLE = INTERRUPTED | {"failed", "stopped"}
LONGEST_NAME = 80


@dataclass(frozen=True)
class RunRecord:
    """``run.json``, written only by the holder of the run's lock. Times are seconds since 1970."""

    state: str
    created: float
    started: float | None = None  # None until a process works on it
    ended: float | None = None
    reason: str | None = None
    worker: str | None = None  # that took it from a shared queue
    losses: int = 0  # such workers that ended before it did, since somebody queued it
    attempt: int = 0  # the last one that went through a store (`sbert_app.services.jobs.remote`)
    is_remote: bool = False  # whether that is where it is queued or running: then nobody holds the lock meanwhile

    def interrupted(self, reason: str | None) -> RunRecord:
        """The record of a run whose process has ended, or is about to, before it did."""
        losses = self.losses + (self.worker is not None)
        return replace(self, state="interrupted", reason=reason, ended=time.time(), losses=losses)

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        """What later versions add is ignored. Raises RunNotFound if the file does not exist or is damaged."""
        file = folder / "run.json"
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{each.name: values[each.name] for each in fields(cls) if each.name in values})
        except (OSError, ValueError, TypeError) as error:
            raise RunNotFound(f"{file} cannot be read: {one_line(error)}") from error

    def write(self, folder: Path) -> None:
        """Atomically. Raises OSError if the disk is full."""
        write_text(folder / "run.json", json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Run:
    """A run as it is now."""

    id: str
    folder: Path
    name: str  # can be changed by the user
    config: RunConfig
    record: RunRecord
    progress: RunProgress

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return self.record.state

    @property
    def has_model(self) -> bool:
        """Whether a model has been saved."""
        return (self.folder / "model/modules.json").exists()

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop and is still running."""
        return self.state == "running" and (self.folder / "stop").exists()

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the command line and the HTTP API."""
        return {
            "id": self.id,
            "name": self.name,
            **asdict(self.record),
            **asdict(self.progress),
            "collapsed": self.progress.collapsed,
            "model": f"run:{self.id}" if self.has_model else None,
            "folder": str(self.folder),
            "config": self.config.to_dict(),
        }


def default_name(config: RunConfig) -> str:
    """The name of a run that was given none: objective, concatenation, pooling, base."""
    concatenation = f" {config.concatenation}" if config.objective == "classification" else ""
    pooling = {None: "", "cls": " · CLS"}.get(config.pooling, f" · {config.pooling}")
    return f"{config.objective}{concatenation}{pooling} · {config.base}"[:LONGEST_NAME]


def slug(text: str) -> str:
    """``text`` as part of a file name: lower-case letters, digits and hyphens, at most 40; may be empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def one_line(error: BaseException) -> str:
    """The message of an exception in one line."""
    return " ".join(str(error).split()) or type(error).__name__
