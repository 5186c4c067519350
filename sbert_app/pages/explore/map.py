"""The tab Map: the sentences of a corpus as points, close together if their embeddings are.

Every control redraws the map; maps are cached on disk, so a new colour needs no new map. With a
second model the two maps are aligned and stand side by side. assets/explore.js handles clicks on
points and lassos, for which Gradio's Plot has no events, and highlights selected sentences.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures.map import FEW_POINTS, Colouring
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options, run_js
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import NO_MODEL, POOLINGS, model_picker
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import macro
from sbert_app.pages.explore.map_figure import (
    CLUSTER,
    COLUMN,
    NOTHING,
    QUERY,
    TOPIC,
    MapControls,
    compute_colouring,
    first_colour,
    make_figure,
    map_status,
    nearest,
    topic_labels,
)
from sbert_app.pages.explore.open_corpus import (
    OpenCorpus,
    SelectedRows,
    Shared,
    find_clusters,
    require_open,
)
from sbert_app.pages.explore.selected import SelectedPanel
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.atlas import OPTIONS, export_atlas
from sbert_app.services.clusters.clustering import ClusterSettings
from sbert_app.services.clusters.summary import FEWEST, Topics, describe_clusters, find_topics
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.maps.corpus_map import MapResult, compute_map, pair_distances
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.store.cache import LRUCache
from training.catalogue import read_asset
from training.errors import UserFacingError
from training.names import ModelName

# The colour until a corpus is open.
SUGGESTED = "suggested"
HINT = messages.note("Click a point to list its nearest sentences.")
# The ids of the lists beside the map.
SELECTED = "selected"
NEAREST_TO_POINT = "nearest"
SEARCH = "search"
FULL_SCREEN = """() => {
  const area = document.getElementById("map-area");
  document.fullscreenElement ? document.exitFullscreen() : area.requestFullscreen();
}"""


def build(
    services: Services, shared: Shared, build_search: Callable[[Services, Shared], None]
) -> None:
    """Builds the tab inside the open gr.Tab; ``build_search`` builds the list of search results beside the map."""
    _MapTab(services, shared, build_search).wire()


def _build_export(services: Services, shared: Shared, settings: Sequence[Any]) -> None:
    """Builds the export of the corpus, with its map in 2-D and its clusters, for the command embedding-atlas.

    ``settings`` are the components with the neighbours, the minimum distance and the seed of the
    map.
    """
    with gr.Row(elem_classes="actions"):
        start = gr.Button("Download Parquet", size="sm", elem_id="atlas-go")
        stop = gr.Button("Stop", size="sm", visible=False, elem_id="atlas-stop")
        file = gr.File(visible=False)
    tab = MeasureTab(services, "atlas", gr.HTML(elem_id="atlas-status"), start, stop)

    def export(
        watch: Watch, open_corpus: OpenCorpus | None, clustering: ClusterSettings, *values: Any
    ) -> Update:
        """Writes the corpus with its map and its clusters into a Parquet file."""
        embeddings = services.embeddings
        embedded = require_open(open_corpus).embed(embeddings)
        watch.report(0, "Clustering")
        labels = find_clusters(embeddings, embedded, clustering, watch)
        neighbours, min_dist, seed = values
        map_settings = MapSettings(
            dimensions=2,
            neighbours=int(neighbours),
            min_dist=float(min_dist),
            # The value of an empty number field is None.
            seed=int(seed or 0),
        )
        path = services.temp.new_folder("explore") / "atlas.parquet"
        num_drawn = export_atlas(
            embedded,
            describe_clusters(embedded, labels),
            path,
            map_settings,
            embeddings.cache,
            embeddings.home,
            embeddings.limits,
            watch,
        )
        status = macro("explore/atlas")(rows=len(embedded), drawn=num_drawn, options=OPTIONS)
        return {tab.status: status, file: str(path)}

    inputs = [shared.open_corpus, shared.clustering, *settings]
    empty = {file: None}
    exported = tab.on(start.click, tab.handler(export, empty), inputs, empty, concurrency_limit=1)
    # The hidden gr.File only passes the file to the script, which downloads it. After an error or a
    # stop it is empty.
    run_js(exported.then, "(file) => { if (file) window.saveFile(file); }", file)
    shared.open_corpus.change(
        lambda: {file: None, tab.status: ""}, None, [file, tab.status], **event_options()
    )


class _MapTab:
    """The components of the tab and their event handlers.

    Attributes:
        panel: the selected sentences.
        lists: the tabs beside the map: Selected, Nearest and Search.
        nearest: the list in the tab Nearest.
        second: the picker of a second model, whose map stands beside the first one.
        pooling: the pooling of the second model.
        task: draws the map.
    """

    def __init__(
        self, services: Services, shared: Shared, build_search: Callable[[Services, Shared], None]
    ) -> None:
        self.services = services
        self.open_corpus = shared.open_corpus
        self.clustering = shared.clustering
        self.panel = SelectedPanel(services, shared.open_corpus)
        # The `_version` of the map on the page. An event after which the map would have the same
        # version is skipped, because Gradio may send one change twice.
        self.drawn_version = gr.State(None)
        # The key of the corpus whose map, selection and settings are on the page; "" at first.
        self.last_corpus = gr.State("")
        with gr.Row(elem_classes="map-tools"):
            stop = self._build_tools()
        with gr.Row(elem_id="map-area"):
            with gr.Column(scale=7, min_width=320, elem_id="map-frame"):
                status = self._build_map()
            # A lasso opens the first list, and a click on a point opens the second one.
            with (
                gr.Column(scale=0, min_width=320, elem_id="map-side"),
                gr.Tabs(selected=SEARCH, elem_id="map-lists") as self.lists,
            ):
                with gr.Tab("Selected", id=SELECTED):
                    self.panel.build_panel(self.lists)
                with gr.Tab("Nearest", id=NEAREST_TO_POINT):
                    self.nearest = gr.HTML(HINT, elem_id="map-nearest")
                with gr.Tab("Search", id=SEARCH):
                    build_search(services, shared)
        self.panel.build_table()
        with gr.Row():
            sections = {"The map": [status, self.plot], "The nearest sentences": [self.nearest]}
            report_button(services, *of_page("Map", sections, [self.second]), "map")
            with gr.Accordion("Settings of the map", open=False, elem_id="map-settings"):
                self._build_settings()
            with gr.Accordion("Export for embedding-atlas", open=False, elem_id="atlas-export"):
                _build_export(services, shared, [self.neighbours, self.min_dist, self.seed])
        message = "stopped: change any control to draw again."
        self.task = MeasureTab(services, "map", status, stop=stop, stopped=message)
        # The coarse and the fine regions of the first map, by `MapResult.key`. All visitors share
        # both caches, because the page is built once.
        self.topics: LRUCache[str, tuple[Topics, Topics]] = LRUCache(16)
        # Plots of few points in the form that the browser gets, which takes a tenth of a second to
        # make.
        self.plots: LRUCache[Any, Any] = LRUCache(16)

    def _build_tools(self) -> gr.Button:
        """Builds the row above the map. Returns the Stop button."""
        self.colour = gr.Dropdown(
            [("as the corpus suggests", SUGGESTED)],
            value=SUGGESTED,
            label="Colour by",
            # The address may name a column before the corpus is open.
            allow_custom_value=True,
            min_width=170,
            container=False,
            elem_id="map-colour",
        )
        self.panel.build_drag_choice()
        self.dimensions = gr.Radio(
            ["2-D", "3-D"],
            value="2-D",
            label="Dimensions",
            min_width=110,
            container=False,
            elem_id="map-dimensions",
        )
        self.second = model_picker(
            self.services,
            NO_MODEL,
            "Second model",
            optional=True,
            # `model_picker` adds a hint and the class "model" by default.
            info="",
            min_width=170,
            container=False,
            elem_id="map-second",
            elem_classes=[],
        )
        self.pairs = gr.Checkbox(
            label="Pairs as lines",
            visible=False,
            min_width=110,
            container=False,
            elem_id="map-pairs",
        )
        whole = gr.Button("Full screen", size="sm", min_width=100, elem_id="map-whole")
        run_js(whole.click, FULL_SCREEN)
        return gr.Button("Stop", size="sm", visible=False, min_width=70, elem_id="map-stop")

    def _build_map(self) -> gr.HTML:
        """Builds the map. Returns its status."""
        self.query = gr.Textbox(
            "Somebody is cooking.",
            label="Colour by the similarity to",
            visible="hidden",
            max_lines=3,
            elem_id="map-query",
        )
        # A hidden component whose events come from the figure: `click` on a point, `select` by a
        # lasso.
        script = read_asset("explore.js")
        self.events = gr.HTML("", visible="hidden", elem_id="map-events", js_on_load=script)
        gr.HTML('<div class="map-layers"></div>', elem_id="map-layers")
        self.plot = gr.Plot(show_label=False, visible=False, elem_id="map-plot")
        return gr.HTML(messages.waiting("Waiting for the corpus …"), elem_id="map-status")

    def _build_settings(self) -> None:
        """Builds the settings of the map inside the open gr.Accordion."""
        self.names = gr.Checkbox(True, label="Write names onto the map", elem_id="map-names")
        hint = "Few: local detail; many: global structure"
        self.neighbours = gr.Slider(2, 100, 15, step=1, label="Neighbours (n_neighbors)", info=hint)
        self.min_dist = gr.Slider(0, 0.99, 0.1, step=0.01, label="Minimum distance (min_dist)")
        self.seed = gr.Number(
            0, label="Random seed", precision=0, minimum=0, info="Same seed, same map"
        )
        poolings = [("same as the model", ""), *POOLINGS]
        self.pooling = gr.Radio(
            poolings, value="", label="Pooling of the second model", elem_id="map-pooling"
        )

    def wire(self) -> None:
        """Connects the components: the map is drawn for each corpus, and again when a control changes."""
        controls = [
            self.colour,
            self.query,
            self.dimensions,
            self.neighbours,
            self.min_dist,
            self.seed,
            self.second,
            self.pooling,
            self.pairs,
            self.names,
        ]
        inputs = [self.drawn_version, self.open_corpus, self.clustering, *controls]
        # After a stop the last map stays. Without a version, any change of a control draws again.
        on_stop: Update = {self.drawn_version: None}
        empty = {**on_stop, self.plot: hidden()}

        def is_up_to_date(
            drawn_version: Any,
            open_corpus: OpenCorpus | None,
            clustering: ClusterSettings,
            *values: Any,
        ) -> bool:
            """Whether the map is on the page, or there is no corpus to draw yet."""
            if open_corpus is None:
                return True
            return drawn_version == _version(open_corpus, clustering, MapControls(*values))

        # The components of ``empty`` are also the outputs of `draw`.
        draw = self.task.handler(self.draw, empty, on_stop, unless=is_up_to_date)
        draw_at = partial(
            self.task.on, handler=draw, inputs=inputs, outputs=empty, concurrency_limit=4
        )

        corpus_outputs = [
            self.last_corpus,
            self.colour,
            self.query,
            self.pairs,
            self.second,
            self.plot,
            self.task.status,
            self.nearest,
            self.panel.words,
            *self.panel.outputs,
        ]
        changed = self.open_corpus.change(
            self.show_corpus,
            [self.open_corpus, self.last_corpus, self.panel.selection, self.colour],
            corpus_outputs,
            **event_options(),
        )
        draw_at(changed.then)
        self.panel.wire(self.events)
        draw_at(self.clustering.change)
        # `draw_at` below listens to the same event. With two listeners, Gradio would send it to both
        # again in another mode ("multiple" at `event_options`).
        self.colour.input(
            _query_field,
            self.colour,
            self.query,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        edits = [
            self.colour.input,
            self.dimensions.input,
            self.pairs.input,
            self.second.input,
            self.pooling.input,
            self.names.input,
            self.neighbours.release,
            self.min_dist.release,
            self.neighbours.change,
            self.min_dist.change,
            self.seed.change,
            self.query.change,
        ]
        # A move of a slider may send both of its events. `is_up_to_date` skips the second one.
        draw_at(edits)
        models = [self.open_corpus, self.second, self.pooling]
        lists = [self.nearest, self.lists]
        self.events.click(self.show_clicked, models, lists, **event_options())
        self.panel.table.select(self.show_row, models, lists, **event_options())

    def show_corpus(
        self,
        open_corpus: OpenCorpus | None,
        last_corpus: str,
        selection: SelectedRows,
        colour: str,
    ) -> Update:
        """Offers the columns and pairs of a corpus that was just opened.

        The colour and the selection stay if only the model is another one, but not for another
        corpus. ``last_corpus`` is "" when the first corpus is opened.
        """
        if open_corpus is None:
            # Gradio does not take an empty dictionary for updates.
            return {self.nearest: gr.skip()}
        corpus = self.services.embeddings.corpus(open_corpus.corpus)
        choices = _colours(corpus)
        is_offered = colour in [value for _, value in choices]
        is_same_corpus = last_corpus == open_corpus.corpus
        # The address may name a colour for the first corpus.
        keeps_colour = is_offered and (is_same_corpus or not last_corpus)
        if not keeps_colour:
            colour = first_colour(corpus)
        has_pairs = corpus.gold is not None
        update: Update = {
            self.last_corpus: open_corpus.corpus,
            self.colour: gr.Dropdown(choices, value=colour),
            self.query: _query_field(colour),
            self.pairs: gr.Checkbox(visible=has_pairs, value=has_pairs),
            self.nearest: HINT,
            **self.panel.show_corpus(open_corpus, selection),
        }
        if not is_same_corpus:
            update[self.plot] = hidden()
            update[self.task.status] = messages.waiting("Drawing the map …")
            # The address may also name a second model and words for the first corpus.
            if last_corpus:
                update[self.second] = NO_MODEL
                update[self.panel.words] = ""
        return update

    def draw(
        self,
        watch: Watch,
        _drawn_version: Any,
        open_corpus: OpenCorpus,
        clustering: ClusterSettings,
        *values: Any,
    ) -> Update:
        """Shows the map of the corpus. Maps, regions and small plots that were made before are taken from caches.

        ``values`` are the fields of `MapControls`.
        """
        # ``_drawn_version`` is for `is_up_to_date` in `wire`, which gets the same values.
        controls = MapControls(*values)
        models = [open_corpus.model]
        if controls.second_model is not None:
            models.append(controls.second_model)
        result = compute_map(
            self.services.embeddings, open_corpus.corpus, models, controls.settings, watch
        )
        topics = self.topics.get(result.key)
        if topics is None:
            watch.report(0, "Looking for keywords")
            topics = find_topics(result.maps[0], result.embedded[0].corpus.sentences, watch)
            self.topics.put(result.key, topics)
        key = (open_corpus, result.key, controls)
        plot = self.plots.get(key)
        if plot is None:
            if controls.colour == TOPIC:
                # The coarse regions.
                colouring: Colouring = topic_labels(topics[0])
            else:
                colouring = compute_colouring(
                    self.services, open_corpus, controls, clustering, watch
                )
                # The map of a large corpus shows some of its sentences, and the colouring has all.
                if result.rows is not None and colouring is not None:
                    colouring = colouring.of(result.rows)
            figure = make_figure(result, controls, colouring, topics if controls.names else ())
            # The form that is sent to the browser.
            plot = self.plot.postprocess(figure)
            # Some of what a plot shows is not in the key: the gold scores of pairs, the settings of
            # the clusters, and the vector of the query.
            has_pairs = result.embedded[0].corpus.gold is not None
            depends_on_more = has_pairs or controls.colour in (CLUSTER, QUERY)
            if len(result.maps[0]) <= FEW_POINTS and not depends_on_more:
                self.plots.put(key, plot)
        return {
            self.task.status: self._map_status(result, controls),
            self.plot: visible(plot),
            self.drawn_version: _version(open_corpus, clustering, controls),
        }

    def show_clicked(
        self, open_corpus: OpenCorpus | None, second: str, pooling: str, event: gr.EventData
    ) -> Any:
        """Lists the sentences nearest to the point that was clicked."""
        return self._nearest(open_corpus, second, pooling, int(event.row))

    def show_row(
        self, open_corpus: OpenCorpus | None, second: str, pooling: str, event: gr.EventData
    ) -> Any:
        """Lists the sentences nearest to the one in a row of the table, whose first cell is its number, from 1."""
        row = int(event.row_value[0]) - 1
        return self._nearest(open_corpus, second, pooling, row)

    def _nearest(self, open_corpus: OpenCorpus | None, second: str, pooling: str, row: int) -> Any:
        """Returns the list of nearest sentences, and the update that opens its tab."""
        html = HINT
        try:
            if open_corpus is not None:
                embeddings = self.services.embeddings
                embedded = [open_corpus.embed(embeddings)]
                name = (second or "").strip()
                if name:
                    embedded.append(embeddings.embed(open_corpus.corpus, name, pooling or None))
                html = nearest(embedded, row)
        except UserFacingError as error:
            html = messages.error_message(error)
        return html, gr.Tabs(selected=NEAREST_TO_POINT)

    def _map_status(self, result: MapResult, controls: MapControls) -> str:
        """Renders the status of a map. If the second model comes from a training run, the status names the run."""
        gold = result.embedded[0].corpus.gold
        pairs = None
        if gold is not None and controls.pairs:
            pairs = pair_distances(result, gold)
        run = None
        run_id = ModelName.parse(result.embedded[-1].model).run_id
        if len(result.embedded) == 2 and run_id is not None:
            trained = self.services.jobs.store.get(run_id)
            base = trained.config.base
            run = {"name": trained.name, "base": base, "is_base": base == result.embedded[0].model}
        return map_status(result, pairs, run)


def _colours(corpus: Corpus) -> list[tuple[str, str]]:
    """Returns the ways to colour the points of a corpus."""
    choices = [("nothing", NOTHING)]
    choices += [(name, COLUMN + name) for name in corpus.columns]
    # Smaller corpora have no topics.
    if len(corpus) >= FEWEST:
        choices.append(("topic", TOPIC))
    return [*choices, ("cluster", CLUSTER), ("similarity to a query", QUERY)]


def _query_field(colour: str) -> Any:
    """Returns the update of the query, which is visible while points are coloured by their similarity to it."""
    return gr.update(visible=True if colour == QUERY else "hidden")


def _version(
    open_corpus: OpenCorpus, clustering: ClusterSettings, controls: MapControls
) -> tuple[Any, ...]:
    """Returns what a map depends on; the settings of the clusters only if they colour it."""
    return (open_corpus, controls, clustering if controls.colour == CLUSTER else None)
