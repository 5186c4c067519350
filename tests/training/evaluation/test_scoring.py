"""Any model scores rows of sentences; evaluation agrees with sentence-transformers' and refuses unscored data."""

import pytest

from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.scoring import evaluate, row_scores, sentence_vectors
from training.models.encoder import Encoder
from training.models.model import open_model
from training.similarities import SIMILARITIES
from training.sources.resolve import model_folder


def test_the_default_model_on_the_sts_benchmark():
    """82.03 is what the model scores on STSb test, measured with sentence-transformers."""
    result = evaluate(Encoder.load("all-MiniLM-L6-v2", dtype="float32"), "stsb:test")
    assert result["n"] == 1379
    assert result["spearman"]["cosine"] == pytest.approx(0.8203, abs=0.0005)
    assert result["interval"]["low"] < 0.8203 < result["interval"]["high"]


@pytest.mark.slow
def test_the_referee_agrees_under_each_similarity():
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    data = load_data("stsb:test").select(range(0, 1379, 5))
    gold = [score / 5 for score in data.scores]
    result = evaluate(Encoder.load("all-MiniLM-L6-v2", dtype="float32"), data)
    referee = EmbeddingSimilarityEvaluator(*data.columns, gold, similarity_fn_names=list(SIMILARITIES))
    theirs = referee(SentenceTransformer(str(model_folder("all-MiniLM-L6-v2").path), device="cpu"))
    for name in SIMILARITIES:
        assert result["spearman"][name] == pytest.approx(theirs[f"spearman_{name}"], abs=1e-4)
        assert result["pearson"][name] == pytest.approx(theirs[f"pearson_{name}"], abs=1e-4)


def test_triplets_are_scored_by_accuracy():
    triplets = Dataset(
        "mine", (["A dog runs."] * 2, ["A hound is running.", "Stocks fell."], ["Stocks fell.", "A hound is running."])
    )
    result = evaluate(Encoder.load("all-MiniLM-L6-v2"), triplets)
    assert result["accuracy"]["cosine"] == 0.5


def test_triplets_are_scored_by_any_model_and_pairs_without_scores_by_none():
    with pytest.raises(InputError, match="needs scored pairs, labelled pairs or triplets"):
        evaluate(Encoder.load("scratch:1x32"), Dataset("mine", (["a"], ["b"])))
    rows = (["a dog runs"], ["a dog is running"], ["stocks fell"])
    assert evaluate(open_model("tfidf"), Dataset("mine", rows))["accuracy"]["cosine"] == 1
    assert evaluate(open_model("minilm-stsb"), Dataset("mine", rows))["accuracy"] == {"score": 1}
    scorer = open_model("scratch:1x32")
    assert sentence_vectors(scorer, ["a"]) == pytest.approx(scorer.encode(["a"], normalize=None))


def test_labelled_pairs_are_scored_by_pair_classification():
    columns = (["a dog runs"] * 4, ["a dog is running", "stocks fell", "a dog runs fast", "the sky is blue"])
    data = Dataset("mine", columns, labels=[0, 2, 0, 1], label_names=("entailment", "neutral", "contradiction"))
    found = evaluate(open_model("tfidf"), data)
    assert (found["n"], found["positives"]) == (3, 2)  # without the neutral pair
    assert found["average_precision"]["cosine"] == found["f1"]["cosine"] == 1
    assert 0 < found["threshold"]["cosine"] < 1
    assert evaluate(open_model("minilm-stsb"), data)["f1"] == {"score": 1.0}
    with pytest.raises(InputError, match="mine has no pairs that do not belong together; pair classification needs"):
        evaluate(open_model("tfidf"), data.select([0, 2]))
    with pytest.raises(InputError, match="do not say which pairs belong together"):
        evaluate(open_model("tfidf"), Dataset("mine", columns, labels=[0, 1, 0, 1], label_names=("ham", "spam")))


def test_a_cross_encoder_has_one_score():
    data = load_data("stsb:dev").select(range(40))
    found = evaluate(open_model("minilm-stsb"), data)
    assert list(found["spearman"]) == ["score"]
    assert found["pooling"] is None
    (scores,) = row_scores(open_model("minilm-stsb"), data.columns)
    assert scores["score"].shape == (40,)
