"""The Learn page in a real Chromium: every lesson answers, hides its answer until asked, and opens its page set up."""

import re

import pytest
from playwright.sync_api import expect

from sbert_app.pages.learn.lesson import lessons

pytestmark = pytest.mark.browser

# The heights that the page has in the frames from here on.
HEIGHTS_OF_FRAMES = """() => {
  window.heights = [];
  const note = () => {
    const height = document.documentElement.scrollHeight;
    if (!window.heights.includes(height)) window.heights.push(height);
    requestAnimationFrame(note);
  };
  note();
}"""


def open_lesson(open_page, number, **how):
    """A teacher's link: the lesson, measured."""
    page = open_page(f"/learn?lesson={number}", **how)
    expect(page.locator(".lesson-page h2")).to_have_text(lessons()[number - 1].title)
    expect(page.locator(f"#result-{number} .measured").first).to_contain_text(
        "Measured on this machine"
    )
    return page


def slide(page, control, value):
    number = page.locator(f"{control} input[type=number]")
    number.fill(str(value))
    number.press("Enter")


@pytest.mark.slow
def test_each_lesson_is_measured_and_hides_its_answer_until_asked(open_page):
    page = open_page("/learn")
    for lesson in lessons():
        expect(page.locator(".lesson-page h2")).to_have_text(lesson.title)
        page.wait_for_url(re.compile(rf"/learn\?lesson={lesson.number}$"))
        expect(page.locator(f"#result-{lesson.number} .measured").first).to_be_visible()
        expect(page.locator(f"#figure-{lesson.number} .js-plotly-plot")).to_be_visible()
        answer = page.locator(".lesson-page details p")
        expect(answer).to_be_hidden()
        page.get_by_text("Show the answer").click()
        expect(answer).to_be_visible()
        expect(page.locator(f"#go-{lesson.number}")).to_have_attribute("data-done", "")
        if lesson.number < len(lessons()):
            page.locator("#next").click()
    expect(page.locator("#next")).to_be_disabled()
    page.locator("#previous").click()
    expect(page.locator(".lesson-page h2")).to_have_text(lessons()[-2].title)


@pytest.mark.slow
def test_progress_outlives_a_reload(open_page):
    page = open_lesson(open_page, 6)
    page.get_by_text("Show the answer").click()
    page.goto(page.url.partition("?")[0])  # no lesson in the address: the last one opens
    expect(page.locator(".lesson-page h2")).to_have_text(lessons()[5].title)
    expect(page.locator("#go-6")).to_have_attribute("data-done", "")
    expect(page.locator("#go-5")).not_to_have_attribute("data-done", "")


@pytest.mark.slow
def test_1_a_known_model_comes_back_after_an_unknown_one(open_page):
    page = open_lesson(open_page, 1)
    expect(page.locator("#result-1 tbody tr")).to_have_count(8)
    box = page.locator("#learn-model textarea, #learn-model input").first
    box.fill("no/such-model")
    box.press("Enter")
    expect(page.locator("#result-1 .problem")).to_contain_text("no/such-model")
    box.fill("all-MiniLM-L6-v2")
    box.press("Enter")
    expect(page.locator("#result-1 tbody tr")).to_have_count(8)


def test_2_pooling_changes_the_figure_and_the_trained_poolings_are_named(open_page):
    page = open_lesson(open_page, 2)
    page.locator("#learn-pooling").get_by_label("CLS").check()
    expect(page.locator("#result-2")).to_contain_text("CLS has no exact map")
    page.locator("#learn-b textarea").fill("Nobody plays here.")
    expect(page.locator("#figure-2")).to_contain_text("Nobody")
    expect(page.locator("#result-2")).to_contain_text("trained with, from raw-bert-mini")
    page.locator("#page-link-2 a").click()
    expect(page).to_have_url(re.compile(r"/ablation\?preset=pooling"))


@pytest.mark.slow
def test_4_a_pull_is_flagged_and_the_preset_is_ready(open_page):
    page = open_lesson(open_page, 4)
    expect(page.locator("#result-4")).to_contain_text("Not flagged")
    slide(page, "#learn-pull", 0.9)
    expect(page.locator("#result-4 .flag")).to_contain_text("Flagged as collapsed")
    page.wait_for_url(re.compile("lesson=4&learn-pull=0.9$"))
    slide(page, "#learn-pull", 0)
    expect(page.locator("#result-4 .flag")).to_contain_text("Not flagged")
    page.locator("#learn-source").get_by_label("random weights, CLS").check()
    expect(page.locator("#result-4 .flag")).to_contain_text("Flagged as collapsed")
    page.locator("#page-link-4 a").click()
    expect(page.locator("#lesson")).to_contain_text("learning rate of 0.01")
    expect(page.locator("#plan")).to_contain_text("20 steps")


