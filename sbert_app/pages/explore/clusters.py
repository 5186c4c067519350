"""The Clusters tab of the Explore page: groups by density or as a tree, with their words and sentences."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.explore import views
from sbert_app.pages.explore.view import View, space_of
from sbert_app.services.clusters.clustering import HDBSCAN, HIERARCHICAL, MAX_TREE_SENTENCES, ClusterSettings, cluster
from sbert_app.services.clusters.summary import Cluster, describe_clusters, save_labels
from sbert_app.services.container import Services
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from training.errors import InputError

BY_COSINE, BY_NUMBER = "cosine", "number"
WAITING = '<p class="lead">Press Find clusters.</p>'


def build(services: Services, view: gr.State) -> None:
    """Lay the tab out inside the open gr.Tab; the clusters of a corpus are found when the tab is opened."""
    _Tab(services, view, gr.context.Context.block).wire()


class _Result(NamedTuple):
    space: EmbeddedCorpus
    found: list[Cluster]
    path: Path
    seconds: float


class _Tab:
    """The components of the tab, and what happens to them."""

    def __init__(self, services: Services, view: gr.State, tab: Any) -> None:
        self.services, self.view, self.tab = services, view, tab
        self.shown_for = gr.State(None)  # the view whose clusters are shown
        self.folder = services.settings.temp_folder / "explore"
        default = ClusterSettings()
        with gr.Row(elem_classes="explore-controls"):
            self.method = gr.Radio(
                [("Dense groups (HDBSCAN)", HDBSCAN), ("A tree (hierarchical)", HIERARCHICAL)],
                value=HDBSCAN,
                label="Way",
                info=f"The tree: up to {MAX_TREE_SENTENCES:,} sentences",
                elem_id="clusters-method",
                min_width=240,
            )
            self.smallest = gr.Slider(
                2,
                200,
                default.min_cluster_size,
                step=1,
                label="Smallest cluster",
                elem_id="clusters-smallest",
                min_width=200,
            )
            self.cut = gr.Radio(
                [("by cosine", BY_COSINE), ("by number", BY_NUMBER)],
                value=BY_COSINE,
                label="Cut the tree",
                visible=False,
                elem_id="clusters-cut",
                min_width=200,
            )
            self.cosine = gr.Slider(
                0,
                1,
                default.min_cosine,
                step=0.01,
                label="Groups stay apart below this mean cosine",
                visible=False,
                elem_id="clusters-cosine",
                min_width=220,
            )
            self.number = gr.Slider(
                1,
                500,
                20,
                step=1,
                label="How many clusters",
                visible=False,
                elem_id="clusters-number",
                min_width=220,
            )
        with gr.Row(elem_classes="actions"):
            self.go = gr.Button("Find clusters", variant="primary", elem_id="clusters-go")
            self.halt = gr.Button("Stop", interactive=False, elem_id="clusters-stop")
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="clusters-csv")
        self.status = gr.HTML('<div class="waiting">Waiting for the corpus …</div>', elem_id="clusters-status")
        self.table = gr.HTML(elem_id="clusters-table")
        self.place = TaskWidget("clusters", self.status, self.halt)

    def wire(self) -> None:
        """Connect the components with what they do."""
        slow: dict[str, Any] = {"concurrency_limit": 2, "trigger_mode": "always_last", **PRIVATE}
        asked = [self.view, self.method, self.smallest, self.cut, self.cosine, self.number]
        shown = [self.status, self.table, self.download, self.halt, self.shown_for]
        choices = [self.smallest, self.cut, self.cosine, self.number]
        gr.on([self.method.change, self.cut.change], _choose, [self.method, self.cut], choices, queue=False, **PRIVATE)
        self.view.change(self.opened, None, [self.status, self.table, self.download, self.shown_for], **PRIVATE)
        again = [
            *(self.go.click, self.method.input, self.cut.input),
            *(self.smallest.release, self.cosine.release, self.number.release),
        ]
        visited = self.tab.select(self.visit, [self.shown_for, *asked], shown, **slow)
        self.place.wire(self.services, visited, gr.on(again, self.run, asked, shown, **slow))

    def opened(self) -> Update:
        """Another corpus is open: nothing of the last one."""
        return {self.status: WAITING, self.shown_for: None, **self._nothing()}

    def visit(self, shown_for: View | None, request: gr.Request, view: View | None, *said: Any) -> Iterator[Update]:
        """The tab is opened: find the clusters, if they are not shown already."""
        if view is not None and shown_for != view:
            yield from self.run(request, view, *said)

    def run(self, request: gr.Request, view: View | None, *said: Any) -> Iterator[Update]:
        """Find the clusters that the controls ask for."""
        method, smallest, cut, cosine, number = said

        def work(tell: Any, should_stop: Any) -> _Result:
            if view is None:
                raise InputError("no corpus is open yet.")
            space = space_of(self.services, view)
            wanted = min(int(number), len(space)) if cut == BY_NUMBER else None
            settings = ClusterSettings(method, int(smallest), float(cosine), wanted)
            started = time.perf_counter()
            spaces = self.services.embeddings
            labels = cluster(space, settings, spaces.cache, spaces.home, tell, should_stop)
            found = describe_clusters(space, labels)
            seconds = time.perf_counter() - started
            return _Result(space, found, save_labels(space.corpus, found, self.folder), seconds)

        def show(result: _Result) -> Update:
            return {
                self.status: views.clusters_line(result.found, result.space, method, result.seconds),
                self.table: views.clusters_table(result.found, result.space.corpus),
                self.download: gr.DownloadButton(value=result.path, visible=True),
                self.shown_for: view,
            }

        yield from self.place.run(self.services, request, work, show, self._nothing())

    def _nothing(self) -> Update:
        return {self.table: "", self.download: gr.update(visible=False)}


def _choose(method: str, cut: str) -> list[Any]:
    """Show the bounds that belong to the way."""
    is_tree = method == HIERARCHICAL
    visible = (not is_tree, is_tree, is_tree and cut == BY_COSINE, is_tree and cut == BY_NUMBER)
    return [gr.update(visible=each) for each in visible]
