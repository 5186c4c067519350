"""The Explore page's shell: choose a corpus, a model and a pooling; it is encoded once, and every tab shows it.

The contract with the tabs. Each tab is a module in TABS with ``build(services, view)``, called inside its open
``gr.Tab``. ``view`` is a ``gr.State`` that holds an ``explore_view.View`` (corpus key, model, pooling), or None until
the first corpus is encoded. A tab hears of a new corpus by ``view.change(...)`` with ``view`` among its inputs, and
gets the vectors by ``space_of(services, view)``: from memory, as the shell has encoded them before it sets the view.
Work of more than a second runs in ``services.tasks.run(f"{request.session_hash} <tab>", words, work)``, shows
``shared.bar(step)`` and is stopped by ``services.tasks.stop(...)``; leaving the page stops it too. What is
expensive waits for its tab to be opened or for a button. Tabs know nothing of each other (see pyproject.toml).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from importlib import import_module
from typing import Any

import gradio as gr

from sbert_app.pages.api import project as explore_endpoints
from sbert_app.pages.api import search as search_endpoints
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar, spoken_seconds
from sbert_app.pages.components.pickers import model_picker, pooling_picker
from sbert_app.pages.explore.view import View
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import MAX_SENTENCES, Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.embedding_cache import EmbeddingCache
from sbert_app.services.tasks import TaskResult
from training.data.tables.table import open_table, pick_sentence
from training.errors import InputError, Stopped
from training.registry import DEFAULT_MODEL

# (module in sbert_app.pages, title of the tab): one line a tab
TABS = (
    ("map", "Map"),
    ("search", "Search"),
    ("pairs", "Similar pairs"),
    ("clusters", "Clusters"),
)

EXAMPLE, TEXT, FILE, DATA = "example", "text", "file", "data"
SOURCES = (("Example", EXAMPLE), ("Paste", TEXT), ("File", FILE), ("Data set", DATA))
DATA_CHOICES = ["stsb:dev", "stsb:test", "stsb:train", "sts16", "sickr", "snli:dev"]
FOUND_BY_NAME = ""

Update = dict[Any, Any]  # component -> its new value


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks; the example is opened and encoded with the page."""
    page = _Page(services)
    with gr.Tabs(elem_id="explore-tabs"):
        for module, title in TABS:
            with gr.Tab(title, id=module):
                import_module(f"sbert_app.pages.explore.{module}").build(services, page.view)
    page.wire()
    explore_endpoints.build(services)
    search_endpoints.build(services)


