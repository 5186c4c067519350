"""Where the figures of a run go besides its file of events: a terminal or notebook, and experiment trackers.

The trackers are TensorBoard and trackio, by name: optional packages, imported when a run names them. A figure is called
as in the events, with the kind of the event before it: ``train/loss``, ``train/lr``, ``eval/spearman``,
``eval/by_dimension/64``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from training.errors import InputError
from training.progress import is_interactive
from training.trainer.config import RunConfig
from training.trainer.run_metrics import line_of_figures

# The project in trackio.
PROJECT = "sbert-lab"
NO_FIGURES = frozenset({"t", "step", "kind", "steps", "seconds_left"})


class EventPrinter:
    """Prints a line for each evaluation, and the notes and the end of a run; beneath them a ``bar`` of its steps."""

    def __init__(self, bar: bool) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(desc="Training", unit="step", disable=not bar, leave=False)

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "train":
            self._bar.total = event["steps"]
            self._bar.update(event["step"] - self._bar.n)
            self._bar.set_postfix(loss=f"{event['loss']:.4f}")
        elif event["kind"] == "eval":
            figures = "  ".join(f"{name} {value:.4f}" for name, value in line_of_figures(event).items())
            self._bar.write(f"step {event['step']:>5,}  {figures}{'  best' if event['best'] else ''}")
        elif event["kind"] == "test":
            self._bar.write(f"the best on {event['data']}  spearman {event['spearman']:.4f}")
        else:
            reason = f": {event['reason']}" if event.get("reason") else ""
            self._bar.write("\n".join([f"{event['state']}{reason}", *event.get("notes", ())]))

    def close(self) -> None:
        self._bar.close()


@contextmanager
def printing(
    on_event: Callable[[dict[str, Any]], object] | None, progress: bool | None
) -> Iterator[Callable[[dict[str, Any]], object]]:
    """``on_event``, with an `EventPrinter` where `training.trainer.train.train` says that there is one."""
    if not (on_event is None if progress is None else progress):
        yield on_event or (lambda event: None)
        return
    printer = EventPrinter(progress or is_interactive())
    try:
        yield lambda event: [call(event) for call in (printer, on_event) if call]
    finally:
        printer.close()


class Tracker(NamedTuple):
    """An experiment tracker of one run."""

    # Takes figures by name and their step.
    report: Callable[[dict[str, float], int], object]
    # Writes what is left.
    close: Callable[[], object]


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


# Makes the tracker of a run from its config, its folder and the step at which it is resumed, None for a new run.
# Figures after that step are hidden or written again.
TRACKERS = {"tensorboard": _tensorboard, "trackio": _trackio}


def figures_of(event: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a train or eval event by name; empty for other events."""
    if event["kind"] not in ("train", "eval"):
        return {}
    nested = ("by_dimension", "loss_by_data")
    flat = {**event, **{f"{name}/{key}": value for name in nested for key, value in event.get(name, {}).items()}}
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
