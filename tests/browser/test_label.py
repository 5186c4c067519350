"""The Label page in a real Chromium: a project is made, judged by the keyboard alone, and nothing is lost."""

import re
import shutil

import pytest
from conftest import show
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def press(page: Page, key: str) -> None:
    """Press a key and wait until the server has saved it and the next card is there."""
    card = page.locator("#label-card [data-pair]")
    version = card.get_attribute("data-version")
    page.keyboard.press(key)
    expect(card).not_to_have_attribute("data-version", version or "")


def open_rater(open_page, project: str, rater: str, **how) -> Page:
    page = open_page(f"/label?project={project}&rater={rater}", **how)
    expect(page.locator("#label-card .scores button")).to_have_count(7)
    return page


@pytest.mark.slow
def test_without_a_project_nothing_can_be_pressed_that_would_not_work(open_page, home):
    shutil.rmtree(home / "annotations", ignore_errors=True)  # of other files' tests
    page = open_page("/label", width=390)
    expect(page.locator("#label-card")).to_contain_text("There is no project yet: make one below.")
    page.locator("#label-rater").get_by_role("textbox").fill("Ann")
    expect(page.locator("#label-begin")).to_have_text("Judge: make a project first")
    for button in ("begin", "create", "measure", "train", "export"):
        expect(page.locator(f"#label-{button}")).to_be_disabled()
    expect(page.locator("#report-label")).to_be_hidden()
    card = page.locator("#label-card").bounding_box()
    form = page.locator("#label-new").bounding_box()
    assert card["y"] < form["y"]


def test_a_project_is_made_judged_by_keys_and_kept(open_page, new_project):
    page = new_project()
    expect(page.locator("#label-create")).to_have_text("Choose the pairs: name the project first")
    expect(page.locator("#label-create")).to_be_disabled()
    page.locator("#label-name").get_by_role("textbox").fill("Browser pairs")
    page.locator("#label-count input[type=number]").fill("30")
    page.locator("#label-create").click()
    expect(page.locator("#label-card .count")).to_contain_text("Pair 1 of 30")
    expect(page.locator("#label-card")).to_contain_text("Type your name above")
    expect(page.locator("#label-name")).to_be_hidden()  # the form closes, the card is in view
    expect(page.locator("#label-card")).to_be_in_viewport()
    expect(page.locator("#label-measure")).to_have_text(
        "Measure the model: 10 judged pairs needed, 0 done"
    )
    expect(page.locator("#label-measure")).to_be_disabled()
    expect(page.locator("#label-begin")).to_have_text("Judge: type your name first")
    expect(page.locator("#label-begin")).to_be_disabled()
    rater = page.locator("#label-rater").get_by_role("textbox")
    rater.fill("Ann")
    expect(page.locator("#label-begin")).to_have_text("Judge")
    expect(page.locator("#label-begin")).to_be_enabled()
    rater.press("Enter")
    expect(page.locator("#label-card .scores button")).to_have_count(7)
    page.wait_for_url(re.compile(r"project=browser-pairs&rater=Ann"))
    expect(rater).not_to_be_focused()  # so that a digit is a score
    for i in range(24):
        press(page, str(i % 6))
    expect(page.locator("#label-card .count")).to_contain_text("Pair 25 of 30 · 24 judged")
    press(page, "u")
    expect(page.locator("#label-card .count")).to_contain_text("Pair 24 of 30 · 23 judged")
    press(page, "ArrowLeft")
    expect(page.locator("#label-card [aria-pressed=true]")).to_contain_text("4")
    press(page, "5")
    expect(page.locator("#label-card .count")).to_contain_text("Pair 24 of 30 · 23 judged")
    page.reload()
    expect(page.locator("#label-card .count")).to_contain_text("Pair 24 of 30 · 23 judged")
    page.locator("#label-measure").click()
    expect(page.locator("#label-quality tbody tr").first).to_contain_text("23")
    with page.expect_download() as download:
        page.locator("#label-export").click()
    assert download.value.suggested_filename == "browser-pairs.csv"


def test_a_second_rater_does_not_see_the_scores_of_the_first(open_page):
    page = open_rater(open_page, "browser-pairs", "Ben")
    expect(page.locator("#label-card .count")).to_contain_text("Pair 1 of 30 · 0 judged")
    expect(page.locator("#label-card [aria-pressed=true]")).to_have_count(0)
    for i in range(12):
        press(page, str(i % 6))
    expect(page.locator("#label-agreement")).to_contain_text("α is 1.00 on 12 shared pairs")
    expect(page.locator("#label-agreement tbody tr").first).to_contain_text("Ann and Ben")
    press(page, "x")
    expect(page.locator("#label-card .count")).to_contain_text("Pair 14 of 30 · 13 judged")
    press(page, "ArrowLeft")
    press(page, "ArrowLeft")
    press(
        page,
        "5"
        if page.locator("#label-card [aria-pressed=true]").get_attribute("data-act") != "5"
        else "0",
    )
    row = page.locator("#label-differences tbody tr")
    expect(row).to_have_count(1)
    row.locator("button").click()
    expect(page.locator("#label-card .count")).to_contain_text("Pair 12 of 30")
    row.locator("select").select_option("4")
    expect(page.locator("#label-card .count")).to_contain_text("agreed score 4")
    expect(page.locator("#label-differences select")).to_have_value("4")
    show(page, 390)
    table = page.locator("#label-differences .differences")
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    # The table is sent again after a score is agreed on.
    page.wait_for_function(
        "document.querySelector('#label-differences th[scope=row]')?.clientWidth > 200"
    )


