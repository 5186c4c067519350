"""The panel beside the map: the selected sentences, their common words, and links that take them to other pages.

A lasso or a box on the map (assets/explore.js) and words in the sentences select sentences. The
selection is a list of rows of the corpus, so it survives another colour, dimension and model.
"""

from collections.abc import Iterable, Sequence
from math import isnan
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options, run_js
from sbert_app.pages.components.templates import macro
from sbert_app.pages.explore.open_corpus import OpenCorpus, SelectedRows, require_open, shorten
from sbert_app.services.clusters.summary import Subset, containing, describe_subset, save_subset
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.open_corpora import MAX_PAIRED
from training.errors import UserFacingError

# (label, Plotly's name) of the modes of dragging.
DRAG_CHOICES = [("move", "pan"), ("lasso", "lasso"), ("box", "select")]
SET_DRAG = "(mode) => { document.getElementById('map-plot')?.setAttribute('data-drag', mode); return mode; }"
# The number of sentences in the list and in the table; the file has all of them.
MAX_LISTED = 50
MAX_SHOWN = 1_000
HEADERS = ["row", "cosine", "sentence"]
# The selected rows for assets/explore.js, which highlights them on the map.
HIDDEN_ROWS = '<i hidden data-layer="selected" data-corpus="{corpus}" data-rows="{rows}"></i>'


