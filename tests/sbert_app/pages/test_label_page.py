"""`pages/label/page.py`, the handlers: which files become projects, and what a browser may send."""

import re
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
from paths import linked_home

from sbert_app.pages.components.templates import macro
from sbert_app.pages.label.page import _LabelPage, how_many_are_enough, preset_scale
from sbert_app.services.annotations.quality import Quality
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.evaluation.bootstrap import Estimate

MODELS = ("scratch:1x32", "scratch:2x32")


@pytest.fixture(scope="module")
def page(home, tmp_path_factory):
    own = linked_home(home, tmp_path_factory.mktemp("home"))
    with gr.Blocks():
        page = _LabelPage(Services.start(Settings(home=own)))
        page.wire()
    return page


def press(page, project, rater, refused=None, **sent):
    """What the page shows after a key press of a rater: the card, the table of differences, the buttons."""
    refused = {} if refused is None else refused
    event = gr.EventData(None, {"project": project.id, "rater": rater, **sent})
    return page.judge(project.id, rater, refused, event) | page.show_agreement(project.id, rater)


def make(page, name, data, file=None, how=("", "", "", "", ""), scale="0 to 5"):
    """The last update of the button that makes a project."""
    press = page.tab.handler(page.make, {})
    return list(
        press(SimpleNamespace(session_hash=name), name, data, file, scale, *MODELS, 0.5, 15, *how)
    )[-1]


def uploaded(page, name, content):
    """The path of a file where Gradio puts what a browser sends."""
    file = page.services.settings.home / "tmp" / "1f2e" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return str(file)


@pytest.fixture(scope="module")
def project(page):
    rows = "".join(f"Кот номер {i} спит.,x,Собака {i} лает.\n" for i in range(20))
    file = uploaded(page, "тексты.csv", ("левый,id,правый\n" + rows).encode("koi8-r"))
    made = make(page, "Кот 1", "", file, ("koi8-r", "", "левый", "правый", ""))
    return page.projects.open(made[page.project]["value"])


def test_pairs_are_read_with_the_encoding_and_columns_that_were_picked(project):
    assert len(project.pairs) == 15
    assert {pair.first[:9] for pair in project.pairs} == {"Кот номер"}
    assert {pair.second[:6] for pair in project.pairs} == {"Собака"}


def test_a_path_that_nobody_uploaded_is_refused(page):
    for data in ("/etc/passwd", "stsb:dev+/etc/passwd", "~/pairs.csv"):
        for update in (
            make(page, "paths", data),
            make(page, "paths", "stsb:dev", data),
            make(page, "paths", "stsb:dev", data, ("koi8-r", "", "a", "b", "")),
        ):
            assert "cannot be used here" in update[page.tab.status]
    assert "paths" not in dict(page.projects.list())


def test_from_ratings_to_a_decision(page):
    project = page.projects.open(make(page, "decide", "stsb:dev")[page.project]["value"])
    results = page.results
    opened = page.open_project(project.id, "Ann")
    assert not opened[results.measure].interactive
    assert opened[results.train].value == "Fine-tune on the ratings: 40 judged pairs needed, 0 done"
    for i in range(11):
        for rater in ("Ann", "Ben"):
            card = press(page, project, rater, pair=i, score=(i + (rater == "Ben")) % 6)
    assert card[results.measure].interactive and not card[results.train].interactive
    differences = card[results.differences]
    assert differences.count("data-jump") == 11
    assert differences.index('data-jump="5"') < differences.index('data-jump="0"')
    assert page.open_project(project.id, "Cem")[results.differences] == ""
    measured = results.score(project.id)
    assert "24 more judged pairs would halve the interval" in measured and re.search(
        r"a perfect model, about \d+ \(\d+ to \d+\)", measured
    )
    agreed = page.agree(project.id, "Ben", {}, gr.EventData(None, {"pair": 5, "score": 3}))
    assert "agreed score <b>3</b>" in agreed[page.card]
    assert 'value="3" selected' in page.show_agreement(project.id, "Ben")[results.differences]
    taken_back = page.agree(project.id, "Ben", {}, gr.EventData(None, {"pair": 5, "score": "none"}))
    assert "agreed score" not in taken_back[page.card]


