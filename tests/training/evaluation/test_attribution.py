"""Attribution: the exact map sums to the cosine whatever the sentences; elsewhere words add what a referee says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.evaluation.attribution import attribute, attribute_tokens, has_exact_map, words_of
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder, TokenVectors
from training.models.modules import Dense, EncoderParts, Normalize

A = "Your contribution wasn't unhelpful, not at all!"
B = "Ça n'était guère utile 😀, שלום."


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load("all-MiniLM-L6-v2", dtype="float32")


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize(("a", "b"), [(A, B), ("yes", "no " * 300), ("", "a"), ("!?", "…")])
def test_the_map_sums_to_the_cosine(encoder, pooling, a, b):
    model = encoder.with_pooling(pooling)
    u, v = model.encode([a, b])
    found = attribute(model, a, b)
    assert found.matrix.sum() == pytest.approx(float(u @ v), abs=1e-5)
    assert found.cosine == pytest.approx(float(u @ v), abs=1e-5)
    assert found.matrix.shape == (len(found.words_a), len(found.words_b))
    assert found.kind == "exact"


@settings(max_examples=25)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_the_identity_holds_for_any_token_vectors(encoder, tokens_a, tokens_b, seed):
    random = np.random.default_rng(seed)
    sides = [
        TokenVectors(
            ["x"] * n,
            list(range(n)),
            [(i, i + 1) for i in range(n)],
            random.standard_normal((n, 384)),
        )
        for n in (tokens_a, tokens_b)
    ]
    for pooling, pool in (("mean", np.mean), ("max", np.max)):
        u, v = (pool(side.hidden, axis=0) for side in sides)
        found = attribute_tokens(
            encoder.with_pooling(pooling), "x" * tokens_a, "x" * tokens_b, *sides
        )
        assert found.matrix.sum() == pytest.approx(
            u @ v / np.linalg.norm(u) / np.linalg.norm(v), abs=1e-9
        )


def test_sub_words_are_merged_to_words_that_say_where_they_stand(encoder):
    sentence = "unbelievably antidisestablishmentarian"
    (vectors,) = encoder.token_vectors([sentence])
    words = words_of(sentence, vectors)
    assert [word.text for word in words] == [
        "[CLS]",
        "unbelievably",
        "antidisestablishmentarian",
        "[SEP]",
    ]
    assert len(words[2].tokens) > 1
    assert sorted(token for word in words for token in word.tokens) == list(
        range(len(vectors.tokens))
    )
    sentence = "I don't quote 'it'."
    (vectors,) = encoder.token_vectors([sentence])
    words = [word.text for word in words_of(sentence, vectors)]
    assert words == ["[CLS]", "I", "don't", "quote", "'", "it", "'", ".", "[SEP]"]
    (vectors,) = encoder.token_vectors([B])
    for word in words_of(B, vectors):
        if word.end > word.start:
            assert B[word.start : word.end] == word.text
    found = attribute(encoder, "The guitar is old.", "An old guitar.")
    strongest = np.unravel_index(found.matrix.argmax(), found.matrix.shape)
    assert (found.words_a[strongest[0]], found.words_b[strongest[1]]) in {
        ("guitar", "guitar"),
        ("old", "old"),
    }


def with_head(encoder, *modules):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = torch.nn.Sequential(*(build() for build in modules)).eval()
    parts = EncoderParts(
        encoder.backbone, encoder.tokenizer, encoder.model_format, encoder.source, head
    )
    return Encoder(encoder.name, parts, encoder.dtype)


def linear():
    return Dense(384, 50, activation="torch.nn.modules.linear.Identity")


@pytest.mark.parametrize(
    ("head", "pooling", "dimension"),
    [
        ((), "weightedmean", 30),
        ((linear,), "mean_sqrt_len_tokens", None),
        ((Normalize, linear, Normalize), "mean", 30),
    ],
)
def test_the_map_is_exact_after_linear_modules_and_truncation(encoder, head, pooling, dimension):
    model = with_head(encoder, *head).with_pooling(pooling).with_dimension(dimension)
    assert has_exact_map(model)
    u, v = model.encode([A, B])
    found = attribute(model, A, B)
    assert found.matrix.sum() == pytest.approx(float(u @ v), abs=1e-5)


def test_the_map_leaves_out_a_prompt_that_is_not_pooled(encoder):
    form = replace(encoder.model_format, include_prompt=False)
    parts = EncoderParts(encoder.backbone, encoder.tokenizer, form, encoder.source, encoder.head)
    model = Encoder(encoder.name, parts, encoder.dtype).with_prompt("the question: ")
    u, v = model.encode([A, B])
    found = attribute(model, A, B)
    assert found.matrix.sum() == pytest.approx(float(u @ v), abs=1e-5)
    assert found.words_a[:5] == ["[CLS]", "the", "question", ":", "Your"]
    assert not found.matrix[:4].any()
    (vectors,) = model.token_vectors([A])
    for word in words_of(A, vectors):
        assert word.end == word.start or A[word.start : word.end] == word.text


WITHOUT_MAP = {
    "last token": lambda encoder: (
        encoder.with_pooling("lasttoken").with_prompt("a question: ").with_dimension(100)
    ),
    "mean and max": lambda encoder: encoder.with_pooling("mean+max"),
    "Dense with activation": lambda encoder: with_head(encoder, lambda: Dense(384, 50), Normalize),
    "Dense after max": lambda encoder: with_head(encoder, linear).with_pooling("max"),
}


@pytest.mark.parametrize("kind", WITHOUT_MAP)
def test_without_a_map_a_word_adds_what_the_cosine_loses_without_it(encoder, kind):
    model = WITHOUT_MAP[kind](encoder)
    found = attribute(model, "A dog runs.", "The dogs are running.")
    whole, without = model.score(
        [("A dog runs.", "The dogs are running."), ("A runs.", "The dogs are running.")]
    )
    assert (found.kind, found.words_a) == ("leave-one-out", ["A", "dog", "runs", "."])
    assert found.score == pytest.approx(whole, abs=1e-5)
    assert found.added_a[1] == pytest.approx(whole - without, abs=1e-4)
    assert len(found.words_b) == len(found.added_b) == 5


def test_words_of_odd_sentences_add_finite_numbers(encoder):
    model = encoder.with_pooling("cls")
    for a, b in (("", "a"), ("\ud800 😀", "no " * 30), ("!?", "…")):
        found = attribute(model, a, b)
        assert np.isfinite([*found.added_a, *found.added_b]).all()


def test_a_notebook_shows_escaped_text(encoder):
    html = attribute(encoder, "a <b>cat</b>", "a dog")._repr_html_()
    assert "&lt;" in html and "<b>" not in html
    assert "<th>cat</th>" in html and "<th>dog</th>" in html


def test_a_word_of_a_cross_encoder_adds_what_the_score_loses_without_it():
    model = CrossEncoder.load("minilm-stsb", dtype="float32")
    found = attribute(model, "The unbelievable dog barks.", "A dog is loud.")
    assert found.kind == "leave-one-out"
    assert found.words_a == ["The", "unbelievable", "dog", "barks", "."]
    pairs = [
        ("The unbelievable dog barks.", "A dog is loud."),
        ("The dog barks.", "A dog is loud."),
    ]
    whole, without = model.predict([*pairs]).tolist()
    assert found.score == pytest.approx(whole, abs=1e-5)
    assert found.added_a[1] == pytest.approx(whole - without, abs=1e-5)
    assert found.added_b.argmax() == found.words_b.index("dog")
    assert "leave-one-out" in repr(found) and "<th>barks</th>" in found._repr_html_()
