"""A run on disk: its record, its events and the progress that they describe; and presets to start from.

`runs.store` reads and changes these plain values. The messages of the errors are shown to users.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from os import fstat
from pathlib import Path
from typing import Any

from sbert_app.services.background.watch import State
from sbert_app.services.store.documents import Timestamp, read_document, unreadable
from training.atomic import write_bytes
from training.catalogue import DEFAULT_MODEL, asset
from training.errors import InputError, UserFacingError, without_folders
from training.names import ModelName
from training.trainer.config import RunConfig
from training.trainer.events import Event, parse_events
from training.trainer.run_metrics import RUN_METRICS, main_metric, warnings

QUEUED = frozenset({State.QUEUED})
LONGEST_NAME = 80


class RunError(UserFacingError):
    """A run cannot be used for this purpose."""


class RunNotFoundError(RunError):
    """There is no such run, or it was deleted meanwhile."""


class RunBusyError(RunError):
    """Another process is working on the run."""


class RunStateError(RunError):
    """The run's state does not allow this, such as stopping a finished run."""


@dataclass(frozen=True)
class RunRecord:
    """``run.json``, which only the holder of the run's lock writes. Times are seconds since 1970."""

    state: State
    created: Timestamp
    started: Timestamp | None = None
    ended: Timestamp | None = None
    reason: str | None = None

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        """Read the record of a folder. RunNotFoundError if it does not exist or is damaged."""
        try:
            return read_document(folder / "run.json", cls)
        except FileNotFoundError as error:
            raise RunNotFoundError(f"there is no run {folder.name!r}; `runs list` shows them all") from error
        except InputError as error:
            raise RunNotFoundError(error, error.public) from error

    def write(self, folder: Path) -> None:
        """Write the record atomically. Raises OSError if the disk is full."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        # A reason quotes the wrong input.
        write_bytes(folder / "run.json", text.encode(errors="replace"))


@dataclass(frozen=True)
class Run:
    """A run as it was when it was read. Users can change its ``name``; ``progress`` sums up the events."""

    id: str
    folder: Path
    name: str
    config: RunConfig
    record: RunRecord
    events: Sequence[Event]
    progress: RunProgress

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def reason(self) -> str:
        """The reason why the run ended early, for visitors; "" if it did not."""
        return without_folders(self.record.reason or "")

    @cached_property
    def has_model(self) -> bool:
        return any((self.folder / "model" / file).exists() for file in ("modules.json", "config.json"))

    @property
    def waited(self) -> float:
        """The seconds since its state has changed."""
        return time.time() - (self.folder / "run.json").stat().st_mtime

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
            "model": str(ModelName.of_run(self.id)) if self.has_model else None,
            "folder": str(self.folder),
            "config": self.config.to_dict(),
        }


def default_name(config: RunConfig) -> str:
    """The name of a run without one: objectives, concatenation, pooling, base."""
    concatenation = f" {config.concatenation}" if "concatenation" in config.objective_class.fields else ""
    pooling = {None: "", "cls": " · CLS"}.get(config.pooling, f" · {config.pooling}")
    objectives = " + ".join(dict.fromkeys(part.objective for part in config.parts))
    return f"{objectives}{concatenation}{pooling} · {config.base}"[:LONGEST_NAME]


def newest_first(folders: Iterable[Path]) -> list[str]:
    """The ids of runs by the times in their records; those without a record come last."""
    return [folder.name for folder in sorted(folders, key=lambda folder: (_created(folder), folder.name), reverse=True)]


def _created(folder: Path) -> float:
    try:
        return _recorded_time(folder)
    except (UserFacingError, OSError):
        return 0.0


@lru_cache(maxsize=100_000)
def _recorded_time(folder: Path) -> float:
    return RunRecord.read(folder).created


def stamp_of(folder: Path) -> object:
    """A value that changes with the folder of a run that is not at work."""
    stats = []
    for name in ("run.json", "name.txt", "events.jsonl", "model"):
        # A file that cannot be read is reported by its reader.
        with suppress(OSError):
            status = (folder / name).stat()
            stats.append((status.st_ino, status.st_ctime_ns))
    return stats


NLI = ("nli", "snli", "mnli", "all-nli")


@dataclass(frozen=True)
class Preset:
    """A starting point of a run (``assets/presets.json``): fields of a `RunConfig`, and what it teaches.

    The recipes of the paper (sections 3.1 and 4) start from a raw BERT of the Hub. Presets start from the model that
    ships, which was already trained on sentence pairs, so that they work anywhere and the curves rise less; each states
    the base of the paper.
    """

    group: str
    title: str
    lesson: str
    values: dict[str, Any] = field(default_factory=dict)

    def config(self) -> RunConfig:
        return RunConfig(**self.fields())

    def fields(self) -> dict[str, Any]:
        """A value for each field of a run, except data that the user has to select."""
        return RunConfig("regression", pooling="mean").to_dict() | self.values


PRESETS = read_document(asset("presets.json"), dict[str, Preset])
# The order of the groups in which they are offered.
PRESET_GROUPS = ("My own data", "Try it", "The paper", "From scratch")


def two_stage_base(runs: Iterable[Run]) -> str:
    """The newest run on NLI data that has a model, or else the default base."""
    for run in runs:
        if run.has_model and run.config.train_data.partition(":")[0] in NLI:
            return str(ModelName.of_run(run.id))
    return DEFAULT_MODEL


class EventReader:
    """The events of a file ``events.jsonl`` that another process may be writing. Not thread-safe.

    Each call reads only new lines; an incomplete last line waits for the next call, and a line that a crash truncated
    is skipped. A run that is resumed withdraws events (`training.trainer.events`): its file is then another one or
    shorter, and is read again from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[Event] = []
        self._position = 0
        self._inode = 0

    def read(self) -> list[Event]:
        """All events, the oldest first; none while there is no file. InputError if it cannot be read."""
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
        except OSError as error:
            # It may be a link to itself.
            raise unreadable(self._path, error) from None
        self._position += len(complete) + len(newline)
        self._events += parse_events(complete)
        return self._events

    def _restart(self, inode: int) -> None:
        self._events = []
        self._position = 0
        self._inode = inode


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run by its events. Figures are None until an event has them.

    Attributes:
        memory_gb: the most memory of a GPU so far.
        notes: the transformations of the data.
        baseline, latest, best: evaluations before the first step, at last, and the best after the first step.
        warnings: those of `training.trainer.run_metrics`.
        test: the evaluation of the best model on the test split of the dev data.
        collapsed, undefined: the reasons, if the last evaluation found a collapse, or no Spearman's correlation.
    """

    step: int = 0
    steps: int | None = None
    loss: float | None = None
    sentences_per_second: float | None = None
    seconds_left: float | None = None
    rows: int | None = None
    device: str | None = None
    memory_gb: float | None = None
    dtype: str | None = None
    pooling: str | None = None
    notes: tuple[str, ...] = ()
    baseline: Event | None = None
    latest: Event | None = None
    best: Event | None = None
    warnings: tuple[str, ...] = ()
    test: Event | None = None
    collapsed: str | None = None
    undefined: str | None = None

    @classmethod
    def from_events(cls, events: Sequence[Event]) -> RunProgress:
        start = _last(events, "state", lambda event: event.get("state") == State.RUNNING) or {}
        train = _last(events, "train") or {}
        timed = _last(events, None, lambda event: event.get("seconds_left") is not None) or {}
        latest = _last(events, "eval") or {}
        return cls(
            step=events[-1].get("step", 0) if events else 0,
            **{key: start.get(key) for key in ("steps", "rows", "device", "dtype", "pooling")},
            **{key: train.get(key) for key in ("loss", "sentences_per_second", "memory_gb")},
            seconds_left=timed.get("seconds_left"),
            notes=tuple(start.get("notes") or ()),
            baseline=next((event for event in events if event["kind"] == "eval" and event["step"] == 0), None),
            latest=latest or None,
            **{key: latest.get(key) for key in ("collapsed", "undefined")},
            best=_last(events, "eval", lambda event: bool(event.get("best")) and event["step"] > 0),
            test=_last(events, "test"),
            warnings=tuple(warnings(events)),
        )

    @property
    def measure(self) -> str | None:
        """The main metric of the run, a key of `RUN_METRICS`; None before the first evaluation."""
        return main_metric(self.latest or {})

    def figure(self, event: Event | None) -> float | None:
        """The metric of one evaluation on the scale of pages (ρ ×100)."""
        value = (event or {}).get(self.measure or "")
        return None if value is None else value * RUN_METRICS[self.measure or "loss"].factor


def _last(
    events: Sequence[Event], kind: str | None, matches: Callable[[Event], bool] = lambda event: True
) -> Event | None:
    return next((event for event in reversed(events) if kind in (None, event["kind"]) and matches(event)), None)
