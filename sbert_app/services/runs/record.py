"""Run: a snapshot of one run on disk, and why one cannot be used as asked.

Plain values; `sbert_app.services.runs.store` reads and changes them. The messages are shown to users as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sbert_app.services.background.state import State
from sbert_app.services.runs.events import Event, RunProgress
from sbert_app.services.store.documents import Timestamp, read_document
from training.atomic import write_bytes
from training.errors import InputError, UserFacingError, without_folders
from training.names import ModelName
from training.trainer.config import RunConfig

QUEUED = frozenset({State.QUEUED})
LONGEST_NAME = 80


class RunError(UserFacingError):
    """A run cannot be used as asked."""


class RunNotFound(RunError):  # noqa: N818 - reads as a state
    """There is no such run, or it was deleted meanwhile."""


class RunBusy(RunError):  # noqa: N818
    """Another process is working on the run."""


class RunStateError(RunError):
    """The run's state does not allow what was asked, such as stopping one that is finished."""


@dataclass(frozen=True)
class RunRecord:
    """``run.json``, written only by the holder of the run's lock. Times are seconds since 1970."""

    state: State
    created: Timestamp
    started: Timestamp | None = None  # None until a process works on it
    ended: Timestamp | None = None
    reason: str | None = None

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        """What other versions add is ignored. Raises RunNotFound if the file does not exist or is damaged."""
        try:
            return read_document(folder / "run.json", cls)
        except FileNotFoundError as error:
            raise RunNotFound(f"there is no run {folder.name!r}; `runs list` shows them all") from error
        except InputError as error:
            raise RunNotFound(error, error.public) from error

    def write(self, folder: Path) -> None:
        """Atomically. Raises OSError if the disk is full."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        write_bytes(folder / "run.json", text.encode(errors="replace"))  # a reason quotes what was wrong


@dataclass(frozen=True)
class Run:
    """A run as it was when it was read; it may have been deleted since."""

    id: str
    folder: Path
    name: str  # can be changed by the user
    config: RunConfig
    record: RunRecord
    events: Sequence[Event]
    progress: RunProgress  # what the events say

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def reason(self) -> str:
        """Why it ended early, for visitors; empty if it did not."""
        return without_folders(self.record.reason or "")

    @cached_property
    def has_model(self) -> bool:
        return any((self.folder / "model" / file).exists() for file in ("modules.json", "config.json"))

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it trains a cross-encoder."""
        return self.config.objective_class.scores_pairs

    @property
    def is_stopping(self) -> bool:
        return self.state == State.RUNNING and (self.folder / "stop").exists()

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the command line and the HTTP API."""
        return {
            "id": self.id,
            "name": self.name,
            **asdict(self.record),
            **asdict(self.progress),
            "collapsed": self.progress.collapsed,
            "model": str(ModelName.of_run(self.id)) if self.has_model else None,
            "folder": str(self.folder),
            "config": self.config.to_dict(),
        }


def default_name(config: RunConfig) -> str:
    """The name of a run that was given none: objectives, concatenation, pooling, base."""
    concatenation = f" {config.concatenation}" if "concatenation" in config.objective_class.fields else ""
    pooling = {None: "", "cls": " · CLS"}.get(config.pooling, f" · {config.pooling}")
    objectives = " + ".join(dict.fromkeys(part.objective for part in config.parts))
    return f"{objectives}{concatenation}{pooling} · {config.base}"[:LONGEST_NAME]


def slug(text: str) -> str:
    """``text`` as part of a file name: lower-case letters, digits and hyphens, at most 40; may be empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
