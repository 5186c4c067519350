"""What the Bulk page shows: every text of a file escaped, numbers and times as people say them."""

import pytest
from bag_encoder import BagEncoder, OverlapCrossEncoder
from paths import ROOT

from sbert_app.figures import bulk as figures_bulk
from sbert_app.pages.bulk import views
from sbert_app.pages.components.messages import error_message
from sbert_app.services.files.score import score_file
from sbert_app.services.tasks import TaskProgress
from training.data.tables.table import open_table, pick_columns

EVIL = "<script>alert(1)</script>"
EXAMPLE = ROOT / "assets" / "examples" / "bulk-example.csv"


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


def test_no_text_of_a_file_becomes_html(evil, summary):
    table = open_table(evil)
    shown = [
        views.file_line(table, is_example=False),
        views.preview(table, pick_columns(table)),
        views.scored_rows(summary),
        views.outcome(summary, 21),
        views.agreements(summary),
        views.disagreements(summary),
        error_message(EVIL),
        views.progress(TaskProgress(EVIL, 0, 1, 0.0)),
    ]
    assert not any("<script" in html or "<i>name" in html for html in shown)
    assert "&lt;script&gt;" in shown[1]


def test_scores_stand_first_and_the_note_only_where_there_is_one(summary):
    html = views.scored_rows(summary)
    assert html.index("<th class=added>cosine") < html.index("<th>sentence1")
    assert "<th class=added>note" not in html


def test_the_example_has_sixty_pairs_of_all_kinds():
    table = open_table(EXAMPLE)
    rows = next(table.batches()).rows
    assert table.row_estimate == len(rows["sentence1"]) == 60
    assert len(set(rows["topic"])) >= 8
    assert sum(not text for name in ("sentence1", "sentence2") for text in rows[name]) == 2
    text = "".join(rows["sentence1"] + rows["sentence2"])
    assert any(ord(letter) > 0x1F000 for letter in text), "emoji"
    assert set("éüøŁ") & set(text), "accents"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (42, "42 s"), (200, "3 min 20 s"), (7_500, "2 h 5 min")],
)
def test_times_as_people_say_them(seconds, said):
    assert views.spoken_seconds(seconds) == said


def test_the_bar_tells_a_screen_reader_too():
    html = views.progress(TaskProgress("Scoring", 420.6, 1_000, 2.0))
    assert 'role="progressbar"' in html
    assert 'aria-valuenow="42"' in html
    assert "421 of 1,000 rows · 210 rows/s · 3 s left" in html


class TestFigures:
    def test_the_histogram_holds_every_scored_pair(self, summary):
        figure = figures_bulk.histogram(summary.report)
        assert sum(figure.data[0].y) == summary.scored == 20

    def test_fewer_pairs_wider_bars(self, summary):
        assert figures_bulk.histogram(summary.report).data[0].width[0] == pytest.approx(0.1)

    def test_a_point_for_every_pair_with_both_scores(self, summary):
        figure = figures_bulk.scatter(summary.report, "score")
        assert len(figure.data[0].x) == 20
        assert figure.layout.xaxis.title.text == "gold score (score)"
