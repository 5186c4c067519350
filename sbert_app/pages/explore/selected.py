"""The panel beside the map: the selected sentences, their common words, and links that take them to other pages.

A lasso or a box on the map (assets/explore.js) and words in the sentences select sentences. The selection is a list of
rows of the corpus, so it survives another colour, dimension and model.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options
from sbert_app.pages.components.templates import macro
from sbert_app.pages.explore.open_corpus import OpenCorpus, SelectedRows, opened, shorten
from sbert_app.services.clusters.summary import Subset, containing, describe_subset, save_subset
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.open_corpora import MAX_PAIRED
from training.errors import UserFacingError

# Plotly's names of the modes of dragging.
PAN, LASSO, BOX = "pan", "lasso", "select"
DRAG_CHOICES = [("move", PAN), ("lasso", LASSO), ("box", BOX)]
SET_DRAG = "(mode) => { document.getElementById('map-plot')?.setAttribute('data-drag', mode); return mode; }"
# The list and the table show so many sentences, the file all.
MAX_LISTED, MAX_SHOWN = 50, 1_000
HIDDEN_ROWS = '<i hidden data-layer="selected" data-corpus="{corpus}" data-rows="{rows}"></i>'


class SelectedPanel:
    """The components and their event handlers: `build_drag`, `build_panel` and `build_table`, then `wire`."""

    def __init__(self, services: Services, open_corpus: gr.State) -> None:
        self.services, self.open_corpus = services, open_corpus
        self.picked = gr.State(SelectedRows())

    def build_drag(self) -> None:
        """Builds the choice of what dragging on the map does."""
        options = {"min_width": 220, "container": False, "elem_id": "map-drag"}
        self.drag = gr.Radio(DRAG_CHOICES, value=PAN, label="Dragging", **options)

    def build_panel(self, lists: gr.Tabs) -> None:
        """Builds the list in one of the tabs of ``lists``, which a selection opens."""
        self.lists = lists
        label, hint = "Select sentences that contain", "words, then Enter; or draw a lasso on the map"
        self.words = gr.Textbox(label=label, placeholder=hint, max_lines=1, elem_id="map-words")
        with gr.Column(visible=False, elem_id="selected") as self.column:
            self.summary = gr.HTML(elem_id="selected-summary")
            with gr.Row(elem_classes="actions"):
                self.download = gr.DownloadButton("Download CSV", size="sm", elem_id="selected-csv")
                self.clear = gr.Button("Clear selection", size="sm", elem_id="selected-clear")
            self.links = gr.HTML(elem_id="selected-links")
        self.rows = gr.HTML(visible="hidden", elem_id="selected-rows")

    def build_table(self) -> None:
        """Builds the table of the selected sentences with all columns of the corpus; a row lists its nearest ones."""
        look = {"wrap": True, "max_height": 380, "show_label": False, "show_search": "filter", "buttons": []}
        options = {"headers": ["row", "cosine", "sentence"], "interactive": False, "visible": False, **look}
        self.table = gr.Dataframe(elem_id="selected-table", **options)

    @property
    def outputs(self) -> list[Any]:
        texts = [self.summary, self.table, self.download, self.links, self.rows]
        return [self.picked, self.column, *texts, self.lists]

    def wire(self, plot: Any) -> None:
        """Connects the components; the select event of ``plot`` has the rows of a lasso or a box."""
        self.drag.change(None, self.drag, None, js=SET_DRAG, **event_options())
        state = [self.open_corpus, self.picked]
        plot.select(self.pick_drawn, state, self.outputs, **event_options())
        self.words.submit(self.pick_words, [self.open_corpus, self.words], self.outputs, **event_options())
        self.clear.click(lambda corpus: self._show(corpus, ()), self.open_corpus, self.outputs, **event_options())

    def opened(self, open_corpus: OpenCorpus | None, picked: SelectedRows) -> Update:
        """Clears the selection when another corpus is opened; the same corpus under another model keeps it."""
        if open_corpus is None or picked.corpus != open_corpus.corpus:
            picked = SelectedRows()
        return self._show(open_corpus, picked.rows)

    def pick_drawn(self, open_corpus: OpenCorpus | None, picked: SelectedRows, event: gr.EventData) -> Update:
        """Selects the rows inside a lasso or a box; with ``add``, in addition to the selected ones."""
        rows = map(int, event.rows)
        return self._show(open_corpus, {*picked.rows, *rows} if event.add else rows)

    def pick_words(self, open_corpus: OpenCorpus | None, words: str) -> Update:
        try:
            corpus = self.services.embeddings.corpus(opened(open_corpus).corpus)
            return self._show(open_corpus, containing(corpus, words))
        except UserFacingError as error:
            return self._problem(error)

    def _show(self, open_corpus: OpenCorpus | None, rows: Iterable[int]) -> Update:
        """Shows the selected rows, or the error that prevents it."""
        try:
            return self._selected(open_corpus, rows)
        except UserFacingError as error:
            return self._problem(error)

    def _problem(self, error: UserFacingError) -> Update:
        return {self.column: gr.update(visible=True), self.summary: messages.error_message(error)}

    def _selected(self, open_corpus: OpenCorpus | None, rows: Iterable[int]) -> Update:
        embedded = None if open_corpus is None else open_corpus.embed(self.services.embeddings)
        subset = None if embedded is None else describe_subset(embedded, rows)
        if open_corpus is None or embedded is None or subset is None or not len(subset):
            nothing = HIDDEN_ROWS.format(corpus=open_corpus.corpus if open_corpus else "", rows="")
            hidden = gr.update(visible=False)
            return {self.column: hidden, self.table: hidden, self.rows: nothing, self.picked: SelectedRows()}
        sentences = [embedded.corpus.sentences[row] for row in subset.rows.tolist()]
        token = self.services.shared_sentences.put(sentences)
        listed = [*zip(subset.cosines.tolist(), map(shorten, sentences), strict=True)][:MAX_LISTED]
        return {
            self.picked: SelectedRows(open_corpus.corpus, tuple(subset.rows.tolist())),
            self.column: gr.update(visible=True),
            self.summary: macro("explore/selected_summary")(subset, listed),
            self.table: gr.update(value=selected_table(subset, embedded.corpus), visible=True),
            self.lists: gr.Tabs(selected="selected"),
            self.download: str(save_subset(subset, embedded.corpus, self.services.temp.new_folder("explore"))),
            self.links: selected_links(sentences, token),
            self.rows: HIDDEN_ROWS.format(corpus=open_corpus.corpus, rows=",".join(map(str, subset.rows.tolist()))),
        }


def selected_table(subset: Subset, corpus: Corpus) -> dict[str, Any]:
    """The value of the table: the first selected sentences with the columns of the corpus."""
    rows = subset.rows[:MAX_SHOWN].tolist()
    cosines = [None if cosine != cosine else round(cosine, 3) for cosine in subset.cosines[:MAX_SHOWN].tolist()]
    cells = [
        [row + 1, cosine, shorten(corpus.sentences[row]), *(values[row] for values in corpus.columns.values())]
        for row, cosine in zip(rows, cosines, strict=True)
    ]
    return {"headers": ["row", "cosine", "sentence", *corpus.columns], "data": cells}


def selected_links(sentences: Sequence[str], token: str) -> Markup:
    """Links to the pages that can take the selected sentences, which are stored under ``token``."""
    count = len(sentences)
    if 2 <= count <= MAX_PAIRED:
        return macro("explore/selected_links")(token, pairs=count * (count - 1) // 2)
    most = f"up to {MAX_PAIRED} sentences, with every pair of them"
    remark = f"Compare and Bulk take {'two sentences or more' if count < 2 else most}."
    return macro("explore/selected_links")(token, pairs=0, remark=remark)
