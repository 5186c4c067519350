"""The Explore page: the user chooses a corpus, a model and a pooling; it is encoded once, and every tab shows it.

A tab is a function in TABS, called as ``build(services, shared)`` inside its open ``gr.Tab``.
``shared.open_corpus`` holds an `OpenCorpus`, or None until the first corpus is encoded. A tab
reacts to ``open_corpus.change(…)`` and gets the embeddings by
``OpenCorpus.embed(services.embeddings)``. Work of more than a second runs in a ``MeasureTab``;
expensive work waits until its tab is opened or a button is pressed. Tabs know nothing of each
other.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import time
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.formats import format_count
from sbert_app.pages.components import messages, pickers
from sbert_app.pages.components.address import inputs_of, remember
from sbert_app.pages.components.events import Update, event_options, run_js
from sbert_app.pages.components.file_panel import FilePanel, chosen_name, open_upload
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.components.pickers import (
    data_choices,
    model_and_pooling,
    named_model,
    open_dropdown,
)
from sbert_app.pages.components.templates import macro
from sbert_app.pages.explore import clusters, pairs, search
from sbert_app.pages.explore import map as map_tab
from sbert_app.pages.explore.open_corpus import OpenCorpus, Shared, kept_choice
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.clustering import ClusterSettings
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import OWN, Corpus, vector_columns
from sbert_app.services.corpus.open_corpora import KeptCorpus
from sbert_app.services.corpus.search import (
    MAX_COUNTED,
    find_near_duplicates,
)
from sbert_app.services.store.documents import check_text
from training.errors import InputError, UserFacingError
from training.models.model import VectorModel
from training.names import DataName

TAGLINE = "See what a collection of sentences is about: similar sentences lie close together."
# The length of the list of a browser's corpora.
MOST_LISTED = 20
# (function that builds the tab, title, id). The tab Map also has the search, beside the map.
TABS: tuple[tuple[Callable[[Services, Shared], None], str, str], ...] = (
    (partial(map_tab.build, build_search=search.build), "Map", "map"),
    (pairs.build, "Pairs and duplicates", "pairs"),
    (clusters.build, "Clusters", "clusters"),
    (pairs.build_unusual, "Hubs and outliers", "unusual"),
)
EXAMPLE = "example"
TEXT = "text"
FILE = "file"
DATA = "data"
YOURS = "yours"
SOURCES = (
    ("Example", EXAMPLE),
    ("Paste", TEXT),
    ("File", FILE),
    ("Data set", DATA),
    ("Your corpora", YOURS),
)
# The choice of vectors for a file without vectors of its own.
ENCODED = ("encoded by the model below", "")
NO_CORPUS = ("none yet", "")
# Values that some corpora open with; like the initial values of the page they are left out of the
# address.
PASSING = {"map-colour": ["topic"], "map-words": [""], "search-query": [""]}
# JavaScript that dims the tabs ("true"), or ends it ("false").
DIM = "() => window.dim(['explore-tabs'], {})"
# The name of a corpus from pasted text.
PASTED = "pasted text.txt"


class CorpusChoice(NamedTuple):
    """The values of the controls that choose a corpus, in order.

    The values from ``path`` to ``array`` belong to a file; its vectors are in the Parquet column
    ``vectors`` or in the .npy file ``array``. ``own_corpus`` is the id of one of the visitor's
    corpora.
    """

    source: str
    text: str | None
    path: str | None
    encoding: str
    sheet: str | None
    first: str | None
    second: str | None
    target: str | None
    read_as: str | None
    vectors: str | None
    array: str | None
    data: str | None
    own_corpus: str | None


def build(services: Services) -> None:
    """Builds the page inside the open Blocks; it opens with the corpus in the address."""
    page = _ExplorePage(services)
    with gr.Tabs(overflow_behavior="wrap", elem_id="explore-tabs") as tabs:
        for build_tab, title, name in TABS:
            with gr.Tab(title, id=name):
                build_tab(services, page.shared)
    page.wire(tabs)


class _ExplorePage:
    """The components above the tabs and their event handlers.

    Attributes:
        corpora: the files and texts that visitors have opened.
        fold: the form that opens another corpus or model.
        panel: the panel of the uploaded file.
        own_corpus: the picker of the visitor's own corpora.
        tab: opens a corpus, with Start and Stop.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.corpora = services.corpora
        self.open_corpus = gr.State(None)
        # The ids of the corpora of this browser, the newest first. The secret is fixed, so that
        # they can be read after a restart of the app.
        self.corpus_ids = gr.BrowserState([], storage_key="sbert-lab-corpora", secret="sbert-lab")  # noqa: S106 - hides nothing
        self.shared = Shared(
            open_corpus=self.open_corpus,
            clustering=gr.State(ClusterSettings()),
            corpus_ids=self.corpus_ids,
            counts=gr.State(""),
        )
        gr.HTML(messages.heading("Explore", TAGLINE))
        with gr.Row(elem_classes="explore-head"):
            status = gr.HTML(
                messages.note("Opening the corpus …"), elem_id="corpus-status", min_width=260
            )
            self.fold = gr.Accordion("Another corpus or model", open=False, elem_id="corpus-choice")
            with self.fold, gr.Row():
                with gr.Column(scale=6, min_width=320):
                    self._build_sources()
                with gr.Column(scale=7, min_width=320):
                    with gr.Row():
                        self.model, self.pooling = model_and_pooling(services, "corpus")
                    pickers.model_settings(services, self.model)
                    with gr.Row():
                        start = gr.Button(
                            "Open", variant="primary", elem_id="corpus-open", min_width=120
                        )
                        stop = gr.Button(
                            "Stop", visible=False, elem_id="corpus-stop", min_width=120
                        )
        stopped = "stopped: the tabs show what was open before. What is encoded of a large corpus is kept."
        self.tab = MeasureTab(services, "corpus", status, start, stop, stopped=stopped)
        # Open is disabled while a file is uploaded.
        self.panel.hold([start])

    def _build_sources(self) -> None:
        """Builds the choice of the corpus: its source, and the controls of each source."""
        self.source = gr.Radio(SOURCES, value=EXAMPLE, label="Corpus", elem_id="corpus-source")
        self.text = gr.Textbox(
            label="Sentences, one per line",
            lines=6,
            max_lines=12,
            visible=False,
            elem_id="corpus-text",
        )
        with gr.Column(visible=False) as self.file_controls:
            self.upload = gr.File(label="Your file", height=130, elem_id="corpus-file")
            self.panel = FilePanel(self.services, self.upload, "corpus", page="explore")
            self.vectors = gr.Dropdown(
                [ENCODED], value="", label="Vectors", visible=False, elem_id="corpus-vectors"
            )
            self.array = gr.File(
                label="Your own vectors (.npy), row by row",
                height=130,
                file_types=[".npy"],
                elem_id="corpus-array",
            )
        hint = "Its distinct sentences; STSb is built in; or hf:<org>/<name>"
        self.data = open_dropdown(
            "Named data set", data_choices("explore"), hint, visible=False, elem_id="corpus-data"
        )
        with gr.Row(visible=False) as self.own_controls:
            hint = "Files and texts that this browser has opened. They are deleted after a day."
            self.own_corpus = open_dropdown(
                "Your corpora", [NO_CORPUS], hint, elem_id="corpus", scale=3
            )
            self.forget = gr.Button("Delete it", elem_id="corpus-delete", min_width=90)

    def wire(self, tabs: gr.Tabs) -> None:
        """Connects the components. The controls in the ``tabs`` of the page are kept in the address, too."""
        corpus_controls = [self.source, self.data, self.own_corpus, self.model, self.pooling]
        tab_controls = inputs_of(tabs, gr.Textbox)
        # By control, the values that are left out of the address. A pasted text and an upload are
        # lost in a reload.
        passing: dict[Any, Any] = {self.source: (TEXT, FILE)}
        for control in tab_controls:
            if control.elem_id in PASSING:
                passing[control] = PASSING[control.elem_id]
        restored = remember([*corpus_controls, *tab_controls], tabs, passing)
        # The values of a `CorpusChoice`, then the model, the pooling and the ids.
        inputs = [
            self.source,
            self.text,
            self.upload,
            *self.panel.inputs,
            self.vectors,
            self.array,
            self.data,
            self.own_corpus,
            self.model,
            self.pooling,
            self.corpus_ids,
        ]
        self.source.change(
            self.show_source,
            self.source,
            [self.text, self.data, self.own_controls, self.file_controls],
            **event_options(queue=False, trigger_mode="multiple"),
        )
        restored = restored.then(
            self.take,
            None,
            [self.source, self.file_controls, self.upload, *self.panel.outputs],
            **event_options(queue=False),
        )
        uploaded = [self.upload.upload, self.upload.clear]
        gr.on(uploaded, self.offer_vectors, self.upload, self.vectors, **event_options())
        counts = self.shared.counts
        counts.change(
            self.show_counts, [self.open_corpus, counts], self.tab.status, **event_options()
        )
        deleted = self.forget.click(
            self.delete,
            [self.own_corpus, self.corpus_ids],
            [self.source, self.corpus_ids],
            **event_options(queue=False),
        )
        outputs = [self.open_corpus, self.corpus_ids, self.source, self.own_corpus, self.fold]
        # The tabs show the last corpus, dimmed, until another one is open. Listeners run in order,
        # so this one comes before those that end the dimming.
        run_js([self.tab.start.click, self.own_corpus.input], DIM.format("true"))
        for event, work in (
            (restored.then, self.open_at_first),
            (self.tab.start.click, self.open_and_fold),
            (self.own_corpus.input, self.open_and_fold),
            (deleted.then, self.open_and_fold),
        ):
            # The update after an error is empty, because the page keeps the last corpus then.
            ended = self.tab.on(
                event, self.tab.handler(work, {}), inputs, outputs, concurrency_limit=4
            )
            ended.then(
                self.own_choices,
                [self.corpus_ids, self.own_corpus],
                self.own_corpus,
                **event_options(queue=False),
            )
            run_js(ended.then, DIM.format("false"))

    def offer_vectors(self, path: str | None) -> gr.Dropdown:
        """Offers the columns of a file that hold vectors. The first of them is selected."""
        columns: list[str] = []
        # The panel shows why a file cannot be used.
        with suppress(UserFacingError):
            if path:
                columns = vector_columns(open_upload(path))
        choices = [(f"the column {name}", name) for name in columns]
        choices.append(ENCODED)
        return gr.Dropdown(choices, value=choices[0][1], visible=bool(columns))

    def take(self, request: gr.Request) -> Update:
        """Chooses the file that another page has sent."""
        if "file" not in request.query_params:
            # Gradio does not take an empty dictionary for updates.
            return {self.source: gr.skip()}
        return {
            **self.panel.take(request),
            self.source: FILE,
            self.file_controls: gr.Column(visible=True),
        }

    def show_source(self, source: str) -> Update:
        """Shows the controls of a source, and hides the others."""
        sources = {
            self.text: TEXT,
            self.data: DATA,
            self.own_controls: YOURS,
            self.file_controls: FILE,
        }
        return {control: gr.update(visible=name == source) for control, name in sources.items()}

    def own_choices(self, corpus_ids: list[str], corpus_id: str | None) -> gr.Dropdown:
        """Offers the corpora of this browser that still exist.

        ``corpus_id`` is the selected corpus, which may come from the address, and is offered too.
        """
        ids = [*corpus_ids, corpus_id] if corpus_id else corpus_ids
        records = self.corpora.list(dict.fromkeys(ids))
        choices = [kept_choice(key, record) for key, record in records.items()]
        return gr.Dropdown(choices or [NO_CORPUS])

    def delete(self, corpus_id: str | None, corpus_ids: list[str]) -> Update:
        """Deletes a corpus of the visitor and returns to the example."""
        # The address may name the corpus of somebody else, which stays.
        if corpus_id in corpus_ids:
            self.corpora.records.delete(corpus_id)
        return {
            self.source: EXAMPLE,
            self.corpus_ids: [key for key in corpus_ids if key != corpus_id],
        }

    def open(self, watch: Watch, *values: Any) -> Update:
        """Reads and encodes the chosen corpus, and opens it for the tabs. Uploads and pasted texts are stored."""
        *corpus_values, model_name, pooling, corpus_ids = values
        choice = CorpusChoice(*corpus_values)
        encoder_name = named_model(model_name).with_pooling(pooling)
        embeddings = self.services.embeddings
        limit = embeddings.limits.sentences
        update: Update = {}
        if choice.source in (TEXT, FILE):
            corpus_id, corpus = self._keep(choice)
            others = [other for other in corpus_ids if other != corpus_id]
            # The choices of the other corpora follow when this one is open (`own_choices`).
            own_choice = kept_choice(corpus_id, self.corpora.records.get(corpus_id))
            update = {
                self.corpus_ids: [corpus_id, *others][:MOST_LISTED],
                self.source: YOURS,
                self.own_corpus: gr.Dropdown([own_choice], value=corpus_id),
            }
        elif choice.source == YOURS:
            corpus = self.corpora.read(choice.own_corpus or "")
        elif choice.source == DATA:
            data = self.services.access.check_data((choice.data or "").strip())
            corpus = Corpus.from_data(data, embeddings.home, limit)
        else:
            corpus = embeddings.corpus(embeddings.example())
        key = embeddings.add(corpus)
        # The user's own vectors are not encoded.
        model = OWN
        if corpus.vectors is None:
            model = encoder_name
            stage = f"Encoding {format_count(len(corpus), 'sentence')}"
            if len(corpus) == limit:
                # Further sentences of the source may have been left out.
                stage += f" (of at most {limit:,})"
            is_loaded = self.services.models.has(model)
            watch.report(0, stage if is_loaded else f"Loading {model.name}")
            # `embed` would load the model as well, but within the stage of encoding.
            self.services.models.get(model, VectorModel, role="document")
            watch = watch.stage(stage)
        embedded = embeddings.embed(key, model, watch=watch)
        duplicates = None
        if len(corpus) <= MAX_COUNTED:
            duplicates = find_near_duplicates(embedded, watch=watch.stage("Counting duplicates"))
        open_corpus = OpenCorpus(
            key, model, query_model=encoder_name, is_example=choice.source == EXAMPLE
        )
        counts = pairs.count_of_corpus(corpus, duplicates)
        update[self.tab.status] = macro("explore/corpus")(embedded, open_corpus, counts)
        update[self.open_corpus] = open_corpus
        return update

    def show_counts(self, open_corpus: OpenCorpus, counts: str) -> Any:
        """Renders the facts about the corpus with the counts of the tab Pairs and duplicates."""
        # The tab has not counted the duplicates of the open corpus.
        if not counts:
            return gr.skip()
        embedded = open_corpus.embed(self.services.embeddings)
        return macro("explore/corpus")(embedded, open_corpus, counts)

    def open_at_first(self, watch: Watch, source: str, *values: Any) -> Update:
        """Opens the corpus of the address, or the example in place of a lost text. A download waits for the button."""
        *corpus_values, model_name, _pooling, _corpus_ids = values
        choice = CorpusChoice(source, *corpus_values)
        # The name of the data set that may have to be downloaded; "" for other sources.
        data = ""
        if source == DATA:
            data = self.services.access.check_data((choice.data or "").strip())
        if missing := self.services.models.missing([named_model(model_name)], data):
            remedy = "Press Open to download, or choose another corpus or model."
            question = messages.ask_first(missing, remedy)
            return {self.tab.status: question, self.fold: gr.Accordion(open=True)}
        # A reload loses a pasted text and an upload, but not a file that another page has sent.
        is_lost = source == TEXT or (source == FILE and choice.path is None)
        return self.open(watch, EXAMPLE if is_lost else source, *values)

    def open_and_fold(self, watch: Watch, *values: Any) -> Update:
        """Opens a corpus and closes the fold, which `open_at_first` leaves open for a visitor who is at work there."""
        return {**self.open(watch, *values), self.fold: gr.Accordion(open=False)}

    def _keep(self, choice: CorpusChoice) -> tuple[str, Corpus]:
        """Stores an upload or pasted text. Returns its id and the corpus. Raises InputError if it has no sentences."""
        if choice.source == TEXT:
            text = choice.text or ""
            if not text.strip():
                raise InputError(
                    "there is no sentence yet: paste some, one per line, then press Open."
                )
            file = self.services.temp.new_folder("explore") / PASTED
            file.write_text(check_text(text, "the text"), encoding="utf-8", newline="\n")
            return self.corpora.keep(file, KeptCorpus(PASTED, time()))
        if choice.path is None:
            raise InputError("choose a file first.")
        if choice.first and not choice.second:
            # The sentences are in one column, and the other columns are shown beside them.
            column: str | None = choice.first
            encoding = choice.encoding or None
            sheet = choice.sheet or None
        else:
            # The sentences are in both columns of a pair. Without a choice of columns, the table's
            # own reading decides where they are.
            columns = (choice.first, choice.second, choice.target, choice.read_as)
            data = chosen_name(self.services, choice.path, choice.encoding, choice.sheet, *columns)
            name = DataName.parse(data)
            column = name.columns
            encoding = name.encoding
            sheet = name.sheet
        path = Path(choice.path)
        record = KeptCorpus(
            path.name,
            time(),
            vectors=choice.vectors or None,
            column=column,
            encoding=encoding,
            sheet=sheet,
        )
        array = Path(choice.array) if choice.array else None
        return self.corpora.keep(path, record, array)
