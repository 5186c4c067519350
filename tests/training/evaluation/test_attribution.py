"""Attribution: the map of word pairs sums to the cosine, whatever the sentences; nothing is approximated."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.errors import InputError
from training.evaluation.attribution import attribute, attribute_tokens, why_no_map, words_of
from training.models.encoder import Encoder, TokenVectors
from training.models.modules import Dense, Normalize

A = "Your contribution wasn't unhelpful, not at all!"
B = "Ça n'était guère utile 😀, שלום."


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load("all-MiniLM-L6-v2", dtype="float32")


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize(("a", "b"), [(A, B), (A, A), ("yes", "no " * 300), ("", "a"), ("!?", "…")])
def test_the_map_sums_to_the_cosine(encoder, pooling, a, b):
    model = encoder.with_pooling(pooling)
    u, v = model.encode([a, b])
    found = attribute(model, a, b)
    assert found.matrix.sum() == pytest.approx(float(u @ v), abs=1e-5)
    assert found.cosine == pytest.approx(float(u @ v), abs=1e-5)
    assert found.matrix.shape == (len(found.words_a), len(found.words_b))


@settings(max_examples=25)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_the_identity_holds_for_any_token_vectors(encoder, tokens_a, tokens_b, seed):
    random = np.random.default_rng(seed)
    sides = [
        TokenVectors(["x"] * n, list(range(n)), [(i, i + 1) for i in range(n)], random.standard_normal((n, 384)))
        for n in (tokens_a, tokens_b)
    ]
    for pooling, pool in (("mean", np.mean), ("max", np.max)):
        u, v = (pool(side.hidden, axis=0) for side in sides)
        found = attribute_tokens(encoder.with_pooling(pooling), "x" * tokens_a, "x" * tokens_b, *sides)
        assert found.matrix.sum() == pytest.approx(u @ v / np.linalg.norm(u) / np.linalg.norm(v), abs=1e-9)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_shares_say_how_much_of_the_vector_each_word_is(encoder, pooling):
    found = attribute(encoder.with_pooling(pooling), A, B)
    assert found.shares_a.sum() == pytest.approx(1)
    assert found.shares_b.sum() == pytest.approx(1)
    assert (found.shares_a >= 0).all()


def test_sub_words_are_merged_to_words_and_special_tokens_stay(encoder):
    sentence = "unbelievably antidisestablishmentarian"
    (vectors,) = encoder.token_vectors([sentence])
    words = words_of(sentence, vectors)
    assert [word.text for word in words] == ["[CLS]", "unbelievably", "antidisestablishmentarian", "[SEP]"]
    assert len(words[2].tokens) > 1
    assert sorted(token for word in words for token in word.tokens) == list(range(len(vectors.tokens)))


def test_words_say_where_they_stand(encoder):
    (vectors,) = encoder.token_vectors([B])
    for word in words_of(B, vectors):
        if word.end > word.start:
            assert B[word.start : word.end] == word.text


def test_equal_words_hold_the_sentences_together(encoder):
    found = attribute(encoder, "The guitar is old.", "An old guitar.")
    strongest = np.unravel_index(found.matrix.argmax(), found.matrix.shape)
    assert (found.words_a[strongest[0]], found.words_b[strongest[1]]) in {("guitar", "guitar"), ("old", "old")}


@pytest.mark.parametrize(
    ("pooling", "reason"),
    [("cls", "CLS pooling"), ("lasttoken", "Last-token pooling"), ("mean+max", r"Mean \+ max pooling")],
)
def test_a_pooling_without_a_map_says_so(encoder, pooling, reason):
    with pytest.raises(InputError, match=f"{reason} has no exact word map"):
        attribute(encoder.with_pooling(pooling), A, B)


def with_head(encoder, *modules):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = torch.nn.Sequential(*(build() for build in modules)).eval()
    form = encoder.model_format
    return Encoder(encoder.name, encoder.backbone, encoder.tokenizer, form, encoder.dtype, head=head)


def linear():
    return Dense(384, 50, activation="torch.nn.modules.linear.Identity")


@pytest.mark.parametrize("pooling", ["mean", "weightedmean", "mean_sqrt_len_tokens"])
@pytest.mark.parametrize("dimension", [None, 30])
@pytest.mark.parametrize("head", [(), (linear,), (Normalize, linear, Normalize)])
def test_the_map_is_exact_after_linear_modules_and_truncation(encoder, pooling, dimension, head):
    model = with_head(encoder, *head).with_pooling(pooling).with_dimension(dimension)
    assert why_no_map(model) == ""
    u, v = model.encode([A, B])
    found = attribute(model, A, B)
    assert found.matrix.sum() == pytest.approx(float(u @ v), abs=1e-5)
    assert found.shares_a.sum() == pytest.approx(1)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_map_leaves_out_a_prompt_that_is_not_pooled(encoder, pooling):
    form = replace(encoder.model_format, include_prompt=False)
    plain = Encoder(encoder.name, encoder.backbone, encoder.tokenizer, form, encoder.dtype)
    model = plain.with_pooling(pooling).with_prompt("the question: ")
    u, v = model.encode([A, B])
    found = attribute(model, A, B)
    assert found.matrix.sum() == pytest.approx(float(u @ v), abs=1e-5)
    assert found.words_a[:5] == ["[CLS]", "the", "question", ":", "Your"]
    assert not found.matrix[:4].any()
    (vectors,) = model.token_vectors([A])
    for word in words_of(A, vectors):
        assert word.end == word.start or A[word.start : word.end] == word.text


def test_after_a_module_that_is_not_linear_there_is_no_map(encoder):
    model = with_head(encoder, lambda: Dense(384, 50))
    with pytest.raises(InputError, match="A Dense module, which is not linear"):
        attribute(model, A, B)
    with pytest.raises(InputError, match="no exact word map"):
        attribute(with_head(encoder, linear).with_pooling("max"), A, B)


def test_a_notebook_shows_the_map_with_all_text_escaped(encoder):
    html = attribute(encoder, "a <b>cat</b>", "a dog")._repr_html_()
    assert "&lt;" in html and "<b>" not in html
    assert "<th>cat</th>" in html and "<th>dog</th>" in html
