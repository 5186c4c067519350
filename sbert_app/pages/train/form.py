"""The form of a run: a component for each field of RunConfig, and their conversion to a RunConfig.

An upload is stored in the home folder under the hash of its content, so that a run that is resumed
later still has it. A typed path of a file on the server is never read, because the app may be open
to other people.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import Update, event_options, on_choice
from sbert_app.pages.components.file_panel import (
    DETECTED,
    Chosen,
    FilePanel,
    chosen_name,
    columns_of,
    open_upload,
)
from sbert_app.pages.components.messages import error_message, gradio_errors, note
from sbert_app.pages.components.pickers import (
    MODELS,
    POOLINGS,
    WORD_ENCODER_LABELS,
    data_choices,
    fresh,
    run_choices,
)
from sbert_app.pages.train.runs import format_learning_rate, optimisation
from sbert_app.services.access import PUBLIC_RUNS, AccessPolicy
from sbert_app.services.container import Services
from sbert_app.services.experiments.experiment import parse_seeds
from sbert_app.services.files.uploads import keep_upload
from sbert_app.services.results.results import data_label
from sbert_app.services.runs.record import PRESETS, Run
from training.catalogue import (
    LABELLED,
    PAIRS,
    SCORED,
    SENTENCES,
    TRIPLETS,
    WORD_ENCODERS,
)
from training.data.load import load_data
from training.data.tables.table import SUFFIXES
from training.errors import InputError, UserFacingError
from training.names import DataName
from training.objectives import OBJECTIVES
from training.objectives.base import HELD_OUT
from training.trainer.config import (
    CHOICES,
    DEFAULT_LEARNING_RATES,
    REPORTERS,
    SETTINGS,
    RunConfig,
    default_learning_rate,
)

TRAIN_DATA = data_choices("train")
DEV_DATA = [*data_choices("dev"), ("a tenth of the training data", HELD_OUT)]
POOLING_CHOICES = [*POOLINGS, ("as the base", "base")]
TEACHERS = [
    ("minilm-stsb: cross-encoder, built in", "minilm-stsb"),
    ("mpnet-stsb: cross-encoder, 404 MB", "mpnet-stsb"),
    ("all-mpnet-base-v2: bi-encoder", "all-mpnet-base-v2"),
    ("all-MiniLM-L6-v2: bi-encoder", "all-MiniLM-L6-v2"),
]
CONCATENATIONS = {"uv": "u, v", "diff": "|u−v|", "mul": "u∗v"}
# The components, or their values, by the field of RunConfig.
Fields = dict[str, Any]
# The rows of two folds. The third, "More options", has the fields that have no other place.
OPTIMISATION = (
    ("epochs", "max_steps", "batch_size"),
    ("learning_rate", "warmup", "seed"),
    ("lora_rank",),
)
EVALUATION = ("eval_data", "eval_every", "patience")
# The fields outside of the folds.
NOT_FOLDED = (
    "objective",
    "concatenation",
    "teacher",
    "pooling",
    "base",
    "train_data",
    "name",
    "mine_negatives",
    "negative_margin",
)
_ELSEWHERE = {*NOT_FOLDED, *chain(*OPTIMISATION), *EVALUATION}
MORE = [name for name in SETTINGS if name not in _ELSEWHERE]
TITLES = {"optimisation": "Optimisation", "evaluation": "Evaluation", "more": "More options"}
# The fields that only some objectives have.
_OWN = {*chain(*(objective.own_fields() for objective in OBJECTIVES.values()))}
OWN_FIELDS = [name for name in MORE if name in _OWN]
KINDS = {
    "seed": gr.Textbox,
    "pooling": gr.Radio,
    "report_to": gr.CheckboxGroup,
    "learning_rate": gr.Textbox,
}
# The objective for each kind of data.
OBJECTIVE_FOR = {
    SCORED: "regression",
    LABELLED: "classification",
    TRIPLETS: "triplet",
    PAIRS: "mnrl",
    SENTENCES: "simcse",
}


def build(services: Services) -> Fields:
    """Builds the form inside the open column, filled with the first preset.

    Returns the components by the fields of RunConfig, and further ones: the folds by the keys of
    `TITLES`, the `DataUpload` of both data sets, and the preview of hard negatives.
    """
    initial = next(iter(PRESETS.values())).config()
    objective = initial.objective_class
    if services.settings.public:
        gr.HTML(note(PUBLIC_RUNS))
    fields: Fields = {
        "objective": component(initial, "objective", info=objective.help, elem_id="objective"),
        "concatenation": component(
            initial, "concatenation", visible="concatenation" in objective.fields
        ),
        "teacher": component(
            initial, "teacher", visible=objective.needs_teacher(), elem_id="train-teacher"
        ),
        "pooling": component(initial, "pooling", visible=objective.trains_vectors()),
        # The choices include the newest runs, so they are read again whenever the page is opened.
        "base": fresh(component(initial, "base", elem_id="train-base"), base_choices),
    }
    fields |= _data(services, initial, "train_data", "train", TRAIN_DATA)
    with _fold("optimisation") as fields["optimisation"]:
        for row in OPTIMISATION:
            fields |= _row(initial, row, min_width=90)
    # Such as "pairs per step".
    fields["batch_size"].info = f"{objective.rows.noun} per step"
    with _fold("evaluation") as fields["evaluation"]:
        fields |= _data(services, initial, "eval_data", "dev", DEV_DATA)
        # The first field is the data set above.
        fields |= _row(initial, EVALUATION[1:], min_width=110)
    # Mining before the run, with a preview, for objectives that learn from negatives.
    with gr.Column(visible=objective.can_mine_negatives, elem_id="negatives") as group:
        fields["negatives_group"] = group
        with gr.Row():
            fields["mine_negatives"] = component(
                initial, "mine_negatives", min_width=180, elem_id="mine-negatives"
            )
            fields["negative_margin"] = component(
                initial, "negative_margin", min_width=120, elem_id="negative-margin"
            )
        with gr.Row(elem_classes="actions"):
            fields["negatives_preview"] = gr.Button(
                "Show some", size="sm", elem_id="preview-negatives"
            )
            fields["negatives_stop"] = gr.Button(
                "Stop", size="sm", visible=False, elem_id="stop-negatives"
            )
        fields["negatives_shown"] = gr.HTML(elem_id="mined-negatives")
    fields["name"] = component(initial, "name", elem_id="run-name")
    # The style sheet puts the fields into two columns.
    with _fold("more") as fields["more"], gr.Row(elem_classes="two-columns"):
        own = objective.own_fields()
        # A field that only some objectives have is hidden if this objective does not have it.
        for name in MORE:
            fields[name] = component(initial, name, visible=name not in OWN_FIELDS or name in own)
    for name, title in fold_titles(initial).items():
        fields[name].label = title
    return fields


def fold_titles(config: RunConfig, seeds: str = "") -> dict[str, str]:
    """Returns the titles of the folds, by the keys of `TITLES`, each with the settings in it.

    ``seeds`` is the text of the field Seed, which may name several; "" for the seed of ``config``.
    """
    changed = []
    for name in MORE:
        setting = SETTINGS[name]
        if getattr(config, name) != setting.default:
            changed.append(setting.label)
    contents = {
        "optimisation": ", ".join(optimisation(config, seeds)),
        "evaluation": data_label(config.eval_data) if config.eval_data else "random pairs only",
        "more": ", ".join(changed) or "none changed",
    }
    return {name: f"{title}: {contents[name]}" for name, title in TITLES.items()}


def changed_fields(values: Fields, preset_values: Fields) -> Fields:
    """Returns the fields whose values differ from the preset's, except the name of the run."""
    changed = {}
    for name, value in values.items():
        is_comparable = name in preset_values and name != "name"
        # An empty field may be None, "" or 0.
        if is_comparable and (value or None) != (preset_values[name] or None):
            changed[name] = value
    return changed


