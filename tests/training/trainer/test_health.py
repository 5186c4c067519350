"""A run that learns nothing says so, with the next thing to look at; one that learns says nothing."""

import math
from pathlib import Path

import numpy as np
import pytest
from run_helpers import run

from sbert_app.services.runs.record import RunProgress
from training.data.dataset import Dataset
from training.trainer.config import RunConfig
from training.trainer.run_metrics import warnings

WORDS = ("yes", "perhaps", "no")


def messages(home: Path, second: list[str], answers: list[int], objective=None, **settings) -> list[str]:
    """The warnings of a run from random weights on pairs with these second sentences and labels."""
    data = Dataset("answers", (["a question"] * len(second), second), labels=answers, label_names=WORDS)
    options = {"base": "scratch:1x32", "eval_data": None, "batch_size": 16, "max_steps": 60, "learning_rate": 1e-2}
    config = RunConfig("classification", **{**options, **settings})
    _, events = run(config, train_data=data, home=home, objective=objective)
    assert RunProgress.from_events(events).warnings == tuple(warnings(events))
    return warnings(events)


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
    [message] = messages(home, second, answers, objective=lambda vectors, target: 0 * vectors[0].sum())
    assert message.startswith("The gradients are 0, so that nothing is learned: look at whether the loss depends")
