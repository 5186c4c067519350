"""Lesson 1: sentence vectors of models that were not trained for them, compared with one that was.

TF-IDF, a transformer with random weights, a raw BERT, and three representations of the default
model: the average of its input embeddings, its CLS vector, and the mean of its outputs. Paper:
section 1 and Table 1.
"""

from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, short_label
from sbert_app.pages.learn.lesson import Context, Demo, Measurement, measured, styled, table
from sbert_app.pages.learn.samples import (
    RANDOM_WEIGHTS,
    GoldSample,
    Timed,
    encode_sample,
    gold_sample,
    rho,
)
from training.catalogue import DEFAULT_MODEL, RAW_BERT
from training.models.lexical import TfIdf


class Representation(NamedTuple):
    label: str
    how: str  # how the vectors are computed
    rho: float  # Spearman ×100 between cosine and gold score


class Representations(NamedTuple):
    rows: list[Representation]
    pairs: GoldSample
    timed: Timed  # the encoding, when it was done first


def measure(context: Context, model: str, pairs: int) -> Representations:
    """Measures all representations on the same pairs. InputError if a model cannot be loaded."""
    sample = gold_sample(context, pairs)
    counts = TfIdf().encode([*sample.first, *sample.second])
    rows = [
        Representation(
            "TF-IDF", "counts of words, no network", rho(np.split(counts, 2), sample.gold)
        )
    ]
    rows += _cls_and_mean(context, RANDOM_WEIGHTS, "random weights", pairs)
    rows += _cls_and_mean(context, RAW_BERT, "raw BERT", pairs)
    encoder = context.encoder_of(model)
    word_vectors = encoder.backbone.get_input_embeddings().weight.detach().float().cpu().numpy()
    ids = encoder.tokenize([*sample.first, *sample.second])
    # Without [CLS] and [SEP], unless a sentence has no other tokens.
    inputs = np.stack([word_vectors[row[1:-1] or row].mean(axis=0) for row in ids])
    how = "its input table, averaged, no attention"
    rows.append(
        Representation(f"{encoder.name}: word vectors", how, rho(np.split(inputs, 2), sample.gold))
    )
    rows += _cls_and_mean(context, model, encoder.name, pairs)
    if model != DEFAULT_MODEL:
        # The mean of the default model alone, for comparison, as the last bar.
        rows += _cls_and_mean(context, DEFAULT_MODEL, DEFAULT_MODEL, pairs)[1:]
    # `encode_sample` is cached, so these are the times of the first encoding by each model.
    timings = [
        encode_sample(context, name, pairs).timed for name in (RANDOM_WEIGHTS, RAW_BERT, model)
    ]
    timed = Timed(sum(timing.seconds for timing in timings), timings[-1].at)
    return Representations(rows, sample, timed)


def _cls_and_mean(context: Context, model: str, label: str, pairs: int) -> list[Representation]:
    """Two representations of a model, its CLS vector and the mean of its outputs, in this order."""
    sample = encode_sample(context, model, pairs)
    mean = "all output vectors, averaged"
    if model == DEFAULT_MODEL:
        mean += " – what it was trained for"
    return [
        Representation(f"{label}: CLS", "the vector of the first token", sample.rho("cls")),
        Representation(f"{label}: mean", mean, sample.rho("mean")),
    ]


def quality_bars(rows: list[Representation]) -> go.Figure:
    """Spearman ×100 of each kind of sentence vector, the last one in the accent colour."""
    figure = go.Figure()
    figure.add_bar(
        x=[round(row.rho, 2) for row in rows],
        y=[short_label(row.label, 40).replace(": ", ":<br>") for row in rows],
        orientation="h",
        marker_color=[PALETTE["grey"]] * (len(rows) - 1) + [PALETTE["blue"]],
        hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        text=[f"{row.rho:.1f}" for row in rows],
        textposition="outside",
        cliponaxis=False,
    )
    figure.update_layout(xaxis_range=[0, 112], yaxis_autorange="reversed")
    return styled(figure, 44 * len(rows) + 70, "Spearman ρ ×100")


def show(context: Context, pairs: float, model: str) -> Measurement:
    result = measure(context, model.strip() or context.setup.model, int(pairs))
    html = table(
        ("vectors", "what it is", "ρ ×100"),
        [(row.label, row.how, f"{row.rho:.1f}") for row in result.rows],
    )
    compared = f"{result.pairs.label}, cosine against people’s scores; embeddings computed in {result.timed}"
    return Measurement(quality_bars(result.rows), html + measured(compared))


def build() -> Demo:
    with gr.Row():
        pairs = gr.Slider(
            100, 500, 200, step=100, label="Pairs of STSb dev", min_width=180, elem_id="learn-pairs"
        )
        model = gr.Textbox(
            DEFAULT_MODEL,
            label="Model",
            info="Or a Hugging Face id, where the Hub can be reached",
            max_lines=1,
            submit_btn=True,
            min_width=220,
            elem_id="learn-model",
        )
    # Nothing is measured while an id is typed.
    return Demo([pairs, model], show, model=model, triggers=[pairs.change, model.submit])
