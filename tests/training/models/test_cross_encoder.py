"""What the cross-encoder promises: two sentences in, one score out, whatever the model and the batch."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_reference import assert_equal_scores, classifier
from tiny_models import make_model

from training.catalogue import asset
from training.data.load import load_data
from training.errors import InputError, StoppedError
from training.evaluation.metrics import spearman
from training.models import model as module
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.joint_pair_model import (
    JointPairModel,
    PackedPairs,
    PaddedPairs,
    build_pair_runner,
)
from training.models.model import open_model
from training.models.pairs import PairTokenizer, pad_pairs
from training.models.texts import ReadReport

PAIRS = [
    ("A man is playing a guitar.", "A man plays the guitar."),
    ("A man is playing a guitar.", "A woman is eating food."),
    (
        "Your contribution helped us.",
        "Your contributions were of no help at all with our students' education.",
    ),
    ("", "A dog."),
    ("Ein Hund schläft. 🐕 狗在睡觉", "Собака спит"),
    ("one " * 3000, "two"),
    ("", ""),
]
TOPICS = ("cat", "dog", "guitar", "food", "man", "woman")


@pytest.fixture(scope="module")
def adapter():
    """The one that ships, in float32 so that equalities are sharp."""
    return CrossEncoder.load("minilm-stsb", dtype="float32")


def test_pairs_may_be_any_iterable(adapter):
    opened = CrossEncoder("minilm-stsb", dtype="float32")
    np.testing.assert_array_equal(
        opened.predict(pair for pair in PAIRS[:3]), adapter.predict(PAIRS[:3])
    )


def test_scores_are_float32_between_0_and_1_in_order_the_same_each_time(adapter):
    scores = adapter.predict(PAIRS)
    assert (scores.dtype, scores.shape) == (np.float32, (len(PAIRS),))
    assert ((scores >= 0) & (scores <= 1)).all()
    assert scores[0] > 0.7 and scores[1] < 0.2
    np.testing.assert_array_equal(adapter.predict(PAIRS), scores)
    assert adapter.predict([("\ud83d dogs", "a")])[0] == adapter.predict([("? dogs", "a")])[0]
    assert adapter.predict([]).shape == (0,)
    assert repr(adapter) == f"CrossEncoder('minilm-stsb', 256 tokens, float32, {adapter.device})"


words = st.lists(st.sampled_from(TOPICS), max_size=12).map(" ".join)


@settings(max_examples=20)
@given(st.lists(st.tuples(words, words), max_size=12), st.randoms())
def test_a_score_depends_on_its_pair_alone(adapter, pairs, chance):
    """Not on the batch it is in, nor on the order of the pairs."""
    order = chance.sample(range(len(pairs)), len(pairs))
    scores = adapter.predict(pairs)
    np.testing.assert_allclose(adapter.predict([pairs[i] for i in order]), scores[order], atol=1e-5)


@settings(max_examples=20)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_scored_and_the_adapter_is_symmetric(adapter, first, second):
    scores = adapter.predict([(first, second), (second, first)])
    assert np.isfinite(scores).all()
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_repeated_pairs_are_scored_once(adapter):
    report = ReadReport()
    adapter.predict(PAIRS * 3, report=report)
    assert (report.inputs, report.unique, report.truncated) == (3 * len(PAIRS), len(PAIRS), 1)


def test_progress_ends_at_the_number_of_pairs(adapter, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    steps = []
    whole = adapter.predict(PAIRS, on_progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert steps[-1] == (len(PAIRS), len(PAIRS))
    np.testing.assert_allclose(whole, [adapter.predict([pair])[0] for pair in PAIRS], atol=1e-5)


def test_predict_can_be_stopped(adapter):
    with pytest.raises(StoppedError):
        adapter.predict(PAIRS, should_stop=lambda: True)


@pytest.mark.parametrize("wrong", ["ab", ("one",), ("one", None), ("a", "b", "c")])
def test_a_value_that_is_not_a_pair_is_named_by_its_row(adapter, wrong):
    with pytest.raises(InputError, match="pair 2 is not two texts"):
        adapter.predict([("a", "b"), wrong])


def test_bfloat16_agrees_with_float32_to_a_hundredth(adapter):
    pairs = list(zip(*load_data("stsb:dev").select(range(0, 1500, 60)).columns, strict=True))
    low = CrossEncoder.load("minilm-stsb", dtype="bfloat16")
    assert low.dtype == torch.bfloat16
    difference = np.abs(low.predict(pairs) - adapter.predict(pairs))
    assert np.quantile(difference, 0.95) < 1e-2
    assert difference.max() < 3e-2


@pytest.mark.parametrize("architecture", ["bert", "roberta", "mpnet", "distilbert", "modernbert"])
def test_the_scores_are_those_of_sentence_transformers(tmp_path, architecture):
    folder = classifier(tmp_path / "theirs", architecture)
    ours = CrossEncoder.load(str(folder), dtype="float32")
    assert type(ours.inference) is (PaddedPairs if architecture == "modernbert" else PackedPairs)
    assert np.ptp(ours.predict(PAIRS)) > 0.01  # random weights, but not deaf
    assert_equal_scores(folder)


def test_documents_are_ranked_as_sentence_transformers_ranks_them(tmp_path):
    from sentence_transformers import CrossEncoder as Theirs

    folder = str(classifier(tmp_path / "model"))
    query = "A man is playing a guitar."
    documents = [second for _, second in PAIRS[:5]]
    ours = CrossEncoder.load(folder, dtype="float32")
    theirs = Theirs(folder, device="cpu")
    series = pd.Series(documents, index=range(5, 0, -1))
    for options in ({}, {"top_k": 2, "return_documents": True, "batch_size": 1}):
        hits = ours.rank(query, series, **options)
        expected = theirs.rank(query, documents, **options)
        assert [{**hit, "score": 0} for hit in hits] == [{**hit, "score": 0} for hit in expected]
        np.testing.assert_allclose(
            [hit["score"] for hit in hits], [hit["score"] for hit in expected], atol=1e-5
        )


def test_a_model_that_gives_no_single_score_is_refused(tmp_path):
    with pytest.raises(InputError, match="returns 3 numbers for a pair"):
        open_model(str(classifier(tmp_path / "three", num_labels=3)))


@pytest.mark.parametrize("name", sorted(folder.name for folder in asset("cross-encoder").iterdir()))
def test_an_adapter_is_small_safe_and_says_what_it_is(name):
    folder = asset("cross-encoder") / name
    files = {file.name for file in folder.iterdir()}
    assert files == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "head.safetensors",
        "card.json",
    }
    assert sum((folder / file).stat().st_size for file in files) <= 3_000_000
    card = json.loads((folder / "card.json").read_text())
    assert card["name"] == name
    assert set(card["spearman"]) == {"dev", "test"}
    assert card["settings"]["seed"] == 0
    assert "stsb:train" in card["pairs_from"]
    assert not any(
        source.startswith(("sts1", "stsb:dev", "stsb:test")) for source in card["pairs_from"]
    )


@pytest.mark.parametrize(
    ("name", "every", "tolerance"), [("minilm-stsb", 5, 0.5), ("mpnet-stsb", 10, 3.0)]
)
def test_the_recorded_figure_is_what_it_reaches(name, every, tolerance, home):
    """On a part of STSb dev, within what so few pairs can tell."""
    card = json.loads((asset("cross-encoder") / name / "card.json").read_text())
    if not (home / "models" / card["base"]).exists():
        pytest.skip(f"{card['base']} is fetched on demand")
    model = CrossEncoder.load(name)
    dev = load_data("stsb:dev").select(range(0, 1500, every))
    reached = 100 * spearman(
        model.predict(list(zip(*dev.columns, strict=True))), np.array(dev.scores)
    )
    assert model.card == card
    assert reached == pytest.approx(card["spearman"]["dev"], abs=tolerance)


def test_a_copied_adapter_opens_but_not_with_a_head_of_another_size(adapter, tmp_path):
    adapter.save(tmp_path / "copy")
    again = CrossEncoder.load(str(tmp_path / "copy"), dtype="float32")
    np.testing.assert_array_equal(again.predict(PAIRS), adapter.predict(PAIRS))
    assert again.card == adapter.card

    (tmp_path / "copy/head.safetensors").write_bytes(
        (tmp_path / "copy/adapter_model.safetensors").read_bytes()
    )
    with pytest.raises(InputError, match=r"head\.safetensors does not fit"):
        CrossEncoder.load(str(tmp_path / "copy"))


@pytest.mark.parametrize("architecture", ["bert", "mpnet"])
def test_without_attention_between_the_sentences_it_is_the_bi_encoder(tmp_path, architecture):
    """Untrained, its score is then a calibrated cosine, exactly; opened, each sentence sees the other."""
    encoder = Encoder.load(
        str(make_model(tmp_path / "base", architecture)), pooling="mean", dtype="float32"
    )
    scorer = JointPairModel(encoder.backbone).eval()
    pairs = [
        ("the cat is eating food", "a dog"),
        ("a man", "the woman was playing guitar in a food on food"),
    ]
    rows = PairTokenizer(encoder.tokenizer, encoder.max_length, separately=True)(pairs)
    batch = pad_pairs(rows, 0, torch.device("cpu"))
    u, v = (encoder.encode(list(column)) for column in zip(*pairs, strict=True))
    cosines = torch.from_numpy((u * v).sum(1))
    with torch.no_grad():
        opened = scorer(batch)
        scorer.cross.fill_(-1e4)
        torch.testing.assert_close(scorer(batch), 6 * cosines - 3, atol=1e-4, rtol=1e-4)
    assert (opened - (6 * cosines - 3)).abs().max() > 1e-2


@pytest.mark.parametrize("architecture", ["bert", "mpnet"])
def test_packed_pairs_score_as_the_module_alone_with_each_pair(tmp_path, architecture):
    with pytest.raises(InputError, match="architecture bert or mpnet"):
        JointPairModel(
            Encoder.load(str(make_model(tmp_path / "other", "roberta")), dtype="float32").backbone
        )
    encoder = Encoder.load(
        str(make_model(tmp_path / "base", architecture)), pooling="mean", dtype="float32"
    )
    scorer = JointPairModel(encoder.backbone).requires_grad_(False).eval()
    scorer.cross.copy_(torch.linspace(-3, 1, scorer.cross.numel()).view_as(scorer.cross))
    rows = PairTokenizer(encoder.tokenizer, encoder.max_length, separately=True)(PAIRS)
    prepared = build_pair_runner(scorer, torch.float32, 0)
    assert type(prepared) is PackedPairs
    scores = torch.empty(len(rows))
    for group, logits in prepared.map(rows, lambda logits, _: logits):
        scores[group] = logits
    alone = torch.cat([scorer(pad_pairs([row], 0, torch.device("cpu"))) for row in rows])
    torch.testing.assert_close(scores, alone, atol=1e-4, rtol=1e-4)
