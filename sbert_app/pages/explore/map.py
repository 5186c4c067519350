"""The Map tab of the Explore page: the corpus as points, near where their vectors are near.

Every control draws anew; a map that was drawn before comes from the disk, so a new colour costs nothing. With a
second model the two maps are aligned, beside each other or with the points moving from one to the other. Clicks
and the slider are heard by assets/explore.js, as Gradio's Plot has no event of its own for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.figures import map as figures
from sbert_app.figures.map_colours import BLANK, MAX_LABELS, Colouring, Labels, Scale, make_colouring, make_labels
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.pages.components.pickers import MODELS, POOLINGS
from sbert_app.pages.explore import map_views as views
from sbert_app.pages.explore.view import View, space_of
from sbert_app.services.clusters.clustering import ClusterSettings, cluster
from sbert_app.services.clusters.keywords import keywords
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.maps.corpus_map import (
    SIMILAR,
    EmbeddingSpec,
    MapRequest,
    MapResult,
    compute_map,
    pair_distances,
)
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.tasks import TaskResult
from training.assets import asset
from training.errors import Stopped, UserFacingError

SCRIPT = asset("explore.js")
NOTHING, QUERY, CLUSTER, COLUMN = "", "query", "cluster", "column:"
BESIDE, MOVING = "Side by side", "Moving"
ALONE = ""
OWN = ""

Update = dict[Any, Any]  # component -> its new value


def build(services: Services, view: gr.State) -> None:
    """Lay the tab out inside the open gr.Tab."""
    _Tab(services, view).wire()


class _Asked(NamedTuple):
    """What the controls say, in their order."""

    colour: str
    query: str
    dimensions: str
    neighbours: int
    min_dist: float
    seed: int
    second: str
    pooling: str
    how: str
    pairs: bool

    def wanted(self, view: View) -> MapRequest:
        after = EmbeddingSpec(self.second.strip(), self.pooling or None) if (self.second or "").strip() else None
        settings = MapSettings(
            2 if self.dimensions == "2-D" else 3, int(self.neighbours), float(self.min_dist), int(self.seed or 0)
        )
        return MapRequest(view.corpus, EmbeddingSpec(view.model, view.pooling), after, settings)


class _Tab:
    """The components of the tab, and what happens to them."""

    def __init__(self, services: Services, view: gr.State) -> None:
        self.services, self.view = services, view
        self.shown = gr.State(None)  # what the map shows: Gradio tells of one choice twice
        with gr.Row(elem_classes="explore-map"):
            with gr.Column(scale=3, min_width=260):
                self.colour = gr.Dropdown(
                    [("nothing", NOTHING)], value=NOTHING, label="Colour by", elem_id="map-colour"
                )
                self.query = gr.Textbox(
                    "Somebody is cooking.", label="Query", visible="hidden", elem_id="map-query", max_lines=3
                )
                self.dimensions = gr.Radio(["2-D", "3-D"], value="2-D", label="Dimensions", elem_id="map-dimensions")
                self.pairs = gr.Checkbox(
                    label="Draw the pairs as lines", visible=False, elem_id="map-pairs", container=True
                )
                with gr.Accordion("Compare with another model", open=False, elem_id="map-compare"):
                    self.second = gr.Dropdown(
                        [("none", ALONE)],
                        value=ALONE,
                        label="After",
                        info="Before is the model above",
                        allow_custom_value=True,
                        elem_id="map-second",
                    )
                    self.pooling = gr.Radio(
                        [("its own", OWN), *POOLINGS], value=OWN, label="Its pooling", elem_id="map-pooling"
                    )
                    self.how = gr.Radio([BESIDE, MOVING], value=BESIDE, label="Show them", elem_id="map-how")
                with gr.Accordion("How it is drawn", open=False, elem_id="map-settings"):
                    self.neighbours = gr.Slider(
                        2, 100, 15, step=1, label="Neighbours", info="Few: detail; many: the whole"
                    )
                    self.min_dist = gr.Slider(0, 0.99, 0.1, step=0.01, label="Least distance of points")
                    self.seed = gr.Number(0, label="Seed", precision=0, minimum=0, info="Same seed, same map")
                self.halt = gr.Button("Stop", size="sm", interactive=False, elem_id="map-stop")
            with gr.Column(scale=8, min_width=320):
                self.status = gr.HTML('<div class="waiting">Waiting for the corpus …</div>', elem_id="map-status")
                self.mover = gr.HTML(
                    "",
                    html_template=views.MOVER,
                    js_on_load=SCRIPT.read_text(encoding="utf-8"),
                    visible="hidden",
                    elem_id="map-mover",
                )
                self.plot = gr.Plot(show_label=False, visible=False, elem_id="map-plot")
                self.nearest = gr.HTML(views.HINT, elem_id="map-nearest")

    def wire(self) -> None:
        """Connect the components with what they do."""
        asked = [
            *(self.shown, self.view, self.colour, self.query, self.dimensions, self.neighbours, self.min_dist),
            *(self.seed, self.second, self.pooling, self.how, self.pairs),
        ]
        results = [self.status, self.plot, self.mover, self.halt, self.shown]
        slow: dict[str, Any] = {"concurrency_limit": 4, "trigger_mode": "always_last", **PRIVATE}
        opened = self.view.change(
            self.opened, self.view, [self.colour, self.query, self.pairs, self.second, self.nearest], **PRIVATE
        ).then(self.draw, asked, results, **slow)
        self.colour.input(
            lambda colour: gr.update(visible=True if colour == QUERY else "hidden"), self.colour, self.query, **PRIVATE
        )
        edits = [
            *(part.input for part in (self.colour, self.dimensions, self.pairs, self.second, self.pooling, self.how)),
            *(self.neighbours.release, self.min_dist.release, self.neighbours.change, self.min_dist.change),
            *(self.seed.change, self.query.change),
        ]
        drawn = gr.on(edits, self.draw, asked, results, **slow)
        for event in (opened, drawn):
            event.failure(self.failed, None, [self.status, self.halt], **PRIVATE)
        self.halt.click(self.stop, None, self.halt, queue=False, **PRIVATE)
        self.mover.click(self.show_nearest, [self.view, self.second, self.pooling], self.nearest, **PRIVATE)

    def opened(self, view: View | None) -> Update:
        """Offer what the corpus has: its columns, its pairs, the models there are by now."""
        if view is None:
            return {self.nearest: gr.skip()}
        corpus = self.services.embeddings.corpus(view.corpus)
        columns = [(name, COLUMN + name) for name in corpus.columns]
        choices = [("nothing", NOTHING), *columns, ("cluster (HDBSCAN)", CLUSTER), ("similarity to a query", QUERY)]
        runs = [(f"run: {run.name}", f"run:{run.id}") for run in self.services.jobs.store.list() if run.has_model]
        return {
            self.colour: gr.Dropdown(choices, value=_first_colour(corpus)),
            self.query: gr.update(visible="hidden"),
            self.pairs: gr.Checkbox(visible=corpus.gold is not None, value=corpus.gold is not None),
            self.second: gr.Dropdown([("none", ALONE), *((name, name) for name in MODELS), *runs]),
            self.nearest: views.HINT,
        }

    def draw(self, request: gr.Request, shown: Any, view: View | None, *said: Any) -> Iterator[Update]:
        """Draw the map that the controls ask for, unless it is what they show."""
        asked = _Asked(*said)
        if view is None or shown == (view, asked):
            yield {self.halt: gr.skip()}  # a generator that says nothing would empty the page
            return
        idle = {self.halt: gr.Button("Stop", interactive=False)}
        hidden = {self.plot: gr.update(visible=False), self.mover: gr.update(visible="hidden")}
        try:
            wanted = asked.wanted(view)

            def work(tell: Any, should_stop: Any) -> Any:
                drawn = compute_map(self.services.embeddings, wanted, tell, should_stop)
                colouring = self._colouring(drawn, asked, tell, should_stop)
                return drawn, _figure(drawn, asked, colouring)

            for event in self.services.tasks.run(_owner(request), "Preparing", work):
                if isinstance(event, TaskResult):
                    drawn, figure = event.value
                    moving = len(drawn.maps) == 2 and asked.how == MOVING
                    yield {
                        self.status: self._line(drawn, asked),
                        self.plot: gr.Plot(figure, visible=True),
                        self.mover: gr.HTML(drawn.key, visible=True if moving else "hidden"),
                        self.shown: (view, asked),
                        **idle,
                    }
                else:
                    yield {self.status: progress_bar(event), self.halt: gr.Button("Stop", interactive=True)}
        except UserFacingError as error:
            yield {self.status: error_message(error), self.shown: None, **hidden, **idle}
        except Stopped:
            yield {self.status: error_message("stopped: change anything to draw again."), self.shown: None, **idle}

    def stop(self, request: gr.Request) -> Any:
        """Stop drawing."""
        self.services.tasks.stop(_owner(request))
        return gr.Button("Stopping …", interactive=False)

    def failed(self) -> tuple[Any, ...]:
        """An error that is no fault of the user's."""
        words = INTERNAL_ERROR
        return error_message(words), gr.Button("Stop", interactive=False)

    def show_nearest(self, view: View | None, second: str, pooling: str, event: gr.EventData) -> str:
        """What is nearest to the point that was clicked."""
        if view is None:
            return views.HINT
        try:
            spaces = [space_of(self.services, view)]
            if (second or "").strip():
                spaces.append(self.services.embeddings.embed(view.corpus, second.strip(), pooling or None))
            return views.nearest(spaces, int(event.row))
        except UserFacingError as error:
            return error_message(error)

    def _colouring(self, drawn: MapResult, asked: _Asked, tell: Any, should_stop: Any) -> Colouring:
        space, spaces = drawn.embedded[0], self.services.embeddings
        if asked.colour == CLUSTER:
            tell(0, "Clustering")
            groups = cluster(space, ClusterSettings(), spaces.cache, spaces.home, tell, should_stop)
            named = {
                group: f"{group + 1}: {', '.join(k)}"
                for group, k in keywords(space.corpus.sentences, groups, 2).items()
            }
            return make_labels("cluster", [named[group] if group >= 0 else BLANK for group in groups.tolist()])
        if asked.colour == QUERY and asked.query.strip():
            encoder = self.services.models.encoder(space.model, space.pooling)
            return Scale("cosine to the query", space.vectors @ encoder.encode([asked.query])[0])
        name = (asked.colour or "").removeprefix(COLUMN)
        return make_colouring(name, space.corpus.columns[name]) if name in space.corpus.columns else None

    def _line(self, drawn: MapResult, asked: _Asked) -> str:
        gold = drawn.embedded[0].corpus.gold
        line = views.map_line(drawn)
        if gold is not None and asked.pairs:
            line += views.pairs_line(pair_distances(drawn, gold))
        if len(drawn.embedded) == 2 and (model := drawn.embedded[1].model).startswith("run:"):
            run = self.services.jobs.store.get(model.removeprefix("run:"))
            line += views.training_note(run.name, run.config.base, drawn.embedded[0].model)
        return line


