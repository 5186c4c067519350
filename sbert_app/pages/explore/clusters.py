"""The Clusters tab of the Explore page: clusters by density or from a tree, with their keywords and sentences."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.explore import views
from sbert_app.pages.explore.selection import Selection
from sbert_app.services.clusters.clustering import (
    HDBSCAN,
    HIERARCHICAL,
    MAX_TREE_SENTENCES,
    ClusterSettings,
    cluster,
)
from sbert_app.services.clusters.summary import Cluster, describe_clusters, save_labels
from sbert_app.services.container import Services
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError

BY_COSINE, BY_NUMBER = "cosine", "number"
MAX_CLUSTERS = 500
PRESS_BUTTON = messages.lead("Press Find clusters.")


def build(services: Services, selection: gr.State) -> None:
    """Build the tab inside the open gr.Tab; the clusters of a corpus are found when the tab is opened."""
    _ClustersTab(services, selection, gr.context.Context.block).wire()


class _Result(NamedTuple):
    embedded: EmbeddedCorpus
    groups: list[Cluster]
    path: Path
    seconds: float


class _ClustersTab:
    """The components and their event handlers."""

    def __init__(self, services: Services, selection: gr.State, tab: Any) -> None:
        self.services, self.selection, self.tab = services, selection, tab
        self.shown_for = gr.State(None)  # the selection whose clusters are shown
        self.folder = services.settings.temp_folder / "explore"
        default = ClusterSettings()
        with gr.Row(elem_classes="explore-controls"):
            self.method = gr.Radio(
                [("Density (HDBSCAN)", HDBSCAN), ("Hierarchical (average linkage)", HIERARCHICAL)],
                value=HDBSCAN,
                label="Method",
                info=f"Hierarchical: up to {MAX_TREE_SENTENCES:,} sentences",
                elem_id="clusters-method",
                min_width=240,
            )
            self.smallest = gr.Slider(
                2,
                200,
                default.min_cluster_size,
                step=1,
                label="Minimum cluster size",
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
                label="Minimum mean cosine of merged groups",
                visible=False,
                elem_id="clusters-cosine",
                min_width=220,
            )
            self.number = gr.Slider(
                1,
                MAX_CLUSTERS,
                20,
                step=1,
                label="Number of clusters",
                visible=False,
                elem_id="clusters-number",
                min_width=220,
            )
        with gr.Row(elem_classes="actions"):
            self.start = gr.Button("Find clusters", variant="primary", elem_id="clusters-go")
            stop = gr.Button("Stop", interactive=False, elem_id="clusters-stop")
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="clusters-csv")
        self.status = gr.HTML(messages.waiting("Waiting for the corpus …"), elem_id="clusters-status")
        self.table = gr.HTML(elem_id="clusters-table")
        self.task = TaskWidget("clusters", self.status, stop)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        slow: dict[str, Any] = {"concurrency_limit": 2, "trigger_mode": "always_last", **PRIVATE}
        inputs = [self.selection, self.method, self.smallest, self.cut, self.cosine, self.number]
        cleared = [self.status, self.table, self.download, self.shown_for]
        outputs = list(dict.fromkeys([*self.task.outputs, *cleared]))
        bounds = [self.smallest, self.cut, self.cosine, self.number]
        gr.on([self.method.change, self.cut.change], _show_bounds, [self.method, self.cut], bounds, **UNQUEUED)
        self.selection.change(self.opened, None, cleared, **PRIVATE)
        edits = [
            *(self.start.click, self.method.input, self.cut.input),
            *(self.smallest.release, self.cosine.release, self.number.release),
        ]
        visited = self.tab.select(self.visit, [self.shown_for, *inputs], outputs, **slow)
        self.task.wire(self.services, visited, gr.on(edits, self.find, inputs, outputs, **slow))

    def opened(self) -> Update:
        """Another corpus was opened: clear the clusters of the last one."""
        return {self.status: PRESS_BUTTON, self.shown_for: None, **self._no_clusters()}

    def visit(
        self, shown_for: Selection | None, request: gr.Request, selection: Selection | None, *controls: Any
    ) -> Iterator[Update]:
        """The tab was opened: find the clusters, unless they are shown already."""
        if selection is not None and shown_for != selection:
            yield from self.find(request, selection, *controls)
        else:
            yield {self.status: gr.skip()}  # a generator that yields nothing would clear its outputs

    def find(self, request: gr.Request, selection: Selection | None, *controls: Any) -> Iterator[Update]:
        """Find the clusters that the controls ask for."""
        method, smallest, cut, cosine, number = controls

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> _Result:
            if selection is None:
                raise InputError("no corpus is open yet.")
            embeddings = self.services.embeddings
            embedded = selection.embed(embeddings)
            count = min(int(number), len(embedded)) if cut == BY_NUMBER else None
            settings = ClusterSettings(method, int(smallest), float(cosine), count)
            started = time.perf_counter()
            labels = cluster(embedded, settings, embeddings.cache, embeddings.home, report_progress, should_stop)
            groups = describe_clusters(embedded, labels)
            seconds = time.perf_counter() - started
            return _Result(embedded, groups, save_labels(embedded.corpus, groups, self.folder), seconds)

        def show(result: _Result) -> Update:
            return {
                self.status: views.clusters_status(result.groups, result.embedded, method, result.seconds),
                self.table: views.clusters(result.groups, result.embedded.corpus),
                self.download: gr.DownloadButton(value=result.path, visible=True),
                self.shown_for: selection,
            }

        yield from self.task.run(self.services, request, work, show, self._no_clusters())

    def _no_clusters(self) -> Update:
        return {self.table: "", self.download: gr.update(visible=False)}


def _show_bounds(method: str, cut: str) -> list[Any]:
    """Show the controls that belong to the method."""
    is_tree = method == HIERARCHICAL
    visible = (not is_tree, is_tree, is_tree and cut == BY_COSINE, is_tree and cut == BY_NUMBER)
    return [gr.update(visible=each) for each in visible]
