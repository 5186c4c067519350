"""The event log of a run, the experiment trackers that get its figures too, and the throughput that it states.

Each event is a dictionary, passed to a callback and appended to ``events.jsonl``. Every line is flushed, so other
processes can follow the file during the run. Resuming from a checkpoint first removes the events after it, so that the
file holds one curve; a reader that keeps a position in the file has to start again when the file has become shorter.

The trackers are TensorBoard and trackio, by name: optional packages, imported when a run names them. A figure is called
as in the events, with the kind of the event before it: ``train/loss``, ``train/lr``, ``eval/spearman``,
``eval/by_dimension/64``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO

from pydantic import ConfigDict, Field, FiniteFloat, ValidationError, create_model

from training.atomic import write_text
from training.errors import InputError
from training.progress import is_interactive
from training.trainer.config import RunConfig

Event = dict[str, Any]
OnEvent = Callable[[Event], object]

Figures = dict[str, Any]

NDCG = "ndcg@10"  # of retrieval data, or of an evaluator of the caller's
# The first one measured selects the best model.
HIGHER_IS_BETTER = {"spearman": True, "average_precision": True, "accuracy": True, NDCG: True, "loss": False}
SHOWN_LAST = ("perplexity", "masked_accuracy", "random_cosine", "effective_rank")
# What an eval event has, but for the figures of the caller's evaluators.
EVALUATION = {"t", "step", "kind", "best", "seconds", "seconds_left", "collapsed", "by_dimension", *SHOWN_LAST}
EVALUATION |= {"alignment", "uniformity", "random_cosine_std", "plain_cosine", "plain_cosine_std"}
EVALUATION |= HIGHER_IS_BETTER.keys() - {NDCG}
PROJECT = "sbert-lab"  # in trackio
_COUNT = Annotated[int, Field(ge=0, le=2**53)]
_TYPES: dict[Any, str] = {  # of what readers of events rely on; an event has more
    _COUNT | None: "steps rows",
    FiniteFloat | None: "t loss lr seconds seconds_left sentences_per_second memory_gb spearman accuracy random_cosine "
    "plain_cosine",
    str | None: "state reason base device dtype pooling collapsed",
    list[str] | None: "notes",
    dict[str, float] | None: "by_dimension loss_by_data",
}
_FIELDS: dict[str, Any] = {name: (kind, None) for kind, names in _TYPES.items() for name in names.split()}
_FIELDS |= {"kind": (str, ...), "step": (_COUNT, ...)}
_Event = create_model("_Event", __config__=ConfigDict(extra="allow", strict=True), **_FIELDS)
NO_FIGURES = frozenset({"t", "step", "kind", "steps", "seconds_left"})


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
            kept = [event for event in events if event["step"] <= (keep_to_step or 0)]
            write_text(path, "".join(_line(event) for event in kept))
            self._file = path.open("a", encoding="utf-8")
            self.evaluations += [event for event in kept if event["kind"] == "eval"]

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
        finally:  # on a full disk the callback still gets the event
            self._on_event(event)
            if figures := figures_of(event):
                for tracker in self._trackers:
                    tracker.report(figures, step)
        return event

    def open_trackers(self, config: RunConfig, folder: Path | None, step: int | None) -> None:
        """Open the trackers that the config names. InputError if a package is not installed."""
        with redirect_stdout(sys.stderr):  # what they print is no answer of a command
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


# ---------------------------------------------------------------- figures of an evaluation


def selection_metric(figures: Figures, first: str | None = None) -> tuple[str, float] | None:
    """The name of the metric that selects the best model, and its value, negated if lower is better.

    That is the ``first`` one if it was measured, which the objective names. None if no such metric was measured.
    """
    for name, higher in sorted(HIGHER_IS_BETTER.items(), key=lambda metric: metric[0] != first):
        if figures.get(name) is not None:
            return name, figures[name] if higher else -figures[name]
    return None


def shown_figures(event: Event) -> dict[str, float]:
    """The figures of an eval event that fit on a line: what may select the best model, the caller's own, collapse."""
    own = [name for name in event if name not in EVALUATION]
    return {name: event[name] for name in (*HIGHER_IS_BETTER, *own, *SHOWN_LAST) if event.get(name) is not None}


class EventPrinter:
    """Prints a line for each evaluation, and the notes and the end of a run; beneath them a ``bar`` of its steps."""

    def __init__(self, bar: bool) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(desc="Training", unit="step", disable=not bar, leave=False)

    def __call__(self, event: Event) -> None:
        if event["kind"] == "train":
            self._bar.total = event["steps"]
            self._bar.update(event["step"] - self._bar.n)
            self._bar.set_postfix(loss=f"{event['loss']:.4f}")
        elif event["kind"] == "eval":
            figures = "  ".join(f"{name} {value:.4f}" for name, value in shown_figures(event).items())
            self._bar.write(f"step {event['step']:>5,}  {figures}{'  best' if event['best'] else ''}")
        elif event["kind"] == "test":
            self._bar.write(f"the best on {event['data']}  spearman {event['spearman']:.4f}")
        else:
            reason = f": {event['reason']}" if event.get("reason") else ""
            self._bar.write("\n".join([f"{event['state']}{reason}", *event.get("notes", ())]))

    def close(self) -> None:
        self._bar.close()


