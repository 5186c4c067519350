"""The objects that the caller of `train` adds to the config: data, an objective, evaluators, callbacks, …

Such objects cannot be written down. The config of the run names them, as "own (module:class)", and ``own.json`` in its
folder lists all of them. The run can be resumed by a program that brings the same again, and not by another process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.atomic import write_text
from training.data.dataset import Dataset
from training.errors import InputError
from training.objectives.base import is_own, own_name
from training.trainer.record import read_object
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
class Own:
    """The objects of one run; see `training.trainer.train.train`. InputError for one that cannot be used."""

    objective: Callable[..., torch.Tensor] | None = None
    train_data: Dataset | None = None
    eval_data: Dataset | None = None
    optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer] | None = None
    schedule: Callable[[int, int], float] | None = None
    evaluators: Sequence[Callable[[Encoder], Mapping[str, float]]] = ()
    callbacks: Sequence[Any] = ()
    metric_for_best_model: str | None = None
    greater_is_better: bool = True

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
        """The config with the names of these objects in place of its own; InputError if they do not fit together."""
        changes = {name: own_name(words) for name, words in self.listed().items() if name in NAMED}
        return config.replace(**changes) if changes else config

    def check_complete(self, config: RunConfig) -> None:
        """InputError if the config names an object that is not here."""
        if missing := [name for name in NAMED if getattr(self, name) is None and is_own(getattr(config, name))]:
            raise InputError(_refusal(missing))

    def check_same(self, folder: Path) -> None:
        """InputError if the run in ``folder`` was started with other objects."""
        if different := sorted({name for name, _ in _read(folder).items() ^ self.listed().items()}):
            raise InputError(_refusal(different))

    def write(self, folder: Path) -> None:
        """List the objects in the run's folder."""
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
    what = ", ".join(parts)
    return (
        f"this run has objects of the program that started it ({what}), which no other process has: start or resume it "
        "there, by train(…) with the same"
    )


def _read(folder: Path) -> dict[str, str]:
    return read_object(folder / FILE, "remove it, and name the same objects") or {}


def _place(part: object) -> str:
    """Where a function, or the class of an object, is defined: module:name."""
    function = part.func if isinstance(part, partial) else part
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"
