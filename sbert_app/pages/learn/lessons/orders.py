"""Lesson 6: for unit vectors, cosine, dot product and Euclidean distance give the same order.

If |u| = |v| = 1, then u·v = cos(u, v) and |u - v|² = 2 - 2 cos(u, v), which decreases as the cosine
increases. Without normalisation the dot product prefers long vectors and the distance short ones.
Manhattan distance has no such identity. Paper: section 4.
"""

from typing import NamedTuple

import gradio as gr
import numpy as np
import scipy  # loads its submodules on first use
from markupsafe import Markup

from sbert_app.pages.components.messages import lead
from sbert_app.pages.learn.lesson import (
    DEFAULT_DATA,
    Context,
    Demo,
    Measurement,
    measured,
    rank_lines,
    table,
)
from sbert_app.pages.learn.samples import (
    EXAMPLES,
    EncodedCorpus,
    Timed,
    encode_corpus,
    encode_sample,
)
from sbert_app.services.results.results import data_label
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.pooling import normalize_rows
from training.similarities import SIMILARITIES, row_similarities

# The number of sentences in the figure and the table.
LISTED = 8
# The number of pairs with gold scores for ρ.
PAIRS = 200
LABELS = [similarity.label for similarity in SIMILARITIES.values()]


class Line(NamedTuple):
    sentence: str
    length: float  # |v| before normalisation
    ranks: dict[str, int]  # by similarity, from 1


class Orders(NamedTuple):
    """The corpus, ordered by similarity to a query in four ways."""

    lines: list[Line]  # the nearest by cosine, best first
    # Spearman between each order and the cosine's, over the whole corpus.
    agreement: dict[str, float]
    rho: dict[str, float]  # ×100 with gold scores
    lengths: tuple[float, float]  # shortest and longest vector of the corpus
    corpus: EncodedCorpus
    timed: Timed  # query, four similarities, ranks


def measure(context: Context, query: str, normalised: bool) -> Orders:
    """Orders the corpus. InputError if the query is empty, or the model or the data cannot be loaded."""
    if not query.strip():
        raise InputError("the query is empty; type a sentence to search for")
    corpus = encode_corpus(context, EXAMPLES)
    lengths = np.linalg.norm(corpus.vectors, axis=1)
    with Timed() as timed:
        query_vector = context.encoder.encode([query], normalize=normalised)
        vectors = normalize_rows(corpus.vectors) if normalised else corpus.vectors
        scores = row_similarities(np.broadcast_to(query_vector, vectors.shape), vectors)
        rank_of = {name: ranks(values) for name, values in scores.items()}
        nearest = np.argsort(rank_of["cosine"])[:LISTED]
    lines = []
    for row in nearest:
        by_similarity = {name: int(order[row]) for name, order in rank_of.items()}
        lines.append(Line(corpus.sentences[row], float(lengths[row]), by_similarity))
    sample = encode_sample(context, context.setup.model, PAIRS)
    u, v = sample.by_pooling["mean"]
    if normalised:
        u = normalize_rows(u)
        v = normalize_rows(v)
    return Orders(
        lines=lines,
        agreement={name: spearman(values, rank_of["cosine"]) for name, values in rank_of.items()},
        rho={
            name: 100 * spearman(values, sample.pairs.gold)
            for name, values in row_similarities(u, v).items()
        },
        lengths=(float(lengths.min()), float(lengths.max())),
        corpus=corpus,
        timed=timed,
    )


def ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks from 1, best first, (N,) int64. Scores are rounded to six decimals; ties keep the order of the corpus."""
    return scipy.stats.rankdata(-np.round(scores.astype(np.float64), 6), method="ordinal")


def describe(result: Orders, normalised: bool, data: str = DEFAULT_DATA) -> Markup:
    """Ranks under four similarities, how far the orders agree, and how well each agrees with gold scores."""
    corpus = result.corpus
    count = len(corpus.sentences)
    agreement = [
        (
            f"ρ with cosine’s order of {count}",
            *(f"{result.agreement[name]:.4f}" for name in SIMILARITIES),
        ),
        (
            f"ρ ×100 with gold scores, {data_label(data)}",
            *(f"{result.rho[name]:.1f}" for name in SIMILARITIES),
        ),
    ]
    lines = []
    for line in result.lines:
        cells = [_rank(line.ranks[name], line.ranks["cosine"]) for name in SIMILARITIES]
        lines.append((line.sentence, f"{line.length:.2f}", *cells))
    shortest, longest = result.lengths
    lengths = "All vectors have length 1" if normalised else "Lengths are as the model gives them"
    return (
        lead(f"{lengths}; the model’s lengths range from {shortest:.1f} to {longest:.1f}.")
        + table(("", *LABELS), agreement, wide=True)
        + table(("nearest by cosine", "length", *LABELS), lines, wide=True)
        + measured(
            f"{count} example sentences, encoded in {corpus.timed}; this answer in {1_000 * result.timed.seconds:.0f} "
            f"ms; {PAIRS} pairs for the last row"
        )
    )


def _rank(rank: int, by_cosine: int) -> str:
    """A rank, in red if it differs from the rank by cosine."""
    return str(rank) if rank == by_cosine else Markup('<b class="red">{}</b>').format(rank)


def show(context: Context, query: str, normalised: bool) -> Measurement:
    result = measure(context, query, normalised)
    rows = [[line.ranks[name] for name in SIMILARITIES] for line in result.lines]
    figure = rank_lines([line.sentence for line in result.lines], LABELS, rows)
    return Measurement(figure, describe(result, normalised, context.setup.data))


def build() -> Demo:
    query = gr.Textbox(
        "The orchestra played too loudly.", label="Query", max_lines=2, elem_id="learn-query"
    )
    normalised = gr.Checkbox(
        False, label="Normalise all vectors to length 1", elem_id="learn-normalise"
    )
    return Demo([query, normalised], show)
