"""The Bulk page in a real browser: it opens scored, takes a file, scores it, stops, gives it back."""

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser


def upload(page: Page, path: Path) -> None:
    page.set_input_files("#upload input[type=file]", path)
    expect(page.locator("#bulk-panel")).to_contain_text(path.name)


def opened(open_page, **options) -> Page:
    """The page, once its example is scored."""
    page = open_page("/bulk", **options)
    expect(page.locator("#status")).to_contain_text("58 of 60 pairs scored")
    return page


def choose(page: Page, place: str, option: str | re.Pattern) -> None:
    """Pick an option of a dropdown."""
    page.locator(f"{place} input").click()
    page.locator(place).get_by_role("option", name=option, exact=isinstance(option, str)).click()


def role_of(page: Page, column: str) -> Locator:
    """The menu above a column of the file."""
    return page.locator(f"#bulk-panel select[data-column='{column}']")


def choose_role(page: Page, column: str, role: str) -> None:
    role_of(page, column).select_option(role)
    expect(role_of(page, column)).to_have_value(role)


def downloaded(page: Page, button: str) -> Path:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path())


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "left;right;rank;what\nA man sleeps.;A man is asleep.;5;x\nA dog barks.;;1;y\n<b>bold</b>;=1+1;2;z\n"
    )
    return path


def test_it_opens_with_an_example_that_is_scored(open_page):
    page = opened(open_page)
    expect(page.locator("#bulk-panel")).to_contain_text("bulk-example.csv")
    expect(page.locator("#rows tbody tr")).to_have_count(5)
    expect(page.locator("#agreement .card")).to_have_count(1)
    expect(page.locator("#histogram .js-plotly-plot")).to_be_visible()
    expect(page.locator("#scatter .js-plotly-plot")).to_be_visible()
    page.click("#bulk-disagreements > button")
    expect(page.locator("#disagreements tbody tr").first).to_be_visible()
    expect(page.locator(".bulk")).to_contain_text("python -m sbert_app score IN OUT")


def score_its_columns(page: Page) -> None:
    for column, role in (("left", "1"), ("right", "2"), ("rank", "target")):
        choose_role(page, column, role)
    page.click("#score")
    expect(page.locator("#status")).to_contain_text("2 of 3 pairs scored")


