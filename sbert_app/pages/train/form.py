"""The form of a run: a component for each field of RunConfig, and their conversion to a RunConfig.

Data is named or uploaded. An upload is kept in the home folder under the hash of its content, so that a run resumed
next week still finds it. A server path that somebody types is not read: the page may be open to others.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from sbert_app.pages.components.columns import ColumnPicker
from sbert_app.pages.components.encoding import encoding_dropdown
from sbert_app.pages.components.pickers import MODELS, POOLINGS, WORD_ENCODER_LABELS, run_choices
from sbert_app.pages.train.views import format_learning_rate
from sbert_app.services.access import AccessPolicy
from sbert_app.services.files.uploads import keep_upload as keep_upload
from sbert_app.services.runs.presets import PRESETS, Preset
from sbert_app.services.runs.record import Run
from training.errors import InputError
from training.registry import DEFAULT_MODEL, WORD_ENCODERS
from training.trainer.config import (
    CHOICES,
    NEEDS_TEACHER,
    OPTIONAL,
    RANGES,
    REPORTERS,
    USES_NEGATIVES,
    RunConfig,
    default_learning_rate,
)

TRAIN_DATA = [
    ("STSb train: 5,749 scored pairs", "stsb:train"),
    ("SNLI + MultiNLI (Hub): 942,069 labelled pairs", "all-nli:train"),
    ("SNLI (Hub): 549,367 labelled pairs", "snli:train"),
    ("MultiNLI (Hub): 392,702 labelled pairs", "mnli:train"),
    ("Wikipedia sections (Hub): 1.8 million triplets", "wiki-sections:train"),
]
DEV_DATA = [
    ("STSb dev: 1,500 scored pairs", "stsb:dev"),
    ("none: random pairs only", "none"),
]
POOLING_CHOICES = [*POOLINGS, ("as the base", "base")]
OBJECTIVES = {
    "classification": "softmax over the concatenation; labelled pairs",
    "regression": "(cos(u, v) − gold)²; scored pairs",
    "cosent": "pairs ranked by their gold score; its order is what Spearman’s ρ measures",
    "angle": "as cosent, by angles in complex space, where the cosine is flat",
    "contrastive": "together pulled to cosine 1, apart pushed beyond a margin; labels or scores",
    "triplet": "the anchor closer to its positive than to its negative, by a margin",
    "mnrl": "each pair against all other pairs of the batch",
    "simcse": "no labels: the same sentence twice through dropout, against the rest of the batch",
    "mse": "a teacher’s vectors (bi-encoder) or its scores of pairs (cross-encoder)",
    "margin-mse": "a teacher’s margin between positive and negative",
}
TEACHERS = [
    ("minilm-stsb: cross-encoder, built in", "minilm-stsb"),
    ("mpnet-stsb: cross-encoder, 404 MB", "mpnet-stsb"),
    ("all-mpnet-base-v2: bi-encoder", "all-mpnet-base-v2"),
    ("all-MiniLM-L6-v2: bi-encoder", "all-MiniLM-L6-v2"),
]
CONCATENATIONS = {"uv": "u, v", "diff": "|u−v|", "mul": "u∗v"}
Fields = dict[str, Any]  # the components, by the field of RunConfig


def build() -> Fields:
    """Build the form inside the open column, filled with the first preset."""
    start = next(iter(PRESETS.values())).config()
    fields: Fields = {
        "objective": gr.Radio(
            list(OBJECTIVES),
            value=start.objective,
            label="Objective",
            info=OBJECTIVES[start.objective],
            elem_id="objective",
        ),
        "concatenation": gr.Dropdown(
            [(_concatenation_label(value), value) for value in CHOICES["concatenation"]],
            value=start.concatenation,
            label="Concatenation",
            info="What the softmax sees of u and v (Table 6); the paper's is (u, v, |u−v|)",
            visible=False,
        ),
        "teacher": gr.Dropdown(
            TEACHERS,
            value=TEACHERS[0][1],
            label="Teacher",
            info="What the run learns from, besides the sentences; or type a Hub id or run:<id>",
            allow_custom_value=True,
            visible=False,
            elem_id="train-teacher",
        ),
        "pooling": gr.Radio(
            POOLING_CHOICES, value=start.pooling, label="Pooling", info="From token vectors to a sentence vector"
        ),
        "base": gr.Dropdown(
            base_choices([]),
            value=start.base,
            label="Base",
            info="What the run starts from: a model, a run, a Hub id, or scratch:6x384 for random weights",
            allow_custom_value=True,
            elem_id="train-base",
        ),
    }
    fields |= _data(start)
    fields |= _numbers(start)
    fields["name"] = gr.Textbox(start.name, label="Name", info="Empty: named after its settings", elem_id="run-name")
    with gr.Accordion("More options", open=False):
        fields |= _more(start)
    return fields


def _data(start: RunConfig) -> Fields:
    with gr.Row(equal_height=True):
        train = gr.Dropdown(
            TRAIN_DATA,
            value=start.train_data,
            label="Training data",
            info="A named set (a + b joins two), hf:<org>/<name>, or your own file",
            allow_custom_value=True,
            scale=4,
            elem_id="train-data",
        )
        upload_train = _upload_button("upload-train")
    encodings = _encoding("train")
    with gr.Row(equal_height=True):
        dev = gr.Dropdown(
            DEV_DATA,
            value=start.eval_data,
            label="Dev data",
            info="Evaluated about every 100 steps; the best model is kept; or hf:<org>/<name>",
            allow_custom_value=True,
            scale=4,
            elem_id="dev-data",
        )
        upload_dev = _upload_button("upload-dev")
    encodings |= _encoding("dev")
    uploads = {"upload_train": upload_train, "upload_dev": upload_dev}
    return {"train_data": train, "eval_data": dev, **uploads, **encodings}


def _encoding(name: str) -> Fields:
    """How an upload was read, and a picker of encodings: hidden until there is a doubt."""
    read = gr.HTML(visible=False, elem_id=f"{name}-encoding-read")
    encoding = encoding_dropdown(f"{name}-encoding")
    return {f"read_{name}": read, f"encoding_{name}": encoding, f"columns_{name}": ColumnPicker(f"{name}-columns")}


def _upload_button(elem_id: str) -> gr.UploadButton:
    types = [".csv", ".tsv", ".jsonl", ".parquet", ".xlsx"]
    return gr.UploadButton("Upload…", size="sm", file_types=types, scale=1, min_width=90, elem_id=elem_id)


def _numbers(start: RunConfig) -> Fields:
    with gr.Row():
        fields: Fields = {
            "epochs": gr.Number(start.epochs, label="Epochs", info="Passes over the data", min_width=90),
            "max_steps": gr.Number(start.max_steps, label="Maximum steps", info="Empty or 0: no limit", min_width=90),
            "batch_size": gr.Number(
                start.batch_size, label="Batch size", info=batch_size_info(start.objective), min_width=90
            ),
        }
    with gr.Row():
        fields["learning_rate"] = gr.Textbox(
            format_learning_rate(start.learning_rate), label="Learning rate", info="Peak learning rate", min_width=90
        )
        fields["warmup"] = gr.Number(start.warmup, label="Warm-up", info="Fraction of the steps", min_width=90)
        fields["seed"] = gr.Number(start.seed, label="Seed", info="Random seed", min_width=90)
    with gr.Row():
        fields["lora_rank"] = gr.Number(
            start.lora_rank,
            label="LoRA rank",
            info="0 trains all weights; 8 or 16 train small additions to the layers",
        )
    fields |= _negatives(start)
    return fields


def _negatives(start: RunConfig) -> Fields:
    """What is mined before the run, and a preview of it; shown for objectives that learn from negatives."""
    with gr.Column(visible=start.objective in USES_NEGATIVES, elem_id="negatives") as group:
        with gr.Row():
            mine = gr.Checkbox(
                start.mine_negatives,
                label="Mine hard negatives",
                info="The base finds a similar but wrong sentence for each anchor",
                min_width=180,
                elem_id="mine-negatives",
            )
            margin = gr.Number(
                start.negative_margin,
                label="Margin",
                info="Less similar than the positive by this fraction",
                min_width=120,
                elem_id="negative-margin",
            )
        with gr.Row(elem_classes="actions"):
            preview = gr.Button("Show some", size="sm", elem_id="preview-negatives")
            stop = gr.Button("Stop", size="sm", interactive=False, elem_id="stop-negatives")
        shown = gr.HTML(elem_id="mined-negatives")
    return {
        "mine_negatives": mine,
        "negative_margin": margin,
        "negatives_group": group,
        "negatives_preview": preview,
        "negatives_stop": stop,
        "negatives_shown": shown,
    }


def _more(start: RunConfig) -> Fields:
    with gr.Row():
        more: Fields = {
            "eval_every": gr.Number(None, label="Evaluate every", info="Steps; empty: about 100", min_width=110),
            "max_length": gr.Number(
                None, label="Maximum length", info="Tokens; empty: same as the base", min_width=110
            ),
            "dtype": gr.Dropdown(list(CHOICES["dtype"]), value=start.dtype, label="Precision", min_width=110),
        }
    with gr.Row():
        more["weight_decay"] = gr.Number(start.weight_decay, label="Weight decay", info="Paper: none", min_width=110)
        more["max_grad_norm"] = gr.Number(
            start.max_grad_norm, label="Gradient clipping", info="Maximum norm", min_width=110
        )
    with gr.Row():
        more["triplet_metric"] = gr.Dropdown(
            list(CHOICES["triplet_metric"]), value=start.triplet_metric, label="Triplet distance", min_width=110
        )
        more["triplet_margin"] = gr.Number(start.triplet_margin, label="Triplet margin ε", min_width=110)
    with gr.Row():
        more["mnrl_scale"] = gr.Number(start.mnrl_scale, label="mnrl scale", info="Factor of the cosine", min_width=110)
        more["mnrl_symmetric"] = gr.Checkbox(start.mnrl_symmetric, label="mnrl symmetric", min_width=110)
    with gr.Row():
        more["cosent_scale"] = gr.Number(
            start.cosent_scale, label="cosent, angle scale", info="Factor of the similarity", min_width=110
        )
        more["contrastive_margin"] = gr.Number(
            start.contrastive_margin, label="Contrastive margin", info="As 1 − cosine", min_width=110
        )
        more["margin_similarity"] = gr.Dropdown(
            list(CHOICES["margin_similarity"]), value=start.margin_similarity, label="margin-mse score", min_width=110
        )
    with gr.Row():
        more["matryoshka_dims"] = gr.Textbox(
            "", label="Matryoshka dimensions", info="Such as 256, 128, 64; empty: all only", min_width=150
        )
        more["mini_batch_size"] = gr.Number(
            None, label="Mini-batch size", info="Gradient caching: rows in memory at a time", min_width=150
        )
    more["report_to"] = gr.CheckboxGroup(
        list(REPORTERS), value=[], label="Also write to", info="Experiment trackers, where they are installed"
    )
    return more


def batch_size_info(objective: str) -> str:
    """What a batch is counted in."""
    counted = {"triplet": "Triplets", "margin-mse": "Triplets", "simcse": "Sentences", "mse": "Rows"}
    return f"{counted.get(objective, 'Pairs')} per step"


def config_fields(fields: Fields) -> Fields:
    """The components that belong to a field of RunConfig: all but the upload buttons and the preview."""
    return {name: component for name, component in fields.items() if name in RunConfig.model_fields}


def to_config(values: Fields, access: AccessPolicy) -> RunConfig:
    """The values of the form, by field, as a config. InputError if one of them is invalid or may not be named."""
    settings = dict(values)
    settings["pooling"] = None if settings["pooling"] == "base" else settings["pooling"]
    settings["eval_data"] = None if settings["eval_data"] in (None, "", "none") else settings["eval_data"]
    settings["base"] = (settings["base"] or "").strip()
    # Fields that are hidden for this objective keep what was chosen for another.
    settings["teacher"] = (settings["teacher"] or "").strip() or None
    if settings["objective"] not in NEEDS_TEACHER:
        settings["teacher"] = None
    settings["mine_negatives"] = bool(settings["mine_negatives"]) and settings["objective"] in USES_NEGATIVES
    settings["name"] = " ".join((settings["name"] or "").split())
    for name in OPTIONAL:
        settings[name] = settings[name] or None
    for name in RANGES:
        if isinstance(settings[name], str):
            settings[name] = _number(name, settings[name])
    if not settings["train_data"]:
        raise InputError("there is no training data yet; upload a file or choose a data set")
    return access.check_run(RunConfig(**settings))


def base_choices(runs: list[Run]) -> list[tuple[str, str]]:
    """The built-in models, networks over word vectors, then every run that has a model."""
    built_in = [(name, name) for name in MODELS]
    word_encoders = [(f"{name} ({label})", name) for name, label in WORD_ENCODER_LABELS.items()]
    return [*built_in, *word_encoders, *run_choices(runs)]


def base_updates(base: str | None, learning_rate: str) -> tuple[Any, Any]:
    """Updates of the learning rate and the pooling when another base is chosen.

    A learning rate that was typed stays; one that is a base's default becomes that of the new base. Networks over word
    vectors are defined with a pooling of their own.
    """
    name = (base or "").strip()
    defaults = {format_learning_rate(default_learning_rate(each)) for each in (DEFAULT_MODEL, *WORD_ENCODERS)}
    rate = format_learning_rate(default_learning_rate(name))
    is_default = learning_rate.strip() in defaults and learning_rate.strip() != rate
    return (
        gr.update(value=rate) if is_default else gr.skip(),
        gr.update(value="base") if name in WORD_ENCODERS else gr.skip(),
    )


def settings_updates(config: RunConfig, names: list[str]) -> list[Any]:
    """Updates of the components ``names`` with the settings of a run, in their order; it gets a name of its own."""
    return _updates(config.to_dict() | {"name": ""}, names)


def preset_updates(preset: Preset, names: list[str], base: str | None) -> list[Any]:
    """Updates of the components ``names`` with the values of a preset, in their order."""
    values = RunConfig("regression", pooling="mean").to_dict() | preset.values | ({"base": base} if base else {})
    return _updates(values, names)


def _updates(values: dict[str, Any], names: list[str]) -> list[Any]:
    """Updates of the components ``names`` with the fields of a config as the form shows them."""
    shown = values | {
        "pooling": values["pooling"] or "base",
        "eval_data": values["eval_data"] or "none",
        "learning_rate": format_learning_rate(values["learning_rate"]),
        "matryoshka_dims": ", ".join(map(str, values["matryoshka_dims"])),
        "teacher": values["teacher"] or TEACHERS[0][1],
    }
    return [gr.update(value=shown[name]) for name in names]


def _number(name: str, text: str) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        raise InputError(f"{name} is {text!r}; it must be a number such as 2e-5") from None


def _concatenation_label(concatenation: str) -> str:
    return f"({', '.join(CONCATENATIONS[part] for part in concatenation.split('+'))})"
