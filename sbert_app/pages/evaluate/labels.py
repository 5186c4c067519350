"""Evaluate, triplets and labels: data that has no gold scores (the paper's section 4.4, and inference labels)."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from sbert_app.figures.evaluation import label_histograms
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget
from sbert_app.pages.evaluate.pickers import MODELS, model_dropdown, own_file
from sbert_app.services.container import Services
from sbert_app.services.results.labels import LabelScore, TripletScore, score_labels
from sbert_app.services.results.model_spec import ModelSpec
from training.data.dataset import SCORED, Dataset

DATA = [
    ("STSb dev as triplets", "stsb:dev"),
    ("SNLI dev (Hub)", "snli:dev"),
    ("SNLI test (Hub)", "snli:test"),
    ("MultiNLI dev (Hub)", "mnli:dev"),
    ("Wikipedia sections, test (Hub)", "wiki-sections:test"),
]
MOST_ROWS = 20_000
UNTOUCHED = '<p class="note">Press Score.</p>'
INTRO = (
    '<p class="note">Triplets (anchor, positive, negative): how often is the anchor nearer to the positive? The paper '
    "(Table 4, Wikipedia sections) has 0.8042 for SBERT-WikiSec-base, 0.74 for Dor et al. Pairs with labels: does the "
    "cosine keep the order entailment, neutral, contradiction? A file goes before the data set.</p>"
)


def build(services: Services) -> None:
    """Lay the tab out inside the open Blocks."""
    gr.HTML(INTRO)
    with gr.Row():
        model = model_dropdown(services, MODELS[0], min_width=260, elem_id="labels-model")
        data = gr.Dropdown(DATA, value="stsb:dev", label="Data set", min_width=240, elem_id="labels-data")
        file = own_file(min_width=260, elem_id="labels-file")
    with gr.Row(elem_classes="actions"):
        go = gr.Button("Score", variant="primary", elem_id="score-labels")
        halt = gr.Button("Stop", interactive=False, elem_id="stop-labels")
    status = gr.HTML(UNTOUCHED, elem_id="labels-status")
    spread = gr.Plot(show_label=False, visible=False, elem_id="labels-spread")
    place = TaskWidget("labels", status, halt)

    def score(model: str, name: str, file: str | None, request: gr.Request) -> Any:
        def work(tell: Any, should_stop: Any) -> tuple[Dataset, TripletScore | LabelScore]:
            rows = _load(file or name, services)
            choice = ModelSpec.parse(model or "")
            return rows, score_labels(services.models.scorer(*choice), rows, tell, should_stop)

        def show(found: tuple[Dataset, TripletScore | LabelScore]) -> dict[Any, Any]:
            rows, scored = found
            labelled = isinstance(scored, LabelScore)
            figure = label_histograms(scored.by_label) if isinstance(scored, LabelScore) else None
            return {status: _told(model, rows, scored), spread: gr.Plot(figure, visible=labelled)}

        yield from place.run(services, request, work, show, {spread: gr.Plot(visible=False)})

    def score_once(told: str, model: str, name: str, file: str | None, request: gr.Request) -> Any:
        """The example, when the tab is opened for the first time."""
        if told == UNTOUCHED:
            yield from score(model, name, file, request)
        else:
            yield {status: gr.skip()}

    tab, asked, shown = gr.context.Context.block, [model, data, file], [status, spread, halt]
    opened = tab.select(score_once, [status, *asked], shown, concurrency_limit=2, **PRIVATE)
    pressed = go.click(score, asked, shown, trigger_mode="always_last", concurrency_limit=2, **PRIVATE)
    place.wire(services, opened, pressed)


def _load(name: str, services: Services) -> Dataset:
    """The rows to score; scored pairs become triplets, as in training."""
    from training.data.load import load_data
    from training.data.transforms import transform_for

    data = load_data(name, services.settings.home, split="test")
    if data.kind == SCORED:
        data = transform_for(data, "triplet")
    if len(data) > MOST_ROWS:
        data = data.select(range(MOST_ROWS), f"the first {MOST_ROWS:,} rows")
    return data


def _told(model: str, data: Dataset, found: TripletScore | LabelScore) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in data.notes)
    below = f'<ul class="findings note">{notes}</ul>' if notes else ""
    low, high = 100 * found.interval.low, 100 * found.interval.high
    name = f"<b>{escape(ModelSpec.parse(model).label)}</b> on {escape(data.name)}"
    if isinstance(found, TripletScore):
        first, *others = found.accuracy.items()
        rest = ", ".join(f"{escape(how)} {100 * share:.2f}" for how, share in others)
        ties = f" {found.ties:,} ties count as wrong." if found.ties else ""
        return (
            f'<p class="lead">{name}: the positive is nearer in <b>{100 * first[1]:.2f}%</b> of {found.n:,} triplets '
            f'<small>(95% {low:.2f} to {high:.2f}, {escape(first[0])})</small>.</p><p class="note">'
            f"{'By ' + rest + '. ' if rest else ''}By chance: 50.{ties}</p>{below}"
        )
    means = ", ".join(f"{label} {values.mean():.3f}" for label, values in found.by_label.items())
    return (
        f'<p class="lead">{name}: ρ = <b>{100 * found.rho:.2f}</b> <small>(95% {low:.2f} to {high:.2f})</small> with '
        f'the labels as an order, on {found.n:,} pairs.</p><p class="note">Mean similarity: {means}. Where two labels '
        f"overlap below, no threshold tells them apart.</p>{below}"
    )
