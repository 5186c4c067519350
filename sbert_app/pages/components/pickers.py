"""The pickers that several pages share: model, pooling, cross-encoder. A choice is a (label, value) pair."""

from __future__ import annotations

import gradio as gr

from training.registry import CROSS_ENCODERS, DEFAULT_CROSS_ENCODER, DEFAULT_MODEL, ENCODERS

MODELS = list(ENCODERS)
POOLING_LABELS = {"mean": "mean", "max": "max", "cls": "CLS"}
POOLINGS = [(label, name) for name, label in POOLING_LABELS.items()]
NO_CROSS_ENCODER = "none"
CROSS_ENCODER_REMARKS = {"minilm-stsb": "built in", "mpnet-stsb": "stronger; 404 MB"}
CROSS_ENCODER_CHOICES = [
    (NO_CROSS_ENCODER, NO_CROSS_ENCODER),
    *((f"{name} ({CROSS_ENCODER_REMARKS[name]})", name) for name in CROSS_ENCODERS),
    ("cross-encoder/stsb-roberta-base (Hub)", "cross-encoder/stsb-roberta-base"),
]


def model_picker(value: str = DEFAULT_MODEL) -> gr.Dropdown:
    """A bi-encoder by name."""
    return gr.Dropdown(
        MODELS,
        value=value,
        label="Model",
        info="Or type a Hub id or run:<id>",
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
        CROSS_ENCODER_CHOICES,
        value=value,
        label="Cross-encoder",
        info="Reads both sentences at once: slower, more accurate",
        allow_custom_value=True,
        elem_classes="cross",
        min_width=240,
    )
