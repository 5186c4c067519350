"""Lesson 7: retrieve with the bi-encoder, then re-rank with the cross-encoder.

The bi-encoder compares the query with every sentence by a dot product; the cross-encoder then
scores the query with each of the k best. The first is fast, the second accurate. Paper: sections 1
and 4.2, Table 2.
"""

from functools import lru_cache
from typing import NamedTuple

import gradio as gr
import numpy as np
import scipy  # loads its submodules on first use
from markupsafe import Markup

from sbert_app.figures.style import PALETTE
from sbert_app.formats import format_count, format_duration
from sbert_app.pages.learn.lesson import (
    LINE_COLOURS,
    Context,
    Demo,
    Measurement,
    measured,
    rank_lines,
    table,
    tiles,
)
from sbert_app.pages.learn.samples import (
    DATA,
    EncodedCorpus,
    Timed,
    encode_corpus,
    encode_sample,
    gold_sample,
)
from sbert_app.services.results.results import data_label
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.pooling import normalize_rows

# The pairs on which the quality of both models is measured.
PAIRS = 200
# The length of a ranking, and of a sentence in it; the figure has all candidates.
MAX_ROWS = 10
MAX_CHARACTERS = 72


class Candidate(NamedTuple):
    """A retrieved sentence with its cosine, its cross-encoder score and both ranks."""

    sentence: str
    cosine: float
    cross: float  # 0..1
    rank: int  # by cosine, from 1
    cross_rank: int  # among the candidates, from 1


class Reranked(NamedTuple):
    """Candidates in the order of the cosine, and the time of each step."""

    candidates: list[Candidate]
    corpus: EncodedCorpus
    retrieval: Timed
    reranking: Timed


def measure(context: Context, query: str, k: int) -> Reranked:
    """The k nearest sentences of the data with their ranks in both orders. InputError if the query is empty."""
    if not query.strip():
        raise InputError("the query is empty; type a sentence to search for")
    corpus = encode_corpus(context, DATA)
    index = normalize_rows(corpus.vectors)
    cross_encoder = context.cross_encoder
    with Timed() as retrieval:
        cosines = index @ context.encoder.encode([query])[0]
        nearest = np.argsort(-cosines, kind="stable")[:k]
    with Timed() as reranking:
        scores = cross_encoder.predict([(query, corpus.sentences[row]) for row in nearest])
    cross_ranks = scipy.stats.rankdata(-scores, method="ordinal")
    candidates = []
    for place, row in enumerate(nearest):
        candidates.append(
            Candidate(
                corpus.sentences[row],
                float(cosines[row]),
                float(scores[place]),
                rank=place + 1,
                cross_rank=int(cross_ranks[place]),
            )
        )
    return Reranked(candidates, corpus, retrieval, reranking)


@lru_cache(maxsize=2)
def quality(context: Context) -> tuple[float, float]:
    """Spearman ×100 of bi-encoder and cross-encoder on the same pairs."""
    sample = gold_sample(context, PAIRS)
    pairs = list(zip(sample.first, sample.second, strict=True))
    watch = context.watch.stage(f"Scoring {sample.label} with the cross-encoder")
    cross_scores = context.cross_encoder.predict(pairs, watch.on_progress, watch.should_stop)
    bi = encode_sample(context, context.setup.model, PAIRS).rho("mean")
    return bi, 100 * spearman(cross_scores, sample.gold)


def describe(result: Reranked, quality: tuple[float, float]) -> Markup:
    """Both orders side by side, and the time of each step; ``quality``: ρ of bi- and cross-encoder."""
    corpus = result.corpus
    by_cosine = result.candidates
    by_cross = sorted(by_cosine, key=lambda candidate: candidate.cross_rank)
    count = len(corpus.sentences)
    data = data_label(corpus.data)
    bi, cross = quality
    figures = (
        (
            f"{1_000 * result.retrieval.seconds:.0f} ms",
            "retrieve",
            f"query against {count} sentences",
        ),
        (
            f"{1_000 * result.reranking.seconds:.0f} ms",
            "re-rank",
            f"{len(by_cosine)} pairs read together",
        ),
        (f"{bi:.1f} / {cross:.1f}", "ρ ×100, bi / cross", f"on {PAIRS} pairs of {data}"),
    )
    # The time for every sentence of the corpus.
    exhaustive = result.reranking.seconds * count / len(by_cosine)
    rows = []
    for first, second in zip(by_cosine[:MAX_ROWS], by_cross[:MAX_ROWS], strict=True):
        score = f"{second.cross:.2f}, was {second.rank}"
        rows.append((first.rank, _ranked(first, f"{first.cosine:.2f}"), _ranked(second, score)))
    return (
        tiles(figures)
        + table(("", "by cosine", "by the cross-encoder"), rows, wide=True)
        + measured(
            f"{format_count(count, 'sentence')} of {data}, encoded in {corpus.timed}. Reading all of them with the "
            f"cross-encoder would take about {format_duration(exhaustive)} (extrapolated)"
        )
    )


def _ranked(candidate: Candidate, score: str) -> Markup:
    """A sentence of a ranking, with the colour of its line in the figure."""
    text = candidate.sentence
    label = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
    # `rank_lines` colours the candidates in the order of the cosine, and repeats the colours.
    colour = PALETTE[LINE_COLOURS[(candidate.rank - 1) % len(LINE_COLOURS)]]
    return Markup('<i class="dot" style="background:{}"></i>{} <small>{}</small>').format(
        colour, label, score
    )


def show(context: Context, query: str, k: float) -> Measurement:
    result = measure(context, query, int(k))
    ranks = [[candidate.rank, candidate.cross_rank] for candidate in result.candidates]
    orders = ["by cosine", "by the cross-encoder"]
    figure = rank_lines([candidate.sentence for candidate in result.candidates], orders, ranks)
    return Measurement(figure, describe(result, quality(context)))


def build() -> Demo:
    query = gr.Textbox(
        "The stock market fell sharply.", label="Query", max_lines=2, elem_id="learn-search"
    )
    k = gr.Slider(
        5, 40, 10, step=1, label="Candidates k that the cross-encoder reads", elem_id="learn-k"
    )
    return Demo([query, k], show)
