"""A run on disk: its record, its events, and its progress. `runs.store` reads and changes these values.

Presets, from which a run can start, are here too. The messages of the errors are shown to users.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
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
    """The run does not exist, or was deleted."""


class RunBusyError(RunError):
    """Another process is working on the run."""


class RunStateError(RunError):
    """The run's state does not allow this, such as stopping a finished run."""


@dataclass(frozen=True)
class RunRecord:
    """The file ``run.json``. Only the holder of the run's lock writes it.

    Times are seconds since 1970, and None if the run has not started or ended. ``reason`` says why
    the run ended early; None if it did not.
    """

    state: State
    created: Timestamp
    started: Timestamp | None = None
    ended: Timestamp | None = None
    reason: str | None = None

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        """Reads the record of a folder. Raises RunNotFoundError if it does not exist or is damaged."""
        try:
            return read_document(folder / "run.json", cls)
        except FileNotFoundError as error:
            raise RunNotFoundError(
                f"there is no run {folder.name!r}; `runs list` shows them all"
            ) from error
        except InputError as error:
            raise RunNotFoundError(error, public=error.public) from error

    def write(self, folder: Path) -> None:
        """Writes the record atomically. Raises OSError if the disk is full."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        # A reason may quote input that UTF-8 cannot encode.
        write_bytes(folder / "run.json", text.encode(errors="replace"))


@dataclass(frozen=True)
class Run:
    """The state of a run when it was read. Users can change its ``name``; ``progress`` sums up the events."""

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
        """The reason why the run ended early, without paths; "" if it did not."""
        return without_folders(self.record.reason or "")

    @cached_property
    def has_model(self) -> bool:
        model = self.folder / "model"
        return (model / "modules.json").exists() or (model / "config.json").exists()

    @property
    def waited(self) -> float:
        """The seconds since its state last changed."""
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
    concatenation = ""
    if "concatenation" in config.objective_class.fields:
        concatenation = f" {config.concatenation}"
    pooling = ""
    if config.pooling is not None:
        pooling = " · CLS" if config.pooling == "cls" else f" · {config.pooling}"
    objectives = " + ".join(dict.fromkeys(part.objective for part in config.parts))
    return f"{objectives}{concatenation}{pooling} · {config.base}"[:LONGEST_NAME]


def newest_first(folders: Iterable[Path]) -> list[str]:
    """The ids of runs by the times in their records. Runs whose record cannot be read come last."""

    def creation(folder: Path) -> tuple[float, str]:
        created = 0.0
        with suppress(UserFacingError, OSError):
            created = _created(folder)
        return created, folder.name

    return [folder.name for folder in sorted(folders, key=creation, reverse=True)]


# The time never changes, so it is read once. Exceptions are not cached, so a record that is repaired
# is read again.
@lru_cache(maxsize=100_000)
def _created(folder: Path) -> float:
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

    The recipes of the paper (sections 3.1 and 4) start from a raw BERT, which has to be downloaded.
    Presets start from the model that ships, so that they work offline. It was already trained on
    sentence pairs, so the curves rise less. The lesson of each preset states the base of the paper.
    """

    group: str
    title: str
    lesson: str
    values: dict[str, Any] = field(default_factory=dict)

    def config(self) -> RunConfig:
        return RunConfig(**self.fields())

    def fields(self) -> dict[str, Any]:
        """A value for each field of a config; "" for data that the user has to select."""
        return RunConfig("regression", pooling="mean").to_dict() | self.values


PRESETS = read_document(asset("presets.json"), dict[str, Preset])
# The order of the groups in which they are offered.
PRESET_GROUPS = ("My own data", "Try it", "The paper", "From scratch")


def two_stage_base(runs: Iterable[Run]) -> str:
    """The base of the preset "two-stage": the first of the runs on NLI data that has a model, or else the default."""
    for run in runs:
        if run.has_model and run.config.train_data.partition(":")[0] in NLI:
            return str(ModelName.of_run(run.id))
    return DEFAULT_MODEL


class EventReader:
    """Reads ``events.jsonl`` while another process may be writing it. Not thread-safe.

    Each call reads only new lines. An incomplete last line waits for the next call, and a line that
    a crash truncated is skipped. A resumed run withdraws events (`training.trainer.events`). Its
    file is then a new one, or shorter, and is read again from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[Event] = []
        self._position = 0
        self._inode = 0

    def read(self) -> list[Event]:
        """All events, the oldest first; none before the file exists. Raises InputError if it cannot be read."""
        if self._path.exists() and not self._path.is_file():
            raise unreadable(self._path, "it is not a file")
        try:
            with self._path.open("rb") as file:
                status = fstat(file.fileno())
                # A resumed run that has withdrawn events has written a new file, or a shorter one.
                if status.st_ino != self._inode or status.st_size < self._position:
                    self._restart(status.st_ino)
                file.seek(self._position)
                # What follows the last line break is a line that is still being written.
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            # 0 is the inode of no file.
            self._restart(0)
            return self._events
        except OSError as error:
            # For example a link to itself.
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
    """The progress of a run according to its events. Figures are None until an event has them.

    Attributes:
        memory_gb: the peak memory of a GPU.
        notes: how the data was transformed.
        baseline: the evaluation before the first step.
        latest: the last evaluation.
        best: the best evaluation after the first step.
        warnings: see `training.trainer.run_metrics.warnings`.
        test: the evaluation of the best model on the test split of the dev data.
        collapsed: how the model has collapsed, if the last evaluation says so.
        undefined: why the last evaluation has no Spearman's correlation, if it has none.
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
        """Sums up the events of a run, the oldest of which comes first."""
        start: Event = {}
        train: Event = {}
        baseline = None
        latest: Event = {}
        best = None
        test = None
        seconds_left = None
        for event in events:
            match event["kind"]:
                case "state" if event.get("state") == State.RUNNING:
                    start = event
                case "train":
                    train = event
                case "eval":
                    latest = event
                    if event["step"] == 0:
                        # A run that is resumed before its first checkpoint is evaluated again.
                        baseline = event
                    elif event.get("best"):
                        # It is better than all evaluations before.
                        best = event
                case "test":
                    test = event
            if event.get("seconds_left") is not None:
                seconds_left = event["seconds_left"]
        return cls(
            step=events[-1].get("step", 0) if events else 0,
            steps=start.get("steps"),
            loss=train.get("loss"),
            sentences_per_second=train.get("sentences_per_second"),
            seconds_left=seconds_left,
            rows=start.get("rows"),
            device=start.get("device"),
            memory_gb=train.get("memory_gb"),
            dtype=start.get("dtype"),
            pooling=start.get("pooling"),
            notes=tuple(start.get("notes") or ()),
            baseline=baseline,
            latest=latest or None,
            best=best,
            warnings=tuple(warnings(events)),
            test=test,
            collapsed=latest.get("collapsed"),
            undefined=latest.get("undefined"),
        )

    @property
    def measure(self) -> str | None:
        """The main metric of the run, a key of `RUN_METRICS`; None before the first evaluation."""
        figures = dict(self.latest or {})
        # A collapsed model has no correlation any more, but the run is still about it.
        for name, value in (self.baseline or {}).items():
            if value is not None:
                figures[name] = value
        return main_metric(figures)

    def figure(self, event: Event | None) -> float | None:
        """The main metric of one evaluation, on the scale that pages show (ρ ×100)."""
        measure = self.measure
        if measure is None or event is None or event.get(measure) is None:
            return None
        return event[measure] * RUN_METRICS[measure].factor
