"""Lesson 10: vectors that share a direction (anisotropy), and ten lines that remove it (whitening).

Su, Cao, Liu & Ou 2021, arXiv 2103.15316: subtract the mean of all sentence vectors and multiply by
W = U Λ^(-1/2) of their covariance U Λ Uᵀ; its first k columns also reduce the dimension. No labels
are used. Here, as in the paper's "target" rows, the covariance is that of the sentences that are
then compared.
"""

from collections.abc import Mapping
from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import PALETTE, add_scatter
from sbert_app.formats import format_count
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
from sbert_app.pages.learn.samples import RANDOM_WEIGHTS, EncodedSample, encode_sample, rho
from training.evaluation.diagnostics import effective_rank, random_cosines

PAIRS = 500
# (model, None for the setup's; pooling)
SOURCES: dict[str, tuple[str | None, str]] = {
    "trained": (None, "mean"),
    "random": (RANDOM_WEIGHTS, "mean"),
    "random cls": (RANDOM_WEIGHTS, "cls"),
}
# The numbers of dimensions in the figure, beside all of them and the reader's choice.
DIMENSIONS = (16, 32, 64, 128, 256)


class Spread(NamedTuple):
    rho: float  # Spearman ×100 between cosine and gold score
    random_cosine: float  # mean over sentences of different pairs
    effective_rank: float
    dimensions: int


class Whitened(NamedTuple):
    before: Spread
    after: Spread
    rho_by_dimension: dict[int, float]  # after, for each number of dimensions kept
    sample: EncodedSample


def measure(context: Context, source: str, keep: int) -> Whitened:
    """Whitens the vectors of ``source``, a key of `SOURCES`, and keeps at most ``keep`` dimensions.

    InputError if the model or the data cannot be loaded.
    """
    # The model None stands for the setup's model.
    model, pooling = SOURCES[source]
    sample = encode_sample(context, model or context.setup.model, PAIRS)
    u, v = (vectors.astype(np.float64) for vectors in sample.by_pooling[pooling])
    gold = sample.pairs.gold
    kernel, mean = whitening(np.concatenate([u, v]))
    rank = kernel.shape[1]
    keep = max(1, min(keep, rank))
    white_u = (u - mean) @ kernel
    white_v = (v - mean) @ kernel
    dimensions = {keep, rank}.union(k for k in DIMENSIONS if k < rank)
    return Whitened(
        before=_spread(u, v, gold),
        after=_spread(white_u[:, :keep], white_v[:, :keep], gold),
        rho_by_dimension={
            k: rho((white_u[:, :k], white_v[:, :k]), gold) for k in sorted(dimensions)
        },
        sample=sample,
    )


def whitening(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (N, D) -> the kernel (D, R) and the mean (D,); (vectors - mean) @ kernel has covariance I.

    The columns are in descending order of variance. R is the rank, at most D and N - 1: along the
    other directions the vectors do not vary, so they cannot be scaled to variance 1.
    """
    mean = vectors.mean(axis=0)
    _, singular, directions = np.linalg.svd(vectors - mean, full_matrices=False)
    # Smaller singular values would be 0 without rounding errors.
    rank = int((singular > singular[0] * 1e-6).sum())
    # The variance along a direction is the square of the singular value, divided by N - 1.
    kernel = directions[:rank].T / singular[:rank] * np.sqrt(len(vectors) - 1)
    return kernel, mean


def _spread(u: np.ndarray, v: np.ndarray, gold: np.ndarray) -> Spread:
    """Measures the vectors of the pairs, (N, D) each."""
    # The second value of `random_cosines` is the standard deviation.
    return Spread(rho((u, v), gold), random_cosines(u)[0], effective_rank(u), u.shape[1])


def kept_dimensions(rho: Mapping[int, float], before: float, keep: int) -> go.Figure:
    """ρ ×100 after whitening against the dimensions that are kept, and ρ before (dashed). The chosen one is marked."""
    figure = add_scatter(
        go.Figure(),
        list(rho),
        np.round(list(rho.values()), 2).tolist(),
        "blue",
        "first %{x} dimensions: ρ %{y:.1f}<extra></extra>",
        "lines+markers",
        name="whitened",
        line_width=3,
        marker_size=8,
    )
    figure.add_hline(
        y=before,
        line={"dash": "dash", "color": PALETTE["orange"], "width": 2},
        annotation={
            "text": f"before: {before:.1f}",
            "xanchor": "right",
            "x": 1,
            "font": {"size": 13},
        },
    )
    add_scatter(figure, [keep], [round(rho[keep], 2)], "blue", mode="markers", marker_size=15)
    values = [*rho.values(), before]
    margin = max(2.0, 0.12 * (max(values) - min(values)))
    figure.update_xaxes(type="log", tickvals=list(rho), ticktext=[str(k) for k in rho])
    figure.update_yaxes(range=[min(values) - margin, max(values) + margin])
    return styled(figure, 330, "dimensions kept", "Spearman ρ ×100")


def describe(result: Whitened) -> Markup:
    """The distribution of the vectors before and after, and whether ρ rose."""
    before = result.before
    after = result.after
    sample = result.sample
    rows = []
    for name, spread in (("before", before), ("whitened", after)):
        # The option ``z`` writes a rounded -0.00 as 0.00.
        rows.append(
            (
                name,
                f"{spread.random_cosine:z.2f}",
                f"{spread.effective_rank:.0f}",
                str(spread.dimensions),
                f"{spread.rho:.1f}",
            )
        )
    best = max(result.rho_by_dimension, key=result.rho_by_dimension.__getitem__)
    sentences = [
        change_of_rho(after.rho - before.rho, f"Whitening to {after.dimensions} dimensions"),
        f"The best of the figure is {result.rho_by_dimension[best]:.1f}, with {best} dimensions; without whitening "
        f"it is {before.rho:.1f}.",
    ]
    return (
        table(("", "random cosine, mean", "effective rank", "dimensions", "ρ ×100"), rows)
        + findings(sentences)
        + measured(
            f"{sample.model}, {sample.pairs.label}; whitening fitted on their "
            f"{format_count(2 * len(sample.pairs.gold), 'sentence')}; encoded in {sample.timed}"
        )
    )


def show(context: Context, source: str, keep: float) -> Measurement:
    result = measure(context, source, int(keep))
    # ``keep`` may be above the rank. `after.dimensions` is the number that was kept.
    figure = kept_dimensions(result.rho_by_dimension, result.before.rho, result.after.dimensions)
    return Measurement(figure, describe(result))


def build() -> Demo:
    choices = [
        ("tuned model, mean", "trained"),
        ("random weights, mean", "random"),
        ("random, CLS", "random cls"),
    ]
    source = gr.Radio(choices, value="random", label="Embeddings of", elem_id="learn-white-source")
    keep = gr.Slider(
        16, 384, 256, step=16, label="Dimensions kept after whitening", elem_id="learn-keep"
    )
    return Demo([source, keep], show)