def component(initial: RunConfig, name: str, **options: Any) -> Any:
    """Builds the component of a field, with its label, its help, and its value in the config ``initial``."""
    setting = SETTINGS[name]
    choices = _choices(name)
    if name in KINDS:
        kind = KINDS[name]
    elif choices:
        kind = gr.Dropdown
    else:
        kind = {bool: gr.Checkbox, int: gr.Number, float: gr.Number}.get(setting.type, gr.Textbox)
    if choices:
        options["choices"] = choices
    # If the config allows any value, the choices are only suggestions.
    if kind is gr.Dropdown:
        options["allow_custom_value"] = not setting.choices
    info = setting.sentence()
    # The form takes several seeds, one for each run.
    if name == "seed":
        info += "; several: 0-4"
    # The attribute `words` is the default in words: what an empty field means.
    can_be_empty = setting.default in (None, "") and not choices
    if can_be_empty and setting.words:
        # Gradio's Number turns None into 0 when it becomes visible.
        empty = "0" if kind is gr.Number else "empty"
        info += f"; {empty}: {setting.words}"
    options.setdefault("label", setting.label)
    options.setdefault("info", info)
    return kind(value=shown_values(initial.to_dict())[name], **options)


def _choices(name: str) -> list[Any]:
    """Returns the choices of a field; an empty list for a field that takes any value."""
    concatenations = []
    for value in CHOICES["concatenation"]:
        parts = [CONCATENATIONS[part] for part in value.split("+")]
        concatenations.append((f"({', '.join(parts)})", value))
    choices: dict[str, list[Any]] = {
        # `fresh` adds the runs when the page is opened.
        "base": base_choices([]),
        "concatenation": concatenations,
        "teacher": TEACHERS,
        "pooling": POOLING_CHOICES,
        "train_data": TRAIN_DATA,
        "eval_data": DEV_DATA,
        "report_to": list(REPORTERS),
    }
    return choices.get(name, list(SETTINGS[name].choices))


