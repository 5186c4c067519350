"""`pages/evaluate/sts.py`, `error_analysis.py`, `components/decisions.py`: what they say; text stays text."""

import numpy as np
import pytest
from markup import HOSTILE, assert_escaped
from markupsafe import Markup

from sbert_app.figures import evaluation as figures
from sbert_app.figures.style import PALETTE, model_colours
from sbert_app.pages.components.decisions import criterion_labels, decision_table
from sbert_app.pages.evaluate import error_analysis, sts
from sbert_app.services.results.decisions import ModelDecision
from sbert_app.services.results.error_analysis import RankedError
from sbert_app.services.results.grid import make_grid
from sbert_app.services.results.precomputed import SHIPPED, PrecomputedResults
from sbert_app.services.results.results import EvalResult, Metric
from sbert_app.services.results.table import tabulate
from sbert_app.services.store.documents import read_document
from training.data.overlap import Overlap
from training.evaluation.bootstrap import NO_ESTIMATE
from training.evaluation.thresholds import DataDecision, decide
from training.names import ModelName


@pytest.fixture(scope="module")
def shipped():
    return read_document(SHIPPED, PrecomputedResults)


@pytest.fixture
def grid():
    """Two models on one data set: the first from the cache, the second failed."""
    grid = make_grid([HOSTILE, "tfidf"], [f"{HOSTILE}.csv"])
    gold = np.linspace(0, 5, 20)
    grid.sizes[f"{HOSTILE}.csv"] = 20
    grid.results[HOSTILE, f"{HOSTILE}.csv"] = EvalResult(
        {"cosine": gold}, gold, 40, 1.0, from_cache=True
    )
    grid.failures["tfidf", f"{HOSTILE}.csv"] = HOSTILE
    return grid


class TestScoreTable:
    def test_the_score_table_escapes_names_and_counts_measured_cells(self, grid):
        grid.overlaps[HOSTILE, f"{HOSTILE}.csv"] = Overlap(
            f"{HOSTILE}.csv", "scored pairs", 20, 3, 5
        )
        html = sts.score_table(grid, tabulate(grid, Metric()))
        assert_escaped(html)
        assert "<b>Measured here</b>: 1 of 2 cells; 1 cached" in html
        assert "✕" in html
        assert "100.00" in html
        assert "are in the training data, 5 share a sentence with it" in html

    def test_the_shipped_table_names_its_command_and_cautions(self, shipped):
        plain = sts.score_table(shipped, tabulate(shipped, Metric()))
        assert "<b>Shipped with the app</b>" in plain
        assert shipped.command in plain
        pearson = sts.score_table(shipped, tabulate(shipped, Metric("dot", "pearson")))
        for caution in ("Reimers et al. (2016)", sts.CROSS_ENCODER_NOTE):
            assert caution in pearson and caution not in plain

    def test_a_ranking_of_trained_models_alone_does_not_call_them_untrained(self):
        models = ["minilm-stsb", "mpnet-stsb"]
        grid = make_grid(models, ["sts14"])
        gold = np.linspace(0, 5, 20)
        grid.sizes["sts14"] = 20
        for model, scores in zip(models, (gold, gold[::-1]), strict=True):
            grid.results[model, "sts14"] = EvalResult({"score": scores}, gold, 40, 1.0)
        html = sts.score_table(grid, tabulate(grid, Metric()))
        assert "of 2 models." in html
        assert "not trained on STS data" not in html


def test_a_pair_is_escaped_and_its_note_is_kept():
    html = error_analysis.error_pair(
        RankedError(1, HOSTILE, HOSTILE, 4.0, 0.5, 0.9, 0.1), Markup("<b>note</b>")
    )
    assert_escaped(html)
    assert "gold 4.00 of 5, score 0.500" in html
    assert "<b>note</b>" in html


def test_a_decision_says_what_was_chosen_where_and_escapes_its_data():
    scores = np.array([0.9, 0.8, 0.3, 0.2] * 10)
    decision = decide(scores, scores > 0.5, ("best-f1", "precision=0.95"))
    found = DataDecision("cosine", f"{HOSTILE} is a match", decision)
    html = decision_table(HOSTILE, found, [HOSTILE])
    assert_escaped(html)
    assert "average precision <b>100.0</b>" in html
    assert (
        "best F1 is chosen on 20 pairs. Its precision, recall and F1 are measured on the other 20"
        in html
    )
    assert "A threshold for a precision is tested and measured on all pairs" in html
    assert "Only 20 pairs are matches." in html
    assert "precision ≥ 95%" in html
    assert "these 40 pairs reach 95%, but are too few to show that others will" in html
    assert "<small>reached on one half, not tested</small>" in html


def test_a_threshold_that_does_not_exist_and_too_few_pairs_are_said():
    decision = decide(np.array([0.9, 0.8]), np.array([False, True]), ("precision=0.95",))
    html = decision_table("mine", DataDecision("cosine", "1 is a match, 0 is not", decision))
    assert "95% is out of reach of these scores, as far as these 2 pairs show" in html
    assert "it takes 4 matches and 4 others" in html
    figure = figures.precision_recall(decision, criterion_labels(decision))
    assert [trace.name for trace in figure.data] == ["all pairs"]


def test_a_model_has_one_colour_in_the_figures_of_every_page(shipped):
    (tfidf,) = model_colours(["tfidf"])
    quality = sts._scatter(shipped, tabulate(shipped, Metric()))
    colour_of = {
        label: colour
        for trace in quality.data
        if trace.customdata is not None
        for label, colour in zip(trace.customdata, trace.marker.color, strict=True)
    }
    assert (
        colour_of["all-MiniLM-L6-v2"]
        == colour_of["all-MiniLM-L6-v2, max pooling"]
        == PALETTE["blue"]
    )
    assert colour_of["TF-IDF"] == PALETTE[tfidf] != PALETTE["blue"]

    scores = np.array([0.9, 0.8, 0.3, 0.2] * 10)
    decision = decide(scores, scores > 0.5, ("best-f1",))
    data = DataDecision("cosine", "1 is a match", decision)
    model = ModelDecision(ModelName("tfidf"), data, NO_ESTIMATE, 1.0, decision.average_precision)
    curves = figures.precision_recall(decision, criterion_labels(decision), [model])
    by_threshold = figures.by_threshold(decision, "cosine", model.model)
    assert {curves.data[0].line.color, *(line.line.color for line in by_threshold.data)} == {
        PALETTE[tfidf]
    }
    assert curves.data[1].marker.color == by_threshold.layout.shapes[0].line.color, (
        "a threshold has its own"
    )
