"""The figure of the tab Map: turns the controls into colours, lines, names and titles."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from sbert_app.figures import map as figures
from sbert_app.figures.map import BLANK, Colouring, Labels, Scale, make_colouring, make_labels
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.explore.open_corpus import OpenCorpus, find_clusters, shorten
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.clustering import NOISE, ClusterSettings
from sbert_app.services.clusters.summary import FEWEST, TITLE_KEYWORDS, Topics, keywords
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.corpus_map import SIMILAR, MapResult, PairDistances, moved_neighbours
from sbert_app.services.maps.projection import MapSettings
from training.names import ModelName

# The number of sentences that a click on a point lists.
NEAREST = 10
# The ways to colour points; COLUMN is followed by the name of a column.
NOTHING = ""
TOPIC = "topic"
QUERY = "query"
CLUSTER = "cluster"
COLUMN = "column:"


class MapControls(NamedTuple):
    """The values of the controls of the tab, in order.

    Attributes:
        second: the name of the second model; "" for one map.
        pooling: the pooling of the second model; "" means its own.
        pairs: whether pairs with a gold score are drawn as lines.
        names: whether names are written onto the map.
    """

    colour: str
    query: str
    dimensions: str
    neighbours: int
    min_dist: float
    seed: int
    second: str
    pooling: str
    pairs: bool
    names: bool

    @property
    def settings(self) -> MapSettings:
        dimensions = 2 if self.dimensions == "2-D" else 3
        # The value of an empty number field is None.
        seed = int(self.seed or 0)
        return MapSettings(dimensions, int(self.neighbours), float(self.min_dist), seed)

    @property
    def second_model(self) -> ModelName | None:
        """The model of the second map; None for one map."""
        name = (self.second or "").strip()
        if not name:
            return None
        return ModelName.parse(name).with_pooling(self.pooling)


def make_figure(
    result: MapResult, controls: MapControls, colouring: Colouring, topics: Sequence[Topics]
) -> Any:
    """Draws one map, or two side by side.

    Args:
        colouring: the colours of the points on the map; None for one colour.
        topics: coarse and fine regions, whose keywords are written onto the map; empty if no names
            are written.
    """
    layers = [topic_labels(regions) for regions in topics]
    # The names of the colours take the place of the coarse topics. Clusters and topics have titles
    # of their own. The values of a column are written onto the fine regions in which they prevail.
    if layers and isinstance(colouring, Labels):
        has_titles = controls.colour in (CLUSTER, TOPIC)
        layers[0] = colouring if has_titles else named_by(colouring, topics[1])
    corpus = result.embedded[0].corpus
    gold = corpus.gold if controls.pairs else None
    lines = []
    if gold is not None:
        dissimilar = gold.rows[gold.gold < SIMILAR]
        similar = gold.rows[gold.gold >= SIMILAR]
        lines.append(figures.PairLines("gold below 4", dissimilar, strong=False))
        lines.append(figures.PairLines("gold 4 or more", similar, strong=True))
    names = []
    for points in result.maps:
        names_of_map = []
        # Coarse names have the depth 0, fine names the depth 1.
        for depth, labels in enumerate(layers):
            names_of_map += figures.names_at(points, labels, depth)
        names.append(names_of_map)
    data = figures.MapData(
        result.maps,
        map_titles(result),
        corpus.sentences,
        colouring,
        lines,
        key=result.key,
        rows=result.rows,
        names=names,
        # Topics whose names are on the map need no legend.
        has_legend=controls.colour != TOPIC or not topics,
    )
    return figures.map_figure(data)


def topic_labels(topics: Topics) -> Labels:
    """Returns the topic of each point by its keywords. Regions with equal keywords are one topic."""
    names = topics.names
    # A region without keywords has the name "".
    by_point = [names[label] or BLANK for label in topics.labels.tolist()]
    # With this limit no topics are merged.
    return make_labels("topic", by_point, limit=len(names))


def named_by(colouring: Labels, topics: Topics) -> Labels:
    """Names regions by the values of a column.

    Each value names at most one region: the one with most of its points, and only if these are at
    least half of the points of that region. Other regions have the name "".
    """
    regions = topics.labels
    # The number of points with each value in each region, int64 (regions, values).
    counts = np.zeros((regions.max() + 1, len(colouring.names)), dtype=np.int64)
    np.add.at(counts, (regions, colouring.groups), 1)
    names = [""] * len(counts)
    for value, region in enumerate(counts.argmax(axis=0).tolist()):
        prevails = 2 * counts[region, value] >= counts[region].sum()
        # The rest is "other" or "(none)", which does not name a region.
        if prevails and not colouring.is_rest(value):
            names[region] = colouring.names[value]
    return Labels(colouring.title, names, regions.astype(np.int32))


def compute_colouring(
    services: Services,
    open_corpus: OpenCorpus,
    controls: MapControls,
    clustering: ClusterSettings,
    watch: Watch,
) -> Colouring:
    """Returns the colouring of all sentences by cluster, by cosine to a query, or by a column; None for one colour."""
    embedded = open_corpus.embed(services.embeddings)
    if controls.colour == CLUSTER:
        watch.report(0, "Clustering")
        labels = find_clusters(services.embeddings, embedded, clustering, watch)
        names = {NOISE: BLANK}
        for label, words in keywords(embedded.corpus.sentences, labels, TITLE_KEYWORDS).items():
            if label == NOISE:
                continue
            # The tab Clusters also counts clusters from 1.
            names[label] = str(label + 1)
            if words:
                names[label] += f": {', '.join(words)}"
        return make_labels("cluster", [names[label] for label in labels.tolist()])
    if controls.colour == QUERY and controls.query.strip():
        encoder = open_corpus.query_encoder(services.models, embedded.vectors.shape[1])
        query = encoder.encode([controls.query])[0]
        return Scale("cosine to the query", np.asarray(embedded.vectors @ query))
    colour = controls.colour or ""
    name = colour.removeprefix(COLUMN)
    columns = embedded.corpus.columns
    # The points have one colour, or the query is empty, or the corpus has no such column.
    if not colour.startswith(COLUMN) or name not in columns:
        return None
    return make_colouring(name, columns[name])


def first_colour(corpus: Corpus) -> str:
    """Returns the first colouring of a corpus: by topics, but none for pairs, whose lines are coloured."""
    has_topics = corpus.gold is None and len(corpus) >= FEWEST
    return TOPIC if has_topics else NOTHING


def map_status(
    result: MapResult, pairs: PairDistances | None, run: dict[str, object] | None
) -> Markup:
    """Renders the size of the map and its time.

    Args:
        pairs: the distances of the pairs with a gold score; None if they are not drawn.
        run: the name of the run whose model is on the second map, its base, and is_base: whether
            the first map is of the base. None without a run.
    """
    titles = ""
    if len(result.maps) == 2:
        titles = "; ".join(map_titles(result)) + "."
    return render(
        "explore/templates/map_status.html",
        result=result,
        shorten=shorten,
        # str.capitalize would change the names of the models.
        titles=titles[:1].upper() + titles[1:],
        moved=moved_neighbours(result),
        pairs=pairs,
        run=run,
    )


def map_titles(result: MapResult) -> list[str]:
    """Returns the title of each map, such as "before: all-MiniLM-L6-v2, mean"."""
    # Without a second model there is only "before", and the figure has no title.
    maps = zip(("before", "after"), result.embedded, strict=False)
    return [f"{when}: {embedded.model}, {embedded.pooling}" for when, embedded in maps]


def nearest(embedded: Sequence[EmbeddedCorpus], row: int) -> Markup:
    """Renders the clicked sentence and its nearest sentences under each model."""
    sentences = embedded[0].corpus.sentences
    neighbours = [_nearest(corpus, row) for corpus in embedded]
    lists = []
    for corpus, others in zip(embedded, neighbours, strict=True):
        caption = "Nearest, by cosine"
        if len(embedded) > 1:
            caption = f"Nearest under {corpus.model}, {corpus.pooling}"
        rows = [(cosine, shorten(sentences[other])) for cosine, other in others]
        lists.append({"caption": caption, "rows": rows})
    # On the map, the nearest sentences under the first model are circled.
    marked = [row, *(other for _, other in neighbours[0])]
    return macro("explore/nearest")(lists, marked, shorten(sentences[row]))


def _nearest(embedded: EmbeddedCorpus, row: int) -> list[tuple[float, int]]:
    """Returns the cosines and the rows of the sentences nearest to a sentence of the corpus, without itself."""
    vector = embedded.vectors[row : row + 1]  # (1, D)
    # One more, as the nearest sentence is usually the sentence itself.
    cosines, rows = embedded.index.nearest(vector, min(NEAREST + 1, len(embedded)))
    nearest_rows = zip(cosines[0].tolist(), rows[0].tolist(), strict=True)
    others = [(cosine, other) for cosine, other in nearest_rows if other != row]
    return others[:NEAREST]
