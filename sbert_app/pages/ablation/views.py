"""What the Ablation page shows, as HTML: plain values for the templates in ``templates/``. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from sbert_app.formats import MISSING, format_count, format_duration, format_estimate, format_number, format_time
from sbert_app.pages.components.messages import estimate_plan, note
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.background.state import AT_WORK, State
from sbert_app.services.experiments.ablations import ABLATIONS, Ablation, PrecomputedTable
from sbert_app.services.experiments.experiment import DELETED, Cell, Experiment, ExperimentEstimate
from sbert_app.services.experiments.statistics import VariantRow, by_chance
from sbert_app.services.runs.estimate import TrainingRate
from training.catalogue import DEFAULT_MODEL
from training.errors import without_folders

NO_RUN = "no run"  # of a cell whose run was deleted


def question(ablation: Ablation) -> Markup:
    """What is asked, and what the answer means."""
    return macro("ablation/question")(ablation=ablation)


def source(table: PrecomputedTable) -> Markup:
    """Where the precomputed numbers come from: runs, seeds, steps, machine, day, command."""
    settings, machine = table.settings, table.machine
    steps = sorted({run.steps for run in table.runs})
    seeds = format_count(len(table.seeds), "seed")
    variants = {run.variant for run in table.runs}
    threads = f", {format_count(int(machine['threads']), 'thread')}" if "threads" in machine else ""
    facts = {
        "Runs": f"{len(table.runs)}: {seeds} ({', '.join(map(str, table.seeds))})",
        "Length": f"{' to '.join(f'{step:,}' for step in (steps[0], steps[-1])[: len(steps)])} steps of "
        f"{_of_variants(table, 'batch_size', str)} rows, learning rate {_of_variants(table, 'learning_rate', _rate)}",
        "Trained on": _of_variants(table, "train_data", str) + _rows_seen(table),
        "Measured on": f"{settings['eval_data']}, 1,500 pairs, before the first step and after the last",
        "Machine": f"{machine['device']}{threads}, {machine['dtype']}, torch {machine['torch']}; "
        f"a run took {format_duration(median(run.seconds for run in table.runs))} (median)",
        "Day": table.measured,
    }
    return macro("ablation/source")(
        summary=f"{format_count(len(table.runs), 'run')}, {seeds}" + (f", {steps[0]:,} steps each" * (len(steps) == 1)),
        facts=facts,
        command=table.command,
        complete=len(table.runs) == len(table.seeds) * len(variants),
    )


def _of_variants(table: PrecomputedTable, name: str, as_text: Callable[[Any], str]) -> str:
    """A setting in words: of all variants, or where they differ in it, which has which."""
    if name in table.settings:
        return as_text(table.settings[name])
    grid = ABLATIONS[table.ablation]
    variants: dict[str, list[str]] = {}
    for variant in dict.fromkeys(run.variant for run in table.runs):
        value = as_text(getattr(grid.config(variant, 0), name))
        variants.setdefault(value, []).append(grid.variants[variant].label.partition(":")[0])
    return "; ".join(f"{value} ({', '.join(labels)})" for value, labels in variants.items())


def _rows_seen(table: PrecomputedTable) -> str:
    """How many rows a run had, where all had the same."""
    if not {"train_data", "batch_size"} <= set(table.settings):
        return ""
    seen = min(max(run.steps for run in table.runs) * table.settings["batch_size"], table.training_rows)
    return f", {table.training_rows:,} rows; a run saw {seen:,} of them"


def _rate(value: float) -> str:
    return f"{value:g}"


def not_measured(ablation: Ablation) -> Markup:
    """What stands in place of a table that does not ship."""
    return macro("ablation/not_measured")(ablation=ablation)


def not_precomputed(rows: Sequence[VariantRow]) -> Markup:
    """The variants that a precomputed table lacks; empty if it has all."""
    missing = [row.label for row in rows if row.summary is None]
    if not missing:
        return Markup()
    return note(f"Not precomputed: {', '.join(missing)}. Start below measures every variant on this machine.")


def legend(ablation: Ablation, rows: Sequence[VariantRow]) -> Markup:
    """The result in a sentence, what the bars are, and what to know about the base."""
    return render(
        "ablation/templates/legend.html",
        outcome=_outcome(rows),
        setting=ablation.setting,
        base=DEFAULT_MODEL,
        varies_base="base" in next(iter(ablation.variants.values())).changes,
    )


def statistics(rows: Sequence[VariantRow]) -> Markup:
    """The table: mean ± standard deviation, interval, test against the default, the paper's figure."""
    tests = sum(row.against is not None and row.against.p is not None for row in rows)
    return render(
        "ablation/templates/statistics.html",
        rows=[_statistics_row(row) for row in rows],
        default=next(row.label for row in rows if row.is_default),
        has_paper=any(row.paper is not None for row in rows),
        tests=tests,
        chance=f"{by_chance(tests):.0%}",
    )


