"""Lesson 16: what one vector cannot say. A query for each pair of documents, and vectors that are free to move.

Weller et al. 2025 (LIMIT, arXiv 2508.21038): the dimension bounds which sets of documents can be
nearest to a query. Here gradient descent moves a vector for each of n documents and of n(n-1)/2
queries until the two documents of each query are its nearest, if it can. In the plane only n pairs
can be, those side by side on the circle; in space at most 3n - 6, the edges of a polyhedron. From
four dimensions on all can, in theory, by margins that shrink with n.

The same as text: a person for each document, who likes one thing for each pair that the person is
in.
"""

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from threadpoolctl import threadpool_limits

from sbert_app.figures.style import PALETTE
from sbert_app.pages.components.messages import note
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import Timed
from training.catalogue import read_asset
from training.models.lexical import TfIdf
from training.models.maxsim import MaxSim

DIMENSIONS = (2, 3, 4, 6, 8)
STEPS = 250
# The larger, the more the loss depends on the worst document of a query.
SHARPNESS = 20.0
# The people and the things of the sentences.
NAMES = (
    "Anna",
    "Boris",
    "Clara",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Irene",
    "Jakob",
    "Karin",
    "Louis",
)


class Limit(NamedTuple):
    """The share of queries, 0..1, whose two documents are the nearest, for free vectors and for texts."""

    free: dict[int, float]  # by dimension, with a free vector for each document and query
    text: dict[str, float]  # by scorer, with sentences
    documents: int
    width: int  # of the model's vectors
    example: tuple[str, str]  # a document and a query
    timed: Timed  # the optimisation


@lru_cache(maxsize=16)
def measure(context: Context, documents: int) -> Limit:
    """Measures free vectors of each dimension, and the model on sentences. InputError if the model cannot be loaded."""
    pairs = np.array(list(combinations(range(documents), 2)))
    free: dict[int, float] = {}
    watch = context.watch.stage(f"Optimising vectors of {len(DIMENSIONS)} dimensions")
    # In steps of this size, several threads would wait for each other longer than they compute.
    with Timed() as timed, threadpool_limits(1):
        for dimension in DIMENSIONS:
            watch.check()
            watch.on_progress(len(free), len(DIMENSIONS))
            scores = optimise(pairs, dimension, context.setup.seed)
            free[dimension] = solved(scores, pairs)
    texts, queries = sentences(documents)
    text = {
        name: solved(scores, pairs)
        for name, scores in _text_scores(context, texts, queries).items()
    }
    return Limit(free, text, documents, context.encoder.dimension, (texts[0], queries[0]), timed)


def optimise(pairs: np.ndarray, dimension: int, seed: int) -> np.ndarray:
    """Moves free vectors of queries and documents until each query is nearest to its pair of documents, if it can be.

    Args:
        pairs: the documents of each query, (Q, 2).

    Returns:
        The cosines of the queries with the documents, (Q, n).
    """
    # The import of torch takes seconds.
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(seed)
    count = int(pairs.max()) + 1
    documents = torch.randn(count, dimension, generator=generator).requires_grad_()
    targets = torch.from_numpy(pairs)
    # Each query starts between its two documents.
    queries = F.normalize(documents.detach())[targets].mean(dim=1).requires_grad_()
    is_target = torch.zeros(len(pairs), count, dtype=torch.bool).scatter_(1, targets, True)
    optimizer = torch.optim.Adam([documents, queries], lr=0.05)
    for _ in range(STEPS):
        scores = SHARPNESS * F.normalize(queries) @ F.normalize(documents).T
        # Smooth forms of the best score of a wrong document and the worst score of a right one,
        # (Q,) each.
        best_wrong = scores.masked_fill(is_target, -torch.inf).logsumexp(dim=1)
        worst_right = -(-scores).masked_fill(~is_target, -torch.inf).logsumexp(dim=1)
        optimizer.zero_grad()
        F.softplus(best_wrong - worst_right).mean().backward()
        optimizer.step()
    return (F.normalize(queries) @ F.normalize(documents).T).detach().numpy()


def solved(scores: np.ndarray, pairs: np.ndarray) -> float:
    """The share of queries whose two highest scores (Q, n) belong to the documents of their pair (Q, 2), ascending."""
    nearest = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :2], axis=1)
    return float((nearest == pairs).all(axis=1).mean())


