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
from training.names import ModelName

MODELS = (
    *(
        "all-MiniLM-L6-v2",
        "all-MiniLM-L6-v2:max",
        "all-MiniLM-L6-v2:cls",
        "all-mpnet-base-v2",
        "tfidf",
        "glove",
    ),
    *("minilm-stsb", "mpnet-stsb", "bert-base-uncased:mean", "bert-base-uncased:cls"),
)
KNOWN_MODELS = [(ModelName.parse(name).label, name) for name in MODELS]
DATA = data_choices("scores")
MOST_ROWS = 20_000
OR_HUB = "or hf:<org>/<name>"


def model_dropdown(
    services: Services, value: str | Sequence[str], hint: str = "", **options: Any
) -> gr.Dropdown:
    """A dropdown of models by name, for several if ``value`` is a list; runs are added when the page is opened."""
    several = not isinstance(value, str)
    info = f"{HINT}, NAME?dim=64{hint}{endpoint_hint(services)}"
    options |= {"value": list(value) if several else value, "multiselect": several}
    picker = open_dropdown("Models" if several else "Model", KNOWN_MODELS, info, **options)
    return fresh(picker, lambda runs: model_choices(services, runs, KNOWN_MODELS, None))


def file_and_data(named: gr.Dropdown, **options: Any) -> gr.File:
    """The upload of one file; while there is one, the picker of the data set that it replaces is hidden."""
    file = gr.File(label="Your own file", height=120, **options)
    file.change(
        lambda path: gr.update(visible=path is None),
        file,
        named,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    return file


def shipped(template: str) -> Markup:
    """The template of a result with its values in ``assets/examples``, by `scripts/measure_examples.py`."""
    values = json.loads(read_asset(f"examples/{template}.json"))
    return render(f"evaluate/templates/{template}.html", **values) + note(
        f"Shipped with the app: {values['origin']}."
    )


class ModelAndData:
    """The pickers of a tab that measures one model on one data set: the model, and the data set or a file.

    pickers = ModelAndData(services, "errors", DATA, "stsb:dev")
    tab.wire(measure, pickers.inputs, …)

    `measure(watch, *values)` gets the model and the name of the data by ``pickers.named(*values)``,
    or with the rows by ``pickers.loaded(*values)``. With several models,
    ``pickers.rows(*values[1:])`` has the rows.
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
        """Builds the pickers inside the open Blocks; ids begin with ``prefix``, a list of ``models`` allows several."""
        self._services = services
        with gr.Row():
            model = model_dropdown(services, models, min_width=260, elem_id=f"{prefix}-model")
            named = open_dropdown(label, data, OR_HUB, value=value, elem_id=f"{prefix}-data")
            file = file_and_data(named, min_width=260, elem_id=f"{prefix}-file")
        self.panel = FilePanel(services, file, prefix)
        self.inputs = [model, named, file, *self.panel.inputs]

    def named(
        self, model: str | None, data: str, file: str | None, *how: str
    ) -> tuple[ModelName, str]:
        """The model, and the name of the data for the loaders. InputError if a visitor may not name them."""
        name = self._services.access.check_data(
            chosen_name(self._services, file, *how) if file else data
        )
        return ModelName.parse(model or ""), name

    def loaded(self, model: str | None, *data: Any) -> tuple[ModelName, Dataset]:
        """The model and the rows. InputError if a visitor may not name them or they cannot be read."""
        return ModelName.parse(model or ""), self.rows(*data)

    def rows(self, *data: Any) -> Dataset:
        """The first 20,000 rows, with a note if there are more."""
        from training.data.load import load_data

        _, name = self.named(MODELS[0], *data)
        rows = load_data(name, self._services.settings.home, split="test")
        return (
            rows
            if len(rows) <= MOST_ROWS
            else rows.select(range(MOST_ROWS), f"the first {MOST_ROWS:,} rows")
        )
