"""Pickers that several pages share: model, pooling, cross-encoder, data. A choice is a (label, value) pair."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import gradio as gr

from sbert_app.formats import format_time
from sbert_app.pages.components.events import event_options, on_open
from sbert_app.services.container import Services
from sbert_app.services.runs.record import Run
from training.catalogue import (
    AUTO,
    BILSTM,
    CROSS_ENCODERS,
    DAN,
    DATA_SETS,
    DEFAULT_CROSS_ENCODER,
    DEFAULT_MODEL,
    DOWNLOADS,
    DTYPES,
    ENCODERS,
    LABELLED,
    SCORED,
    TRIPLETS,
    DataSet,
)
from training.errors import InputError
from training.models.model import VectorModel
from training.names import BY_ROLE, ModelName
from training.pooling import PAPER_POOLINGS, pooling_label

MODELS = list(ENCODERS)
NAMED_MODELS = [(name, name) for name in MODELS]
WORD_ENCODER_LABELS = {
    BILSTM: "InferSent: BiLSTM over GloVe",
    DAN: "Deep Averaging Network over GloVe",
}
POOLINGS = [(pooling_label(name), name) for name in PAPER_POOLINGS]
HINT = "or a Hugging Face id, or a run"
NO_CROSS_ENCODER = "none"
NO_MODEL = ""
CROSS_ENCODER_REMARKS = {
    "minilm-stsb": "built in",
    "mpnet-stsb": f"stronger; {DOWNLOADS['mpnet-stsb']}",
}
CROSS_ENCODER_CHOICES = [
    (NO_CROSS_ENCODER, NO_CROSS_ENCODER),
    *((f"{name} ({CROSS_ENCODER_REMARKS[name]})", name) for name in CROSS_ENCODERS),
    ("cross-encoder/stsb-roberta-base (Hub)", "cross-encoder/stsb-roberta-base"),
]

# Returns the choices of a picker, given the runs of this machine.
Choices = Callable[[Sequence[Run]], Sequence[tuple[str, str]]]
# The pickers that `fresh` has marked, until their page is built and `read_anew` takes them.
_fresh: WeakKeyDictionary[gr.Dropdown, Choices] = WeakKeyDictionary()


def fresh(picker: gr.Dropdown, choices: Choices) -> gr.Dropdown:
    """Marks a picker whose choices are read again whenever the page is opened; see `read_anew`."""
    _fresh[picker] = choices
    return picker


def read_anew(services: Services, app: gr.Blocks) -> None:
    """Adds the event of opening a page that reads the choices of the pickers marked by `fresh`.

    It is called once the page is built.
    """
    blocks = set(app.blocks.values())
    pickers = {}
    # A copy, as pickers are removed on the way. The pickers of other pages stay.
    for picker in list(_fresh):
        if picker in blocks:
            pickers[picker] = _fresh.pop(picker)

    def read() -> dict[gr.Dropdown, Any]:
        runs = services.jobs.store.recent()
        return {picker: gr.update(choices=choices(runs)) for picker, choices in pickers.items()}

    if pickers:
        on_open(read, list(pickers))


def model_choices(
    services: Services,
    runs: Iterable[Run],
    named: Sequence[tuple[str, str]] = NAMED_MODELS,
    cross_encoders: bool | None = False,
) -> list[tuple[str, str]]:
    """Returns the ``named`` models, with the sizes of downloads, and then the runs of `run_choices`, newest first.

    ``cross_encoders`` says which runs these are: cross-encoders (True), other models (False), or all
    (None).
    """
    choices = []
    for label, name in named:
        if name in DOWNLOADS and not services.models.is_here(name):
            label = f"{label} ({DOWNLOADS[name]})"
        choices.append((label, name))
    return choices + run_choices(runs, cross_encoders)


def run_choices(runs: Iterable[Run], cross_encoders: bool | None = None) -> list[tuple[str, str]]:
    """Returns the runs with a model, labelled by name and time.

    Args:
        cross_encoders: whether only cross-encoders are returned (True), only other models (False),
            or all (None).
    """
    choices = []
    for run in runs:
        if run.has_model and cross_encoders in (None, run.is_cross_encoder):
            label = f"run: {run.name} ({format_time(run.record.created)})"
            choices.append((label, str(ModelName.of_run(run.id))))
    return choices


class Offer(NamedTuple):
    """The choices of a picker of data.

    Attributes:
        splits: the splits of built-in sets that are offered, by the form of the set.
        first: the choices before the built-in sets.
        last: the choices after the built-in sets.
        has_rows: whether the number of rows is shown.
    """

    splits: dict[str, tuple[str, ...]]
    first: tuple[tuple[str, str], ...] = ()
    last: tuple[tuple[str, str], ...] = ()
    has_rows: bool = False


QUORA = ("Quora duplicates (Hub)", "hf:sentence-transformers/quora-duplicates:pair-class:train")
OFFERS = {
    "train": Offer({SCORED: ("train",), LABELLED: ("train",), TRIPLETS: ("train",)}, has_rows=True),
    "dev": Offer({SCORED: ("dev",)}, last=(("none: random pairs only", "none"),), has_rows=True),
    "ablation": Offer(
        {LABELLED: ("train",)},
        first=(("SNLI dev + test (Hub)", "snli:dev+snli:test"),),
        last=(("STSb, thirds as labels", "stsb:train"),),
    ),
    "scores": Offer({SCORED: ("test", "dev", "train")}),
    "threshold": Offer({SCORED: ("dev", "test"), LABELLED: ("dev",)}, last=(QUORA,)),
    "labels": Offer(
        {LABELLED: ("dev", "test"), TRIPLETS: ("test",)},
        first=(("STSb dev as triplets", "stsb:dev"),),
    ),
    "explore": Offer({SCORED: ("dev", "test", "train"), LABELLED: ("dev",)}),
}


def data_choices(picker: str) -> list[tuple[str, str]]:
    """Returns the choices of a picker of data, one of `OFFERS`."""
    offer = OFFERS[picker]
    choices = list(offer.first)
    for name, source in DATA_SETS.items():
        for split in offer.splits.get(source.form, ()):
            if split in source.splits:
                value = name if len(source.splits) == 1 else f"{name}:{split}"
                choices.append((_data_label(source, split, offer.has_rows), value))
    choices += offer.last
    return choices


def _data_label(source: DataSet, split: str, has_rows: bool) -> str:
    """Returns the title, the split if there are several, "Hub" for a download, and, if ``has_rows``, the row count."""
    label = source.title
    if len(source.splits) > 1:
        # A title of several words is separated by a comma: "STSb dev", but "Wikipedia sections,
        # dev".
        comma = "," if " " in label else ""
        label += f"{comma} {split}"
    # The built-in set, the STS benchmark, has no repository.
    if source.repo:
        label += " (Hub)"
    if not has_rows:
        return label
    # An offer that shows the number of rows has only splits whose number is known.
    count = source.splits[split].rows or 0
    size = f"{count / 1e6:.1f} million" if count >= 1_000_000 else f"{count:,}"
    return f"{label}: {size} {source.form}"


def named_model(text: str | None) -> ModelName:
    """Returns the model in the text of a `model_picker`, or the default one. Raises InputError if it is invalid."""
    return ModelName.parse((text or "").strip() or DEFAULT_MODEL)


def open_dropdown(
    label: str,
    choices: Sequence[Any],
    info: str,
    min_width: int = 240,
    **options: Any,
) -> gr.Dropdown:
    """Builds a dropdown that also accepts typed text. Without a ``value``, the first choice is selected."""
    first = choices[0]
    options.setdefault("value", first if isinstance(first, str) else first[1])
    return gr.Dropdown(
        choices, label=label, info=info, allow_custom_value=True, min_width=min_width, **options
    )


def endpoint_hint(services: Services) -> str:
    """Returns a hint on endpoints and the servers that get the texts, or "" if no endpoint is allowed."""
    allowed = services.settings.allow_endpoints
    if not allowed:
        return ""
    return f"; or endpoint:URL#model, then your texts are sent to {' or '.join(allowed)}"


def model_picker(
    services: Services,
    value: str = DEFAULT_MODEL,
    label: str = "Model",
    optional: bool = False,
    **options: Any,
) -> gr.Dropdown:
    """Builds a picker of a bi-encoder. When the page is opened, its choices are read again, with new runs.

    If ``optional``, it offers "none" as well.
    """
    none = [("none", NO_MODEL)] if optional else []
    options.setdefault("info", HINT + endpoint_hint(services))
    options.setdefault("elem_classes", "model")
    picker = open_dropdown(label, [*none, *MODELS], value=value, **options)
    return fresh(picker, lambda runs: [*none, *model_choices(services, runs)])


def pooling_picker(**options: Any) -> gr.Radio:
    """Builds a picker of the pooling of a model."""
    return gr.Radio(
        POOLINGS,
        value="mean",
        label="Pooling",
        info="Combines token vectors into one",
        min_width=270,
        **options,
    )


def pooling_radio(pooling: str) -> gr.Radio:
    """Returns an update of `pooling_picker` that selects a pooling, even one that the picker does not offer."""
    choice = (pooling_label(pooling), pooling)
    return gr.Radio(list(dict.fromkeys([*POOLINGS, choice])), value=pooling)


def model_and_pooling(services: Services, prefix: str) -> tuple[gr.Dropdown, gr.Radio]:
    """Builds both pickers. Choosing a model selects its own pooling. The element ids begin with ``prefix``."""
    model = model_picker(services, elem_id=f"{prefix}-model")
    pooling = pooling_picker(elem_id=f"{prefix}-pooling")

    def own_pooling(name: str) -> Any:
        own = services.models.own_pooling(named_model(name))
        # The pooling is None before the model has been downloaded, or if it is not a bi-encoder.
        return gr.skip() if own is None else pooling_radio(own)

    model.input(own_pooling, model, pooling, **event_options(queue=False, trigger_mode="multiple"))
    return model, pooling


def cross_encoder_picker(value: str = DEFAULT_CROSS_ENCODER, **options: Any) -> gr.Dropdown:
    """Builds a picker of a cross-encoder, which also offers "none".

    When the page is opened, its choices are read again, with new runs.
    """
    picker = open_dropdown(
        "Cross-encoder",
        CROSS_ENCODER_CHOICES,
        "Reads both sentences at once",
        value=value,
        elem_classes="cross",
        **options,
    )
    return fresh(
        picker, lambda runs: [*CROSS_ENCODER_CHOICES, *run_choices(runs, cross_encoders=True)]
    )


# ---------------------------------------------- dimensions, prompt and precision of a model

ALL_DIMENSIONS = "all"
AS_FOLDER = "as the model's folder says"
NO_PROMPT = "none"
# The beginning of a choice that is the name of a prompt. Other texts are prompts themselves.
BY_NAME = "name: "
DIMENSIONS = (ALL_DIMENSIONS, "512", "256", "128", "64", "32")
ROLES_LABEL = "first: query, second: document"


def model_settings(services: Services, model: gr.Dropdown, roles: bool = False) -> None:
    """Builds controls for the settings of a model, in a fold below its picker.

    The controls edit the name in the picker (`training.names`), so that links, scripts and other
    pages understand it.

    Args:
        roles: whether to offer separate prompts for the first and the second sentence.
    """
    with (
        gr.Accordion("Dimensions, prompt and precision", open=False, elem_classes="model-settings"),
        gr.Row(),
    ):
        dimension = open_dropdown(
            "Dimensions",
            DIMENSIONS,
            "Keep only the first dimensions of each vector (for Matryoshka models)",
            elem_classes="model-dimension",
        )
        prompt = open_dropdown(
            "Prompt",
            (AS_FOLDER, NO_PROMPT),
            "Text before every sentence, or the name of a prompt in the model's folder",
            elem_classes="model-prompt",
        )
        precision = gr.Dropdown(
            [(label, name) for name, label in DTYPES.items()],
            value=AUTO,
            label="Precision",
            info="Number format of the computation; Evaluate › Cost compares them",
            min_width=240,
            elem_classes="model-precision",
        )

    def show(name: str | None) -> tuple[Any, Any, Any]:
        """Shows the settings in the name, and the prompts in the folder of the model."""
        try:
            parsed = ModelName.parse(name or DEFAULT_MODEL)
        except InputError:
            # The page shows the error beside its answer.
            return gr.skip(), gr.skip(), gr.skip()
        prompts = gr.Dropdown(_prompt_choices(services, parsed, roles), value=_prompt_value(parsed))
        return str(parsed.dimension or ALL_DIMENSIONS), prompts, parsed.dtype or AUTO

    controls = [dimension, prompt, precision]
    options = event_options(queue=False, trigger_mode="multiple")
    model.change(show, model, controls, **options)
    # The event ``input`` comes from a person only, so `show` does not call `_with_settings` in
    # turn.
    for control in controls:
        control.input(_with_settings, [model, *controls], model, **options)


def _with_settings(
    name: str | None, dimension: str | None, prompt: str | None, precision: str | None
) -> Any:
    """Returns the name of the model with these settings. Raises gr.Error if one of them is invalid."""
    text = (dimension or ALL_DIMENSIONS).strip()
    if text != ALL_DIMENSIONS and not text.isdecimal():
        raise gr.Error(
            f"dimensions are {text!r}, but must be a whole number or {ALL_DIMENSIONS!r}",
            print_exception=False,
        )
    try:
        parsed = ModelName.parse(name or DEFAULT_MODEL)
    except InputError as error:
        raise gr.Error(error.public, print_exception=False) from error
    # The folder decides if both are None. An empty text stands for no prompt at all.
    prompt_text = None
    prompt_name = None
    if prompt == NO_PROMPT:
        prompt_text = ""
    elif prompt and prompt.startswith(BY_NAME):
        prompt_name = prompt.removeprefix(BY_NAME)
    elif prompt != AS_FOLDER:
        prompt_text = prompt
    model = ModelName(
        parsed.name,
        dimension=None if text == ALL_DIMENSIONS else int(text),
        prompt=prompt_text,
        prompt_name=prompt_name,
        dtype=None if precision == AUTO else precision,
        pooling=parsed.pooling,
    )
    return str(model)


def _prompt_choices(services: Services, model: ModelName, roles: bool) -> list[tuple[str, str]]:
    """Returns the choices of a prompt: the folder's default, none, one for each sentence if ``roles``, and by name.

    The names are in the folder of the model, if it is on this machine.
    """
    choices = [(AS_FOLDER, AS_FOLDER), (NO_PROMPT, NO_PROMPT)]
    if not services.models.is_here(model.name):
        return choices
    try:
        prompts = services.models.get(model.name, VectorModel).prompts
    except InputError:
        # The page shows the error beside its answer.
        return choices
    named = []
    for name, text in prompts.items():
        # An empty prompt is the same as the choice "none".
        if text:
            named.append((f"{name}: “{text.strip()}”", BY_NAME + name))
    # `BY_ROLE` takes the prompts for queries and documents from the folder, so there must be some.
    if roles and named:
        choices.append((ROLES_LABEL, BY_NAME + BY_ROLE))
    return choices + named


def _prompt_value(model: ModelName) -> str:
    """Returns the choice for the prompt in the name of a model."""
    if model.prompt_name is not None:
        return BY_NAME + model.prompt_name
    if model.prompt is None:
        return AS_FOLDER
    # "" is the prompt of a name that asks for none.
    return model.prompt or NO_PROMPT
