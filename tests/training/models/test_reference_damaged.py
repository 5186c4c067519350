"""As `test_reference`, folders with something wrong, and settings that seldom occur: one sentence at opening."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from test_reference import BERT, SMALL, TEXTS, TOLERANCE, change, classifier, make, other, sharded
from test_reference_published import static
from tiny_models import make_model
from transformers.utils import is_sentencepiece_available

from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.model import VectorModel, open_model, required

LONG = ["the dog is eating food on the guitar " * 9, "the cat"]
PADDED = ["a <pad> b", "<pad>", "<pad> a <pad> <pad> dog", *TEXTS[:2]]


def of_padding_zero(path: Path) -> Path:
    """A RoBERTa whose first token, not its padding, is what positions are not counted for."""
    change(make_model(path / "m", "roberta") / "config.json", pad_token_id=0)
    return path / "m"


@pytest.mark.parametrize(
    ("maker", "texts"),
    [
        (lambda path: make_model(path / "m", "roberta"), PADDED),
        (lambda path: make_model(path / "m", "mpnet"), PADDED),
        (of_padding_zero, PADDED),
        (make(BERT, "qwen3", max_seq_length=200), LONG),
        (make(BERT, "modernbert", max_seq_length=200), LONG),
        (make(BERT, "qwen3", processing_kwargs={"text": {"truncation": False}}), LONG),
    ],
)
def test_padding_in_a_text_and_lengths_beyond_the_positions(
    tmp_path: Path, maker: Callable[[Path], Path], texts: list[str]
):
    from sentence_transformers import SentenceTransformer

    folder = str(maker(tmp_path))
    reference = SentenceTransformer(folder, device="cpu")
    expected = np.concatenate([reference.encode([text]) for text in texts])
    model = required(open_model(folder, dtype="float32", device="cpu"), VectorModel)
    vectors = model.encode(texts, normalize=None)
    np.testing.assert_allclose(vectors, expected, **TOLERANCE)


def test_padding_in_a_text_of_a_pair_and_none_in_the_configuration(tmp_path: Path):
    from sentence_transformers import CrossEncoder as Reference

    folder = str(classifier(tmp_path, "roberta"))
    pairs = [("a <pad> cat", "the <pad> dog"), ("a cat", "<pad>"), ("the cat", "a dog")]
    expected = np.concatenate([Reference(folder, device="cpu").predict([pair]) for pair in pairs])
    np.testing.assert_allclose(
        CrossEncoder.load(folder, dtype="float32").predict(pairs), expected, **TOLERANCE
    )
    change(tmp_path / "config.json", pad_token_id=None)
    with pytest.raises(InputError, match=NO_PADDING):
        CrossEncoder.load(folder)


# ---------------------------------------------------------------- one sentence at opening


def without(*names: str) -> Callable[[Path], Path]:
    """A maker of a folder without these files."""

    def maker(path: Path) -> Path:
        folder = make()(path)
        for name in names:
            (folder / name).unlink()
        return folder

    return maker


def without_a_shard(path: Path) -> Path:
    folder = sharded(path)
    sorted(folder.glob("model-*.safetensors"))[1].unlink()
    return folder


def without_map(path: Path) -> Path:
    (sharded(path) / "model.safetensors.index.json").write_text("{}")
    return path / "model"


def bare_table(path: Path) -> Path:
    folder = static(path, is_model2vec=True)
    (folder / "modules.json").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    return folder


def of_bytes(path: Path) -> Path:
    folder = without("tokenizer.json")(path)
    change(folder / "tokenizer_config.json", tokenizer_class="ByT5Tokenizer")
    return folder


NO_PADDING = "has no pad_token_id, from which positions are counted"
DAMAGED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no padding token": (make("config.json", "roberta", pad_token_id=None), NO_PADDING),
    "relative positions": (
        make("config.json", position_embedding_type="relative_key_query"),
        "asks for relative_key_query positions, which are not supported",
    ),
    "a bare table": (bare_table, "cannot be opened as a transformer"),
    "no weights": (without("model.safetensors"), r"holds no model: it has no safetensors weights$"),
    "no tokenizer": (
        without("tokenizer.json", "tokenizer_config.json"),
        r"model has no tokenizer: there is no tokenizer\.json, and no vocabulary",
    ),
    "a slow tokenizer": (
        of_bytes,
        "no tokenizer that can be opened: ByT5Tokenizer has no fast form",
    ),
    "a missing shard": (
        without_a_shard,
        r"model lacks model-00002-of-\d+\.safetensors, a part of its weights",
    ),
    "an index without a map": (without_map, r"model\.safetensors\.index\.json lists no weights"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_folder_is_refused_in_one_sentence(tmp_path: Path, kind: str):
    maker, reason = DAMAGED[kind]
    with pytest.raises(InputError, match=reason):
        Encoder.load(str(maker(tmp_path)))


@pytest.mark.skipif(is_sentencepiece_available(), reason="the package is installed")
def test_a_tokenizer_of_sentencepiece_alone_needs_that_package(tmp_path: Path):
    folder = without("tokenizer.json", "tokenizer_config.json")(tmp_path)
    (folder / "spiece.model").write_bytes(b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    change(folder / "tokenizer_config.json", tokenizer_class="T5Tokenizer")
    with pytest.raises(
        InputError, match=r"spiece\.model needs the package sentencepiece; install it, or save"
    ):
        Encoder.load(str(folder))


def test_the_layer_that_a_classifier_reads_may_not_be_missing(tmp_path: Path):
    more = {"max_position_embeddings": 64, "pooler_hidden_size": 32, "num_labels": 1}
    folder = other(
        tmp_path, "DebertaV2", "bert", "AutoModelForSequenceClassification", **more, **SMALL
    )
    assert np.isfinite(CrossEncoder.load(str(folder)).predict([("a", "b")])).all()
    tensors = {
        name: t
        for name, t in load_file(folder / "model.safetensors").items()
        if not name.startswith("pooler")
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks the weights pooler\.dense\.bias and 1 more"):
        CrossEncoder.load(str(folder))


def test_a_whole_file_of_weights_is_read_beside_an_index_of_others(tmp_path: Path):
    folder = make()(tmp_path)
    expected = Encoder.load(str(folder), dtype="float32").encode(TEXTS)
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'
    )
    np.testing.assert_array_equal(
        Encoder.load(str(folder), dtype="float32").encode(TEXTS), expected
    )


@pytest.mark.parametrize(
    ("name", "complaint"),
    {
        "XLMRobertaTokenizer": "cannot read: 'dict' object",
        "ByT5Tokenizer": "cannot read: ByT5Tokenizer has no fast form",
        "GPT2Tokenizer": "does not follow",
    }.items(),
)
def test_a_class_that_does_not_follow_the_file_of_the_tokenizer_is_told(
    tmp_path: Path, name: str, complaint: str, caplog: pytest.LogCaptureFixture
):
    folder = make()(tmp_path)
    expected = Encoder.load(str(folder)).tokenize(TEXTS)
    change(folder / "tokenizer_config.json", tokenizer_class=name)
    # A default token of the class that is not in the file, as GPT-2's, is none of the model's.
    assert Encoder.load(str(folder)).tokenize(TEXTS) == expected
    [message] = [text for text in caplog.messages if "is read by its tokenizer.json" in text]
    assert complaint in message
