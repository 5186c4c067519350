"""RunConfig: validated when it is made, equal after a round trip through JSON."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from training.errors import InputError
from training.objectives.base import names
from training.trainer.config import CHOICES, REPORTERS, SETTINGS, RunConfig

NEEDS_TEACHER = names(lambda objective: objective.needs_teacher())
OBJECTIVES = st.sampled_from(
    names(lambda objective: not (objective.scores_pairs or objective.predicts_tokens))
).map(
    lambda name: {"objective": name} | ({"teacher": "minilm-stsb"} if name in NEEDS_TEACHER else {})
)
configs = st.builds(
    lambda chosen, **values: RunConfig(**chosen, **values),
    chosen=OBJECTIVES,
    pooling=st.sampled_from(CHOICES["pooling"]),
    train_data=st.text(min_size=1).filter(str.strip),
    eval_data=st.none() | st.text(),
    max_steps=st.none() | st.integers(1, 10**6),
    learning_rate=st.floats(1e-8, 1),
    seed=st.integers(0, 2**32 - 1),
    mnrl_symmetric=st.booleans(),
    matryoshka_dims=st.lists(st.integers(1, 4096)),
    query_prompt=st.none() | st.text(),
    report_to=st.lists(st.sampled_from(REPORTERS)),
    name=st.text(),
)


@given(configs)
def test_json_brings_back_an_equal_config(config):
    assert RunConfig.model_validate_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "objective",
            "softmax",
            "objective 'softmax' is unknown; choose classification, regression",
        ),
        ("pooling", "sum", "pooling 'sum' is unknown; choose mean, max, cls"),
        (
            "batch_size",
            0,
            "batch_size is 0, but rows per step must be a whole number from 1 to 65536",
        ),
        ("batch_size", 3.5, "batch_size is 3.5.*a whole number"),
        ("batch_size", True, "batch_size is True"),
        (
            "learning_rate",
            0,
            "learning_rate is 0, but the peak learning rate of Adam must be a number above 0 to 1",
        ),
        ("learning_rate", float("nan"), "learning_rate is nan"),
        ("warmup", 1.1, "warmup is 1.1.*from 0 to 1"),
        ("max_grad_norm", None, "max_grad_norm is None"),
        ("train_data", " ", "train_data is empty"),
        ("base", "", "base is empty; give a name or a path"),
        ("eval_data", 5, "eval_data is 5, but must be text"),
        ("mnrl_symmetric", "yes", "mnrl_symmetric is 'yes', but must be true or false"),
        (
            "matryoshka_dims",
            "wide",
            "matryoshka_dims is .*'wide'.*whole numbers from 1, such as 256,128,64",
        ),
        ("report_to", "wandb", "report_to 'wandb' is unknown; choose tensorboard, trackio"),
        ("negative_margin", 1, "negative_margin is 1, but .* must be a number from 0 and below 1"),
        (
            "teacher",
            "minilm-stsb",
            "regression has no teacher; leave it out, or choose mse or margin-mse",
        ),
        (
            "mine_negatives",
            True,
            "mine_negatives is for triplet, mnrl, margin-mse; regression takes no negatives",
        ),
    ],
)
def test_a_mistake_is_one_sentence(field, value, message):
    config = RunConfig("regression")
    for make in (
        lambda: RunConfig(**{"objective": "regression", field: value}),
        lambda: config.replace(**{field: value}),
    ):
        with pytest.raises(InputError, match=message) as raised:
            make()
        assert "\n" not in str(raised.value)
        assert "pydantic" not in str(raised.value)


def test_numbers_and_words_mean_what_people_mean_by_them():
    for objective in ("mnrl", "simcse"):
        with pytest.raises(InputError, match=f"at least 2 for {objective}"):
            RunConfig(objective, batch_size=1)
    assert RunConfig("triplet", batch_size=1).batch_size == 1
    assert RunConfig("mnrl", eval_data="none").eval_data is None
    assert RunConfig("mnrl", eval_data="").eval_data is None
    # JSON from a browser has no whole numbers, and NumPy has its own.
    config = RunConfig("regression", batch_size=8.0, max_steps=np.int64(20))
    assert (config.batch_size, config.max_steps) == (8, 20)
    assert isinstance(config.batch_size, int)
    assert [RunConfig("mnrl").evaluate_every(steps) for steps in (1, 60, 360, 1_000, 10_000)] == [
        1,
        15,
        90,
        100,
        500,
    ]
    assert RunConfig("mnrl", eval_every=7).evaluate_every(360) == 7


@pytest.mark.parametrize("objective", NEEDS_TEACHER)
def test_distillation_needs_a_teacher(objective):
    with pytest.raises(InputError, match=f"{objective} needs a teacher .* such as minilm-stsb"):
        RunConfig(objective)
    assert RunConfig(objective, teacher="minilm-stsb").teacher == "minilm-stsb"


@pytest.mark.parametrize("dims", ["64, 256,64", [64, 256.0, 64], (256, 64), ["256", "64"]])
def test_matryoshka_dims_may_be_a_text_or_a_list(dims):
    config = RunConfig("mnrl", matryoshka_dims=dims)
    assert config.matryoshka_dims == (256, 64)
    assert config.to_dict()["matryoshka_dims"] == [256, 64]


def test_unknown_and_missing_fields_are_named():
    with pytest.raises(InputError, match=r"no field batchsize; the fields are objective, base"):
        RunConfig("mnrl", batchsize=3)
    with pytest.raises(InputError, match="needs an objective: classification"):
        RunConfig()


def test_every_field_is_documented():
    rows = [(f"`{each.option}`", each.sentence(), each.words or "–") for each in SETTINGS.values()]
    table = "\n".join(f"| {' | '.join(map(escaped, row))} |" for row in rows)
    document = (ROOT / "docs/train.md").read_text(encoding="utf-8")
    assert table in document, f"the table of docs/train.md has to be:\n{table}"


def escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")
