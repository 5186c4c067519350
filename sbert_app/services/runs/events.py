"""Following a run: its events as they are written, and what they add up to.

`EventReader` reads an ``events.jsonl`` that another process is writing: each call reads only what is new, a line that
is not finished yet waits for the next call, a line that a crash cut short is left out. A run that is resumed takes
lines back (see `training.trainer.events`): then the file is another or shorter, and the tail begins anew.

`RunProgress` is the state of a run in figures, made from its events alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import fstat
from pathlib import Path
from typing import Any

Event = dict[str, Any]

# What a run is judged by, the first that its evaluations have: its name in words, and the factor it is shown with.
MEASURES: dict[str, tuple[str, float]] = {
    "spearman": ("Spearman ρ ×100", 100),
    "accuracy": ("triplet accuracy %", 100),
    "loss": ("loss", 1),
}


class EventReader:
    """The events of one file so far. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[Event] = []
        self._position = 0  # bytes
        self._inode = 0

    def read(self) -> list[Event]:
        """All events so far, oldest first; an empty list while there is no file."""
        if not self._path.exists():
            self._begin(0)
            return self._events
        with self._path.open("rb") as file:
            status = fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._position:
                self._begin(status.st_ino)
            file.seek(self._position)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        self._events += [event for line in whole.split(b"\n") if (event := _parse(line))]
        return self._events

    def _begin(self, inode: int) -> None:
        self._events, self._position, self._inode = [], 0, inode


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:  # cut short
        return None
    return event if isinstance(event, dict) and "kind" in event else None


@dataclass(frozen=True)
class RunProgress:
    """How far a run is. Figures are None until an event tells them; rates are rows of sentences a second."""

    step: int = 0
    steps: int | None = None
    loss: float | None = None
    sentences_per_second: float | None = None
    seconds_left: float | None = None
    rows: int | None = None
    device: str | None = None
    dtype: str | None = None
    pooling: str | None = None
    notes: tuple[str, ...] = ()  # what was done to the data
    baseline: Event | None = None  # the evaluation before the first step
    latest: Event | None = None
    best: Event | None = None  # of those after the first step

    @classmethod
    def of(cls, events: Sequence[Event]) -> RunProgress:
        """What the events add up to."""
        opening = _last(events, "state", lambda event: event.get("state") == "running") or {}
        train = _last(events, "train") or {}
        latest = _last(events, "eval")
        timed = _last(events, None, lambda event: event.get("seconds_left") is not None) or {}
        return cls(
            step=events[-1].get("step", 0) if events else 0,
            steps=opening.get("steps"),
            loss=train.get("loss"),
            sentences_per_second=train.get("sentences_per_second"),
            seconds_left=timed.get("seconds_left"),
            rows=opening.get("rows"),
            device=opening.get("device"),
            dtype=opening.get("dtype"),
            pooling=opening.get("pooling"),
            notes=tuple(opening.get("notes") or ()),
            baseline=next((event for event in events if event["kind"] == "eval" and event["step"] == 0), None),
            latest=latest,
            best=_last(events, "eval", lambda event: bool(event.get("best")) and event["step"] > 0),
        )

    @property
    def measure(self) -> str | None:
        """The name of the figure that the run is judged by, a key of `MEASURES`."""
        seen = self.latest or {}
        return next((name for name in MEASURES if seen.get(name) is not None), None)

    @property
    def collapsed(self) -> str | None:
        """The reason in words, if the last evaluation found the encoder collapsed."""
        return (self.latest or {}).get("collapsed")

    def figure(self, event: Event | None) -> float | None:
        """The figure that the run is judged by, of one of its evaluations, as it is shown (ρ ×100)."""
        value = (event or {}).get(self.measure or "")
        return None if value is None else value * MEASURES[self.measure or "loss"][1]


def _last(events: Sequence[Event], kind: str | None, fits: Any = lambda event: True) -> Event | None:
    return next((event for event in reversed(events) if kind in (None, event["kind"]) and fits(event)), None)
