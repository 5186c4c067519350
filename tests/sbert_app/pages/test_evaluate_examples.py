"""`pages/evaluate/`: the examples that ship are what a measurement gives here, and are shown as such."""

import json
from pathlib import Path
from typing import Any

import pytest

from sbert_app.pages.evaluate.pickers import shipped
from sbert_app.services.experiments import folds
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.cost import CostTable
from sbert_app.services.results.precomputed import SHIPPED_COST
from sbert_app.services.results.transfer import pairs_by_genre
from sbert_app.services.store.documents import read_document
from scripts import measure_examples
from training.catalogue import DEFAULT_MODEL, read_asset
from training.evaluation.scoring import evaluate
from training.models.model import VectorModel

# The accuracies and correlations of two machines differ by so much, in 0..1.
NEAR = 0.005


def example(template: str) -> dict[str, Any]:
    return json.loads(read_asset(f"examples/{template}.json"))


@pytest.fixture
def out(monkeypatch, tmp_path) -> Path:
    """Where the script writes its examples in place of the assets."""
    monkeypatch.setattr(measure_examples, "asset", lambda name: tmp_path / Path(name).name)
    return tmp_path


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("label_scores", "the positive is closer in <b>99."),
        ("transfer_scores", "STSb dev by genre: "),
        ("fold_scores", "stsb-dev-by-genre.csv, topic: 3 of 3 folds scored."),
    ],
)
def test_an_example_is_shown_with_the_day_and_the_machine(template, words):
    html = shipped(template)
    assert words in html
    assert "Shipped with the app: measured 20" in html


def test_the_triplets_are_measured_anew(home, out):
    measure_examples.write_triplets(ModelCache(home))
    measured = json.loads((out / "label_scores.json").read_text(encoding="utf-8"))
    was = example("label_scores")
    assert (measured["data"], measured["result"]["n"]) == (was["data"], was["result"]["n"])
    assert measured["result"]["accuracy"] == pytest.approx(was["result"]["accuracy"], abs=NEAR)


@pytest.mark.slow
def test_the_classifiers_are_measured_anew(home, out):
    measure_examples.write_transfer(ModelCache(home))
    measured = json.loads((out / "transfer_scores.json").read_text(encoding="utf-8"))
    was = example("transfer_scores")
    assert (measured["size"], measured["classes"]) == (was["size"], was["classes"])
    for (label, score), (label_before, score_before) in zip(
        measured["rows"], was["rows"], strict=True
    ):
        assert label == label_before
        assert score["mean"] == pytest.approx(score_before["mean"], abs=NEAR)
    assert was["best"] == max(score["mean"] for _, score in was["rows"])


@pytest.mark.slow
def test_the_folds_are_those_of_the_file_and_begin_where_the_base_is(home):
    was = example("fold_scores")
    data, rows_of = folds.split(pairs_by_genre(home), None)
    assert {fold["plan"]["label"]: fold["plan"]["pairs"] for fold in was["folds"]} == {
        name: len(rows) for name, rows in rows_of.items()
    }
    encoder = ModelCache(home).get(DEFAULT_MODEL, VectorModel)
    for fold in was["folds"]:
        rho = evaluate(encoder, data.select(rows_of[fold["plan"]["label"]]))["spearman"]["cosine"]
        assert fold["before"] == pytest.approx(100 * rho, abs=100 * NEAR)


@pytest.mark.slow
def test_the_folds_are_trained_anew(home, out):
    measure_examples.write_folds(home)
    measured = json.loads((out / "fold_scores.json").read_text(encoding="utf-8"))
    assert measured["after"] == pytest.approx(example("fold_scores")["after"], abs=100 * NEAR)


@pytest.mark.slow
def test_the_cost_begins_with_the_correlation_of_the_whole_vectors(home):
    cost = read_document(SHIPPED_COST, CostTable)
    rho = evaluate(ModelCache(home).get(DEFAULT_MODEL, VectorModel), cost.data, home=home)[
        "spearman"
    ]["cosine"]
    assert cost.cells[0].rho.value == pytest.approx(100 * rho, abs=100 * NEAR)
