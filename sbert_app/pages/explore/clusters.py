"""The Clusters tab of the Explore page: clusters by density or from a tree, with their keywords and sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.explore import views
from sbert_app.pages.explore.selection import Clustering, Selection, Shared
from sbert_app.services.clusters.clustering import (
    HDBSCAN,
    HIERARCHICAL,
    K_MEANS,
    MAX_TREE_SENTENCES,
    ClusterSettings,
    cluster,
)
from sbert_app.services.clusters.edits import ClusterEdits, EditedClusters, edit_store, edited, edits_key, merge, rename
from sbert_app.services.clusters.summary import Cluster, describe_clusters, save_labels
from sbert_app.services.container import Services
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError, UserFacingError

BY_COSINE, BY_NUMBER = "cosine", "number"
MAX_CLUSTERS = 500
PRESS_BUTTON = messages.lead("Press Find clusters.")


def build(services: Services, shared: Shared) -> None:
    """Build the tab inside the open gr.Tab; the clusters of a corpus are found when the tab is opened."""
    _ClustersTab(services, shared, gr.context.Context.block).wire()


class _Result(NamedTuple):
    embedded: EmbeddedCorpus
    groups: list[Cluster]
    path: Path
    seconds: float
    clustering: Clustering


class _ClustersTab:
    """The components and their event handlers."""

    def __init__(self, services: Services, shared: Shared, tab: Any) -> None:
        self.services, self.tab = services, tab
        self.selection, self.clustering = shared.selection, shared.clustering
        self.edits = edit_store(services.settings.home)
        self.shown_for = gr.State(None)  # the selection whose clusters are shown
        default = ClusterSettings()
        with gr.Row(elem_classes="explore-controls"):
            self.method = gr.Radio(
                [
                    ("Density (HDBSCAN)", HDBSCAN),
                    ("k-means (mini-batch)", K_MEANS),
                    ("Hierarchical (average linkage)", HIERARCHICAL),
                ],
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
        with gr.Accordion("Rename and merge", open=False, visible=False, elem_id="clusters-edit") as self.edit:
            with gr.Row(elem_classes="explore-controls"):
                self.renamed = gr.Dropdown(label="Cluster", elem_id="clusters-renamed", min_width=200)
                self.name = gr.Textbox(
                    label="Name", placeholder="empty: its keywords", max_lines=1, elem_id="clusters-name", min_width=160
                )
                self.rename = gr.Button("Rename", elem_id="clusters-rename", scale=0, min_width=110)
                self.merged = gr.Dropdown(
                    label="Clusters to merge", multiselect=True, elem_id="clusters-merged", min_width=220
                )
                self.merge = gr.Button("Merge", elem_id="clusters-merge", scale=0, min_width=110)
            with gr.Row(elem_classes="actions"):
                self.undo = gr.Button("Undo all names and merges", size="sm", elem_id="clusters-undo")
            self.edit_note = gr.HTML(elem_id="clusters-edit-note")
        self.table = gr.HTML(elem_id="clusters-table")
        self.task = TaskWidget("clusters", self.status, stop)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        slow: dict[str, Any] = {"concurrency_limit": 2, "trigger_mode": "always_last", **PRIVATE}
        inputs = [self.selection, self.clustering, self.method, self.smallest, self.cut, self.cosine, self.number]
        edit_parts = [self.edit, self.renamed, self.merged, self.edit_note]
        cleared = [self.status, self.table, self.download, self.shown_for, *edit_parts]
        outputs = list(dict.fromkeys([*self.task.outputs, *cleared, self.clustering]))
        bounds = [self.smallest, self.cut, self.cosine, self.number]
        gr.on([self.method.change, self.cut.change], _show_bounds, [self.method, self.cut], bounds, **UNQUEUED)
        self.selection.change(self.opened, None, cleared, **PRIVATE)
        edits = [
            *(self.start.click, self.method.input, self.cut.input),
            *(self.smallest.release, self.cosine.release, self.number.release),
        ]
        visited = self.tab.select(self.visit, [self.shown_for, *inputs], outputs, **slow)
        self.task.wire(self.services, visited, gr.on(edits, self.find, inputs, outputs, **slow))
        found = [self.selection, self.clustering]
        changed = [self.clustering, self.edit_note, self.name]
        for events, handler, values in (
            ([self.rename.click, self.name.submit], self.rename_cluster, [self.renamed, self.name]),
            ([self.merge.click], self.merge_clusters, [self.merged]),
            ([self.undo.click], self.undo_edits, []),
        ):
            edit = gr.on(events, handler, [*found, *values], changed, **PRIVATE)
            self.task.wire(self.services, edit.then(self.find, inputs, outputs, **slow))

    def opened(self) -> Update:
        """Another corpus was opened: clear the clusters of the last one."""
        return {self.status: PRESS_BUTTON, self.shown_for: None, self.edit_note: "", **self._no_clusters()}

    def visit(
        self,
        shown_for: Selection | None,
        request: gr.Request,
        selection: Selection | None,
        clustering: Clustering,
        *controls: Any,
    ) -> Iterator[Update]:
        """The tab was opened: find the clusters, unless they are shown already."""
        if selection is not None and shown_for != selection:
            yield from self.find(request, selection, clustering, *controls)
        else:
            yield {self.status: gr.skip()}  # a generator that yields nothing would clear its outputs

    def find(
        self, request: gr.Request, selection: Selection | None, clustering: Clustering, *controls: Any
    ) -> Iterator[Update]:
        """Find the clusters that the controls ask for."""
        method, smallest, cut, cosine, number = controls

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> _Result:
            if selection is None:
                raise InputError("no corpus is open yet.")
            embeddings = self.services.embeddings
            embedded = selection.embed(embeddings)
            count = min(int(number), len(embedded)) if method == K_MEANS or cut == BY_NUMBER else None
            settings = ClusterSettings(method, int(smallest), float(cosine), count)
            started = time.perf_counter()
            labels = cluster(
                embedded, settings, embeddings.cache, embeddings.home, report_progress, should_stop, embeddings.limits
            )
            found = edited(labels, self.edits.get(edits_key(embedded, settings)))
            groups = describe_clusters(embedded, found.labels, found.names)
            seconds = time.perf_counter() - started
            path = save_labels(embedded.corpus, groups, self.services.temp.results("explore"))
            return _Result(embedded, groups, path, seconds, Clustering(settings, clustering.changes))

        def show(result: _Result) -> Update:
            choices = [(views.cluster_choice(group), group.number - 1) for group in result.groups if group.number]
            return {
                self.status: views.clusters_status(result.groups, result.embedded, method, result.seconds),
                self.table: views.clusters(result.groups, result.embedded.corpus),
                self.download: gr.DownloadButton(value=result.path, visible=True),
                self.shown_for: selection,
                self.clustering: result.clustering,
                self.edit: gr.update(visible=bool(choices)),
                self.renamed: gr.Dropdown(choices, value=choices[0][1] if choices else None),
                self.merged: gr.Dropdown(choices, value=[]),
            }

        yield from self.task.run(self.services, request, work, show, self._no_clusters())

    def rename_cluster(
        self, selection: Selection | None, clustering: Clustering, label: int | None, name: str
    ) -> Update:
        """Give a cluster a name."""

        def change(key: str, found: EditedClusters) -> None:
            if label is None:
                raise InputError("choose a cluster to rename.")
            rename(self.edits, key, found, int(label), name or "")

        return self._change(selection, clustering, change)

    def merge_clusters(self, selection: Selection | None, clustering: Clustering, labels: list[int]) -> Update:
        """Make one cluster of several."""
        return self._change(
            selection, clustering, lambda key, found: merge(self.edits, key, found, list(map(int, labels)))
        )

    def undo_edits(self, selection: Selection | None, clustering: Clustering) -> Update:
        """Take back all names and merges of these clusters."""

        def change(key: str, _: EditedClusters) -> None:
            self.edits.change(key, lambda _: ClusterEdits())

        return self._change(selection, clustering, change)

    def _change(
        self, selection: Selection | None, clustering: Clustering, change: Callable[[str, EditedClusters], None]
    ) -> Update:
        """Change the clusters that are shown, or say why that is not possible."""
        try:
            if selection is None:
                raise InputError("no corpus is open yet.")
            embeddings = self.services.embeddings
            embedded, settings = selection.embed(embeddings), clustering.settings
            key = edits_key(embedded, settings)
            labels = cluster(embedded, settings, embeddings.cache, embeddings.home, limits=embeddings.limits)
            change(key, edited(labels, self.edits.get(key)))
        except UserFacingError as error:
            return {self.edit_note: messages.error_message(error)}
        return {self.clustering: Clustering(settings, clustering.changes + 1), self.edit_note: "", self.name: ""}

    def _no_clusters(self) -> Update:
        return {self.table: "", self.download: gr.update(visible=False), self.edit: gr.update(visible=False)}


def _show_bounds(method: str, cut: str) -> list[Any]:
    """Show the controls that belong to the method."""
    is_tree = method == HIERARCHICAL
    by_number = method == K_MEANS or (is_tree and cut == BY_NUMBER)
    visible = (method == HDBSCAN, is_tree, is_tree and cut == BY_COSINE, by_number)
    return [gr.update(visible=each) for each in visible]
