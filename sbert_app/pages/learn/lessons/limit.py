"""Lesson 16: what one vector cannot say. A query for each pair of documents, and vectors that are free to move.

Weller et al. 2025 (LIMIT, arXiv 2508.21038): the dimension bounds which sets of documents can be nearest to a query.
Here gradient descent moves a vector for each of n documents and of n(n-1)/2 queries until the two documents of each
query are its nearest, if it can. In the plane only n pairs can be, those side by side on the circle; in space at most
3n - 6, the edges of a polyhedron. From four dimensions on all can, in theory, by margins that shrink with n.

The same as text: a person for each document, who likes one thing for each pair that the person is in.
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
from sbert_app.pages.learn.lesson import Context, Demo, Measurement, findings, measured, styled, table
from sbert_app.pages.learn.samples import Timed
from training.catalogue import read_asset
from training.models.lexical import TfIdf

DIMENSIONS = (2, 3, 4, 6, 8)
STEPS = 250
SHARPNESS = 20.0  # of the loss: the larger, the more the worst document of a query counts
# The people and the things of the sentences.
NAMES = ("Anna", "Boris", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "Jakob", "Karin", "Louis")


class Limit(NamedTuple):
    """The share of queries whose two documents are the nearest, 0..1, by what they were compared with."""

    free: dict[int, float]  # dimensions -> one free vector for each document and query
    text: dict[str, float]  # scorer -> the sentences
    documents: int
    width: int  # of the model's vectors
    example: tuple[str, str]  # a document and a query
    timed: Timed  # the optimisation


@lru_cache(maxsize=16)
def measure(context: Context, documents: int) -> Limit:
    """Measures free vectors of each dimension, and the model on sentences. InputError if it cannot be loaded."""
    pairs = np.array(list(combinations(range(documents), 2)))
    with Timed() as timed, threadpool_limits(1):  # several threads wait for each other longer than such a step takes
        free = {dimension: solved(optimise(pairs, dimension, context.setup.seed), pairs) for dimension in DIMENSIONS}
    texts, queries = sentences(documents)
    text = {name: solved(scores, pairs) for name, scores in _text_scores(context, texts, queries).items()}
    return Limit(free, text, documents, context.encoder.dimension, (texts[0], queries[0]), timed)


def optimise(pairs: np.ndarray, dimension: int, seed: int) -> np.ndarray:
    """Cosines (Q, n) of free queries and documents after gradient descent on the ``pairs`` (Q, 2) of each query."""
    import torch
    import torch.nn.functional as F

    generator, count = torch.Generator().manual_seed(seed), int(pairs.max()) + 1
    documents = torch.randn(count, dimension, generator=generator).requires_grad_()
    queries = F.normalize(documents.detach())[torch.from_numpy(pairs)].mean(dim=1).requires_grad_()
    is_target = torch.zeros(len(pairs), count, dtype=torch.bool).scatter_(1, torch.from_numpy(pairs), True)
    optimizer = torch.optim.Adam([documents, queries], lr=0.05)
    for _ in range(STEPS):
        scores = SHARPNESS * F.normalize(queries) @ F.normalize(documents).T
        best = scores.masked_fill(is_target, -torch.inf).logsumexp(dim=1)  # of those that should not be found
        worst = -(-scores).masked_fill(~is_target, -torch.inf).logsumexp(dim=1)  # of the two that should
        optimizer.zero_grad()
        F.softplus(best - worst).mean().backward()
        optimizer.step()
    return (F.normalize(queries) @ F.normalize(documents).T).detach().numpy()


def solved(scores: np.ndarray, pairs: np.ndarray) -> float:
    """The share of queries whose two highest of the scores (Q, n) are those of its pair (Q, 2)."""
    nearest = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :2], axis=1)
    return float((nearest == pairs).all(axis=1).mean())


def sentences(documents: int) -> tuple[list[str], list[str]]:
    """A person for each document, and a question for each pair of them, in the order of the pairs."""
    pairs, things = list(combinations(range(documents), 2)), read_asset("examples/things.txt").split()
    likes = [[thing for thing, pair in zip(things, pairs, strict=False) if row in pair] for row in range(documents)]
    texts = [f"{name} likes {', '.join(liked)}." for name, liked in zip(NAMES, likes, strict=False)]
    return texts, [f"Who likes {thing}?" for thing in things[: len(pairs)]]


def _text_scores(context: Context, texts: list[str], queries: list[str]) -> dict[str, np.ndarray]:
    """The scores of the questions with the documents, (Q, n), by three scorers."""
    from training.models.maxsim import MaxSim

    encoder, both = context.encoder, [*queries, *texts]
    vectors = {f"{encoder.name}, one vector": encoder.encode(both), "TF-IDF": TfIdf().encode(both)}
    scores = {name: stacked[: len(queries)] @ stacked[len(queries) :].T for name, stacked in vectors.items()}
    late = MaxSim(encoder).similarity(queries, texts)
    return {**scores, f"{encoder.name}, a vector for each token": late}


def limit_bars(result: Limit) -> go.Figure:
    """The share of queries that are answered, ×100: free vectors by their dimension, then the sentences."""
    text = dict(zip(("one vector", "TF-IDF", "vectors of tokens"), result.text.values(), strict=True))
    bars = {f"free, {dimension} dim.": share for dimension, share in result.free.items()} | text
    colours = [PALETTE["blue"]] * len(result.free) + [PALETTE["orange"]] * len(result.text)
    shares = [100 * share for share in bars.values()]
    style = {
        "orientation": "h",
        "marker_color": colours,
        "textangle": 0,
        "hovertemplate": "%{y}: %{x:.0f}%<extra></extra>",
    }
    figure = go.Figure(go.Bar(x=shares, y=list(bars), text=[f"{share:.0f}" for share in shares], **style))
    figure.update_layout(xaxis_range=[0, 104], yaxis_autorange="reversed")
    return styled(figure, 30 * len(bars) + 90, "queries answered, %")


def describe(result: Limit) -> Markup:
    """How many queries are answered with each dimension, and by the model with one vector and with many."""
    n, queries = result.documents, result.documents * (result.documents - 1) // 2
    possible = {2: n, 3: 3 * n - 6}
    rows = [
        (str(dimension), f"{round(share * queries)} of {queries}", str(min(possible.get(dimension, queries), queries)))
        for dimension, share in result.free.items()
    ]
    enough = next((dimension for dimension, share in result.free.items() if share == 1), None)
    (one, share), _, (late, late_share) = result.text.items()
    sentences = [
        f"Descent solves all {queries} pairs of {n} documents from {enough} dimensions on."
        if enough
        else f"With none of these dimensions descent solves all {queries} pairs of {n} documents.",
        f"As text, {one} of {result.width} dimensions answers {100 * share:.0f}% of the questions; {late} answers "
        f"{100 * late_share:.0f}%, from the same output of the same model.",
    ]
    if enough and enough < result.width and share < 1:
        sentences.append("So the one vector of this model has room enough. Its training has not used it for this.")
    text, query = result.example
    return (
        table(("dimensions", "solved by descent", "possible at most"), rows)
        + findings(sentences)
        + note(f"A document: “{text}” A question: “{query}”")
        + measured(f"{n} documents, {queries} queries; {STEPS} steps of Adam for each dimension, in {result.timed}")
    )


def show(context: Context, documents: float) -> Measurement:
    result = measure(context, int(documents))
    return Measurement(limit_bars(result), describe(result))


def build() -> Demo:
    documents = gr.Slider(4, len(NAMES), 10, step=1, label="Documents, n", elem_id="learn-documents")
    return Demo([documents], show)