@contextmanager
def printing(on_event: OnEvent | None, progress: bool | None) -> Iterator[OnEvent]:
    """``on_event``, with an `EventPrinter` where `training.trainer.train.train` says that there is one."""
    if not (on_event is None if progress is None else progress):
        yield on_event or (lambda event: None)
        return
    printer = EventPrinter(progress or is_interactive())
    try:
        yield lambda event: [each(event) for each in (printer, on_event) if each]
    finally:
        printer.close()


# ---------------------------------------------------------------- trackers


class Tracker(NamedTuple):
    """Where figures go besides the file of events."""

    report: Callable[[dict[str, float], int], object]  # figures by name, step
    close: Callable[[], object]  # writes what is left


def _tensorboard(config: RunConfig, folder: Path | None, step: int | None) -> Tracker:
    """Event files in ``tensorboard/`` in the run's folder: ``tensorboard --logdir``."""
    if folder is None:
        raise InputError("report_to tensorboard writes into the run's folder; give the run one")
    module = _optional("torch.utils.tensorboard", "tensorboard")
    writer = module.SummaryWriter(folder / "tensorboard", purge_step=None if step is None else step + 1)
    if step is None:
        writer.add_text("config", f"```json\n{config.to_json()}\n```")

    def report(figures: dict[str, float], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return Tracker(report, writer.close)


def _trackio(config: RunConfig, folder: Path | None, step: int | None) -> Tracker:
    """A run in the project sbert-lab, on this machine unless trackio is configured otherwise: ``trackio show``."""
    trackio = _optional("trackio", "trackio")
    resume, name = "never" if step is None else "allow", folder.name if folder else config.name or None
    quiet = {"auto_log_gpu": False, "auto_log_cpu": False}
    trackio.init(project=PROJECT, name=name, config=config.to_dict(), resume=resume, **quiet)
    return Tracker(lambda figures, step: trackio.log(figures, step=step), trackio.finish)


# Of each the step at which a run is resumed, None for a new one; figures after it are hidden or written again.
TRACKERS = {"tensorboard": _tensorboard, "trackio": _trackio}


def figures_of(event: Event) -> dict[str, float]:
    """The numbers of a train or eval event by name; empty for other events."""
    if event["kind"] not in ("train", "eval"):
        return {}
    nested = ("by_dimension", "loss_by_data")
    flat = {**event, **{f"{name}/{key}": each for name in nested for key, each in event.get(name, {}).items()}}
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


# ---------------------------------------------------------------- throughput

DECAY = 0.95  # of the exponential moving average of the seconds per step


class ThroughputMeter:
    """Call a method at the end of each step, evaluation and checkpoint: it times what was done since the last call."""

    def __init__(self, seconds_before: float = 0.0) -> None:
        self._started = time.perf_counter() - seconds_before
        self._last = self._last_checkpoint = time.perf_counter()
        self._seconds_per_step: float | None = None
        self._evaluations: list[float] = []
        self._sentences = 0
        self._step_seconds = 0.0

    def seconds(self) -> float:
        """Total seconds of the run, those before it was resumed included."""
        return time.perf_counter() - self._started

    def end_step(self, sentences: int) -> None:
        seconds, average = self._lap(), self._seconds_per_step
        self._seconds_per_step = seconds if average is None else DECAY * average + (1 - DECAY) * seconds
        self._sentences += sentences
        self._step_seconds += seconds

    def end_evaluation(self) -> float:
        """Record an evaluation -> its seconds."""
        self._evaluations.append(self._lap())
        return self._evaluations[-1]

    def end_checkpoint(self) -> None:
        self._lap()
        self._last_checkpoint = time.perf_counter()

    def since_checkpoint(self) -> float:
        """Seconds since the last checkpoint, or since the start."""
        return time.perf_counter() - self._last_checkpoint

    def sentences_per_second(self) -> float:
        """Throughput of the steps since the last call."""
        rate = self._sentences / max(self._step_seconds, 1e-9)
        self._sentences, self._step_seconds = 0, 0.0
        return round(rate, 1)

    def seconds_left(self, steps: int, evaluations: int) -> float | None:
        """Estimated seconds for so many steps, at the recent rate, and evaluations, at their mean.

        None before the first step.
        """
        if self._seconds_per_step is None:
            return None
        evaluation = sum(self._evaluations) / len(self._evaluations) if self._evaluations else 0.0
        return round(steps * self._seconds_per_step + evaluations * evaluation, 1)

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds
