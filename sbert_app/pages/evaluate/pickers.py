"""What the tabs of the Evaluate page offer to choose from: models known by name, runs, data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.services.container import Services
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.results import AVERAGE, DATA_LABELS

MODELS = (
    *("all-MiniLM-L6-v2", "all-MiniLM-L6-v2:max", "all-MiniLM-L6-v2:cls", "all-mpnet-base-v2", "tfidf", "glove"),
    *("minilm-stsb", "mpnet-stsb", "bert-base-uncased:mean", "bert-base-uncased:cls"),
)
KNOWN_MODELS = [(ModelSpec.parse(name).label, name) for name in MODELS]
DATA = [(label, name) for name, label in DATA_LABELS.items() if name != AVERAGE]


def model_dropdown(services: Services, value: str | Sequence[str], hint: str = "", **look: Any) -> gr.Dropdown:
    """Models by name, several where ``value`` is several; each time the page is opened, the runs of that time too."""
    several = not isinstance(value, str)
    picker = gr.Dropdown(
        KNOWN_MODELS,
        value=list(value) if several else value,
        multiselect=several,
        allow_custom_value=True,
        label="Models" if several else "Model",
        info=f"Or type a Hub id, folder, run:<id>{hint}",
        **look,
    )
    root = gr.context.Context.root_block
    root.load(lambda: gr.Dropdown(_model_choices(services)), None, picker, **PRIVATE)
    return picker


def own_file(**look: Any) -> gr.File:
    """Where one file is dropped."""
    return gr.File(label="A file of your own", height=120, **look)


def _model_choices(services: Services) -> list[tuple[str, str]]:
    """(label, name) of what may be evaluated: what is known by name, and the runs that have a model."""
    runs = [(f"run: {run.name}", f"run:{run.id}") for run in services.jobs.store.list() if run.has_model]
    return KNOWN_MODELS + runs
