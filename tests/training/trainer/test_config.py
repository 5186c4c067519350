"""RunConfig: validated when it is made, equal after a round trip through JSON."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from pydantic import ValidationError

from training.errors import InputError
from training.objectives.base import names
from training.pooling import POOLINGS
from training.trainer.config import CHOICES, REPORTERS, SETTINGS, RunConfig


def test_the_defaults_are_the_papers():
    config = RunConfig("regression")
    assert (config.batch_size, config.learning_rate, config.warmup, config.epochs) == (16, 2e-5, 0.1, 1)
    assert (config.concatenation, config.triplet_metric, config.triplet_margin) == ("uv+diff", "euclidean", 1.0)
    assert (config.base, config.pooling, config.lora_rank) == ("all-MiniLM-L6-v2", None, 0)


def test_it_shows_what_differs_from_the_defaults():
    assert repr(RunConfig("regression", seed=3)) == "RunConfig(objective='regression', seed=3)"


def test_a_config_is_immutable():
    with pytest.raises(ValidationError, match="frozen"):
        RunConfig("mnrl").seed = 3


NEEDS_TEACHER = names(lambda objective: objective.needs_teacher())
OBJECTIVES = st.sampled_from(names(lambda objective: not (objective.scores_pairs or objective.predicts_tokens))).map(
    lambda name: {"objective": name} | ({"teacher": "minilm-stsb"} if name in NEEDS_TEACHER else {})
)
configs = st.builds(
    lambda chosen, **values: RunConfig(**chosen, **values),
    chosen=OBJECTIVES,
    pooling=st.sampled_from(CHOICES["pooling"]),
    concatenation=st.sampled_from(CHOICES["concatenation"]),
    train_data=st.text(min_size=1).filter(str.strip),
    eval_data=st.none() | st.text(),
    epochs=st.floats(0.01, 100),
    max_steps=st.none() | st.integers(1, 10**6),
    batch_size=st.integers(2, 4096),
    learning_rate=st.floats(1e-8, 1),
    warmup=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    eval_every=st.none() | st.integers(1, 1000),
    lora_rank=st.integers(0, 512),
    mnrl_symmetric=st.booleans(),
    matryoshka_dims=st.lists(st.integers(1, 4096)),
    mini_batch_size=st.none() | st.integers(1, 1000),
    gradient_accumulation_steps=st.integers(1, 64),
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
        ("objective", "softmax", "objective 'softmax' is unknown; choose classification, regression"),
        ("pooling", "sum", "pooling 'sum' is unknown; choose mean, max, cls"),
        ("concatenation", "diff+uv", "concatenation 'diff\\+uv' is unknown; choose uv, diff"),
        ("dtype", "float16", "dtype 'float16' is unknown; choose auto, float32, bfloat16"),
        ("batch_size", 0, "batch_size is 0, but rows per step must be a whole number from 1 to 65536"),
        ("batch_size", 3.5, "batch_size is 3.5.*a whole number"),
        ("batch_size", True, "batch_size is True"),
        ("batch_size", "16", "batch_size is '16'"),
        ("learning_rate", 0, "learning_rate is 0, but the peak learning rate of Adam must be a number above 0 to 1"),
        ("learning_rate", float("nan"), "learning_rate is nan"),
        ("warmup", 1.1, "warmup is 1.1.*from 0 to 1"),
        ("epochs", 0, "epochs is 0.*above 0"),
        ("max_steps", 0, "max_steps is 0.*from 1"),
        ("seed", -1, "seed is -1"),
        ("max_grad_norm", None, "max_grad_norm is None"),
        ("train_data", " ", "train_data is empty"),
        ("base", "", "base is empty; give a name or a path"),
        ("base", 3, "base is 3, but must be text"),
        ("eval_data", 5, "eval_data is 5, but must be text"),
        ("mnrl_symmetric", "yes", "mnrl_symmetric is 'yes', but must be true or false"),
        ("max_grad_norm", float("inf"), "max_grad_norm is inf"),
        ("matryoshka_dims", "wide", "matryoshka_dims is .*'wide'.*whole numbers from 1, such as 256,128,64"),
        ("matryoshka_dims", [0], "matryoshka_dims is .*0.*whole numbers from 1"),
        ("matryoshka_dims", 12.5, "matryoshka_dims is .*12.5.*whole numbers from 1"),
        ("report_to", "wandb", "report_to 'wandb' is unknown; choose tensorboard, trackio"),
        (
            "mini_batch_size",
            0,
            r"mini_batch_size is 0, but rows per forward pass \(gradient caching\) must be .* from 1",
        ),
        ("negative_margin", 1, "negative_margin is 1, but .* must be a number from 0 and below 1"),
        ("teacher", "minilm-stsb", "regression has no teacher; leave it out, or choose mse or margin-mse"),
        ("mine_negatives", True, "mine_negatives is for triplet, mnrl, margin-mse; regression takes no negatives"),
        ("max_steps", 10**8, "max_steps is 100000000, but .* from 1 to 10000000"),
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


def test_a_single_row_has_no_negatives():
    for objective in ("mnrl", "simcse"):
        with pytest.raises(InputError, match=f"at least 2 for {objective}"):
            RunConfig(objective, batch_size=1)
    assert RunConfig("triplet", batch_size=1).batch_size == 1


@pytest.mark.parametrize("objective", NEEDS_TEACHER)
def test_distillation_needs_a_teacher(objective):
    with pytest.raises(InputError, match=f"{objective} needs a teacher .* such as minilm-stsb"):
        RunConfig(objective)
    assert RunConfig(objective, teacher="minilm-stsb").teacher == "minilm-stsb"


@pytest.mark.parametrize("dims", ["64, 256,64", [64, 256.0, 64], (256, 64), ["256", "64"]])
def test_dimensions_may_be_a_text_or_a_list(dims):
    config = RunConfig("mnrl", matryoshka_dims=dims)
    assert config.matryoshka_dims == (256, 64)
    assert config.to_dict()["matryoshka_dims"] == [256, 64]


def test_none_is_a_word_for_no_data_to_evaluate_on():
    assert RunConfig("mnrl", eval_data="none").eval_data is None
    assert RunConfig("mnrl", eval_data="").eval_data is None


def test_whole_numbers_may_come_as_floats():
    """JSON from a browser has no integers."""
    config = RunConfig("regression", batch_size=8.0, max_steps=20.0)
    assert (config.batch_size, config.max_steps) == (8, 20)
    assert isinstance(config.batch_size, int)


def test_a_run_is_evaluated_about_every_hundred_steps_but_four_to_twenty_times():
    assert [RunConfig("mnrl").evaluate_every(steps) for steps in (1, 60, 360, 1_000, 10_000)] == [1, 15, 90, 100, 500]
    assert RunConfig("mnrl", eval_every=7).evaluate_every(360) == 7


def test_fields_that_are_unknown_or_missing_are_named():
    with pytest.raises(InputError, match=r"no field batchsize; the fields are objective, base"):
        RunConfig("mnrl", batchsize=3)
    with pytest.raises(InputError, match="needs an objective: classification"):
        RunConfig()


def test_copies_are_equal_and_validated():
    config = RunConfig("regression", max_steps=20)
    for other in (
        RunConfig(objective="regression", max_steps=20),
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),  # noqa: S301 - written here
    ):
        assert other == config
        assert hash(other) == hash(config)
    assert config.replace(seed=3) == RunConfig("regression", max_steps=20, seed=3)
    with pytest.raises(InputError, match="seed is -3"):
        config.replace(seed=-3)


def test_settings_are_those_of_the_model():
    assert set(CHOICES) == {
        *("objective", "pooling", "concatenation", "dtype", "triplet_metric", "margin_similarity", "mix", "head"),
    }
    assert CHOICES["pooling"] == (None, *POOLINGS)
    assert list(SETTINGS) == list(RunConfig.model_fields)
    values = RunConfig("mnrl").to_dict()
    ranges = {name: each.range for name, each in SETTINGS.items() if each.range}
    optional = {name for name in ranges if SETTINGS[name].is_optional}
    assert optional == {
        *("max_steps", "eval_every", "patience", "max_length", "mini_batch_size", "max_tokens", "vocabulary_size"),
    }
    assert set(ranges) == {name for name, value in values.items() if type(value) in (int, float)} | optional
    assert ranges["warmup"][:4] == (0, 1, True, False)
    assert ranges["batch_size"][:4] == (1, 65_536, True, True)
    assert str(ranges["max_length"]) == "a whole number from 4 to 8192"
    for name, each in SETTINGS.items():
        assert each.label
        assert each.help[0].islower() or name == "teacher"
        assert values[name] is None or isinstance(values[name], list | int) or type(values[name]) is each.type
    assert SETTINGS["cosent_scale"].sentence() == "For cosent and angle: the factor on the similarity"
    assert (SETTINGS["learning_rate"].option, SETTINGS["triplet_margin"].option) == ("--lr", "--triplet-margin")


def escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")


def test_the_documentation_has_every_setting():
    rows = [(f"`{each.option}`", each.sentence(), each.words or "–") for each in SETTINGS.values()]
    table = "\n".join(f"| {' | '.join(map(escaped, row))} |" for row in rows)
    document = (ROOT / "docs/train.md").read_text(encoding="utf-8")
    assert table in document, f"the table of docs/train.md has to be:\n{table}"
