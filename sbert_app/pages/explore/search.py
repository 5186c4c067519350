"""The search beside the map: the sentences nearest to a query, optionally re-ranked by a cross-encoder."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import Update, event_options
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.components.messages import lead, waiting
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER, cross_encoder_picker
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.explore.open_corpus import OpenCorpus, Shared, shorten
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.corpus.embedded import MAX_EXACT
from sbert_app.services.corpus.search import Hit, SearchResult, check_query, search

COSINE_IS_DOT_PRODUCT = (
    "All embeddings have length 1, so their dot product is their cosine: one matrix product compares the query with "
    "many sentences at once."
)
EXACT = "Every sentence is compared: the result is exact."
APPROXIMATE = (
    f"Above {MAX_EXACT:,} sentences an index of rounded embeddings finds candidates: the cosines are exact, but a near "
    "sentence may be missed."
)

NO_QUERY = "Type a query, then press Search."
FIRST_QUERY = "The bank did not change the interest rate."


def build(services: Services, shared: Shared) -> None:
    """Builds the list inside the open gr.Tab; a first query is answered when the example is opened."""
    open_corpus = shared.open_corpus
    with gr.Row(elem_classes="search-row"):
        query = gr.Textbox(
            FIRST_QUERY,
            label="Search by meaning",
            max_lines=3,
            container=False,
            min_width=180,
            elem_id="search-query",
        )
        start = gr.Button("Search", variant="primary", elem_id="search-go", scale=0, min_width=90)
    status = gr.HTML(waiting("Waiting for the corpus …"), elem_id="search-status")
    results = gr.HTML(elem_id="search-hits")
    with gr.Accordion("Number of results, cross-encoder", open=False, elem_id="search-settings"):
        k = gr.Slider(1, 100, 10, step=1, label="Results", elem_id="search-k")
        cross_encoder = cross_encoder_picker(NO_CROSS_ENCODER, elem_id="search-cross")
    tab = MeasureTab(services, "search", status)

    def run(
        watch: Watch, open_corpus: OpenCorpus, query: str, k: int, cross_encoder: str | None
    ) -> Update:
        """Searches the corpus. If a cross-encoder is chosen, it re-ranks the nearest sentences."""
        check_query(query or "", int(k))
        embedded = open_corpus.embed(services.embeddings)
        name = cross_encoder or NO_CROSS_ENCODER
        # Loading takes seconds, so it is a stage of its own.
        if name != NO_CROSS_ENCODER and not services.models.has(name):
            watch.report(0, f"Loading {name}")
        reranker = services.models.cross_encoder_or_none(name)
        watch.report(0, "Searching")
        encoder = open_corpus.query_encoder(services.models, embedded.vectors.shape[1])
        result = search(embedded, query, encoder, int(k), reranker)
        return {status: search_status(result), results: hits(result)}

    def reset_query(open_corpus: OpenCorpus | None, query_text: str) -> Update:
        """Replaces an empty query, and the query of the example when another corpus is opened."""
        if open_corpus is None:
            # Gradio does not take an empty dictionary for updates.
            return {query: gr.skip()}
        is_out_of_place = query_text == FIRST_QUERY and not open_corpus.is_example
        if query_text.strip() and not is_out_of_place:
            return {query: gr.skip()}
        first = FIRST_QUERY if open_corpus.is_example else ""
        return {query: first, status: lead(NO_QUERY), results: ""}

    inputs = [open_corpus, query, k, cross_encoder]
    changed = open_corpus.change(
        reset_query, [open_corpus, query], [query, status, results], **event_options()
    )

    def answer_on(events: Any, unless: Callable[..., bool]) -> None:
        tab.on(
            events,
            tab.handler(run, {results: ""}, unless=unless),
            inputs,
            [results],
            concurrency_limit=4,
        )

    # After the opening of a corpus an empty query is not an error.
    answer_on(changed.then, lambda open_corpus, query, *_: open_corpus is None or not query.strip())
    presses = [start.click, query.submit, k.release, cross_encoder.input]
    answer_on(presses, lambda open_corpus, *_: open_corpus is None)


def search_status(result: SearchResult) -> Markup:
    """Renders the time of each step of the search, and whether its result is exact."""
    how = EXACT if result.exact else f"{APPROXIMATE} {result.index_note}"
    return macro("explore/search_status")(
        result=result, explanation=f"{COSINE_IS_DOT_PRODUCT} {how}"
    )


def hits(result: SearchResult) -> Markup:
    """Renders the nearest sentences by cosine, and beside them their order by the cross-encoder, if one is chosen."""
    return render(
        "explore/templates/hits.html",
        result=result,
        by_cosine=_distinct(result.by_cosine),
        by_cross=_distinct(result.by_cross),
        shorten=shorten,
    )


def _distinct(ranked: Sequence[Hit]) -> list[tuple[Hit, int]]:
    """Returns for each distinct sentence the first hit and the number of hits."""
    times = Counter(hit.sentence for hit in ranked)
    first: dict[str, Hit] = {}
    for hit in ranked:
        first.setdefault(hit.sentence, hit)
    return [(hit, times[sentence]) for sentence, hit in first.items()]
