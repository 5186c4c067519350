"""Python objects of a run that its config cannot store, and the state on disk of a run that a program starts.

Data in memory, an objective, evaluators and callbacks cannot be written down. The config of the run names them, as
"own (module:class)", and ``own.json`` in its folder lists all of them. Only a program that passes the same objects to
`train` again can resume the run.

The app lists a run of the home folder by its file run.json. It writes this file for the runs that it starts itself, and
`tracked_run` writes it for all others. A process that works on a run holds the lock beside the file.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from training.atomic import write_text
from training.data.dataset import Dataset
from training.errors import InputError, first_line
from training.names import RUN, is_id, slug
from training.objectives.base import is_own, own_name
from training.sources.home import home_folder
from training.trainer.run_metrics import RESERVED, Figures, selection_metric

if TYPE_CHECKING:
    import torch

    from training.models.encoder import Encoder
    from training.trainer.config import RunConfig

FILE = "own.json"
HOOKS = ("on_step", "on_evaluate", "on_checkpoint", "on_end")
# The objects that the config names.
NAMED = ("objective", "train_data", "eval_data")
UNNAMED = ("optimizer", "schedule")


@dataclass(frozen=True)
class RunExtras:
    """The Python objects of one run; see `training.trainer.train.train`. InputError for one that cannot be used."""

    objective: Callable[..., torch.Tensor] | None = None
    optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer] | None = None
    schedule: Callable[[int, int], float] | None = None
    evaluators: Sequence[Callable[[Encoder], Mapping[str, float]]] = ()
    callbacks: Sequence[Any] = ()
    metric_for_best_model: str | None = None
    greater_is_better: bool = True
    train_data: Dataset | None = None
    eval_data: Dataset | None = None

    def __post_init__(self) -> None:
        for part in self.callbacks:
            if not any(hasattr(part, hook) for hook in HOOKS):
                raise InputError(f"the callback {_place(part)} has none of {', '.join(HOOKS)}")
        for part in filter(None, (self.objective, self.optimizer, self.schedule, *self.evaluators)):
            if not callable(part):
                raise InputError(f"{part!r} cannot be called; an objective, evaluator or optimizer is a function")

    def listed(self) -> dict[str, str]:
        """The objects in words, by name; equal words stand for the same object."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in (*NAMED, *UNNAMED)}
        words = {name: _place(part) for name, part in parts.items() if part is not None}
        for name in ("train_data", "eval_data"):
            if (data := parts[name]) is not None:
                content = json.dumps([data.columns, data.scores, data.labels, data.label_names]).encode()
                words[name] = f"{data.name}, {len(data):,} {data.kind}, {blake2b(content, digest_size=4).hexdigest()}"
        several = {"evaluators": self.evaluators, "callbacks": self.callbacks}
        return words | {name: ", ".join(map(_place, parts)) for name, parts in several.items() if parts}

    def named(self, config: RunConfig) -> RunConfig:
        """The config with the names of these objects in place of its own.

        InputError if they do not fit together, or the config names an object that is not here.
        """
        config = config.replace(**{name: own_name(words) for name, words in self.listed().items() if name in NAMED})
        if missing := [name for name in NAMED if getattr(self, name) is None and is_own(getattr(config, name))]:
            raise InputError(_refusal(missing))
        return config

    def check_same(self, folder: Path) -> None:
        """InputError if the run in ``folder`` was started with other objects."""
        if different := sorted({name for name, _ in _read(folder).items() ^ self.listed().items()}):
            raise InputError(_refusal(different))

    def write(self, folder: Path) -> None:
        (folder / FILE).unlink(missing_ok=True)
        if listed := self.listed():
            write_text(folder / FILE, json.dumps(listed, indent=1, ensure_ascii=False) + "\n")

    def hooks(self, name: str) -> list[Callable[..., object]]:
        """The methods of this name that the callbacks have."""
        return [getattr(callback, name) for callback in self.callbacks if hasattr(callback, name)]

    def measure(self, encoder: Encoder) -> Figures:
        """The figures of all evaluators; None for one that is not finite. InputError for one that is no number."""
        figures: Figures = {}
        for evaluator in self.evaluators:
            for name, value in dict(evaluator(encoder)).items():
                if name in RESERVED or name in figures:
                    raise InputError(f"{_place(evaluator)} returns {name!r}, which is measured already; rename it")
                try:
                    number = float(value)
                except (TypeError, ValueError) as error:
                    raise InputError(f"{_place(evaluator)} returns {value!r} as {name}, which is no number") from error
                figures[name] = number if math.isfinite(number) else None
        return figures

    def selection(self, figures: Figures | None, first: str | None = None) -> tuple[str, float] | None:
        """The `selection_metric`, by the caller's figure if there is one. InputError if that is not measured."""
        name = self.metric_for_best_model
        if name is None or not figures:
            return selection_metric(figures or {}, first)
        if name not in figures:
            measured = [figure for figure, value in figures.items() if isinstance(value, int | float)]
            raise InputError(f"metric_for_best_model {name!r} is not measured; there are {', '.join(measured)}")
        value = figures[name]
        return None if value is None else (name, value if self.greater_is_better else -value)