def _fold(name: str) -> gr.Accordion:
    return gr.Accordion(TITLES[name], open=False, elem_id=f"fold-{name}")


def _data(
    services: Services,
    initial: RunConfig,
    name: str,
    short: str,
    choices: Sequence[tuple[str, str]],
) -> Fields:
    """Builds the picker of a data set, and the button for an upload that the picker then selects.

    Args:
        short: a part of the element ids, and of the key of the upload.
        choices: the choices of the picker, which stay below an upload.
    """
    info = SETTINGS[name].sentence()
    if name == "train_data":
        # The setting's own sentence also describes joined sets, which only the command line has.
        info = "A built-in set, hf:<org>/<name>, or your own file"
    with gr.Row(equal_height=True):
        data = component(initial, name, info=info, scale=4, min_width=300, elem_id=f"{short}-data")
        button = gr.UploadButton(
            "Upload…",
            size="sm",
            file_types=list(SUFFIXES),
            scale=1,
            min_width=90,
            elem_id=f"upload-{short}",
        )
    return {name: data, f"{short}_upload": DataUpload(services, data, button, choices, short)}


def _row(initial: RunConfig, names: Sequence[str], min_width: int) -> Fields:
    with gr.Row():
        return {name: component(initial, name, min_width=min_width) for name in names}


OF_OBJECTIVE = (
    "objective",
    "concatenation",
    "pooling",
    "teacher",
    "negatives_group",
    "batch_size",
    *OWN_FIELDS,
)


def objective_updates(name: str) -> tuple[Any, ...]:
    """Returns the updates of the components `OF_OBJECTIVE`, in this order, for an objective."""
    objective = OBJECTIVES[name]
    return (
        gr.update(info=objective.help),
        gr.update(visible="concatenation" in objective.fields),
        gr.update(visible=objective.trains_vectors()),
        gr.update(visible=objective.needs_teacher()),
        gr.update(visible=objective.can_mine_negatives),
        gr.update(info=f"{objective.rows.noun} per step"),
        *(gr.update(visible=field in objective.own_fields()) for field in OWN_FIELDS),
    )


def config_fields(fields: Fields) -> Fields:
    """Returns the components of fields of RunConfig, without the uploads, the folds and the preview."""
    return {name: component for name, component in fields.items() if name in RunConfig.model_fields}


