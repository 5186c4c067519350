"""Lesson 2: one pair under mean, max and CLS pooling, which words contribute to the cosine, and why mean beats CLS.

Uses `sbert_app.services.compare.comparison`: exact attribution for mean and max, leave-one-out for
CLS. The quality of each pooling is measured on pairs of STSb dev; what training with each reaches
is in the shipped ablation. Paper: section 3 and Table 6.
"""

from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures import compare
from sbert_app.figures.style import PALETTE, short_label
from sbert_app.formats import format_number
from sbert_app.pages.components.messages import lead
from sbert_app.pages.components.pickers import POOLINGS
from sbert_app.pages.components.templates import macro
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import EncodedSample, encode_sample
from sbert_app.services.compare import examples
from sbert_app.services.compare.comparison import (
    Comparison,
    LeftOut,
    compare_by_name,
    leave_one_out,
)
from sbert_app.services.experiments.ablations import PrecomputedTable, precomputed_tables
from sbert_app.services.results.results import data_label
from training.names import ModelName
from training.pooling import pooling_label

shipped = macro("learn/shipped")

PAIRS = 200
# The base of the shipped ablation from which no pooling has been trained before.
RAW_BASE = "raw-bert-mini"


class PooledPair(NamedTuple):
    """A pair under one pooling, with its cosines under all poolings."""

    comparison: Comparison
    left_out: list[LeftOut]  # under CLS, which has no exact attribution
    sample: EncodedSample

    @property
    def strongest(self) -> tuple[str, str, float] | None:
        """The word pair with the largest contribution, and the contribution; None under CLS."""
        exact = self.comparison.attribution
        if exact is None:
            return None
        # argmax counts the cells row by row.
        row, column = divmod(int(exact.matrix.argmax()), exact.matrix.shape[1])
        return exact.words_a[row], exact.words_b[column], float(exact.matrix[row, column])


def measure(context: Context, a: str, b: str, pooling: str) -> PooledPair:
    """Compares a pair. InputError if a sentence is empty, or the model or the data cannot be loaded."""
    model = context.setup.model
    comparison = compare_by_name(context.models, a, b, ModelName.parse(model), pooling)
    encoder = context.encoder_of(model).with_pooling(pooling)
    left_out: list[LeftOut] = []
    if pooling == "cls":
        left_out = leave_one_out(encoder, cross_encoder=None, comparison=comparison)
    return PooledPair(comparison, left_out, encode_sample(context, model, PAIRS))


def left_out_bars(left_out: list[LeftOut]) -> go.Figure:
    """The change of the cosine when each word is left out; negative: the word made the pair more similar."""
    # The words of the first sentence come first. The bars are at numbers, because words may repeat.
    places = list(range(len(left_out)))
    changes = [change.cosine_change for change in left_out]
    figure = go.Figure()
    figure.add_bar(
        x=np.round(changes, 4).tolist(),
        y=places,
        orientation="h",
        marker_color=[PALETTE["vermillion" if change < 0 else "blue"] for change in changes],
        customdata=[short_label(change.word) for change in left_out],
        hovertemplate="without %{customdata}: %{x:+.3f}<extra></extra>",
    )
    styled(figure, max(240, 24 * len(places) + 80), "change of the cosine")
    labels = [short_label(change.word, 18) for change in left_out]
    figure.update_xaxes(zeroline=True)
    figure.update_yaxes(autorange="reversed", tickvals=places, ticktext=labels)
    return figure


def describe(result: PooledPair, pooling: str) -> Markup:
    """The pair's cosine under each pooling, and the quality of each pooling over many pairs."""
    comparison = result.comparison
    sample = result.sample
    if result.strongest:
        sentence = Markup(
            "All word pairs sum to <b>{:.3f}</b>. The largest is <b>{}</b> × <b>{}</b>: {}."
        )
        word_a, word_b, share = result.strongest
        explanation: str = sentence.format(
            comparison.cosine, word_a, word_b, format_number(share, 3, "+")
        )
    else:
        explanation = (
            "CLS has no exact map. Each bar: the word is left out and the pair encoded again."
        )
    rows = []
    for name, cosine in comparison.by_pooling.items():
        label = pooling_label(name)
        if name == pooling:
            label += " (shown)"
        rows.append((label, f"{cosine:.3f}", f"{sample.rho(name):.1f}"))
    return (
        lead(explanation)
        + table(
            ("pooling", "cosine of this pair", f"ρ ×100 on {data_label(sample.pairs.data)}"), rows
        )
        + measured(
            f"the pair in {comparison.encoder_ms:.0f} ms; ρ on {sample.pairs.label}, encoded in {sample.timed}"
        )
    )


class TrainedRho(NamedTuple):
    """The mean ρ ×100 over seeds, before and after training with a pooling."""

    before: float
    after: float


def trained_with(runs: PrecomputedTable) -> dict[str, TrainedRho]:
    """Pooling -> ρ before training and the mean ρ of the runs after it."""
    trained = {}
    for row in runs.rows:
        if row.before is not None and row.summary is not None:
            trained[row.variant] = TrainedRho(row.before, row.summary.mean)
    return trained


def compare_trained(trained: dict[str, TrainedRho]) -> str:
    """Says from the figures why mean beats CLS, or that it does not."""
    mean = trained["mean"]
    cls = trained["cls"]
    mean_gain = mean.after - mean.before
    cls_gain = cls.after - cls.before
    start = f"Before training, mean has a ρ of {mean.before:.1f} and CLS {cls.before:.1f}"
    gains = f"training adds {mean_gain:+.1f} and {cls_gain:+.1f}"
    if mean.after <= cls.after:
        return f"{start}; {gains}: here CLS ends at {cls.after:.1f}, no worse than mean at {mean.after:.1f}."
    if cls.before < mean.before and cls_gain > mean_gain:
        end = f"CLS learns more, but from further back, and ends at {cls.after:.1f} where mean ends at"
    else:
        end = f"CLS ends at {cls.after:.1f}, behind mean at"
    return f"{start}; {gains}: {end} {mean.after:.1f}."


def describe_trained(runs: PrecomputedTable) -> Markup:
    """A table of ρ before and after training with each pooling, and a sentence about mean and CLS."""
    trained = trained_with(runs)
    rows = []
    for name in sorted(trained, key=lambda name: trained[name].after, reverse=True):
        values = trained[name]
        rows.append((pooling_label(name), f"{values.before:.1f}", f"{values.after:.1f}"))
    header = (f"trained with, from {runs.settings['base']}", "ρ before", "ρ after")
    where = f"regression on STSb train, {len(runs.seeds)} seeds, ρ ×100 on STSb dev, {runs.machine['device']}"
    return table(header, rows) + findings([compare_trained(trained)]) + shipped(where)


def show(context: Context, a: str, b: str, pooling: str) -> Measurement:
    """The figure and the result."""
    result = measure(context, a, b, pooling)
    # CLS pooling has no exact attribution.
    exact = result.comparison.attribution
    figure = left_out_bars(result.left_out) if exact is None else compare.word_map(exact)
    html = describe(result, pooling)
    runs = precomputed_tables("pooling").get(RAW_BASE)
    if runs is not None:
        html += describe_trained(runs)
    return Measurement(figure, html)


def build() -> Demo:
    first = examples.pairs()[0]
    a = gr.Textbox(first.a, label="First sentence", max_lines=3, elem_id="learn-a")
    b = gr.Textbox(first.b, label="Second sentence", max_lines=3, elem_id="learn-b")
    pooling = gr.Radio(POOLINGS, value="mean", label="Pooling", elem_id="learn-pooling")
    return Demo([a, b, pooling], show)