def test_keys_that_are_pressed_quickly_judge_the_pair_that_is_seen(open_page):
    page = open_rater(open_page, "browser-pairs", "Dot")
    first = page.locator("#label-card blockquote").first.inner_text()
    sentences = []
    for key in "012345":
        page.keyboard.press(key)
        sentences.append(page.locator("#label-card blockquote").first.inner_text())
    # Each press showed another pair at once.
    assert first not in sentences and len(set(sentences)) > 4
    expect(page.locator("#label-card .count")).to_contain_text("Pair 7 of 30 · 6 judged")
    page.wait_for_timeout(3_000)
    page.reload()
    expect(page.locator("#label-card .count")).to_contain_text("Pair 7 of 30 · 6 judged")
    for score in "543210":
        version = page.locator("#label-card [data-pair]").get_attribute("data-version")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#label-card [data-pair]")).not_to_have_attribute(
            "data-version", version
        )
        expect(page.locator("#label-card [aria-pressed=true] kbd")).to_have_text(score)


def test_keys_wait_for_the_next_card_when_the_pairs_sent_ahead_are_used_up(open_page):
    page = open_rater(open_page, "browser-pairs", "Eve")
    for i in range(20):  # far more than are sent ahead, faster than any answer
        page.keyboard.press(str(i % 6))
    expect(page.locator("#label-card .count")).to_contain_text("Pair 21 of 30 · 20 judged")
    for _ in range(10):
        page.keyboard.press("1")
    page.keyboard.press("5")  # for no pair: all are judged by then
    expect(page.locator("#label-card .turns")).to_contain_text("All pairs are judged.")
    page.reload()
    expect(page.locator("#label-card .count")).to_contain_text("30 judged")
    page.keyboard.press("ArrowLeft")  # the first pair stays
    expect(page.locator("#label-card [aria-pressed=true] kbd")).to_have_text("0")
    for _ in range(29):
        press(page, "ArrowRight")
    expect(page.locator("#label-card .count")).to_contain_text("Pair 30 of 30")
    expect(page.locator("#label-card [aria-pressed=true] kbd")).to_have_text("1")


def test_a_file_of_yes_and_no_presets_the_scale_until_somebody_chooses(new_project, tmp_path):
    rows = [f"The cat {i} sleeps.,A dog {i} barks.,{'yes' if i % 2 else 'no'}" for i in range(20)]
    file = tmp_path / "judged.csv"
    file.write_text("\n".join(["first,second,same", *rows]))
    page = new_project()
    scale = page.locator("#label-scale")
    expect(scale.get_by_label("0 to 5")).to_be_checked()
    expect(page.locator("#label-enough")).to_contain_text("ρ")
    page.locator("#label-file input").set_input_files(file)
    expect(scale.get_by_label("yes or no")).to_be_checked()
    expect(page.locator("#label-enough")).to_contain_text("an agreement of two raters")
    scale.get_by_label("0 to 5").check()
    page.locator("#label-file").get_by_label("Clear").click()
    page.locator("#label-file input").set_input_files(file)
    expect(page.locator("#label-panel section")).to_be_visible()
    page.wait_for_timeout(2_000)
    expect(scale.get_by_label("0 to 5")).to_be_checked()


def test_keys_in_a_text_field_judge_nothing(open_page):
    page = open_rater(open_page, "browser-pairs", "Cem")
    page.locator("#label-rater").get_by_role("textbox").press("End")
    page.keyboard.press("3")
    expect(page.locator("#label-rater").get_by_role("textbox")).to_have_value("Cem3")
    expect(page.locator("#label-card .count")).to_contain_text("0 judged")


def test_it_fits_a_telephone_and_a_tap_judges(open_page):
    page = open_rater(open_page, "browser-pairs", "Tap", width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#label-card [data-act='3']").click()
    expect(page.locator("#label-card .count")).to_contain_text("1 judged")


def test_a_project_that_is_not_there_is_said(open_page):
    page = open_page("/label?project=nothing-here&rater=Ann")
    expect(page.locator("#label-error .problem")).to_contain_text(
        "There is no project 'nothing-here'"
    )
