"""The Compare page in a real Chromium: what a person does, and what they must see."""

import re
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

SCORE = "#answer .card .score b"


def tab(page, name):
    page.get_by_role("tab", name=name).first.click()


def fold(page, name):
    page.locator("#answer summary", has_text=name).click()


def fill(page, a, b):
    page.locator("#sentence-a textarea").fill(a)
    page.locator("#sentence-b textarea").fill(b)


def cosine(page):
    return float(page.locator(SCORE).first.inner_text())


def test_the_page_opens_with_an_example_already_computed(open_page):
    page = open_page("/")
    expect(page.locator("h1 + .tagline")).to_have_text(
        "Type two sentences. See how similar a language model finds them, and why."
    )
    # The cosine, the cross-encoder, and what people would say.
    expect(page.locator("#answer .axis b")).to_have_count(3)
    expect(page.locator("#answer .card")).to_have_count(2)
    expect(page.locator("#answer .card").first).to_contain_text("The model is wrong here")
    expect(page.locator("#answer .reason")).to_contain_text("“not” lowers it most: without it 1.00")
    expect(page.locator("#answer .decides")).to_have_count(1)
    expect(page.get_by_role("button", name="negation")).to_have_attribute("aria-pressed", "true")
    explanation = page.locator("#answer .term [role=tooltip]").last
    expect(explanation).to_be_hidden()
    page.locator("#answer .term").last.focus()
    expect(explanation).to_contain_text("reads both sentences at once")
    expect(page.locator(".doors a")).to_have_count(3)
    fold(page, "The same pair under each pooling")
    expect(page.locator("#answer .poolings tr")).to_have_count(3)
    fold(page, "Word by word")
    expect(page.locator("#answer .word-map")).to_be_visible()
    # The folds stay open when another answer takes the place of this one.
    page.get_by_role("button", name="word order").click()
    expect(page.locator("#answer .answer")).to_have_attribute("data-example", "word order")
    expect(page.locator("#answer .word-map")).to_be_visible()
    expect(page).to_have_title("Compare · SBERT Lab")
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Compare")


def test_compare_answers_as_you_type(open_page):
    page = open_page("/")
    expect(page.locator(SCORE).first).to_be_visible()
    fill(page, "", "")
    page.locator("#sentence-a textarea").press_sequentially("A cat sleeps.", delay=20)
    expect(page.locator("#answer .problem")).to_contain_text("The second sentence is empty")
    # Nothing of the pair before stands beside it.
    expect(page.locator("#answer .answer")).to_have_count(0)
    page.locator("#sentence-b textarea").press_sequentially("A cat sleeps.", delay=20)
    expect(page.locator(SCORE).first).to_have_text("1.00")
    expect(page.locator("#answer")).to_contain_text("the same meaning")
    is_dimmed = "document.getElementById('answer').classList.contains('stale')"
    # From the first key until its own answer is there.
    page.locator("#sentence-b textarea").fill("Something else.")
    assert page.evaluate(
        f"{is_dimmed} || document.querySelector('#answer .answer')?.dataset.b === 'Something else.'"
    )
    expect(page.locator("#answer .answer")).to_have_attribute("data-b", "Something else.")
    page.wait_for_function(f"!{is_dimmed}")


def test_what_the_model_does_not_know_has_no_verdict_no_scale_and_is_named(open_page):
    page = open_page("/")
    expect(page.locator(SCORE).first).to_be_visible()
    fill(page, "🍎", "🚗")
    expect(page.locator("#answer .problem")).to_contain_text(
        "does not know 🍎, 🚗: it reads each as"
    )
    expect(page.locator("#answer .axis")).to_have_count(0)
    expect(page.locator("#answer")).not_to_contain_text("the same meaning")
    expect(page.locator("#answer .poolings")).to_have_count(0)
    expect(page.locator("#answer .reason")).to_have_count(0)
    fill(page, "I love this 😍", "I hate this 😡")
    expect(page.locator("#answer .note").first).to_contain_text("does not know 😍, 😡")


