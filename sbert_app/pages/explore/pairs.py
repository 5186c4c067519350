"""The Similar pairs tab of the Explore page: the most similar of all pairs, and the corpus without its repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.explore import views
from sbert_app.pages.explore.view import View, space_of
from sbert_app.services.container import Services
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.similar import (
    MAX_PAIRS,
    NearDuplicates,
    SimilarPairs,
    find_near_duplicates,
    save_pairs,
    save_without_near_duplicates,
    similar_pairs,
)
from training.errors import InputError

UNASKED = 20_000  # sentences up to which the pairs are found without a press of the button


def build(services: Services, view: gr.State) -> None:
    """Lay the tab out inside the open gr.Tab; the pairs of a corpus are found when it is opened."""
    _Tab(services, view).wire()


class _Tab:
    """The components of the tab, and what happens to them."""

    def __init__(self, services: Services, view: gr.State) -> None:
        self.services, self.view = services, view
        self.folder = services.settings.temp_folder / "explore"
        with gr.Row(elem_classes="explore-controls"):
            self.k = gr.Slider(1, MAX_PAIRS, 20, step=1, label="How many", elem_id="pairs-k", min_width=240)
            self.threshold = gr.Slider(
                0, 1, 0.5, step=0.01, label="Cosine at least", elem_id="pairs-threshold", min_width=240
            )
            self.hide = gr.Checkbox(
                True,
                label="Hide the same text",
                info="Pairs that differ in case, spaces or punctuation alone",
                elem_id="pairs-hide",
                container=True,
                min_width=240,
            )
        with gr.Row(elem_classes="actions"):
            self.go = gr.Button("Find the most similar pairs", variant="primary", elem_id="pairs-go")
            self.halt = gr.Button("Stop", interactive=False, elem_id="pairs-stop")
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="pairs-csv")
        self.status = gr.HTML('<div class="waiting">Waiting for the corpus …</div>', elem_id="pairs-status")
        self.table = gr.HTML(elem_id="pairs-table")
        gr.HTML('<h3 class="section">The corpus without its repetitions</h3>')
        with gr.Row(elem_classes="explore-controls"):
            self.same = gr.Slider(
                0.5,
                1,
                0.95,
                step=0.01,
                label="A sentence repeats another from this cosine on",
                elem_id="repeats-threshold",
                min_width=240,
            )
        with gr.Row(elem_classes="actions"):
            self.find = gr.Button("Find repetitions", elem_id="repeats-go")
            self.hold = gr.Button("Stop", interactive=False, elem_id="repeats-stop")
            self.without = gr.DownloadButton("Download what is kept", visible=False, elem_id="repeats-csv")
        self.repeated = gr.HTML(elem_id="repeats-status")
        self.pairs = TaskWidget("pairs", self.status, self.halt)
        self.repeats = TaskWidget("repeats", self.repeated, self.hold)

    def wire(self) -> None:
        """Connect the components with what they do."""
        slow: dict[str, Any] = {"concurrency_limit": 2, "trigger_mode": "always_last", **PRIVATE}
        asked = [self.view, self.k, self.threshold, self.hide]
        shown = [self.status, self.table, self.download, self.halt]
        opened = self.view.change(self.opened, asked, [*shown, self.repeated, self.without], **slow)
        again = [self.go.click, self.k.release, self.threshold.release, self.hide.input]
        found = gr.on(again, self.run, asked, shown, **slow)
        self.pairs.wire(self.services, opened, found)
        repeated = [self.repeated, self.without, self.hold]
        self.repeats.wire(self.services, self.find.click(self.run_repeats, [self.view, self.same], repeated, **slow))

    def opened(self, view: View | None, k: int, threshold: float, hide: bool, request: gr.Request) -> Iterator[Update]:
        """A corpus is open: find its pairs at once, or say how many there are to compare."""
        if view is None:
            return
        yield {self.repeated: "", self.without: gr.update(visible=False), **self._without_pairs()}
        n = len(self.services.embeddings.corpus(view.corpus))
        if n <= UNASKED:
            yield from self.run(view, k, threshold, hide, request)
        else:
            words = f"{n:,} sentences make {n * (n - 1) // 2:,} pairs: press the button to compare them."
            yield {self.status: f'<p class="lead">{words}</p>'}

    def run(self, view: View | None, k: int, threshold: float, hide: bool, request: gr.Request) -> Iterator[Update]:
        """Find the pairs that the controls ask for."""

        def work(tell: Any, should_stop: Any) -> tuple[EmbeddedCorpus, SimilarPairs, Path]:
            space = space_of(self.services, _opened(view))
            told = _told(tell, f"Comparing {len(space):,} sentences, each with each")
            found = similar_pairs(space, int(k), float(threshold), hide, told, should_stop)
            return space, found, save_pairs(found, space.corpus, self.folder)

        def show(result: tuple[EmbeddedCorpus, SimilarPairs, Path]) -> Update:
            space, found, path = result
            return {
                self.status: views.pairs_cards(found, space),
                self.table: views.pairs_table(found, space.corpus, float(threshold)),
                self.download: gr.DownloadButton(value=path, visible=bool(found.pairs)),
            }

        yield from self.pairs.run(self.services, request, work, show, self._without_pairs())

    def run_repeats(self, view: View | None, threshold: float, request: gr.Request) -> Iterator[Update]:
        """Find the sentences that repeat an earlier one."""

        def work(tell: Any, should_stop: Any) -> tuple[EmbeddedCorpus, NearDuplicates, Path]:
            space = space_of(self.services, _opened(view))
            told = _told(tell, f"Reading {len(space):,} sentences in order")
            found = find_near_duplicates(space, float(threshold), told, should_stop)
            return space, found, save_without_near_duplicates(found, space.corpus, self.folder)

        def show(result: tuple[EmbeddedCorpus, NearDuplicates, Path]) -> Update:
            space, found, path = result
            return {
                self.repeated: views.repeats_line(found, space.corpus),
                self.without: gr.DownloadButton(value=path, visible=True),
            }

        yield from self.repeats.run(self.services, request, work, show, {self.without: gr.update(visible=False)})

    def _without_pairs(self) -> Update:
        return {self.table: "", self.download: gr.update(visible=False)}


def _opened(view: View | None) -> View:
    if view is None:
        raise InputError("no corpus is open yet.")
    return view


def _told(tell: Callable[..., None], words: str) -> Callable[[int, int], None]:
    return lambda done, count: tell(done / count, words)
