"""Lesson 9: why the cosines of some models crowd near 1. The temperature of a contrastive objective.

InfoNCE (mnrl here, scale 1/τ) compares cosines only after a division by the temperature τ: a gap of
a few τ satisfies it, however close to 1 both cosines are. Models that start crowded, as a
transformer does before it is trained, and are trained with τ = 0.01, such as E5 (Wang et al. 2022),
therefore stay crowded.

Here one linear layer is trained on frozen vectors, once for each temperature: from the identity,
with Adam, on pairs of STSb train whose gold score is 4 or more. What it starts from is crowded (a
transformer with random weights) or spread (the lessons' model).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import gradio as gr
import numpy as np
from markupsafe import Markup

from sbert_app.formats import format_count
from sbert_app.pages.learn import samples
from sbert_app.pages.learn.lesson import (
    Context,
    Demo,
    Measurement,
    cosine_histograms,
    findings,
    measured,
    table,
)
from training.evaluation.diagnostics import pair_cosines
from training.evaluation.metrics import spearman
from training.objectives.ranking import MultipleNegativesRanking
from training.similarities import cosine

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
TRAIN_PAIRS = 512
TEST_PAIRS = 200
BATCH = 64
STEPS = 60
LEARNING_RATE = 2e-3
# The cosines of E5 are said to begin here.
HIGH = 0.7


class TrainedCosines(NamedTuple):
    """The cosines of the test pairs after training with one temperature; None: before training."""

    temperature: float | None
    rho: float  # Spearman ×100 between cosine and gold score
    random: np.ndarray  # cosines of sentences of different pairs
    similar: np.ndarray  # cosines of pairs with a gold score of 4 or more

    @property
    def label(self) -> str:
        return "before" if self.temperature is None else f"τ\u00a0=\u00a0{self.temperature:g}"

    @property
    def mean(self) -> float:
        return float(self.random.mean())


class Trainings(NamedTuple):
    """Before training, and after training with each of `TEMPERATURES`."""

    before: TrainedCosines
    after: list[TrainedCosines]
    train_pairs: int
    test_pairs: samples.GoldSample
    timed: samples.Timed  # all trainings


# A result covers all temperatures, so another one in the figure trains nothing.
@lru_cache(maxsize=4)
def measure(context: Context, start: str) -> Trainings:
    """Trains once for each temperature. InputError if model or data cannot be loaded.

    ``start`` is the model that the layer starts from: "random" weights, or "trained", the setup's
    model.
    """
    setup = context.setup
    model = samples.RANDOM_WEIGHTS if start == "random" else setup.model
    anchors, positives = _training_vectors(context, model)
    sample = samples.encode_sample(context, model, TEST_PAIRS)
    first, second = sample.by_pooling["mean"]
    # None stands for the vectors before the training, which have no temperature.
    before = _cosines(None, first, second, sample.pairs.gold)
    after: list[TrainedCosines] = []
    watch = context.watch.stage(f"Training {len(TEMPERATURES)} times")
    with samples.Timed() as timed:
        for temperature in TEMPERATURES:
            watch.check()
            watch.on_progress(len(after), len(TEMPERATURES))
            layer = _train(anchors, positives, temperature, setup.seed)
            after.append(_cosines(temperature, first @ layer, second @ layer, sample.pairs.gold))
    return Trainings(before, after, len(anchors), sample.pairs, timed)


def _train(anchors: np.ndarray, positives: np.ndarray, temperature: float, seed: int) -> np.ndarray:
    """Trains a linear layer from the identity by InfoNCE over batches of pairs, (N, D) each.

    Returns the matrix (D, D) with which vectors are multiplied from the right.
    """
    # The import of torch takes seconds.
    import torch

    first = torch.from_numpy(anchors)
    second = torch.from_numpy(positives)
    objective = MultipleNegativesRanking(scale=1 / temperature)
    layer = torch.eye(anchors.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([layer], lr=LEARNING_RATE)
    random = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        rows = torch.randperm(len(anchors), generator=random)[:BATCH]
        optimizer.zero_grad()
        objective([first[rows] @ layer, second[rows] @ layer]).backward()
        optimizer.step()
    return layer.detach().numpy()


def _cosines(
    temperature: float | None, first: np.ndarray, second: np.ndarray, gold: np.ndarray
) -> TrainedCosines:
    """Measures the cosines of the test pairs, whose vectors are (N, D) each.

    Random pairs are made of the first sentences. The temperature is None before training.
    """
    pairs = cosine(first, second)
    similar = pairs[gold >= samples.SIMILAR_FROM]
    return TrainedCosines(temperature, 100 * spearman(pairs, gold), pair_cosines(first), similar)


def _training_vectors(context: Context, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of pairs of STSb train that mean about the same, (N, D) float32 each, not normalised."""
    setup = replace(context.setup, data="stsb:train")
    # A sample of more pairs than there are has all of them.
    all_pairs = samples.gold_sample(replace(context, setup=setup), 1_000_000)
    similar = np.flatnonzero(all_pairs.gold >= samples.SIMILAR_FROM)
    # Rows of ``all_pairs``: a sample of the similar ones.
    rows = similar[samples.sample_rows(len(similar), TRAIN_PAIRS, setup.seed)]
    sentences = [all_pairs.first[row] for row in rows]
    sentences += [all_pairs.second[row] for row in rows]
    encoder = context.encoder_of(model)
    watch = samples.encoding_stage(context, sentences, model)
    vectors = encoder.encode(
        sentences, normalize=False, on_progress=watch.on_progress, should_stop=watch.should_stop
    )
    first, second = np.split(vectors, 2)
    return first, second


