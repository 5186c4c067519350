"""The report of an experiment: its result over all runs, the runs, and what they share."""

from __future__ import annotations

from sbert_app.figures.ablation import dots
from sbert_app.formats import format_number
from sbert_app.pages.ablation.page import statistics_of
from sbert_app.pages.components.experiments import shared_settings, status_of
from sbert_app.pages.components.report import Report, plot
from sbert_app.pages.components.templates import macro
from sbert_app.services.experiments.experiment import SWEEP, Experiment

COLUMNS = [("run", ""), ("seed", ""), ("state", ""), ("before", "number"), ("best", "number"), ("last", "number")]


def experiment_report(experiment: Experiment) -> Report:
    """Of a sweep the statistics of its variants as well; of each experiment its runs."""
    record, cells = experiment.record, experiment.cells
    is_sweep = record.kind == SWEEP
    rows = experiment.rows if is_sweep and experiment.values else []
    runs = []
    for cell in cells:
        progress = cell.run.progress if cell.run else None
        figures = (
            [progress.figure(event) for event in (progress.baseline, progress.best, progress.latest)]
            if progress
            else [None] * 3
        )
        runs.append([cell.plan.label, cell.plan.seed, cell.state, *map(format_number, figures)])
    changes = {f"--{name.replace('_', '-')}": value for name, value in record.changes.items()}
    options = {"--preset": record.name, "--seeds": len(experiment.seeds), **changes}
    return Report(
        experiment.ablation.title if is_sweep else f"{record.name}, {record.by}",
        {"Settings of all runs": shared_settings(experiment)},
        {
            "Result": [status_of(experiment), *([plot(dots(rows, "measured")), statistics_of(rows)] if rows else [])],
            "Runs": [macro("table")(COLUMNS, runs)],
        },
        " ".join(["sbert-lab ablate", *(f"{key} {value}" for key, value in options.items())]) if is_sweep else "",
        {"Experiment": f"{experiment.id}, {experiment.state}"},
    )
