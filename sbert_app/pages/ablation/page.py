"""The Ablation page: change one thing, keep the rest, and see how much it matters.

The page opens with a precomputed figure. Start queues the same grid on this machine: a sweep of
ordinary runs (`services.experiments.experiment`), which every browser tab shows in the same figure
as its cells fill. `experiment_report` is the report of a sweep, or of any other experiment, for
``sbert-lab report``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures import training as figures
from sbert_app.formats import format_count, format_duration, format_number
from sbert_app.pages.components import experiments as panels
from sbert_app.pages.components.address import keep, keep_touched, values_of
from sbert_app.pages.components.events import Output, Update, event_options, on_open, run_js
from sbert_app.pages.components.experiments import ExperimentPanel, Plan, StartForm, progress_of
from sbert_app.pages.components.measure_tab import hidden, visible
from sbert_app.pages.components.messages import estimate_plan, heading, section, sentence_case
from sbert_app.pages.components.pickers import HINT, MODELS, data_choices, open_dropdown
from sbert_app.pages.components.report import Report, of_page, plot, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import (
    ABLATIONS,
    PrecomputedTable,
    VariantRow,
    outcome,
    precomputed_tables,
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
RUN_COLUMNS = [
    ("run", ""),
    ("seed", ""),
    ("state", ""),
    ("before", "number"),
    ("best", "number"),
    ("last", "number"),
]
REPEATS_FIGURE = "Start repeats the figure: the same base, seeds and steps."
# Names the ablation and its base in the address, as a step that Back undoes. The sweep is removed,
# as its value is empty here.
KEEP_NAME = """(name, base) => window.nameInAddress(["preset", "base", "sweep"], [name, base || "", ""], true)"""
SHOW_SWEEP = """() => document.getElementById("sweep")?.scrollIntoView({behavior: "smooth", block: "start"})"""


def build(services: Services) -> None:
    """Builds the page inside the open Blocks."""
    gr.HTML(
        heading(
            "Ablation",
            "What does each choice of the paper change? Measured from several bases and seeds.",
        )
    )
    # The base of the figure. Events read this hidden field, because Gradio refuses a value of
    # `base_choice` that only the previous ablation has offered.
    figure_base = gr.Textbox("", label="Figure from", visible="hidden")
    with gr.Row(elem_id="ablation-choice"):
        choices = [(ablation.title, key) for key, ablation in ABLATIONS.items()]
        name = gr.Radio(choices, value=OPENING, label="What is varied", elem_id="ablation", scale=4)
        base_choice = gr.Radio(
            [], label="Figure from", visible=False, elem_id="figure-base", scale=3
        )
    with gr.Row():
        figure = gr.Plot(show_label=False, min_width=320, scale=3, elem_id="ablation-figure")
        with gr.Column(min_width=300, scale=2):
            text = gr.HTML(elem_id="question")
    numbers = gr.HTML(elem_id="numbers")
    gr.HTML(section("Repeat it here"))
    inputs = _form(name, figure_base)
    planned = gr.HTML(elem_id="sweep-plan")
    experiments = Experiments(services.jobs, services.access.check_run)
    start = gr.Button("Start", variant="primary", elem_id="start-sweep")
    form = StartForm(services.jobs.store, inputs, planned, partial(_estimate, experiments))
    with gr.Column(elem_id="sweep"):
        panel = ExperimentPanel(experiments, SWEEP, "sweep", "Your runs of this ablation")
        grid = gr.HTML(elem_id="grid")
    sections = {"Results": [text, figure, numbers], "Run on this machine": [panel.status, grid]}
    report_button(services, *of_page("Ablation", sections, [name, figure_base]), "ablation")

    def show(sweep: Experiment | None, name: str, base: str | None) -> dict[Any, Output]:
        """Returns the states of the results, which change with the ablation, its base and the cells of the sweep."""
        values = sorted(sweep.values.items()) if sweep else []
        version = [name, base, sweep and sweep.id, values]
        return {
            text: Output(version, lambda: _text(name, base, sweep)),
            figure: Output(version, lambda: _figure(name, base, sweep)),
            numbers: Output(version, lambda: numbers_of(name, base, sweep)),
            grid: Output(progress_of(sweep), lambda: grid_of(sweep) if sweep else ""),
        }

    def start_sweep(visitor: str, *values: Any) -> str:
        return experiments.start(_sweep(*values), visitor).id

    # The name of the ablation and the base of its figure stand above the form.
    fields = inputs[2:]

    def fill(request: gr.Request, name: str, figure_base: str | None) -> list[Update]:
        """Fills each field with its value in the address, or else with the setting of the figure."""
        updates = _fill(name, figure_base)
        for field, update, value in zip(fields, updates, values_of(fields, request), strict=True):
            # For an invalid value in the address, `values_of` has ``gr.skip()``.
            if str(field.elem_id) in request.query_params and value != gr.skip():
                update["value"] = value
        return updates

    show_on = panel.wire(show, [text, figure, numbers, grid], name, [figure_base])
    linked = on_open(_from_link, [name, figure_base, base_choice, panel.selected])
    # An ablation that a person chose before the address was read stays.
    opened = keep_touched([name], linked)
    filled = opened.then(fill, [name, figure_base], fields, **event_options(queue=False))
    filled = keep_touched(fields, filled)
    show_on(filled.then)
    form.estimate_on(filled.then)
    keep(fields, filled)
    other = name.input(
        # Without a selected sweep, the newest one of the ablation is shown.
        lambda name: (*_bases(name), None),
        name,
        [figure_base, base_choice, panel.selected],
        **event_options(queue=False, trigger_mode="multiple"),
    )
    picked = base_choice.input(
        lambda base: base,
        base_choice,
        figure_base,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    for listen in (other.then, picked.then):
        filled = listen(
            _fill,
            [name, figure_base],
            fields,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        show_on(filled.then)
        form.estimate_on(filled.then)
        run_js(filled.then, KEEP_NAME, [name, figure_base])
    form.estimate_on(partial(gr.on, [field.change for field in fields]))
    started = form.start_on(start, start_sweep, panel.selected)
    run_js(show_on(started.then).then, SHOW_SWEEP)


def _form(name: gr.Radio, figure_base: gr.Textbox) -> list[Any]:
    """Builds the fields of a new sweep, which `_fill` sets. Returns the components for the arguments of `_sweep`."""
    with gr.Row():
        base = open_dropdown(
            "Base", BASES, HINT, value=DEFAULT_MODEL, min_width=220, elem_id="sweep-base"
        )
        seeds = gr.Slider(
            1, 10, 3, step=1, label="Seeds", info="Runs per variant", min_width=200, elem_id="seeds"
        )
        steps = gr.Number(
            STEPS, label="Steps", info="Per run; 0: one epoch", min_width=160, elem_id="steps"
        )
        hint = "Labelled pairs; or hf:<org>/<name>"
        choices = data_choices("ablation")
        data = open_dropdown(
            "Training data", choices, hint, visible=False, min_width=260, elem_id="sweep-data"
        )
    return [name, figure_base, base, seeds, steps, data]


def _bases(name: str, base: str | None = None) -> tuple[str, gr.Radio]:
    """Returns the base of the figure, by default the first one, and the update of the choice of all bases.

    The base is "" if the ablation varies it, or if nothing has been measured.
    """
    bases = list(precomputed_tables(name))
    if base not in bases:
        base = next(iter(bases), "")
    return base, gr.Radio(bases, value=base or None, visible=len(bases) > 1)


def _table(name: str, base: str | None) -> PrecomputedTable | None:
    """Returns the table of an ablation from a base, or from its first one; None if nothing has been measured.

    When another ablation is chosen, ``base`` belongs to the previous one until the page has set it.
    """
    tables = precomputed_tables(name)
    return tables.get(base or "") or next(iter(tables.values()), None)


def _fill(name: str, figure_base: str | None) -> list[Update]:
    """Returns the updates of base, seeds, steps and data: the settings of the figure, so that Start repeats it."""
    ablation = ABLATIONS[name]
    table = _table(name, figure_base)
    base = DEFAULT_MODEL
    seeds = 3
    steps = STEPS
    if table:
        base = table.base or DEFAULT_MODEL
        seeds = len(table.seeds)
        steps = table.steps
    return [
        gr.update(value=base, visible=not ablation.varies_base),
        gr.update(value=seeds),
        gr.update(value=steps),
        gr.update(visible=ablation.needs_labels),
    ]


def _text(name: str, base: str | None, sweep: Experiment | None) -> Markup:
    """Renders the question of an ablation, what its figure shows, and why."""
    ablation = ABLATIONS[name]
    table = _table(name, base)
    shipped = ""
    explanation = ""
    if table:
        shipped = sentence_case(outcome(table.rows))
        explanation = ablation.of_base.get(table.base, "")
    # "" until two variants have a result.
    here = outcome(sweep.rows) if sweep else ""
    if sweep and here:
        here = f"{_name_of(sweep)}: {sentence_case(here)}"
    return macro("ablation/question")(ablation, shown=shipped, here=here, of_base=explanation)


def _figure(name: str, base: str | None, sweep: Experiment | None) -> Update:
    """Draws the shipped table, a sweep and the figures of the paper; hides the plot if nothing was measured."""
    table = _table(name, base)
    shipped = table.rows if table else []
    here = sweep.rows if sweep and sweep.values else []
    if not (shipped or here):
        return hidden()
    return visible(figures.dots(shipped, here, _name_of(sweep) if sweep else ""))


def _name_of(sweep: Experiment) -> str:
    """Returns the label of a sweep in the legend: its base, seeds and steps."""
    # The first variant stands for all.
    variant = sweep.record.runs[0].label
    config = sweep.ablation.config(variant, seed=0, **sweep.record.changes)
    base = "" if sweep.ablation.varies_base else f"{config.base}, "
    return f"here ({base}{format_count(len(sweep.seeds), 'seed')}, {config.length})"


def _from_link(request: gr.Request) -> tuple[str, str, gr.Radio, str | None]:
    """Reads the address: /ablation?preset=concat&base=raw-bert-mini&sweep=<id>.

    Returns the name of the ablation, the base of its figure, the choice of bases, and the id of the
    sweep, or None.
    """
    query = request.query_params
    preset = query.get("preset")
    name = preset if preset in ABLATIONS else OPENING
    return name, *_bases(name, query.get("base")), query.get("sweep") or None


def _sweep(
    name: str,
    figure_base: str | None,
    base: str | None,
    seeds: float,
    steps: float | None,
    data: str,
) -> ExperimentRecord:
    """Returns the record of a new sweep for the values of `_form`."""
    ablation = ABLATIONS[name]
    table = _table(name, figure_base)
    # The property `changes` makes a new dictionary, which is changed below. It has no base and no
    # steps, as the form sets both.
    changes: dict[str, Any] = table.changes if table else {}
    # With 0 steps a run takes one epoch, which is the default.
    if steps:
        changes["max_steps"] = steps
    base = (base or "").strip() or DEFAULT_MODEL
    # All variants start from the default base, unless the base is changed or varied.
    if base != DEFAULT_MODEL and not ablation.varies_base:
        changes["base"] = base
    if ablation.needs_labels:
        changes["train_data"] = data
    return new_sweep(name, int(seeds), changes)


def _estimate(experiments: Experiments, *values: Any) -> tuple[RunEstimate, Plan]:
    """Returns the estimate of the first run of a sweep, and the function that renders the plan of all runs."""
    estimate = experiments.estimate(_sweep(*values))
    # There is one estimate for each variant. The first variant stands for all.
    first = next(iter(estimate.estimates.values()))
    return first, partial(plan_of, estimate, differences=_differences(*values))


def _differences(
    name: str,
    figure_base: str | None,
    base: str | None,
    seeds: float,
    steps: float | None,
    data: str,
) -> list[str] | None:
    """Returns the fields that differ from the settings of the figure; None without a figure to repeat."""
    ablation = ABLATIONS[name]
    table = _table(name, figure_base)
    if table is None:
        return None
    differences = []
    base = (base or "").strip() or DEFAULT_MODEL
    if not ablation.varies_base and base != (table.base or DEFAULT_MODEL):
        differences.append("base")
    if int(seeds) != len(table.seeds):
        differences.append("seeds")
    if int(steps or 0) != table.steps:
        differences.append("steps")
    if ablation.needs_labels and data != ablation.common["train_data"]:
        differences.append("training data")
    return differences


def source_of(table: PrecomputedTable) -> Markup:
    """Renders the origin of the precomputed figures: runs, seeds, steps, machine, day, command."""
    settings = table.settings
    machine = table.machine
    seeds = format_count(len(table.seeds), "seed")
    summary = f"{format_count(len(table.runs), 'run')}, {seeds}"
    # Variants may differ in the number of steps.
    steps = sorted({run.steps for run in table.runs})
    length = f"{steps[0]:,}"
    if len(steps) == 1:
        summary += f", {length} steps each"
    else:
        length += f" to {steps[-1]:,}"
    batch = _of_variants(table, "batch_size")
    rate = _of_variants(table, "learning_rate", "{:g}")
    took = format_duration(median(run.seconds for run in table.runs))
    threads = ""
    if "threads" in machine:
        threads = f", {format_count(int(machine['threads']), 'thread')}"
    rows_seen = ""
    # `settings` has what all variants share. The number of rows that a run saw is stated only if
    # the variants share the data, the batch size, and the objective, which makes its rows of the
    # data.
    if {"train_data", "batch_size", "objective"} <= settings.keys():
        rows = min(max(steps) * settings["batch_size"], table.training_rows)
        rows_seen = f", {table.training_rows:,} rows; a run saw {rows:,} of them"
    facts = {
        "Runs": f"{len(table.runs)}: {seeds} ({', '.join(map(str, table.seeds))})",
        "Length": f"{length} steps of {batch} rows, learning rate {rate}",
        "Trained on": _of_variants(table, "train_data") + rows_seen,
        "Measured on": f"{settings['eval_data']}, 1,500 pairs, before the first step and after the last",
        "Machine": f"{machine['device']}{threads}, {machine['dtype']}, torch {machine['torch']}; "
        f"a run took {took} (median)",
        "Day": table.measured,
    }
    variants = {run.variant for run in table.runs}
    complete = len(table.runs) == len(table.seeds) * len(variants)
    return macro("ablation/source")(
        summary=summary, facts=facts, command=table.command, complete=complete
    )


def _of_variants(table: PrecomputedTable, name: str, form: str = "{}") -> str:
    """Returns the value of a setting, or each value with its variants if they differ.

    ``form`` formats a value.
    """
    # These settings are the same for all variants.
    if name in table.settings:
        return form.format(table.settings[name])
    ablation = ABLATIONS[table.ablation]
    # value -> the labels of its variants
    variants: dict[str, list[str]] = {}
    for variant in dict.fromkeys(run.variant for run in table.runs):
        value = form.format(getattr(ablation.config(variant, seed=0), name))
        # The label without its explanation, which follows a colon.
        label, _, _ = ablation.variants[variant].label.partition(":")
        variants.setdefault(value, []).append(label)
    return "; ".join(f"{value} ({', '.join(labels)})" for value, labels in variants.items())


def numbers_of(name: str, base: str | None, sweep: Experiment | None) -> Markup:
    """Renders a fold with the means, intervals and tests behind a figure, and where they come from."""
    table = _table(name, base)
    parts = {}
    source: Markup | str = ""
    if table:
        parts["shipped"] = table.rows
        source = source_of(table)
    if sweep and sweep.values:
        parts[_name_of(sweep)] = sweep.rows
    if not parts:
        return Markup()
    return macro("ablation/numbers")(statistics_of(parts), source, ABLATIONS[name].setting)


def statistics_of(parts: Mapping[str, Sequence[VariantRow]]) -> Markup:
    """Renders means ± standard deviations, intervals, tests against the default, and the paper's figures.

    Args:
        parts: the rows of each source, by its name in the legend.
    """
    sources = list(parts.values())
    # The rows of each variant, one from each source, if any source has measured the variant. Every
    # source has a row for every variant, in the same order.
    lines = [line for line in zip(*sources, strict=True) if any(row.summary for row in line)]
    return render(
        "ablation/templates/statistics.html",
        names=list(parts),
        lines=lines,
        default=next(row.label for row in sources[0] if row.is_default),
        # The paper's figure is the same in the rows of all sources.
        has_paper=any(line[0].paper is not None for line in lines),
    )


def plan_of(
    estimate: ExperimentEstimate,
    rate: TrainingRate | None,
    differences: Sequence[str] | None = None,
) -> Markup:
    """Renders the work of a sweep, its time, the disk space of its models, and how it differs from the figure.

    Args:
        differences: the fields that differ from the settings of the figure; None without a figure.
    """
    variants = format_count(len(estimate.estimates), "variant")
    seeds = format_count(estimate.seeds, "seed")
    first = next(iter(estimate.estimates.values()))
    # The steps are unknown, and None, for data that has to be downloaded first.
    lengths = {run.steps for run in estimate.estimates.values()}
    steps = "as many steps as the data has"
    if len(lengths) == 1 and first.steps is not None:
        steps = f"{first.steps:,} steps each"
    facts = [f"{variants} × {seeds} = {format_count(estimate.runs, 'run')}", steps]
    if estimate.bytes:
        facts.append(f"{estimate.bytes / 1e9:.1f} GB of models")
    notes = list(first.notes)
    # The notes of the first variant stand for all, but not for variants whose data has to be
    # downloaded first. Their number of rows is None.
    for run in estimate.estimates.values():
        if run.rows is None:
            notes += [note for note in run.notes if note not in notes]
    if differences:
        notes.insert(0, f"Differs from the figure: {', '.join(differences)}.")
    elif differences is not None:
        # The list is empty: the form has the settings of the figure.
        notes.insert(0, REPEATS_FIGURE)
    # Before the first run of this kind, there is neither a time nor its source.
    if rate is None:
        return estimate_plan(facts, None, "", notes)
    return estimate_plan(facts, estimate.seconds(rate), rate.source, notes)


def grid_of(sweep: Experiment) -> Markup:
    """Renders a table of variants by seeds. Each cell shows the result of its run and links to it."""
    # The plan of a run is labelled by the key of its variant.
    cells = {(cell.plan.label, cell.plan.seed): cell for cell in sweep.cells}
    rows = []
    for name, variant in sweep.ablation.variants.items():
        rows.append((variant.label, [cells.get((name, seed)) for seed in sweep.seeds]))
    return render("ablation/templates/grid.html", seeds=sweep.seeds, rows=rows)


def experiment_report(experiment: Experiment) -> Report:
    """Returns the report of an experiment: its runs, and the statistics of the variants of a sweep."""
    record = experiment.record
    runs = []
    for cell in experiment.cells:
        # The main metric before the run, at its best and at its end.
        metrics: list[float | None] = [None] * 3
        if cell.run:
            progress = cell.run.progress
            events = (progress.baseline, progress.best, progress.latest)
            metrics = list(map(progress.figure, events))
        runs.append([cell.plan.label, cell.plan.seed, cell.state, *map(format_number, metrics)])
    result = [panels.status_of(experiment)]
    title = f"{record.name}, {record.by}"
    command = ""
    if record.kind == SWEEP:
        title = experiment.ablation.title
        command = f"sbert-lab ablate --preset {record.name} --seeds {len(experiment.seeds)}"
        for name, value in record.changes.items():
            command += f" --{name.replace('_', '-')} {value}"
        if experiment.values:
            rows = experiment.rows
            # The figure has no shipped rows.
            result += [plot(figures.dots([], rows)), statistics_of({"here": rows})]
    return Report(
        title,
        {"Settings of all runs": panels.shared_settings(experiment)},
        {"Result": result, "Runs": [macro("table")(RUN_COLUMNS, runs)]},
        command,
        {"Experiment": f"{experiment.id}, {experiment.state}"},
    )