def to_config(values: Fields, access: AccessPolicy) -> RunConfig:
    """Returns the config with the values of the form, and with the first of several seeds.

    Raises InputError if a value is invalid, or if this visitor may not use it.
    """
    settings = dict(values)
    settings["base"] = (settings["base"] or "").strip()
    settings["name"] = " ".join((settings["name"] or "").split())
    settings["seed"] = parse_seeds(settings["seed"])[0]
    settings["teacher"] = (settings["teacher"] or "").strip() or None
    if settings["pooling"] == "base":
        settings["pooling"] = None
    # A field that is hidden for this objective may still have the value for an earlier objective.
    # An unknown objective is an error of RunConfig below.
    if objective := OBJECTIVES.get(settings["objective"]):
        if not objective.trains_vectors():
            settings["pooling"] = None
        if not objective.needs_teacher():
            settings["teacher"] = None
        can_mine = objective.can_mine_negatives
        settings["mine_negatives"] = can_mine and bool(settings["mine_negatives"])
    for name, setting in SETTINGS.items():
        # Only numbers have a range.
        if not setting.range:
            continue
        value = settings[name]
        if isinstance(value, str):
            try:
                settings[name] = float(value.replace(",", "."))
            except ValueError:
                problem = f"{setting.label} is {value!r}; it must be a number such as 2e-5"
                raise InputError(problem) from None
        # In an optional field, 0 means that there is no value.
        if setting.is_optional:
            settings[name] = settings[name] or None
    if not settings["train_data"]:
        raise InputError("there is no training data yet; upload a file or choose a data set")
    try:
        return access.check_run(RunConfig(**settings))
    except InputError as error:
        raise InputError(_in_words_of_form(str(error))) from error


def _in_words_of_form(message: str) -> str:
    """Returns a message that names fields by their labels, and says what 0 means in a number that may be empty."""
    first, *others = message.split(" ")
    # A message about one field begins with its name.
    setting = SETTINGS.get(first)
    if setting is None:
        return message
    words = [setting.label]
    for word in others:
        # A name without an underscore, such as base, is an ordinary word here.
        is_name = word in SETTINGS and "_" in word
        words.append(SETTINGS[word].label if is_name else word)
    message = " ".join(words)
    # Only numbers have a range.
    if setting.range and setting.is_optional:
        message += f"; 0: {setting.words}"
    return message


