"""The event log of a run.

Each event is a dictionary, passed to a callback and appended to ``events.jsonl``. Every line is flushed, so other
processes can follow the file during the run. Resuming from a checkpoint first removes the events after it, so that the
file holds one curve; a reader that keeps a position in the file has to start again when the file has become shorter.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, TextIO

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from training.atomic import write_text
from training.trainer.config import RunConfig
from training.trainer.reporters import TRACKERS, Tracker, figures_of

Event = dict[str, Any]
OnEvent = Callable[[Event], object]

_Count = Annotated[int, Field(ge=0, le=2**53)]


class _Event(BaseModel):
    """The fields that readers of events rely on; an event has more."""

    model_config = ConfigDict(extra="allow", strict=True)

    kind: str
    step: _Count
    t: FiniteFloat | None = None
    seconds: FiniteFloat | None = None
    seconds_left: FiniteFloat | None = None
    state: str | None = None
    reason: str | None = None
    base: str | None = None
    device: str | None = None
    dtype: str | None = None
    pooling: str | None = None
    notes: list[str] | None = None
    rows: _Count | None = None
    steps: _Count | None = None
    loss: FiniteFloat | None = None
    loss_by_data: dict[str, float] | None = None
    lr: FiniteFloat | None = None
    gradient_norm: FiniteFloat | None = None
    guess: FiniteFloat | None = None
    sentences_per_second: FiniteFloat | None = None
    memory_gb: FiniteFloat | None = None
    spearman: FiniteFloat | None = None
    accuracy: FiniteFloat | None = None
    by_dimension: dict[str, float] | None = None
    random_cosine: FiniteFloat | None = None
    plain_cosine: FiniteFloat | None = None
    collapsed: str | None = None


class EventLog:
    """A context manager that writes events into the run's folder, if there is one, and passes them on.

    The events of the file up to ``keep_to_step`` are kept; None starts an empty file. ``evaluations`` are the figures
    of all that are in it, and of those that follow.
    """

    def __init__(self, folder: Path | None, on_event: OnEvent, keep_to_step: int | None = None) -> None:
        self._on_event = on_event
        self._trackers: list[Tracker] = []
        self._file: TextIO | None = None
        self.evaluations: list[Event] = []
        if folder is not None:
            path = folder / "events.jsonl"
            events = [] if keep_to_step is None else read_events(path)
            events = [event for event in events if event["step"] <= (keep_to_step or 0)]
            write_text(path, "".join(_line(event) for event in events))
            self._file = path.open("a", encoding="utf-8")
            self.evaluations += [event for event in events if event["kind"] == "eval"]

    def emit(self, kind: str, step: int, **values: object) -> Event:
        """Write an event with the current time, pass it on, and its figures to the trackers.

        Non-finite numbers become null.
        """
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        event = {"t": round(time.time(), 3), "step": step, "kind": kind, **finite}
        if kind == "eval":
            self.evaluations.append(event)
        try:
            if self._file is not None:
                self._file.write(_line(event))
                self._file.flush()
        finally:
            # On a full disk the callback still gets the event.
            self._on_event(event)
            if figures := figures_of(event):
                for tracker in self._trackers:
                    tracker.report(figures, step)
        return event

    def open_trackers(self, config: RunConfig, folder: Path | None, step: int | None) -> None:
        """Open the trackers that the config names. InputError if a package is not installed."""
        # What they print is no answer of a command.
        with redirect_stdout(sys.stderr):
            for name in config.report_to:
                self._trackers.append(TRACKERS[name](config, folder, step))

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        with redirect_stdout(sys.stderr):
            for tracker in self._trackers:
                tracker.close()


def parse_events(lines: bytes) -> list[Event]:
    """The events of the lines of a file. A line that a crash cut short, or that is damaged, is left out."""
    events = []
    for line in lines.split(b"\n"):
        with suppress(ValidationError):
            events.append(_Event.model_validate_json(line).model_dump(exclude_unset=True))
    return events


def read_events(path: Path) -> list[Event]:
    """All complete lines of an ``events.jsonl``."""
    return parse_events(path.read_bytes().rpartition(b"\n")[0]) if path.is_file() else []


def _line(event: Event) -> str:
    return json.dumps(event, ensure_ascii=False) + "\n"
