"""The export of the open corpus for Apple's embedding-atlas: vectors, map and clusters as Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.components.templates import render
from sbert_app.pages.explore.selection import Clustering, Selection, Shared
from sbert_app.services.atlas.export import cluster_titles, export_corpus
from sbert_app.services.atlas.writing import AtlasSummary
from sbert_app.services.clusters.clustering import cluster
from sbert_app.services.clusters.edits import edit_store, edited, edits_key
from sbert_app.services.container import Services
from sbert_app.services.corpus.export import remove_old
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError


class AtlasExport:
    """The components and their event handler."""

    def __init__(self, services: Services, shared: Shared) -> None:
        self.services, self.shared = services, shared
        with gr.Row(elem_classes="actions"):
            self.start = gr.Button("Export for embedding-atlas", size="sm", elem_id="atlas-go")
            stop = gr.Button("Stop", size="sm", interactive=False, elem_id="atlas-stop")
            self.file = gr.DownloadButton("Download Parquet", size="sm", visible=False, elem_id="atlas-file")
            self.labels = gr.DownloadButton("Download cluster names", size="sm", visible=False, elem_id="atlas-labels")
        self.status = gr.HTML(elem_id="atlas-status")
        self.task = TaskWidget("atlas", self.status, stop, self.start)

    def wire(self, neighbours: Any, min_dist: Any, seed: Any) -> None:
        """Connect the button; the map that is exported has the settings of these components, in 2-D."""
        inputs = [self.shared.selection, self.shared.clustering, neighbours, min_dist, seed]
        outputs = [*self.task.outputs, self.file, self.labels]
        exported = self.start.click(self.export, inputs, outputs, concurrency_limit=1, **PRIVATE)
        self.task.wire(self.services, exported)
        self.shared.selection.change(self._cleared, None, [self.status, self.file, self.labels], **PRIVATE)

    def export(
        self,
        selection: Selection | None,
        clustering: Clustering,
        neighbours: int,
        min_dist: float,
        seed: int | None,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Write the files and offer them."""

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> AtlasSummary:
            if selection is None:
                raise InputError("no corpus is open yet.")
            embeddings = self.services.embeddings
            embedded, settings = selection.embed(embeddings), clustering.settings
            report_progress(0, "Clustering")
            cache, home, limits = embeddings.cache, embeddings.home, embeddings.limits
            labels = cluster(embedded, settings, cache, home, report_progress, should_stop, limits)
            found = edited(labels, edit_store(home).get(edits_key(embedded, settings)))
            titles = cluster_titles(embedded.corpus, found.labels, found.names)
            results = self.services.temp.results("explore")
            remove_old(results)
            folder = results / token_hex(8)
            folder.mkdir(parents=True)
            drawn = MapSettings(2, int(neighbours), float(min_dist), int(seed or 0))
            return export_corpus(
                embedded,
                found.labels,
                titles,
                folder / "atlas.parquet",
                drawn,
                cache,
                home,
                limits,
                report_progress,
                should_stop,
            )

        def show(summary: AtlasSummary) -> Update:
            return {
                self.status: render("explore/templates/atlas.html", summary=summary),
                self.file: gr.DownloadButton(value=summary.output, visible=True),
                self.labels: gr.DownloadButton(value=summary.labels, visible=summary.clusters > 0),
            }

        yield from self.task.run(self.services, request, work, show, self._cleared())

    def _cleared(self) -> Update:
        hidden = gr.update(visible=False)
        return {self.status: "", self.file: hidden, self.labels: hidden}
