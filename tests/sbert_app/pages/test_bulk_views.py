"""`pages/bulk/results.py`: every text of a file is escaped, counts have their noun, progress its estimate."""

from dataclasses import replace

import pytest
from bag_encoder import BagEncoder, OverlapCrossEncoder

from sbert_app.figures import compare as figures
from sbert_app.pages.bulk import results
from sbert_app.pages.components.messages import error_message
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.files.score import score_file

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def evil(tmp_path):
    """A file whose name, columns and cells are all HTML."""
    path = tmp_path / "<i>name.csv"
    rows = "".join(f"{EVIL} {i},{EVIL},{i % 3},{EVIL}\n" for i in range(20))
    path.write_text(f"sentence1,sentence2,score,{EVIL}\n{rows}{EVIL},,abc,\n")
    return path


@pytest.fixture
def summary(evil, tmp_path):
    return score_file(evil, [tmp_path / "out.csv"], BagEncoder(), OverlapCrossEncoder())


def test_no_text_of_a_file_becomes_markup(evil, summary):
    shown = [
        results.scored_rows(summary),
        results.outcome(summary, 21),
        results.agreements(summary),
        results.disagreements(summary),
        error_message(EVIL),
        results.progress(TaskProgress(EVIL, 0, 1, 0)),
    ]
    assert not any("<script" in html or "<i>name" in html for html in shown)
    assert "&lt;script&gt;" in shown[0]


def test_scores_stand_before_the_sentences_and_figures_have_every_pair(summary):
    html = results.scored_rows(summary)
    assert html.index('<th class="added">cosine') < html.index("<th>sentence1")
    assert '<th class="added">note' not in html
    assert sum(figures.histogram(summary.report).data[0].y) == summary.scored == 20
    assert len(figures.scatter(summary.report, "score").data[0].x) == 20


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        (
            {"guarded": 2_000},
            "2,000 cells that a spreadsheet would run as a formula have an apostrophe",
        ),
        ({"stopped_at": 21}, "Stopped at row 21 of 5,000 rows"),
        ({"bad_gold": 3}, "3 with a gold score or label that is not understood"),
    ],
)
def test_guarded_cells_a_stop_and_unread_gold_scores_are_told(summary, changes, remark):
    assert remark in results.outcome(replace(summary, **changes), 5_000)
