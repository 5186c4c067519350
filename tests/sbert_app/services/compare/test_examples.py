"""The example pairs say what is so: their lessons are held against the models that ship."""

import pytest

from sbert_app.services.compare.calibration import load_calibration
from sbert_app.services.compare.comparison import compare
from sbert_app.services.compare.examples import error_of_model, example_of, pairs
from sbert_app.services.models.function_words import other_language
from training.data.load import load_data
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder

BERT_VOCABULARY = 30_522


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def scores(encoder, tmp_path_factory):
    """name -> (gold score of the cosine, gold score of the cross-encoder)."""
    curve = load_calibration("all-MiniLM-L6-v2", "mean", tmp_path_factory.mktemp("home"))
    cross = CrossEncoder.load("minilm-stsb")
    found = {pair.name: compare(encoder, cross, pair.a, pair.b) for pair in pairs()}
    return {
        name: (curve.gold_score(each.cosine), 5 * each.cross_score) for name, each in found.items()
    }


def test_what_the_lessons_claim_is_measured(scores):
    judged = next(pair for pair in pairs() if pair.gold is not None)
    cosine, cross = scores[judged.name]
    assert abs(cross - judged.gold) + 1 < abs(cosine - judged.gold)
    assert min(scores["similar"]) > 3.5
    assert max(scores["unrelated"]) < 0.5
    for misjudged in ("negation", "word order"):
        expected = next(pair.expected for pair in pairs() if pair.name == misjudged)
        assert scores[misjudged][0] > expected[1]
    assert 1 < scores["no shared words"][0] < 3.5


def test_gold_scores_of_examples_are_those_of_stsb_dev():
    data = load_data("stsb:dev")
    gold = dict(zip(zip(*data.columns, strict=True), data.scores, strict=True))
    assert [gold[pair.a, pair.b] for pair in pairs() if pair.gold is not None] == [1.2]


def test_numbers_of_the_example_are_tokens(encoder):
    pair = next(pair for pair in pairs() if pair.name == "numbers")
    tokens = encoder.token_vectors([pair.b])[0].tokens
    assert {"30", "billion", "2021"} <= set(tokens)


def test_a_model_is_wrong_from_one_point_on_or_outside_the_expected_range():
    assert error_of_model(2.0, 2.9, None) == ""
    assert "annotators say 3.0" in error_of_model(2.0, 3.0, None)
    assert "3 at most" in error_of_model(3.1, None, (0, 3))
    assert error_of_model(3.04, None, (0, 3)) == ""
    assert example_of("no", "example") is None


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The dog chased the cat across the garden.", ""),
        ("Der Hund jagte die Katze durch den Garten.", "German"),
        ("El perro persiguió al gato por el jardín.", "Spanish"),
        ("Собака гналась за кошкой.", "Russian"),
        ("狗追着猫穿过花园。", "Chinese"),
        ("Pies gonił kota po ogrodzie.", "Polish"),
        ("Photosynthesis in Ribes uva-crispa and Rubus idaeus", ""),
        ("", ""),
    ],
)
def test_another_language_than_the_models_is_noticed(encoder, text, language):
    tokens = len(encoder.tokenizer.tokenize(text))
    assert other_language(text, tokens, BERT_VOCABULARY) == language
    assert other_language(text, tokens, 250_000) == "", "a multilingual model"
