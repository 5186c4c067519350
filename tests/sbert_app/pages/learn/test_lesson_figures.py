"""The figures in the prose of the lessons: the paper's are those of its tables, the others follow from arithmetic."""

import math

import pytest

from sbert_app.pages.learn.lesson import Lesson, lessons
from sbert_app.pages.learn.samples import SIMILAR_FROM
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.results.precomputed import TABLE_1, TABLE_2
from sbert_app.services.runs.record import PRESETS
from training.evaluation.diagnostics import COLLAPSED_FROM

POOLING, CONCATENATION = ABLATIONS["pooling"].variants, ABLATIONS["concat"].variants
STSB = {row.model: row.figures["stsb:test"][0] for row in (*TABLE_1, *TABLE_2)}


def lesson(number: int) -> Lesson:
    return lessons()[number - 1]


def paper(number: int) -> dict[str, str]:
    return dict(lesson(number).paper)


@pytest.mark.parametrize(
    ("number", "row", "model"),
    [
        (1, "BERT, CLS vector", "BERT CLS-vector"),
        (1, "BERT, average of the outputs", "Avg. BERT embeddings"),
        (1, "GloVe, average", "Avg. GloVe embeddings"),
        (1, "SBERT-NLI-base", "SBERT-NLI-base"),
        (7, "SBERT-STSb-base (bi-encoder)", "SBERT-STSb-base"),
        (7, "BERT-STSb-base (cross-encoder)", "BERT-STSb-base (cross-encoder)"),
        (7, "SBERT-NLI-STSb-base (bi-encoder)", "SBERT-NLI-STSb-base"),
        (7, "BERT-NLI-STSb-base (cross-encoder)", "BERT-NLI-STSb-base (cross-encoder)"),
        (10, "SBERT-NLI-base (Table 1)", "SBERT-NLI-base"),
        (11, "BERT-base, last layer, average", "Avg. BERT embeddings"),
        (11, "SBERT-NLI-base, last layer", "SBERT-NLI-base"),
    ],
)
def test_the_papers_figures_on_stsb_are_those_of_its_tables(number, row, model):
    assert paper(number)[row] == f"{STSB[model]:.2f}"


def test_the_question_of_lesson_1_quotes_the_cls_vector():
    assert f"{STSB['BERT CLS-vector']:.2f}" in lesson(1).question


def test_lesson_2_quotes_table_6():
    nli_and_stsb = {name: row.split(" / ") for name, row in paper(2).items()}
    on_stsb = {name.partition(":")[0].lower(): float(figures[1]) for name, figures in nli_and_stsb.items()}
    assert on_stsb == {name: variant.paper for name, variant in POOLING.items()}
    mean, max_ = ([float(figure) for figure in figures] for figures in list(nli_and_stsb.values())[:2])
    assert f"loses {mean[1] - max_[1]:.1f} points" in lesson(2).question
    assert mean[0] - max_[0] < 2 and "under 2 when trained by the NLI classifier" in lesson(2).question


def test_lesson_3_quotes_the_best_and_the_worst_concatenation():
    figures = {name: variant.paper for name, variant in CONCATENATION.items()}
    worst, best = min(figures, key=figures.get), max(figures, key=figures.get)
    assert (worst, best) == ("uv", "uv+diff")
    assert list(paper(3).values()) == [f"{figures[worst]:.2f}", f"{figures[best]:.2f}"]


def test_lesson_4_quotes_table_6_and_the_limit_of_the_app():
    assert list(paper(4).values()) == [f"{POOLING['max'].paper:.2f} / {POOLING['mean'].paper:.2f}"]
    assert f"above a random cosine of {COLLAPSED_FROM:.2f}" in lesson(4).paper_note
    assert SIMILAR_FROM == 4


def test_lesson_5_counts_pairs_and_speeds():
    assert paper(5)["10,000 sentences, pairs"] == f"{10_000 * 9_999 // 2:,}"
    assert f"√20 ≈ <b>{math.sqrt(20):.1f} times</b>" in lesson(5).answer


def test_lesson_7_says_what_nli_gives_the_cross_encoder():
    gain = STSB["BERT-NLI-STSb-base (cross-encoder)"] - STSB["SBERT-NLI-STSb-base"]
    assert f"the cross-encoder is {gain:.0f} points better" in lesson(7).paper_note
    assert abs(STSB["BERT-STSb-base (cross-encoder)"] - STSB["SBERT-STSb-base"]) < 0.5


def test_lesson_9_computes_the_factors_of_its_gaps():
    text = " ".join(lesson(9).text)
    assert "a gap of 0.05" in text
    assert "e<sup>5</sup> ≈ 150" in text and 145 < math.exp(0.05 / 0.01) < 155
    assert f"a factor of {math.exp(0.05 / 0.1):.1f}" in text
    assert paper(9)["mnrl’s usual scale 20: temperature"] == f"{1 / 20:.2f}"


def test_the_preset_of_two_stages_quotes_table_2():
    gains = [
        STSB[model.replace("-STSb", "-NLI-STSb")] - figure
        for model, figure in STSB.items()
        if "BERT" in model and "NLI" not in model and "STSb" in model and "cross" not in model
    ]
    assert len(gains) == 4
    said = f"changes ρ by −{-min(gains):.2f} to +{max(gains):.2f} points"
    assert said in PRESETS["two-stage"].lesson


def test_the_preset_of_the_stsb_recipe_quotes_table_2():
    assert f"reports ρ {STSB['SBERT-STSb-base']:.1f}" in PRESETS["stsb"].lesson
