"""The events of a run: its file, the lines that are printed, and experiment trackers.

Each event is a dictionary, passed to a callback and appended to ``events.jsonl``. Every line is
flushed, so other processes can follow the file during the run. Resuming from a checkpoint first
removes the events after it, so that the file holds one curve. A reader that keeps a position in the
file has to start again when the file has become shorter.

The trackers of accelerate write figures to TensorBoard and trackio, optional packages that a run
names in ``report_to``. A figure has the name of its field after the kind of the event:
``train/loss``, ``train/lr``, ``eval/spearman``, ``eval/by_dimension/64``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from tqdm.auto import tqdm

from training.atomic import write_text
from training.errors import InputError, import_optional
from training.progress import is_interactive
from training.trainer.config import RunConfig
from training.trainer.run_metrics import line_of_figures

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

Event = dict[str, Any]
OnEvent = Callable[[Event], object]

PROJECT = "sbert-lab"
# Numeric fields of an event that trackers do not get.
NO_FIGURES = frozenset({"t", "step", "kind", "steps", "seconds_left", "queries"})

_Count = Annotated[int, Field(ge=0, le=2**53)]


class _Event(BaseModel):
    """The fields that readers of events rely on. Events may have others."""

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
    queries: _Count = 0
    changed: tuple[str, str] | None = None
    by_dimension: dict[str, float] | None = None
    random_cosine: FiniteFloat | None = None
    plain_cosine: FiniteFloat | None = None
    collapsed: str | None = None
    undefined: str | None = None


class EventLog:
    """A context manager that writes events into the run's folder, if there is one, and passes them on.

    Events in the file up to ``keep_to_step`` are kept; None starts an empty file. ``evaluations``
    are all eval events, including the ones that were kept.
    """

    def __init__(
        self, folder: Path | None, on_event: OnEvent, keep_to_step: int | None = None
    ) -> None:
        self._on_event = on_event
        self._trackers: list[GeneralTracker] = []
        self._file: TextIO | None = None
        self.evaluations: list[Event] = []
        if folder is not None:
            path = folder / "events.jsonl"
            events = []
            # A new run starts with an empty file.
            if keep_to_step is not None:
                events = [event for event in read_events(path) if event["step"] <= keep_to_step]
            write_text(path, "".join(_line(event) for event in events))
            self._file = path.open("a", encoding="utf-8")
            self.evaluations += [event for event in events if event["kind"] == "eval"]

    def emit(self, kind: str, step: int, **values: object) -> Event:
        """Writes an event with the time, and with non-finite numbers as null.

        Passes it to the callback, and its figures to the trackers.
        """
        event: Event = {"t": round(time.time(), 3), "step": step, "kind": kind}
        for key, value in values.items():
            is_non_finite = isinstance(value, float) and not math.isfinite(value)
            event[key] = None if is_non_finite else value
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
                    tracker.log(figures, step=step)
        return event

    def open_trackers(self, config: RunConfig, folder: Path | None, step: int | None) -> None:
        """Opens the trackers that the config names. InputError if a package is not installed.

        ``step`` is the step that the run is resumed from, None for a new run.
        """
        # Trackers print messages, but the standard output is for the answer of a command.
        with redirect_stdout(sys.stderr):
            for name in config.report_to:
                self._trackers.append(TRACKERS[name](config, folder, step))

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        # Trackers print messages here too.
        with redirect_stdout(sys.stderr):
            for tracker in self._trackers:
                tracker.finish()


def parse_events(lines: bytes) -> list[Event]:
    """Parses the lines of a file. Lines that are damaged, or were cut short by a crash, are skipped."""
    events = []
    for line in lines.split(b"\n"):
        with suppress(ValidationError):
            # Only the fields that the line has, so that readers see which ones are absent.
            events.append(_Event.model_validate_json(line).model_dump(exclude_unset=True))
    return events


def read_events(path: Path) -> list[Event]:
    """Reads all complete lines of an ``events.jsonl``."""
    if not path.is_file():
        return []
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    return parse_events(complete)


def _line(event: Event) -> str:
    return json.dumps(event, ensure_ascii=False) + "\n"


def in_words(event: Mapping[str, Any]) -> str:
    """Describes an evaluation or the test in a line, and the start or the end of a run with its reason and notes."""
    if event["kind"] == "eval":
        parts = [f"step {event['step']:>5,}"]
        parts += [f"{name} {value:.4f}" for name, value in line_of_figures(event).items()]
        if event.get("undefined"):
            parts.append(f"spearman {event['undefined']}")
        if event.get("collapsed"):
            parts.append(event["collapsed"])
        if event["best"]:
            parts.append("best")
        return "  ".join(parts)
    if event["kind"] == "test":
        return f"the best on {event['data']}  spearman {event['spearman']:.4f}"
    state = event["state"]
    if event.get("reason"):
        state += f": {event['reason']}"
    return "\n".join([state, *event.get("notes", ())])


@contextmanager
def printing(on_event: OnEvent | None, progress: bool | None) -> Iterator[OnEvent]:
    """Yields a callback that calls ``on_event`` and, if ``progress`` is true, prints events.

    None prints them unless there is ``on_event``, with a bar only in a terminal or a notebook.
    """
    is_printed = progress
    if progress is None:
        is_printed = on_event is None
    # A bar that was asked for is shown even if the output goes to a file.
    has_bar = is_printed and (progress or is_interactive())
    with tqdm(desc="Training", unit="step", disable=not has_bar, leave=False) as bar:

        def show(event: Event) -> None:
            if is_printed and event["kind"] == "train":
                bar.total = event["steps"]
                bar.update(event["step"] - bar.n)
                bar.set_postfix(loss=f"{event['loss']:.4f}")
            elif is_printed:
                bar.write(in_words(event))
            if on_event is not None:
                on_event(event)

        yield show


def _tensorboard(config: RunConfig, folder: Path | None, step: int | None) -> GeneralTracker:
    """Writes event files to ``tensorboard/`` in the run's folder, for ``tensorboard --logdir``."""
    if folder is None:
        raise InputError("report_to tensorboard writes into the run's folder; give the run one")
    import_optional("torch.utils.tensorboard", "tensorboard", "report_to tensorboard")
    from accelerate.tracking import TensorBoardTracker

    # The interrupted run may have written figures of steps after the checkpoint. TensorBoard hides
    # the figures from `purge_step` on.
    purge_step = None if step is None else step + 1
    tracker = TensorBoardTracker("tensorboard", folder, purge_step=purge_step)
    tracker.start()
    # A resumed run has written its config before.
    if step is None:
        tracker.log({"config": f"```json\n{config.to_json()}\n```"})
    return tracker


