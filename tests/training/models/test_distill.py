"""distill: a static model of any encoder, near it, which sentence-transformers opens."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import make_model, module_names
from tokenizers import Tokenizer

from training.data.load import load_data
from training.errors import InputError, Stopped
from training.evaluation.scoring import evaluate
from training.models.distill import distill
from training.models.encoder import Encoder

SENTENCES = ["the man is playing a guitar", "a cat was eating food", "", "zork!", "The Dog"]


def tiny(folder: Path, architecture: str = "bert") -> Encoder:
    return Encoder.load(str(make_model(folder / architecture, architecture)), dtype="float32", device="cpu")


@pytest.mark.parametrize("architecture", ["bert", "t5", "qwen3"])
def test_it_opens_here_and_there_and_means_the_same(tmp_path: Path, architecture: str):
    from sentence_transformers import SentenceTransformer

    static = distill(tiny(tmp_path, architecture), 16)
    vectors = static.encode(SENTENCES)
    assert vectors.shape == (5, 16)
    static.save(tmp_path / "static")
    again = Encoder.load(str(tmp_path / "static"))
    assert module_names(again) == ("StaticEmbedding", "Normalize")
    np.testing.assert_array_equal(again.encode(SENTENCES), vectors)
    theirs = SentenceTransformer(str(tmp_path / "static"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(theirs.encode(SENTENCES), vectors, atol=1e-6)


def test_without_reduction_and_weights_rows_are_the_encoders_vectors_of_single_tokens(tmp_path: Path):
    """Of all dimensions, PCA is a rotation of the centred vectors: their inner products are kept."""
    encoder = tiny(tmp_path)
    corpus = ["zork"]  # tokens that do not occur in it have the weight 1
    table = distill(encoder, encoder.dimension, corpus).backbone.input_module.vectors  # type: ignore[union-attr]
    ids = encoder.tokenizer.convert_tokens_to_ids(["guitar", "cat", "man"])
    tokens = [token for token in range(len(encoder.tokenizer)) if token not in encoder.tokenizer.all_special_ids]
    cls, sep = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    with torch.no_grad():
        alone = encoder.embed([[cls, token, sep] for token in tokens])
    centred = (alone - alone.mean(dim=0))[[tokens.index(i) for i in ids]]
    torch.testing.assert_close(table[ids] @ table[ids].T, centred @ centred.T, rtol=1e-3, atol=1e-3)


def test_a_tokenizer_that_pads_by_itself_changes_nothing(tmp_path: Path):
    encoder = tiny(tmp_path)
    expected = distill(encoder, 8).encode(SENTENCES)
    encoder.tokenizer.backend_tokenizer.enable_padding(length=40)
    encoder.tokenizer.backend_tokenizer.enable_truncation(5)
    np.testing.assert_array_equal(distill(encoder, 8).encode(SENTENCES), expected)


def test_frequent_tokens_count_less(tmp_path: Path):
    encoder = tiny(tmp_path)
    the, guitar = encoder.tokenizer.convert_tokens_to_ids(["the", "guitar"])
    plain, counted = (
        distill(encoder, 8, corpus).backbone.input_module.vectors.norm(dim=1)  # type: ignore[union-attr]
        for corpus in (["zork"], ["the the the the guitar"])
    )
    assert counted[the] / plain[the] < counted[guitar] / plain[guitar] < 1
    special = encoder.tokenizer.all_special_ids
    assert not plain[special].any()
    zipf = distill(encoder, 8).backbone.input_module.vectors.norm(dim=1) / plain  # type: ignore[union-attr]
    assert zipf[the] < zipf[guitar]  # which comes later in the vocabulary


@pytest.mark.slow
def test_the_default_model_keeps_most_of_its_spearman():
    """On a part of the STS benchmark, of whose tokens alone the table is made."""
    data = load_data("stsb:dev").select(range(0, 1500, 10))
    encoder = Encoder.load("all-MiniLM-L6-v2", device="cpu")
    own = evaluate(encoder, data)["spearman"]["cosine"]
    ids = {token for column in data.columns for row in encoder.tokenize(list(column)) for token in row}
    tokenizer = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    vocabulary = tokenizer["model"]["vocab"].items()
    tokenizer["model"]["vocab"] = {
        word: token for word, token in vocabulary if token in ids or token in encoder.tokenizer.all_special_ids
    }
    encoder.tokenizer._tokenizer = Tokenizer.from_str(json.dumps(tokenizer))
    static = distill(encoder, 256)
    assert 0.6 < evaluate(static, data)["spearman"]["cosine"] < own


def test_progress_and_stop(tmp_path: Path):
    encoder, seen = tiny(tmp_path), []
    distill(encoder, 8, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(encoder.tokenizer) - len(encoder.tokenizer.all_special_ids)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        distill(encoder, 8, should_stop=stop.is_set)


def test_dimensions_out_of_range_a_static_model_and_an_empty_corpus_are_refused(tmp_path: Path):
    encoder = tiny(tmp_path)
    for dimension in (1, 33):
        with pytest.raises(InputError, match="keep 2 to 32"):
            distill(encoder, dimension)
    with pytest.raises(InputError, match="static already"):
        distill(distill(encoder, 8), 4)
    with pytest.raises(InputError, match="no tokens"):
        distill(encoder, 8, [""])
