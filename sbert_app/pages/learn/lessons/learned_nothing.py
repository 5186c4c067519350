"""Lesson 17: a training run that learned nothing, and how its curves say why.

The runs ship, 16 combinations of four defects with several seeds each
(`sbert_app.services.experiments.defects`); the chosen one can also be trained here.
"""

import threading
from collections.abc import Sequence
from statistics import fmean

import gradio as gr
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from sbert_app.figures.style import PALETTE, add_scatter
from sbert_app.formats import format_duration
from sbert_app.pages.components.templates import macro
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.services.experiments.defects import (
    DEFECTS,
    EVALUATED,
    NOTEBOOK,
    STEPS,
    DefectRun,
    shipped,
    train_with,
)
from training.errors import InputError

# The machine and the day of the runs that ship.
shipped_with = macro("learn/shipped")
# Held while a visitor trains.
_training = threading.Lock()
# The small figures by their titles: the fields of a run with the steps and the values, and the
# factor of the values.
CURVES = {
    "loss": ("loss_steps", "losses", 1),
    f"ρ ×100 on {EVALUATED} pairs of STSb dev": ("steps", "rho", 100),
    "cosine of random pairs": ("steps", "random_cosine", 1),
}


def show(context: Context, defects: Sequence[str], is_trained_here: bool) -> Measurement:
    """The shipped runs with these defects beside the runs without any, and if requested a run that is trained now."""
    # In the order of the shipped runs, which have all combinations of defects. If nothing is ticked,
    # both keys of ``runs`` are the same.
    ordered = tuple(name for name in DEFECTS if name in defects)
    runs: dict[tuple[str, ...], list[DefectRun]] = {(): [], ordered: []}
    for run in shipped().runs:
        if run.defects in runs:
            runs[run.defects].append(run)
    here = _train(context, defects) if is_trained_here else None
    return Measurement(curves(runs, here), describe(runs, here))


def _train(context: Context, defects: Sequence[str]) -> DefectRun:
    """Trains now, for one visitor at a time. InputError if another visitor's training is not finished."""
    if not _training.acquire(blocking=False):
        raise InputError("somebody else is training in this lesson: tick the box again in a minute")
    try:
        watch = context.watch.stage(f"Training {STEPS} steps")
        return train_with(defects, context.setup.seed, STEPS, context.runs.home, watch)
    finally:
        _training.release()


def curves(runs: dict[tuple[str, ...], list[DefectRun]], here: DefectRun | None) -> go.Figure:
    """Loss, ρ and cosine of random pairs over the steps: a line for each seed, grey for runs without defects."""
    rows = len(CURVES)
    figure = make_subplots(
        rows, 1, shared_xaxes=True, vertical_spacing=0.11, subplot_titles=list(CURVES)
    )
    lines = []
    for names, seeds in runs.items():
        colour = "blue" if names else "grey"
        lines += [(run, colour) for run in seeds]
    if here:
        lines.append((here, "orange"))
    for row, (steps_field, field, factor) in enumerate(CURVES.values(), 1):
        for run, colour in lines:
            steps = list(getattr(run, steps_field))
            values = [factor * value for value in getattr(run, field)]
            hover = (
                f"step %{{x}}: %{{y:.3f}}<extra>{_defects(run.defects)}, seed {run.seed}</extra>"
            )
            width = 3 if run is here else 1.8
            add_scatter(figure, steps, values, colour, hover, line_width=width, row=row, col=1)
    # The first run has no defects. Its `guess` is the loss of guessing the mean gold score.
    figure.add_hline(
        lines[0][0].guess,
        line_dash="dot",
        line_color=PALETTE["vermillion"],
        row=1,
        col=1,
        annotation_text="guessing the mean score",
    )
    styled(figure, 520)
    figure.update_layout(margin_t=36)
    figure.update_xaxes(title_text="step", row=rows, col=1)
    return figure


def _defects(names: Sequence[str]) -> str:
    return ", ".join(DEFECTS[name] for name in names) or "no defect"


def describe(runs: dict[tuple[str, ...], list[DefectRun]], here: DefectRun | None) -> Markup:
    """The ends of the runs, what the app says about them, and where they were measured."""
    rows = []
    for names, seeds in runs.items():
        if seeds:
            loss = fmean(run.losses[-1] for run in seeds)
            before = 100 * fmean(run.rho[0] for run in seeds)
            after = 100 * fmean(run.rho[-1] for run in seeds)
            cosine = fmean(run.random_cosine[0] for run in seeds)
            rows.append(
                (_defects(names), f"{loss:.3f}", f"{before:.1f}", f"{after:.1f}", f"{cosine:.2f}")
            )
    header = ("defects", "loss at the end", "ρ before", "ρ after", "random pairs before")
    colours = "Grey: no defect. Blue: with the defects that are ticked."
    if here:
        colours += " Orange: trained here."
    # The runs with the defects that are ticked. In ``runs``, they follow the runs without defects.
    *_, ticked = runs.values()
    # One warning of each kind. Warnings of the same kind have the same first 9 characters; the
    # figures after them differ with the seed, and from the means in the table.
    warnings = {}
    for run in ticked:
        for warning in run.warnings:
            warnings[warning[:9]] = f"The app says of the run with seed {run.seed}: “{warning}.”"
    sentences = list(warnings.values()) or [
        "The app says nothing of such a run: it passes all four checks."
    ]
    source = shipped()
    machine = source.machine.get("device", "")
    where = f"means of {len(ticked)} seeds, {ticked[0].steps[-1]} steps each, on {machine}, {source.measured}"
    html = table(header, rows, wide=True) + findings([colours, *sentences]) + shipped_with(where)
    if here:
        html += measured(
            f"{STEPS} steps in {format_duration(here.seconds)}, loss {here.losses[-1]:.3f}; one seed"
        )
    return html


def build() -> Demo:
    defects = gr.CheckboxGroup(
        [(label, name) for name, label in DEFECTS.items()],
        value=list(NOTEBOOK),
        label="Defects of the run",
        info="The notebook had the first three",
        elem_id="learn-defects",
    )
    here = gr.Checkbox(
        False,
        label=f"Train it here too, {STEPS} steps",
        info="Half a minute to two minutes",
        elem_id="learn-train",
    )
    return Demo([defects, here], show)
