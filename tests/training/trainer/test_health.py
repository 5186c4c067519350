"""`trainer/run_metrics.py`: a run that learns nothing is warned of, with the next thing to look at."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from run_helpers import run

from sbert_app.services.runs.record import RunProgress
from training.data.dataset import Dataset
from training.data.load import load_data
from training.objectives.pairs import Regression
from training.objectives.ranking import MultipleNegativesRanking
from training.trainer.config import RunConfig
from training.trainer.run_metrics import warnings

WORDS = ("yes", "perhaps", "no")


def messages(
    home: Path, second: list[str], answers: list[int], objective=None, **settings
) -> list[str]:
    """The warnings of a run on pairs with these second sentences and labels, but for that about its random weights."""
    data = Dataset(
        "answers", (["a question"] * len(second), second), labels=answers, label_names=WORDS
    )
    options = {
        "base": "scratch:1x32",
        "eval_data": None,
        "batch_size": 16,
        "max_steps": 60,
        "learning_rate": 1e-2,
    }
    config = RunConfig("classification", **{**options, **settings})
    _, events = run(config, train_data=data, home=home, objective=objective)
    assert RunProgress.from_events(events).warnings == tuple(warnings(events))
    alike, *others = warnings(events)[::-1]
    assert alike.startswith("All vectors were much alike before the first step")
    return others[::-1]


@pytest.fixture(scope="module")
def answers() -> list[int]:
    return np.random.default_rng(0).integers(3, size=96).tolist()


def test_a_run_that_learns_has_no_warning(home, answers):
    assert messages(home, [f"it is {WORDS[answer]}" for answer in answers], answers) == []


def test_labels_that_say_nothing_are_a_loss_that_is_not_below_guessing(home, answers):
    [message] = messages(home, ["it is so"] * len(answers), answers, learning_rate=2e-5)
    guess = f"is not below {math.log(3):.3f}, that of guessing: look at the learning rate, at the labels, "
    assert message.endswith(guess + "and at whether the base knows the words")


def test_a_loss_without_a_slope_is_gradients_of_0(home, answers):
    second = [f"it is {WORDS[answer]}" for answer in answers]
    [message] = messages(
        home, second, answers, objective=lambda vectors, target: 0 * vectors[0].sum()
    )
    assert message.startswith(
        "The gradients are 0, so that nothing is learned: look at whether the loss depends"
    )


def events_of(*evaluations: dict[str, float]) -> list[dict]:
    """The events of 40 steps of regression with these evaluations, the first before the first step."""
    train = [{"kind": "train", "step": step, "loss": 0.07, "lr": 1e-4} for step in range(1, 41)]
    evaluated = [
        {"kind": "eval", "step": 20 * number, **figures}
        for number, figures in enumerate(evaluations)
    ]
    return [{"kind": "state", "state": "running", "guess": 0.0866}, *train, *evaluated]


def test_only_a_correlation_that_has_never_risen_is_warned_of():
    at = [{"spearman": value, "random_cosine": 0.1} for value in (0.62, 0.5, 0.62, 0.7)]
    [message] = warnings(events_of(*at[:3]))
    assert message.startswith(
        "Spearman's ρ ×100 has not risen: it was 62.0 before the first step, and 62.0 at best since"
    )
    assert warnings(events_of(*at)) == []
    assert warnings(events_of(at[0], {"spearman": None, "random_cosine": 0.1})) == []


def test_vectors_that_are_alike_before_the_first_step_are_said():
    [message] = warnings(
        events_of({"spearman": 0.3, "random_cosine": 0.91}, {"spearman": 0.6, "random_cosine": 0.2})
    )
    assert (
        "alike before the first step, with a mean cosine of 0.91 of random pairs: look at whether the base"
        in message
    )


def test_the_loss_of_guessing_is_the_variance_of_the_scores_in_regression():
    scores = load_data("stsb:dev").scores
    assert Regression().guess(16, 2, scores) == pytest.approx(np.var(np.array(scores) / 5))
    assert Regression().guess(16, 2, None) is None


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("symmetric", [False, True])
def test_the_loss_of_guessing_among_candidates_is_the_loss_of_equal_vectors(columns, symmetric):
    objective = MultipleNegativesRanking(symmetric=symmetric)
    loss = objective(tuple(torch.ones(16, 4) for _ in range(columns)))
    assert objective.guess(16, columns, None) == pytest.approx(float(loss))
