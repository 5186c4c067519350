"""Pickers of the Evaluate page: models known by name and runs, data sets, a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.components.pickers import HINT, endpoint_hint, open_dropdown, run_choices
from sbert_app.pages.components.upload_options import UploadOptions, chosen_name
from sbert_app.services.container import Services
from training.catalogue import DOWNLOADS
from training.data.dataset import Dataset
from training.models.scorer import ENCODER, kind_of
from training.names import DataName, ModelName

MODELS = (
    *("all-MiniLM-L6-v2", "all-MiniLM-L6-v2:max", "all-MiniLM-L6-v2:cls", "all-mpnet-base-v2", "tfidf", "glove"),
    *("minilm-stsb", "mpnet-stsb", "bert-base-uncased:mean", "bert-base-uncased:cls"),
)
KNOWN_MODELS = [(ModelName.parse(name).label, name) for name in MODELS]
STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb:test", "stsb:dev", "stsb:train", "sickr")
DATA = [(DataName.parse(name).label, name) for name in STS]
MOST_ROWS = 20_000
FILE_REPLACES = "Or type hf:<org>/<name>; an uploaded file replaces this"


def model_dropdown(services: Services, value: str | Sequence[str], hint: str = "", **options: Any) -> gr.Dropdown:
    """A dropdown of models by name, multiselect where ``value`` is a list; runs are added when the page is opened."""
    several, info = not isinstance(value, str), f"{HINT}, NAME?dim=64{hint}{endpoint_hint(services)}"
    options |= {"value": list(value) if several else value, "multiselect": several}
    picker = open_dropdown("Models" if several else "Model", KNOWN_MODELS, info, **options)
    root = gr.context.Context.root_block
    root.load(lambda: gr.Dropdown(_model_choices(services)), None, picker, **PRIVATE)
    return picker


def dimension_adder(models: gr.Dropdown) -> gr.Dropdown:
    """Adds the chosen bi-encoders once more, cut to their first dimensions."""
    label, hint = "Add these models with fewer dimensions", "The first so many numbers of each vector (Matryoshka)"
    picker = open_dropdown(label, ("256", "128", "64", "32"), hint, value=None, elem_id="evaluate-dimension")
    picker.input(_with_dimension, [models, picker], [models, picker], **UNQUEUED)
    return picker


def _with_dimension(chosen: list[str], dimension: str | None) -> tuple[list[str], None]:
    """``chosen`` and each bi-encoder among them with that many dimensions."""
    text = (dimension or "").strip()
    if not text:  # the field was left as it was
        return chosen, None
    if not text.isdecimal() or int(text) < 1:
        raise gr.Error(f"dimensions are {text!r}, but must be a whole number from 1", print_exception=False)
    models = [ModelName.parse(name) for name in chosen]
    whole = [model for model in models if kind_of(model) == ENCODER and not model.has_settings]
    added = [str(replace(model, dimension=int(text))) for model in whole]
    return list(dict.fromkeys([*chosen, *added])), None


class ModelAndData:
    """The pickers of a tab that measures one model on one data set: the model, the data or a file, how that is read.

    pickers = ModelAndData(services, "errors", DATA, "stsb:dev")
    tab.wire(measure, pickers.inputs, …)     measure(watch, *values): model, name = pickers.chosen(*values)
                                             or model, data = pickers.loaded(*values)
    """

    def __init__(self, services: Services, prefix: str, data: Sequence[tuple[str, str]], value: str) -> None:
        """Build them inside the open Blocks; ``prefix`` is that of their ids."""
        self._services = services
        with gr.Row():
            model = model_dropdown(services, MODELS[0], min_width=260, elem_id=f"{prefix}-model")
            named = open_dropdown("Data set", data, FILE_REPLACES, value=value, elem_id=f"{prefix}-data")
            file = file_picker(min_width=260, elem_id=f"{prefix}-file")
        self.inputs = [model, named, file, *UploadOptions(file, prefix).inputs]

    def chosen(self, model: str | None, data: str, file: str | None, *how: str) -> tuple[ModelName, str]:
        """The model, and the name of the data for the loaders. InputError unless a visitor may name them."""
        name = self._services.access.check_data(chosen_name(self._services, file, *how) if file else data)
        return ModelName.parse(model or ""), name

    def loaded(self, model: str | None, *data: Any) -> tuple[ModelName, Dataset]:
        """The model and the rows. InputError as `chosen`, or if they cannot be read."""
        from training.data.load import load_data

        chosen, name = self.chosen(model, *data)
        return chosen, load_data(name, self._services.settings.home, split="test")


def first_rows(data: Dataset) -> Dataset:
    """The first 20,000 rows, with a note if there are more."""
    return data if len(data) <= MOST_ROWS else data.select(range(MOST_ROWS), f"the first {MOST_ROWS:,} rows")


def file_picker(**options: Any) -> gr.File:
    """Upload of one file."""
    return gr.File(label="Your own file", height=120, **options)


def _model_choices(services: Services) -> list[tuple[str, str]]:
    """(label, name) of the models that can be evaluated: those known by name, with the size of those to download, and
    runs that have a model.
    """
    sizes = {name: f" ({remark})" for name, remark in DOWNLOADS.items() if not services.models.is_here(name)}
    known = [(label + sizes.get(name, ""), name) for label, name in KNOWN_MODELS]
    return known + run_choices(services.jobs.store.list())
