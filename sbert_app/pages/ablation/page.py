"""The Ablation page: change one thing, keep the rest, and see how much it matters.

The page opens with precomputed tables. Start queues the same grid on this machine: a sweep of ordinary runs
(`services.experiments.experiment`), which every browser tab shows as its cells fill. `experiment_report` is the report
of a sweep, or of any other experiment, for ``sbert-lab report``.
"""

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures import training as figures
from sbert_app.formats import format_count, format_duration, format_number
from sbert_app.pages.components import experiments as panels
from sbert_app.pages.components.address import keep_touched, remember
from sbert_app.pages.components.events import EVERY, UNQUEUED, Output, Update, on_open
from sbert_app.pages.components.experiments import ExperimentPanel, Plan, StartForm, progress_of
from sbert_app.pages.components.measure_tab import hidden, visible
from sbert_app.pages.components.messages import estimate_plan, heading, note, section
from sbert_app.pages.components.pickers import HINT, MODELS, data_choices, open_dropdown
from sbert_app.pages.components.report import Report, of_page, plot, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import (
    ABLATIONS,
    Ablation,
    PrecomputedTable,
    VariantRow,
    precomputed_tables,
    rank_variants,
    variant_rows,
)
from sbert_app.services.experiments.experiment import (
    SWEEP,
    Experiment,
    ExperimentEstimate,
    ExperimentRecord,
    Experiments,
    new_sweep,
)
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate
from training.catalogue import DEFAULT_MODEL

OPENING = next(iter(ABLATIONS))
BASES = [*MODELS, "bert-base-uncased"]
# The default length of a run: about a minute on two cores.
STEPS = 200
TEST = "Student’s t on the differences within a seed"
RUN_COLUMNS = [("run", ""), ("seed", ""), ("state", ""), ("before", "number"), ("best", "number"), ("last", "number")]
KEEP_NAME = """(name) => window.nameInAddress(["preset", "sweep"], [name, ""], true)"""
SHOW_SWEEP = """() => document.getElementById("sweep")?.scrollIntoView({behavior: "smooth", block: "start"})"""


def build(services: Services) -> None:
    """Builds the page inside the open Blocks."""
    gr.HTML(heading("Ablation", "Change one setting, keep all others, and see what it does."))
    with gr.Row(elem_id="ablation-choice"):
        name = gr.Radio(_choices(has_table=True), value=OPENING, label="What is varied", elem_id="ablation", scale=4)
        shipped_base = gr.Radio([], label="From the base", visible=False, elem_id="shipped-base", scale=3)
        more = gr.Button("More, not measured yet", size="sm", scale=0, min_width=190, elem_id="more-ablations")
    more.click(lambda: (gr.Radio(_choices()), hidden()), None, [name, more], **UNQUEUED)
    with gr.Row():
        figure = gr.Plot(show_label=False, min_width=320, scale=3, elem_id="shipped-figure")
        with gr.Column(min_width=300, scale=2):
            question = gr.HTML(elem_id="question")
            legend = gr.HTML(elem_id="legend")
    table = gr.HTML(elem_id="shipped")
    gr.HTML(section("Run it on this machine"))
    inputs = _form(name)
    planned = gr.HTML(elem_id="sweep-plan")
    experiments = Experiments(services.jobs, services.access.check_run)
    start = gr.Button("Start", variant="primary", elem_id="start-sweep")
    form = StartForm(services.jobs.store, inputs, planned, partial(_estimate, experiments))
    with gr.Column(elem_id="sweep"):
        panel = ExperimentPanel(experiments, SWEEP, "sweep", "Sweeps of this ablation")
        grid = gr.HTML(elem_id="grid")
        sweep_figure = gr.Plot(show_label=False, visible=False, elem_id="sweep-figure")
        sweep_table = gr.HTML(elem_id="sweep-table")
    shows = {
        "Shipped results": [question, figure, legend, table],
        "Run on this machine": [panel.status, grid, sweep_figure, sweep_table],
    }
    report_button(services, *of_page("Ablation", shows, [name]), "ablation")

    def show(sweep: Experiment | None) -> dict[Any, Output]:
        values = sorted((variant, seed, value) for (variant, seed), value in sweep.values.items()) if sweep else []
        version = [sweep and sweep.id, values]

        def draw() -> Update:
            return visible(figures.dots(sweep.rows, "this sweep") if sweep and values else None)

        return {
            grid: Output(progress_of(sweep), lambda: grid_of(sweep) if sweep else ""),
            sweep_figure: Output(version, draw),
            sweep_table: Output(version, lambda: statistics_of(sweep.rows) if sweep and values else ""),
        }

    def start_sweep(visitor: str, *values: Any) -> str:
        return experiments.start(_sweep(*values), visitor).id

    show_on = panel.wire(show, [grid, sweep_figure, sweep_table], name)
    about = [question, figure, legend, table, *inputs[-2:], shipped_base]
    opened = keep_touched([name], on_open(_from_link, [name, panel.selected, more], **UNQUEUED))
    described = opened.then(_about, name, about, **UNQUEUED)
    show_on(described.then)
    form.estimate_on(described.then)
    shipped_base.input(_shipped, [name, shipped_base], [figure, legend, table], **EVERY)
    other = name.input(_about, name, about, **EVERY)
    show_on(other.then(lambda: None, None, panel.selected, **UNQUEUED).then)
    form.estimate_on(other.then)
    other.then(None, name, None, js=KEEP_NAME)
    form.estimate_on(partial(gr.on, [field.change for field in inputs[1:]]))
    remember(inputs[1:])
    started = show_on(form.start_on(start, start_sweep, panel.selected).then)
    started.then(None, None, None, js=SHOW_SWEEP)