def test_a_file_is_previewed_its_columns_are_picked_and_it_is_scored(open_page, pairs):
    page = opened(open_page)
    upload(page, pairs)
    expect(page.locator("#bulk-panel")).to_contain_text(
        "UTF-8 text separated by semicolons · 3 rows"
    )
    expect(page.locator("#status")).to_contain_text("Choose the two columns")
    expect(page.locator("#bulk-panel tbody tr")).to_have_count(3)
    expect(page.locator("#bulk-panel")).to_contain_text("<b>bold</b>")
    assert page.locator("#bulk-panel tbody b").count() == 0
    expect(page.locator("#csv")).to_be_hidden()

    page.click("#score")
    expect(page.locator("#status .problem")).to_contain_text("Choose the two columns")
    score_its_columns(page)
    expect(page.locator("#status")).to_contain_text(
        "Rows kept and marked in the column note: 1 without text."
    )
    expect(page.locator("#status")).to_contain_text("1 cell that a spreadsheet would run")
    page.click("#status summary")
    expect(page.locator("#status li")).to_have_text(["row 2: no text in right"])

    with downloaded(page, "#csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert [row["what"] for row in rows] == ["x", "y", "z"]
    assert [row["note"] for row in rows] == ["", "no text in right", ""]
    assert rows[2]["right"] == "'=1+1"
    assert float(rows[0]["cosine"]) > 0.8
    assert downloaded(page, "#parquet").read_bytes()[:4] == b"PAR1"


@pytest.mark.slow
def test_a_reload_loses_neither_the_file_nor_the_result(open_page, pairs):
    page = opened(open_page)
    upload(page, pairs)
    expect(page).to_have_url(re.compile(r"/bulk\?job=[0-9a-f]{16}$"))
    page.reload()
    expect(page.locator("#bulk-panel")).to_contain_text("mine.csv")
    expect(page.locator("#status")).to_contain_text("Choose the two columns")
    score_its_columns(page)
    page.reload()
    expect(page.locator("#status")).to_contain_text("2 of 3 pairs scored")
    expect(role_of(page, "left")).to_have_value("1")
    assert downloaded(page, "#csv").read_text().startswith("left;right;rank;what;cosine")

    page.goto(page.url.partition("?")[0])
    expect(page.locator("#bulk-panel")).to_contain_text("bulk-example.csv")
    listed = page.locator("#bulk-history tbody tr")
    expect(listed).to_have_count(1)
    expect(listed).to_contain_text("finished")
    listed.get_by_role("link", name="mine.csv").click()
    expect(page.locator("#status")).to_contain_text("2 of 3 pairs scored")
    page.click("#forget-jobs")
    expect(listed).to_have_count(0)
    page.reload()
    expect(page.locator("#status .problem")).to_contain_text("no longer kept")


# From now on each wait of the page for its next frame takes as long as on a telephone that does ten
# things at once.
SLOW_FRAMES = """() => {
  const later = window.setTimeout;
  window.requestAnimationFrame = (draw) => later(() => draw(performance.now()), 700);
  window.setTimeout = (what, delay, ...more) => later(what, Math.max(delay || 0, 700), ...more);
}"""


@pytest.mark.slow
def test_what_arrives_while_the_page_is_busy_is_shown(open_page, tmp_path):
    """Several steps of an answer come while the first is being shown: none of their updates is lost."""
    path = tmp_path / "two.csv"
    path.write_text("sentence1,sentence2\nA man sleeps.,A man is asleep.\nDogs run.,Dogs ran.\n")
    page = opened(open_page)
    upload(page, path)
    expect(role_of(page, "sentence2")).to_have_value("2")
    page.evaluate(SLOW_FRAMES)
    page.click("#score")
    expect(page.locator("#status")).to_contain_text("2 of 2 pairs scored")
    expect(page.locator("#csv")).to_be_visible()
    expect(page.locator("#score")).to_be_enabled()
    expect(page.locator("#stop")).to_be_hidden()


@pytest.mark.slow
def test_labels_choose_a_threshold_which_finds_groups_of_duplicates(open_page, tmp_path):
    path = tmp_path / "nli.csv"
    same = [
        ("A man sleeps.", "A man is asleep."),
        ("A man is asleep.", "A man is sleeping."),
        ("Dogs run.", "Dogs ran."),
    ]
    rows = [f"{a},{b},entailment" for a, b in same * 2] + [
        f"{a},Stocks fell {i}.,neutral" for i, (a, _) in enumerate(same)
    ]
    rows += [f"{b},The minister resigned.,contradiction" for _, b in same]
    path.write_text("premise,hypothesis,label\n" + "\n".join(rows) + "\n")
    page = opened(open_page)
    expect(page.locator("#decision")).to_contain_text("is a match")
    upload(page, path)
    expect(role_of(page, "label")).to_have_value("target")
    page.click("#score")
    expect(page.locator("#decision")).to_contain_text(
        "Entailment is a match, neutral and contradiction are not."
    )
    page.click("#bulk-curves > button")
    expect(page.locator("#bulk-curve .js-plotly-plot")).to_be_visible()
    page.fill("#cut input[type=number]", "0.6")
    page.click("#cut button.use")
    expect(page.locator("#matches .lead")).to_contain_text(
        "6 of 12 pairs match, from a cosine of 0.6000 on. 2 groups"
    )
    expect(page.locator("#matches tbody tr").first).to_contain_text("A man is sleeping.")
    with downloaded(page, "#deduplicated").open(newline="", encoding="utf-8") as file:
        kept = [row["sentence"] for row in csv.DictReader(file)]
    assert kept == [
        "A man sleeps.",
        "Dogs run.",
        "Stocks fell 0.",
        "Stocks fell 1.",
        "Stocks fell 2.",
        "The minister resigned.",
    ]
    with downloaded(page, "#matched-csv").open(newline="", encoding="utf-8") as file:
        assert [row["match"] for row in csv.DictReader(file)] == ["true"] * 6 + ["false"] * 6
    assert downloaded(page, "#matched-parquet").read_bytes()[:4] == b"PAR1"
    assert len(downloaded(page, "#groups").read_text().splitlines()) == 1 + 5
    page.reload()
    expect(page.locator("#matches .lead")).to_contain_text(
        "6 of 12 pairs match, from a cosine of 0.6000 on. 2 groups"
    )
    expect(page.locator("#deduplicated")).to_be_visible()


@pytest.mark.slow
def test_scoring_outlives_a_reload_and_stop_keeps_the_rows_that_are_done(open_page, tmp_path):
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("sentence1,sentence2\n")
        file.writelines(
            f"This is sentence number {i} of many.,And {i} is its neighbour.\n"
            for i in range(50_000)
        )
    page = opened(open_page)
    upload(page, path)
    page.click("#score")
    expect(page.locator("#status [role=progressbar]")).to_be_visible()
    progress = re.compile(r"[1-9][\d,]* of 50,000 rows · [\d,]+ rows/s · .* left")
    expect(page.locator("#status .lead")).to_have_text(progress)
    page.reload()
    expect(page.locator("#status .lead")).to_have_text(progress)
    page.click("#stop")
    expect(page.locator("#status")).to_contain_text("Stopped at row")
    done = int(
        re.search(r"Stopped at row ([\d,]+) of 50,000 rows", page.locator("#status").inner_text())[
            1
        ].replace(",", "")
    )
    with downloaded(page, "#csv").open() as file:
        assert sum(1 for _ in file) == done + 1
    expect(page.locator("#score")).to_be_enabled()
    expect(page.locator("#stop")).to_be_hidden()


def test_a_file_that_cannot_be_scored_gets_one_clear_sentence(open_page, pairs, tmp_path):
    sentences = tmp_path / "list.csv"
    sentences.write_text("text\nA man sleeps.\nA dog barks.\n")
    wrong = tmp_path / "photo.png"
    wrong.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    page = opened(open_page)
    expect(page.locator("#bulk-disagreements")).to_be_visible()
    upload(page, sentences)
    expect(page.locator("#status")).to_contain_text(
        "Explore maps a list of sentences and removes its duplicates."
    )
    expect(page.locator("#bulk-disagreements")).to_be_hidden()
    page.get_by_label("Clear").click()
    expect(page.locator("#bulk-panel")).to_contain_text("bulk-example.csv")
    page.set_input_files("#upload input[type=file]", wrong)
    expect(page.locator("#status .problem")).to_have_text(
        "photo.png is an image. Give a CSV, TSV, JSON Lines, Parquet or Excel file."
    )
    expect(page.locator("#score")).to_be_disabled()
    page.get_by_label("Clear").click()
    expect(page.locator("#bulk-panel")).to_contain_text("bulk-example.csv")
    upload(page, pairs)
    expect(page.locator("#score")).to_be_enabled()
    page.get_by_role("button", name="Model: all-MiniLM-L6-v2, mean pooling").click()
    page.locator(".model input").first.fill("no/such-model")
    page.locator(".model input").first.press("Enter")
    for column, role in (("left", "1"), ("right", "2")):
        choose_role(page, column, role)
    page.click("#score")
    problem = page.locator("#status .problem")
    expect(problem).to_contain_text(
        "Model no/such-model was not found; check the name and the network"
    )
    expect(problem.locator("li").first).to_be_hidden()
    problem.locator("summary").click()
    expect(problem.locator("li").first).to_be_visible()


@pytest.mark.slow
def test_a_cross_encoder_adds_its_scores(open_page):
    page = opened(open_page)
    page.get_by_role("button", name="Model: all-MiniLM-L6-v2, mean pooling").click()
    choose(page, ".cross", re.compile("minilm-stsb"))
    expect(page.get_by_role("button", name="mean pooling, beside minilm-stsb")).to_be_visible()
    expect(page).to_have_url(re.compile("bulk-cross=minilm-stsb"))
    page.click("#score")
    expect(page.locator("#agreement .card")).to_have_count(3)
    page.click("#bulk-disagreements > button")
    expect(page.locator("#rows thead")).to_contain_text("cross_encoder")
    expect(page.locator("#disagreements h2")).to_have_count(2)


@pytest.mark.slow
def test_the_threshold_below_the_histograms_of_labels_counts_at_once(open_page, tmp_path):
    path = tmp_path / "labelled.csv"
    same = "A man sleeps.,A man is asleep.,yes\n"
    other = "A man sleeps.,The bank is closed.,no\n"
    path.write_text(
        f"sentence1,sentence2,label\n{same * 6}{other * 6}A man sleeps.,A man sleeps.,no\n"
    )
    page = opened(open_page)
    upload(page, path)
    page.click("#score")
    expect(page.locator("#histogram .js-plotly-plot .legendtext")).to_have_text(
        ["match (6)", "no match (7)"]
    )
    expect(page.locator("#bulk-threshold")).to_be_hidden()  # the slider is the one control
    page.locator("#cut input[type=range]").fill("0.5")
    expect(page.locator("#cut p")).to_have_text(
        "Above it lie 6 of 6 matches (recall 100%) and 1 other pair (precision 86%)."
    )
    page.click("#bulk-disagreements > button")
    expect(page.locator("#disagreements tbody tr").first).to_contain_text(
        "A man sleeps.A man sleeps."
    )
    page.click("#cut button.use")
    expect(page.locator("#matches")).to_contain_text(
        "7 of 13 pairs match, from a cosine of 0.5000 on"
    )


# Notes which of two parts have been switched off since.
WATCH_HELD = """() => {
  window.wereOff = new Set();
  for (const id of ["score", "status"]) {
    const part = document.getElementById(id);
    new MutationObserver(() => part.inert && window.wereOff.add(id)).observe(part, {attributeFilter: ["inert"]});
  }
}"""


def test_what_depends_on_a_file_is_off_until_it_is_read(open_page, pairs):
    page = opened(open_page)
    page.evaluate(WATCH_HELD)
    upload(page, pairs)
    assert sorted(page.evaluate("[...window.wereOff]")) == ["score", "status"]
    expect(page.locator("#status")).to_contain_text("Choose the two columns")
    for part in ("#score", "#status"):
        expect(page.locator(part)).not_to_have_attribute("inert", "")
