"""BERT without the transformers library: the same weights, token ids and vectors as with it."""

import copy
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from paths import ROOT

from training import Encoder
from training.models.loading import open_backbone, open_tokenizer
from training.models.plain_bert import PlainBert, PlainTokenizer, open_plain
from training.sources.resolve import model_folder

TEXTS = ["Crème brûlée, 東京 and the [MASK] token", "", "x " * 300, "İstanbul\u2028\x00 é́"]
WITHOUT = """
import sys
from training import CrossEncoder, Encoder
Encoder.load("all-MiniLM-L6-v2").encode(["a man"])
CrossEncoder.load("minilm-stsb").predict([("a man", "a woman")])
assert not {"transformers", "sympy", "torch._dynamo"} & set(sys.modules)
"""


@pytest.fixture
def folder(home, tmp_path):
    """A copy of the default model, to change."""
    return shutil.copytree(model_folder("all-MiniLM-L6-v2", home).path, tmp_path / "model")


def change(file, **settings):
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def test_encoding_and_scoring_do_not_import_transformers():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, cwd=ROOT)


def test_parameters_and_tokens_are_those_of_transformers(folder):
    bert, tokenizer = open_plain(folder)
    theirs, reference = open_backbone(folder), open_tokenizer(folder)
    expected = theirs.state_dict()
    assert bert.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in bert.state_dict().items())
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    ids = [each.ids for each in tokenizer.backend_tokenizer.encode_batch(TEXTS)]
    assert ids == reference(TEXTS)["input_ids"]
    for name in ("pad_token_id", "model_max_length", "truncation_side", "mask_token", "unk_token"):
        assert getattr(tokenizer, name) == getattr(reference, name), name
    assert sorted(tokenizer.all_special_ids) == sorted(reference.all_special_ids)


def test_the_module_of_transformers_has_the_same_parameters_not_copies(folder):
    encoder = Encoder.load(str(folder), dtype="float32")
    assert isinstance(encoder.weights, PlainBert)
    vectors, other = encoder.encode(TEXTS[:2]), encoder.with_pooling("cls")
    weight = encoder.weights.get_input_embeddings().weight
    assert type(encoder.backbone).__name__ == "BertModel"
    assert encoder.backbone.get_input_embeddings().weight is weight
    assert other.backbone is encoder.backbone and other.tokenizer is encoder.tokenizer
    with torch.no_grad():
        differentiable = encoder.embed(encoder.tokenize(TEXTS[:2])).numpy()
    unit = differentiable / np.linalg.norm(differentiable, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, vectors, atol=1e-5)


def test_a_copy_has_weights_of_its_own(folder):
    bert, _ = open_plain(folder)
    bert.whole()
    copied = copy.deepcopy(bert)
    with torch.no_grad():
        copied.get_input_embeddings().weight.zero_()
    assert copied.whole().get_input_embeddings().weight.abs().max() == 0
    assert bert.whole().get_input_embeddings().weight.abs().max() > 0


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("config.json", {"is_decoder": True}),
        ("config.json", {"model_type": "roberta"}),
        ("config.json", {"num_hidden_layers": 5}),
        ("config.json", {"max_position_embeddings": 100}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"strip_accents": True}),
        ("tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer"}),
        ("tokenizer_config.json", {"mask_token": "<mask>"}),
        ("tokenizer_config.json", {"additional_special_tokens": ["[NEW]"]}),
    ],
)
def test_a_folder_with_anything_unusual_is_left_to_transformers(folder, file, settings):
    assert open_plain(folder) is not None
    change(folder / file, **settings)
    assert open_plain(folder) is None


def test_weights_that_are_missing_or_too_many_are_left_to_transformers(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"classifier.weight": torch.ones(2)}, folder / "model.safetensors")
    assert open_plain(folder) is None
    del tensors["encoder.layer.3.output.dense.bias"]
    save_file(tensors, folder / "model.safetensors")
    assert open_plain(folder) is None


def test_the_tokenizer_is_made_once_so_that_changes_of_it_stay(folder):
    _, tokenizer = open_plain(folder)
    assert isinstance(tokenizer, PlainTokenizer)
    tokenizer.whole().model_max_length = 77
    assert tokenizer.whole().model_max_length == 77