@pytest.mark.slow
def test_5_n_is_extrapolated_and_rates_are_measured_again_in_their_place(open_page):
    page = open_lesson(open_page, 5)
    expect(page.locator("#result-5")).to_contain_text("extrapolated")
    slide(page, "#learn-n", 3)
    expect(page.locator("#result-5")).to_contain_text("499,500")
    expect(page.locator("#figure-5 button.download")).to_have_count(2)
    page.evaluate(HEIGHTS_OF_FRAMES)
    before = page.locator("#result-5 .measured").inner_text()
    page.locator("#learn-again").click()
    expect(page.locator("#progress-5 [role=progressbar]")).to_be_visible()
    expect(page.locator("#result-5 .measured")).not_to_have_text(before)
    page.wait_for_timeout(500)  # in which the figure is drawn
    assert len(page.evaluate("window.heights")) == 1
    page.locator("#page-link-5 a").click()
    expect(page.locator("#lines")).to_be_visible()


@pytest.mark.slow
def test_6_normalising_makes_the_orders_one(open_page):
    page = open_lesson(open_page, 6)
    agreement = page.locator("#result-6 table").first.locator("tbody tr").first
    expect(agreement).not_to_contain_text("1.0000 1.0000")
    page.locator("#learn-normalise input").check()
    expect(page.locator("#result-6")).to_contain_text("All vectors have length 1")
    assert agreement.locator("td").all_inner_texts()[:3] == ["1.0000"] * 3
    page.locator("#learn-query textarea").fill("")
    expect(page.locator("#result-6 .problem")).to_contain_text("The query is empty")


@pytest.mark.slow
def test_8_a_pair_of_ones_own_is_scored_and_reset_brings_the_lessons_back(open_page):
    page = open_lesson(open_page, 8)
    expect(page.locator("#result-8 tbody tr")).to_have_count(3)
    own = page.locator("#result-8 tbody tr").nth(1).locator("td").last
    before = own.inner_text()
    page.locator("#learn-negation-b textarea").fill("Stocks fell on Monday.")
    expect(own).not_to_have_text(before)
    page.locator("#reset-8").click()
    expect(page.locator("#learn-negation-b textarea")).to_have_value(
        "The medicine is not safe for children."
    )
    expect(own).to_have_text(before)


@pytest.mark.slow
def test_a_class_fixes_the_lessons_the_seed_and_the_sheet(open_page):
    page = open_page("/learn?lesson=4")
    page.locator("#teacher button").first.click()
    expect(page.locator("#make-class")).to_be_disabled()
    page.locator("#class-title").get_by_role("textbox").fill("NLP 101")
    page.locator("#class-seed").get_by_role("textbox").fill("7")
    for name in ("4 Collapse", "8 Negation"):
        page.locator("#class-lessons").get_by_label(name).check()
    page.locator("#make-class").click()
    # Of 127.0.0.1.
    expect(page.locator("#class-links .problem")).to_contain_text("Pupils cannot open this link")
    expect(page.locator("#class-links a[data-class]")).to_have_text(
        re.compile(r"^http://127.0.0.1:\d+/learn\?class=NLP")
    )
    page.locator("#class-links a[data-class]").click()
    expect(page.locator("#class-banner")).to_contain_text("NLP 101")
    expect(page.locator("#class-banner")).to_contain_text("seed 7")
    expect(page.locator("#rail button:visible")).to_have_count(2)
    expect(page.locator("#lesson-count")).to_have_text("Lesson 1 of 2")
    page.wait_for_url(re.compile(r"class=NLP\+101.*&lesson=4$"))
    page.locator("#next").click()
    expect(page.locator(".lesson-page h2")).to_have_text(lessons()[7].title)
    expect(page.locator("#next")).to_be_disabled()
    page.goto(page.url.split("?")[0] + "/sheet?class=NLP+101&lessons=4,8&answers=1")
    expect(page.locator("main h2")).to_have_count(2)
    expect(page.locator("main")).to_contain_text("For ranking with exact arithmetic")


def test_a_class_link_that_is_wrong_says_what(open_page):
    page = open_page("/learn?class=A&seed=x")
    expect(page.locator("#class-banner .problem")).to_contain_text(
        "Seed is 'x', but must be a whole number"
    )
