"""The tab Threshold: the model that separates matches from other pairs best, and its threshold."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import gradio as gr
from markupsafe import Markup

from sbert_app.figures import evaluation as figures
from sbert_app.pages.components import messages
from sbert_app.pages.components.decisions import (
    MEANING,
    Use,
    criterion_labels,
    decisions_table,
    use_link,
)
from sbert_app.pages.components.events import Update, event_options, on_open
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import data_choices
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.evaluate.pickers import ModelAndData
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.carry import ModelThreshold, advise
from sbert_app.services.results.decisions import Decisions, decide_models, decide_results
from sbert_app.services.results.precomputed import shipped_scores
from sbert_app.services.results.results import data_label
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.match_scores import BEST_F1, PRECISION
from training.evaluation.thresholds import Choice
from training.models.model import Model, VectorModel, opener_of
from training.names import ModelName

FIRST_MODELS = ("all-MiniLM-L6-v2", "tfidf")
LEAST_PRECISION = 0.95
MATCH_FROM = 4.0
INTRO = (
    "Which model finds matches best, and how similar must the sentences of a match be? Upload pairs with labels (1 and "
    "0, yes and no, entailment) or gold scores."
)


def build(services: Services) -> None:
    """Builds the tab inside the open Blocks. It opens with a shipped measurement."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(
        services, "threshold", data_choices("threshold"), "stsb:dev", FIRST_MODELS
    )
    title = _settings_title(LEAST_PRECISION, MATCH_FROM)
    with gr.Accordion(title, open=False, elem_id="threshold-settings") as settings, gr.Row():
        precision = gr.Number(
            LEAST_PRECISION,
            minimum=0.01,
            maximum=0.999,
            step=0.01,
            min_width=220,
            label="Precision of at least",
            info="The share of matches among the pairs above the threshold",
            elem_id="threshold-precision",
        )
        match_from = gr.Number(
            MATCH_FROM,
            minimum=0.1,
            maximum=5,
            step=0.5,
            min_width=220,
            label="A pair matches from this gold score",
            info="On the scale 0–5; labels do not need it",
            elem_id="threshold-match",
        )
    title = "You had a threshold for another model?"
    with gr.Accordion(title, open=False, elem_id="threshold-before"), gr.Row():
        was_model = gr.Textbox(
            "",
            placeholder="all-mpnet-base-v2",
            max_length=300,
            min_width=260,
            label="Model before",
            info="What its threshold becomes under the model that is recommended",
            elem_id="threshold-was-model",
        )
        was_threshold = gr.Number(
            None,
            step=0.01,
            min_width=220,
            label="Its threshold",
            info="On the scale of its similarity",
            elem_id="threshold-was",
        )
    before = [was_model, was_threshold]
    controls = [precision, match_from]
    for control in controls:
        # Gradio answers the last change of a number that is being typed, so the title ends up
        # right.
        control.change(
            lambda *values: gr.Accordion(label=_settings_title(*values)),
            controls,
            settings,
            **event_options(queue=False),
        )
    tab = MeasureTab.build(
        services,
        "threshold",
        "Find the threshold",
        ("find-threshold", "stop-threshold", "threshold-status"),
        status=messages.waiting("Opening the shipped measurement …"),
    )
    pickers.panel.hold([tab.start])
    on_open(pickers.panel.take, [pickers.panel.upload, *pickers.panel.outputs])
    with gr.Row():
        curve = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="threshold-curve")
        by_threshold = gr.Plot(
            show_label=False, visible=False, min_width=300, elem_id="threshold-lines"
        )
    meaning = gr.HTML(messages.note(MEANING), visible=False)
    shows = {"Which model, which threshold": [tab.status], "Curves": [curve, by_threshold]}
    report_button(services, *of_page("Threshold", shows, [*controls, *before]), "threshold")

    def result(
        decisions: Decisions,
        rows: Dataset,
        use: Use,
        notes: Sequence[str] = (),
        first_notes: Sequence[str] = (),
    ) -> Update:
        """Shows the decisions with the curves of the model to take, or of the best one.

        ``use`` makes the link that applies a threshold. The ``notes`` are in a fold below the table,
        the ``first_notes`` above it.
        """
        taken = decisions.to_take or decisions.models[0]
        decision = taken.on_data.decision
        table = decisions_table(decisions, data_label(rows.name), [*rows.notes, *notes], use)
        labels = criterion_labels(decision)
        recall = figures.precision_recall(decision, labels, decisions.models)
        lines = figures.by_threshold(decision, taken.on_data.similarity, taken.model)
        return {
            tab.status: Markup("").join([*map(messages.note, first_notes), table]),
            curve: visible(recall),
            by_threshold: visible(lines),
            meaning: gr.update(visible=True),
        }

    def find(watch: Watch, *values: Any) -> Update:
        """Measures the models; ``values`` come from the controls, the model before, and the pickers."""
        precision, match_from, was_model, was_threshold, models, *data = values
        if match_from is None:
            raise InputError("type the gold score from which a pair is a match, such as 4")
        model_before = _model_before(was_model, was_threshold)
        # A cleared field becomes a precision of 0, whose error states the allowed range.
        criteria = [BEST_F1, f"{PRECISION}={precision or 0:g}"]
        names = [ModelName.parse(model) for model in dict.fromkeys(models)]
        rows = pickers.rows(*data)
        home = services.settings.home
        decisions = decide_models(names, rows, services.models, home, criteria, match_from, watch)
        first_notes = []
        if model_before is not None:
            # `result` shows this model. The threshold of the model before is carried over to it.
            taken = decisions.to_take or decisions.models[0]
            open_any = partial(services.models.get, type_=Model)
            advice = advise(
                taken.model, rows, open_any, home, criteria, model_before, match_from, watch
            )
            first_notes = [advice.carried_sentence + "."]
        # The named data set, the file, and the inputs of the panel.
        _, file, *how = data
        link = _link_to_bulk(services, file, how)
        return result(decisions, rows, link, first_notes=first_notes)

    def example() -> Update:
        # ``origin`` is the time and place of the measurement.
        rows, results, origin = shipped_scores(services.settings.home)
        note = f"Shipped with the app: {origin}. Press “Find the threshold” to measure it here."
        criteria = [BEST_F1, f"{PRECISION}={LEAST_PRECISION:g}"]
        by_model = {name: results[name] for name in map(ModelName, FIRST_MODELS)}
        decisions = decide_results(by_model, rows, criteria)
        return result(decisions, rows, _link_to_bulk(services, file=None), [note])

    tab.wire(
        find,
        [*controls, *before, *pickers.inputs],
        dict.fromkeys((curve, by_threshold, meaning), hidden()),
        example=example,
    )


