"""The Train page: configure a run, start it, follow it, and manage all runs.

Start puts a run into the queue (`services.jobs`), whose worker trains in its own process. A timer
reads the folders of the runs (`services.runs`), so every tab shows every run live, and a reload or
a crash of the app loses nothing.
"""

import json
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import quote

import gradio as gr

from sbert_app.pages.components.address import keep_touched, value_of
from sbert_app.pages.components.events import (
    Questions,
    Update,
    event_options,
    note_action,
    on_open,
    run_js,
)
from sbert_app.pages.components.experiments import Plan, StartForm
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.components.messages import error_message, heading, note
from sbert_app.pages.components.templates import macro
from sbert_app.pages.train import form, live
from sbert_app.pages.train.form import OBJECTIVE_FOR, TRAIN_DATA, connect_uploads, to_config
from sbert_app.pages.train.runs import negatives, plan
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.experiments.experiment import Experiments, new_seeds, parse_seeds
from sbert_app.services.files.uploads import keep_upload
from sbert_app.services.runs.estimate import RunEstimate, estimate_run
from sbert_app.services.runs.record import PRESET_GROUPS, PRESETS, two_stage_base
from training.catalogue import SENTENCES
from training.errors import InputError, UserFacingError
from training.names import ModelName
from training.trainer.config import SETTINGS
from training.trainer.run_extras import check_queueable

# The key and the values of a form that no preset has filled in.
NO_PRESET: tuple[str, form.Fields] = ("", {})
# Numbers that are typed into a text field.
NUMBERS_AS_TEXT = ("learning_rate", "matryoshka_dims", "seed")
FROM_EXPLORE = "The training data are the sentences selected in Explore. Plain sentences are trained with SimCSE."
TAGLINE = "Choose a preset or your own settings, press Start, and watch Spearman’s ρ rise, or the space collapse."
KEEP_PRESET = (
    """(key) => window.nameInAddress(["preset", "settings", "sentences"], [key, "", ""])"""
)
KEEP_CHANGED = """(lesson) => {
  const changed = /data-changed="([^"]*)"/.exec(lesson)?.[1] ?? "";
  window.nameInAddress(["changed"], [decodeURIComponent(changed)]);
}"""
SHOW_SETTINGS = (
    """() => { document.getElementById("settings")?.scrollIntoView({behavior: "smooth"}); }"""
)


def build(services: Services) -> None:
    """Builds the page inside the open Blocks: the form, and beside it the open run and the list of all runs."""
    gr.HTML(heading("Train", TAGLINE))
    with gr.Row(elem_id="train"):
        with gr.Column(scale=5, min_width=330, elem_id="train-choice"):
            first = next(iter(PRESETS))
            by_group = sorted(PRESETS, key=lambda key: PRESET_GROUPS.index(PRESETS[key].group))
            presets = [(f"{PRESETS[key].group}: {PRESETS[key].title}", key) for key in by_group]
            preset = gr.Dropdown(presets, value=first, label="Preset", elem_id="preset")
            # The key of the preset that has filled the form, and the values of its fields.
            preset_state = gr.State((first, form.shown_values(PRESETS[first].fields())))
            lesson = gr.HTML(_lesson(first), elem_id="lesson")
            planned = gr.HTML(macro("plan")(["Estimating the run"], "…", "", ()), elem_id="plan")
            start = gr.Button("Start", variant="primary", size="lg", elem_id="start")
            download = gr.Button(
                "Download the base", size="sm", visible=False, elem_id="download-base"
            )
            # Only phones show this button.
            to_settings = gr.Button("Change the settings ↓", size="sm", elem_id="to-settings")
            run_js(to_settings.click, SHOW_SETTINGS)
            with gr.Column(elem_id="settings"):
                fields = form.build(services)
                # Start is disabled while a file is uploaded.
                for upload in ("train_upload", "dev_upload"):
                    fields[upload].panel.hold([start])
        with gr.Column(scale=7, min_width=330, elem_id="live"):
            panel = live.RunPanel(services)
    refresh_on = panel.wire()
    start_form = _connect_form(services, (preset, preset_state, lesson), fields, planned, download)
    queue = partial(_start, services, list(form.config_fields(fields)))
    started = start_form.start_on(start, queue, panel.selected)
    run_js(refresh_on(started.success).then, live.REMEMBER_RUN)
    # The start or the end of a run may have shown the speed of this machine, which the estimate
    # needs.
    start_form.estimate_on(panel.running.change)
    run_js(started.success, "() => window.showLive()")
    # A worker takes seconds to start, so it starts before anybody presses Start.
    on_open(services.jobs.start_workers)


