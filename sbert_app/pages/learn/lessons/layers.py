"""Lesson 11: how good the vectors of each layer are, pooled; and the average of the first and the last.

A transformer's last layer is trained for the last step, not for similarity. For raw BERT the
average of the first and the last layer was better than the last alone: 59.04 against 46.35 on STSb
(Su et al. 2021; Reimers & Gurevych 2019, Table 1).
"""

from __future__ import annotations

from functools import lru_cache
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import PALETTE, add_scatter
from sbert_app.formats import MISSING
from sbert_app.pages.components.pickers import POOLINGS as POOLING_CHOICES
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    change_of_rho,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import RANDOM_WEIGHTS, GoldSample, Timed, gold_sample, rho
from sbert_app.services.background.watch import UNWATCHED, Watch
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.pooling import PAPER_POOLINGS, POOLINGS, pooling_label

if TYPE_CHECKING:
    from training.models.encoder import Encoder

# The size of a batch, with padding.
TOKENS = 2_048
COLOURS = {"mean": "blue", "max": "orange", "cls": "green"}


class Layers(NamedTuple):
    """ρ ×100 of every layer under every pooling. Layer 0 is the input embeddings.

    Under CLS, layer 0 has the same vector for all sentences, so its ρ is NaN.
    """

    model: str
    by_pooling: dict[str, list[float]]  # pooling -> ρ of layer 0, 1, …, L
    first_last: dict[str, float]  # pooling -> ρ of the average of layer 1 and layer L
    pairs: GoldSample
    timed: Timed  # the pass through the model

    def best(self, pooling: str) -> int:
        """The layer with the highest ρ."""
        return int(np.nanargmax(self.by_pooling[pooling]))


# A result covers all poolings, so another choice computes nothing.
@lru_cache(maxsize=8)
def measure(context: Context, model: str, pairs: int) -> Layers:
    """Measures ρ of every layer. InputError if the model has no layers, or if the model or data cannot be loaded."""
    sample = gold_sample(context, pairs)
    encoder = context.encoder_of(model)
    with Timed() as timed:
        pooled = layer_vectors(encoder, [*sample.first, *sample.second], context.watch)

    def quality(vectors: np.ndarray) -> float:
        return rho(np.split(vectors, 2), sample.gold)

    return Layers(
        encoder.name,
        {name: [quality(layer) for layer in layers] for name, layers in pooled.items()},
        # Layer 1 is the first one after the input embeddings.
        {name: quality((layers[1] + layers[-1]) / 2) for name, layers in pooled.items()},
        sample,
        timed,
    )


def layer_vectors(
    encoder: Encoder, sentences: list[str], watch: Watch = UNWATCHED
) -> dict[str, np.ndarray]:
    """Pooling -> the pooled output of every layer, (L + 1, N, D) float32; layer 0 is the input embeddings.

    InputError if the encoder is not a transformer.
    """
    # The import of torch takes seconds.
    import torch

    from training.inference.batching import pad, plan

    # Networks over word vectors have no config.
    config = getattr(encoder.backbone, "config", None)
    layers = getattr(config, "num_hidden_layers", None)
    if not layers:
        raise InputError(f"{encoder.name} is no transformer, and has no layers to compare")
    ids = encoder.tokenize(sentences)
    dimension = int(encoder.backbone.config.hidden_size)
    pooled = {
        name: np.empty((layers + 1, len(ids), dimension), dtype=np.float32)
        for name in PAPER_POOLINGS
    }
    done = 0
    watch = watch.stage(f"Encoding {len(ids)} sentences in {layers + 1} layers")
    # ``rows`` are the positions of the sentences of a batch, which are of similar length.
    for rows in plan([len(row) for row in ids], TOKENS):
        watch.check()
        # The mask hides the padding, so any id will do.
        batch = pad([ids[row] for row in rows], 0)
        mask = None if batch.mask is None else batch.mask.to(encoder.device)
        with torch.inference_mode():
            states = encoder.backbone(
                batch.ids.to(encoder.device),
                attention_mask=None if mask is None else mask.long(),
                output_hidden_states=True,
            ).hidden_states
            for name, vectors in pooled.items():
                # (L + 1, batch, D). The first of the states is the input embeddings.
                of_layers = torch.stack([POOLINGS[name](state, mask) for state in states])
                vectors[:, rows] = of_layers.cpu().numpy()
        done += len(rows)
        watch.on_progress(done, len(ids))
    return pooled


