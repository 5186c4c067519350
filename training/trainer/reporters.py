"""Experiment trackers that get a run's figures besides ``events.jsonl``: TensorBoard and trackio, by name.

Both are optional packages, imported when a run names them. A figure is called as in the events, with the kind of the
event before it: ``train/loss``, ``train/lr``, ``eval/spearman``, ``eval/by_dimension/64``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from training.errors import InputError
from training.trainer.config import RunConfig
from training.trainer.events import Event, OnEvent

PROJECT = "sbert-lab"  # in trackio
NO_FIGURES = frozenset({"t", "step", "kind", "steps", "seconds_left"})


class Reporter(Protocol):
    """Writes figures somewhere."""

    def report(self, step: int, figures: Mapping[str, float]) -> None:
        """The figures of one event."""

    def close(self) -> None:
        """The end of the run, or of this process's part of it."""


class TensorBoard:
    """Event files in ``tensorboard/`` in the run's folder: ``tensorboard --logdir``.

    Args:
        config: of the run.
        folder: of the run.
        step: at which it is resumed; what was written after it is hidden. None for a new run.
    """

    def __init__(self, config: RunConfig, folder: Path | None, step: int | None) -> None:
        if folder is None:
            raise InputError("report_to tensorboard writes into the run's folder; give the run one")
        module = _optional("torch.utils.tensorboard", "tensorboard")
        self.writer = module.SummaryWriter(folder / "tensorboard", purge_step=None if step is None else step + 1)
        if step is None:
            self.writer.add_text("config", f"```json\n{config.to_json()}\n```")

    def report(self, step: int, figures: Mapping[str, float]) -> None:
        """One scalar a figure."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Close the files."""
        self.writer.close()


class Trackio:
    """A run in the project sbert-lab, on this machine unless trackio is configured otherwise: ``trackio show``.

    Arguments as `TensorBoard`.
    """

    def __init__(self, config: RunConfig, folder: Path | None, step: int | None) -> None:
        self.trackio = _optional("trackio", "trackio")
        name = folder.name if folder else config.name or None
        with redirect_stdout(sys.stderr):  # what it prints is no answer of a command
            self.trackio.init(
                project=PROJECT,
                name=name,
                config=config.to_dict(),
                resume="never" if step is None else "allow",
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def report(self, step: int, figures: Mapping[str, float]) -> None:
        """One row of figures."""
        self.trackio.log(dict(figures), step=step)

    def close(self) -> None:
        """Wait until everything is written."""
        with redirect_stdout(sys.stderr):
            self.trackio.finish()


REPORTER_TYPES: dict[str, Callable[[RunConfig, Path | None, int | None], Reporter]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
}


class Reporting:
    """A context manager: `handle` passes each event on, and its figures to the trackers that are open."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._reporters: list[Reporter] = []

    def open(self, config: RunConfig, folder: Path | None, step: int | None) -> None:
        """Open the trackers that the config names. InputError if a package is not installed."""
        for name in config.report_to:
            self._reporters.append(REPORTER_TYPES[name](config, folder, step))

    def handle(self, event: Event) -> None:
        """An event of the run."""
        self._on_event(event)
        if figures := figures_of(event):
            for reporter in self._reporters:
                reporter.report(event["step"], figures)

    def __enter__(self) -> Reporting:
        return self

    def __exit__(self, *_: object) -> None:
        for reporter in self._reporters:
            reporter.close()


def figures_of(event: Event) -> dict[str, float]:
    """The numbers of a train or eval event by name; empty for other events."""
    if event["kind"] not in ("train", "eval"):
        return {}
    flat = {**event, **{f"by_dimension/{dim}": value for dim, value in event.get("by_dimension", {}).items()}}
    return {
        f"{event['kind']}/{name}": float(value)
        for name, value in flat.items()
        if name not in NO_FIGURES and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _optional(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"report_to {extra} needs the package {extra}, which is not installed: pip install 'sbert-lab[{extra}]'"
        ) from error
