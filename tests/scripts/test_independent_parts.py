"""Which pages and tabs must not import each other is read from the folder; an import between two is seen."""

import grimp
import pytest

from sbert_app.pages import PAGES
from sbert_app.pages.evaluate.page import TABS as EVALUATE
from sbert_app.pages.explore.page import TABS as EXPLORE
from scripts.independent_parts import IndependentParts, parts_of


@pytest.mark.parametrize(
    ("package", "modules"),
    [
        ("sbert_app.pages", {f"sbert_app.pages.{name}" for name in PAGES}),
        ("sbert_app.pages.evaluate", {build.__module__ for build, *_ in EVALUATE}),
        ("sbert_app.pages.explore", {build.__module__ for build, *_ in EXPLORE}),
    ],
)
def test_they_are_what_the_app_shows(package, modules):
    assert parts_of(package) == sorted(modules)


@pytest.mark.parametrize("imported", ["cost", "pickers"])
def test_a_tab_may_import_what_is_no_tab(imported):
    graph = grimp.ImportGraph()
    graph.add_module("sbert_app.pages.evaluate.pickers")
    for part in parts_of("sbert_app.pages.evaluate"):
        graph.add_module(part)
    graph.add_import(importer="sbert_app.pages.evaluate.labels", imported=f"sbert_app.pages.evaluate.{imported}")
    contract = IndependentParts("tabs", {}, {"package": "sbert_app.pages.evaluate"})
    assert contract.check(graph, verbose=False).kept == (imported == "pickers")