def layer_lines(result: Layers, selected: str) -> go.Figure:
    """ρ ×100 of each layer under each pooling; dashed: the average of layer 1 and the last under ``selected``."""
    figure = go.Figure()
    for pooling, values in result.by_pooling.items():
        name = pooling_label(pooling)
        is_selected = pooling == selected
        add_scatter(
            figure,
            list(range(len(values))),
            [None if isnan(value) else round(value, 2) for value in values],
            COLOURS[pooling],
            f"layer %{{x}}: ρ %{{y:.1f}}<extra>{name}</extra>",
            "lines+markers",
            name=name,
            line_width=4 if is_selected else 2,
            marker_size=9 if is_selected else 6,
            opacity=1 if is_selected else 0.6,
        )
    average = result.first_last[selected]
    figure.add_hline(
        average,
        line={"dash": "dash", "color": PALETTE[COLOURS[selected]], "width": 2},
        annotation={
            "text": f"layer 1 + last: {average:.1f}",
            "xanchor": "left",
            "yanchor": "top",
            "x": 0,
            "font": {"size": 13},
        },
    )
    figure.update_xaxes(dtick=1 if len(result.by_pooling[selected]) <= 14 else 2)
    return styled(figure, 350, "layer; 0: input embeddings", "Spearman ρ ×100", legend=True)


def describe(result: Layers, pooling: str) -> Markup:
    """ρ of each layer under each pooling, which layer is the best, and what the average of two layers gives."""
    last = len(result.by_pooling[pooling]) - 1
    names = {0: "0: embeddings", last: f"{last}: last"}
    rows = []
    for layer in range(last + 1):
        values = [rhos[layer] for rhos in result.by_pooling.values()]
        cells = [MISSING if isnan(value) else f"{value:.1f}" for value in values]
        rows.append((names.get(layer, str(layer)), *cells))
    rows.append(("layer 1 + last", *(f"{value:.1f}" for value in result.first_last.values())))
    return (
        table(("", *(pooling_label(name) for name in result.by_pooling)), rows)
        + findings(_findings(result, pooling))
        + measured(
            f"{result.model}, {result.pairs.label}, all layers in one pass of {result.timed}"
        )
    )


def _findings(result: Layers, pooling: str) -> list[str]:
    """Returns sentences on the best layer, and on the average of layer 1 and the last layer."""
    values = result.by_pooling[pooling]
    name = pooling_label(pooling)
    best = result.best(pooling)
    last = len(values) - 1
    spread = np.nanmax(values) - np.nanmin(values)
    if spread < 2:
        sentence = f"With {name} pooling all layers are within {spread:.1f} points of each other: they change little."
    elif best == last:
        sentence = f"With {name} pooling the last is the best single layer: {values[last]:.1f}."
    else:
        sentence = (
            f"With {name} pooling layer {best} is the best single one: {values[best]:.1f}; "
            f"the last has {values[last]:.1f}."
        )
    difference = result.first_last[pooling] - values[last]
    return [
        sentence,
        change_of_rho(difference, "Averaging layer 1 with the last, against the last alone,"),
    ]


def show(context: Context, pooling: str, pairs: float, model: str) -> Measurement:
    result = measure(context, (model or "").strip() or context.setup.model, int(pairs))
    return Measurement(layer_lines(result, pooling), describe(result, pooling))


def build() -> Demo:
    pooling = gr.Radio(
        POOLING_CHOICES, value="mean", label="Pooling", elem_id="learn-layer-pooling"
    )
    with gr.Row():
        pairs = gr.Slider(
            100, 500, 200, step=100, label="Pairs", min_width=180, elem_id="learn-layer-pairs"
        )
        models = [DEFAULT_MODEL, (f"random weights ({RANDOM_WEIGHTS})", RANDOM_WEIGHTS)]
        hint = "Or a Hugging Face id, where the Hub can be reached"
        model = open_dropdown("Model", models, hint, min_width=220, elem_id="learn-layer-model")
    return Demo([pooling, pairs, model], show, model=model)