class SelectedPanel:
    """The components and their event handlers.

    The map calls `build_drag_choice`, `build_panel` and `build_table`, and then `wire`.

    Attributes:
        selection: the state with the `SelectedRows`.
        column: the parts of the panel that are hidden while nothing is selected.
        lists: the tabs beside the map, one of which has this panel.
    """

    def __init__(self, services: Services, open_corpus: gr.State) -> None:
        self.services = services
        self.open_corpus = open_corpus
        self.selection = gr.State(SelectedRows())

    def build_drag_choice(self) -> None:
        """Builds the choice of what dragging on the map does."""
        self.drag = gr.Radio(
            DRAG_CHOICES,
            value="pan",
            label="Dragging",
            min_width=220,
            container=False,
            elem_id="map-drag",
        )

    def build_panel(self, lists: gr.Tabs) -> None:
        """Builds the panel in the open tab, one of ``lists``. A selection switches to this tab."""
        self.lists = lists
        self.words = gr.Textbox(
            label="Select sentences that contain",
            placeholder="words, then Enter; or draw a lasso on the map",
            max_lines=1,
            elem_id="map-words",
        )
        with gr.Column(visible=False, elem_id="selected") as self.column:
            self.summary = gr.HTML(elem_id="selected-summary")
            with gr.Row(elem_classes="actions"):
                self.download = gr.DownloadButton("Download CSV", size="sm", elem_id="selected-csv")
                self.clear = gr.Button("Clear selection", size="sm", elem_id="selected-clear")
            self.links = gr.HTML(elem_id="selected-links")
        # explore.js reads the selected rows here, and highlights them on the map.
        self.rows = gr.HTML(visible="hidden", elem_id="selected-rows")

    def build_table(self) -> None:
        """Builds the table of the selected sentences. A press on a row lists its nearest sentences."""
        self.table = gr.Dataframe(
            headers=HEADERS,
            interactive=False,
            visible=False,
            wrap=True,
            max_height=380,
            show_label=False,
            show_search="filter",
            buttons=[],
            elem_id="selected-table",
        )

    @property
    def outputs(self) -> list[Any]:
        return [
            self.selection,
            self.column,
            self.summary,
            self.table,
            self.download,
            self.links,
            self.rows,
            self.lists,
        ]

    def wire(self, map_events: Any) -> None:
        """Connects the components. The select event of ``map_events`` has the rows of a lasso or a box."""
        run_js(self.drag.change, SET_DRAG, self.drag)
        map_events.select(
            self.pick_drawn,
            [self.open_corpus, self.selection],
            self.outputs,
            **event_options(),
        )
        self.words.submit(
            self.pick_words, [self.open_corpus, self.words], self.outputs, **event_options()
        )
        self.clear.click(
            lambda open_corpus: self._show(open_corpus, ()),
            self.open_corpus,
            self.outputs,
            **event_options(),
        )

    def show_corpus(self, open_corpus: OpenCorpus | None, selection: SelectedRows) -> Update:
        """Shows the selection in a corpus that was just opened. It stays if only the model is new, or else is empty."""
        if open_corpus is None or selection.corpus != open_corpus.corpus:
            selection = SelectedRows()
        return self._show(open_corpus, selection.rows)

    def pick_drawn(
        self, open_corpus: OpenCorpus | None, selection: SelectedRows, event: gr.EventData
    ) -> Update:
        """Selects the rows inside a lasso or a box, in addition to the selected ones if the event says ``add``."""
        rows = set(map(int, event.rows))
        if event.add:
            rows.update(selection.rows)
        return self._show(open_corpus, rows)

    def pick_words(self, open_corpus: OpenCorpus | None, words: str) -> Update:
        """Selects the rows whose sentence contains ``words``, in place of the selected ones."""
        try:
            corpus = self.services.embeddings.corpus(require_open(open_corpus).corpus)
            rows = containing(corpus, words)
        except UserFacingError as error:
            return self._problem(error)
        return self._show(open_corpus, rows)

    def _show(self, open_corpus: OpenCorpus | None, rows: Iterable[int]) -> Update:
        """Returns the update that shows the selected rows, or the error that prevents it."""
        if open_corpus is None:
            return self._empty(key="")
        try:
            embedded = open_corpus.embed(self.services.embeddings)
            subset = describe_subset(embedded, rows)
            if not len(subset):
                return self._empty(open_corpus.corpus)
            return self._filled(open_corpus.corpus, subset, embedded.corpus)
        except UserFacingError as error:
            return self._problem(error)

    def _problem(self, error: UserFacingError) -> Update:
        """Returns the update that shows an error in the panel."""
        return {self.column: gr.update(visible=True), self.summary: messages.error_message(error)}

    def _empty(self, key: str) -> Update:
        """Returns the update that hides the panel, as nothing is selected.

        ``key`` is the key of the open corpus; "" without one.
        """
        return {
            self.selection: SelectedRows(),
            self.column: gr.update(visible=False),
            self.table: gr.update(visible=False),
            self.rows: HIDDEN_ROWS.format(corpus=key, rows=""),
        }

    def _filled(self, key: str, subset: Subset, corpus: Corpus) -> Update:
        """Returns the update that shows the selected sentences of the corpus with this key."""
        rows = subset.rows.tolist()
        sentences = [corpus.sentences[row] for row in rows]
        # The links carry the token, by which other pages read the sentences.
        token = self.services.shared_sentences.put(sentences)
        file = save_subset(subset, corpus, self.services.temp.new_folder("explore"))
        first = [shorten(sentence) for sentence in sentences[:MAX_LISTED]]
        listed = zip(subset.cosines[:MAX_LISTED].tolist(), first, strict=True)
        return {
            self.selection: SelectedRows(key, tuple(rows)),
            self.column: gr.update(visible=True),
            self.summary: macro("explore/selected_summary")(subset, list(listed)),
            self.table: gr.update(value=selected_table(subset, corpus), visible=True),
            self.lists: gr.Tabs(selected="selected"),
            self.download: str(file),
            self.links: selected_links(sentences, token),
            self.rows: HIDDEN_ROWS.format(corpus=key, rows=",".join(map(str, rows))),
        }


def selected_table(subset: Subset, corpus: Corpus) -> dict[str, Any]:
    """Returns the value of the table: the first selected sentences with the columns of the corpus."""
    cells = []
    rows = subset.rows[:MAX_SHOWN].tolist()
    for row, cosine in zip(rows, subset.cosines[:MAX_SHOWN].tolist(), strict=True):
        # A single sentence has no cosine.
        rounded = None if isnan(cosine) else round(cosine, 3)
        others = [values[row] for values in corpus.columns.values()]
        cells.append([row + 1, rounded, shorten(corpus.sentences[row]), *others])
    return {"headers": [*HEADERS, *corpus.columns], "data": cells}


def selected_links(sentences: Sequence[str], token: str) -> Markup:
    """Renders links to the pages that can take the selected sentences, which are stored under ``token``."""
    count = len(sentences)
    if 2 <= count <= MAX_PAIRED:
        return macro("explore/selected_links")(token, pairs=count * (count - 1) // 2)
    limit = f"up to {MAX_PAIRED} sentences, with every pair of them"
    if count < 2:
        limit = "two sentences or more"
    return macro("explore/selected_links")(token, pairs=0, remark=f"Compare and Bulk take {limit}.")
