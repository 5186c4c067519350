"""The Train page: choose a run, start it, watch it, and look after all runs.

Training is not done here. A button puts a run into the queue (`jobs.queue`), and a timer reads the folders of the
runs (`runs.store`): so every tab sees every run live, and a reload, a closed browser, a killed app lose nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from sbert_app.pages.api import runs as train_endpoints
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.train import actions as train_actions
from sbert_app.pages.train import form as train_form
from sbert_app.pages.train import live as train_live
from sbert_app.pages.train import views as train_views
from sbert_app.pages.train.form import to_config
from sbert_app.pages.train.live import QUIET
from sbert_app.services.container import Services
from sbert_app.services.runs.estimate import can_measure_rate, estimate_run, known_rate, measure_rate
from sbert_app.services.runs.presets import PRESETS, two_stage_base
from training.data.dataset import LABELLED, PAIRS, SCORED, TRIPLETS
from training.data.load import load_data
from training.errors import UserFacingError

FITTING = {SCORED: "regression", LABELLED: "classification", TRIPLETS: "triplet", PAIRS: "mnrl"}  # by the data's form
SHOW_LIVE = """() => {
  const live = document.getElementById("live");
  if (live && window.innerWidth < 900) live.scrollIntoView({behavior: "smooth"});
}"""


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML(
        '<h1 class="title">Train</h1><p class="tagline">Choose a pooling and an objective, press Start, and watch '
        "Spearman’s ρ rise, or the space collapse.</p>"
    )
    with gr.Row(elem_id="train"):
        with gr.Column(scale=5, min_width=330, elem_id="train-choice"):
            chips, lesson = _presets()
            planned = gr.HTML(elem_id="plan")
            start = gr.Button("Start", variant="primary", size="lg", elem_id="start")
            with gr.Column(elem_id="settings"):
                fields = train_form.build()
        with gr.Column(scale=7, min_width=330, elem_id="live"):
            panel = train_live.build_layout()
    train_actions.wire(services, panel)
    _wire_form(services, chips, lesson, fields, planned)
    names = list(train_form.config_fields(fields))
    inputs = [fields[name] for name in names]
    started = start.click(partial(_start, services, names), inputs, [planned, panel.opened], **QUIET)
    train_live.look_on(services, panel, started.then)
    started.success(None, None, None, js=SHOW_LIVE)
    gr.context.Context.root_block.load(services.jobs.start_workers, None, None, **QUIET)  # be warm at the first Start
    train_endpoints.build(services)


def _presets() -> tuple[dict[str, gr.Button], gr.HTML]:
    with gr.Row(elem_classes="chips"):
        chips = {
            key: gr.Button(preset.title, size="sm", elem_classes="chip", elem_id=f"preset-{key}")
            for key, preset in PRESETS.items()
        }
    return chips, gr.HTML(_lesson(next(iter(PRESETS))), elem_id="lesson")


def _wire_form(
    services: Services, chips: dict[str, gr.Button], lesson: gr.HTML, fields: train_form.Fields, planned: gr.HTML
) -> None:
    """Presets fill the form, the objective shows what belongs to it, an upload chooses the objective."""
    asked = train_form.config_fields(fields)
    names, inputs = list(asked), list(asked.values())
    latest = gr.State({})  # what the form said last, so that a slow measurement does not overwrite a newer plan

    def from_link(request: gr.Request) -> list[Any]:
        """/train?preset=collapse opens with that preset in the form."""
        preset = request.query_params.get("preset")
        return _fill(services, preset, names) if preset in PRESETS else [gr.skip()] * (1 + len(names))

    def plan_it(event: Any) -> None:
        event.then(partial(_plan, services, names), [latest, *inputs], planned, **QUIET).then(
            partial(_measure, services, names), [latest, *inputs], planned, **QUIET
        )

    for key, chip in chips.items():
        plan_it(chip.click(partial(_fill, services, key, names), None, [lesson, *inputs], **QUIET))
    fields["objective"].change(
        lambda objective: (
            gr.update(info=train_form.OBJECTIVES[objective]),
            gr.update(visible=objective == "classification"),
        ),
        fields["objective"],
        [fields["objective"], fields["concatenation"]],
        **QUIET,
    )
    edited = [component.input for name, component in asked.items() if name not in ("name", "learning_rate")]
    edited.append(fields["learning_rate"].change)  # a text that is pasted is no input to Gradio
    plan_it(gr.on(edited, None, None, None, trigger_mode="always_last", api_visibility="private"))
    uploaded = fields["upload_train"].upload(
        partial(_upload, services),
        fields["upload_train"],
        [fields["train_data"], fields["objective"], planned],
        **QUIET,
    )
    plan_it(uploaded.success(None, None, None))
    plan_it(
        fields["upload_dev"].upload(
            lambda file: _as_choice(services, file, train_form.DEV_DATA),
            fields["upload_dev"],
            fields["eval_data"],
            **QUIET,
        )
    )
    opened = gr.context.Context.root_block.load(
        lambda: gr.update(choices=train_form.base_choices(services.jobs.store.list())),
        None,
        fields["base"],
        **QUIET,
    )
    plan_it(opened.then(from_link, None, [lesson, *inputs], **QUIET))


def _fill(services: Services, key: str, names: list[str]) -> list[Any]:
    base = two_stage_base(services.jobs.store.list()) if key == "two-stage" else None
    return [_lesson(key), *train_form.filled(PRESETS[key], names, base)]


def _plan(services: Services, names: list[str], latest: dict[str, Any], *values: Any) -> str:
    """What the form would do, as far as that is known at once."""
    latest["form"] = values
    try:
        config = to_config(dict(zip(names, values, strict=True)), services.settings.home)
        store = services.jobs.store
        found = estimate_run(config, store)
    except UserFacingError as error:
        return error_message(error)
    rate = known_rate(found, store.list(), store)
    return train_views.planned(found, rate, measuring=rate is None and can_measure_rate(config, store))


def _measure(services: Services, names: list[str], latest: dict[str, Any], *values: Any) -> Any:
    """The same with a rate that is measured now, where it is not known."""
    store = services.jobs.store
    try:
        config = to_config(dict(zip(names, values, strict=True)), services.settings.home)
        found = estimate_run(config, store)
        if known_rate(found, store.list(), store) or not can_measure_rate(config, store):
            return gr.skip()
        rate = measure_rate(found, store)
    except UserFacingError as error:
        return error_message(error)
    return train_views.planned(found, rate) if latest["form"] == values else gr.skip()


def _start(services: Services, names: list[str], *values: Any) -> tuple[Any, Any]:
    """Queue the run -> the plan or the problem, and the run to open."""
    try:
        config = to_config(dict(zip(names, values, strict=True)), services.settings.home)
        estimate_run(config, services.jobs.store)
        run = services.jobs.start(config)
    except UserFacingError as error:
        return error_message(error), gr.skip()
    return gr.skip(), run.id


def _upload(services: Services, file: str) -> tuple[Any, Any, Any]:
    """Keep the file, and choose the objective that its form asks for."""
    choice = _as_choice(services, file, train_form.TRAIN_DATA)
    try:
        kind = load_data(choice["value"]).kind
    except UserFacingError as error:
        return choice, gr.skip(), error_message(error)
    return choice, FITTING.get(kind, gr.skip()), gr.skip()


def _as_choice(services: Services, file: str, known: list[tuple[str, str]]) -> dict[str, Any]:
    kept = train_form.keep_upload(file, services.settings.home)
    return gr.update(choices=[(f"{kept.name} (uploaded)", str(kept)), *known], value=str(kept))


def _lesson(key: str) -> str:
    return f'<p class="note"><b>{PRESETS[key].title}.</b> {PRESETS[key].lesson}</p>'
