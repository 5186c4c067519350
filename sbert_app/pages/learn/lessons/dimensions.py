"""Lesson 15: the first half of the dimensions, a random half, and the half that PCA keeps.

Takeshita et al. 2025 (arXiv 2508.17744) remove a random half of the dimensions of six encoders:
retrieval and classification lose less than 10%. PCA is fitted on the same sentences, without
scores. A model that was trained for it (Matryoshka; Kusupati et al. 2022, arXiv 2205.13147) orders
its dimensions by importance; others do not.
"""

from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import PALETTE, add_scatter
from sbert_app.formats import format_number
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import RANDOM_WEIGHTS, EncodedSample, encode_sample, rho

PAIRS = 300
# The number of random choices of each number of dimensions.
DRAWS = 20
FRACTIONS = (1, 3 / 4, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)


class RhoOfSize(NamedTuple):
    """ρ ×100 with a number of dimensions, chosen in three ways."""

    dimensions: int
    first: float
    random: np.ndarray  # (DRAWS,)
    pca: float


class RhoBySize(NamedTuple):
    rows: list[RhoOfSize]  # all dimensions, and the fractions of them
    sample: EncodedSample

    def nearest(self, share: float) -> RhoOfSize:
        """The row whose number of dimensions is nearest to this share of all."""
        whole = self.rows[0].dimensions
        return min(self.rows, key=lambda row: abs(row.dimensions - share * whole))


def measure(context: Context, source: str) -> RhoBySize:
    """Measures ρ with fewer and fewer dimensions of a model. InputError if model or data cannot be loaded.

    ``source`` is "trained", the setup's model, or "random" weights.
    """
    model = RANDOM_WEIGHTS if source == "random" else context.setup.model
    sample = encode_sample(context, model, PAIRS)
    sides = sample.by_pooling["mean"]
    both = np.concatenate(sides)
    mean = both.mean(axis=0)
    axes = np.linalg.svd(both - mean, full_matrices=False)[2].T  # (D, R), by descending variance
    rotated = [(side - mean) @ axes for side in sides]
    generator = np.random.default_rng(context.setup.seed)
    width = both.shape[1]
    gold = sample.pairs.gold
    rows = []
    # With one dimension, every cosine would be 1 or -1. A small model may have the same number for
    # two fractions.
    for count in dict.fromkeys(max(2, round(width * fraction)) for fraction in FRACTIONS):
        first = rho([side[:, :count] for side in sides], gold)
        pca = rho([side[:, :count] for side in rotated], gold)
        random = []
        for _ in range(DRAWS):
            columns = generator.choice(width, count, replace=False)
            random.append(rho([side[:, columns] for side in sides], gold))
        rows.append(RhoOfSize(count, first, np.array(random), pca))
    return RhoBySize(rows, sample)


def kept_lines(result: RhoBySize, size: RhoOfSize) -> go.Figure:
    """ρ ×100 against the dimensions kept, for each way of choosing them; each random choice is a point.

    The dotted line marks ``size``, the number that the reader has chosen.
    """
    figure = go.Figure()
    counts = [row.dimensions for row in result.rows]
    add_scatter(
        figure,
        np.repeat(counts, DRAWS).tolist(),
        np.concatenate([row.random for row in result.rows]).round(2).tolist(),
        "green",
        "%{x} at random: ρ %{y:.1f}<extra></extra>",
        "markers",
        name=f"{DRAWS} random choices",
        marker_size=5,
        marker_opacity=0.5,
    )
    first = [row.first for row in result.rows]
    pca = [row.pca for row in result.rows]
    hover = "%{x} dimensions: ρ %{y:.1f}<extra></extra>"
    for name, values, colour in (("the first", first, "orange"), ("PCA’s", pca, "blue")):
        points = np.round(values, 2).tolist()
        add_scatter(figure, counts, points, colour, hover, "lines+markers", name=name, line_width=3)
    figure.add_vline(x=size.dimensions, line={"dash": "dot", "color": PALETTE["grey"]})
    figure.update_xaxes(type="log", tickvals=counts, ticktext=list(map(str, counts)))
    return styled(figure, 350, "dimensions kept", "Spearman ρ ×100", legend=True)


def describe(result: RhoBySize, size: RhoOfSize) -> Markup:
    """ρ of each choice at each size, and what is lost with the chosen ``size``."""
    rows = []
    for row in result.rows:
        draws = row.random
        label = f"{row.dimensions} (chosen)" if row is size else str(row.dimensions)
        spread = f"{draws.min():.1f} to {draws.max():.1f}"
        rows.append((label, f"{row.first:.1f}", f"{draws.mean():.1f}", spread, f"{row.pca:.1f}"))
    # The first row has all dimensions. Its ρ of the unchanged vectors is `first`; its `pca` differs,
    # because PCA subtracts the mean.
    whole = result.rows[0].first
    draws = size.random
    if size.first > draws.max():
        comparison = "better than each of the"
    elif size.first < draws.min():
        comparison = "worse than each of the"
    else:
        comparison = "not special: they lie among the"
    by_first = format_number(size.first - whole, 1, "+")
    by_draws = format_number(draws.mean() - whole, 1, "+")
    by_pca = format_number(size.pca - whole, 1, "+")
    sentences = [
        f"{size.dimensions} of {result.rows[0].dimensions} dimensions change ρ by {by_first} points if they are the "
        f"first, by {by_draws} on average if they are chosen at random, and by {by_pca} if PCA chooses.",
        f"The first {size.dimensions} are {comparison} {DRAWS} random choices.",
    ]
    about = f"{result.sample.model}, {result.sample.pairs.label}, PCA fitted on their sentences without scores, encoded"
    header = ("dimensions", "the first", "random, mean", "random, range", "PCA’s")
    return table(header, rows) + findings(sentences) + measured(f"{about} in {result.sample.timed}")


def show(context: Context, source: str, share: float) -> Measurement:
    result = measure(context, source)
    size = result.nearest(share)
    return Measurement(kept_lines(result, size), describe(result, size))


def build() -> Demo:
    choices = [("the tuned model", "trained"), ("random weights", "random")]
    source = gr.Radio(choices, value="trained", label="Embeddings of", elem_id="learn-half-source")
    shares = [(f"1/{round(1 / fraction)}", fraction) for fraction in FRACTIONS if fraction <= 1 / 2]
    share = gr.Radio(shares, value=1 / 2, label="Dimensions kept", elem_id="learn-half-share")
    return Demo([source, share], show)