def describe(result: Trainings, selected: TrainedCosines) -> Markup:
    """The cosines before training and after training with each temperature."""
    rows = []
    for training in (result.before, *result.after):
        label = training.label
        if training is selected:
            label += " (shown)"
        above = f"{100 * (training.random > HIGH).mean():.0f}%"
        means = (f"{training.mean:.2f}", f"{training.similar.mean():.2f}")
        rows.append((label, *means, above, f"{training.rho:.1f}"))
    header = (
        "",
        "random pairs, mean",
        "similar pairs, mean",
        f"random pairs above {HIGH}",
        "ρ ×100",
    )
    return (
        table(header, rows, wide=True)
        + findings(_findings(result))
        + measured(
            f"six trainings of {STEPS} steps on {format_count(result.train_pairs, 'pair')} of STSb train, tested on "
            f"{result.test_pairs.label}, in {result.timed}; one seed"
        )
    )


def _findings(result: Trainings) -> list[str]:
    """Returns sentences on the effect of the temperature: on the cosines of random pairs, and on ρ."""
    before = result.before
    # The lowest temperature.
    low = result.after[0]
    means = [training.mean for training in result.after]
    most_spread = min(result.after, key=lambda training: training.mean)
    if low.mean - most_spread.mean > 0.1:
        effect = (
            f"The temperature decides how crowded they end: random pairs have a mean cosine of {low.mean:.2f} after "
            f"τ = {low.temperature:g} and of {most_spread.mean:.2f} after τ = {most_spread.temperature:g}."
        )
    else:
        effect = (
            f"From this start the temperature hardly matters: after every τ random pairs have a mean cosine between "
            f"{min(means):.2f} and {max(means):.2f}; before, it was {before.mean:.2f}. A low temperature crowds "
            "nothing by itself; it leaves crowded what is crowded."
        )
    best = max(result.after, key=lambda training: training.rho)
    gap = best.rho - low.rho
    comment = "crowded or not, the order is about as good."
    if gap >= 3:
        comment = f"{gap:.1f} points lower, after this short training."
    quality = (
        f"The best ρ is {best.rho:.1f}, at τ = {best.temperature:g}; at τ = {low.temperature:g} it is {low.rho:.1f}: "
        f"{comment}"
    )
    if best.rho < before.rho:
        quality += f" Before training it was {before.rho:.1f}: these few pairs have nothing to teach this model."
    return [effect, quality]


def show(context: Context, start: str, temperature: float) -> Measurement:
    result = measure(context, start)
    selected = next(training for training in result.after if training.temperature == temperature)
    return Measurement(
        cosine_histograms(selected.random, selected.similar), describe(result, selected)
    )


def build() -> Demo:
    choices = [("random weights: crowded", "random"), ("the tuned model: spread", "trained")]
    start = gr.Radio(choices, value="random", label="The layer starts from", elem_id="learn-start")
    temperature = gr.Radio(
        [(f"{value:g}", value) for value in TEMPERATURES],
        value=TEMPERATURES[0],
        label="Temperature τ in the figure",
        info="All of them are trained; the table has all",
        elem_id="learn-temperature",
    )
    return Demo([start, temperature], show)
