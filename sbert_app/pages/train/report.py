"""The report of a run: what a student hands in. The Train page and ``sbert-lab report`` write the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from sbert_app.figures.training import COLOURS, FIGURES, Curve
from sbert_app.formats import MISSING, format_duration
from sbert_app.pages.components.report import Report, plot
from sbert_app.pages.components.templates import macro
from sbert_app.pages.train.runs import log, status
from sbert_app.services.runs.store import RunStore
from training.errors import without_folders
from training.objectives.base import is_own
from training.trainer.config import SETTINGS, RunConfig, default_learning_rate
from training.trainer.run_metrics import RUN_METRICS


def run_report(store: RunStore, run_id: str, clean: Callable[[str], str] = without_folders) -> Report:
    """Results, curves, evaluations, log. ``clean`` is applied to texts with paths. RunNotFound if there is none."""
    run = store.get(run_id)
    record, progress, evaluations = run.record, run.progress, [event for event in run.events if event["kind"] == "eval"]
    curve = Curve(run.name, COLOURS[0], run.events, progress.steps, progress.measure)
    figures = [make([curve]) for make in FIGURES.values()]
    metrics = {
        name: metric
        for name, metric in RUN_METRICS.items()
        if any(event.get(name) is not None for event in evaluations)
    }
    table = macro("table")(
        [("step", ""), *((metric.label, "number") for metric in metrics.values())],
        [
            [
                f"{event['step']:,}",
                *(
                    MISSING if event.get(name) is None else metric.format(event[name])
                    for name, metric in metrics.items()
                ),
            ]
            for event in evaluations
        ],
    )
    objectives = {part.objective for part in run.config.parts}
    own = [name for name, setting in SETTINGS.items() if not setting.objectives or objectives & {*setting.objectives}]
    facts = {
        "Run": f"run:{run.id}, {run.state}",
        "Trained on": ", ".join(filter(None, (progress.device, progress.dtype))),
        "Took": format_duration(record.ended - record.started) if record.started and record.ended else "",
    }
    return Report(
        run.name,
        {SETTINGS[name].label: clean(text) for name, value in run.config if name in own and (text := _text(value))},
        {
            "Result": [status(run, 0)],
            "Curves": [plot(figure) for figure in figures if any(len(trace.x) for trace in figure.data)],
            "Evaluations": [table] if evaluations else [],
            "Log": [log(clean(store.log(run_id)))],
        },
        clean(command_of(run.config)),
        {name: fact for name, fact in facts.items() if fact},
    )


def command_of(config: RunConfig) -> str:
    """The command that trains with this config; empty if a program brought an object of its own."""
    defaults = {name: setting.default for name, setting in SETTINGS.items()}
    defaults["learning_rate"] = default_learning_rate(config.base)
    words = ["sbert-lab", "train"]
    for name, value in config:
        if is_own(str(value)):
            return ""
        if value != defaults[name]:
            words += [SETTINGS[name].option, *([] if value is True else [_text(value) or "none"])]
    return shlex.join(words)


def _text(value: Any) -> str:
    """A value of a config; empty for none, and for a flag that is not set."""
    if isinstance(value, bool) or value is None:
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
