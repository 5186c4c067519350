"""The Explore page: choose a corpus, a model and a pooling; it is encoded once, and every tab shows it.

The contract with the tabs. Each tab is a module in TABS with ``build(services, shared)``, called inside its open
``gr.Tab``. ``shared.open_corpus`` is a ``gr.State`` that holds an ``OpenCorpus`` (corpus key, model, pooling), or None
until the first corpus is encoded. A tab reacts to ``open_corpus.change(...)`` and gets the embeddings by
``OpenCorpus.embed(services.embeddings)``: from memory, as the page encodes before it sets the state. Work of more
than a second runs in a ``MeasureTab``; expensive work waits until its tab is opened or a button is pressed. Tabs know
nothing of each other (see pyproject.toml).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.formats import format_count
from sbert_app.pages.components import messages
from sbert_app.pages.components.address import remember
from sbert_app.pages.components.events import EVERY, PRIVATE, Update
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.components.pickers import (
    data_choices,
    model_and_pooling,
    model_settings,
    named_model,
    open_dropdown,
)
from sbert_app.pages.components.templates import macro
from sbert_app.pages.components.upload_options import UploadOptions, as_named
from sbert_app.pages.explore.open_corpus import Clustering, OpenCorpus, Shared
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus, has_pairs
from sbert_app.services.corpus.embedding_cache import EmbeddingCache
from training.data.tables.columns import pick_sentence
from training.data.tables.table import Table, open_table
from training.errors import InputError, UserFacingError
from training.names import DataName

# (module in this package, title of the tab)
TABS = (("map", "Map"), ("search", "Search"), ("pairs", "Similar pairs"), ("clusters", "Clusters"))

EXAMPLE, TEXT, FILE, DATA = "example", "text", "file", "data"
SOURCES = (("Example", EXAMPLE), ("Paste", TEXT), ("File", FILE), ("Data set", DATA))
DATA_CHOICES = data_choices("stsb:dev", "stsb:test", "stsb:train", "sts16", "sickr", "snli:dev")
DETECTED = ""  # the column is detected by its name
BY_NAME = ("Detected: by name", DETECTED)


class CorpusChoice(NamedTuple):
    """The values of the controls that choose a corpus, in their order."""

    source: str
    text: str | None
    path: str | None
    encoding: str
    column: str
    data: str | None


def build(services: Services) -> None:
    """Build the page inside the open Blocks; the example is opened and encoded with the page."""
    page = _ExplorePage(services)
    with gr.Tabs(elem_id="explore-tabs") as tabs:
        for module, title in TABS:
            with gr.Tab(title, id=module):
                import_module(f"sbert_app.pages.explore.{module}").build(services, page.shared)
    page.wire(tabs)


class _ExplorePage:
    def __init__(self, services: Services) -> None:
        self.services = services
        self.open_corpus = gr.State(None)
        self.shared = Shared(self.open_corpus, gr.State(Clustering()))
        tagline = "A corpus through its sentence embeddings: its map, nearest neighbours and near-duplicates."
        gr.HTML(messages.heading("Explore", tagline))
        with gr.Row(elem_id="corpus-choice"):
            with gr.Column(scale=6, min_width=320):
                self.source = gr.Radio(SOURCES, value=EXAMPLE, label="Corpus", elem_id="corpus-source")
                self.text = gr.Textbox(
                    label="Sentences, one per line", lines=6, max_lines=12, visible=False, elem_id="corpus-text"
                )
                self.upload = gr.File(label="Your file", height=130, visible=False, elem_id="corpus-file")
                self.reading = UploadOptions(self.upload, "corpus", columns=False)
                label = "Column with the sentences"
                self.column = gr.Dropdown([BY_NAME], label=label, visible=False, elem_id="corpus-column")
                hint = "Its distinct sentences; STSb is built in; or type hf:<org>/<name>"
                self.data = open_dropdown("Named data set", DATA_CHOICES, hint, visible=False, elem_id="corpus-data")
                status = gr.HTML(messages.waiting("Opening the example …"), elem_id="corpus-status")
            with gr.Column(scale=7, min_width=320):
                with gr.Row():
                    self.model, self.pooling = model_and_pooling(services, "corpus")
                model_settings(services, self.model)
                with gr.Row():
                    start = gr.Button("Open", variant="primary", elem_id="corpus-open", min_width=120)
                    stop = gr.Button("Stop", interactive=False, elem_id="corpus-stop", min_width=120)
        stopped = "stopped: the tabs show what was open before. What is encoded of a large corpus is kept."
        self.tab = MeasureTab(services, "corpus", status, start, stop, stopped)

    def wire(self, tabs: gr.Tabs) -> None:
        named = [self.source, self.data, self.model, self.pooling]
        restored = remember(named, tabs, passing={self.source: (TEXT, FILE)})
        chosen = [self.source, self.text, self.upload, *self.reading.inputs, self.column, self.data]
        inputs = [*chosen, self.model, self.pooling]
        fields = [self.text, self.upload, self.column, self.data, self.reading.read, self.reading.encoding]
        self.source.change(self.show_source, [self.source, self.upload, self.reading.encoding], fields, **EVERY)
        uploaded = [self.upload.upload, self.upload.clear]
        gr.on(uploaded, self.describe_file, self.upload, [self.column, self.tab.status], **PRIVATE)
        for event in (restored.then, self.tab.start.click):
            self.tab.on(event, self.tab.handler(self.open, {}), inputs, [self.open_corpus], concurrency_limit=4)

    def describe_file(self, path: str | None) -> Update:
        """Offer the columns of a file, or say why it cannot be used."""
        if path is None:
            return {self.column: gr.Dropdown([BY_NAME], value=DETECTED)}
        try:
            table = open_table(path)
        except UserFacingError as error:
            return {**self.describe_file(None), self.tab.status: messages.error_message(error)}
        choices = [(_detected_column(table), DETECTED), *((name, name) for name in table.columns)]
        return {
            self.column: gr.Dropdown(choices, value=DETECTED),
            self.tab.status: messages.lead(f"{table.path.name}: {table.description}. Press Open."),
        }

    def show_source(self, source: str, path: str | None, encoding: str) -> Update:
        """Show the controls that belong to the kind of corpus; the picker of encodings belongs to a file."""
        kinds = {self.text: TEXT, self.upload: FILE, self.column: FILE, self.data: DATA}
        visible = {field: gr.update(visible=kind == source) for field, kind in kinds.items()}
        return {**visible, **self.reading.describe(path if source == FILE else None, encoding)}

    def open(self, watch: Watch, *values: Any) -> Update:
        """Read the chosen corpus, encode it, and select it for the tabs."""
        choice, model = CorpusChoice(*values[:-2]), named_model(values[-2]).with_pooling(values[-1])
        embeddings = self.services.embeddings
        key = READERS[choice.source](embeddings, choice)
        count, most = len(embeddings.corpus(key)), embeddings.limits.sentences
        step = f"Encoding {format_count(count, 'sentence')}" + (f" (of at most {most:,})" if count == most else "")
        watch.report(0, step if self.services.models.has("encoder", model) else f"Loading {model.name}")
        self.services.models.encoder(model, None, "document")
        embedded = embeddings.embed(key, model, watch=watch.stage(step))
        return {
            self.tab.status: macro("explore/corpus")(embedded, choice.source == EXAMPLE),
            self.open_corpus: OpenCorpus(key, model),
        }


def _detected_column(table: Table) -> str:
    """Which columns are read when the user chooses none, such as "Detected: text"."""
    if has_pairs(table):
        return "Detected: sentence pairs"
    try:
        return f"Detected: {pick_sentence(table)}"
    except InputError:
        return "Not detected: choose a column"


def _read_text(embeddings: EmbeddingCache, choice: CorpusChoice) -> str:
    if not (choice.text or "").strip():
        raise InputError("there is no sentence yet: paste some, one per line, then press Open.")
    return embeddings.add(Corpus.from_text(choice.text or "", most=embeddings.limits.sentences))


def _read_file(embeddings: EmbeddingCache, choice: CorpusChoice) -> str:
    if choice.path is None:
        raise InputError("choose a file first.")
    name = DataName.parse(as_named(choice.path, choice.encoding))
    if choice.column:
        pick_sentence(open_table(name.path, name.encoding), choice.column)  # raises if the column is not in the file
    most = embeddings.limits.sentences
    return embeddings.add(Corpus.from_file(name.path, choice.column or None, name.encoding, most))


# Kind of corpus -> a function that adds the chosen corpus to the cache and returns its key
READERS: dict[str, Callable[[EmbeddingCache, CorpusChoice], str]] = {
    EXAMPLE: lambda embeddings, _: embeddings.example(),
    TEXT: _read_text,
    FILE: _read_file,
    DATA: lambda embeddings, choice: embeddings.add(
        Corpus.from_data((choice.data or "").strip(), embeddings.home, embeddings.limits.sentences)
    ),
}
