"""Run: one run as it is on disk at one moment. Plain values; `sbert_app.services.runs.store` reads and changes them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sbert_app.services.runs.events import RunProgress
from training.atomic import write_text
from training.errors import InputError
from training.trainer.config import RunConfig

STATES = ("queued", "running", "finished", "failed", "stopped", "interrupted")
QUEUED = frozenset({"queued"})
AT_WORK = QUEUED | {"running"}
RESUMABLE = frozenset({"failed", "stopped", "interrupted"})
LONGEST_NAME = 80


@dataclass(frozen=True)
class Record:
    """``run.json``, written by the holder of the run's lock alone. Times are seconds since 1970."""

    state: str
    created: float
    started: float | None = None  # None: no process has worked on it yet
    ended: float | None = None
    reason: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Record:
        """InputError if the file is not there or cannot be read."""
        file = folder / "run.json"
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{file} cannot be read: {one_line(error)}") from error

    def write(self, folder: Path) -> None:
        """Whole or not at all. OSError if the disk is full."""
        write_text(folder / "run.json", json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Run:
    """One run as it is now."""

    id: str
    folder: Path
    name: str  # what people call it
    config: RunConfig
    record: Record
    progress: RunProgress

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return self.record.state

    @property
    def has_model(self) -> bool:
        """Whether there is a model to export and to compare with."""
        return (self.folder / "model/modules.json").exists()

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked it to stop and it has not yet."""
        return self.state == "running" and (self.folder / "stop").exists()

    def to_json(self) -> dict[str, Any]:
        """Plain values only, for the command line and the HTTP API."""
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
    """What a run is called if nobody named it: objective, concatenation, pooling, base."""
    how = f" {config.concatenation}" if config.objective == "classification" else ""
    pooling = {None: "", "cls": " · CLS"}.get(config.pooling, f" · {config.pooling}")
    return f"{config.objective}{how}{pooling} · {config.base}"[:LONGEST_NAME]


def slug(text: str) -> str:
    """A word or two of ``text`` that may be part of a file name; perhaps empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def one_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
