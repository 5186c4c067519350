"""Dimensions, prompt and precision of the chosen model. They are part of its name (`training.names`): the
controls edit the text in the model's picker, so that links, scripts and every other page understand the choice.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from sbert_app.pages.components.events import EVERY
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.names import BY_ROLE, ModelName

ALL, AS_FOLDER, NO_PROMPT = "all", "as the model's folder says", "none"
AUTO = "auto"
PRECISIONS = [
    ("auto: bfloat16 where the processor has it", AUTO),
    ("float32: the reference", "float32"),
    ("bfloat16", "bfloat16"),
    ("int8: fastest, slightly less exact", "int8"),
]
DIMENSIONS = (ALL, "512", "256", "128", "64", "32")
ROLES_LABEL = "first: query, second: document"


def model_settings(services: Services, model: gr.Dropdown, roles: bool = False) -> None:
    """Controls below a model's picker, closed at first. ``roles``: offer a prompt for each of two sentences."""
    with gr.Accordion("Dimensions, prompt and precision", open=False, elem_classes="model-settings"), gr.Row():
        hint = "Keep the first so many numbers of a vector: made for Matryoshka models"
        dimension = open_dropdown("Dimensions", DIMENSIONS, hint, elem_classes="model-dimension")
        hint = "Put before every sentence: a name from the model's folder, or any text"
        prompt = open_dropdown("Prompt", (AS_FOLDER, NO_PROMPT), hint, elem_classes="model-prompt")
        precision = gr.Dropdown(
            PRECISIONS,
            value=AUTO,
            label="Precision",
            info="What the products are computed in; the Evaluate page measures what it costs",
            min_width=240,
            elem_classes="model-precision",
        )

    def show(name: str | None) -> tuple[Any, Any, Any]:
        """The settings that the name states, and the prompts that the model's folder names."""
        try:
            stated = ModelName.parse(name or DEFAULT_MODEL)
        except InputError:  # the page says so beside its answer
            return gr.skip(), gr.skip(), gr.skip()
        chosen = str(stated.dimension or ALL)
        prompts = gr.Dropdown(_prompt_choices(services, stated, roles), value=_prompt_value(stated))
        return chosen, prompts, stated.dtype or AUTO

    model.change(show, model, [dimension, prompt, precision], **EVERY)
    for control in (dimension, prompt, precision):
        control.input(_with_settings, [model, dimension, prompt, precision], model, **EVERY)


def _with_settings(name: str | None, dimension: str | None, prompt: str | None, precision: str | None) -> Any:
    """The name of the model with these settings."""
    text = (dimension or ALL).strip()
    if text != ALL and not text.isdecimal():
        raise gr.Error(f"dimensions are {text!r}, but must be a whole number or {ALL!r}", print_exception=False)
    try:
        stated = ModelName.parse(name or DEFAULT_MODEL)
    except InputError as error:
        raise gr.Error(error.public, print_exception=False) from error
    chosen = prompt if prompt is not None else AS_FOLDER
    by_name = chosen.removeprefix("name: ") if chosen.startswith("name: ") else None
    return str(
        ModelName(
            stated.name,
            None if text == ALL else int(text),
            None if chosen == AS_FOLDER or by_name else "" if chosen == NO_PROMPT else chosen,
            by_name,
            None if precision in (None, AUTO) else precision,
            stated.pooling,
        )
    )


def _prompt_choices(services: Services, stated: ModelName, roles: bool) -> list[tuple[str, str]]:
    """(label, value): none, what the folder names, and with ``roles`` a prompt for each side."""
    choices = [(AS_FOLDER, AS_FOLDER), (NO_PROMPT, NO_PROMPT)]
    if not services.models.is_here(stated.name):
        return choices
    try:
        prompts = services.models.encoder(stated.name).prompts
    except InputError:  # the page says so beside its answer
        return choices
    named = [(f"{name}: “{text.strip()}”", f"name: {name}") for name, text in prompts.items() if text]
    by_role = [(ROLES_LABEL, f"name: {BY_ROLE}")] if roles and named else []
    return choices + by_role + named


def _prompt_value(stated: ModelName) -> str:
    if stated.prompt_name is not None:
        return f"name: {stated.prompt_name}"
    return AS_FOLDER if stated.prompt is None else stated.prompt or NO_PROMPT
