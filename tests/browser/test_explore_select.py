"""Selecting on the Explore page's map in a real browser: exactly the points drawn, whatever colours and shows them."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import choosing, downloaded
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

# Every point that is drawn: its row and its place in the window.
PLACES = """plot => { const box = plot.getBoundingClientRect(), {xaxis: x, yaxis: y} = plot._fullLayout;
  return plot._fullData.filter(t => t.mode === "markers" && !(t.meta && t.meta.layer)).flatMap(t => Array.from(
    t.customdata, (c, i) => [c, box.left + x._offset + x.l2p(t.x[i]), box.top + y._offset + y.l2p(t.y[i])])) }"""
# pixels: how close to its line nothing may be drawn, for a lasso whose contents are certain
NEAR = 1


def opened(open_page, **options) -> Page:
    """The page, once its example is drawn."""
    page = open_page("/explore", **options)
    expect(page.locator("#map-plot .js-plotly-plot .main-svg").first).to_be_attached()
    page.locator("#map-plot").scroll_into_view_if_needed()
    return page


def figure(page: Page):
    return page.locator("#map-plot .js-plotly-plot")


def drag(page: Page, mode: str) -> None:
    page.locator("#map-drag").get_by_label(mode).check()
    wanted = {"lasso": "lasso", "box": "select", "move": "pan"}[mode]
    page.wait_for_function(
        f"document.querySelector('#map-plot .js-plotly-plot')._fullLayout.dragmode === '{wanted}'"
    )


def choose(page: Page, place: str, option: str) -> None:
    page.locator(f"{place} input").click()
    page.locator(place).get_by_role("option", name=option, exact=True).click()


def rectangle(page: Page) -> tuple[list[tuple[float, float]], list[int]]:
    """The corners of a rectangle that no point is near to, and the rows of the points within, ascending."""
    box = page.locator("#map-plot .nsewdrag").first.bounding_box()
    points = figure(page).evaluate(PLACES)
    random = np.random.default_rng(0)
    for _ in range(5_000):
        left, right = box["x"] + box["width"] * random.uniform([0.1, 0.5], [0.4, 0.8])
        top, bottom = box["y"] + box["height"] * random.uniform([0.1, 0.5], [0.4, 0.8])
        depth = {row: min(x - left, right - x, y - top, bottom - y) for row, x, y in points}
        if (
            all(abs(inside) > NEAR for inside in depth.values())
            and sum(inside > 0 for inside in depth.values()) > 1
        ):
            rows = sorted(row for row, inside in depth.items() if inside > 0)
            return [(left, top), (right, top), (right, bottom), (left, bottom)], rows
    raise AssertionError("every rectangle has a point on its line")


def draw_lasso(page: Page, corners: list[tuple[float, float]]) -> None:
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in [*corners[1:], (corners[0][0], corners[0][1] + 2)]:
        page.mouse.move(*corner, steps=8)
    page.mouse.up()


def draw_box(page: Page, corners: list[tuple[float, float]]) -> None:
    page.mouse.move(*corners[0])
    page.mouse.down()
    page.mouse.move(*corners[2], steps=8)
    page.mouse.up()


def expect_selected(page: Page, rows: list[int]) -> None:
    """The panel counts them, and the map draws each of them once."""
    expect(page.locator("#selected-summary .lead b").first).to_have_text(f"{len(rows)} sentences")
    page.wait_for_function(
        """rows => { const plot = document.querySelector('#map-plot .js-plotly-plot');
          const drawn = plot.data.filter(t => t.meta && t.meta.layer === "selected")
            .flatMap(t => t.customdata);
          return drawn.sort((a, b) => a - b).join() === rows.join() }""",
        arg=rows,
    )


@pytest.mark.slow
def test_a_lasso_selects_the_points_inside_under_any_colour_and_model(open_page):
    page = opened(open_page)  # coloured by category: 17 traces
    drag(page, "lasso")
    corners, rows = rectangle(page)
    assert len(rows) > 20
    draw_lasso(page, corners)
    expect_selected(page, rows)
    assert [int(row["row"]) - 1 for row in downloaded(page, "#selected-csv")] == rows
    choose(page, "#map-colour", "nothing")
    page.wait_for_function("document.querySelector('#map-plot .js-plotly-plot').data.length === 2")
    expect_selected(page, rows)
    choose(page, "#map-colour", "similarity to a query")
    expect(page.locator("#map-plot .cbaxis").first).to_be_attached()
    expect_selected(page, rows)
    page.locator("#map-dimensions").get_by_label("3-D").check()
    expect(page.locator("#map-status")).to_contain_text("461 sentences in 3 dimensions")
    page.wait_for_function(
        "document.querySelector('#map-plot .js-plotly-plot')?._fullData?.[0].type === 'scatter3d'"
    )
    for mode in ("light", "dark"):
        names = page.locator("#map-plot .annotation-text")
        colours = names.evaluate_all("all => all.map((each) => getComputedStyle(each).fill)")
        assert set(colours) == {"rgb(255, 255, 255)"}, f"on their dark ground, {mode}"
        page.click("#theme-switch")
    expect_selected(page, rows)
    page.locator("#map-dimensions").get_by_label("2-D").check()
    expect(page.locator("#map-status")).to_contain_text("in 2 dimensions")
    before = page.locator("#selected-summary .lead").inner_text()
    choosing(page)
    page.locator("fieldset:has-text('Combines token vectors')").get_by_label("max").check()
    page.click("#corpus-open")
    expect(page.locator("#corpus-status")).to_contain_text("max pooling")
    expect(page.locator("#selected-summary .lead")).not_to_have_text(before)  # another mean cosine
    expect_selected(page, rows)


@pytest.mark.slow
def test_from_a_file_to_a_selection_that_is_exported_takes_five_clicks(open_page, tmp_path):
    path = tmp_path / "tickets.csv"
    texts = [
        f"The invoice of {month} is wrong."
        for month in ("May", "June", "July", "August", "March", "April")
    ]
    texts += [
        f"My {thing} does not start."
        for thing in ("printer", "laptop", "phone", "router", "scanner", "tablet")
    ]
    texts += [
        f"Please send {number} more chairs."
        for number in ("two", "three", "four", "five", "six", "seven")
    ]
    path.write_text("ticket;text\n" + "".join(f"T-{n};{text}\n" for n, text in enumerate(texts)))
    page = opened(open_page)
    clicks = 0

    def click(locator) -> None:
        nonlocal clicks
        clicks += 1
        locator.click()

    click(page.locator("#corpus-choice > button"))
    click(page.locator("#corpus-source").get_by_label("File", exact=True))
    page.set_input_files("#corpus-file input[type=file]", path)
    expect(page.locator("#corpus-panel")).to_contain_text("tickets.csv")
    click(page.locator("#corpus-open"))
    expect(page.locator("#map-status")).to_contain_text("18 sentences in 2 dimensions")
    click(page.locator("#map-drag").get_by_label("lasso"))
    drawn = "?._fullData?.filter(t => t.mode === 'markers').flatMap(t => Array.from(t.customdata)).length === 18"
    page.wait_for_function(f"document.querySelector('#map-plot .js-plotly-plot'){drawn}")
    page.wait_for_function(
        "document.querySelector('#map-plot .js-plotly-plot')._fullLayout.dragmode === 'lasso'"
    )
    corners, rows = rectangle(page)
    draw_lasso(page, corners)
    expect_selected(page, rows)
    clicks += 1
    table = downloaded(page, "#selected-csv")
    assert [(row["sentence"], row["ticket"]) for row in table] == [
        (texts[row], f"T-{row}") for row in rows
    ]
    assert clicks <= 5


@pytest.mark.slow
def test_a_box_the_table_its_order_and_the_other_pages(open_page):
    page = opened(open_page)
    choose(page, "#map-colour", "nothing")
    page.wait_for_function(
        "document.querySelector('#map-plot .js-plotly-plot')._fullData.length === 1"
    )
    drag(page, "box")
    corners, rows = rectangle(page)
    draw_box(page, corners)
    expect_selected(page, rows)
    assert page.locator("#selected-summary .words span").count() > 2
    table = downloaded(page, "#selected-csv")
    assert list(table[0]) == ["row", "sentence", "mean_cosine", "domain"]
    header = page.locator("#selected-table th", has_text="cosine")
    header.hover()  # only then is its menu seen
    header.locator(".cell-menu-button").click()
    page.get_by_text("Sort ascending").click()
    lowest = round(min(float(row["mean_cosine"]) for row in table), 3)
    expect(page.locator("#selected-table .virtual-row [data-col='1']").first).to_have_text(
        re.compile(rf"^\s*{lowest}\s*$")
    )
    line = page.locator("#selected-table .virtual-row").first
    line.locator("[data-col='2']").click()
    expect(page.locator("#map-nearest tbody tr")).to_have_count(10)
    page.get_by_role("tab", name="Selected").click()
    with page.context.expect_page() as compare:
        page.locator("#selected-links a", has_text="Compare").click()
    lines = compare.value.locator("#lines textarea")
    expect(lines).to_have_value(re.compile(re.escape(table[0]["sentence"])))
    assert lines.input_value().splitlines() == [row["sentence"] for row in table]
    href = page.locator("#selected-links a", has_text="Train").get_attribute("href")
    train = open_page(f"/{href.removeprefix('./')}")
    expect(train.locator("#lesson")).to_contain_text("selected in Explore")
    expect(train.locator("#plan")).to_contain_text(re.compile("sentences|pairs|rows"))


@pytest.mark.slow
def test_what_is_found_lights_up_on_the_map_until_it_is_taken_off(open_page):
    page = opened(open_page)
    page.get_by_role("tab", name="Search").click()
    expect(page.locator("#search-hits tbody tr")).to_have_count(10)
    page.locator("#search-hits [data-show-layer]").click()
    expect(page.locator("#map-layers button")).to_have_text("search results (10) ✕")
    drawn = "document.querySelector('#map-plot .js-plotly-plot').data.filter(t => t.name === '{}')"
    drawn += ".flatMap(t => t.x).length"
    page.wait_for_function(f"{drawn.format('search results')} === 10")
    page.get_by_role("tab", name="Pairs and duplicates").click()
    page.click("#repeats-go")
    page.locator("#repeats-status [data-show-layer]").click()
    expect(page.locator("#map-layers button")).to_have_count(2)
    page.wait_for_function(f"{drawn.format('near-duplicates')} > 1")
    page.locator("#map-layers button").first.click()
    page.wait_for_function(f"{drawn.format('search results')} === 0")
    expect(page.locator("#map-layers button")).to_have_count(1)


@pytest.mark.slow
def test_clusters_are_named_on_the_map_by_their_keywords(open_page):
    page = opened(open_page)
    page.get_by_role("tab", name="Clusters").click()
    expect(page.locator("#clusters-table .group").first).to_be_visible()
    page.get_by_role("tab", name="Map").click()
    choose(page, "#map-colour", "cluster")
    expect(page.locator("#map-plot .legendtext").first).to_have_text(re.compile("^1: "))
    expect(page.locator("#map-plot .annotation-text", has_text="1: ").first).to_be_visible()


def test_the_corpus_is_exported_for_embedding_atlas(open_page):
    page = opened(open_page)
    page.locator("#atlas-export > button").click()
    with page.expect_download() as download:
        page.click("#atlas-go")
    expect(page.locator("#atlas-status")).to_contain_text("461 sentences with their map")
    table = pq.read_table(download.value.path())
    assert table.column_names == [
        "sentence",
        "projection_x",
        "projection_y",
        "cluster",
        "neighbors",
        "domain",
    ]
    assert table.num_rows == 461


@pytest.mark.slow
def test_a_fold_that_is_opened_while_the_page_loads_stays_open(open_page):
    page = open_page("/explore")
    page.locator("#corpus-choice > button").click()
    expect(page.locator("#corpus-source")).to_be_visible()
    expect(page.locator("#map-plot .js-plotly-plot .main-svg").first).to_be_attached()
    expect(page.locator("#corpus-status")).to_contain_text("sentences")
    expect(page.locator("#corpus-source")).to_be_visible()
    page.locator("#corpus-open").click()
    expect(page.locator("#corpus-source")).to_be_hidden()