class _Page:
    """The chooser, and what happens when something is chosen."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.view = gr.State(None)
        gr.HTML(
            '<h1 class="title">Explore</h1><p class="tagline">A corpus as its sentence vectors see it: its map, '
            "its neighbours, its repetitions.</p>"
        )
        with gr.Row(elem_id="corpus-choice"):
            with gr.Column(scale=6, min_width=320):
                self.source = gr.Radio(SOURCES, value=EXAMPLE, label="Corpus", elem_id="corpus-source")
                self.text = gr.Textbox(
                    label="Sentences, one a line", lines=6, max_lines=12, visible=False, elem_id="corpus-text"
                )
                self.upload = gr.File(label="Your file", height=130, visible=False, elem_id="corpus-file")
                self.column = gr.Dropdown(
                    [("found by its name", FOUND_BY_NAME)],
                    value=FOUND_BY_NAME,
                    label="Column with the sentences",
                    visible=False,
                    elem_id="corpus-column",
                )
                self.data = gr.Dropdown(
                    DATA_CHOICES,
                    value=DATA_CHOICES[0],
                    label="Named data set",
                    info="Its different sentences; the STS benchmark needs no Hub",
                    allow_custom_value=True,
                    visible=False,
                    elem_id="corpus-data",
                )
                self.status = gr.HTML('<div class="waiting">Opening the example …</div>', elem_id="corpus-status")
            with gr.Column(scale=7, min_width=320):
                with gr.Row():
                    self.model, self.pooling = model_picker(), pooling_picker()
                with gr.Row():
                    self.go = gr.Button("Open", variant="primary", elem_id="corpus-open", min_width=120)
                    self.halt = gr.Button("Stop", interactive=False, elem_id="corpus-stop", min_width=120)

    def wire(self) -> None:
        """Connect the components with what they do."""
        root = gr.context.Context.root_block
        asked = [self.source, self.text, self.upload, self.column, self.data, self.model, self.pooling]
        results = [self.status, self.go, self.halt, self.view]
        self.source.change(
            self.choose, self.source, [self.text, self.upload, self.column, self.data], queue=False, **PRIVATE
        )
        gr.on(
            [self.upload.upload, self.upload.clear], self.uploaded, self.upload, [self.column, self.status], **PRIVATE
        )
        visited = root.load(self.open, asked, results, concurrency_limit=4, **PRIVATE)
        pressed = gr.on([self.go.click], self.open, asked, results, concurrency_limit=4, **PRIVATE)
        for event in (visited, pressed):
            event.failure(self.failed, None, results[:3], **PRIVATE)
        self.halt.click(self.stop, None, self.halt, queue=False, **PRIVATE)
        root.unload(self.leave)

    def choose(self, source: str) -> list[Any]:
        """Show what belongs to the kind of corpus."""
        return [gr.update(visible=source == kind) for kind in (TEXT, FILE, FILE, DATA)]

    def uploaded(self, path: str | None) -> Update:
        """Offer the columns of a file, or say in one sentence why it cannot be used."""
        choices = [("found by its name", FOUND_BY_NAME)]
        if path is None:
            return {self.column: gr.Dropdown(choices, value=FOUND_BY_NAME)}
        try:
            table = open_table(path)
        except InputError as error:
            return {self.column: gr.Dropdown(choices, value=FOUND_BY_NAME), self.status: error_message(error)}
        return {
            self.column: gr.Dropdown([*choices, *((name, name) for name in table.columns)], value=FOUND_BY_NAME),
            self.status: f'<p class="lead">{escape(table.path.name)}: {escape(table.description)}. Press Open.</p>',
        }

    def open(
        self,
        source: str,
        text: str,
        path: str | None,
        column: str,
        data: str,
        model: str,
        pooling: str,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Read the chosen corpus, encode it, and let the tabs have it."""
        spaces, model = self.services.embeddings, (model or DEFAULT_MODEL).strip()
        read = OPENERS[source]

        def work(tell: Callable[..., None], should_stop: Callable[[], bool]) -> tuple[str, EmbeddedCorpus]:
            key = read(spaces, text or "", path, column, (data or "").strip())
            count = len(spaces.corpus(key))
            loading = not self.services.models.has("encoder", model)
            tell(0, f"Loading {model}" if loading else _encoding(count))
            self.services.models.encoder(model, pooling)
            told = lambda done, _: tell(done / count, _encoding(count))  # noqa: E731
            return key, spaces.embed(key, model, pooling, told, should_stop)

        yield {self.go: gr.Button(interactive=False), self.halt: gr.Button("Stop", interactive=True)}
        ready = {self.go: gr.Button(interactive=True), self.halt: gr.Button("Stop", interactive=False)}
        try:
            for event in self.services.tasks.run(_owner(request), "Opening the corpus", work):
                if isinstance(event, TaskResult):
                    key, space = event.value
                    shown = {self.status: corpus_line(space, source == EXAMPLE)}
                    yield {**ready, **shown, self.view: View(key, model, pooling)}
                else:
                    yield {self.status: progress_bar(event)}
        except InputError as error:
            yield {**ready, self.status: error_message(error)}
        except Stopped:
            yield {**ready, self.status: error_message("stopped: what the tabs show is what was open before.")}

    def stop(self, request: gr.Request) -> Any:
        """Stop encoding; the tabs keep what they show."""
        self.services.tasks.stop(_owner(request))
        return gr.Button("Stopping …", interactive=False)

    def failed(self) -> tuple[Any, ...]:
        """An error that is no fault of the user's."""
        words = INTERNAL_ERROR
        return error_message(words), gr.Button(interactive=True), gr.Button("Stop", interactive=False)

    def leave(self, request: gr.Request) -> None:
        """The person has left: so does their work."""
        self.services.tasks.forget(request.session_hash or "nobody")


def corpus_line(space: EmbeddedCorpus, is_example: bool) -> str:
    """What is open: how many sentences, what is known of them, how long encoding took."""
    corpus = space.corpus
    count = "1 sentence" if len(corpus) == 1 else f"{len(corpus):,} sentences"
    example = "an example · " if is_example else ""
    columns = f" · with {escape(', '.join(corpus.columns))}" if corpus.columns else ""
    gold = f" · {len(corpus.gold.gold):,} pairs with a gold score" if corpus.gold is not None else ""
    took = f"encoded in {spoken_seconds(space.seconds)}" if space.seconds else "encoded before"
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in corpus.notes)
    return (
        f'<h2 class="file">{escape(corpus.name)}</h2><p class="note">{example}{count}{columns}{gold} · {took} '
        f"by {escape(space.model)}, {escape(space.pooling)} pooling</p>{notes}"
    )


def _from_text(spaces: EmbeddingCache, text: str, path: str | None, column: str, data: str) -> str:
    if not text.strip():
        raise InputError("there is no sentence yet: paste some, one a line, then press Open.")
    return spaces.add(Corpus.from_text(text))


def _from_file(spaces: EmbeddingCache, text: str, path: str | None, column: str, data: str) -> str:
    if path is None:
        raise InputError("choose a file first.")
    if column:
        pick_sentence(open_table(path), column)  # says which columns there are, where it is gone
    return spaces.add(Corpus.from_file(path, column or None))


def _from_data(spaces: EmbeddingCache, text: str, path: str | None, column: str, data: str) -> str:
    return spaces.add(Corpus.from_data(data, spaces.home))


OPENERS: dict[str, Callable[[EmbeddingCache, str, str | None, str, str], str]] = {
    EXAMPLE: lambda spaces, *_: spaces.example(),
    TEXT: _from_text,
    FILE: _from_file,
    DATA: _from_data,
}


def _encoding(count: int) -> str:
    cut = f" (of at most {MAX_SENTENCES:,})" if count == MAX_SENTENCES else ""
    return f"Encoding {count:,} sentences{cut}"


def _owner(request: gr.Request) -> str:
    return f"{request.session_hash} corpus"
