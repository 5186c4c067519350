"""The Search tab of the Explore page: a query in, the nearest sentences out, perhaps re-ranked by a cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.pages.components.pickers import cross_encoder_picker
from sbert_app.pages.explore import views
from sbert_app.pages.explore.view import View, space_of
from sbert_app.services.container import Services
from sbert_app.services.corpus.search import SearchResult, check_query, search
from sbert_app.services.tasks import TaskProgress, TaskResult
from training.errors import InputError, Stopped

FIRST_QUERY = "The bank did not change the interest rate."
Shown = tuple[str, Any]  # the line, the hits


def build(services: Services, view: gr.State) -> None:
    """Lay the tab out inside the open gr.Tab; the first query is answered when a corpus is open."""
    with gr.Row(elem_classes="explore-controls"):
        query = gr.Textbox(
            FIRST_QUERY, label="Query", info="A sentence, a question, a few words", elem_id="search-query", scale=4
        )
        k = gr.Slider(1, 100, 10, step=1, label="How many", elem_id="search-k", scale=2, min_width=180)
        cross = cross_encoder_picker("none")
        go = gr.Button("Search", variant="primary", elem_id="search-go", scale=0, min_width=120)
    line = gr.HTML('<div class="waiting">Waiting for the corpus …</div>', elem_id="search-status")
    found = gr.HTML(elem_id="search-hits")

    def run(view: View | None, query: str, k: int, cross: str | None, request: gr.Request) -> Iterator[Shown]:
        if view is None:
            return
        try:
            check_query(query or "", int(k))
            yield from _searched(services, view, query, int(k), cross, request)
        except InputError as error:
            yield error_message(error), ""
        except Stopped:  # by the next query
            yield gr.skip(), gr.skip()

    def failed() -> Shown:
        return error_message(INTERNAL_ERROR), ""

    slow: dict[str, Any] = {"concurrency_limit": 4, "trigger_mode": "always_last", **PRIVATE}
    edits = [view.change, go.click, query.submit, k.release, cross.input]
    gr.on(edits, run, [view, query, k, cross], [line, found], **slow).failure(failed, None, [line, found], **PRIVATE)


def _searched(
    services: Services, view: View, query: str, k: int, cross: str | None, request: gr.Request
) -> Iterator[Shown]:
    """The answer; while a model loads, words."""
    space = space_of(services, view)

    def work(tell: Any, should_stop: Any) -> SearchResult:
        if cross and cross != "none" and not services.models.has("cross-encoder", cross):
            tell(0, f"Loading {cross}")
        crosser = services.models.cross_encoder_or_none(cross)
        tell(0, "Searching")
        return search(space, query, services.models.encoder(view.model, view.pooling), k, crosser)

    for event in services.tasks.run(f"{request.session_hash} search", "Searching", work):
        if isinstance(event, TaskResult):
            yield views.search_line(event.value, space), views.hits(event.value)
        elif isinstance(event, TaskProgress):
            yield progress_bar(event), gr.skip()