def _form(name: gr.Radio) -> list[Any]:
    """Builds the fields of a new sweep, in the order of `_sweep`."""
    with gr.Row():
        seeds = gr.Slider(1, 10, 3, step=1, label="Seeds", info="Runs per variant", min_width=200, elem_id="seeds")
        steps = gr.Number(STEPS, label="Steps", info="Per run; 0: one epoch", min_width=160, elem_id="steps")
        base = open_dropdown("Base", BASES, HINT, value=DEFAULT_MODEL, min_width=220, elem_id="sweep-base")
        hint = "Labelled pairs; or hf:<org>/<name>"
        choices = data_choices("ablation")
        data = open_dropdown("Training data", choices, hint, visible=False, min_width=260, elem_id="sweep-data")
    return [name, seeds, steps, base, data]


def _choices(has_table: bool = False) -> list[tuple[str, str]]:
    """All ablations; with ``has_table`` those whose results ship."""
    return [(ablation.title, key) for key, ablation in ABLATIONS.items() if not has_table or precomputed_tables(key)]


def _about(name: str) -> list[Any]:
    """The updates for an ablation: its question, a precomputed table with its figure, and the fields it needs."""
    ablation, bases = ABLATIONS[name], list(precomputed_tables(name))
    varies_base = "base" in ablation.variants[ablation.default].changes
    updates = [gr.update(visible=not varies_base), gr.update(visible=ablation.needs_labels)]
    base = gr.Radio(bases, value=bases[0] if bases else None, visible=len(bases) > 1)
    return [macro("ablation/question")(ablation), *_shipped(name, bases[0] if bases else None), *updates, base]


def _shipped(name: str, base: str | None) -> list[Any]:
    """The updates of figure, legend and table for the precomputed table of an ablation from a base."""
    ablation, table = ABLATIONS[name], precomputed_tables(name).get(base or "")
    if table is None:
        return [gr.update(visible=False), "", macro("ablation/not_measured")(ablation)]
    after = {(run.variant, run.seed): 100 * run.after for run in table.runs}
    before = {(run.variant, run.seed): 100 * run.before for run in table.runs}
    rows = variant_rows(ablation, after, before)
    measured = [row for row in rows if row.summary is not None]
    figure = figures.dots(measured, "measured")
    return [
        gr.update(value=figure, visible=True),
        legend_of(ablation, measured, base or ""),
        statistics_of(measured) + not_precomputed(rows) + source_of(table),
    ]


