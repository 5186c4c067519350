"""Lesson 14: hubs, sentences that are among the nearest of too many others, and what centring does about them.

N_k(x) is how many sentences have x among their k nearest; its mean is k. In many dimensions its
distribution is skewed (Radovanović, Nanopoulos & Ivanović 2010, JMLR 11): points near the mean of
the data are near to everything. Subtracting the mean takes that advantage away (Suzuki et al.
2013). Nielsen & Hansen 2023 (arXiv 2311.18364) find hubs in vectors of Sentence-BERT.
"""

from dataclasses import replace
from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
import scipy  # loads its submodules on first use
from markupsafe import Markup

from sbert_app.figures.style import PALETTE, add_bars
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import (
    DATA,
    EXAMPLES,
    RANDOM_WEIGHTS,
    EncodedCorpus,
    encode_corpus,
)
from training.pooling import normalize_rows

# The number of hubs in the table.
LISTED = 5


class Hubness(NamedTuple):
    """How often each sentence is among the k nearest of another."""

    counts: np.ndarray  # (N,) int64
    skewness: float  # 0 if symmetric about k


class Hubs(NamedTuple):
    """The hubs of a corpus, and of its vectors less their mean."""

    before: Hubness
    centred: Hubness
    corpus: EncodedCorpus
    k: int


def measure(context: Context, source: str, k: int) -> Hubs:
    """The neighbours by cosine, before and after the mean is subtracted. InputError if model or data cannot be loaded.

    ``source``: a key of `SOURCES`.
    """
    # The model None stands for the setup's model.
    model, sentences = SOURCES[source]
    setup = replace(context.setup, model=model or context.setup.model)
    corpus = encode_corpus(replace(context, setup=setup), sentences)
    centred = corpus.vectors - corpus.vectors.mean(axis=0)
    return Hubs(hubness(corpus.vectors, k), hubness(centred, k), corpus, k)


def hubness(vectors: np.ndarray, k: int) -> Hubness:
    """N_k of each vector (N, D) by cosine. A vector is not its own neighbour."""
    unit = normalize_rows(vectors)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]  # (N, k), in any order
    counts = np.bincount(nearest.ravel(), minlength=len(vectors))
    return Hubness(counts, float(scipy.stats.skew(counts)))


def count_bars(result: Hubs) -> go.Figure:
    """The number of sentences by how often they are a neighbour, before and after centring."""
    figure = go.Figure()
    for name, distribution, colour in (
        ("as they are", result.before, "orange"),
        ("centred", result.centred, "blue"),
    ):
        # The number of sentences for each count, from 0 on.
        sentences = np.bincount(distribution.counts).tolist()
        hover = f"neighbour of %{{x}}: %{{y}} sentences<extra>{name}</extra>"
        add_bars(
            figure, list(range(len(sentences))), sentences, colour, hover, name=name, opacity=0.65
        )
    figure.add_vline(x=result.k, line={"dash": "dot", "color": PALETTE["grey"]})
    figure.update_layout(barmode="overlay", bargap=0)
    return styled(
        figure, 330, "times among the nearest; dotted: the mean", "sentences", legend=True
    )


def describe(result: Hubs) -> Markup:
    """The skewness before and after, and the largest hubs."""
    before = result.before
    centred = result.centred
    total = len(result.corpus.sentences)
    k = result.k
    rows = []
    for name, distribution in (("as they are", before), ("centred", centred)):
        counts = distribution.counts
        rows.append(
            (
                name,
                f"{distribution.skewness:.2f}",
                str(counts.max()),
                f"{(counts == 0).sum()} of {total}",
            )
        )
    largest_first = np.argsort(-before.counts, kind="stable")
    hubs = []
    for row in largest_first[:LISTED]:
        hubs.append(
            (result.corpus.sentences[row], str(before.counts[row]), str(centred.counts[row]))
        )
    share = 100 * before.counts[largest_first[: total // 10]].sum() / before.counts.sum()
    sentences = [
        f"Each sentence has {k} neighbours, so each is one {k} times on average. The largest hub is one "
        f"{before.counts.max()} times; a tenth of the sentences fill {share:.0f}% of all places.",
        f"Centring moves the skewness from {before.skewness:.2f} to {centred.skewness:.2f}, and the largest hub from "
        f"{before.counts.max()} places to {centred.counts.max()}.",
    ]
    return (
        table(("", "skewness", "largest hub", "never a neighbour"), rows)
        + findings(sentences)
        + table(("the largest hubs", "as they are", "centred"), hubs)
        + measured(f"{total} sentences, all pairs compared, encoded in {result.corpus.timed}")
    )


# (model, None for the setup's; source of the sentences)
SOURCES: dict[str, tuple[str | None, str]] = {
    "examples": (None, EXAMPLES),
    "data": (None, DATA),
    "random": (RANDOM_WEIGHTS, EXAMPLES),
}


def show(context: Context, source: str, k: float) -> Measurement:
    result = measure(context, source, int(k))
    return Measurement(count_bars(result), describe(result))


def build() -> Demo:
    choices = [
        ("example corpus", "examples"),
        ("pairs of the data", "data"),
        ("examples, random weights", "random"),
    ]
    source = gr.Radio(choices, value="examples", label="Sentences", elem_id="learn-hub-source")
    k = gr.Slider(1, 30, 10, step=1, label="Neighbours of each sentence, k", elem_id="learn-hub-k")
    return Demo([source, k], show)
