"""The Explore page's chooser and map in a real browser: it opens drawn, and every control does what it says."""

import re
from pathlib import Path

import pytest
from conftest import choosing
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

SENTENCES = [
    *("A man is sleeping.", "A man is asleep.", "Somebody sleeps.", "The boy is taking a nap."),
    *(
        "Stocks fell on Monday.",
        "Shares lost value.",
        "The market went down.",
        "<b>Prices</b> dropped & fell.",
    ),
    *("A dog barks.", "The dog is barking.", "A puppy makes noise.", "Dogs bark at night."),
]


def opened(open_page, **options) -> Page:
    """The page, once its example is drawn."""
    page = open_page("/explore", **options)
    expect(page.locator("#corpus-status h2")).to_have_text("corpus.csv")
    expect(page.locator("#map-plot .js-plotly-plot .main-svg").first).to_be_attached()
    return page


def pick(page: Page, place: str, label: str) -> None:
    """One of a group of radio buttons."""
    if place == "#corpus-source":
        choosing(page)
    page.locator(f"{place} label").filter(has_text=re.compile(f"^ *{label} *$")).click()


def choose(page: Page, place: str, option: str) -> None:
    """An option of a dropdown."""
    page.locator(f"{place} input").click()
    page.locator(place).get_by_role("option", name=option, exact=True).click()


def paste(page: Page, text: str) -> None:
    """Open a text as the corpus."""
    pick(page, "#corpus-source", "Paste")
    page.locator("#corpus-text textarea").fill(text)
    page.click("#corpus-open")


def traces(page: Page) -> list[dict]:
    """What is drawn: the kind, the name and the number of points of each trace."""
    return page.locator("#map-plot .js-plotly-plot").evaluate(
        "plot => plot._fullData.map(t => ({type: t.type, name: t.name, mode: t.mode, n: t.x.length, x: t.x[0]}))"
    )


VISIBLE = "document.querySelector('#map-plot .js-plotly-plot').layout.annotations.filter((name) => name.visible)"


def names(page: Page) -> list[str]:
    """The names that are written onto the map."""
    return page.evaluate(f"{VISIBLE}.map((name) => name.text)")


def click_first_point(page: Page) -> None:
    """Click where the first point of the first trace of points is drawn."""
    place = page.locator("#map-plot .js-plotly-plot").evaluate(
        """plot => { const trace = plot._fullData.find(t => t.mode === "markers");
           const box = plot.getBoundingClientRect(), {xaxis: x, yaxis: y} = plot._fullLayout;
           return [box.left + x._offset + x.l2p(trace.x[0]), box.top + y._offset + y.l2p(trace.y[0])] }"""
    )
    page.mouse.move(*place)
    expect(page.locator("#map-plot .hoverlayer .hovertext").first).to_be_visible()
    page.mouse.click(*place)