def _from_link(request: gr.Request) -> tuple[Any, Any, Any]:
    """The ablation and the sweep in the address: /ablation?preset=concat&sweep=<id>."""
    query = request.query_params
    preset = query.get("preset")
    if preset not in ABLATIONS:
        return gr.skip(), query.get("sweep") or None, gr.skip()
    # All may be listed meanwhile.
    is_listed = bool(precomputed_tables(preset))
    name = gr.update(value=preset) if is_listed else gr.Radio(_choices(), value=preset)
    return name, query.get("sweep") or None, gr.skip() if is_listed else hidden()


def _sweep(name: str, seeds: float, steps: float | None, base: str | None, data: str) -> ExperimentRecord:
    changes: dict[str, Any] = {"max_steps": steps} if steps else {}
    if (base or "").strip() not in ("", DEFAULT_MODEL) and name != "base":
        changes["base"] = (base or "").strip()
    if ABLATIONS[name].needs_labels:
        changes["train_data"] = data
    return new_sweep(name, int(seeds), changes)


def _estimate(experiments: Experiments, *values: Any) -> tuple[RunEstimate, Plan]:
    estimate = experiments.estimate(_sweep(*values))
    return next(iter(estimate.estimates.values())), partial(plan_of, estimate)


def source_of(table: PrecomputedTable) -> Markup:
    """The origin of the precomputed figures: runs, seeds, steps, machine, day, command."""
    settings, machine = table.settings, table.machine
    steps = sorted({run.steps for run in table.runs})
    runs, seeds = format_count(len(table.runs), "run"), format_count(len(table.seeds), "seed")
    threads = f", {format_count(int(machine['threads']), 'thread')}" if "threads" in machine else ""
    rows_seen = ""
    # All runs had the same number of rows.
    if {"train_data", "batch_size"} <= set(settings):
        rows = min(max(steps) * settings["batch_size"], table.training_rows)
        rows_seen = f", {table.training_rows:,} rows; a run saw {rows:,} of them"
    facts = {
        "Runs": f"{len(table.runs)}: {seeds} ({', '.join(map(str, table.seeds))})",
        "Length": f"{' to '.join(f'{step:,}' for step in (steps[0], steps[-1])[: len(steps)])} steps of "
        f"{_of_variants(table, 'batch_size')} rows, learning rate {_of_variants(table, 'learning_rate', '{:g}')}",
        "Trained on": _of_variants(table, "train_data") + rows_seen,
        "Measured on": f"{settings['eval_data']}, 1,500 pairs, before the first step and after the last",
        "Machine": f"{machine['device']}{threads}, {machine['dtype']}, torch {machine['torch']}; "
        f"a run took {format_duration(median(run.seconds for run in table.runs))} (median)",
        "Day": table.measured,
    }
    summary = f"{runs}, {seeds}" + (f", {steps[0]:,} steps each" if len(steps) == 1 else "")
    complete = len(table.runs) == len(table.seeds) * len({run.variant for run in table.runs})
    return macro("ablation/source")(summary=summary, facts=facts, command=table.command, complete=complete)


def _of_variants(table: PrecomputedTable, name: str, form: str = "{}") -> str:
    """The value of a setting; if variants differ in it, each value with its variants."""
    if name in table.settings:
        return form.format(table.settings[name])
    grid = ABLATIONS[table.ablation]
    variants: dict[str, list[str]] = {}
    for variant in dict.fromkeys(run.variant for run in table.runs):
        value = form.format(getattr(grid.config(variant, 0), name))
        variants.setdefault(value, []).append(grid.variants[variant].label.partition(":")[0])
    return "; ".join(f"{value} ({', '.join(labels)})" for value, labels in variants.items())


def not_precomputed(rows: Sequence[VariantRow]) -> Markup:
    """A note on the variants that a precomputed table lacks; empty if it has all."""
    missing = [row.label for row in rows if row.summary is None]
    if not missing:
        return Markup()
    return note(f"Not precomputed: {', '.join(missing)}. Start below runs every variant on this machine.")


