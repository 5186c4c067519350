"""Following a run: its events as they are written, and its progress as they describe it.

`EventReader` reads an ``events.jsonl`` that another process may be writing. Each call reads only what is new; an
incomplete last line is read by the next call, a line that a crash truncated is skipped. A run that is resumed
withdraws events (see `training.trainer.events`): the file is then another one or shorter, and is read again from its
beginning.

`RunProgress` is the state of a run in figures, derived from its events alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import fstat
from pathlib import Path

from sbert_app.services.background.state import State
from sbert_app.services.store.documents import unreadable
from training.trainer.events import Event, parse_events
from training.trainer.health import warnings
from training.trainer.run_metrics import RUN_METRICS, main_metric


class EventReader:
    """All events of one file so far. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[Event] = []
        self._position = 0  # bytes
        self._inode = 0

    def read(self) -> list[Event]:
        """All events so far, oldest first; an empty list while there is no file. InputError if it cannot be read."""
        if self._path.exists() and not self._path.is_file():
            raise unreadable(self._path, "it is no file")
        try:
            with self._path.open("rb") as file:
                status = fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._position:
                    self._restart(status.st_ino)
                file.seek(self._position)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            self._restart(0)
            return self._events
        except OSError as error:  # such as a link to itself
            raise unreadable(self._path, error) from None
        self._position += len(complete) + len(newline)
        self._events += parse_events(complete)
        return self._events

    def _restart(self, inode: int) -> None:
        self._events, self._position, self._inode = [], 0, inode


@dataclass(frozen=True)
class RunProgress:
    """How far a run is. Figures are None until an event has them; rates are sentences per second."""

    step: int = 0
    steps: int | None = None
    loss: float | None = None
    sentences_per_second: float | None = None
    seconds_left: float | None = None
    rows: int | None = None
    device: str | None = None
    memory_gb: float | None = None  # of a GPU: the most that was held so far
    dtype: str | None = None
    pooling: str | None = None
    notes: tuple[str, ...] = ()  # how the data was transformed
    baseline: Event | None = None  # the evaluation before the first step
    latest: Event | None = None
    best: Event | None = None  # of the evaluations after the first step
    warnings: tuple[str, ...] = ()  # see `training.trainer.health`
    test: Event | None = None  # of the best model, on the test split of the dev data

    @classmethod
    def from_events(cls, events: Sequence[Event]) -> RunProgress:
        start = _last(events, "state", lambda event: event.get("state") == State.RUNNING) or {}
        train = _last(events, "train") or {}
        timed = _last(events, None, lambda event: event.get("seconds_left") is not None) or {}
        return cls(
            step=events[-1].get("step", 0) if events else 0,
            **{key: start.get(key) for key in ("steps", "rows", "device", "dtype", "pooling")},
            **{key: train.get(key) for key in ("loss", "sentences_per_second", "memory_gb")},
            seconds_left=timed.get("seconds_left"),
            notes=tuple(start.get("notes") or ()),
            baseline=next((event for event in events if event["kind"] == "eval" and event["step"] == 0), None),
            latest=_last(events, "eval"),
            best=_last(events, "eval", lambda event: bool(event.get("best")) and event["step"] > 0),
            test=_last(events, "test"),
            warnings=tuple(warnings(events)),
        )

    @property
    def measure(self) -> str | None:
        """The main metric of the run, a key of `RUN_METRICS`; None before the first evaluation."""
        return main_metric(self.latest or {})

    @property
    def collapsed(self) -> str | None:
        """The reason, if the last evaluation found that the embeddings collapsed."""
        return (self.latest or {}).get("collapsed")

    def figure(self, event: Event | None) -> float | None:
        """The metric in one evaluation, as it is shown (ρ ×100)."""
        value = (event or {}).get(self.measure or "")
        return None if value is None else value * RUN_METRICS[self.measure or "loss"].factor


def _last(
    events: Sequence[Event], kind: str | None, matches: Callable[[Event], bool] = lambda event: True
) -> Event | None:
    return next((event for event in reversed(events) if kind in (None, event["kind"]) and matches(event)), None)
