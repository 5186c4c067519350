"""The pickers that several pages share: model, pooling, cross-encoder. A choice is a (label, value) pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr

from sbert_app.formats import format_time
from sbert_app.pages.components.events import EVERY, UNQUEUED
from sbert_app.services.container import Services
from sbert_app.services.runs.record import Run
from training.catalogue import (
    BILSTM,
    CROSS_ENCODERS,
    DAN,
    DEFAULT_CROSS_ENCODER,
    DEFAULT_MODEL,
    DOWNLOADS,
    ENCODERS,
)
from training.names import DataName, ModelName
from training.pooling import PAPER_POOLINGS, pooling_label

MODELS = list(ENCODERS)
WORD_ENCODER_LABELS = {BILSTM: "InferSent: BiLSTM over GloVe", DAN: "Universal Sentence Encoder: averaging network"}
POOLINGS = [(pooling_label(name), name) for name in PAPER_POOLINGS]
NO_CROSS_ENCODER, NO_MODEL = "none", ""
CROSS_ENCODER_REMARKS = {"minilm-stsb": "built in", "mpnet-stsb": f"stronger; {DOWNLOADS['mpnet-stsb']}"}
CROSS_ENCODER_CHOICES = [
    (NO_CROSS_ENCODER, NO_CROSS_ENCODER),
    *((f"{name} ({CROSS_ENCODER_REMARKS[name]})", name) for name in CROSS_ENCODERS),
    ("cross-encoder/stsb-roberta-base (Hub)", "cross-encoder/stsb-roberta-base"),
]


def model_choices(services: Services) -> list[tuple[str, str]]:
    """The built-in models, with the size of those to download, then every run that has a model, the newest first."""
    to_download = {name: remark for name, remark in DOWNLOADS.items() if not services.models.is_here(name)}
    built_in = [(f"{name} ({to_download[name]})" if name in to_download else name, name) for name in MODELS]
    return built_in + run_choices(services.jobs.store.list())


def run_choices(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """The runs that have a model, by name and time."""
    with_model = [run for run in runs if run.has_model]
    return [
        (f"run: {run.name} ({format_time(run.record.created)})", str(ModelName.of_run(run.id))) for run in with_model
    ]


def data_choices(*names: str, rows: bool = False) -> list[tuple[str, str]]:
    """Built-in data sets by title and split, whether they are on the Hub, and with ``rows`` how much they hold."""
    return [(_data_choice(DataName.parse(name), rows), name) for name in names]


def _data_choice(name: DataName, rows: bool) -> str:
    known = name.built_in
    if known is None:
        return str(name)
    split = "" if known.repo and name.split == next(iter(known.splits)) else name.split
    title = f"{known.title}, {split}" if split and " " in known.title else f"{known.title} {split}".strip()
    title += " (Hub)" * bool(known.repo)
    if not rows:
        return title
    count = known.splits[name.split].rows or 0
    size = f"{count / 1e6:.1f} million" if count >= 1_000_000 else f"{count:,}"
    return f"{title}: {size} {known.form}"


def named_model(text: str | None) -> ModelName:
    """What is typed into a `model_picker`; the default model for nothing. InputError if it is no name of a model."""
    return ModelName.parse((text or "").strip() or DEFAULT_MODEL)


def open_dropdown(label: str, choices: Sequence[Any], info: str, min_width: int = 240, **options: Any) -> gr.Dropdown:
    """A dropdown that takes what is typed as well; the first choice is selected, unless ``value`` is given."""
    first = choices[0]
    options.setdefault("value", first if isinstance(first, str) else first[1])
    return gr.Dropdown(choices, label=label, info=info, allow_custom_value=True, min_width=min_width, **options)


def model_picker(
    services: Services, value: str = DEFAULT_MODEL, label: str = "Model", optional: bool = False, **options: Any
) -> gr.Dropdown:
    """A bi-encoder by name; the list is read anew when the page is opened. ``optional``: or none."""
    none = [("none", NO_MODEL)] if optional else []
    options = {"info": "Or type a Hub id or run:<name>", "elem_classes": "model", **options}
    picker = open_dropdown(label, [*none, *MODELS], value=value, **options)
    root = gr.context.Context.root_block
    root.load(lambda: gr.Dropdown([*none, *model_choices(services)]), None, picker, **UNQUEUED)
    return picker


def pooling_picker(value: str = "mean") -> gr.Radio:
    """mean, max or CLS."""
    return gr.Radio(
        POOLINGS, value=value, label="Pooling", info="From token vectors to a sentence vector", min_width=270
    )


def pooling_radio(own: str, value: str | None = None) -> gr.Radio:
    """An update of ``pooling_picker`` for a model whose own pooling may be none of the three; it is offered too."""
    others = [] if own in PAPER_POOLINGS else [(pooling_label(own), own)]
    return gr.Radio([*POOLINGS, *others], value=value or own)


def model_and_pooling(services: Services) -> tuple[gr.Dropdown, gr.Radio]:
    """Both pickers; choosing a model selects the pooling that it was made with."""
    model, pooling = model_picker(services), pooling_picker()

    def own_pooling(name: str) -> Any:
        own = services.models.own_pooling(named_model(name))
        return gr.skip() if own is None else pooling_radio(own)

    model.change(own_pooling, model, pooling, **EVERY)
    return model, pooling


def cross_encoder_picker(value: str = DEFAULT_CROSS_ENCODER) -> gr.Dropdown:
    """A cross-encoder by name, or none."""
    hint = "Reads both sentences at once"
    return open_dropdown("Cross-encoder", CROSS_ENCODER_CHOICES, hint, value=value, elem_classes="cross")
