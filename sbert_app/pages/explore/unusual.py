"""The Hubs and outliers tab of the Explore page: sentences that are near to too many others, or to none."""

from __future__ import annotations

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import PRIVATE, Update
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.components.messages import lead
from sbert_app.pages.components.templates import render
from sbert_app.pages.explore.open_corpus import OpenCorpus, Shared, opened, shorten
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.unusual import Unusual, find_unusual

MAX_LISTED = 200  # of each kind
PRESS = lead("Press the button to compare each sentence with its nearest ones.")


def build(services: Services, shared: Shared) -> None:
    ids = ("unusual-go", "unusual-stop", "unusual-status")
    tab = MeasureTab.build(services, "unusual", "Find hubs and outliers", ids, PRESS)
    tables = gr.HTML(elem_id="unusual-tables")

    def find(watch: Watch, open_corpus: OpenCorpus | None) -> Update:
        embedded = opened(open_corpus).embed(services.embeddings)
        comparing = watch.stage(f"Looking for the nearest of {len(embedded):,} sentences")
        unusual = find_unusual(embedded, services.embeddings.cache, comparing)
        return {tab.status: "", tables: unusual_tables(unusual, embedded.corpus)}

    tab.wire(find, [shared.open_corpus], {tables: ""})
    cleared = {tables: "", tab.status: PRESS}
    shared.open_corpus.change(lambda: cleared, None, list(cleared), **PRIVATE)


def unusual_tables(unusual: Unusual, corpus: Corpus) -> Markup:
    """How many hubs and outliers there are, and the first of each."""
    hubs, outliers = ([*rows[:MAX_LISTED].tolist()] for rows in (unusual.hubs, unusual.outliers))
    return render(
        "explore/templates/unusual.html",
        k=unusual.k,
        sentences=len(corpus),
        counts=(len(unusual.hubs), len(unusual.outliers)),
        hubs=[(int(unusual.found_by[row]), shorten(corpus.sentences[row])) for row in hubs],
        outliers=[(float(unusual.closeness[row]), shorten(corpus.sentences[row])) for row in outliers],
        rows=(hubs, outliers),
    )