def test_poolings_models_and_none_as_cross_encoder(open_page):
    page = open_page("/?a=A+dog+barks.&b=The+hound+is+loud.&cross=none")
    expect(page.locator("#answer .card")).to_have_count(1)
    mean = cosine(page)
    page.get_by_role("radio", name="mean").first.focus()
    page.keyboard.press("ArrowLeft")  # from the first to the last
    expect(page.locator("#answer")).to_contain_text("CLS pooling")
    expect(page.locator("#answer")).to_contain_text("trained with mean pooling")
    assert cosine(page) != mean
    expect(page.locator("#answer .reason tbody tr")).to_have_count(3 + 4)
    expect(page.locator("#answer summary", has_text="Word by word")).to_have_count(0)
    page.locator(".model input").first.fill("no/such-model")
    page.locator(".model input").first.press("Enter")
    expect(page.locator("#answer .problem")).to_contain_text("no/such-model was not found")
    page.locator("#answer .problem summary").click()
    expect(page.locator("#answer .problem details li").first).to_be_visible()
    # A pooling that is typed counts.
    page.locator(".model input").first.fill("all-MiniLM-L6-v2:max")
    page.locator(".model input").first.press("Enter")
    expect(page.locator("#answer .card").first).to_contain_text("all-MiniLM-L6-v2 · max pooling")
    expect(page.get_by_role("radio", name="max").first).to_be_checked()
    page.get_by_role("radio", name="mean").first.check()  # until another one is chosen
    expect(page.locator("#answer .card").first).to_contain_text("all-MiniLM-L6-v2 · mean pooling")


@pytest.mark.slow
def test_a_word_left_out_changes_both_scores_of_a_long_pair_when_asked_for(open_page):
    page = open_page("/?a=The+film+was+good.&b=The+film+was+not+good.")
    expect(page.locator("#answer .reason tbody tr")).to_have_count(4 + 5)
    expect(page.locator("#answer .reason thead")).to_contain_text("cross-encoder")
    fill(page, "Short one.", "Another.")
    expect(page.locator("#answer .reason tbody tr")).to_have_count(2 + 1)
    fill(page, " ".join(f"word{number}" for number in range(60)), "The film was not good.")
    expect(page.locator("#answer [data-b='The film was not good.']")).to_be_attached()
    expect(page.locator("#answer .reason")).to_have_count(0)
    page.click("#ask-reason")
    expect(page.locator("#answer .reason tbody tr")).to_have_count(60 + 5)


def test_examples_and_a_random_pair_with_its_gold_score(open_page):
    page = open_page("/")
    page.get_by_role("button", name="word order").click()
    expect(page.locator("#answer")).to_contain_text(
        "on this scale such a pair should get 3 at most"
    )
    expect(page.locator("#sentence-a textarea")).to_have_value(
        "The dog chased the cat across the garden."
    )
    expect(page.locator("#answer")).to_contain_text("The same words")
    page.locator("#random-pair").click()
    expect(page.locator("#answer .card", has_text="STSb dev")).to_contain_text("People")
    fill(page, "Something else.", "Another thing.")
    expect(page.locator("#answer .card", has_text="STSb dev")).to_have_count(0)


def test_text_is_text_never_markup(open_page):
    page = open_page("/")
    expect(page.locator(SCORE).first).to_be_visible()
    fill(
        page,
        "<img src=x onerror=alert(1)> & <b>bold</b>",
        "‮ right to left 😀 <script>alert(2)</script>",
    )
    expect(page.locator("#answer .card")).to_have_count(2)
    expect(page.locator("#answer .tokens")).to_have_count(2)
    expect(page.locator("#answer [data-b*='right to left']")).to_be_attached()
    page.click("#ask-reason")  # its signs are more than thirty words
    expect(page.locator("#answer .decides")).to_be_attached()
    assert page.locator("#answer img, #answer script, #answer .tokens b").count() == 0


