"""The sentence-transformers folder layout: what is written is read back, what cannot be represented is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import make_model

from training.errors import InputError
from training.models.model_format import ModelFormat, check_replaceable, read_model_format, write_model_format

KINDS = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("plain") / "tiny")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model to those who only read its settings; its name is "model"."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "model.safetensors").touch()
    write(folder, {"config.json": {"model_type": "bert"}, "modules.json": modules(KINDS)})
    write(folder, {"1_Pooling/config.json": {"pooling_mode": "mean"}})
    return folder


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / name).write_text(text, encoding="utf-8")


def modules(kinds: dict[str, str], package: str = "sentence_transformers.models") -> list[dict[str, Any]]:
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"{package}.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]


def refusal(folder: Path) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(InputError) as caught:
        read_model_format(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- reading


def test_a_folder_without_modules_is_a_plain_transformer(plain: Path):
    assert read_model_format(plain) == ModelFormat(plain, pooling=None, normalizes=False, max_length=None)


def test_todays_layout(model: Path):
    write(
        model,
        {
            "modules.json": [
                {"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"},
            ],
            "1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "max", "include_prompt": True},
        },
    )
    assert read_model_format(model) == ModelFormat(model, pooling="max")


@pytest.mark.parametrize(
    ("flag", "pooling"),
    [
        ("pooling_mode_mean_tokens", "mean"),
        ("pooling_mode_max_tokens", "max"),
        ("pooling_mode_cls_token", "cls"),
    ],
)
def test_the_older_layout_with_flags(model: Path, flag: str, pooling: str):
    flags = {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False, "pooling_mode_cls_token": False}
    write(model, {"1_Pooling/config.json": {"word_embedding_dimension": 8, **flags, flag: True}})
    assert read_model_format(model).pooling == pooling


def test_the_oldest_layout_keeps_the_transformer_in_a_folder_of_its_own(model: Path):
    inner = model / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).rename(inner / name)
    write(model, {"modules.json": modules({"0_Transformer": "Transformer", "1_Pooling": "Pooling"})})
    write(inner, {"sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": True}})
    assert read_model_format(model) == ModelFormat(inner, pooling="mean", max_length=128, lowercase=True)


def test_normalize_prompt_and_length_are_read(model: Path):
    general = {"prompts": {"query": "query: ", "doc": "passage: "}, "default_prompt_name": "query"}
    write(model, {"config_sentence_transformers.json": general})
    write(model, {"sentence_bert_config.json": {"max_seq_length": 64}})
    assert read_model_format(model) == ModelFormat(model, "mean", normalizes=True, max_length=64, prompt="query: ")


@pytest.mark.parametrize("general", [{}, {"prompts": {"query": "q: "}}, {"prompts": None, "default_prompt_name": None}])
def test_no_default_prompt_means_none(model: Path, general: dict[str, Any]):
    write(model, {"config_sentence_transformers.json": general})
    assert read_model_format(model).prompt == ""


# ---------------------------------------------------------------- refusing


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickled_weights_are_refused_unread(model: Path, weights: str):
    (model / "model.safetensors").rename(model / weights)
    assert "pickled weights" in refusal(model)


@pytest.mark.parametrize("kind", ["Dense", "LSTM", "WordEmbeddings", "CLIPModel"])
def test_a_module_of_another_kind_is_named(model: Path, kind: str):
    write(model, {"modules.json": modules({**KINDS, "3_More": kind})})
    assert f"the module {kind}, which is not supported" in refusal(model)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["mean", "max"]}, "mean + max"),
        ({"pooling_mode": 3}, "3"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean + max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_weightedmean_tokens": True}, "mean + weightedmean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len_tokens"),
        ({}, "nothing"),
    ],
)
def test_a_pooling_of_another_kind_is_named(model: Path, config: dict[str, Any], named: str):
    write(model, {"1_Pooling/config.json": config})
    assert f"pools by {named}" in refusal(model)


def test_a_prompt_that_is_left_out_of_the_pooling_is_refused(model: Path):
    write(model, {"1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False}})
    assert read_model_format(model).pooling == "mean"  # no prompt: nothing to leave out
    write(model, {"config_sentence_transformers.json": {"prompts": {"q": "q: "}, "default_prompt_name": "q"}})
    assert "leaves its prompt out of the pooling" in refusal(model)


DAMAGED = {
    "modules.json": ["{{", "", "null", "[1]", "3", '[{"path": ""}]', '[{"type": "x.Transformer"}]', "{}", "[]"],
    "1_Pooling/config.json": ["{{", "[]", "null", '"mean"'],
    "config.json": ["{{", "[]", "null"],
    "sentence_bert_config.json": [
        "{{",
        "[]",
        '{"max_seq_length": "long"}',
        '{"max_seq_length": 0}',
        '{"max_seq_length": -5}',
    ],
    "config_sentence_transformers.json": ["{{", "[]", '{"prompts": {"a": 3}, "default_prompt_name": "a"}'],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in DAMAGED.items() for text in texts])
def test_a_damaged_file_is_one_clear_line(model: Path, name: str, text: str):
    write(model, {name: text})
    assert "model" in refusal(model)


def test_a_file_in_another_encoding_is_one_clear_line(model: Path):
    (model / "modules.json").write_bytes("[ä]".encode("latin-1"))
    assert "modules.json is not valid JSON" in refusal(model)


@pytest.mark.parametrize("missing", ["config.json", "1_Pooling/config.json"])
def test_a_missing_file_is_named(model: Path, missing: str):
    (model / missing).unlink()
    assert "config.json" in refusal(model)


# ---------------------------------------------------------------- writing


@given(
    pooling=st.sampled_from(["mean", "max", "cls"]),
    normalizes=st.booleans(),
    max_length=st.integers(3, 8192),
    lowercase=st.booleans(),
    prompt=st.text(max_size=20),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back(model: Path, **said: Any):
    layout = ModelFormat(transformer=model, **said)
    write_model_format(model, layout, dimension=8)
    assert read_model_format(model) == layout


def test_only_a_model_or_nothing_is_ever_replaced(tmp_path: Path):
    own = tmp_path / "thesis"
    check_replaceable(own)
    own.mkdir()
    check_replaceable(own)
    (own / "chapter1.tex").touch()
    with pytest.raises(InputError, match="holds other files"):
        check_replaceable(own)
    with pytest.raises(InputError, match="is a file"):
        check_replaceable(own / "chapter1.tex")
    (own / "modules.json").touch()
    check_replaceable(own)
