"""Folders that were made to do harm: each is one sentence, in little memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_model

from training.errors import InputError
from training.models.encoder import Encoder

PADDING = {
    "strategy": {"Fixed": 1_000_000_000},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
}
# A regular expression that takes exponential time, which the library gives up on.
GIVES_UP = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
LONG = "a" * 20_000 + "!"


def changed(folder: Path, **settings: Any) -> Path:
    file = make_model(folder) / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return folder


def test_padding_in_tokenizer_json_is_left_out(tmp_path: Path):
    plain, padded = (
        Encoder.load(str(make_model(tmp_path / "a"))),
        Encoder.load(str(changed(tmp_path / "b", padding=PADDING))),
    )
    assert padded.tokenize(["the cat", ""]) == plain.tokenize(["the cat", ""])


@pytest.mark.parametrize(
    "read",
    [
        lambda encoder: encoder.encode([LONG]),
        lambda encoder: encoder.is_unknown([LONG]),
        lambda encoder: encoder.token_vectors([LONG]),
    ],
)
def test_a_regular_expression_that_gives_up_is_one_sentence(tmp_path: Path, read: Callable[[Encoder], Any]):
    encoder = Encoder.load(str(changed(tmp_path, pre_tokenizer=GIVES_UP)))
    with pytest.raises(InputError, match="the model's tokenizer gives up on a text"):
        read(encoder)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..\\x", "http://127.0.0.1/x", 5])
def test_an_index_of_weights_names_files_of_the_folder_alone(tmp_path: Path, name: Any):
    folder = make_model(tmp_path, "qwen3")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"x": name}}))
    with pytest.raises(InputError, match="outside of it"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("name", ["../1_Pooling", "/etc", "a/../../b"])
def test_the_modules_of_a_folder_are_inside_of_it(tmp_path: Path, name: str):
    kinds = {"": "Transformer", name: "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (make_model(tmp_path) / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"has a module in .* outside of it"):
        Encoder.load(str(tmp_path))
