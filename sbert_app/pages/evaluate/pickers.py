"""The pickers of the Evaluate page: models by name and runs, data sets, a file; and the results that ship."""

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import event_options
from sbert_app.pages.components.file_panel import FilePanel, chosen_name
from sbert_app.pages.components.messages import note
from sbert_app.pages.components.pickers import (
    HINT,
    data_choices,
    endpoint_hint,
    fresh,
    model_choices,
    open_dropdown,
)
from sbert_app.pages.components.templates import render
from sbert_app.services.container import Services
from training.catalogue import read_asset
from training.data.dataset import Dataset
from training.data.load import load_data
from training.names import ModelName

MODELS = (
    "all-MiniLM-L6-v2",
    "all-MiniLM-L6-v2:max",
    "all-MiniLM-L6-v2:cls",
    "all-mpnet-base-v2",
    "tfidf",
    "glove",
    "minilm-stsb",
    "mpnet-stsb",
    "bert-base-uncased:mean",
    "bert-base-uncased:cls",
)
KNOWN_MODELS = [(ModelName.parse(name).label, name) for name in MODELS]
DATA = data_choices("scores")
MOST_ROWS = 20_000
OR_HUB = "or hf:<org>/<name>"


def model_dropdown(
    services: Services, value: str | Sequence[str], hint: str = "", **options: Any
) -> gr.Dropdown:
    """Builds a dropdown of models and runs. It takes several models if ``value`` is a list.

    When the page is opened, its choices are read again, with new runs. ``hint`` ends the examples of
    names below the dropdown.
    """
    several = not isinstance(value, str)
    info = f"{HINT}, NAME?dim=64{hint}{endpoint_hint(services)}"
    picker = open_dropdown(
        "Models" if several else "Model",
        KNOWN_MODELS,
        info,
        value=list(value) if several else value,
        multiselect=several,
        scale=2 if several else 1,
        **options,
    )
    return fresh(
        picker, lambda runs: model_choices(services, runs, KNOWN_MODELS, cross_encoders=None)
    )


def file_instead_of(named: gr.Dropdown, **options: Any) -> gr.File:
    """Builds the upload of a file. A file replaces the data set, whose picker ``named`` is hidden then."""
    file = gr.File(label="Your own file", height=120, **options)
    # The handler is quick, so every change is handled at once.
    file.change(
        lambda path: gr.update(visible=path is None),
        file,
        named,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    return file


def shipped(template: str) -> Markup:
    """Renders a shipped result, whose values `scripts/measure_examples.py` has stored in ``assets/examples``."""
    values = json.loads(read_asset(f"examples/{template}.json"))
    html = render(f"evaluate/templates/{template}.html", **values)
    return html + note(f"Shipped with the app: {values['origin']}.")


class ModelAndData:
    """The pickers of a tab that measures one model on one data set: the model, and the data set or a file.

        pickers = ModelAndData(services, "errors", DATA, "stsb:dev")
        tab.wire(measure, pickers.inputs, …)

    In `measure(watch, *values)`, ``pickers.named(*values)`` returns the model and the name of the
    data, and ``pickers.loaded(*values)`` the model and the rows. If the picker takes several models,
    the first value is a list, and ``pickers.rows(*values[1:])`` returns the rows.
    """

    def __init__(
        self,
        services: Services,
        prefix: str,
        data: Sequence[tuple[str, str]],
        value: str,
        models: str | Sequence[str] = MODELS[0],
        label: str = "Data set",
    ) -> None:
        """Builds the pickers inside the open Blocks.

        Args:
            prefix: the beginning of the element ids.
            models: the selected model, or a list if several can be selected.
        """
        self._services = services
        with gr.Row():
            model = model_dropdown(services, models, min_width=260, elem_id=f"{prefix}-model")
            named = open_dropdown(label, data, OR_HUB, value=value, elem_id=f"{prefix}-data")
            file = file_instead_of(named, min_width=260, elem_id=f"{prefix}-file")
        self.panel = FilePanel(services, file, prefix)
        self.inputs = [model, named, file, *self.panel.inputs]

    def named(self, model: str | None, *data: Any) -> tuple[ModelName, str]:
        """Returns the model, and the name of the data for the loaders. Raises InputError if they are not allowed."""
        return ModelName.parse(model or ""), self._data_name(*data)

    def loaded(self, model: str | None, *data: Any) -> tuple[ModelName, Dataset]:
        """Returns the model and the rows. Raises InputError if they are not allowed or cannot be read."""
        return ModelName.parse(model or ""), self.rows(*data)

    def rows(self, *data: Any) -> Dataset:
        """Returns the first `MOST_ROWS` rows, with a note if there are more.

        If the name of the data has no split, the split "test" is read.
        """
        rows = load_data(self._data_name(*data), self._services.settings.home, split="test")
        if len(rows) <= MOST_ROWS:
            return rows
        return rows.select(range(MOST_ROWS), f"the first {MOST_ROWS:,} rows")

    def _data_name(self, data: str, file: str | None, *how: str) -> str:
        # A file takes the place of the named set. ``how`` are the inputs of the panel.
        if file:
            data = chosen_name(self._services, file, *how)
        return self._services.access.check_data(data)
