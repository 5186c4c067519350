"""Lesson 4: what a collapse looks like, and which metrics detect it.

Unit vectors u are moved towards their mean direction m: w = (1 - t) u + t m, normalised. All
cosines approach 1, but their order hardly changes, so ρ, which depends on the order only, stays.
`training.evaluation.diagnostics` detects it. The paper has no such metrics; uniformity is by Wang &
Isola (2020), effective rank by Roy & Vetterli (2007).
"""

from collections.abc import Sequence
from typing import NamedTuple

import gradio as gr
import numpy as np
from markupsafe import Markup

from sbert_app.formats import format_number
from sbert_app.pages.components.messages import note
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    cosine_histograms,
    measured,
    tiles,
)
from sbert_app.pages.learn.samples import RANDOM_WEIGHTS, SIMILAR_FROM, EncodedSample, encode_sample
from training.evaluation.diagnostics import (
    COLLAPSED_FROM,
    effective_rank,
    pair_cosines,
    random_cosines,
    uniformity,
)
from training.evaluation.metrics import spearman
from training.pooling import normalize_rows
from training.similarities import cosine

PAIRS = 200


class LessonVectors(NamedTuple):
    """The figures of the lesson's vectors."""

    rho: float  # Spearman ×100 between cosine and gold score
    random_cosine: float
    uniformity: float
    effective_rank: float
    dimension: int
    unrelated: np.ndarray  # cosines of sentences from different pairs
    similar: np.ndarray  # cosines of pairs with a gold score of 4 or more
    sample: EncodedSample

    @property
    def collapsed(self) -> bool:
        """Whether the app would flag a run with these vectors."""
        return self.random_cosine > COLLAPSED_FROM


def measure(context: Context, source: str, pull: float) -> LessonVectors:
    """The vectors of ``source``, moved by ``pull`` 0..1.

    ``source`` is "trained", the setup's model with mean pooling, or "random", random weights with
    CLS. InputError if the model or the data cannot be loaded.
    """
    model = context.setup.model
    pooling = "mean"
    if source == "random":
        model = RANDOM_WEIGHTS
        pooling = "cls"
    sample = encode_sample(context, model, PAIRS)
    vectors = np.concatenate(sample.by_pooling[pooling])  # (2 N, D)
    u, v = np.split(pull_together(vectors, pull), 2)
    cosines = cosine(u, v)
    return LessonVectors(
        rho=100 * spearman(cosines, sample.pairs.gold),
        # The mean; the second value is the standard deviation.
        random_cosine=random_cosines(u)[0],
        uniformity=uniformity(u),
        effective_rank=effective_rank(u),
        dimension=u.shape[1],
        # The first sentences of two pairs are rarely related.
        unrelated=pair_cosines(u),
        similar=cosines[sample.pairs.gold >= SIMILAR_FROM],
        sample=sample,
    )


def pull_together(vectors: np.ndarray, pull: float) -> np.ndarray:
    """Moves vectors (N, D) by ``pull`` 0..1 towards their mean direction. Returns unit vectors (N, D)."""
    directions = normalize_rows(vectors.astype(np.float64))
    mean = normalize_rows(directions.mean(axis=0, keepdims=True))
    return normalize_rows((1 - pull) * directions + pull * mean)


def describe(result: LessonVectors, pull: float, runs: Sequence[tuple[str, str]]) -> Markup:
    """The diagnostics that detect a collapse beside ρ, which does not; ``runs``: (name, reason) of flagged runs."""
    sample = result.sample
    figures = (
        (f"{result.rho:.1f}", "Spearman ρ ×100", "sees only the order"),
        (f"{result.random_cosine:.3f}", "random cosine", "healthy: near 0"),
        (format_number(result.uniformity), "uniformity", "spread: near −4, collapsed: 0"),
        (f"{result.effective_rank:.0f}", "effective rank", f"of {result.dimension} dimensions"),
    )
    if result.collapsed:
        flag = Markup(
            '<p class="flag bad">Flagged as collapsed: the random cosine is above 0.90.</p>'
        )
    else:
        flag = Markup('<p class="flag">Not flagged: the random cosine is below 0.90.</p>')
    if runs:
        items = [Markup("<li><b>{}</b>: {}</li>").format(name, reason) for name, reason in runs]
        flagged = Markup(
            '<div class="note">Runs on this machine that were flagged:<ul>{}</ul></div>'
        ).format(Markup().join(items))
    else:
        flagged = note(
            "No run on this machine has been flagged yet; the link below starts one that will be."
        )
    how = f"{sample.model}, {sample.pairs.label}, pull {pull:.2f}; encoded in {sample.timed}"
    return tiles(figures) + flag + flagged + measured(how)


def show(context: Context, source: str, pull: float) -> Measurement:
    """The figure and the result, with the latest runs that were flagged."""
    result = measure(context, source, pull)
    # `collapsed` is the reason of the flag; None without one. ``or ""`` is for the type checker.
    flagged = [run for run in context.runs.recent() if run.progress.collapsed]
    reasons = [(run.name, run.progress.collapsed or "") for run in flagged[:3]]
    return Measurement(
        cosine_histograms(result.unrelated, result.similar), describe(result, pull, reasons)
    )


def build() -> Demo:
    choices = [("tuned model, mean", "trained"), ("random weights, CLS", "random")]
    source = gr.Radio(choices, value="trained", label="Embeddings of", elem_id="learn-source")
    pull = gr.Slider(
        0,
        0.99,
        0,
        step=0.01,
        label="Pull towards the common direction",
        info="0: unchanged",
        elem_id="learn-pull",
    )
    return Demo([source, pull], show)
