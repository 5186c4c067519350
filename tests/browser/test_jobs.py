"""What people come for, each job whole and as a person would do it."""

import csv
import re
from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from test_label import press

from scripts.running import end_workers

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def downloaded(page: Page, button: str) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click(button)
    with Path(download.value.path()).open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_a_newcomer_types_two_sentences_learns_why_and_goes_on_to_a_lesson(open_page):
    page = open_page("/")
    page.locator("#sentence-a textarea").fill("The train is late again.")
    page.locator("#sentence-b textarea").fill("The train is on time today.")
    expect(page.locator("#answer .answer")).to_have_attribute(
        "data-b", "The train is on time today."
    )
    expect(page.locator("#answer .axis b")).to_have_count(2)
    expect(page.locator("#answer .reason")).to_contain_text("the cosine most: without it")
    page.locator(".doors a", has_text="A lesson").click()
    expect(page).to_have_title("Learn · SBERT Lab")


def test_an_analyst_goes_from_a_file_with_labels_to_one_without_duplicates(open_page, tmp_path):
    rows = [
        (f"How do I reset password {n}?", f"How can I reset password {n}?", "yes")
        for n in range(20)
    ]
    rows += [
        (f"How do I reset password {n}?", f"The office in town {n} is closed.", "no")
        for n in range(20)
    ]
    path = tmp_path / "questions.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question1", "question2", "duplicate"), *rows])
    page = open_page("/bulk")
    expect(page.locator("#bulk-panel")).to_contain_text("bulk-example.csv")
    page.set_input_files("#upload input[type=file]", path)
    expect(page.locator("#bulk-panel")).to_contain_text("questions.csv")
    page.click("#score")
    expect(page.locator("#decision")).to_contain_text("on 40 pairs")
    page.locator("#decision button.use").first.click()
    expect(page.locator("#matches .lead")).to_contain_text("pairs match")
    assert 0 < len(downloaded(page, "#deduplicated")) < 60


def test_a_teacher_shows_an_ablation_and_makes_a_class_link(open_page):
    page = open_page("/ablation")
    page.get_by_role("radio", name="Concatenation").check()
    expect(page.locator("#question")).to_contain_text("softmax")
    figure = page.locator("#ablation-figure .js-plotly-plot")
    expect(figure).to_be_visible()
    assert figure.bounding_box()["y"] < 450
    page.goto(page.url.replace(re.search(r"/ablation.*", page.url)[0], "/learn"))
    page.locator("#teacher button").first.click()
    page.locator("#class-title").get_by_role("textbox").fill("NLP 101")
    page.locator("#class-lessons").get_by_label("4 Collapse").check()
    page.locator("#make-class").click()
    expect(page.locator("#class-links a[data-class]")).to_be_visible()


def test_an_engineer_trains_on_own_pairs_and_compares_with_the_base(
    open_page, tmp_path, home: Path
):
    path = tmp_path / "support.csv"
    pairs = [(f"My parcel {n} has not come.", f"Where is my order number {n}?") for n in range(60)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "paraphrase"), *pairs])
    page = open_page("/train")
    # Without a change of a setting.
    expect(page.locator("#plan")).to_contain_text(re.compile(r"about \d+ (s|min)|time known after"))
    page.set_input_files("#upload-train input[type=file], input[type=file] >> nth=0", path)
    expect(page.locator("#train-panel select[data-column=paraphrase]")).to_have_value("2")
    expect(page.locator("#objective input")).to_have_value("mnrl")
    page.locator("#train-base input").fill("scratch:1x32")
    page.locator("#train-base input").press("Enter")
    expect(page.locator("#plan")).to_contain_text("60")
    page.click("#start")
    expect(page.locator("#run-status .card.run")).to_contain_text("finished")
    page.locator("#run-status a", has_text="Compare").click()
    expect(page.locator("#answer .card")).to_have_count(3)
    expect(page).to_have_url(re.compile("second=scratch"))
    end_workers(home)


def test_two_raters_judge_and_see_where_they_disagree(open_page, new_project):
    page = new_project()
    page.locator("#label-name").get_by_role("textbox").fill("Two raters")
    page.locator("#label-count input[type=number]").fill("15")
    page.locator("#label-create").click()
    for rater, judgements in (("Ann", "012345012345012"), ("Ben", "012345012345015")):
        field = page.locator("#label-rater").get_by_role("textbox")
        field.fill(rater)
        field.press("Enter")
        expect(page.locator("#label-card .scores button")).to_have_count(7)
        expect(page.locator("#label-card .count")).to_contain_text("Pair 1 of 15")
        for key in judgements:
            press(page, key)
    expect(page.locator("[data-jump]").first).to_be_attached()


def test_names_on_a_map_drawn_in_a_hidden_tab_do_not_overlap(open_page):
    page = open_page("/explore?tab=clusters")
    expect(page.locator("#clusters-table .group").first).to_be_visible()
    page.get_by_role("tab", name="Map").click()
    texts = page.locator("#map-plot .annotation-text")
    expect(texts.first).to_be_visible()
    frame = page.locator("#map-plot .js-plotly-plot").bounding_box()
    boxes = [text.bounding_box() for text in texts.all()]
    assert len(boxes) > 3
    for box in boxes:
        assert frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]
        assert frame["y"] <= box["y"] and box["y"] + box["height"] <= frame["y"] + frame["height"]
    for first, second in combinations(boxes, 2):
        is_beside = (
            first["x"] + first["width"] <= second["x"]
            or second["x"] + second["width"] <= first["x"]
        )
        is_below = (
            first["y"] + first["height"] <= second["y"]
            or second["y"] + second["height"] <= first["y"]
        )
        assert is_beside or is_below
