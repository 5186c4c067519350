"""Runs that a Python program starts by `train`: the objects that it adds to the config, and the record of the run.

Objects such as data in memory, an objective, evaluators and callbacks cannot be stored in the
config. The config names them as "own (module:class)", and ``own.json`` in the run's folder lists
all of them. Only a program that passes the same objects again can resume the run.

The list of runs in the home folder is made of the records of the runs, run.json. The app writes the
records of the runs that it starts. The process that works on a run holds the lock beside its
record.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from training.atomic import write_text
from training.data.dataset import Dataset
from training.errors import InputError, first_line, in_one_line
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
# The objects that the notes of a run name, as the config has no field for them.
UNNAMED = ("optimizer", "schedule")


@dataclass(frozen=True)
class RunExtras:
    """Python objects of a run that cannot be stored in the config, as in `training.trainer.train.train`.

    InputError for an object that cannot be used.
    """

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
        for callback in self.callbacks:
            if not any(hasattr(callback, hook) for hook in HOOKS):
                raise InputError(f"the callback {_place(callback)} has none of {', '.join(HOOKS)}")
        for function in (self.objective, self.optimizer, self.schedule, *self.evaluators):
            if function is not None and not callable(function):
                raise InputError(
                    f"{function!r} cannot be called; an objective, evaluator or optimizer is a function"
                )

    def listed(self) -> dict[str, str]:
        """Describes the objects, by name. Equal descriptions stand for the same object."""
        words = {}
        for name in (*NAMED, *UNNAMED):
            part = getattr(self, name)
            if isinstance(part, Dataset):
                content = json.dumps([part.columns, part.scores, part.labels, part.label_names])
                digest = blake2b(content.encode(), digest_size=4).hexdigest()
                words[name] = f"{part.name}, {len(part):,} {part.kind}, {digest}"
            elif part is not None:
                words[name] = _place(part)
        if self.evaluators:
            words["evaluators"] = ", ".join(map(_place, self.evaluators))
        if self.callbacks:
            words["callbacks"] = ", ".join(map(_place, self.callbacks))
        return words

    def named(self, config: RunConfig) -> RunConfig:
        """Returns the config with the names of these objects.

        InputError if they do not fit together, or the config names an object that is missing here.
        """
        changes = {name: own_name(words) for name, words in self.listed().items() if name in NAMED}
        # This validates the combination.
        config = config.replace(**changes)
        missing = []
        for name in NAMED:
            if getattr(self, name) is None and is_own(getattr(config, name)):
                missing.append(name)
        if missing:
            raise InputError(_refusal(missing))
        return config

    def check_same(self, folder: Path) -> None:
        """Raises InputError if the run in ``folder`` was started with other objects."""
        # The entries that only one of the two lists has.
        different = {name for name, _ in _read(folder).items() ^ self.listed().items()}
        if different:
            raise InputError(_refusal(sorted(different)))

    def write(self, folder: Path) -> None:
        """Writes the list of the objects, if there are any."""
        # A run that is overwritten may have left a list.
        (folder / FILE).unlink(missing_ok=True)
        if listed := self.listed():
            write_text(folder / FILE, json.dumps(listed, indent=1, ensure_ascii=False) + "\n")

    def hooks(self, name: str) -> list[Callable[..., object]]:
        """Returns the methods of this name that the callbacks have."""
        return [getattr(callback, name) for callback in self.callbacks if hasattr(callback, name)]

    def measure(self, encoder: Encoder) -> Figures:
        """Returns the figures of all evaluators, None for non-finite ones. InputError if one is not a number."""
        figures: Figures = {}
        for evaluator in self.evaluators:
            for name, value in dict(evaluator(encoder)).items():
                if name in RESERVED or name in figures:
                    raise InputError(
                        f"{_place(evaluator)} returns {name!r}, which is measured already; rename it"
                    )
                try:
                    number = float(value)
                except (TypeError, ValueError) as error:
                    raise InputError(
                        f"{_place(evaluator)} returns {value!r} as {name}, which is no number"
                    ) from error
                figures[name] = number if math.isfinite(number) else None
        return figures

    def selection(
        self, figures: Figures | None, first: str | None = None
    ) -> tuple[str, float] | None:
        """Returns the name and the value of the `selection_metric`, or of the figure that the caller has named.

        The value is negated if lower is better. ``first`` is the figure that the objective prefers,
        if it has one. None if the figure is not finite, or there was no evaluation. InputError if
        the figure that the caller has named was not measured.
        """
        name = self.metric_for_best_model
        if name is None or not figures:
            return selection_metric(figures or {}, first)
        if name not in figures:
            measured = [key for key, value in figures.items() if isinstance(value, int | float)]
            raise InputError(
                f"metric_for_best_model {name!r} is not measured; there are {', '.join(measured)}"
            )
        value = figures[name]
        if value is None:
            return None
        if self.greater_is_better:
            return name, value
        return name, -value


def check_queueable(config: RunConfig, folder: Path | None = None) -> None:
    """Raises InputError if the config or the folder of a run has objects that only its program has."""
    parts = [name for name in NAMED if is_own(getattr(config, name))]
    # Callbacks, evaluators and the like are only in the list in the folder.
    if folder is not None and not parts:
        parts = list(_read(folder))
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
    """Returns where a function, or the class of an object, is defined: module:name."""
    function = part.func if isinstance(part, partial) else part
    definition = function if hasattr(function, "__qualname__") else type(function)
    return f"{definition.__module__}:{definition.__qualname__}"


@dataclass
class RunStatus:
    """The state of a run, with the reason.

    The run stops when the file ``stop`` is created; ``stop`` is None if no record is written.
    """

    state: str = "running"
    reason: str | None = None
    stop: Path | None = None


def run_folder(
    folder: str | Path | None, home: str | Path | None, config: RunConfig
) -> Path | None:
    """Resolves the folder of a run: a path, or ``run:NAME`` in home/runs; ``run:`` creates a new folder there.

    None, for a run without files, stays None. InputError for a bad name.
    """
    if folder is None:
        return None
    if not str(folder).startswith(RUN):
        return Path(folder).expanduser().absolute()
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
    folder = runs / stem
    number = 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            # Another run was created in the same second.
            number += 1
            folder = runs / f"{stem}-{number}"
        else:
            return folder


def read_object(file: Path, remedy: str) -> dict[str, Any] | None:
    """Reads the JSON object in a file of a run's folder; None without a file. InputError if it is damaged."""
    # A broken link is damage, and not a missing file.
    if not os.path.lexists(file):
        return None
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({first_line(error)}); {remedy}") from error
    if not isinstance(value, dict):
        raise InputError(f"{file} is damaged (it is not a JSON object); {remedy}")
    return value


