"""Lessons 8 and 12: what similarity misses. Sentences with a paraphrase and with one that says something else.

Lesson 8: the other sentence is a negation. Lesson 12 (`word_order`): it has the same words in
another order, as in PAWS (Zhang et al. 2019). Each set ships with the app
(assets/examples/contrasts.json) and was written for it. Three scorers read the same pairs: TF-IDF,
which sees no order; the bi-encoder; the cross-encoder, which reads both sentences at once.
"""

import json
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import PALETTE, add_scatter
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
from training.catalogue import DEFAULT_CROSS_ENCODER, read_asset
from training.errors import InputError
from training.models.lexical import TfIdf
from training.similarities import cosine

NEGATION = "negation"
WORD_ORDER = "word_order"
# The set of a lesson -> the names of its pairs: with the paraphrase, the contrast, and an unrelated
# sentence.
NAMES = {
    NEGATION: ("paraphrase", "negation", "unrelated"),
    WORD_ORDER: ("paraphrase", "swap", "unrelated"),
}
TF_IDF = "TF-IDF"
BI = "bi-encoder"
CROSS = "cross-encoder"
COLOURS = {TF_IDF: "grey", BI: "blue", CROSS: "vermillion"}
OWN = "your pair"


class Item(NamedTuple):
    """A sentence, the same in other words, and a sentence that shares its words and says something else."""

    sentence: str
    paraphrase: str
    contrast: str


class Scores(NamedTuple):
    """The similarities of the pairs of each kind by one scorer, (N,) each; row i belongs to item i."""

    paraphrase: np.ndarray
    contrast: np.ndarray
    unrelated: np.ndarray  # with the sentence of another item

    @property
    def told_apart(self) -> int:
        """Items whose paraphrase scores above the contrast."""
        return int((self.paraphrase > self.contrast).sum())

    @property
    def above_unrelated(self) -> int:
        """Items whose contrast scores above an unrelated sentence."""
        return int((self.contrast > self.unrelated).sum())


class Contrast(NamedTuple):
    """All scorers on all items of a set, and on the pair that the reader typed."""

    by_scorer: dict[str, Scores]
    own: dict[str, float]  # of the reader's pair, by scorer
    model: str
    timed: Timed  # the scores of the set


def items(kind: str) -> list[Item]:
    """The items of a set, a key of `NAMES`."""
    sets = json.loads(read_asset("examples/contrasts.json"))
    return [Item(*row) for row in sets[kind]]


def measure(context: Context, kind: str, a: str, b: str) -> Contrast:
    """Scores the set and the reader's pair. InputError if a sentence is empty or a model cannot be loaded."""
    for name, sentence in (("first", a), ("second", b)):
        if not sentence.strip():
            raise InputError(f"the {name} sentence is empty: type one")
    by_scorer, timed = _score_set(context, kind)
    scores_of_pair = _score_pairs(context, [(a, b)], kind)
    own = {name: float(scores[0]) for name, scores in scores_of_pair.items()}
    return Contrast(by_scorer, own, context.setup.model, timed)


# The scores of the set stay the same while the reader types.
@lru_cache(maxsize=8)
def _score_set(context: Context, kind: str) -> tuple[dict[str, Scores], Timed]:
    """The scores of all items by each scorer, and the time."""
    contrasts = items(kind)
    # Each item is also compared with an unrelated sentence, from the item half a set further on.
    half = len(contrasts) // 2
    others = contrasts[half:] + contrasts[:half]
    pairs = [(item.sentence, item.paraphrase) for item in contrasts]
    pairs += [(item.sentence, item.contrast) for item in contrasts]
    pairs += [
        (item.sentence, other.sentence) for item, other in zip(contrasts, others, strict=True)
    ]
    with Timed() as timed:
        scores = _score_pairs(context, pairs, kind)
    # The fields of `Scores` have the order of the three parts of ``pairs``.
    return {name: Scores(*np.split(values, 3)) for name, values in scores.items()}, timed


def _score_pairs(
    context: Context, pairs: list[tuple[str, str]], kind: str
) -> dict[str, np.ndarray]:
    """The similarities of the pairs by each scorer, (N,) each. The set ``kind`` gives TF-IDF its weights."""
    first, second = zip(*pairs, strict=True)
    # The second half has the second sentences; `numpy.split` makes two sides of the vectors.
    sentences = [*first, *second]
    # The weights of TF-IDF come from the whole set.
    corpus = list(chain.from_iterable(items(kind)))
    counts = TfIdf().encode([*corpus, *sentences])[len(corpus) :]
    vectors = context.encoder.encode(sentences)
    watch = context.watch.stage(f"Scoring {len(pairs)} pairs with the cross-encoder")
    return {
        TF_IDF: cosine(*np.split(counts, 2)),
        BI: cosine(*np.split(vectors, 2)),
        CROSS: context.cross_encoder.predict(pairs, watch.on_progress, watch.should_stop),
    }