def fits(page: Page, width: int) -> None:
    """Nothing is wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    choosing(page)
    for part in ("#corpus-source", "#corpus-open", "#corpus-status", "#map-colour", "#map-plot"):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width + 1


def test_the_example_is_drawn_and_a_click_lists_the_nearest_sentences(open_page):
    page = opened(open_page)
    expect(page.locator("#corpus-status")).to_contain_text(
        re.compile(r"example · 461 sentences: 2 exact duplicates.*; \d+ stay · column: domain")
    )
    expect(page.locator("#map-status")).to_contain_text(
        "Map of 461 sentences in 2 dimensions, from the cache."
    )
    drawn = traces(page)
    assert {trace["type"] for trace in drawn} == {"scatter"}
    assert sum(trace["n"] for trace in drawn) == 461
    # Its topics have colours, and their keywords stand on the map, without a legend.
    assert len(drawn) > 3
    assert len(names(page)) > 3
    expect(page.locator("#map-plot .legendtext")).to_have_count(0)
    whole = page.locator("#map-plot .js-plotly-plot").evaluate(
        """plot => { const {range} = plot.layout.xaxis, [a, b] = range;
          Plotly.relayout(plot, {'xaxis.range': [a, a + (b - a) / 3]}); return range }"""
    )
    # Zoomed in, the map names fine regions too, by their keywords.
    page.wait_for_function(f"{VISIBLE}.some((name) => name.name === 'fine')")
    zoom_out = "(plot, range) => Plotly.relayout(plot, {'xaxis.range': range})"
    page.locator("#map-plot .js-plotly-plot").evaluate(zoom_out, whole)
    page.wait_for_function(f"{VISIBLE}.every((name) => name.name === 'coarse')")
    page.locator("#map-plot").scroll_into_view_if_needed()
    click_first_point(page)
    expect(page.locator("#map-nearest tbody tr")).to_have_count(10)
    expect(page.locator("#map-nearest h2")).not_to_be_empty()
    marked = "document.querySelector('#map-plot .js-plotly-plot').data.filter((trace) => trace.name === 'marked')"
    # The point and its ten nearest.
    page.wait_for_function(f"{marked}.reduce((count, trace) => count + trace.x.length, 0) === 11")


@pytest.mark.slow
def test_colour_by_nothing_cluster_and_a_query(open_page):
    page = opened(open_page)
    choose(page, "#map-colour", "nothing")
    page.wait_for_function(
        "document.querySelector('#map-plot .js-plotly-plot')._fullData.length === 1"
    )
    choose(page, "#map-colour", "similarity to a query")
    page.locator("#map-query textarea").fill("The match ended in a draw.")
    expect(page.locator("#map-plot .cbaxis").first).to_be_attached()
    choose(page, "#map-colour", "cluster")
    expect(page.locator("#map-plot .legendtext").first).to_have_text(re.compile(r"^1: \w+"))
    expect(page.locator("#map-query")).to_be_hidden()


@pytest.mark.slow
def test_three_dimensions_and_how_it_is_drawn(open_page):
    page = opened(open_page)
    paste(page, "\n".join(SENTENCES))
    expect(page.locator("#map-status")).to_contain_text("12 sentences in 2 dimensions")
    before = traces(page)[0]["x"]
    page.click("#map-settings > button")
    page.locator("#map-settings input[type=number]").last.fill("7")
    page.wait_for_function(
        f"document.querySelector('#map-plot .js-plotly-plot')._fullData[0].x[0] !== {before}"
    )
    pick(page, "#map-dimensions", "3-D")
    expect(page.locator("#map-status")).to_contain_text("12 sentences in 3 dimensions")
    page.wait_for_function(
        "document.querySelector('#map-plot .js-plotly-plot')?._fullData?.[0].type === 'scatter3d'"
    )
    assert [trace["type"] for trace in traces(page)] == ["scatter3d"]
    text = page.locator("#map-plot .js-plotly-plot").evaluate("plot => plot._fullData[0].text[7]")
    assert text == "&lt;b&gt;Prices&lt;/b&gt; dropped &amp; fell."


@pytest.mark.slow
def test_two_models_stand_side_by_side(open_page):
    page = opened(open_page)
    pick(page, "#corpus-source", "Data set")
    page.click("#corpus-open")
    expect(page.locator("#corpus-status")).to_contain_text(
        re.compile(r"2,910 sentences: \d+ near-duplicates .* stay · column: role · 1,500 pairs")
    )
    expect(page.locator("#map-status")).to_contain_text(
        "The 264 pairs with a gold score of 4 or more: mean cosine 0.87"
    )
    assert [trace["mode"] for trace in traces(page)] == ["lines", "lines", "markers"]
    paste(page, "\n".join(SENTENCES))
    expect(page.locator("#map-status")).to_contain_text("12 sentences")
    page.click("#map-settings > button")
    choose(page, "#map-second", "all-MiniLM-L6-v2")
    pick(page, "#map-pooling", "max")
    expect(page.locator("#map-plot .annotation-text").last).to_have_text(
        "after: all-MiniLM-L6-v2, max"
    )
    expect(page.locator("#map-status")).to_contain_text("Two aligned maps of 12 sentences")
    expect(page.locator("#map-status .lead").first).to_contain_text(
        "% of the ten nearest are the same under both models"
    )
    # The same axes on both maps: what moved is seen.
    page.wait_for_function(
        """() => { const {xaxis, xaxis2, yaxis, yaxis2} = document.querySelector('#map-plot .js-plotly-plot').layout;
          return xaxis2 && xaxis.range.join() === xaxis2.range.join() && yaxis.range.join() === yaxis2.range.join() }"""
    )
    assert len({trace["x"] for trace in traces(page)}) == 2


def test_a_file_its_columns_and_another_pooling(open_page, tmp_path):
    path: Path = tmp_path / "mine.csv"
    path.write_text(
        "text;length\n" + "".join(f"{sentence};{len(sentence)}\n" for sentence in SENTENCES)
    )
    page = opened(open_page, dark=True)
    fits(page, 1280)
    pick(page, "#corpus-source", "File")
    page.click("#corpus-open")
    expect(page.locator("#corpus-status .problem")).to_have_text("Choose a file first.")
    expect(page.locator("#explore-tabs.stale")).to_have_count(0)
    page.set_input_files("#corpus-file input[type=file]", path)
    expect(page.locator("#corpus-panel")).to_contain_text(
        "UTF-8 text separated by semicolons · 12 rows"
    )
    expect(page.locator("#corpus-panel select[data-column=text]")).to_have_value("1")
    choosing(page)
    pick(page, "fieldset:has-text('Combines token vectors into one')", "max")
    page.click("#corpus-open")
    expect(page.locator("#corpus-status")).to_contain_text("12 sentences: 1 near-duplicate")
    expect(page.locator("#corpus-status")).to_contain_text("11 stay · column: length")
    expect(page.locator("#corpus-status")).to_contain_text("all-MiniLM-L6-v2, max pooling")
    expect(page.locator("#explore-tabs.stale")).to_have_count(0)
    page.wait_for_url(re.compile("corpus-source=yours&corpus=[0-9a-f]{16}"))
    path.unlink()
    page.reload()
    expect(page.locator("#corpus-status h2")).to_have_text("mine.csv")
    choosing(page)
    expect(page.locator("#corpus input")).to_have_value(re.compile(r"mine.csv \(12 sentences, \d"))
    choose(page, "#map-colour", "length")
    expect(page.locator("#map-plot .cbaxis").first).to_be_attached()
    page.wait_for_url(re.compile("map-colour=column"))
    page.reload()
    expect(page.locator("#map-plot .cbaxis").first).to_be_attached()
    choosing(page)
    page.click("#corpus-delete")
    expect(page.locator("#corpus-status h2")).to_have_text("corpus.csv")
    expect(page.locator("#corpus")).to_be_hidden()


@pytest.mark.slow
def test_stop_keeps_what_was_open(open_page, tmp_path):
    path: Path = tmp_path / "long.csv"
    path.write_text(
        "sentence\n"
        + "".join(f"This is sentence number {n} of very many.\n" for n in range(60_000))
    )
    page = opened(open_page)
    pick(page, "#corpus-source", "File")
    page.set_input_files("#corpus-file input[type=file]", path)
    expect(page.locator("#corpus-panel")).to_contain_text("long.csv")
    page.click("#corpus-open")
    expect(page.locator("#corpus-status .lead")).to_contain_text("Encoding 60,000 sentences")
    page.click("#corpus-stop")
    expect(page.locator("#corpus-status .problem")).to_contain_text(
        "Stopped: the tabs show what was open"
    )
    expect(page.locator("#corpus-open")).to_be_enabled()
    expect(page.locator("#map-status")).to_contain_text("461 sentences")
