"""The Train page: configure a run, start it, follow it, and manage all runs.

Nothing trains in the page. A button puts a run into the queue (`services.jobs`), and a timer reads the folders of the
runs (`services.runs`): every tab shows every run live, and neither a reload nor a killed app loses anything.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from sbert_app.pages.api.endpoint import visitor_of
from sbert_app.pages.components.events import EVERY, UNQUEUED
from sbert_app.pages.components.messages import error_message, heading, note
from sbert_app.pages.components.templates import render
from sbert_app.pages.train import actions, distillation, form, live, negatives, uploads, views
from sbert_app.pages.train.form import to_config
from sbert_app.pages.train.uploads import sent_sentences
from sbert_app.services.container import Services
from sbert_app.services.runs.estimate import can_measure_rate, estimate_run, known_rate, measure_rate
from sbert_app.services.runs.presets import PRESETS, two_stage_base
from training.errors import UserFacingError
from training.trainer.config import NEEDS_TEACHER, USES_NEGATIVES

TYPED = ("learning_rate", "matryoshka_dims")  # numbers in a text field
TAGLINE = "Choose a pooling and an objective, press Start, and watch Spearman’s ρ rise, or the space collapse."
SHOW_SETTINGS = """() => { document.getElementById("settings")?.scrollIntoView({behavior: "smooth"}); }"""
SHOW_LIVE = """() => {
  const live = document.getElementById("live");
  if (live && window.innerWidth < 900) live.scrollIntoView({behavior: "smooth"});
}"""


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(heading("Train", TAGLINE))
    with gr.Row(elem_id="train"):
        with gr.Column(scale=5, min_width=330, elem_id="train-choice"):
            chips, lesson = _presets()
            planned = gr.HTML(elem_id="plan")
            start = gr.Button("Start", variant="primary", size="lg", elem_id="start")
            to_settings = gr.Button("Change the settings ↓", size="sm", elem_id="to-settings")  # on phones alone
            to_settings.click(None, None, None, js=SHOW_SETTINGS)
            with gr.Column(elem_id="settings"):
                fields = form.build()
        with gr.Column(scale=7, min_width=330, elem_id="live"):
            panel = live.build_layout()
    distillation.build(services)
    actions.connect(services, panel)
    _connect_form(services, chips, lesson, fields, planned)
    names = list(form.config_fields(fields))
    inputs = [fields[name] for name in names]

    def start_from_form(request: gr.Request, *values: Any) -> tuple[Any, Any]:
        return _start(services, names, visitor_of(request), *values)

    started = start.click(start_from_form, inputs, [planned, panel.opened], **UNQUEUED)
    shown = live.refresh_on(services, panel, started.success)
    shown.then(None, None, None, js=actions.REMEMBER_RUN)
    started.success(None, None, None, js=SHOW_LIVE)
    # A worker takes seconds to start: let it do so before somebody presses Start.
    gr.context.Context.root_block.load(services.jobs.start_workers, None, None, **UNQUEUED)


def _presets() -> tuple[dict[str, gr.Button], gr.HTML]:
    with gr.Row(elem_classes="chips"):
        chips = {
            key: gr.Button(preset.title, size="sm", elem_classes="chip", elem_id=f"preset-{key}")
            for key, preset in PRESETS.items()
        }
    return chips, gr.HTML(_lesson(next(iter(PRESETS))), elem_id="lesson")


def _connect_form(
    services: Services, chips: dict[str, gr.Button], lesson: gr.HTML, fields: form.Fields, planned: gr.HTML
) -> None:
    """Presets fill the form, the objective shows the fields it needs, an upload selects the objective."""
    config_fields = form.config_fields(fields)
    names, inputs = list(config_fields), list(config_fields.values())
    latest = gr.State({})  # the latest values, so that a slow measurement does not overwrite a newer estimate

    def from_link(request: gr.Request) -> list[Any]:
        """/train?preset=collapse opens with that preset in the form, ?settings=<run> with the settings of a run.

        ?sentences=<token> has sentences that another page has sent as the training data.
        """
        preset, like = request.query_params.get("preset"), request.query_params.get("settings")
        if token := request.query_params.get("sentences"):
            return _from_sentences(services, token, names)
        if like:
            try:
                run = services.jobs.store.get(like)
            except UserFacingError as error:
                return [error_message(error), *[gr.skip()] * len(names)]
            return [note(f"The settings of {run.name}."), *form.settings_updates(run.config, names)]
        return _fill(services, preset, names) if preset in PRESETS else [gr.skip()] * (1 + len(names))

    estimate = partial(_estimate, services, names), [latest, *inputs], planned
    measure = partial(_measure, services, names), [latest, *inputs], planned

    def estimate_after(event: Any) -> None:
        event.then(*estimate, **UNQUEUED).then(*measure, **UNQUEUED)

    for key, chip in chips.items():
        estimate_after(chip.click(partial(_fill, services, key, names), None, [lesson, *inputs], **UNQUEUED))
    fields["objective"].change(
        lambda objective: (
            gr.update(info=form.OBJECTIVES[objective]),
            gr.update(visible=objective == "classification"),
            gr.update(visible=objective in NEEDS_TEACHER),
            gr.update(visible=objective in USES_NEGATIVES),
            gr.update(info=form.batch_size_info(objective)),
        ),
        fields["objective"],
        [
            *(fields["objective"], fields["concatenation"], fields["teacher"]),
            *(fields["negatives_group"], fields["batch_size"]),
        ],
        **UNQUEUED,
    )
    fields["base"].input(
        form.base_updates,
        [fields["base"], fields["learning_rate"]],
        [fields["learning_rate"], fields["pooling"]],
        **EVERY,
    )
    negatives.connect(services, fields, names)
    edited = [component.input for name, component in config_fields.items() if name not in ("name", *TYPED)]
    edited += [fields[name].change for name in TYPED]  # pasted text fires no input event
    # The estimate itself is the event: of several quick edits the last is never dropped while one is computed.
    gr.on(edited, *estimate, trigger_mode="always_last", **UNQUEUED).then(*measure, **UNQUEUED)
    uploads.connect(services, fields, planned, estimate_after)
    opened = gr.context.Context.root_block.load(
        lambda: gr.update(choices=form.base_choices(services.jobs.store.list())),
        None,
        fields["base"],
        **UNQUEUED,
    )
    estimate_after(opened.then(from_link, None, [lesson, *inputs], **UNQUEUED))


def _fill(services: Services, key: str, names: list[str]) -> list[Any]:
    base = two_stage_base(services.jobs.store.list()) if key == "two-stage" else None
    return [_lesson(key), *form.preset_updates(PRESETS[key], names, base)]


def _estimate(services: Services, names: list[str], latest: dict[str, Any], *values: Any) -> str:
    """The estimate for the form, as far as it is known without measuring."""
    latest["form"] = values
    try:
        config = to_config(dict(zip(names, values, strict=True)), services.access)
        store = services.jobs.store
        estimate = estimate_run(config, store)
    except UserFacingError as error:
        return error_message(error)
    rate = known_rate(estimate, store.list(), store)
    return views.planned(estimate, rate, measuring=rate is None and can_measure_rate(config, store))


def _measure(services: Services, names: list[str], latest: dict[str, Any], *values: Any) -> Any:
    """The estimate with the throughput measured now, if it was not known."""
    store = services.jobs.store
    try:
        config = to_config(dict(zip(names, values, strict=True)), services.access)
        estimate = estimate_run(config, store)
        if known_rate(estimate, store.list(), store) or not can_measure_rate(config, store):
            return gr.skip()
        rate = measure_rate(estimate, store)
    except UserFacingError as error:
        return error_message(error)
    return views.planned(estimate, rate) if latest["form"] == values else gr.skip()


def _start(services: Services, names: list[str], visitor: str, *values: Any) -> tuple[Any, Any]:
    """Queue the run. Returns updates of the estimate (an error message) and of the run to open."""
    try:
        config = to_config(dict(zip(names, values, strict=True)), services.access)
        estimate_run(config, services.jobs.store)
        run = services.jobs.start(config, visitor)
    except UserFacingError as error:
        return error_message(error), gr.skip()
    return gr.skip(), run.id


def _from_sentences(services: Services, token: str, names: list[str]) -> list[Any]:
    """Updates of the lesson and the form: sentences that another page has sent are the training data."""
    try:
        updates = sent_sentences(services, token)
    except UserFacingError as error:
        return [error_message(error), *[gr.skip()] * len(names)]
    lesson = note("The sentences selected in Explore are the training data; sentences alone train by SimCSE.")
    return [lesson, *[updates.get(name, gr.skip()) for name in names]]


def _lesson(key: str) -> str:
    return render("train/templates/lesson.html", preset=PRESETS[key])
