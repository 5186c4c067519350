"""The pickers that several pages share: model, pooling, cross-encoder, data. A choice is a (label, value) pair."""

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
WORD_ENCODER_LABELS = {BILSTM: "InferSent: BiLSTM over GloVe", DAN: "Deep Averaging Network over GloVe"}
POOLINGS = [(pooling_label(name), name) for name in PAPER_POOLINGS]
HINT = "or a Hugging Face id, or a run"
NO_CROSS_ENCODER = "none"
NO_MODEL = ""
CROSS_ENCODER_REMARKS = {"minilm-stsb": "built in", "mpnet-stsb": f"stronger; {DOWNLOADS['mpnet-stsb']}"}
CROSS_ENCODER_CHOICES = [
    (NO_CROSS_ENCODER, NO_CROSS_ENCODER),
    *((f"{name} ({CROSS_ENCODER_REMARKS[name]})", name) for name in CROSS_ENCODERS),
    ("cross-encoder/stsb-roberta-base (Hub)", "cross-encoder/stsb-roberta-base"),
]

# The choices of a picker, from the runs of this machine.
Choices = Callable[[Sequence[Run]], Sequence[tuple[str, str]]]
# The pickers of the page that is being built.
_fresh: WeakKeyDictionary[gr.Dropdown, Choices] = WeakKeyDictionary()


def fresh(picker: gr.Dropdown, choices: Choices) -> gr.Dropdown:
    """Marks a picker whose choices are read anew when its page is opened; see `read_anew`."""
    _fresh[picker] = choices
    return picker


def read_anew(services: Services, app: gr.Blocks) -> None:
    """Ends a page of ``app``: one event reads the runs, once, for all pickers of the page that are `fresh`."""
    blocks = set(app.blocks.values())
    pickers = {picker: _fresh.pop(picker) for picker in [*_fresh] if picker in blocks}

    def read() -> dict[gr.Dropdown, Any]:
        runs = services.jobs.store.recent()
        return {picker: gr.update(choices=choices(runs)) for picker, choices in pickers.items()}

    if pickers:
        on_open(read, [*pickers])


def model_choices(
    services: Services,
    runs: Iterable[Run],
    named: Sequence[tuple[str, str]] = NAMED_MODELS,
    cross_encoders: bool | None = False,
) -> list[tuple[str, str]]:
    """The ``named`` models, with the size of those to download, then the runs of `run_choices`, newest first."""
    sizes = {name: f" ({remark})" for name, remark in DOWNLOADS.items() if not services.models.is_here(name)}
    return [*((label + sizes.get(name, ""), name) for label, name in named), *run_choices(runs, cross_encoders)]


def run_choices(runs: Iterable[Run], cross_encoders: bool | None = None) -> list[tuple[str, str]]:
    """The runs with a model, by name and time. ``cross_encoders``: only those (True), none of them (False), or all."""
    return [
        (f"run: {run.name} ({format_time(run.record.created)})", str(ModelName.of_run(run.id)))
        for run in runs
        if run.has_model and cross_encoders in (None, run.is_cross_encoder)
    ]


class Offer(NamedTuple):
    """The data of a picker: splits of built-in sets by their form, further choices, and whether rows are counted."""

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
    "labels": Offer({LABELLED: ("dev", "test"), TRIPLETS: ("test",)}, first=(("STSb dev as triplets", "stsb:dev"),)),
    "explore": Offer({SCORED: ("dev", "test", "train"), LABELLED: ("dev",)}),
}


def data_choices(picker: str) -> list[tuple[str, str]]:
    """The choices of a picker of data, one of `OFFERS`: built-in sets by title and split."""
    offer = OFFERS[picker]
    built_in = [
        (_data_choice(source, split, offer.has_rows), name if list(source.splits) == [split] else f"{name}:{split}")
        for name, source in DATA_SETS.items()
        for split in offer.splits.get(source.form, ())
        if split in source.splits
    ]
    return [*offer.first, *built_in, *offer.last]