def legend_of(ablation: Ablation, rows: Sequence[VariantRow], base: str) -> Markup:
    """The result in a sentence, the meaning of the marks, and a remark on the ``base``, "" where that varies."""
    facts = {"setting": ablation.setting, "base": base, "is_tuned": base == DEFAULT_MODEL}
    return render("ablation/templates/legend.html", outcome=_outcome(rows), **facts)


def statistics_of(rows: Sequence[VariantRow]) -> Markup:
    """A table of means ± standard deviations, intervals, tests against the default, and the paper's figures."""
    labels = {row.variant: row.label for row in rows}
    return render(
        "ablation/templates/statistics.html",
        rows=rows,
        default=next(row.label for row in rows if row.is_default),
        has_paper=any(row.paper is not None for row in rows),
        ranking=macro("ranking")(rank_variants(rows), labels, "over these seeds", TEST, "variants"),
    )


def plan_of(estimate: ExperimentEstimate, rate: TrainingRate | None) -> Markup:
    """The work of a sweep, its time, and the disk space of its models."""
    first = next(iter(estimate.estimates.values()))
    variants, seeds = format_count(len(estimate.estimates), "variant"), format_count(estimate.seeds, "seed")
    facts = [
        f"{variants} × {seeds} = {format_count(estimate.runs, 'run')}",
        f"{first.steps:,} steps each" if first.steps is not None else "as many steps as the data has",
    ]
    if estimate.bytes:
        facts.append(f"{estimate.bytes / 1e9:.1f} GB of models")
    seconds, source = (estimate.seconds(rate), rate.source) if rate else (None, "")
    return estimate_plan(facts, seconds, source, first.notes)


def grid_of(sweep: Experiment) -> Markup:
    """A table of variants by seeds; each cell shows the result of its run and links to it."""
    cells = {(cell.plan.label, cell.plan.seed): cell for cell in sweep.cells}
    variants = sweep.ablation.variants.items()
    rows = [(variant.label, [cells.get((name, seed)) for seed in sweep.seeds]) for name, variant in variants]
    return render("ablation/templates/grid.html", seeds=sweep.seeds, rows=rows)


def _outcome(rows: Sequence[VariantRow]) -> dict[str, object] | None:
    """The best and the worst measured variant, and how far apart they are in points; None below two variants."""
    means = {row.label: row.summary.mean for row in rows if row.summary}
    if len(means) < 2:
        return None
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    paper = [row.paper for row in rows if row.paper is not None]
    span = max(paper) - min(paper) if paper else None
    return {"best": best, "worst": worst, "gap": means[best] - means[worst], "paper_span": span}


def experiment_report(experiment: Experiment) -> Report:
    """The report of an experiment: its runs, and the statistics of the variants of a sweep."""
    record, cells = experiment.record, experiment.cells
    is_sweep = record.kind == SWEEP
    rows = experiment.rows if is_sweep and experiment.values else []
    runs = []
    for cell in cells:
        metrics: list[float | None] = [None] * 3
        if cell.run:
            progress = cell.run.progress
            metrics = [progress.figure(event) for event in (progress.baseline, progress.best, progress.latest)]
        runs.append([cell.plan.label, cell.plan.seed, cell.state, *map(format_number, metrics)])
    result = [panels.status_of(experiment)]
    if rows:
        result += [plot(figures.dots(rows, "measured")), statistics_of(rows)]
    changes = {f"--{name.replace('_', '-')}": value for name, value in record.changes.items()}
    options = {"--preset": record.name, "--seeds": len(experiment.seeds), **changes}
    return Report(
        experiment.ablation.title if is_sweep else f"{record.name}, {record.by}",
        {"Settings of all runs": panels.shared_settings(experiment)},
        {"Result": result, "Runs": [macro("table")(RUN_COLUMNS, runs)]},
        " ".join(["sbert-lab ablate", *(f"{key} {value}" for key, value in options.items())]) if is_sweep else "",
        {"Experiment": f"{experiment.id}, {experiment.state}"},
    )
