"""The Explore page's search, pairs, duplicates and clusters in a real browser: every control does what it says."""

import re

import pytest
from conftest import choosing, downloaded
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=alert(1)> is a sentence."


def opened(open_page, tab: str, **options) -> Page:
    """The page on a tab, once its example is open."""
    page = open_page("/explore", **options)
    expect(page.locator("#corpus-status .file")).to_have_text("corpus.csv")
    shown = page.get_by_role("tab", name=tab)
    if shown.count() and shown.first.is_visible():
        shown.first.click()
    else:  # on a phone, behind the dots
        page.locator(".overflow-menu > button").click()
        page.locator(".overflow-dropdown button", has_text=tab).click()
    return page


def open_text(page: Page, *sentences: str) -> None:
    choosing(page)
    page.get_by_label("Paste").check()
    page.locator("#corpus-text textarea").fill("\n".join(sentences))
    page.click("#corpus-open")
    expect(page.locator("#corpus-status .file")).to_have_text("pasted text.txt")


def slide(page: Page, place: str, value: float) -> None:
    """Type a value into a slider's box, as a keyboard user does."""
    box = page.locator(f"{place} input[type=number]")
    box.fill(str(value))
    box.blur()


def clusters(page: Page) -> int:
    return int(re.search(r"([\d,]+) clusters of", page.locator("#clusters-status").inner_text())[1])


class TestSearch:
    def test_query_number_and_cross_encoder(self, open_page):
        page = opened(open_page, "Search")
        expect(page.locator("#search-hits tbody tr")).to_have_count(10)
        expect(page.locator("#search-hits tbody tr").first).to_contain_text("interest rate")
        expect(page.locator("#search-status")).to_have_text(
            re.compile(r"[\d.]+ ms to search 461 sentences · [\d.]+ ms to encode the query")
        )
        expect(page.locator("#search-status")).to_contain_text("dot product is their cosine")
        page.click("#search-settings > button")
        slide(page, "#search-k", 4)
        expect(page.locator("#search-hits tbody tr")).to_have_count(4)
        query = page.locator("#search-query textarea, #search-query input")
        query.fill("rinsing rice")
        query.press("Enter")
        expect(page.locator("#search-hits tbody tr").first).to_contain_text("rice")
        query.fill("   ")
        page.click("#search-go")
        expect(page.locator("#search-status .problem")).to_have_text(
            "The query is empty: type a sentence to search for."
        )
        expect(page.locator("#search-hits tbody tr")).to_have_count(0)
        query.fill("The goalkeeper saved the match.")
        page.locator("#explore-tabs .cross input").click()
        page.get_by_role("option", name="minilm-stsb (built in)").click()
        expect(page.locator("#search-hits table")).to_have_count(2)
        expect(page.locator("#search-hits caption").last).to_have_text(
            "Re-ranked by minilm-stsb, from the 16 nearest"
        )
        expect(page.locator("#search-status")).to_contain_text("for minilm-stsb to read 16 pairs")

    @pytest.mark.slow
    def test_another_corpus_opens_without_the_query_of_the_example(self, open_page):
        page = opened(open_page, "Search")
        expect(page.locator("#search-hits tbody tr")).to_have_count(10)
        open_text(page, EVIL, "The bank raised its rates.", "A dog.")
        expect(page.locator("#search-status")).to_have_text("Type a query, then press Search.")
        query = page.locator("#search-query textarea, #search-query input")
        expect(query).to_have_value("")
        query.fill("quantum chromodynamics")
        query.press("Enter")
        expect(page.locator("#search-status .problem")).to_contain_text(
            "Nothing here is similar to the query"
        )
        expect(page.locator("#search-hits tbody tr")).to_have_count(3)
        expect(page.locator("#search-hits")).to_contain_text(EVIL)
        assert page.locator("#search-hits img").count() == 0