def _model_before(model: str | None, threshold: float | None) -> ModelThreshold | None:
    """Returns the model before and its threshold, or None if both are empty. Raises InputError if only one is."""
    name = (model or "").strip()
    if not name and threshold is None:
        return None
    if not name or threshold is None:
        raise InputError(
            "the model before and its threshold are needed together; fill in both, or neither"
        )
    return ModelThreshold(ModelName.parse(name), threshold)


def _settings_title(precision: float | None, match_from: float | None) -> str:
    return f"Precision of at least {100 * (precision or 0):g}%; gold scores of {match_from or 0:g} and more match"


def _link_to_bulk(services: Services, file: str | None, how: Sequence[str] = ()) -> Use:
    """Returns a function that makes a link to Bulk with a model and a threshold.

    Bulk opens a copy of the ``file``, or its own example without a file. ``how`` are the inputs of
    the panel, which say how the file is read.
    """
    query: dict[str, str] = {}
    if file:
        # ``reading`` has the three columns and the scale, in the order of the names below, which
        # are element ids on Bulk. `open` makes a job with a copy of the file.
        encoding, sheet, *reading = how
        query["job"] = services.scoring.open(Path(file), encoding or None, sheet or None).id
        names = (
            "bulk-columns-1",
            "bulk-columns-2",
            "bulk-columns-target",
            "bulk-columns-read-as",
        )
        query |= dict(zip(names, reading, strict=True))

    def link(model: ModelName, choice: Choice) -> str:
        """Returns the link, or "" if Bulk cannot score with the model."""
        # Bulk scores with models of vectors only.
        if opener_of(model, services.settings.home).type is not VectorModel:
            return ""
        settings = {
            **query,
            "bulk-model": str(replace(model, pooling=None)),
            "bulk-pooling": model.pooling or "",
            "bulk-threshold": f"{choice.threshold.value:.4f}",
        }
        # Bulk uses its defaults for what the address does not name.
        filled = {key: value for key, value in settings.items() if value}
        return use_link(f"bulk?{urlencode(filled)}")

    return link