def base_choices(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Returns the built-in models, the networks over word vectors, and then every run with a model."""
    built_in = [(name, name) for name in MODELS]
    word_encoders = [(f"{name} ({label})", name) for name, label in WORD_ENCODER_LABELS.items()]
    return [*built_in, *word_encoders, *run_choices(runs)]


def base_updates(base: str | None, objective: str, learning_rate: str) -> tuple[Any, Any]:
    """Returns the updates of the learning rate and the pooling for another base.

    Networks over word vectors have their own pooling.
    """
    is_word_encoder = (base or "").strip() in WORD_ENCODERS
    pooling_update = gr.update(value="base") if is_word_encoder else gr.skip()
    return rate_update(base, objective, learning_rate), pooling_update


def rate_update(base: str | None, objective: str, learning_rate: str) -> Any:
    """Returns the update of the learning rate for another base or objective.

    A rate that is the default of some base and objective is replaced by the default of these; any
    other rate stays.
    """
    rate = format_learning_rate(default_learning_rate(base or "", objective))
    old_rate = learning_rate.strip()
    if old_rate == rate or old_rate not in map(format_learning_rate, DEFAULT_LEARNING_RATES):
        return gr.skip()
    return gr.update(value=rate)


def updates(values: Fields, names: list[str]) -> list[Any]:
    """Returns the updates of the components ``names``, in this order, with the fields of a config."""
    form_values = shown_values(values)
    return [gr.update(value=form_values[name]) for name in names]


def shown_values(values: Fields) -> Fields:
    """Returns the fields of a config as the form shows them."""
    # The choices of the pickers say "base" and "none" for None. If the config has no teacher, the
    # field has the first of TEACHERS, which `to_config` drops unless the objective needs a teacher.
    return values | {
        "pooling": values["pooling"] or "base",
        "eval_data": values["eval_data"] or "none",
        "learning_rate": format_learning_rate(values["learning_rate"]),
        "seed": str(values["seed"]),
        "matryoshka_dims": ", ".join(map(str, values["matryoshka_dims"])),
        "teacher": values["teacher"] or TEACHERS[0][1],
    }


class DataUpload:
    """An upload in place of a named data set, with its panel."""

    def __init__(
        self,
        services: Services,
        data: gr.Dropdown,
        button: gr.UploadButton,
        choices: Sequence[tuple[str, str]],
        name: str,
    ) -> None:
        """Builds the panel inside the open Blocks. It is empty until there is an upload.

        Args:
            data: the picker of the data set.
            choices: the other choices of the picker.
            name: the beginning of the element ids.
        """
        self.services = services
        self.data = data
        self.button = button
        self.choices = choices
        # The path of the unchanged copy of the upload in the home folder; None until there is one.
        # The name of the data set in the picker is this path with the way in which it is read.
        self.original = gr.State(None)
        self.panel = FilePanel(services, button, name, page="train", state=self.original)
        self.outputs = [self.data, self.original, *self.panel.outputs]

    def keep(self, file: str | None) -> Update:
        """Stores and selects an upload, and shows its panel."""
        with gradio_errors():
            if not file:
                raise InputError("the upload holds no file; choose one")
            # Raises InputError if the uploads that are kept leave no room for the file.
            self.services.check_kept_room(Path(file))
        copy = str(keep_upload(file, self.services.settings.home))
        return {**self.read_as(copy), self.original: copy}

    def read_as(
        self,
        original: str | None,
        encoding: str = DETECTED,
        sheet: str | None = None,
        columns: Chosen | None = None,
        scale: str = "",
    ) -> Update:
        """Selects the upload with this encoding and sheet. Without ``columns``, the table's own reading decides.

        ``original`` is the path of its copy, and ``scale`` the scale of the scores or the values of the
        labels.
        """
        original = original or ""
        # The updates if the file cannot be read. The estimate of the run shows the error then.
        panel = self.panel.of(None)
        name = str(DataName(original, encoding or None))
        with suppress(UserFacingError):
            # The path comes from the browser. If it is not the path of an upload, this raises
            # InputError.
            self.services.access.check_data(original)
            # If the file cannot be opened, `describe` says why, and offers other encodings.
            panel = self.panel.describe(original, encoding, sheet)
            table = open_upload(original, encoding, sheet)
            columns = columns or columns_of(table.reading)
            panel = self.panel.of(table, columns, encoding, scale)
            name = chosen_name(self.services, original, encoding, table.sheet, *columns, scale)
        return {**panel, self.data: self._selection(name, original)}

    def take(self, token: str) -> Update:
        """Stores and selects a file that another page has sent. InputError if it is deleted, or no space is left."""
        file = self.services.taken.get(token)
        self.services.access.check_data(file.path)
        self.services.check_kept_room(Path(file.path))
        copy = str(keep_upload(file.path, self.services.settings.home))
        update = self.read_as(copy, file.encoding, file.sheet, file.columns, file.read_as)
        return {**update, self.original: copy}

    def name_columns(self, original: str | None, encoding: str, *columns: str) -> Update:
        """Selects other columns of the upload. ``columns`` are the sheet, the three columns and the scale."""
        with gradio_errors():
            name = chosen_name(self.services, original or "", encoding, *columns)
        return {self.data: self._selection(name, original or "")}

    def wire(
        self,
        name_columns: Callable[..., Update],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        estimate_on: Callable[[Any], None],
    ) -> None:
        """Wires the panel.

        Args:
            name_columns: the method `name_columns`, or a function that takes the values of
                ``inputs`` before the arguments of the method, and also updates ``outputs``.
            estimate_on: ``estimate_on(event.then)`` estimates the run again.
        """
        panel = self.panel
        for picker in (panel.encoding, panel.sheet):
            read_inputs = [self.original, panel.encoding, panel.sheet]
            estimate_on(
                on_choice(picker, self.read_as, read_inputs, self.outputs, queue=False).then
            )
        inputs = [*inputs, self.original, *panel.inputs]
        outputs = [self.data, *outputs]
        for event in (panel.role_event.then, panel.read_as.submit, panel.read_as.blur):
            renamed = event(
                name_columns,
                inputs,
                outputs,
                **event_options(queue=False, trigger_mode="multiple"),
            )
            estimate_on(renamed.then)
        parts = [panel.table, panel.encoding, panel.sheet, panel.read_as, panel.doctor.fold]
        self.data.input(
            _hide_unless_upload,
            self.data,
            parts,
            **event_options(queue=False, trigger_mode="multiple"),
        )

    def _selection(self, name: str, original: str) -> Any:
        """Returns the update of the picker that offers and selects the upload under this data name."""
        choice = (f"{Path(original).name} (uploaded)", name)
        return gr.update(choices=[choice, *self.choices], value=name)


def _hide_unless_upload(name: str | None) -> tuple[Any, ...]:
    """Empties the panel of an upload, and hides its fields and its fold, when a named data set is selected.

    The outputs are the table, three fields and the fold.
    """
    name = name or ""
    # An upload is a path, so its name has a slash. The name of a set may have one, too, such as
    # hf:org/name. The choices "none" and "held-out" do not have one.
    is_upload = "/" in name and not DataName.parse(name).is_set
    if is_upload:
        return (gr.skip(),) * 5
    return ("", *[gr.update(visible=False)] * 4)


def connect_uploads(
    fields: Fields, planned: gr.HTML, estimate_on: Callable[[Any], None]
) -> Callable[[Any], Any]:
    """Wires both uploads of the form. Training data selects the objective that fits it.

    Args:
        planned: shows errors.
        estimate_on: ``estimate_on(event.then)`` estimates the run again.

    Returns:
        A function that takes the file of another page after an event, and returns the next event.
    """
    train = fields["train_upload"]
    dev = fields["dev_upload"]
    # Whether a person has chosen the objective, which stays when the columns of a file change.
    by_hand = gr.State(False)
    fields["objective"].input(
        lambda: True, None, by_hand, **event_options(queue=False, trigger_mode="multiple")
    )

    def with_objective(update: Update) -> Update:
        """Adds the objective that fits the file."""
        try:
            # The update of the picker selects the name of the upload.
            kind = load_data(update[train.data]["value"]).kind
        except UserFacingError as error:
            return {**update, planned: error_message(error)}
        return {**update, fields["objective"]: OBJECTIVE_FOR.get(kind, gr.skip())}

    def with_held_out(update: Update, dev_data: str | None) -> Update:
        """Adds the objective, and evaluates on held-out pairs of the file, unless another data set has been chosen."""
        # For a new file the objective is selected again, even if a person has chosen another one.
        update = {**with_objective(update), by_hand: False}
        if dev_data == SETTINGS["eval_data"].default:
            update[dev.data] = HELD_OUT
        return update

    def keep_train(file: str, dev_data: str | None) -> Update:
        return with_held_out(train.keep(file), dev_data)

    def take(dev_data: str | None, request: gr.Request) -> Update:
        """Takes the file that another page has sent, if there is one in the address."""
        token = request.query_params.get("file")
        if not token:
            # Gradio does not take an empty dictionary for updates.
            return {planned: gr.skip()}
        try:
            return with_held_out(train.take(token), dev_data)
        except UserFacingError as error:
            return {planned: error_message(error)}

    def name_train_columns(is_by_hand: bool, *values: Any) -> Update:
        update = train.name_columns(*values)
        return update if is_by_hand else with_objective(update)

    train_outputs = [*train.outputs, dev.data, fields["objective"], planned, by_hand]
    uploaded = train.button.upload(
        keep_train, [train.button, dev.data], train_outputs, **event_options(queue=False)
    )
    estimate_on(uploaded.success)
    uploaded = dev.button.upload(dev.keep, dev.button, dev.outputs, **event_options(queue=False))
    estimate_on(uploaded.success)
    train.wire(name_train_columns, [by_hand], [fields["objective"], planned], estimate_on)
    dev.wire(dev.name_columns, [], [], estimate_on)
    return lambda event: event.then(take, dev.data, train_outputs, **event_options(queue=False))
