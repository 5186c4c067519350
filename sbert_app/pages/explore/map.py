"""The Map tab of the Explore page: the corpus as points, close together where their embeddings are.

Every control redraws the map; maps are cached on disk, so a new colour needs no new map. With a second model the two
maps are aligned, shown side by side or with the points moving from one to the other. assets/explore.js handles
clicks on points, lassos and the slider, for which Gradio's Plot has no events, and draws what is selected or found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import EVERY, PRIVATE
from sbert_app.pages.components.pickers import MODELS, POOLINGS
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.components.templates import render
from sbert_app.pages.explore import views
from sbert_app.pages.explore.atlas import AtlasExport
from sbert_app.pages.explore.map_figure import (
    ANIMATED,
    BOTH_MAPS,
    CLUSTER,
    COLUMN,
    GROUPS,
    NO_SECOND_MODEL,
    NOTHING,
    QUERY,
    SAME_AS_MODEL,
    MapControls,
    compute_colouring,
    first_colour,
    make_figure,
)
from sbert_app.pages.explore.selected import SelectedPanel
from sbert_app.pages.explore.selection import Clustering, Picked, Selection, Shared
from sbert_app.services.container import Services
from sbert_app.services.maps.corpus_map import MapResult, compute_map, pair_distances
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.assets import asset
from training.errors import UserFacingError

SCRIPT = asset("explore.js")
HINT = messages.note("Click a point to list its nearest sentences here.")


def build(services: Services, shared: Shared) -> None:
    """Build the tab inside the open gr.Tab."""
    _MapTab(services, shared).wire()


class _MapTab:
    """The components and their event handlers."""

    def __init__(self, services: Services, shared: Shared) -> None:
        self.services, self.selection, self.clustering = services, shared.selection, shared.clustering
        self.panel = SelectedPanel(services, shared.selection)
        self.shown = gr.State(None)  # (selection, controls) of the map; Gradio may send one change twice
        with gr.Row(elem_classes="explore-map"):
            with gr.Column(scale=3, min_width=220):
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
                self.panel.build_controls()
                with gr.Accordion("Compare with another model", open=False, elem_id="map-compare"):
                    self.second = gr.Dropdown(
                        [("none", NO_SECOND_MODEL)],
                        value=NO_SECOND_MODEL,
                        label="Second model (after)",
                        info="The first one (before) is the model above",
                        allow_custom_value=True,
                        elem_id="map-second",
                    )
                    self.pooling = gr.Radio(
                        [("same as the model", SAME_AS_MODEL), *POOLINGS],
                        value=SAME_AS_MODEL,
                        label="Pooling",
                        elem_id="map-pooling",
                    )
                    self.layout = gr.Radio(
                        [BOTH_MAPS, ANIMATED], value=BOTH_MAPS, label="Show the maps", elem_id="map-how"
                    )
                with gr.Accordion("UMAP settings", open=False, elem_id="map-settings"):
                    self.neighbours = gr.Slider(
                        2,
                        100,
                        15,
                        step=1,
                        label="Neighbours (n_neighbors)",
                        info="Few: local detail; many: global structure",
                    )
                    self.min_dist = gr.Slider(0, 0.99, 0.1, step=0.01, label="Minimum distance (min_dist)")
                    self.seed = gr.Number(0, label="Random seed", precision=0, minimum=0, info="Same seed, same map")
                stop = gr.Button("Stop", size="sm", interactive=False, elem_id="map-stop")
            with gr.Column(scale=8, min_width=320):
                self.status = gr.HTML(messages.waiting("Waiting for the corpus …"), elem_id="map-status")
                self.slider = gr.HTML(
                    "",
                    html_template=render("explore/templates/map_slider.html"),
                    js_on_load=SCRIPT.read_text(encoding="utf-8"),
                    visible="hidden",
                    elem_id="map-mover",
                )
                gr.HTML('<div class="map-layers"></div>', elem_id="map-layers")
                self.plot = gr.Plot(show_label=False, visible=False, elem_id="map-plot")
                self.nearest = gr.HTML(HINT, elem_id="map-nearest")
                self.atlas = AtlasExport(services, shared)
            self.panel.build_panel()
        self.task = TaskWidget("map", self.status, stop, stopped="stopped: change any control to draw again.")

    def wire(self) -> None:
        """Connect the components with their handlers."""
        controls = [
            *(self.colour, self.query, self.dimensions, self.neighbours, self.min_dist),
            *(self.seed, self.second, self.pooling, self.layout, self.pairs),
        ]
        inputs = [self.shown, self.selection, self.clustering, *controls]
        outputs = [*self.task.outputs, self.plot, self.slider, self.shown]
        slow: dict[str, Any] = {"concurrency_limit": 4, "trigger_mode": "always_last", **PRIVATE}
        offered = [self.colour, self.query, self.pairs, self.second, self.nearest, *self.panel.outputs]
        opened = self.selection.change(
            self.opened, [self.selection, self.panel.picked, self.colour], offered, **PRIVATE
        ).then(self.draw, inputs, outputs, **slow)
        saved, deleted = self.panel.wire(self.slider)
        regrouped = [
            event.then(choose, self.selection, [self.colour, self.shown], **PRIVATE).then(
                self.draw, inputs, outputs, **slow
            )
            for event, choose in ((saved, self.colour_by_groups), (deleted, self.groups_changed))
        ]
        recoloured = self.clustering.change(self.draw, inputs, outputs, **slow)
        self.colour.input(
            lambda colour: gr.update(visible=True if colour == QUERY else "hidden"), self.colour, self.query, **EVERY
        )
        selected = (self.colour, self.dimensions, self.pairs, self.second, self.pooling, self.layout)
        edits = [
            *(control.input for control in selected),
            *(self.neighbours.release, self.min_dist.release, self.neighbours.change, self.min_dist.change),
            *(self.seed.change, self.query.change),
        ]
        redrawn = gr.on(edits, self.draw, inputs, outputs, **slow)
        self.task.wire(self.services, opened, *regrouped, recoloured, redrawn)
        self.atlas.wire(self.neighbours, self.min_dist, self.seed)
        self.slider.click(self.show_nearest, [self.selection, self.second, self.pooling], self.nearest, **PRIVATE)

    def opened(self, selection: Selection | None, picked: Picked, colour: str) -> Update:
        """A corpus was opened: offer its columns, its pairs, and the models that exist by now.

        Under another model the same corpus keeps its colour and what is selected.
        """
        if selection is None:
            return {self.nearest: gr.skip()}
        corpus = self.services.embeddings.corpus(selection.corpus)
        choices = self._colours(selection)
        is_same = picked.corpus == selection.corpus and colour in [value for _, value in choices]
        runs = [(f"run: {run.name}", f"run:{run.id}") for run in self.services.jobs.store.list() if run.has_model]
        return {
            self.colour: gr.Dropdown(choices, value=colour if is_same else first_colour(corpus)),
            self.query: gr.skip() if is_same else gr.update(visible="hidden"),
            self.pairs: gr.Checkbox(visible=corpus.gold is not None, value=corpus.gold is not None),
            self.second: gr.Dropdown([("none", NO_SECOND_MODEL), *((name, name) for name in MODELS), *runs]),
            self.nearest: HINT,
            **self.panel.opened(selection, picked),
        }

    def colour_by_groups(self, selection: Selection | None) -> Update:
        """A group was saved: colour by groups."""
        if selection is None or not self.panel.groups_of(selection):
            return {self.shown: gr.skip()}
        return {self.colour: gr.Dropdown(self._colours(selection), value=GROUPS), self.shown: None}

    def groups_changed(self, selection: Selection | None) -> Update:
        """A group was deleted: colour by those that are left."""
        if selection is None:
            return {self.shown: gr.skip()}
        corpus, choices = self.services.embeddings.corpus(selection.corpus), self._colours(selection)
        left = bool(self.panel.groups_of(selection))
        return {self.colour: gr.Dropdown(choices, value=GROUPS if left else first_colour(corpus)), self.shown: None}

    def _colours(self, selection: Selection) -> list[tuple[str, str]]:
        columns = self.services.embeddings.corpus(selection.corpus).columns
        groups = [("my groups", GROUPS)] if self.panel.groups_of(selection) else []
        ways = [("cluster", CLUSTER), ("similarity to a query", QUERY), *groups]
        return [("nothing", NOTHING), *((name, COLUMN + name) for name in columns), *ways]

    def draw(
        self, request: gr.Request, shown: Any, selection: Selection | None, clustering: Clustering, *values: Any
    ) -> Iterator[Update]:
        """Draw the map that the controls ask for, unless it is shown already."""
        controls = MapControls(*values)
        wanted = (selection, controls, clustering if controls.colour == CLUSTER else None)
        if selection is None or shown == wanted:
            yield {self.status: gr.skip()}  # a generator that yields nothing would clear its outputs
            return

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Update:
            result = compute_map(self.services.embeddings, controls.request(selection), report_progress, should_stop)
            embedded = selection.embed(self.services.embeddings)  # all sentences, also where a sample is drawn
            colouring = compute_colouring(
                self.services, embedded, controls, clustering.settings, report_progress, should_stop
            )
            is_animated = len(result.maps) == 2 and controls.layout == ANIMATED
            return {
                self.status: self._map_status(result, controls),
                self.plot: gr.Plot(make_figure(result, controls, colouring), visible=True),
                self.slider: gr.HTML(result.key, visible=True if is_animated else "hidden"),
                self.shown: wanted,
            }

        on_stop: Update = {self.shown: None}  # the last map stays
        on_error = {**on_stop, self.plot: gr.update(visible=False), self.slider: gr.update(visible="hidden")}
        yield from self.task.run(self.services, request, work, lambda update: update, on_error, on_stop)

    def show_nearest(self, selection: Selection | None, second: str, pooling: str, event: gr.EventData) -> str:
        """The sentences nearest to the clicked point, under each model."""
        if selection is None:
            return HINT
        embeddings = self.services.embeddings
        try:
            embedded = [selection.embed(embeddings)]
            if (second or "").strip():
                embedded.append(embeddings.embed(selection.corpus, second.strip(), pooling or None))
            return views.nearest(embedded, int(event.row))
        except UserFacingError as error:
            return messages.error_message(error)

    def _map_status(self, result: MapResult, controls: MapControls) -> str:
        gold, run = result.embedded[0].corpus.gold, None
        pairs = pair_distances(result, gold) if gold is not None and controls.pairs else None
        if len(result.embedded) == 2 and (model := result.embedded[1].model).startswith("run:"):
            found = self.services.jobs.store.get(model.removeprefix("run:"))
            base = found.config.base
            run = {"name": found.name, "base": base, "is_base": base == result.embedded[0].model}
        return views.map_status(result, pairs, run)