def test_a_link_reproduces_the_view_and_copies_work(open_page):
    page = open_page("/?a=One+%26+two&b=Zwei+%C3%BCber+drei&pooling=max&cross=none")
    expect(page.locator("#sentence-a textarea")).to_have_value("One & two")
    expect(page.locator("#answer")).to_contain_text("max pooling")
    page.locator("#sentence-b textarea").fill("Vier")
    page.wait_for_url(re.compile("b=Vier"))
    fold(page, "Copy as a link")
    code = page.locator("#answer pre").first
    expect(code).to_contain_text("open_model('all-MiniLM-L6-v2', pooling='max')")
    expect(code).to_contain_text("Vier")  # the address may change before the answer
    page.get_by_role("button", name="Copy the link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "b=Vier" in page.evaluate("navigator.clipboard.readText()")
    shown = page.locator(SCORE).first.inner_text()
    again = open_page("/?" + page.url.split("?")[1])
    expect(again.locator(SCORE).first).to_have_text(shown)
    expect(again.locator("#sentence-b textarea")).to_have_value("Vier")


def test_a_second_model_stands_beside_the_first_with_its_own_pooling(open_page):
    page = open_page("/?a=A+dog+barks.&b=A+hound+barks.&pooling=max&cross=none&second=scratch:1x32")
    expect(page.locator("#answer .card")).to_have_count(2)
    expect(page.locator("#answer .card").nth(0)).to_contain_text("all-MiniLM-L6-v2 · max pooling")
    expect(page.locator("#answer .card").nth(1)).to_contain_text("scratch:1x32 · mean pooling")
    # its calibration is measured while the page waits, and shown without another input
    expect(page.locator("#answer .card").nth(1)).to_contain_text("on people’s 0–5 scale")


def test_a_long_text_stays_out_of_the_address_and_in_sight(open_page):
    page = open_page("/")
    expect(page.locator(SCORE).first).to_be_visible()
    fill(page, "word " * 5_000, "A word.")
    expect(page.locator("#answer .card").first).to_contain_text(
        re.compile(r"The model reads only the first 2\d\d words of the first sentence")
    )
    page.wait_for_function("!location.search.includes('a=')")
    assert page.evaluate("document.documentElement.scrollHeight") < 3_500
    fold(page, "Copy as a link")
    expect(page.locator("#answer pre").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") < 3_000
    expect(page.locator("#answer")).to_contain_text("too long for a link")


def test_the_theme_outlives_a_link_and_an_unknown_address_is_a_page(open_page, app_url):
    page = open_page("/learn?__theme=dark")
    expect(page.get_by_role("button", name="Light", exact=True)).to_be_visible()
    page.get_by_role("link", name="Compare").click()
    expect(page).to_have_title("Compare · SBERT Lab")
    assert "dark" in (page.locator("body").get_attribute("class") or "")
    page.locator("#theme-switch").click()
    expect(page.get_by_role("button", name="Dark", exact=True)).to_be_visible()
    assert "dark" not in (page.locator("body").get_attribute("class") or "")
    request = urllib.request.Request(f"{app_url}/nowhere", headers={"Accept": "text/html"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert "There is no such page" in refused.value.read().decode()


def test_the_endpoints_are_described_behind_a_link_of_every_page(open_page, app_url):
    page = open_page("/evaluate")
    page.get_by_role("link", name="Use via API").click()
    expect(page).to_have_url(f"{app_url}/docs")
    expect(page.locator("body")).to_contain_text("/api/compare")


@pytest.mark.slow
def test_many_sentences_and_what_they_cost(open_page, app_url):
    page = open_page("/")
    expect(page.locator(SCORE).first).to_be_visible()
    tab(page, "Many sentences")
    # Nothing runs that nobody has asked for.
    expect(page.locator("#times")).to_contain_text("Press the button")
    page.locator("#compare-all").click()
    expect(page.locator("#times")).to_contain_text("66 cross-encoder passes took")
    expect(page.locator("#cosine-matrix .js-plotly-plot")).to_be_visible()
    expect(page.locator("#times")).to_contain_text("A man is eating a piece of bread.")
    page.locator("#lines textarea").fill("only one line")
    page.locator("#compare-all").click()
    expect(page.locator("#times .problem")).to_contain_text(
        "Got 1 line with text; paste 2 to 500 sentences"
    )
    for stale in ("#cosine-matrix", "#cross-matrix", "#times table"):
        expect(page.locator(stale)).to_be_hidden()
    page.fill("#lines textarea", "One.\nTwo.")
    page.wait_for_url(re.compile("lines=One.%0ATwo."))
    page.reload()
    expect(page.locator("#lines textarea")).to_have_value("One.\nTwo.")
    # The link has the lines in another browser too; those that are too long for it stay in this one.
    other = open_page(page.url.removeprefix(app_url))
    expect(other.locator("#lines textarea")).to_have_value("One.\nTwo.")
    text = "\n".join(f"Sentence {number} is long enough." for number in range(200))
    page.fill("#lines textarea", text)
    page.wait_for_function("!location.search.includes('lines=')")
    page.reload()
    expect(page.locator("#lines textarea")).to_have_value(text)


@pytest.mark.slow
def test_five_hundred_sentences_fit_a_telephone(open_page):
    page = open_page("/?tab=many", width=390)
    expect(page.locator("#times .lead")).to_be_visible()
    lines = [
        f"Sentence number {i} is about {('cats', 'dogs', 'the weather in Spain')[i % 3]}."
        for i in range(500)
    ]
    page.locator("#lines textarea").fill("\n".join(lines))
    page.locator("#compare-all").click()
    expect(page.locator("#times")).to_contain_text("500 encodings took")
    expect(page.locator("#cosine-matrix .xtick").first).to_be_attached()
    assert 2 <= page.locator("#cosine-matrix .xtick").count() <= 12  # numbers that can be read
    second = page.locator("#times tbody tr").first.locator("td").last.bounding_box()
    assert second["x"] + second["width"] <= 390
    page.locator("#lines textarea").fill("\n".join([*lines, "One more."]))
    page.locator("#compare-all").click()
    expect(page.locator("#times .problem")).to_contain_text(
        "Got 501 lines with text; paste 2 to 500 sentences"
    )
    expect(page.locator("#cosine-matrix")).to_be_hidden()