def contrast_strips(result: Contrast, kind: str) -> go.Figure:
    """The scores of each kind of pair by each scorer: quartiles and every point; the reader's pair as diamonds."""
    figure = go.Figure()
    for scorer, scores in result.by_scorer.items():
        colour = PALETTE[COLOURS[scorer]]
        figure.add_box(
            name=scorer,
            x=np.concatenate(scores).round(4).tolist(),
            y=np.repeat(NAMES[kind], len(scores.contrast)).tolist(),
            orientation="h",
            boxpoints="all",
            jitter=0.4,
            pointpos=0,
            marker_color=colour,
            marker_size=4,
            marker_opacity=0.55,
            line={"width": 1.5, "color": colour},
            fillcolor="rgba(0,0,0,0)",
            hovertemplate=f"%{{y}}: %{{x:.2f}}<extra>{scorer}</extra>",
        )
    for scorer, value in result.own.items():
        add_scatter(
            figure,
            [round(value, 4)],
            [OWN],
            COLOURS[scorer],
            f"{OWN}: %{{x:.2f}}<extra>{scorer}</extra>",
            "markers",
            showlegend=False,
            marker_symbol="diamond",
            marker_size=13,
        )
    figure.update_layout(boxmode="group", boxgap=0.25, xaxis_range=[-0.15, 1.05])
    figure.update_yaxes(categoryorder="array", categoryarray=[*NAMES[kind], OWN][::-1])
    return styled(figure, 430, "cosine, or cross-encoder’s score", legend=True)


def describe(result: Contrast, kind: str) -> Markup:
    """The mean score of each kind of pair by each scorer, how often the contrast is told apart, the reader's pair."""
    count = len(result.by_scorer[BI].contrast)
    _, contrast_name, _ = NAMES[kind]
    rows = []
    for scorer, scores in result.by_scorer.items():
        means = [f"{similarities.mean():.2f}" for similarities in scores]
        rows.append(
            (scorer, *means, f"{scores.told_apart} of {count}", f"{result.own[scorer]:.2f}")
        )
    return (
        table(("", *NAMES[kind], f"paraphrase above {contrast_name}", OWN), rows, wide=True)
        + findings(_findings(result, contrast_name))
        + measured(
            f"{count} sentences, three pairs each, by TF-IDF, {result.model} and {DEFAULT_CROSS_ENCODER}, in "
            f"{result.timed}. The sentences ship with the app; twenty are too few to stand for English"
        )
    )


def _findings(result: Contrast, contrast_name: str) -> list[str]:
    """Says how well the bi-encoder and the cross-encoder tell the contrast from the paraphrase."""
    bi = result.by_scorer[BI]
    cross = result.by_scorer[CROSS]
    n = len(bi.contrast)
    gain = cross.told_apart - bi.told_apart
    how = "better"
    if gain < 0:
        how = "worse"
    elif gain == 0:
        how = "no better"
    elif gain < max(2, n // 5):
        # A gain counts from a fifth of the items on.
        how = "hardly better"
    is_near_half = cross.told_apart <= n // 2 + 1
    half = " Guessing would give half." if is_near_half else ""
    return [
        f"By the bi-encoder, the {contrast_name} scores above an unrelated sentence in {bi.above_unrelated} of {n} "
        f"cases, and above the paraphrase in {n - bi.told_apart}.",
        f"The cross-encoder is {how} here: it puts the paraphrase above the {contrast_name} in {cross.told_apart} of "
        f"{n} cases, the bi-encoder in {bi.told_apart}.{half}",
    ]


def show(kind: str, context: Context, a: str, b: str) -> Measurement:
    result = measure(context, kind, a, b)
    return Measurement(contrast_strips(result, kind), describe(result, kind))


def build(kind: str = NEGATION) -> Demo:
    first = items(kind)[0]
    a = gr.Textbox(
        first.sentence, label="First sentence of your pair", max_lines=3, elem_id=f"learn-{kind}-a"
    )
    b = gr.Textbox(first.contrast, label="Second sentence", max_lines=3, elem_id=f"learn-{kind}-b")
    return Demo([a, b], partial(show, kind))
