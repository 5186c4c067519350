"""`trainer/train.py`: the loss of every objective falls, from scored pairs, at two dimensions, in mini-batches."""

import pytest
from run_helpers import of_kind, run

from training.objectives import OBJECTIVES
from training.objectives.base import names
from training.trainer.config import RunConfig


@pytest.mark.parametrize("objective", names(lambda objective: objective.trains_vectors()))
def test_each_objective_learns_from_scored_pairs(objective, pairs):
    teacher = {"teacher": "scratch:2x64"} if OBJECTIVES[objective].needs_teacher() else {}
    config = RunConfig(
        objective,
        **teacher,
        base="scratch:1x32",
        train_data=pairs,
        eval_data=pairs,
        max_steps=30,
        eval_every=30,
        learning_rate=2e-3,
        dtype="float32",
        matryoshka_dims=(16,),
        mini_batch_size=8,
    )
    result, events = run(config)
    assert result.status == "finished", result.reason
    losses = [event["loss"] for event in of_kind(events, "train")]
    assert sum(losses[-5:]) < sum(losses[:5])
    assert set(result.final["by_dimension"]) == {"16"}
    assert 0 < result.final["by_dimension"]["16"] < 1
    assert ("loss" in result.final) == (objective != "simcse")
