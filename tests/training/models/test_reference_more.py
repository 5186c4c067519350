"""As `test_reference`, rerankers and adapters of less usual kinds, and networks that depend on padding."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from test_reference import (
    CALL,
    GENERAL,
    PAIRS,
    POOLING,
    PROMPTS,
    SMALL,
    TEXTS,
    TOLERANCE,
    adapter,
    assert_equal_scores,
    change,
    chat,
    classifier,
    dense,
    make,
    other,
    pairs,
    written,
)
from test_reference_published import weights
from tiny_models import make_model

from sbert_app.services.models.cache import ModelCache
from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.maxsim import LateInteraction
from training.models.model import Model, PairModel, open_model
from training.models.st_models import SparseEncoder, STCrossEncoder


def decoder(path: Path, template: str = "", words: Sequence[str] = ("yes", "no")) -> Path:
    """A plain language model with tokens for these words, and without modules.json."""
    folder = make_model(path / "plain", "qwen3")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([*words])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        network = transformers.AutoModelForCausalLM.from_pretrained(folder)
        network.resize_token_embeddings(len(tokenizer))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return chat(folder, template) if template else folder


def test_a_plain_language_model_is_an_encoder_unless_saved_as_another(tmp_path: Path):
    from sentence_transformers import CrossEncoder as Reference

    folder = decoder(tmp_path)
    models = ModelCache(tmp_path / "home")
    assert isinstance(models.get(str(folder), Model), Encoder)
    with pytest.raises(InputError, match="is a bi-encoder"):
        models.get(str(folder), PairModel)
    Reference(str(folder), device="cpu").save(str(tmp_path / "reranker"))
    assert_equal_scores(tmp_path / "reranker")
    assert isinstance(models.get(str(tmp_path / "reranker"), PairModel), STCrossEncoder)


def test_a_prompt_in_the_name_of_a_cross_encoder(tmp_path: Path):
    from sentence_transformers import CrossEncoder as Reference

    folder = pairs(GENERAL, prompts=PROMPTS["prompts"])(tmp_path)
    reference = Reference(str(folder), device="cpu")
    for setting, options in {
        "prompt_name=query": {"prompt_name": "query"},
        "prompt=the+dog+": {"prompt": "the dog "},
    }.items():
        expected = np.concatenate([reference.predict([pair], **options) for pair in PAIRS])
        opened = CrossEncoder.load(f"{folder}?{setting}", dtype="float32", device="cpu")
        np.testing.assert_allclose(opened.predict(PAIRS), expected, **TOLERANCE)
        cached = ModelCache(tmp_path).get(f"{folder}?{setting}&dtype=float32", Model)
        np.testing.assert_allclose(cached.score(PAIRS), expected, **TOLERANCE)
    with pytest.raises(
        InputError, match="has no prompt named 'zork'; its folder names: query, dog"
    ):
        CrossEncoder.load(f"{folder}?prompt_name=zork")
    with pytest.raises(InputError, match="reads no prompt"):
        CrossEncoder.load("minilm-stsb?prompt=x")


@pytest.mark.parametrize("saved", [["pooler"], ["word_embeddings"]])
def test_modules_that_an_adapter_has_whole_replace_those_of_its_base(
    tmp_path: Path, saved: list[str]
):
    from sentence_transformers import SentenceTransformer

    folder, merged = adapter(tmp_path, "AutoModel", modules_to_save=saved)
    expected = SentenceTransformer(str(written(tmp_path / "whole", merged)), device="cpu").encode(
        TEXTS
    )
    vectors = Encoder.load(str(folder), dtype="float32", device="cpu").encode(TEXTS, normalize=None)
    np.testing.assert_allclose(vectors, expected, **TOLERANCE)


LENGTHS: dict[str, dict[str, Any]] = {
    "max_seq_length": {"max_seq_length": 6},
    "processing_kwargs": {"processing_kwargs": CALL},
    "do_lower_case": {"do_lower_case": True},
}


@pytest.mark.parametrize("setting", LENGTHS)
def test_sparse_and_token_vectors_are_cut_as_in_the_reference(tmp_path: Path, setting: str):
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers import SparseEncoder as Reference
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    plain = make_model(tmp_path / "plain", "roberta")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.AutoModelForMaskedLM.from_pretrained(plain).save_pretrained(plain)
        projection = Dense(
            32, 8, bias=False, activation_function=None, module_input_name="token_embeddings"
        )
    settings = LENGTHS[setting]
    masked = Transformer(str(plain), transformer_task="fill-mask", **settings)
    Reference(modules=[masked, SpladePooling()], device="cpu").save(str(tmp_path / "sparse"))
    sparse = (
        SparseEncoder.load(str(tmp_path / "sparse"), dtype="float32").encode_sparse(TEXTS).toarray()
    )
    reference = Reference(str(tmp_path / "sparse"), device="cpu")
    expected = np.concatenate([reference.encode([text]).to_dense().numpy() for text in TEXTS])
    # Logits are sums of larger terms: with AVX2, sentence-transformers' own batches are 2.5e-5 from
    # its single texts.
    np.testing.assert_allclose(sparse, expected, rtol=1e-5, atol=5e-5)
    MultiVectorEncoder(
        modules=[Transformer(str(plain), **settings), projection], device="cpu"
    ).save(str(tmp_path / "late"))
    late = LateInteraction.load(str(tmp_path / "late"), dtype="float32").token_vectors(TEXTS)
    theirs = MultiVectorEncoder(str(tmp_path / "late"), device="cpu")
    for text, ours in zip(TEXTS, late, strict=True):
        np.testing.assert_allclose(ours.hidden, theirs.encode_document([text])[0], **TOLERANCE)


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("ConvBert", {"max_position_embeddings": 64, "embedding_size": 32, **SMALL}),
        ("Nystromformer", {"max_position_embeddings": 64, **SMALL}),
        # Its positions have no end.
        ("XLNet", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 32}),
    ],
)
def test_a_network_that_reads_padding_gets_none(
    tmp_path: Path, architecture: str, settings: dict[str, Any]
):
    folder = other(tmp_path, architecture, **settings)
    encoder = Encoder.load(str(folder), dtype="float32", device="cpu")
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, **TOLERANCE)


def test_the_whole_embedding_gemma_2_has_its_sizes_below(tmp_path: Path):
    sizes = {
        **SMALL,
        "head_dim": 16,
        "num_key_value_heads": 1,
        "max_position_embeddings": 96,
        "vocab_size": 300,
    }
    folder = make_model(tmp_path, "gemma3")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = transformers.EmbeddingGemma2Model(
            transformers.EmbeddingGemma2Config(text_config=sizes)
        ).eval()
    network.save_pretrained(folder)
    encoder = Encoder.load(str(folder), dtype="float32", device="cpu")
    assert encoder.max_length == 96
    for text in TEXTS[:3]:
        with torch.no_grad():
            states = network(input_ids=torch.tensor(encoder.tokenize([text]))).last_hidden_state
        np.testing.assert_allclose(
            encoder.encode([text], normalize=None), states.mean(1), **TOLERANCE
        )


@pytest.mark.parametrize("name", ["_orig_mod.", "0.auto_model."])
def test_weights_whose_names_have_a_wrapper_are_missing(tmp_path: Path, name: str):
    folder = weights(f"{name}{{}}".format)(tmp_path)
    with pytest.raises(InputError, match="lacks the weights"):
        Encoder.load(str(folder))


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json", POOLING])
def test_a_pointer_in_the_place_of_a_file_is_told(tmp_path: Path, file: str):
    folder = make()(tmp_path)
    (folder / file).write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{64 * 'a'}\nsize 12\n"
    )
    with pytest.raises(
        InputError, match=f"{file} is a Git LFS pointer and not the file: run git lfs pull"
    ):
        Encoder.load(str(folder))


def test_an_adapter_beside_the_settings_of_its_base_opens_over_it(tmp_path: Path):
    folder, merged = adapter(tmp_path, "AutoModel")
    (folder / "config.json").write_bytes((merged / "config.json").read_bytes())
    expected = Encoder.load(str(merged), dtype="float32", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(
        Encoder.load(str(folder), dtype="float32").encode(TEXTS), expected, **TOLERANCE
    )
    (folder / "model.safetensors").write_bytes((merged / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match="has an adapter beside the weights of a whole model"):
        Encoder.load(str(folder))


def test_a_folder_that_requires_another_version_is_refused(tmp_path: Path):
    met = {
        "transformers": ">=5.0,<99",
        "torch": {"specifier": ">2", "reason": "speed"},
        "peft": "odd",
        "tokenizers": ">=x",
    }
    folder = make(GENERAL, requirements=met)(tmp_path)
    assert open_model(folder).dimension == 32
    change(folder / GENERAL, requirements={"pytorch": {"specifier": ">=99"}})
    with pytest.raises(InputError, match="cannot be opened by sentence-transformers"):
        open_model(folder)


def test_a_dense_layer_whose_activation_is_null_has_none(tmp_path: Path):
    folder = written(tmp_path / "model", make_model(tmp_path / "plain"), "mean", dense())
    change(folder / "2_Dense/config.json", activation_function="torch.nn.modules.linear.Identity")
    expected = Encoder.load(str(folder), dtype="float32").encode(TEXTS, normalize=None)
    change(folder / "2_Dense/config.json", activation_function=None)
    np.testing.assert_array_equal(
        Encoder.load(str(folder), dtype="float32").encode(TEXTS, normalize=None), expected
    )


def test_settings_of_the_form_of_a_result_change_no_vector(tmp_path: Path):
    folder = make_model(tmp_path)
    expected = Encoder.load(str(folder), dtype="float32").encode(TEXTS)
    change(folder / "config.json", return_dict=False, chunk_size_feed_forward=4)
    np.testing.assert_array_equal(
        Encoder.load(str(folder), dtype="float32").encode(TEXTS), expected
    )


def test_a_cross_encoder_without_the_name_of_its_class(tmp_path: Path):
    folder = classifier(tmp_path / "model")
    change(folder / "config.json", architectures=None)
    assert_equal_scores(folder)
    change(make_model(tmp_path / "bert") / "config.json", architectures=None)
    with pytest.raises(InputError, match=r"lacks the weights classifier\.bias"):
        CrossEncoder.load(str(tmp_path / "bert"))


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"use_cache": None}, "Validation error for field 'use_cache'"),
        ({"layer_norm_eps": "1e-5"}, "Validation error for field 'layer_norm_eps'"),
        ({"pad_token_id": 10**6}, "Padding_idx must be within num_embeddings"),
    ],
)
def test_settings_of_another_type_are_refused_by_name(
    tmp_path: Path, setting: dict[str, Any], reason: str
):
    folder = make_model(tmp_path)
    change(folder / "config.json", **setting)
    with pytest.raises(InputError, match=f"cannot be opened as a transformer: {reason}"):
        Encoder.load(str(folder))