def sentences(documents: int) -> tuple[list[str], list[str]]:
    """A person for each document, and a question for each pair of them, in the order of the pairs."""
    # More things, and more names, than are needed.
    things = read_asset("examples/things.txt").split()
    likes: list[list[str]] = [[] for _ in range(documents)]
    queries = []
    for (first, second), thing in zip(combinations(range(documents), 2), things, strict=False):
        likes[first].append(thing)
        likes[second].append(thing)
        queries.append(f"Who likes {thing}?")
    texts = [f"{name} likes {', '.join(liked)}." for name, liked in zip(NAMES, likes, strict=False)]
    return texts, queries


def _text_scores(context: Context, texts: list[str], queries: list[str]) -> dict[str, np.ndarray]:
    """The scores of the questions with the documents, (Q, n), by three scorers."""
    encoder = context.encoder
    both = [*queries, *texts]
    vectors = {f"{encoder.name}, one vector": encoder.encode(both), "TF-IDF": TfIdf().encode(both)}
    scores = {}
    for name, of_both in vectors.items():
        of_queries, of_texts = np.split(of_both, [len(queries)])
        scores[name] = of_queries @ of_texts.T
    scores[f"{encoder.name}, a vector for each token"] = MaxSim(encoder).similarity(queries, texts)
    return scores


def limit_bars(result: Limit) -> go.Figure:
    """The share of queries that are answered, ×100: free vectors by their dimension, then the sentences."""
    labels = [f"free, {dimension} dim." for dimension in result.free]
    # Short forms of the names of the scorers, in the order of `_text_scores`.
    labels += ["one vector", "TF-IDF", "vectors of tokens"]
    shares = [100 * share for share in (*result.free.values(), *result.text.values())]
    figure = go.Figure()
    figure.add_bar(
        x=shares,
        y=labels,
        orientation="h",
        text=[f"{share:.0f}" for share in shares],
        textangle=0,
        marker_color=[PALETTE["blue"]] * len(result.free) + [PALETTE["orange"]] * len(result.text),
        hovertemplate="%{y}: %{x:.0f}%<extra></extra>",
    )
    figure.update_layout(xaxis_range=[0, 104], yaxis_autorange="reversed")
    return styled(figure, 30 * len(labels) + 90, "queries answered, %")


def describe(result: Limit) -> Markup:
    """How many queries are answered with each dimension, and by the model with one vector and with many."""
    n = result.documents
    queries = n * (n - 1) // 2
    # With more dimensions, all queries are possible.
    most_possible = {2: n, 3: 3 * n - 6}
    rows = []
    for dimension, share in result.free.items():
        possible = min(most_possible.get(dimension, queries), queries)
        rows.append((str(dimension), f"{round(share * queries)} of {queries}", str(possible)))
    enough = next((dimension for dimension, share in result.free.items() if share == 1), None)
    if enough:
        sentences = [
            f"Descent solves all {queries} pairs of {n} documents from {enough} dimensions on."
        ]
    else:
        sentences = [
            f"With none of these dimensions descent solves all {queries} pairs of {n} documents."
        ]
    # In the order of `_text_scores`.
    (one_vector, vector_share), _tf_idf, (tokens, tokens_share) = result.text.items()
    sentences.append(
        f"As text, {one_vector} of {result.width} dimensions answers {100 * vector_share:.0f}% of the questions; "
        f"{tokens} answers {100 * tokens_share:.0f}%, from the same output of the same model."
    )
    if enough and enough < result.width and vector_share < 1:
        sentences.append(
            "So the one vector of this model has room enough. Its training has not used it for this."
        )
    text, query = result.example
    return (
        table(("dimensions", "solved by descent", "possible at most"), rows)
        + findings(sentences)
        + note(f"A document: “{text}” A question: “{query}”")
        + measured(
            f"{n} documents, {queries} queries; {STEPS} steps of Adam for each dimension, in {result.timed}"
        )
    )


def show(context: Context, documents: float) -> Measurement:
    result = measure(context, int(documents))
    return Measurement(limit_bars(result), describe(result))


def build() -> Demo:
    documents = gr.Slider(
        4, len(NAMES), 10, step=1, label="Documents, n", elem_id="learn-documents"
    )
    return Demo([documents], show)
