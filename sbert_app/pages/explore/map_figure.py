"""The figure of the Map tab: which colours, lines and titles the controls ask for."""

from __future__ import annotations

from typing import Any, NamedTuple

from sbert_app.figures import map as figures
from sbert_app.figures.map_colours import BLANK, MAX_LABELS, Colouring, Labels, Scale, make_colouring, make_labels
from sbert_app.pages.explore.selection import Selection
from sbert_app.pages.explore.views import map_titles
from sbert_app.services.clusters.clustering import NOISE, ClusterSettings, cluster
from sbert_app.services.clusters.keywords import keywords
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.corpus_map import SIMILAR, EmbeddingSpec, MapRequest, MapResult
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.tasks import ReportProgress, ShouldStop

NOTHING, QUERY, CLUSTER, COLUMN = "", "query", "cluster", "column:"  # what the points are coloured by
BOTH_MAPS, ANIMATED = "Side by side", "Animated"
NO_SECOND_MODEL = ""
SAME_AS_MODEL = ""  # the pooling of the second model
KEYWORDS = 2  # in the name of a cluster


class MapControls(NamedTuple):
    """The values of the tab's controls, in their order."""

    colour: str
    query: str
    dimensions: str
    neighbours: int
    min_dist: float
    seed: int
    second: str
    pooling: str
    layout: str
    pairs: bool

    def request(self, selection: Selection) -> MapRequest:
        """The map or maps to compute."""
        dimensions = 2 if self.dimensions == "2-D" else 3
        settings = MapSettings(dimensions, int(self.neighbours), float(self.min_dist), int(self.seed or 0))
        first, name = EmbeddingSpec(selection.model, selection.pooling), (self.second or "").strip()
        second = EmbeddingSpec(name, self.pooling or None) if name else None
        return MapRequest(selection.corpus, first, second, settings)


def make_figure(result: MapResult, controls: MapControls, colouring: Colouring) -> Any:
    """One map, or two side by side, or one whose points can move from the first to the second."""
    corpus = result.embedded[0].corpus
    gold = corpus.gold if controls.pairs else None
    lines = [] if gold is None else [
        figures.PairLines("gold below 4", gold.rows[gold.gold < SIMILAR], strong=False),
        figures.PairLines("gold 4 or more", gold.rows[gold.gold >= SIMILAR], strong=True),
    ]  # fmt: skip
    data = figures.MapData(
        result.maps, map_titles(result), corpus.sentences, colouring, lines, result.key + controls.layout
    )
    is_paired = len(result.maps) == 2 and controls.layout == BOTH_MAPS
    return figures.paired_maps(data) if is_paired else figures.single_map(data)


def compute_colouring(
    services: Services,
    embedded: EmbeddedCorpus,
    controls: MapControls,
    report_progress: ReportProgress,
    should_stop: ShouldStop,
) -> Colouring:
    """The colour of each point: by cluster, by cosine to a query, by a column of the corpus, or none."""
    if controls.colour == CLUSTER:
        report_progress(0, "Clustering")
        return _cluster_names(services, embedded, report_progress, should_stop)
    if controls.colour == QUERY and controls.query.strip():
        encoder = services.models.encoder(embedded.model, embedded.pooling)
        return Scale("cosine to the query", embedded.vectors @ encoder.encode([controls.query])[0])
    name = (controls.colour or "").removeprefix(COLUMN)
    columns = embedded.corpus.columns
    return make_colouring(name, columns[name]) if name in columns else None


def first_colour(corpus: Corpus) -> str:
    """The first column with few enough values for a legend; nothing if there is none or if pairs are drawn."""
    if corpus.gold is not None:
        return NOTHING
    for name, values in corpus.columns.items():
        colouring = make_colouring(name, values)
        if isinstance(colouring, Labels) and 2 <= len(set(map(str, values))) <= MAX_LABELS:
            return COLUMN + name
    return NOTHING


def _cluster_names(
    services: Services, embedded: EmbeddedCorpus, report_progress: ReportProgress, should_stop: ShouldStop
) -> Labels:
    """Each point's cluster, named by its number and keywords."""
    cache, home = services.embeddings.cache, services.embeddings.home
    groups = cluster(embedded, ClusterSettings(), cache, home, report_progress, should_stop)
    names = {
        group: f"{group + 1}: {', '.join(words)}" if words else f"{group + 1}"
        for group, words in keywords(embedded.corpus.sentences, groups, KEYWORDS).items()
    }
    return make_labels("cluster", [BLANK if group == NOISE else names[group] for group in groups.tolist()])