def _figure(drawn: MapResult, asked: _Asked, colouring: Colouring) -> Any:
    corpus = drawn.embedded[0].corpus
    gold = corpus.gold if asked.pairs else None
    lines = [] if gold is None else [
        figures.PairLines("gold below 4", gold.rows[gold.gold < SIMILAR], strong=False),
        figures.PairLines("gold 4 or more", gold.rows[gold.gold >= SIMILAR], strong=True),
    ]  # fmt: skip
    titles = [views.title(space, when) for space, when in zip(drawn.embedded, views.WHENS, strict=False)]
    picture = figures.MapData(drawn.maps, titles, corpus.sentences, colouring, lines, drawn.key + asked.how)
    return figures.paired_maps(picture) if len(titles) == 2 and asked.how == BESIDE else figures.single_map(picture)


def _first_colour(corpus: Corpus) -> str:
    """The first column that makes a legend; nothing where there is none, or where lines say more."""
    if corpus.gold is not None:
        return NOTHING
    for name, values in corpus.columns.items():
        found = make_colouring(name, values)
        if isinstance(found, Labels) and 2 <= len(set(map(str, values))) <= MAX_LABELS:
            return COLUMN + name
    return NOTHING


def _owner(request: gr.Request) -> str:
    return f"{request.session_hash} map"
