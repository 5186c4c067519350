"""The Similar pairs tab of the Explore page: the most similar of all pairs, and the corpus without near-duplicates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.formats import format_estimate
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.explore import views
from sbert_app.pages.explore.selection import Selection, Shared
from sbert_app.services.container import Services
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.pairs import estimate_seconds
from sbert_app.services.corpus.similar import (
    MAX_PAIRS,
    NearDuplicates,
    SimilarPairs,
    find_near_duplicates,
    save_pairs,
    save_without_near_duplicates,
    similar_pairs,
)
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError

MAX_AUTOMATIC = 20_000  # sentences up to which the pairs are found without a press of the button


def build(services: Services, shared: Shared) -> None:
    """Build the tab inside the open gr.Tab; the pairs of a corpus are found when it is opened."""
    _PairsTab(services, shared.selection).wire()


class _PairsTab:
    """The components and their event handlers."""

    def __init__(self, services: Services, selection: gr.State) -> None:
        self.services, self.selection = services, selection
        with gr.Row(elem_classes="explore-controls"):
            self.k = gr.Slider(1, MAX_PAIRS, 20, step=1, label="Number of pairs", elem_id="pairs-k", min_width=240)
            self.threshold = gr.Slider(
                0, 1, 0.5, step=0.01, label="Minimum cosine", elem_id="pairs-threshold", min_width=240
            )
            self.hide = gr.Checkbox(
                True,
                label="Hide identical text",
                info="Pairs that differ only in case, spaces or punctuation",
                elem_id="pairs-hide",
                container=True,
                min_width=240,
            )
        with gr.Row(elem_classes="actions"):
            self.start = gr.Button("Find the most similar pairs", variant="primary", elem_id="pairs-go")
            stop = gr.Button("Stop", interactive=False, elem_id="pairs-stop")
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="pairs-csv")
        self.status = gr.HTML(messages.waiting("Waiting for the corpus …"), elem_id="pairs-status")
        self.table = gr.HTML(elem_id="pairs-table")
        self.pairs_task = TaskWidget("pairs", self.status, stop)
        gr.HTML(messages.section("The corpus without near-duplicates"))
        with gr.Row(elem_classes="explore-controls"):
            self.duplicate_threshold = gr.Slider(
                0.5,
                1,
                0.95,
                step=0.01,
                label="Minimum cosine of a near-duplicate",
                elem_id="repeats-threshold",
                min_width=240,
            )
        with gr.Row(elem_classes="actions"):
            self.start_duplicates = gr.Button("Find near-duplicates", elem_id="repeats-go")
            stop_duplicates = gr.Button("Stop", interactive=False, elem_id="repeats-stop")
            self.download_kept = gr.DownloadButton(
                "Download CSV without near-duplicates", visible=False, elem_id="repeats-csv"
            )
        self.duplicates = gr.HTML(elem_id="repeats-status")
        self.duplicates_task = TaskWidget("near-duplicates", self.duplicates, stop_duplicates)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        slow: dict[str, Any] = {"concurrency_limit": 2, "trigger_mode": "always_last", **PRIVATE}
        inputs = [self.selection, self.k, self.threshold, self.hide]
        outputs = [*self.pairs_task.outputs, self.table, self.download]
        cleared = [self.duplicates, self.download_kept]
        opened = self.selection.change(self.opened, inputs, [*outputs, *cleared], **slow)
        edits = [self.start.click, self.k.release, self.threshold.release, self.hide.input]
        self.pairs_task.wire(self.services, opened, gr.on(edits, self.find_pairs, inputs, outputs, **slow))
        searched = self.start_duplicates.click(
            self.find_duplicates,
            [self.selection, self.duplicate_threshold],
            [*self.duplicates_task.outputs, self.download_kept],
            **slow,
        )
        self.duplicates_task.wire(self.services, searched)

    def opened(
        self, selection: Selection | None, k: int, threshold: float, hide: bool, request: gr.Request
    ) -> Iterator[Update]:
        """A corpus was opened: find its pairs at once, or say how many there are to compare."""
        if selection is None:
            yield {self.status: gr.skip()}  # a generator that yields nothing would clear its outputs
            return
        yield {self.duplicates: "", self.download_kept: gr.update(visible=False), **self._no_pairs()}
        n = len(self.services.embeddings.corpus(selection.corpus))
        if n <= MAX_AUTOMATIC:
            yield from self.find_pairs(selection, k, threshold, hide, request)
        else:
            text = f"{n:,} sentences make {n * (n - 1) // 2:,} pairs: press the button to compare them"
            estimate = format_estimate(estimate_seconds(selection.embed(self.services.embeddings).vectors))
            yield {self.status: messages.lead(f"{text} exactly, in about {estimate} on this machine.")}

    def find_pairs(
        self, selection: Selection | None, k: int, threshold: float, hide: bool, request: gr.Request
    ) -> Iterator[Update]:
        """Find the most similar pairs."""

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> tuple[EmbeddedCorpus, SimilarPairs, Path]:
            embedded = _require(selection).embed(self.services.embeddings)
            on_progress = _reporter(report_progress, f"Comparing {len(embedded):,} sentences, each with each")
            found = similar_pairs(embedded, int(k), float(threshold), hide, on_progress, should_stop)
            return embedded, found, save_pairs(found, embedded.corpus, self.services.temp.results("explore"))

        def show(result: tuple[EmbeddedCorpus, SimilarPairs, Path]) -> Update:
            embedded, found, path = result
            return {
                self.status: views.pairs_cards(found, embedded),
                self.table: views.pairs_table(found, embedded.corpus, float(threshold)),
                self.download: gr.DownloadButton(value=path, visible=bool(found.pairs)),
            }

        yield from self.pairs_task.run(self.services, request, work, show, self._no_pairs())

    def find_duplicates(self, selection: Selection | None, threshold: float, request: gr.Request) -> Iterator[Update]:
        """Find the sentences that are near-duplicates of an earlier one."""

        def work(
            report_progress: ReportProgress, should_stop: ShouldStop
        ) -> tuple[EmbeddedCorpus, NearDuplicates, Path]:
            embedded = _require(selection).embed(self.services.embeddings)
            on_progress = _reporter(report_progress, f"Reading {len(embedded):,} sentences in order")
            found = find_near_duplicates(embedded, float(threshold), on_progress, should_stop)
            return (
                embedded,
                found,
                save_without_near_duplicates(found, embedded.corpus, self.services.temp.results("explore")),
            )

        def show(result: tuple[EmbeddedCorpus, NearDuplicates, Path]) -> Update:
            embedded, found, path = result
            return {
                self.duplicates: views.near_duplicates(found, embedded.corpus),
                self.download_kept: gr.DownloadButton(value=path, visible=True),
            }

        on_error = {self.download_kept: gr.update(visible=False)}
        yield from self.duplicates_task.run(self.services, request, work, show, on_error)

    def _no_pairs(self) -> Update:
        return {self.table: "", self.download: gr.update(visible=False)}


def _require(selection: Selection | None) -> Selection:
    if selection is None:
        raise InputError("no corpus is open yet.")
    return selection


def _reporter(report_progress: ReportProgress, step: str) -> Callable[[int, int], None]:
    return lambda done, total: report_progress(done / total, step)
