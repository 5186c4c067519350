"""Which pages and tabs must not import each other is read from the folder; an import between two is seen."""

import grimp
import pytest

from sbert_app.pages import PAGES
from sbert_app.pages.evaluate.page import TABS as EVALUATE
from sbert_app.pages.explore.page import TABS as EXPLORE
from scripts.independent_parts import IndependentParts, parts_of


@pytest.mark.parametrize(
    ("package", "listed"),
    [("sbert_app.pages", zip(PAGES)), ("sbert_app.pages.evaluate", EVALUATE), ("sbert_app.pages.explore", EXPLORE)],
)
def test_they_are_what_the_app_shows(package, listed):
    assert parts_of(package) == sorted(f"{package}.{module}" for module, *_ in listed)


@pytest.mark.parametrize("imported", ["cost", "pickers"])
def test_a_tab_may_import_what_is_no_tab(imported):
    graph = grimp.ImportGraph()
    graph.add_module("sbert_app.pages.evaluate.pickers")
    for part in parts_of("sbert_app.pages.evaluate"):
        graph.add_module(part)
    graph.add_import(importer="sbert_app.pages.evaluate.labels", imported=f"sbert_app.pages.evaluate.{imported}")
    contract = IndependentParts("tabs", {}, {"package": "sbert_app.pages.evaluate"})
    assert contract.check(graph, verbose=False).kept == (imported == "pickers")