class TestSimilarPairs:
    @pytest.mark.slow
    def test_number_threshold_repeats_and_the_file(self, open_page):
        page = opened(open_page, "Pairs and duplicates")
        expect(page.locator("#pairs-status")).to_contain_text("Press the button")
        page.click("#pairs-go")
        expect(page.locator("#pairs-table tbody tr")).to_have_count(20)
        expect(page.locator("#pairs-status")).to_contain_text("458 sentences, 104,653 pairs")
        expect(page.locator("#pairs-stop")).to_be_hidden()
        page.get_by_label("Hide identical text").uncheck()
        expect(page.locator("#pairs-status")).to_contain_text("461 sentences, 106,030 pairs")
        expect(page.locator("#pairs-table tbody tr").first).to_contain_text("1.000")
        slide(page, "#pairs-k", 7)
        expect(page.locator("#pairs-table tbody tr")).to_have_count(7)
        slide(page, "#pairs-threshold", 0.99)
        expect(page.locator("#pairs-table tbody tr")).to_have_count(4)
        rows = downloaded(page, "#pairs-csv")
        assert list(rows[0]) == ["cosine", "row1", "row2", "sentence1", "sentence2"]
        assert [float(row["cosine"]) >= 0.99 for row in rows] == [True] * 4
        slide(page, "#pairs-threshold", 1)
        page.get_by_label("Hide identical text").check()
        expect(page.locator("#pairs-table")).to_contain_text("no pair has a cosine of 1.00 or more")
        expect(page.locator("#pairs-csv")).to_be_hidden()

    @pytest.mark.slow
    def test_the_corpus_without_its_repetitions(self, open_page):
        page = opened(open_page, "Pairs and duplicates")
        page.click("#repeats-go")
        expect(page.locator("#repeats-status")).to_contain_text(
            "of 461 sentences are near-duplicates of an earlier one"
        )
        expect(page.locator("#repeats-status caption")).to_contain_text(
            "groups of duplicates, the largest first"
        )
        kept = int(re.search(r"([\d,]+) are kept", page.locator("#repeats-status").inner_text())[1])
        rows = downloaded(page, "#repeats-csv")
        assert len(rows) == kept < 461
        assert list(rows[0]) == ["sentence", "domain"]
        slide(page, "#repeats-threshold", 0.5)
        page.click("#repeats-go")
        expect(page.locator("#repeats-status")).to_contain_text("a cosine of 0.50 or more")
        expect(page.locator("#corpus-status")).to_contain_text(
            "near-duplicates (cosine 0.50 or more)"
        )
        expect(page.locator("#repeats-stop")).to_be_hidden()
        page.locator("#repeats-against input").fill("stsb:dev")
        page.locator("#repeats-against input").press("Enter")
        page.click("#repeats-go")
        expect(page.locator("#repeats-status")).to_contain_text("have a duplicate in stsb:dev")
        slide(page, "#repeats-threshold", 0.6)
        # No button was pressed.
        expect(page.locator("#repeats-status")).to_contain_text("a cosine of 0.60 or more")
        shared = downloaded(page, "#shared-csv")
        assert min(float(row["cosine"]) for row in shared) >= 0.6
        assert list(shared[0]) == ["cosine", "match", "match_row", "sentence", "domain"]
        assert len(shared) + len(downloaded(page, "#repeats-csv")) == 461


class TestClusters:
    @pytest.mark.slow
    def test_both_ways_their_bounds_and_the_file(self, open_page):
        page = opened(open_page, "Clusters")
        expect(page.locator("#clusters-table .group").first).to_be_visible()
        expect(page.locator("#clusters-status")).to_contain_text("HDBSCAN looks for dense groups")
        expect(page.locator("#clusters-table .outside")).to_contain_text("between the dense groups")
        small = clusters(page)
        slide(page, "#clusters-smallest", 15)
        expect(page.locator("#clusters-status .lead b")).not_to_have_text(f"{small} clusters")
        assert clusters(page) < small
        rows = downloaded(page, "#clusters-csv")
        assert len(rows) == 461
        assert list(rows[0]) == ["cluster", "keywords", "sentence", "domain"]

        page.get_by_label("Hierarchical (average linkage)").check()
        expect(page.locator("#clusters-status")).to_contain_text(
            "Average linkage on the cosines of all pairs"
        )
        expect(page.locator("#clusters-smallest")).to_be_hidden()
        many = clusters(page)
        slide(page, "#clusters-cosine", 0.2)
        expect(page.locator("#clusters-status .lead b")).not_to_have_text(f"{many} clusters")
        assert clusters(page) < many
        page.get_by_label("by number").check()
        expect(page.locator("#clusters-status")).to_contain_text("20 clusters of 461 sentences")
        slide(page, "#clusters-number", 6)
        expect(page.locator("#clusters-table .group")).to_have_count(6)
        expect(page.locator("#clusters-cosine")).to_be_hidden()
        page.click("#clusters-go")
        expect(page.locator("#clusters-status")).to_contain_text("6 clusters of 461 sentences")
        expect(page.locator("#clusters-stop")).to_be_hidden()
        assert {row["cluster"] for row in downloaded(page, "#clusters-csv")} == set("123456")

    @pytest.mark.slow
    def test_stop_stops(self, open_page):
        page = opened(open_page, "Clusters")
        expect(page.locator("#clusters-table .group").first).to_be_visible()
        choosing(page)
        page.get_by_label("Data set").check()
        page.click("#corpus-open")
        expect(page.locator("#corpus-status .file")).to_have_text("stsb:dev")
        expect(page.locator("#clusters-status")).to_have_text("Press Find clusters.")
        page.click("#clusters-go")
        expect(page.locator("#clusters-status [role=progressbar]")).to_be_visible()
        page.click("#clusters-stop")
        expect(page.locator("#clusters-status .problem")).to_have_text(
            "Stopped before there was a result."
        )
        expect(page.locator("#clusters-stop")).to_be_hidden()


def test_hubs_and_outliers_are_counted_listed_and_shown_on_the_map(open_page):
    page = opened(open_page, "Hubs and outliers")
    page.click("#unusual-go")
    expect(page.locator("#unusual-tables h2").first).to_contain_text(
        re.compile(r"Hubs: \d+ of 461 sentences")
    )
    page.locator("#unusual-tables [data-show-layer=hubs]").click()
    expect(page.locator("#map-layers button")).to_have_text(re.compile(r"hubs \(\d+\)"))
