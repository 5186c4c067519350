"""The Search tab of the Explore page: the sentences nearest to a query, optionally re-ranked by a cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import waiting
from sbert_app.pages.components.pickers import cross_encoder_picker
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.explore import views
from sbert_app.pages.explore.selection import Selection, Shared
from sbert_app.services.container import Services
from sbert_app.services.corpus.search import SearchResult, check_query, search
from sbert_app.services.tasks import ReportProgress, ShouldStop

FIRST_QUERY = "The bank did not change the interest rate."


def build(services: Services, shared: Shared) -> None:
    """Build the tab inside the open gr.Tab; the first query is answered when a corpus is open."""
    selection = shared.selection
    with gr.Row(elem_classes="explore-controls"):
        query = gr.Textbox(
            FIRST_QUERY, label="Query", info="A sentence, a question, a few words", elem_id="search-query", scale=4
        )
        k = gr.Slider(1, 100, 10, step=1, label="Number of results", elem_id="search-k", scale=2, min_width=180)
        cross_encoder = cross_encoder_picker("none")
        start = gr.Button("Search", variant="primary", elem_id="search-go", scale=0, min_width=120)
    status = gr.HTML(waiting("Waiting for the corpus …"), elem_id="search-status")
    results = gr.HTML(elem_id="search-hits")
    task = TaskWidget("search", status)

    def run(
        selection: Selection | None, query: str, k: int, cross_encoder: str | None, request: gr.Request
    ) -> Iterator[Update]:
        if selection is None:
            yield {status: gr.skip()}  # a generator that yields nothing would clear its outputs
            return

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> SearchResult:
            check_query(query or "", int(k))
            return _search(services, selection, query, int(k), cross_encoder, report_progress)

        def show(result: SearchResult) -> Update:
            return {status: views.search_status(result), results: views.hits(result)}

        yield from task.run(services, request, work, show, {results: ""})

    events = [selection.change, start.click, query.submit, k.release, cross_encoder.input]
    searched = gr.on(
        events,
        run,
        [selection, query, k, cross_encoder],
        [status, results],
        concurrency_limit=4,
        trigger_mode="always_last",
        **PRIVATE,
    )
    task.wire(services, searched)


def _search(
    services: Services,
    selection: Selection,
    query: str,
    k: int,
    cross_encoder: str | None,
    report_progress: ReportProgress,
) -> SearchResult:
    """The answer; reports when a model has to be loaded first."""
    embedded = selection.embed(services.embeddings)
    if cross_encoder and cross_encoder != "none" and not services.models.has("cross-encoder", cross_encoder):
        report_progress(0, f"Loading {cross_encoder}")
    reranker = services.models.cross_encoder_or_none(cross_encoder)
    report_progress(0, "Searching")
    return search(embedded, query, services.models.encoder(selection.model, selection.pooling, "query"), k, reranker)
