"""`learn/lessons/`, the figures in the prose: those of the paper's tables, and those that follow by arithmetic."""

import pytest

from sbert_app.pages.learn.lesson import Lesson, lessons
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.results.precomputed import TABLE_1, TABLE_2
from training.evaluation.diagnostics import COLLAPSED_FROM

POOLING = ABLATIONS["pooling"].variants
CONCATENATION = ABLATIONS["concat"].variants
STSB = {row.label: row.figures["stsb:test"][0] for row in (*TABLE_1, *TABLE_2)}


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


def test_the_lessons_quote_the_figures_of_the_papers_and_of_the_app():
    assert f"{STSB['BERT CLS-vector']:.2f}" in lesson(1).question
    nli_and_stsb = {name: row.split(" / ") for name, row in paper(2).items()}
    on_stsb = {
        name.partition(":")[0].lower(): float(figures[1]) for name, figures in nli_and_stsb.items()
    }
    assert on_stsb == {name: variant.paper for name, variant in POOLING.items()}
    mean, max_ = (
        [float(figure) for figure in figures] for figures in list(nli_and_stsb.values())[:2]
    )
    assert f"loses {mean[1] - max_[1]:.1f} points" in lesson(2).question
    assert list(paper(3).values()) == [
        f"{CONCATENATION[name].paper:.2f}" for name in ("uv", "uv+diff")
    ]
    assert list(paper(4).values()) == [f"{POOLING['max'].paper:.2f} / {POOLING['mean'].paper:.2f}"]
    assert f"above a random cosine of {COLLAPSED_FROM:.2f}" in lesson(4).paper_note
    assert paper(5)["10,000 sentences, pairs"] == f"{10_000 * 9_999 // 2:,}"
    gain = STSB["BERT-NLI-STSb-base (cross-encoder)"] - STSB["SBERT-NLI-STSb-base"]
    assert f"the cross-encoder is {gain:.0f} points better" in lesson(7).paper_note