def test_yes_and_no_are_a_scale(page):
    project = page.projects.open(
        make(page, "yes or no", "stsb:dev", scale="yes or no")[page.project]["value"]
    )
    shown = press(page, project, "Ann", pair=0, score=5) | press(
        page, project, "Ben", pair=0, score=0
    )
    assert (
        'data-act="y" data-score="5"' in shown[page.card] and 'data-act="3"' not in shown[page.card]
    )
    differences = page.open_project(project.id, "Ann")[page.results.differences]
    assert '<td data-head="yes">Ann</td><td data-head="no">Ben</td>' in differences
    assert (
        "agreed answer" in differences
        and "spread" not in differences
        and "difference<" not in differences
    )
    agreed = page.agree(project.id, "Ann", {}, gr.EventData(None, {"pair": 0, "score": 5}))
    assert "agreed answer <b>yes</b>" in agreed[page.card]
    page.agree(project.id, "Ann", {}, gr.EventData(None, {"pair": 0, "score": "none"}))
    press(page, project, "Ben", pair=1, score=0)
    refused = {}
    for sent in ({"pair": 2, "score": 3}, {"pair": 4, "score": 5}):
        error = press(page, project, "Ben", refused, **sent)[page.error]
        assert "Pair 3 is not saved: " in error and "5 for yes or 0 for no, not 3" in error
    assert press(page, project, "Ann", refused, pair=2, score=5)[page.error] == ""
    assert press(page, project, "Ben", refused, pair=2, score=0)[page.error] == "" and refused == {}
    rows = Path(page.results.export(project.id)[page.results.file]).read_text().splitlines()
    assert rows[0].endswith("label,reason,model,second_model,agreed,Ann,Ben")
    assert rows[1].rsplit('",')[-1].split(",")[-2:] == ["yes", "no"] and rows[2].endswith(",no")


def test_a_yes_no_project_speaks_of_agreement_and_never_of_correlation(page):
    project = page.projects.open(
        make(page, "answers", "stsb:dev", scale="yes or no")[page.project]["value"]
    )
    for i in range(15):
        for rater in ("Ann", "Ben"):
            score = 5 * ((i % 3 == 0) ^ (rater == "Ben" and i == 1))
            shown = press(page, project, rater, pair=i, score=score)
    agreement = shown[page.results.agreement]
    assert "93% of the answers to 15 shared pairs agree (95% interval 70 to 99)." in agreement
    assert (
        "(nominal): reliable" in agreement and "<b>Ben</b>: 15 pairs, 6 yes and 9 no" in agreement
    )
    measured = page.results.score(project.id)
    assert (
        "average precision %" in measured
        and "F1 %" in measured
        and "halve the interval" not in measured
    )
    for text in (agreement, measured, how_many_are_enough(60, "yes or no")):
        assert "ρ" not in text and "Spearman" not in text and "score" not in text
    assert "agreement of two raters on 80% is known to about ±10 points" in how_many_are_enough(
        60, "yes or no"
    )
    assert "ρ to about ±" in how_many_are_enough(60, "0 to 5")


@pytest.mark.parametrize(
    ("header", "judgements", "scale"),
    [
        ("a,b,same", ("yes", "no", "maybe"), "yes or no"),
        ("question1,question2,is_duplicate", ("0", "1"), "yes or no"),
        ("sentence1,sentence2,label", ("alike", "other"), "yes or no"),
        ("sentence1,sentence2,score", ("0", "1", "2.5", "5"), "0 to 5"),
        ("premise,hypothesis,label", ("entailment", "neutral", "contradiction"), "0 to 5"),
        ("sentence1,sentence2,note", ("a", "b", "c"), "0 to 5"),
    ],
)
def test_the_scale_is_preset_from_the_file_until_somebody_chooses(page, header, judgements, scale):
    rows = [
        f"The cat {i} sleeps here.,A dog {i} barks there.,{judgements[i % len(judgements)]}"
        for i in range(30)
    ]
    file = uploaded(page, "judged.csv", "\n".join([header, *rows]).encode())
    assert preset_scale(file, {}) == scale
    assert preset_scale(file, {"": object()}) == gr.skip()
    assert preset_scale(uploaded(page, "picture.csv", b"\x89PNG\0"), {}) == gr.skip()


def test_a_rating_is_that_of_the_name_on_its_card(page):
    rows = "sentence1,sentence2\n" + "".join(f"Cat {i} sleeps.,Dog {i} barks.\n" for i in range(20))
    made = make(
        page,
        "Names",
        "",
        uploaded(page, "names.csv", rows.encode()),
        ("", "", "sentence1", "sentence2", ""),
    )
    project = page.projects.open(made[page.project]["value"])
    event = gr.EventData(None, {"project": project.id, "rater": "Ann", "pair": 2, "score": 4})
    assert 'data-rater="Ben"' in page.judge(project.id, "Ben", {}, event)[page.card]
    assert project.judgements() == {"Ann": {2: 4}}


def test_an_interval_below_zero_is_drawn_whole():
    quality = Quality(
        "m", Estimate(60.0, -23.6, 75.0), 30, None, 4, {"Ann": 80.0}, Estimate(94.0, 90.0, 97.0)
    )
    figure = macro("label/quality")(found=quality, rows=[("all judged pairs", "60.0", "–", 30)])
    assert 'viewBox="-46 0 152 30"' in figure
    assert figure.count('class="grid"') == 8
    assert 'x1="-23.6"' in figure