def _trackio(config: RunConfig, folder: Path | None, step: int | None) -> GeneralTracker:
    """Writes to the project sbert-lab, on this machine unless trackio is configured otherwise, for ``trackio show``."""
    import_optional("trackio", "trackio", "report_to trackio")
    from accelerate.tracking import TrackioTracker

    name = folder.name if folder else config.name
    resume = "never" if step is None else "allow"
    tracker = TrackioTracker(
        PROJECT,
        name=name or None,
        config=config.to_dict(),
        resume=resume,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    tracker.start()
    return tracker


# A tracker is made from the config, the folder, and the step that a run is resumed at (None for a
# new run). Figures after that step are hidden or written again.
TRACKERS = {"tensorboard": _tensorboard, "trackio": _trackio}


def figures_of(event: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a train or eval event by name; empty for other events."""
    if event["kind"] not in ("train", "eval"):
        return {}
    values = {name: value for name, value in event.items() if name not in NO_FIGURES}
    for name in ("by_dimension", "loss_by_data"):
        for key, value in event.get(name, {}).items():
            values[f"{name}/{key}"] = value
    figures = {}
    for name, value in values.items():
        # bool is a subclass of int.
        if isinstance(value, int | float) and not isinstance(value, bool):
            figures[f"{event['kind']}/{name}"] = float(value)
    return figures
