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
from sbert_app.services.corpus.neighbours import Unusual, find_unusual

MAX_LISTED = 200  # of each kind
PRESS = lead("Press the button to compare each sentence with its nearest ones.")


def build(services: Services, shared: Shared) -> None:
    ids = ("unusual-go", "unusual-stop", "unusual-status")
    tab = MeasureTab.build(services, "unusual", "Find hubs and outliers", ids, PRESS)
    tables = gr.HTML(elem_id="unusual-tables")

    def find(watch: Watch, open_corpus: OpenCorpus | None) -> Update:
        embedded = opened(open_corpus).embed(services.embeddings)
        comparing = watch.stage(f"Looking for the nearest of {len(embedded):,} sentences")
        found = find_unusual(embedded, services.embeddings.cache, comparing)
        return {tab.status: "", tables: unusual_tables(found, embedded.corpus)}

    tab.wire(find, [shared.open_corpus], {tables: ""})
    cleared = {tables: "", tab.status: PRESS}
    shared.open_corpus.change(lambda: cleared, None, list(cleared), **PRIVATE)


def unusual_tables(found: Unusual, corpus: Corpus) -> Markup:
    """How many hubs and outliers there are, and the first of each."""
    hubs, outliers = ([*each[:MAX_LISTED].tolist()] for each in (found.hubs, found.outliers))
    return render(
        "explore/templates/unusual.html",
        k=found.k,
        sentences=len(corpus),
        counts=(len(found.hubs), len(found.outliers)),
        hubs=[(int(found.found_by[row]), shorten(corpus.sentences[row])) for row in hubs],
        outliers=[(float(found.closeness[row]), shorten(corpus.sentences[row])) for row in outliers],
        rows=(hubs, outliers),
    )
