"""`pages/explore/map_figure.py`, `pairs.py`, `clusters.py`: what they say; a user's text never becomes markup."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from markup import HOSTILE, assert_escaped

from sbert_app.figures.map import Labels
from sbert_app.pages.components.templates import macro
from sbert_app.pages.explore import clusters, map_figure, open_corpus, pairs, search
from sbert_app.pages.explore.pairs import count_of_corpus
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.clusters.clustering import HIERARCHICAL, ClusterSettings
from sbert_app.services.clusters.summary import Cluster, Topics
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import Unusual
from sbert_app.services.corpus.search import (
    Hit,
    NearDuplicates,
    Nearest,
    SearchResult,
    SimilarPairs,
)
from sbert_app.services.maps.corpus_map import MapResult
from training.names import ModelName

OPEN = open_corpus.OpenCorpus("key", ModelName("m"))
CONTROLS = map_figure.MapControls(
    colour=map_figure.TOPIC,
    query="",
    dimensions="2-D",
    neighbours=15,
    min_dist=0.1,
    seed=0,
    second="",
    pooling="",
    pairs=False,
    names=True,
)


@pytest.fixture
def embedded():
    corpus = Corpus(
        f"{HOSTILE}.csv",
        [HOSTILE, "A dog.", "A cat."],
        {HOSTILE: ["1", "2", "3"]},
        notes=(HOSTILE,),
    )
    return EmbeddedCorpus(corpus, np.eye(3, dtype=np.float32), HOSTILE, "mean", "key", 0.0)


def test_texts_of_a_corpus_are_escaped(embedded):
    corpus = embedded.corpus
    long = Corpus("long", [HOSTILE] * 60)
    group = Cluster(1, np.arange(3), [HOSTILE], [0], 0.5)
    hit = Hit(0, HOSTILE, 0.9, 1, 0.8, 1)
    result = SearchResult("query", [hit], 3, True, 1.0, 2.0, [hit], 3.0, 3, HOSTILE)
    for html in (
        macro("explore/corpus")(embedded, OPEN, "3 sentences"),
        map_figure.nearest([embedded, embedded], 0),
        search.search_status(result),
        search.hits(result),
        pairs.pairs_table(SimilarPairs([(0, 1, 0.9)], 3, 0, 0.1), corpus, 0.5),
        clusters.clusters([group], corpus),
        pairs.unusual_tables(
            Unusual(np.array([9, 0, 0] * 20), np.array([0.1] + [0.9] * 59), 2), long
        ),
        pairs.shared_sentences(
            Nearest(np.ones(3), np.arange(3)), np.arange(3), corpus, corpus, 0.9
        ),
    ):
        assert_escaped(html)


def test_the_nearest_sentences_leave_out_the_clicked_one(embedded):
    vectors = np.eye(3, dtype=np.float32)
    vectors[1] = [0.8, 0.6, 0]
    html = map_figure.nearest([replace(embedded, vectors=vectors)], 0)
    assert html.count("<tr>") == 2
    assert html.index("0.800") < html.index("0.000")


def test_long_sentences_of_similar_pairs_are_cut():
    corpus = Corpus("long", ["word " * 200, "A dog."])
    html = pairs.pairs_table(SimilarPairs([(0, 1, 0.9)], 2, 0, 0.1), corpus, 0.5)
    assert html.count("word") == open_corpus.MAX_CHARACTERS // len("word ")


def test_the_map_of_a_run_says_what_it_keeps(embedded):
    points = np.zeros((3, 2), dtype=np.float32)
    result = MapResult([embedded, embedded], [points, points], "key", False, 1.5)
    html = map_figure.map_status(result, None, {"name": "mine", "base": "<base>", "is_base": True})
    assert "Left: before training. Right: mine after it" in html
    assert "Two aligned maps of 3 sentences in 2 dimensions, computed in 1.5 s" in html
    assert "<b>100%</b> of the ten nearest are the same under both models" in html
    html = map_figure.map_status(result, None, {"name": "mine", "base": "<base>", "is_base": False})
    assert "with its base &lt;base&gt;" in html


def test_corpora_clusters_singletons_and_the_rest_are_counted(embedded):
    html = macro("explore/corpus")(embedded, replace(OPEN, is_example=True), "3 sentences")
    assert "example · 3 sentences · column: " in html
    groups = [
        Cluster(1, np.array([0]), ["dog"], [0], None),
        Cluster(0, np.array([1, 2]), [], [], None),
    ]
    status = clusters.clusters_status(groups, embedded, HIERARCHICAL, 1.0)
    assert "<b>1 cluster</b> of 3 sentences · 2 in none (67%) · 1 with a single sentence" in status
    assert "In no cluster</b> 2 sentences, between the dense groups" in clusters.clusters(
        groups, embedded.corpus
    )
    assert "No group is dense enough" in clusters.clusters([], embedded.corpus)


def test_the_head_of_a_corpus_counts_its_empty_rows_and_its_duplicates():
    corpus = Corpus("mine", ["a", "b", "a", "c"], empty=2)
    found = NearDuplicates(np.array([0, 1, 0, 1]), 0.95, 0.1)
    counts = "6 rows: 2 empty, 1 exact duplicate"
    near = "1 near-duplicate (cosine 0.95 or more); 2 stay"
    assert count_of_corpus(corpus, found) == f"{counts}, {near}"
    assert count_of_corpus(corpus, None) == counts
    assert count_of_corpus(Corpus("mine", ["a", "b"]), None) == "2 sentences"


def test_near_duplicates_are_counted_and_their_groups_listed(embedded):
    html = pairs.near_duplicates(NearDuplicates(np.arange(3), 0.95, 0.1), embedded.corpus)
    assert "No sentence has a cosine of 0.95 or more with an earlier one" in html
    html = pairs.near_duplicates(NearDuplicates(np.array([0, 1, 1]), 0.95, 0.1), embedded.corpus)
    assert "<b>1</b> of 3 sentences is a near-duplicate of an earlier one; 2 are kept" in html
    assert "1 group of duplicates" in html
    assert html.index("A dog.") < html.index("A cat.")
    assert "no pair has a cosine of 0.50 or more" in pairs.pairs_table(
        SimilarPairs([], 9, 0, 0.1), embedded.corpus, 0.5
    )


def test_without_outliers_the_ten_most_remote_are_listed():
    corpus = Corpus("alike", [f"sentence {n}" for n in range(60)])
    html = pairs.unusual_tables(Unusual(np.zeros(60), np.linspace(0.5, 0.6, 60), 2), corpus)
    assert "Outliers: 0 of 60 sentences" in html and "these are the most remote" in html
    assert html.count("<td>sentence ") == 10


def test_hubs_of_the_same_text_are_listed_once_with_their_number():
    corpus = Corpus("copies", ["Yes.", "Yes.", "Yes.", *(f"sentence {n}" for n in range(57))])
    html = pairs.unusual_tables(
        Unusual(np.array([9, 8, 9] + [0] * 57), np.linspace(0.6, 0.5, 60), 2), corpus
    )
    assert "Hubs: 3 of 60 sentences, 1 different text" in html
    assert html.count("Yes. <small>3 times</small>") == html.count("Yes.") == 1
    assert 'data-layer="hubs" data-rows="0,2,1"' in html


def test_all_listed_hubs_are_circled_beside_a_text_with_many_copies():
    others = [f"sentence {n}" for n in range(5000)]
    corpus = Corpus("copies", ["Yes."] * pairs.MAX_UNUSUAL + others)
    found_by = np.array([9] * pairs.MAX_UNUSUAL + [8] + [0] * 4999)
    closeness = np.linspace(0.6, 0.5, len(found_by))
    html = pairs.unusual_tables(Unusual(found_by, closeness, 2), corpus)
    rows = ",".join(map(str, range(pairs.MAX_UNUSUAL + 1)))
    assert f'data-layer="hubs" data-rows="{rows}"' in html


def test_a_map_is_first_coloured_by_topics_whatever_columns_it_has():
    sentences = [f"sentence {n}" for n in range(60)]
    with_column = Corpus("mine", sentences, {"channel": ["mail", "phone"] * 30})
    assert map_figure.first_colour(with_column) == map_figure.TOPIC
    assert map_figure.first_colour(Corpus("few", sentences[:3])) == map_figure.NOTHING


def test_a_column_value_names_the_region_where_it_prevails():
    colouring = Labels("domain", ["law", "news", "(none)"], np.array([0, 0, 0, 1, 1, 2, 2, 2]))
    regions = Topics(np.array([0, 0, 0, 0, 1, 1, 1, 1]), {0: "court", 1: "today"})
    assert map_figure.named_by(colouring, regions).names == ["law", ""]


def test_names_are_written_onto_the_map_only_if_the_box_is_ticked(embedded):
    points = np.array([[0, 0], [0, 1], [9, 9]], dtype=np.float32)
    result = MapResult([embedded], [points], "key", False, 0.0)
    topics = Topics(np.array([0, 0, 1]), {0: "dogs", 1: "cats"})
    colouring = map_figure.topic_labels(topics)
    figure = map_figure.make_figure(result, CONTROLS, colouring, (topics, topics))
    assert {note.text for note in figure.layout.annotations} == {"dogs", "cats"}
    figure = map_figure.make_figure(result, CONTROLS._replace(names=False), colouring, ())
    assert not figure.layout.annotations


def test_an_empty_query_colours_nothing_beside_a_column_named_query():
    corpus = Corpus("asked", ["A dog.", "A cat."], {"query": ["1", "2"]})
    embedded = EmbeddedCorpus(corpus, np.eye(2, dtype=np.float32), "m", "mean", "key", 0.0)
    opened = SimpleNamespace(embed=lambda embeddings: embedded)
    services = SimpleNamespace(embeddings=None)

    def colouring(colour):
        controls = CONTROLS._replace(colour=colour, query=" ")
        return map_figure.compute_colouring(
            services, opened, controls, ClusterSettings(), UNWATCHED
        )

    assert colouring(map_figure.QUERY) is None
    assert isinstance(colouring(map_figure.COLUMN + "query"), Labels)
