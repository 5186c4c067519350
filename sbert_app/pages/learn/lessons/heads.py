"""Lesson 3: seven softmax heads on frozen vectors. What can each learn from its concatenation of u and v?

The labels are the terciles of STSb's gold scores. Only the head is trained (L-BFGS with weight
decay, initialised with zeros, so without a seed), on pairs of STSb train, and tested on pairs of
the lessons' data. A head over (u, v) is the sum of a function of u and a function of v: it cannot
represent their agreement and can only memorise sentences, which the two accuracies show. Paper:
section 3 and Table 6, where the encoder is trained through the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.style import PALETTE
from sbert_app.formats import format_count, format_duration
from sbert_app.pages.components.messages import note
from sbert_app.pages.learn.lesson import (
    DEFAULT_DATA,
    Context,
    Demo,
    Measurement,
    findings,
    measured,
    styled,
    table,
)
from sbert_app.pages.learn.samples import Timed, encoding_stage, sample_rows
from sbert_app.services.experiments.ablations import ABLATIONS, precomputed
from sbert_app.services.results.results import data_label
from training.objectives import training_data
from training.objectives.pairs import CONCATENATIONS, concatenate

if TYPE_CHECKING:
    from torch import Tensor

TEST_PAIRS = 200
WEIGHT_DECAY = 0.03
# The steps of L-BFGS.
STEPS = 12
NOTE = (
    "The first column scores the head; the other two train the encoder through it and score the cosine (ρ ×100 on STSb "
    "dev). The shipped runs are short and start from a tuned model; the paper's start from raw BERT."
)


class Head(NamedTuple):
    """One concatenation. Accuracies in 0..1."""

    concatenation: str
    train_accuracy: float  # on its training pairs
    test_accuracy: float  # on the test pairs

    @property
    def label(self) -> str:
        """How the paper writes the concatenation."""
        return ABLATIONS["concat"].variants[self.concatenation].label


class Heads(NamedTuple):
    """All seven, and the accuracy of always predicting the most frequent label."""

    rows: list[Head]
    chance: float
    train_pairs: int
    encode_seconds: float
    train_seconds: float
    data: str = DEFAULT_DATA


class LabelledVectors(NamedTuple):
    """u and v (N, D) with components of variance one, and the label of each pair (N,) int64."""

    u: Tensor
    v: Tensor
    labels: Tensor
    seconds: float


def measure(context: Context, train_pairs: int) -> Heads:
    """Trains and tests the seven heads. InputError if the benchmark or the model cannot be loaded."""
    data = context.setup.data
    train = _vectors(context, "stsb:train", train_pairs)
    test = _vectors(context, data, TEST_PAIRS)
    rows: list[Head] = []
    watch = context.watch.stage(f"Training {len(CONCATENATIONS)} heads")
    with Timed() as timed:
        for name in CONCATENATIONS:
            watch.check()
            watch.on_progress(len(rows), len(CONCATENATIONS))
            rows.append(_head(name, train, test))
    # The accuracy of always predicting the most frequent label.
    chance = float(test.labels.bincount().max() / len(test.labels))
    return Heads(rows, chance, len(train.labels), train.seconds + test.seconds, timed.seconds, data)


def _head(concatenation: str, train: LabelledVectors, test: LabelledVectors) -> Head:
    """Trains a head on the features of one concatenation, less their mean over the training pairs."""
    # The import of torch takes seconds.
    import torch
    import torch.nn.functional as F

    x = concatenate(train.u, train.v, concatenation)
    x_test = concatenate(test.u, test.v, concatenation)
    mean = x.mean(dim=0)
    x = x - mean
    x_test = x_test - mean
    # Three labels, the terciles.
    weight = torch.zeros(x.shape[1], 3, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = (
            F.cross_entropy(x @ weight + bias, train.labels) + WEIGHT_DECAY * weight.square().sum()
        )
        value.backward()
        return value

    @torch.no_grad()
    def accuracy(features: Tensor, labels: Tensor) -> float:
        predicted = (features @ weight + bias).argmax(dim=1)
        return float((predicted == labels).float().mean())

    # This call takes all steps.
    optimizer.step(loss)
    return Head(concatenation, accuracy(x, train.labels), accuracy(x_test, test.labels))


# For the test pairs, and for each number of training pairs that the reader chooses.
@lru_cache(maxsize=8)
def _vectors(context: Context, data: str, pairs: int) -> LabelledVectors:
    """The vectors of pairs, and the labels that the objective classification makes of their gold scores."""
    import torch

    dataset = training_data(data, "classification", home=context.runs.home)
    rows = sample_rows(len(dataset), pairs, context.setup.seed)
    first, second = ([column[row] for row in rows] for column in dataset.columns)
    encoder = context.encoder
    watch = encoding_stage(context, [*first, *second], context.setup.model)
    with Timed() as timed:
        encoded = encoder.encode(
            [*first, *second], on_progress=watch.on_progress, should_stop=watch.should_stop
        )
        # `encode` returns unit vectors, so the mean square of the components is 1 / D. The factor
        # makes it 1.
        vectors = torch.from_numpy(encoded * encoder.dimension**0.5)
    # Data for the objective classification has labels; ``or ()`` is for the type checker.
    labels = torch.tensor([(dataset.labels or ())[row] for row in rows])
    return LabelledVectors(vectors[: len(rows)], vectors[len(rows) :], labels, timed.seconds)


def head_bars(result: Heads) -> go.Figure:
    """Accuracy ×100 on training pairs (pale) and on new pairs (solid), and by chance (dotted line)."""
    training = [100 * row.train_accuracy for row in result.rows]
    test = [100 * row.test_accuracy for row in result.rows]
    labels = [row.label for row in result.rows]
    figure = go.Figure()
    for name, values, colour in (
        ("training pairs", training, "rgba(0,114,178,0.28)"),
        ("new pairs", test, PALETTE["blue"]),
    ):
        figure.add_bar(
            name=name,
            x=values,
            y=labels,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"%{{y}}, {name}: %{{x:.1f}}%<extra></extra>",
            text=[f"{value:.0f}" for value in values],
            textposition="outside",
            cliponaxis=False,
        )
    figure.add_vline(x=100 * result.chance, line={"dash": "dot", "color": PALETTE["vermillion"]})
    figure.update_layout(
        barmode="group", bargap=0.25, xaxis_range=[0, 116], yaxis_autorange="reversed"
    )
    return styled(figure, 470, "accuracy, %; dotted: chance", legend=True)


def describe(result: Heads, shipped: Mapping[str, float]) -> Markup:
    """Accuracy here, ρ of the runs that ship with the app, ρ of the paper: three different figures."""
    variants = ABLATIONS["concat"].variants
    rows = []
    for row in result.rows:
        name = row.concatenation
        ours = f"{shipped[name]:.2f}" if name in shipped else ""
        # Table 6 has a figure for each of the seven, so ``or 0.0`` is only for the type checker.
        rows.append(
            (
                row.label,
                f"{100 * row.test_accuracy:.0f}%",
                ours,
                f"{variants[name].paper or 0.0:.2f}",
            )
        )
    return (
        table(
            (
                "head sees",
                "right on new pairs, here",
                "ρ, shipped short runs",
                "ρ, paper’s Table 6",
            ),
            rows,
        )
        + findings(_findings(result, shipped))
        + note(NOTE)
        + measured(
            f"seven heads on {format_count(result.train_pairs, 'pair')} of STSb train, tested on {TEST_PAIRS} of "
            f"{data_label(result.data)}; embeddings computed once, in {format_duration(result.encode_seconds)}; heads "
            f"trained now, in {format_duration(result.train_seconds)}"
        )
    )


def _findings(result: Heads, shipped: Mapping[str, float]) -> list[str]:
    """Returns sentences on heads that are worse than chance, on the best head, and on the shipped runs."""
    sentences = [
        f"{row.label} is right on {100 * row.train_accuracy:.0f}% of its training pairs and on "
        f"{100 * row.test_accuracy:.0f}% of new ones, fewer than the {100 * result.chance:.0f}% of always predicting "
        "the most frequent label: what it memorised about single sentences misleads it on others."
        for row in result.rows
        if row.test_accuracy < result.chance
    ]
    best = max(result.rows, key=lambda row: row.test_accuracy)
    # If the paper's best head was not trained, ``best`` stands in, and the sentence is left out.
    paper = next(
        (row for row in result.rows if row.concatenation == ABLATIONS["concat"].default), best
    )
    if best.test_accuracy > paper.test_accuracy:
        sentences.append(
            f"Here {best.label} is right most often on new pairs, {100 * best.test_accuracy:.0f}%; the paper’s best, "
            f"{paper.label}, on {100 * paper.test_accuracy:.0f}%. With frozen vectors and few pairs, more inputs are "
            "more to memorise; the paper trains the encoder, on a million pairs."
        )
    if len(shipped) > 1:
        variants = ABLATIONS["concat"].variants
        lowest = min(shipped, key=shipped.__getitem__)
        highest = max(shipped, key=shipped.__getitem__)
        sentences.append(
            f"The shipped runs span {shipped[lowest]:.2f} {variants[lowest].label} to {shipped[highest]:.2f} "
            f"{variants[highest].label}."
        )
    return sentences


def show(context: Context, pairs: float) -> Measurement:
    result = measure(context, int(pairs))
    shipped_table = precomputed("concat")
    rows = shipped_table.rows if shipped_table else []
    shipped = {row.variant: row.summary.mean for row in rows if row.summary}
    return Measurement(head_bars(result), describe(result, shipped))


def build() -> Demo:
    pairs = gr.Slider(
        100, 1_000, 300, step=100, label="Pairs to train the heads on", elem_id="learn-train-pairs"
    )
    return Demo([pairs], show)
