"""The pickers that several pages share: model, pooling, cross-encoder."""

from __future__ import annotations

import gradio as gr

from training.registry import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL, ENCODERS

MODELS = list(ENCODERS)
POOLINGS = [("mean", "mean"), ("max", "max"), ("CLS", "cls")]
CROSS_ENCODERS = [
    ("none", "none"),
    ("minilm-stsb (built in)", "minilm-stsb"),
    ("mpnet-stsb (stronger; 404 MB)", "mpnet-stsb"),
    ("cross-encoder/stsb-roberta-base (Hub)", "cross-encoder/stsb-roberta-base"),
]


def model_picker(value: str = DEFAULT_MODEL) -> gr.Dropdown:
    """A bi-encoder by name."""
    return gr.Dropdown(
        MODELS,
        value=value,
        label="Model",
        info="Or type a Hub id, folder or run:<id>",
        allow_custom_value=True,
        elem_classes="model",
        min_width=240,
    )


def pooling_picker(value: str = "mean") -> gr.Radio:
    """mean, max or CLS."""
    return gr.Radio(
        POOLINGS, value=value, label="Pooling", info="From token vectors to a sentence vector", min_width=240
    )


def cross_encoder_picker(value: str = DEFAULT_CROSS_ENCODER) -> gr.Dropdown:
    """A cross-encoder by name, or none."""
    return gr.Dropdown(
        CROSS_ENCODERS,
        value=value,
        label="Cross-encoder",
        info="Reads both sentences at once: slower, finer",
        allow_custom_value=True,
        elem_classes="cross",
        min_width=240,
    )