def check_queueable(config: RunConfig, folder: Path | None = None) -> None:
    """InputError if a run has objects of a program, by its config or its folder: no other process has them."""
    parts = [name for name in NAMED if is_own(getattr(config, name))] or (list(_read(folder)) if folder else [])
    if parts:
        raise InputError(_refusal(parts))


def _refusal(parts: Iterable[str]) -> str:
    names = ", ".join(parts)
    return (
        f"this run has objects of the program that started it ({names}), which no other process has: "
        "start or resume it there, by train(…) with the same"
    )


def _read(folder: Path) -> dict[str, str]:
    return read_object(folder / FILE, "remove it, and name the same objects") or {}


def _place(part: object) -> str:
    """The place of a function, or of the class of an object: module:name."""
    function = part.func if isinstance(part, partial) else part
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


@dataclass
class TrackedRun:
    """The state of a run and its reason. Creating the file ``stop`` asks the run to stop; None for an untracked run."""

    state: str = "running"
    reason: str | None = None
    stop: Path | None = None


def run_folder(folder: str | Path | None, home: str | Path | None, config: RunConfig) -> Path | None:
    """A run's folder for a path, ``run:NAME`` in home/runs, or ``run:``, a new one. InputError for a bad name."""
    if not str(folder).startswith(RUN):
        return None if folder is None else Path(folder).expanduser().absolute()
    runs = home_folder(home) / "runs"
    name = str(folder).removeprefix(RUN)
    if not name:
        return new_run_folder(runs, config)
    if not is_id(name):
        raise InputError(f"{folder} cannot be a run's name; take letters, digits, dots and hyphens")
    return runs / name


def new_run_folder(runs: Path, config: RunConfig) -> Path:
    """Creates a folder named by date, time and a few words: 20261121-034512-regression-mean. OSError if that fails."""
    words = slug(config.name) or slug(f"{config.objective} {config.pooling or config.base}")
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{words}"
    # Two runs may be created in the same second.
    for name in chain([stem], (f"{stem}-{number}" for number in count(2))):
        with suppress(FileExistsError):
            (runs / name).mkdir(parents=True)
            return runs / name
    raise AssertionError("count is infinite")


def read_object(file: Path, remedy: str) -> dict[str, Any] | None:
    """The JSON object in a file of a run's folder; None without one. InputError, with what to do, if it is damaged."""
    if not os.path.lexists(file):
        return None
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({first_line(error)}); {remedy}") from error


@contextmanager
def tracked_run(folder: Path | None, home: str | Path | None) -> Iterator[TrackedRun]:
    """Keep run.json of the run in ``folder`` up to date, before the block and after it, if the folder is in home/runs.

    Nothing is written where another process, such as the app, works on the run and writes the file.
    """
    run_state = TrackedRun()
    if folder is None or folder.parent != home_folder(home) / "runs":
        yield run_state
        return
    try:
        lock = FileLock(folder / "lock", timeout=0).acquire()
    except Timeout:
        yield run_state
        return
    with lock:
        run_state.stop = folder / "stop"
        file = folder / "run.json"
        now = time.time()
        run_state.stop.unlink(missing_ok=True)
        created = (read_object(file, "remove it to record the run anew") or {}).get("created", now)
        _write(file, run_state, created, now, None)
        try:
            yield run_state
        except BaseException as error:
            run_state.state = "failed" if isinstance(error, Exception) else "interrupted"
            run_state.reason = " ".join(str(error).split()) or type(error).__name__
            raise
        finally:
            _write(file, run_state, created, now, time.time())


def _write(file: Path, run_state: TrackedRun, created: float, started: float, ended: float | None) -> None:
    times = {"created": created, "started": started, "ended": ended}
    write_text(file, json.dumps({"state": run_state.state, "reason": run_state.reason, **times}, indent=1) + "\n")
