"""The sentence-transformers folder layout: what is written is read back, what cannot be represented is refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tiny_models import make_model

from training.errors import InputError
from training.models.files import check_replaceable
from training.models.folder import ModelFolder, ModelFormat
from training.models.model import open_model
from training.pooling import POOLINGS

ROUTER = "sentence_transformers.models.Router"
KINDS = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("plain") / "tiny")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model to those who only read its settings; its name is "model"."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    save_file({"weight": np.zeros(1, dtype=np.float32)}, folder / "model.safetensors")
    write(folder, {"config.json": {"model_type": "bert"}, "modules.json": modules(KINDS)})
    write(folder, {"1_Pooling/config.json": {"pooling_mode": "mean"}})
    return folder


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / name).write_text(text, encoding="utf-8")


def modules(
    kinds: dict[str, str], package: str = "sentence_transformers.models"
) -> list[dict[str, Any]]:
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"{package}.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]


def read_format(folder: Path) -> ModelFormat:
    form = ModelFolder.read(folder).checked().form
    assert form is not None
    return form


def is_of_the_library(folder: Path) -> bool:
    """Whether sentence-transformers opens a folder, and not this project."""
    return not ModelFolder.read(folder).checked().is_own


def refusal(folder: Path) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(InputError) as caught:
        ModelFolder.read(folder).checked()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_oldest_layout_keeps_the_transformer_in_a_folder_of_its_own(model: Path):
    inner = model / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).rename(inner / name)
    write(
        model, {"modules.json": modules({"0_Transformer": "Transformer", "1_Pooling": "Pooling"})}
    )
    write(inner, {"sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": True}})
    assert read_format(model) == ModelFormat(inner, pooling="mean", max_length=128, lowercase=True)


def test_normalize_prompt_and_length_are_read(model: Path):
    for general in (
        {},
        {"prompts": {"query": "q: "}},
        {"prompts": None, "default_prompt_name": None},
    ):
        write(model, {"config_sentence_transformers.json": general})
        assert read_format(model).prompt == ""
    general = {"prompts": {"query": "query: ", "doc": "passage: "}, "default_prompt_name": "query"}
    write(model, {"config_sentence_transformers.json": general})
    write(model, {"sentence_bert_config.json": {"max_seq_length": 64}})
    layout = read_format(model)
    assert layout == ModelFormat(
        model,
        "mean",
        normalizes=True,
        max_length=64,
        prompts=general["prompts"],
        default_prompt="query",
    )
    assert layout.prompt == "query: "


def test_modules_before_and_after_the_pooling(model: Path):
    kinds = {
        "": "Transformer",
        "1_Pooling": "Pooling",
        "2_Dense": "Dense",
        "3_Dense": "Dense",
        "4": "Normalize",
    }
    write(model, {"modules.json": modules(kinds)})
    layout = read_format(model)
    assert [module[:2] for module in layout.sentence_modules] == [
        ("Dense", model / f"{i}_Dense") for i in (2, 3)
    ]
    assert layout.normalizes
    (model / "4").mkdir()
    for setting in ("module_input_name", "p"):
        write(model / "4", {"config.json": {setting: "zork"}})
        assert is_of_the_library(model)


FLAGS = dict.fromkeys(
    ("pooling_mode_mean_tokens", "pooling_mode_max_tokens", "pooling_mode_cls_token"), False
)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (
            {"embedding_dimension": 8, "pooling_mode": "lasttoken", "include_prompt": True},
            "lasttoken",
        ),
        ({"pooling_mode": ["mean", "max"]}, "mean+max"),
        ({"word_embedding_dimension": 8, **FLAGS, "pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls+mean"),
        ({"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len_tokens"),
    ],
)
def test_every_pooling_and_concatenations_under_names_of_modules_of_today(
    model: Path, config: dict[str, Any], pooling: str
):
    package = "sentence_transformers"
    names = {
        "": f"{package}.base.modules.transformer.Transformer",
        "1_Pooling": f"{package}.sentence_transformer.modules.pooling.Pooling",
    }
    write(model, {"modules.json": [{"path": path, "type": name} for path, name in names.items()]})
    write(model, {"1_Pooling/config.json": config})
    assert read_format(model).pooling == pooling


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickled_weights_are_refused_unread(model: Path, weights: str):
    (model / "model.safetensors").rename(model / weights)
    assert "pickled weights" in refusal(model)


@pytest.mark.parametrize("kind", ["BoW", "CLIPModel", "Dropout", "SomethingOfALaterVersion"])
def test_a_module_of_another_kind_is_opened_by_the_library(model: Path, kind: str):
    write(model, {"modules.json": modules({**KINDS, "3_More": kind})})
    assert is_of_the_library(model)


SETTINGS = {
    "sentence_bert_config.json": [
        {"processing_kwargs": {"text": {"max_length": 8}}},
        {"modality_config": {"message": {"method": "forward"}}},
        {"transformer_task": "fill-mask"},
        {"model_kwargs": {"dtype": "float32"}},
        {"something_new": False},
    ],
    "config_sentence_transformers.json": [
        {"requirements": {"torch": ">=2"}},
        {"similarity_fn_name": "zork"},
    ],
    "1_Pooling/config.json": [{"pooling_mode": "mean", "chunk_size": 8}],
    "tokenizer_config.json": [{"split_special_tokens": True}],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_not_listed_is_left_to_the_library(model: Path, name: str):
    for settings_of_file in SETTINGS[name]:
        write(model, {name: settings_of_file})
        assert is_of_the_library(model)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"embedding_dimension": 32, "pooling_mode": "attention"},
            "Invalid pooling mode: 'attention'",
        ),
        ({"embedding_dimension": 32, "pooling_mode": ["mean", 3]}, "Invalid pooling mode: 3"),
        ({}, "embedding_dimension"),
    ],
)
def test_a_pooling_of_another_kind_is_left_to_the_library(
    plain: Path, tmp_path: Path, config: dict[str, Any], reason: str
):
    folder = Path(shutil.copytree(plain, tmp_path / "other"))
    (folder / "1_Pooling").mkdir()
    write(folder, {"modules.json": modules({"": "Transformer", "1_Pooling": "Pooling"})})
    write(folder, {"1_Pooling/config.json": config})
    assert is_of_the_library(folder)
    with pytest.raises(InputError, match=f"cannot be opened by sentence-transformers: .*{reason}"):
        open_model(str(folder))


@pytest.mark.parametrize(
    "dotted",
    [
        "custom_st.Transformer",
        "modeling.Pooling",
        "pylate.models.Router",
        "sentence_transformers",
        "os.system",
    ],
)
def test_code_that_comes_with_a_model_is_refused(model: Path, dotted: str):
    write(model, {"modules.json": [{"path": "", "type": dotted}]})
    assert "code that comes with the model" in refusal(model)
    # A Router, and a tokenizer of words, are other places where a folder may name a class.
    write(
        model,
        {
            "modules.json": modules({"": "Router"}),
            "router_config.json": {"types": {"query_0": dotted}},
        },
    )
    assert "code that comes with the model" in refusal(model)
    (model / "router_config.json").unlink()
    write(model, {"modules.json": modules({"": "WordEmbeddings"})})
    write(model, {"wordembedding_config.json": {"tokenizer_class": dotted}})
    assert "code that comes with the model" in refusal(model)


@pytest.mark.parametrize("types", [{"": ROUTER}, {"query": ROUTER, "./": ROUTER}, [ROUTER], ROUTER])
def test_a_router_lists_modules_in_folders_of_their_own(model: Path, types: Any):
    write(model, {"modules.json": modules({"": "Router"}), "router_config.json": {"types": types}})
    assert "router_config.json does not list modules by their folders" in refusal(model)


@pytest.mark.parametrize(
    "kinds",
    [
        ["Transformer", "LSTM", "Pooling"],
        ["Transformer", "Dense"],
        ["Transformer", "Pooling", "Pooling"],
        ["WordEmbeddings", "LSTM"],
        ["StaticEmbedding", "Pooling"],
    ],
)
def test_another_order_of_modules_is_left_to_the_library(model: Path, kinds: list[str]):
    write(
        model,
        {"modules.json": modules({f"{i}" if i else "": kind for i, kind in enumerate(kinds)})},
    )
    for place in ("1", "2"):
        (model / place).mkdir()
        write(model / place, {"config.json": {}})
    assert is_of_the_library(model)


@pytest.mark.parametrize("path", ["../1_Pooling", "/etc", "a/../../b"])
def test_the_modules_of_a_folder_are_inside_of_it(model: Path, path: str):
    write(model, {"modules.json": modules({"": "Transformer", path: "Pooling"})})
    assert re.search("has a module in .* outside of it", refusal(model))


@pytest.mark.parametrize("kind", ["SparseEncoder", "MultiVectorEncoder"])
def test_a_model_of_another_kind_is_left_to_the_library(model: Path, kind: str):
    write(model, {"config_sentence_transformers.json": {"model_type": kind}})
    assert is_of_the_library(model)


DAMAGED = {
    "modules.json": [
        "{{",
        "[1]",
        '[{"path": ""}]',
        '[{"type": "sentence_transformers.models.Pooling"}]',
        "[]",
    ],
    "1_Pooling/config.json": ["{{", "[]", "null"],
    "config.json": ["{{", "[]", "null"],
    "sentence_bert_config.json": [
        "{{",
        "[]",
        '{"max_seq_length": "long"}',
        '{"max_seq_length": 0}',
    ],
    "config_sentence_transformers.json": [
        "{{",
        "[]",
        '{"prompts": {"a": 3}, "default_prompt_name": "a"}',
        '{"truncate_dim": 0}',
        '{"truncate_dim": true}',
    ],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_clear_line(model: Path, name: str):
    for text in DAMAGED[name]:
        write(model, {name: text})
        assert "model" in refusal(model)
    (model / name).write_bytes("[ä]".encode("latin-1"))
    assert f"{Path(name).name} is not valid JSON" in refusal(model)
    if Path(name).name == "config.json":
        (model / name).unlink()
        assert "config.json" in refusal(model)


@given(
    pooling=st.lists(st.sampled_from(list(POOLINGS)), min_size=1, max_size=3, unique=True).map(
        "+".join
    ),
    normalizes=st.booleans(),
    max_length=st.integers(3, 8192),
    lowercase=st.booleans(),
    include_prompt=st.booleans(),
    prompts=st.dictionaries(
        st.sampled_from(["query", "document", "default"]), st.text(max_size=20)
    ),
    dimension=st.none() | st.integers(1, 1024),
    data=st.data(),
)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_folder_is_read_back_as_it_is_written(model: Path, data: st.DataObject, **values: Any):
    default = data.draw(st.sampled_from([None, *values["prompts"]]))
    layout = ModelFormat(transformer=model, default_prompt=default, **values)
    layout.write(model, 8, ["Transformer"], ())
    assert read_format(model) == layout


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
