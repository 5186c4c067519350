"""The tab Clusters: clusters by density, k-means or a tree, with their keywords and sentences."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.explore.open_corpus import (
    OpenCorpus,
    Shared,
    find_clusters,
    require_open,
    shorten,
)
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.clustering import (
    HDBSCAN,
    HIERARCHICAL,
    K_MEANS,
    MAX_TREE_SENTENCES,
    ClusterSettings,
)
from sbert_app.services.clusters.summary import Cluster, describe_clusters, label_columns
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.files.writers import save_table

MAX_CLUSTERS_SHOWN = 30
# The number of sentences of a cluster that the page lists; the file has all of them.
MAX_LISTED = 100
CLUSTERING_NOTES = {
    HDBSCAN: "HDBSCAN looks for dense groups in a 5-dimensional map of the embeddings (UMAP): in the model's hundreds "
    "of dimensions hardly anything is dense. Sentences between the groups belong to none.",
    K_MEANS: "Mini-batch k-means divides all sentences into the given number of clusters, each around its centre. No "
    "sentence is left out, even where nothing is dense.",
    HIERARCHICAL: "Average linkage on the cosines of all pairs: the two most similar groups are merged, again and "
    "again. The tree is kept: cutting it elsewhere takes no time.",
}
METHODS = [
    ("Density (HDBSCAN)", HDBSCAN),
    ("k-means (mini-batch)", K_MEANS),
    ("Hierarchical (average linkage)", HIERARCHICAL),
]
BY_COSINE = "cosine"
BY_NUMBER = "number"
CUTS = [("by cosine", BY_COSINE), ("by number", BY_NUMBER)]
MAX_CLUSTERS = 500
PRESS_BUTTON = messages.lead("Press Find clusters.")
FINDING = messages.waiting("Finding the clusters …")
WAITING = messages.waiting("Waiting for the corpus …")


def build(services: Services, shared: Shared) -> None:
    """Builds the tab inside the open gr.Tab; the clusters of a corpus are found when the tab is opened."""
    _ClustersTab(services, shared).wire()


class _ClustersTab:
    """The components of the tab and their event handlers.

    Attributes:
        smallest: the minimum size of a cluster, for HDBSCAN.
        cut: the choice of how a tree is cut: by the cosine or by the number of clusters.
        task: finds the clusters, with Start and Stop.
    """

    def __init__(self, services: Services, shared: Shared) -> None:
        self.services = services
        self.open_corpus = shared.open_corpus
        # The settings of the clusters on the page. The tab Map colours by the same clusters.
        self.clustering = shared.clustering
        # Whether the tab is open and waits until the corpus is, as after a link to this tab.
        self.is_waiting = gr.State(False)
        # The corpus whose clusters are on the page.
        self.shown_for = gr.State(None)
        with gr.Row(elem_classes="explore-controls"):
            self._build_controls()
        ids = ("clusters-go", "clusters-stop", "clusters-status")
        self.task = MeasureTab.build(services, "clusters", "Find clusters", ids, WAITING)
        with self.task.buttons:
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="clusters-csv")
        self.table = gr.HTML(elem_id="clusters-table")

    def _build_controls(self) -> None:
        """Builds the controls of all methods. `_show_controls` shows those of the chosen method."""
        default = ClusterSettings()
        self.method = gr.Radio(
            METHODS,
            value=HDBSCAN,
            label="Method",
            info=f"Hierarchical: up to {MAX_TREE_SENTENCES:,} sentences",
            min_width=240,
            elem_id="clusters-method",
        )
        self.smallest = gr.Slider(
            0,
            200,
            default.min_cluster_size,
            step=1,
            label="Minimum cluster size",
            info="0: follows the size of the corpus, at most 40 clusters",
            min_width=200,
            elem_id="clusters-smallest",
        )
        self.cut = gr.Radio(
            CUTS,
            value=BY_COSINE,
            label="Cut the tree",
            visible=False,
            min_width=220,
            elem_id="clusters-cut",
        )
        self.cosine = gr.Slider(
            0,
            1,
            default.min_cosine,
            step=0.01,
            label="Minimum mean cosine of merged groups",
            visible=False,
            min_width=220,
            elem_id="clusters-cosine",
        )
        self.number = gr.Slider(
            1,
            MAX_CLUSTERS,
            20,
            step=1,
            label="Number of clusters",
            visible=False,
            min_width=220,
            elem_id="clusters-number",
        )

    def wire(self) -> None:
        """Connects the components: clusters are found when the tab is opened, and again after each edit."""
        inputs = [self.open_corpus, self.method, self.smallest, self.cut, self.cosine, self.number]
        results = [self.table, self.download, self.shown_for]
        outputs = [*results, self.clustering, self.is_waiting]
        gr.on(
            [self.method.change, self.cut.change],
            _show_controls,
            [self.method, self.cut],
            [self.smallest, self.cut, self.cosine, self.number],
            **event_options(queue=False),
        )
        cleared = self.open_corpus.change(
            self.clear, None, [self.task.status, *results], **event_options(queue=False)
        )
        edits = [
            self.task.start.click,
            self.method.input,
            self.cut.input,
            self.smallest.release,
            self.cosine.release,
            self.number.release,
        ]
        # After an error or a stop, the page shows no clusters.
        find = self.task.handler(self.find, self._no_clusters())

        def visit(
            request: gr.Request, shown_for: OpenCorpus | None, *values: Any
        ) -> Iterator[Update]:
            """Finds the clusters when the tab is opened, unless they are on the page already."""
            open_corpus = values[0]  # the first of the inputs
            if open_corpus is None:
                # `resume` finds the clusters when the corpus is there.
                yield {self.is_waiting: True}
            elif shown_for == open_corpus:
                # The clusters are on the page already.
                yield {self.is_waiting: False}
            else:
                # If UMAP has to be compiled, it takes seconds until progress is shown.
                yield {self.task.status: FINDING}
                yield from find(request, *values)

        def resume(request: gr.Request, is_waiting: bool, *values: Any) -> Iterator[Update]:
            """Finds the clusters of a corpus that was just opened, if the tab was opened before it."""
            yield {self.is_waiting: False}
            if is_waiting:
                yield from visit(request, *values)

        self.task.on(self.task.tab.select, visit, [self.shown_for, *inputs], outputs)
        self.task.on(cleared.then, resume, [self.is_waiting, self.shown_for, *inputs], outputs)
        self.task.on(edits, find, inputs, outputs)

    def clear(self) -> Update:
        """Clears the clusters of the last corpus when another one is opened."""
        return {self.task.status: PRESS_BUTTON, self.shown_for: None, **self._no_clusters()}

    def find(self, watch: Watch, open_corpus: OpenCorpus | None, *controls: Any) -> Update:
        """Finds and shows the clusters of the corpus, with the settings of the ``controls``."""
        method, smallest, cut, cosine, number = controls
        embeddings = self.services.embeddings
        embedded = require_open(open_corpus).embed(embeddings)
        count = None
        # ``cut`` keeps its value while it is hidden, so HDBSCAN may get a number of clusters, which
        # it ignores.
        if method == K_MEANS or cut == BY_NUMBER:
            # A corpus may have fewer sentences than the slider says.
            count = min(int(number), len(embedded))
        settings = ClusterSettings(method, int(smallest), float(cosine), count)
        started = time.perf_counter()
        labels = find_clusters(embeddings, embedded, settings, watch)
        groups = describe_clusters(embedded, labels)
        seconds = time.perf_counter() - started
        path = self.services.temp.new_folder("explore") / "clusters.csv"
        return {
            self.task.status: clusters_status(groups, embedded, method, seconds),
            self.table: clusters(groups, embedded.corpus),
            self.download: visible(save_table(path, label_columns(embedded.corpus, groups))),
            self.shown_for: open_corpus,
            self.clustering: settings,
        }

    def _no_clusters(self) -> Update:
        return {self.table: "", self.download: hidden()}


def _show_controls(method: str, cut: str) -> list[Any]:
    """Shows the controls of a method: the smallest size, the way to cut the tree, the cosine, the number."""
    is_tree = method == HIERARCHICAL
    has_cosine = is_tree and cut == BY_COSINE
    has_number = method == K_MEANS or (is_tree and cut == BY_NUMBER)
    visibility = (method == HDBSCAN, is_tree, has_cosine, has_number)
    return [gr.update(visible=is_visible) for is_visible in visibility]


def clusters_status(
    groups: Sequence[Cluster], embedded: EmbeddedCorpus, method: str, seconds: float
) -> Markup:
    """Renders the number of clusters, the number of sentences outside of them, and the method."""
    # Clusters are numbered from 1. The noise has the number 0.
    numbered = [group for group in groups if group.number]
    return macro("explore/clusters_status")(
        clusters=len(numbered),
        sentences=len(embedded),
        unclustered=_unclustered(groups),
        singletons=sum(len(group.rows) == 1 for group in numbered),
        method=CLUSTERING_NOTES[method],
        seconds=seconds,
    )


def clusters(groups: Sequence[Cluster], corpus: Corpus) -> Markup:
    """Renders a card for each cluster with its size, its keywords and the sentences nearest to its centre."""
    # Clusters are numbered from 1. The noise has the number 0.
    numbered = [group for group in groups if group.number]
    return render(
        "explore/templates/clusters.html",
        clusters=numbered[:MAX_CLUSTERS_SHOWN],
        most=MAX_LISTED,
        sentences=lambda rows: [shorten(corpus.sentences[row]) for row in rows],
        more=max(0, len(numbered) - MAX_CLUSTERS_SHOWN),
        unclustered=_unclustered(groups),
    )


def _unclustered(groups: Sequence[Cluster]) -> int:
    """Returns the number of sentences in no cluster. Their group, the noise, has the number 0."""
    return sum(len(group.rows) for group in groups if not group.number)