def _data_choice(source: DataSet, split: str, has_rows: bool) -> str:
    comma = "," if " " in source.title else ""
    title = source.title if list(source.splits) == [split] else f"{source.title}{comma} {split}"
    title += " (Hub)" if source.repo else ""
    count = source.splits[split].rows or 0
    size = f"{count / 1e6:.1f} million" if count >= 1_000_000 else f"{count:,}"
    return f"{title}: {size} {source.form}" if has_rows else title


def named_model(text: str | None) -> ModelName:
    """The model that was typed into a `model_picker`, by default the default model. InputError for an invalid name."""
    return ModelName.parse((text or "").strip() or DEFAULT_MODEL)


def open_dropdown(label: str, choices: Sequence[Any], info: str, min_width: int = 240, **options: Any) -> gr.Dropdown:
    """A dropdown that accepts typed text too; the first choice is selected, unless ``value`` says otherwise."""
    first = choices[0]
    options.setdefault("value", first if isinstance(first, str) else first[1])
    return gr.Dropdown(choices, label=label, info=info, allow_custom_value=True, min_width=min_width, **options)


def endpoint_hint(services: Services) -> str:
    """The hint of a picker on endpoints: their names, and where texts are sent; "" if none is allowed."""
    allowed = services.settings.allow_endpoints
    return f"; or endpoint:URL#model, then your texts are sent to {' or '.join(allowed)}" if allowed else ""


def model_picker(
    services: Services, value: str = DEFAULT_MODEL, label: str = "Model", optional: bool = False, **options: Any
) -> gr.Dropdown:
    """A picker of a bi-encoder, or of none if ``optional``; its list is read anew when the page is opened."""
    none = [("none", NO_MODEL)] if optional else []
    options.setdefault("info", HINT + endpoint_hint(services))
    options.setdefault("elem_classes", "model")
    picker = open_dropdown(label, [*none, *MODELS], value=value, **options)
    return fresh(picker, lambda runs: [*none, *model_choices(services, runs)])


def pooling_picker(**options: Any) -> gr.Radio:
    hint = "Combines token vectors into one"
    return gr.Radio(POOLINGS, value="mean", label="Pooling", info=hint, min_width=270, **options)


def pooling_radio(own: str) -> gr.Radio:
    """An update of `pooling_picker` for a model with this pooling, which is offered even if it is none of the three."""
    others = [] if own in PAPER_POOLINGS else [(pooling_label(own), own)]
    return gr.Radio([*POOLINGS, *others], value=own)


def model_and_pooling(services: Services, prefix: str) -> tuple[gr.Dropdown, gr.Radio]:
    """Both pickers, with ids that begin with ``prefix``; choosing a model selects the pooling it was trained with."""
    model = model_picker(services, elem_id=f"{prefix}-model")
    pooling = pooling_picker(elem_id=f"{prefix}-pooling")

    def own_pooling(name: str) -> Any:
        own = services.models.own_pooling(named_model(name))
        return gr.skip() if own is None else pooling_radio(own)

    model.input(own_pooling, model, pooling, **event_options(queue=False, trigger_mode="multiple"))
    return model, pooling


def cross_encoder_picker(value: str = DEFAULT_CROSS_ENCODER, **options: Any) -> gr.Dropdown:
    """A picker of a cross-encoder, or of none; its list is read anew when the page is opened."""
    hint = "Reads both sentences at once"
    picker = open_dropdown("Cross-encoder", CROSS_ENCODER_CHOICES, hint, value=value, elem_classes="cross", **options)
    return fresh(picker, lambda runs: [*CROSS_ENCODER_CHOICES, *run_choices(runs, True)])


# ---------------------------------------------------------------- dimensions, prompt and precision of a model

ALL = "all"
AS_FOLDER = "as the model's folder says"
NO_PROMPT = "none"
DIMENSIONS = (ALL, "512", "256", "128", "64", "32")
ROLES_LABEL = "first: query, second: document"


