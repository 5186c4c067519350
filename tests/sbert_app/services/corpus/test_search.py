"""Search: the nearest by cosine, and re-ranking by a cross-encoder."""

import json

import pytest
from bag_encoder import BagEncoder, OverlapCrossEncoder
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.search import CANDIDATES, MAX_K, search
from training.errors import InputError

ENCODER = BagEncoder()
CROSS = OverlapCrossEncoder()
WORDS = st.sampled_from(["dog", "cat", "bird", "runs", "sleeps", "sings", "here", "there"])


def embedded_of(sentences):
    return encode(Corpus("mine", sentences), ENCODER)


@given(
    sentences=st.lists(
        st.lists(WORDS, min_size=1, max_size=6).map(" ".join), min_size=1, max_size=60
    ),
    query=st.lists(WORDS, min_size=1, max_size=4).map(" ".join),
    k=st.integers(1, MAX_K),
)
def test_the_nearest_are_those_of_brute_force(sentences, query, k):
    embedded = embedded_of(sentences)
    found = search(embedded, query, ENCODER, k)
    cosines = embedded.vectors @ ENCODER.encode([query])[0]
    assert found.exact
    assert len(found.hits) == min(k, len(sentences)) == len({hit.row for hit in found.hits})
    assert [hit.cosine for hit in found.hits] == pytest.approx(
        sorted(cosines, reverse=True)[:k], abs=1e-6
    )
    for place, hit in enumerate(found.hits, start=1):
        assert hit.rank == place
        assert hit.sentence == sentences[hit.row]
        assert hit.cosine == pytest.approx(cosines[hit.row], abs=1e-6)
        assert hit.cosine <= 1


class TestReRanking:
    @pytest.fixture
    def found(self):
        sentences = [f"dog {'runs ' * n}here" for n in range(1, 30)] + [
            "cat",
            "dog sleeps",
            "dog sleeps there now",
        ]
        return search(embedded_of(sentences), "dog sleeps", ENCODER, 5, CROSS)

    def test_both_orders_are_returned_and_follow_their_scores(self, found):
        assert [hit.rank for hit in found.by_cosine] == [1, 2, 3, 4, 5]
        assert [hit.cross_rank for hit in found.by_cross] == [1, 2, 3, 4, 5]
        assert found.hits is found.by_cross
        assert (found.candidates, found.cross_encoder) == (5 * CANDIDATES, "overlap")
        scores = [hit.cross_score for hit in found.by_cross]
        assert scores == sorted(scores, reverse=True)
        for hit in (*found.by_cosine, *found.by_cross):
            assert hit.cross_score == pytest.approx(
                CROSS.predict([("dog sleeps", hit.sentence)])[0]
            )

    def test_it_can_rank_a_sentence_above_the_nearest_by_cosine(self):
        found = search(embedded_of(["a b c", "a a a a b c d", "x y"]), "a b c d", ENCODER, 1, CROSS)
        assert (found.by_cosine[0].sentence, found.by_cosine[0].cross_rank) == ("a b c", 2)
        assert (found.by_cross[0].sentence, found.by_cross[0].rank) == ("a a a a b c d", 2)


def test_an_answer_without_a_cross_encoder_has_empty_fields():
    found = search(embedded_of(["dog", "cat"]), "dog", ENCODER)
    assert (found.by_cross, found.cross_ms, found.candidates) == ([], None, 0)
    assert found.encode_ms >= 0
    assert found.search_ms >= 0


def test_an_answer_is_plain_json():
    answer = search(embedded_of(["dog", "cat"]), "dog", ENCODER, 1, CROSS).to_json()
    assert json.loads(json.dumps(answer, allow_nan=False))["hits"][0]["sentence"] == "dog"
    assert set(answer["milliseconds"]) == {"encode", "search", "cross_encoder"}


def test_an_empty_query_and_a_k_out_of_range_are_refused():
    embedded = embedded_of(["dog"])
    for query in ("", " \n"):
        with pytest.raises(InputError, match="the query is empty: type a sentence"):
            search(embedded, query, ENCODER)
    for k in (0, 101):
        with pytest.raises(InputError, match=f"k is {k}; it must be from 1 to 100"):
            search(embedded, "dog", ENCODER, k)


def test_few_and_identical_sentences_are_all_found():
    for n in (1, 3):
        result = search(embedded_of(["the same dog"] * n), "dog", ENCODER, 10, CROSS)
        assert sorted(hit.row for hit in result.hits) == list(range(n))