def planned(estimate: ExperimentEstimate, rate: TrainingRate | None, measuring: bool = False) -> Markup:
    """What a sweep would do, how long it would take, and the disk space of its models."""
    first = next(iter(estimate.estimates.values()))
    variants, seeds = format_count(len(estimate.estimates), "variant"), format_count(estimate.seeds, "seed")
    facts = [
        f"{variants} × {seeds} = {format_count(estimate.runs, 'run')}",
        f"{first.steps:,} steps each" if first.steps is not None else "as many steps as the data has",
    ]
    if estimate.bytes:
        facts.append(f"{estimate.bytes / 1e9:.1f} GB of models")
    return estimate_plan(
        facts,
        estimate.seconds(rate) if rate else None,
        source=rate.source if rate else "",
        measuring=measuring,
        remarks=first.notes,
    )


def sweep_status(sweep: Experiment) -> Markup:
    """How far a sweep is, and what went wrong."""
    counts = sweep.counts
    facts = [f"{counts[State.FINISHED]} of {format_count(len(sweep.cells), 'run')} finished"]
    facts += [
        f"{counts[state]} {state}"
        for state in (State.FAILED, State.STOPPED, State.INTERRUPTED, DELETED)
        if counts[state]
    ]
    if sweep.seconds_left is not None:
        facts.append(f"about {format_estimate(sweep.seconds_left)} left")
    done = counts[State.FINISHED] + sum(cell.share for cell in sweep.cells if cell.state == State.RUNNING)
    return macro("ablation/sweep_status")(
        facts=facts,
        fraction=done / len(sweep.cells),
        settings=settings(sweep),
        reasons=list(map(without_folders, sweep.reasons)),
    )


def grid(sweep: Experiment) -> Markup:
    """Variants down, seeds across; each cell shows its run's result and links to it."""
    cells = {(cell.plan.label, cell.plan.seed): cell for cell in sweep.cells}
    rows = [
        (variant.label, [_grid_cell(cells.get((name, seed)), variant.label) for seed in sweep.seeds])
        for name, variant in sweep.ablation.variants.items()
    ]
    return render("ablation/templates/grid.html", seeds=sweep.seeds, rows=rows)


def settings(sweep: Experiment) -> str:
    """What all cells of a sweep share, in one line."""
    config = sweep.ablation.config(sweep.ablation.default, 0, **sweep.record.changes)
    varied = next(iter(sweep.ablation.variants.values())).changes
    shared = [value for name, value in (("base", config.base), ("objective", config.objective)) if name not in varied]
    length = f"{config.max_steps:,} steps" if config.max_steps else f"{config.epochs:g} epoch"
    rate = f"lr {config.learning_rate:g}"
    return " · ".join([*shared, config.train_data, length, f"batch {config.batch_size}", rate])


def sweep_name(sweep: Experiment) -> str:
    """The label of a sweep in the picker: when it was started, how many seeds, how far it is."""
    progress = f"{sweep.counts[State.FINISHED]}/{len(sweep.cells)}" if sweep.state != State.FINISHED else "finished"
    return f"{format_time(sweep.record.created)} · {format_count(len(sweep.seeds), 'seed')} · {progress}"


def _outcome(rows: Sequence[VariantRow]) -> dict[str, object] | None:
    """The best and the worst measured variant, and how far apart they are in points; None below two variants."""
    means = {row.label: row.summary.mean for row in rows if row.summary}
    if len(means) < 2:
        return None
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    paper = [row.paper for row in rows if row.paper is not None]
    span = max(paper) - min(paper) if paper else None
    return {"best": best, "worst": worst, "gap": means[best] - means[worst], "paper_span": span}


def _statistics_row(row: VariantRow) -> dict[str, object]:
    """A row of the statistics table as text."""
    summary, against = row.summary, row.against
    interval, p = MISSING, against.p if against else None
    if summary is not None:
        interval = "one seed: none" if summary.low is None else f"{summary.low:.2f} to {summary.high:.2f}"
    return {
        "label": row.label,
        "is_default": row.is_default,
        "before": format_number(row.before),
        "mean": summary and summary.mean,
        "deviation": f"{summary.deviation:.2f}" if summary and summary.deviation is not None else "",
        "interval": interval,
        "seeds": summary.n if summary else 0,
        "comparison": "the default" if row.is_default else against.words if against else MISSING,
        "p": "" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}",
        "paper": format_number(row.paper),
    }


def _grid_cell(cell: Cell | None, label: str) -> dict[str, object]:
    """Text and state, and of a run its address, what a pointer sees, and how much of it is done while it is at work."""
    if cell is None or cell.run is None:
        return {"text": NO_RUN, "url": ""}
    text: str = "no ρ" if cell.state == State.FINISHED else cell.state
    if cell.value is not None:
        text = f"{cell.value:.2f}"
    elif cell.state == State.RUNNING and cell.run.progress.steps:
        text = f"{cell.share:.0%}"
    return {
        "text": text,
        "state": cell.state,
        "url": f"train?run={quote(cell.run.id)}",
        "title": f"{label}, seed {cell.plan.seed}: {cell.run.reason or cell.state}",
        "percent": round(100 * cell.share) if cell.state in AT_WORK else None,
    }
