"""Any model scores rows of sentences; evaluation agrees with sentence-transformers' and refuses unscored data."""

from dataclasses import replace

import pytest
from tiny_models import make_model

from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.scoring import evaluate, sentence_vectors
from training.models.encoder import Encoder
from training.models.model import open_model
from training.similarities import SIMILARITIES


def test_the_default_model_on_the_sts_benchmark():
    """82.03 is what the model scores on STSb test, measured with sentence-transformers."""
    result = evaluate(Encoder.load("all-MiniLM-L6-v2", dtype="float32"), "stsb:test")
    assert result["n"] == 1379
    assert result["spearman"]["cosine"] == pytest.approx(0.8203, abs=0.0005)
    assert result["interval"]["low"] < 0.8203 < result["interval"]["high"]


def test_the_referee_agrees_under_each_similarity(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    data = load_data("stsb:test").select(range(100))
    folder = make_model(tmp_path / "tiny")
    result = evaluate(Encoder.load(str(folder), dtype="float32"), data)
    referee = EmbeddingSimilarityEvaluator(
        *data.columns, data.scores, similarity_fn_names=list(SIMILARITIES)
    )
    theirs = referee(SentenceTransformer(str(folder), device="cpu"))
    for name in SIMILARITIES:
        assert result["spearman"][name] == pytest.approx(theirs[f"spearman_{name}"], abs=1e-4)
        assert result["pearson"][name] == pytest.approx(theirs[f"pearson_{name}"], abs=1e-4)


def test_pairs_without_scores_are_refused():
    with pytest.raises(InputError, match="needs scored pairs, labelled pairs or triplets"):
        evaluate(Encoder.load("scratch:1x32"), Dataset("mine", (["a"], ["b"])))


def test_triplets_are_scored_by_any_model():
    rows = (
        ["a dog runs"] * 2,
        ["a dog is running", "stocks fell"],
        ["stocks fell", "a dog is running"],
    )
    assert evaluate(open_model("tfidf"), Dataset("mine", rows))["accuracy"]["cosine"] == 0.5
    assert evaluate(open_model("minilm-stsb"), Dataset("mine", rows))["accuracy"] == {"score": 0.5}


def test_sentence_vectors_are_those_of_encode():
    scorer = open_model("scratch:1x32")
    assert sentence_vectors(scorer, ["a"]) == pytest.approx(scorer.encode(["a"], normalize=None))


def test_labelled_pairs_are_scored_by_pair_classification():
    columns = (
        ["a dog runs"] * 4,
        ["a dog is running", "stocks fell", "a dog runs fast", "the sky is blue"],
    )
    data = Dataset(
        "mine", columns, labels=[0, 2, 0, 1], label_names=("entailment", "neutral", "contradiction")
    )
    found = evaluate(open_model("tfidf"), data)
    assert (found["n"], found["positives"]) == (3, 2)
    assert found["notes"] == [
        "2 pairs belong together (entailment), 1 do not (contradiction); 1 of 4 are left out"
    ]
    found = evaluate(open_model("tfidf"), replace(data, label_names=("same", "maybe", "other")))
    assert (found["n"], found["positives"], found["notes"]) == (4, 2, [])
    assert (
        evaluate(
            open_model("tfidf"), replace(data, label_names=("same", "different", "duplicate"))
        )["positives"]
        == 3
    )
    assert found["average_precision"]["cosine"] == found["f1"]["cosine"] == 1
    assert 0 < found["threshold"]["cosine"] < 1
    assert evaluate(open_model("minilm-stsb"), data)["f1"] == {"score": 1.0}
    with pytest.raises(
        InputError, match="mine has no pairs that do not belong together; pair classification needs"
    ):
        evaluate(open_model("tfidf"), data.select([0, 2]))
    with pytest.raises(InputError, match="do not say which pairs are matches"):
        evaluate(
            open_model("tfidf"),
            Dataset("mine", columns, labels=[0, 1, 0, 1], label_names=("ham", "spam")),
        )
