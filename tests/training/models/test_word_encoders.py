"""`models/word_networks.py`: vocabulary and layers; sentence-transformers agrees on what is saved."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny_models import module_names

from training.catalogue import BILSTM, DAN, WORD_ENCODERS
from training.errors import InputError
from training.models.encoder import Encoder
from training.models.model import VectorModel, open_model, required
from training.models.random_weights import DENSE_DIMENSION, LSTM_DIMENSION
from training.sources.resolve import has_glove

WORDS = [
    "the",
    ".",
    ",",
    "a",
    "of",
    "'s",
    "man",
    "dog",
    "do",
    "n't",
    "plays",
    "guitar",
    "new",
    "york",
    "runs",
]
SENTENCES = [
    "A man plays the guitar.",
    "The dog runs, the man plays!",
    "the DOG in New York",
    "a",
    "the guitar of the man",
]


@pytest.fixture(scope="module")
def glove_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with a GloVe of a few words, the most frequent first."""
    home = tmp_path_factory.mktemp("glove")
    folder = home / "data/glove.6B.50d"
    folder.mkdir(parents=True)
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 50)).astype(np.float32)
    np.save(folder / "glove_6B_50d_emb.npy", vectors)
    pq.write_table(pa.table({"index": WORDS}), folder / "glove_6B_index.parquet")
    return home


def vector_of(encoder: Encoder, word: str) -> np.ndarray:
    """The row of a word in the encoder's table."""
    tokenizer = encoder.tokenizer
    return encoder.backbone.get_input_embeddings().weight[tokenizer.word2idx[word]].detach().numpy()


def glove_vector(home: Path, word: str) -> np.ndarray:
    return np.load(home / "data/glove.6B.50d/glove_6B_50d_emb.npy")[WORDS.index(word)]


@pytest.mark.parametrize("name", WORD_ENCODERS)
def test_the_vocabulary_is_of_glove_and_the_sentences_in_lower_case(glove_home, name):
    encoder = Encoder.load(name, home=glove_home, vocabulary_of=["The man’s dog.", "Don't go!"])
    known = set(encoder.tokenizer.word2idx)
    assert {"the", "man", "'s", "n't", "don't"} <= known
    # Punctuation, and what GloVe does not have
    assert not {".", ",", "go", "dog.", "man’s"} & known
    assert np.allclose(vector_of(encoder, "dog"), glove_vector(glove_home, "dog"))
    assert np.allclose(
        vector_of(encoder, "don't"),
        (glove_vector(glove_home, "do") + glove_vector(glove_home, "n't")) / 2,
    )
    assert "glove 6B, 50 dimensions" in encoder.source
    apart, joined = encoder.encode(["The man plays the guitar .", "the MAN plays the guitar."])
    assert np.allclose(apart, joined, atol=1e-6)


def test_infersent_is_glove_an_lstm_and_the_maximum(glove_home):
    encoder = Encoder.load(BILSTM, home=glove_home)
    assert module_names(encoder) == ("WordEmbeddings", "LSTM", "Pooling")
    assert (encoder.pooling, encoder.dimension) == ("max", 2 * LSTM_DIMENSION)
    assert not encoder.backbone.get_input_embeddings().weight.requires_grad  # GloVe stays as it is
    states = encoder.token_vectors(SENTENCES[:1])[0]
    assert states.tokens == ["A", "man", "plays", "the", "guitar."]
    assert np.allclose(
        states.hidden.max(axis=0), encoder.encode(SENTENCES[:1], normalize=False)[0], atol=1e-6
    )


def test_the_averaging_network_by_hand(glove_home):
    encoder = Encoder.load(DAN, home=glove_home, vocabulary_of=["the dog runs"])
    assert module_names(encoder) == ("WordEmbeddings", "Pooling", "Dense", "Dense")
    assert encoder.dimension == DENSE_DIMENSION
    assert encoder.backbone.get_input_embeddings().weight.requires_grad
    summed = torch.from_numpy(vector_of(encoder, "the") + vector_of(encoder, "dog")) / 2**0.5
    expected = encoder.head(summed).detach().numpy()
    assert np.allclose(encoder.encode(["See: the dog!"], normalize=False)[0], expected, atol=1e-6)
    assert np.allclose(
        encoder.embed(encoder.tokenize(["See: the dog!"])).detach().numpy()[0], expected, atol=1e-6
    )
    assert encoder.token_vectors(["See: the dog!"])[0].offsets == [(5, 8), (9, 13)]


def test_a_length_that_is_too_short_is_refused(glove_home):
    encoder = Encoder.load(DAN, home=glove_home)
    with pytest.raises(InputError, match=r"max_seq_length is 0; .* reads 3 to 999999 tokens"):
        encoder.max_seq_length = 0


@pytest.mark.parametrize("pooling", ["mean", "mean_sqrt_len_tokens", "max"])
def test_vectors_do_not_depend_on_the_batch(glove_home, pooling):
    encoder = Encoder.load(DAN, pooling, home=glove_home, vocabulary_of=["the dog"] * 3)
    together = encoder.encode(SENTENCES, normalize=False)
    alone = np.concatenate([encoder.encode([text], normalize=False) for text in SENTENCES])
    assert np.allclose(together, alone, atol=1e-6)
    assert np.allclose(
        together, encoder.embed(encoder.tokenize(SENTENCES)).detach().numpy(), atol=1e-6
    )


@pytest.mark.parametrize("name", WORD_ENCODERS)
def test_weights_are_those_of_the_seed_and_of_a_saved_folder(glove_home, tmp_path, name):
    encoders = [
        Encoder.load(name, home=glove_home, vocabulary_of=SENTENCES * 3, seed=seed)
        for seed in (1, 1, 2)
    ]
    vectors, same, others = (encoder.encode(SENTENCES) for encoder in encoders)
    assert np.array_equal(vectors, same)
    assert not np.allclose(vectors, others, atol=1e-2)
    encoders[0].save(tmp_path / "model")
    again = required(open_model(tmp_path / "model"), VectorModel)
    assert np.allclose(again.encode(SENTENCES), vectors, atol=1e-6)
    # A text without a known word is the zero vector here.
    assert not encoders[0].encode(["xyzzy"], normalize=False).any() or name == DAN


@pytest.mark.parametrize("name", WORD_ENCODERS)
def test_without_glove_the_words_are_those_of_the_sentences_and_trained(alone, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not has_glove()
    with pytest.raises(
        InputError, match=f"{name} has no words without GloVe or a run's training data"
    ):
        Encoder.load(name)
    encoder = Encoder.load(name, vocabulary_of=SENTENCES)
    assert {"guitar", "york"} <= set(encoder.tokenizer.word2idx)
    assert encoder.backbone.get_input_embeddings().weight.requires_grad
    assert "random word vectors, as GloVe is not here" in encoder.source
    assert np.isfinite(encoder.encode(SENTENCES)).all()