@contextmanager
def record_run(folder: Path | None, home: str | Path | None) -> Iterator[RunStatus]:
    """Writes the record of a run in home/runs before and after the block, which sets the status that is yielded.

    Nothing is written if another process has the lock, such as the app, which writes the record of
    the runs that it starts.
    """
    status = RunStatus()
    # The list of runs shows only the folders in home/runs.
    if folder is None or folder.parent != home_folder(home) / "runs":
        yield status
        return
    try:
        lock = FileLock(folder / "lock", timeout=0).acquire()
    except Timeout:
        yield status
        return
    with lock:
        status.stop = folder / "stop"
        # The file may be left from an earlier part of the run, which was asked to stop.
        status.stop.unlink(missing_ok=True)
        file = folder / "run.json"
        started = time.time()
        previous = read_object(file, "remove it to record the run anew") or {}
        created = previous.get("created", started)
        _write(file, status, created, started)
        try:
            yield status
        except BaseException as error:
            status.state = "failed" if isinstance(error, Exception) else "interrupted"
            status.reason = in_one_line(error)
            raise
        finally:
            _write(file, status, created, started, ended=time.time())


def _write(
    file: Path, status: RunStatus, created: float, started: float, ended: float | None = None
) -> None:
    """Writes the record of a run. The times are seconds since 1970; ``ended`` is None while it is running."""
    values = {
        "state": status.state,
        "reason": status.reason,
        "created": created,
        "started": started,
        "ended": ended,
    }
    write_text(file, json.dumps(values, indent=1) + "\n")