def _connect_form(
    services: Services,
    preset_components: tuple[gr.Dropdown, gr.State, gr.HTML],
    fields: form.Fields,
    planned: gr.HTML,
    download: gr.Button,
) -> StartForm:
    """Wires the form: presets fill it, the objective shows the fields it needs, an upload selects the objective.

    Returns the `StartForm`, to which the caller adds the button Start.
    """
    config_fields = form.config_fields(fields)
    names = list(config_fields)
    inputs = list(config_fields.values())
    preset, preset_state, lesson = preset_components
    outputs = [preset, preset_state, lesson, *inputs]
    unchanged = [gr.skip()] * len(outputs)
    # Not empty once a person has chosen a preset (`note_action`). Then the address does not fill in
    # the form any more.
    preset_chosen = gr.State({})

    def describe(run: RunEstimate, *values: Any) -> Update:
        """Updates the titles of the folds, and the changes from the preset that filled the form."""
        # After the values of the inputs comes the state of the preset.
        *field_values, (key, preset_values) = values
        form_values = dict(zip(names, field_values, strict=True))
        is_base_missing = bool(services.models.missing([run.config.base]))
        update: Update = {download: gr.update(visible=is_base_missing)}
        for name, title in form.fold_titles(run.config, form_values["seed"]).items():
            update[fields[name]] = gr.update(label=title)
        # Without a key, the values come from a link and do not belong to a preset.
        if key:
            update[lesson] = _lesson(key, form.changed_fields(form_values, preset_values))
        return update

    estimate = partial(_estimate, services, names)
    described = [lesson, download, *(fields[name] for name in form.TITLES)]
    start_form = StartForm(
        services.jobs.store, [*inputs, preset_state], planned, estimate, describe, described
    )

    def fill_from_link(preset_chosen: Questions, request: gr.Request) -> list[Any]:
        if preset_chosen:
            # A person has chosen a preset while the page was opening, and it stays.
            return unchanged
        return _fill_from_link(services, config_fields, request) or unchanged

    def fill_form(preset_chosen: Questions, key: str) -> list[Any]:
        # Changes the dictionary in place, so the state is not an output.
        note_action(preset_chosen)
        return _fill(services, names, key)

    run_js(preset.input, KEEP_PRESET, preset)
    run_js(lesson.change, KEEP_CHANGED, lesson)
    # `preset.input` and `base.input` have several listeners. In another mode, Gradio would send the
    # event again to all of them ("multiple" at `event_options`).
    picked = preset.input(
        fill_form,
        [preset_chosen, preset],
        outputs,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    start_form.estimate_on(picked.then)
    objective = fields["objective"]
    objective.change(
        form.objective_updates,
        objective,
        [fields[name] for name in form.OF_OBJECTIVE],
        **event_options(queue=False),
    )
    base = fields["base"]
    rate = fields["learning_rate"]
    base.input(
        form.base_updates,
        [base, objective, rate],
        [rate, fields["pooling"]],
        **event_options(queue=False, trigger_mode="multiple"),
    )
    objective.input(
        form.rate_update,
        [base, objective, rate],
        rate,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    _connect_negatives(services, fields, names)
    start_form.estimate_on(_connect_download(services, base, planned, download).change)
    # The name of a run does not change its estimate.
    edited = [fields[name].input for name in names if name not in ("name", *NUMBERS_AS_TEXT)]
    # A paste does not fire an input event of Gradio.
    edited += [fields[name].change for name in NUMBERS_AS_TEXT]
    start_form.estimate_on(partial(gr.on, edited))
    take_file_after = connect_uploads(fields, planned, start_form.estimate_on)

    opened = on_open().then(fill_from_link, preset_chosen, outputs, **event_options(queue=False))
    filled_in = take_file_after(opened)
    start_form.estimate_on(keep_touched([preset, *inputs], filled_in).then)
    return start_form


def _connect_download(
    services: Services, base: gr.Dropdown, planned: gr.HTML, button: gr.Button
) -> gr.HTML:
    """Wires the button that downloads a base. Returns a component that changes after each download."""
    downloaded = gr.HTML("", visible="hidden")
    downloads = count()
    tab = MeasureTab(
        services, "base", planned, button, stopped="stopped: the base is not on this machine yet."
    )

    def download(watch: Watch, name: str) -> Update:
        services.models.download([ModelName.parse((name or "").strip())], watch)
        return {planned: "", downloaded: str(next(downloads))}

    tab.on(button.click, tab.handler(download, {}), [base], [downloaded])
    return downloaded


def _fill(
    services: Services, names: list[str], key: str, changes: form.Fields | None = None
) -> list[Any]:
    """Returns the preset, the state with its key and values, its lesson, and the updates of the fields ``names``.

    Args:
        changes: updates of fields, by name, that replace the values of the preset.
    """
    values = PRESETS[key].fields()
    if key == "two-stage":
        # The second stage continues the newest run on NLI, or starts from the default model.
        values["base"] = two_stage_base(services.jobs.store.recent())
    updates = dict(zip(names, form.updates(values, names), strict=True))
    updates |= changes or {}
    return [key, (key, form.shown_values(values)), _lesson(key), *updates.values()]


def _fill_from_link(
    services: Services, fields: form.Fields, request: gr.Request
) -> list[Any] | None:
    """Fills the form from the address: a ?preset with ?changed fields, or the ?settings of a run.

    ?sentences=<token> names sentences from another page, which become the training data.

    Returns updates in the order of `_fill`. None if the address has none of these parameters, so
    that the form stays as it is.
    """
    query = request.query_params
    names = list(fields)
    try:
        if token := query.get("sentences"):
            changes = _sent_sentences(services, token)
            updates = [changes.get(name, gr.skip()) for name in names]
            return [None, NO_PRESET, note(FROM_EXPLORE), *updates]
        if run_id := query.get("settings"):
            run = services.jobs.store.get(run_id)
            check_queueable(run.config)
            # The new run does not take over the name.
            updates = form.updates(run.config.to_dict() | {"name": ""}, names)
            return [None, NO_PRESET, note(f"The settings of {run.name}."), *updates]
    except UserFacingError as error:
        return [None, NO_PRESET, error_message(error), *[gr.skip()] * len(names)]
    changes = from_address(query.get("changed", ""), fields)
    # ?changed without ?preset changes the first preset, with which the page opens.
    default = next(iter(PRESETS)) if changes else ""
    key = query.get("preset", default)
    if key not in PRESETS:
        return None
    return _fill(services, names, key, changes)


def _estimate(services: Services, names: list[str], *values: Any) -> tuple[RunEstimate, Plan]:
    """Returns the estimate of one run, and the function that renders the plan of the runs of all seeds.

    Args:
        values: the values of the fields ``names``, then the state of the preset.
    """
    form_values = dict(zip(names, values, strict=False))
    config = to_config(form_values, services.access)
    estimate = estimate_run(config, services.jobs.store)
    missing = services.models.missing([estimate.config.base])
    notes = [f"not on this machine yet: {model}" for model in missing]
    estimate = replace(estimate, notes=(*notes, *estimate.notes))
    return estimate, partial(plan, estimate, seeds=len(parse_seeds(form_values["seed"])))


def _start(services: Services, names: list[str], visitor: str, *values: Any) -> str:
    """Queues the run, or one for each seed. Returns the id of the first."""
    estimate, _ = _estimate(services, names, *values)
    config = estimate.config
    if missing := services.models.missing([config.base]):
        raise InputError(f"the base is not on this machine yet: {missing[0]}; download it first")
    seeds = str(values[names.index("seed")])
    if len(parse_seeds(seeds)) == 1:
        return services.jobs.start(config, visitor).id
    experiments = Experiments(services.jobs, services.access.check_run)
    return experiments.start(new_seeds(config, seeds), visitor).runs[0].id


def _lesson(key: str, changed: form.Fields | None = None) -> str:
    """Renders what a preset teaches, and which fields have been changed since it filled the form."""
    labels = [SETTINGS[name].label for name in changed or ()]
    return macro("train/lesson")(PRESETS[key], labels, to_address(changed or {}))


def _connect_negatives(services: Services, fields: form.Fields, names: list[str]) -> None:
    """Wires the preview of mined hard negatives. ``names`` are the fields of a RunConfig, in order."""
    tab = MeasureTab(
        services,
        "negatives",
        status=fields["negatives_shown"],
        start=fields["negatives_preview"],
        stop=fields["negatives_stop"],
        stopped="stopped before the negatives were found.",
    )

    def preview(watch: Watch, *values: Any) -> Update:
        """Mines hard negatives as a run with these values would, and shows some of them."""
        # The import of torch takes seconds.
        from training.trainer.negatives import PREVIEWED, mine_for

        form_values = dict(zip(names, values, strict=True))
        config = to_config({**form_values, "mine_negatives": True}, services.access)
        stage = watch.stage("Encoding the training data")
        mined = mine_for(
            config,
            services.settings.home,
            should_stop=stage.should_stop,
            on_progress=stage.on_progress,
        )
        # The last note of the data is about the mining.
        return {tab.status: negatives(mined.data.notes[-1], mined.examples(PREVIEWED))}

    tab.wire(preview, [fields[name] for name in names], {})


def to_address(changed: form.Fields) -> str:
    """Returns the changed fields as a parameter of the address, without uploads."""
    # The value of an upload is its path.
    fields = {name: value for name, value in changed.items() if not str(value).startswith("/")}
    return quote(json.dumps(fields, separators=(",", ":"))) if fields else ""


def from_address(text: str, fields: form.Fields) -> dict[str, Any]:
    """Returns the updates of the changed fields in an address, without invalid ones."""
    try:
        changed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(changed, dict):
        return {}
    updates = {}
    for name, value in changed.items():
        if name not in fields:
            continue
        items = value if isinstance(value, list) else [value]
        texts = ["" if item is None else str(item) for item in items]
        field_value = value_of(fields[name], texts)
        # An invalid value is skipped.
        if field_value != gr.skip():
            updates[name] = gr.update(value=field_value)
    return updates


def _sent_sentences(services: Services, token: str) -> dict[str, Any]:
    """Returns the updates of fields, by name, that make sentences of another page the training data for SimCSE.

    Raises InputError if the sentences have been deleted, or if there is not enough space for them.
    """
    file = services.shared_sentences.path(token)
    services.check_kept_room(file)
    copy = keep_upload(file, services.settings.home)
    choices = [(f"{copy.name} (from Explore)", str(copy)), *TRAIN_DATA]
    return {
        "train_data": gr.update(choices=choices, value=str(copy)),
        "objective": OBJECTIVE_FOR[SENTENCES],
    }
