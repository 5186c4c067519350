"""The panel beside the map: the selected sentences, their common words, and links that take them to other pages.

A lasso or a box on the map (assets/explore.js), words in the sentences, and saved groups select sentences. The
selection is a list of rows of the corpus, so it survives another colour, dimension and model.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.map import COLOURS
from sbert_app.formats import format_count
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE, Update
from sbert_app.pages.components.templates import macro
from sbert_app.pages.explore.open_corpus import OpenCorpus, SelectedRows, opened, shorten
from sbert_app.services.clusters.edits import Group, delete_group, group_store, groups_of, save_group
from sbert_app.services.clusters.summary import Subset, containing, describe_subset, save_subset
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.open_corpora import MAX_PAIRED
from training.errors import UserFacingError

# Plotly's names of the modes of dragging.
PAN, LASSO, BOX = "pan", "lasso", "select"
DRAG_CHOICES = [("move", PAN), ("lasso", LASSO), ("box", BOX)]
SET_DRAG = "(mode) => { document.getElementById('map-plot')?.setAttribute('data-drag', mode); return mode; }"
NO_GROUP = ""
# The list and the table show so many sentences, the file all.
MAX_LISTED, MAX_SHOWN = 50, 1_000
HIDDEN_ROWS = '<i hidden data-layer="selected" data-corpus="{corpus}" data-rows="{rows}"></i>'


class SelectedPanel:
    """The components and their event handlers: `build_drag`, `build_panel` and `build_table`, then `wire`."""

    def __init__(self, services: Services, open_corpus: gr.State) -> None:
        self.services, self.open_corpus = services, open_corpus
        self.groups = group_store(services.settings.home)
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
        label, none = "Select a group", [("none", NO_GROUP)]
        self.group = gr.Dropdown(none, value=NO_GROUP, label=label, visible=False, elem_id="map-group")
        with gr.Column(visible=False, elem_id="selected") as self.column:
            self.summary = gr.HTML(elem_id="selected-summary")
            with gr.Row(elem_classes="actions"):
                self.download = gr.DownloadButton("Download CSV", size="sm", elem_id="selected-csv")
                self.clear = gr.Button("Clear selection", size="sm", elem_id="selected-clear")
            self.links = gr.HTML(elem_id="selected-links")
            with gr.Row(elem_classes="group-form"):
                options = {"placeholder": "its name", "max_lines": 1, "min_width": 130}
                self.name = gr.Textbox(label="Save as a group", elem_id="group-name", **options)
                options = {"label": "Colour", "min_width": 100, "elem_id": "group-colour"}
                self.colour = gr.Dropdown(list(COLOURS), value=COLOURS[0], **options)
            with gr.Row(elem_classes="actions"):
                self.save = gr.Button("Save group", size="sm", elem_id="group-save")
                self.delete = gr.Button("Delete group", size="sm", visible=False, elem_id="group-delete")
            self.note = gr.HTML(elem_id="group-note")
        self.rows = gr.HTML(visible="hidden", elem_id="selected-rows")

    def build_table(self) -> None:
        """Builds the table of the selected sentences with all columns of the corpus; a row lists its nearest ones."""
        look = {"wrap": True, "max_height": 380, "show_label": False, "show_search": "filter", "buttons": []}
        options = {"headers": ["row", "cosine", "sentence"], "interactive": False, "visible": False, **look}
        self.table = gr.Dataframe(elem_id="selected-table", **options)

    @property
    def outputs(self) -> list[Any]:
        parts = [self.picked, self.column, self.summary, self.table, self.download, self.links, self.rows, self.note]
        return [*parts, self.group, self.delete, self.name, self.colour, self.lists]

    def wire(self, plot: Any) -> tuple[Any, Any]:
        """Connects the components; the select event of ``plot`` has the rows of a lasso or a box.

        Returns the events after which a group was saved, and deleted.
        """
        self.drag.change(None, self.drag, None, js=SET_DRAG, **PRIVATE)
        state = [self.open_corpus, self.picked]
        plot.select(self.pick_drawn, state, self.outputs, **PRIVATE)
        self.words.submit(self.pick_words, [self.open_corpus, self.words], self.outputs, **PRIVATE)
        self.group.input(self.pick_group, [self.open_corpus, self.group], self.outputs, **PRIVATE)
        self.clear.click(lambda corpus: self._show(corpus, ()), self.open_corpus, self.outputs, **PRIVATE)
        presses, group = [self.save.click, self.name.submit], [*state, self.name, self.colour]
        saving = gr.on(presses, self.keep, group, self.outputs, **PRIVATE)
        return saving, self.delete.click(self.forget, state, self.outputs, **PRIVATE)

    def opened(self, open_corpus: OpenCorpus | None, picked: SelectedRows) -> Update:
        """Clears the selection when another corpus is opened; the same corpus under another model keeps it."""
        if open_corpus is None or picked.corpus != open_corpus.corpus:
            picked = SelectedRows()
        return self._show(open_corpus, picked.rows, picked.group)

    def pick_drawn(self, open_corpus: OpenCorpus | None, picked: SelectedRows, event: gr.EventData) -> Update:
        """Selects the rows inside a lasso or a box; with ``add``, in addition to the selected ones."""
        rows = map(int, event.rows)
        return self._show(open_corpus, {*picked.rows, *rows} if event.add else rows)

    def pick_words(self, open_corpus: OpenCorpus | None, words: str) -> Update:
        try:
            return self._show(open_corpus, containing(self._corpus(open_corpus), words))
        except UserFacingError as error:
            return {self.note: messages.error_message(error)}

    def pick_group(self, open_corpus: OpenCorpus | None, name: str) -> Update:
        selected = next((group for group in self.groups_of(open_corpus) if group.name == name), None)
        return self._show(open_corpus, selected.rows if selected else (), selected.name if selected else "")

    def keep(self, open_corpus: OpenCorpus | None, picked: SelectedRows, name: str, colour: str) -> Update:
        try:
            group = save_group(self.groups, self._corpus(open_corpus), name or "", colour, picked.rows)
        except UserFacingError as error:
            return {self.note: messages.error_message(error)}
        message = f"Saved with the corpus: {group.name}, {format_count(len(group.rows), 'sentence')}."
        return {**self._show(open_corpus, group.rows, group.name), self.note: messages.note(message)}

    def forget(self, open_corpus: OpenCorpus | None, picked: SelectedRows) -> Update:
        """Deletes the selected group; its sentences stay selected."""
        try:
            delete_group(self.groups, self._corpus(open_corpus), picked.group)
        except UserFacingError as error:
            return {self.note: messages.error_message(error)}
        return {**self._show(open_corpus, picked.rows), self.note: messages.note(f"{picked.group} is deleted.")}

    def groups_of(self, open_corpus: OpenCorpus | None) -> Sequence[Group]:
        return () if open_corpus is None else groups_of(self.groups, self._corpus(open_corpus))

    def _corpus(self, open_corpus: OpenCorpus | None) -> Corpus:
        return self.services.embeddings.corpus(opened(open_corpus).corpus)

    def _show(self, open_corpus: OpenCorpus | None, rows: Iterable[int], group: str = "") -> Update:
        """Shows the selected rows, or the error that prevents it."""
        try:
            return self._selected(open_corpus, rows, group)
        except UserFacingError as error:
            return {self.column: gr.update(visible=True), self.summary: messages.error_message(error)}

    def _selected(self, open_corpus: OpenCorpus | None, rows: Iterable[int], group: str) -> Update:
        groups = self.groups_of(open_corpus)
        names = [(f"{saved.name} ({len(saved.rows):,})", saved.name) for saved in groups]
        common: Update = {
            self.group: gr.Dropdown([("none", NO_GROUP), *names], value=group, visible=bool(groups)),
            self.delete: gr.update(visible=bool(group)),
            self.note: "",
        }
        embedded = None if open_corpus is None else open_corpus.embed(self.services.embeddings)
        subset = None if embedded is None else describe_subset(embedded, rows)
        if open_corpus is None or embedded is None or subset is None or not len(subset):
            nothing = HIDDEN_ROWS.format(corpus=open_corpus.corpus if open_corpus else "", rows="")
            hidden = {self.column: gr.update(visible=False), self.table: gr.update(visible=False), self.rows: nothing}
            return {**common, **hidden, self.picked: SelectedRows()}
        sentences = [embedded.corpus.sentences[row] for row in subset.rows.tolist()]
        token = self.services.shared_sentences.put(sentences)
        colour = next((saved.colour for saved in groups if saved.name == group), None)
        listed = [*zip(subset.cosines.tolist(), map(shorten, sentences), strict=True)][:MAX_LISTED]
        return {
            **common,
            self.picked: SelectedRows(open_corpus.corpus, tuple(subset.rows.tolist()), group),
            self.column: gr.update(visible=True),
            self.summary: macro("explore/selected_summary")(subset, group, listed),
            self.table: gr.update(value=selected_table(subset, embedded.corpus), visible=True),
            self.lists: gr.Tabs(selected="selected"),
            self.download: str(save_subset(subset, embedded.corpus, self.services.temp.new_folder("explore"))),
            self.links: selected_links(sentences, token),
            self.rows: HIDDEN_ROWS.format(corpus=open_corpus.corpus, rows=",".join(map(str, subset.rows.tolist()))),
            self.name: gr.update(value=group),
            self.colour: gr.update(value=colour) if colour else gr.skip(),
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