def model_settings(services: Services, model: gr.Dropdown, roles: bool = False) -> None:
    """Builds controls below the picker of a model, in a fold; ``roles`` offers a prompt for each of two sentences.

    The controls edit the name in the picker (`training.names`), so that links, scripts and other pages understand it.
    """
    with gr.Accordion("Dimensions, prompt and precision", open=False, elem_classes="model-settings"), gr.Row():
        hint = "Keep only the first dimensions of each vector (for Matryoshka models)"
        dimension = open_dropdown("Dimensions", DIMENSIONS, hint, elem_classes="model-dimension")
        hint = "Text before every sentence, or the name of a prompt in the model's folder"
        prompt = open_dropdown("Prompt", (AS_FOLDER, NO_PROMPT), hint, elem_classes="model-prompt")
        hint = "Number format of the computation; Evaluate › Cost compares them"
        precision = gr.Dropdown(
            [(label, name) for name, label in DTYPES.items()],
            value=AUTO,
            label="Precision",
            info=hint,
            min_width=240,
            elem_classes="model-precision",
        )

    def show(name: str | None) -> tuple[Any, Any, Any]:
        """The settings in the name, and the prompts in the folder of the model."""
        try:
            parsed = ModelName.parse(name or DEFAULT_MODEL)
        except InputError:
            # The page shows the error beside its answer.
            return gr.skip(), gr.skip(), gr.skip()
        prompts = gr.Dropdown(_prompt_choices(services, parsed, roles), value=_prompt_value(parsed))
        return str(parsed.dimension or ALL), prompts, parsed.dtype or AUTO

    model.change(show, model, [dimension, prompt, precision], **event_options(queue=False, trigger_mode="multiple"))
    for control in (dimension, prompt, precision):
        control.input(
            _with_settings,
            [model, dimension, prompt, precision],
            model,
            **event_options(queue=False, trigger_mode="multiple"),
        )


def _with_settings(name: str | None, dimension: str | None, prompt: str | None, precision: str | None) -> Any:
    """The name of the model with these settings. Raises gr.Error if one of them is invalid."""
    text = (dimension or ALL).strip()
    if text != ALL and not text.isdecimal():
        raise gr.Error(f"dimensions are {text!r}, but must be a whole number or {ALL!r}", print_exception=False)
    try:
        parsed = ModelName.parse(name or DEFAULT_MODEL)
    except InputError as error:
        raise gr.Error(error.public, print_exception=False) from error
    wording = prompt if prompt is not None else AS_FOLDER
    by_name = wording.removeprefix("name: ") if wording.startswith("name: ") else None
    return str(
        ModelName(
            parsed.name,
            None if text == ALL else int(text),
            None if wording == AS_FOLDER or by_name else "" if wording == NO_PROMPT else wording,
            by_name,
            None if precision in (None, AUTO) else precision,
            parsed.pooling,
        )
    )


def _prompt_choices(services: Services, model: ModelName, roles: bool) -> list[tuple[str, str]]:
    """The prompts to choose from: none, those of the folder, and with ``roles`` one for each of two sentences."""
    choices = [(AS_FOLDER, AS_FOLDER), (NO_PROMPT, NO_PROMPT)]
    if not services.models.is_here(model.name):
        return choices
    try:
        prompts = services.models.get(model.name, VectorModel).prompts
    except InputError:
        return choices
    named = [(f"{name}: “{text.strip()}”", f"name: {name}") for name, text in prompts.items() if text]
    by_role = [(ROLES_LABEL, f"name: {BY_ROLE}")] if roles and named else []
    return choices + by_role + named


def _prompt_value(model: ModelName) -> str:
    if model.prompt_name is not None:
        return f"name: {model.prompt_name}"
    return AS_FOLDER if model.prompt is None else model.prompt or NO_PROMPT
