"""`clusters/summary.py` of selected sentences, and `corpus/open_corpora.py`: sentences for other pages."""

import csv

import numpy as np
import pytest

from sbert_app.services.clusters.summary import (
    containing,
    describe_subset,
    mean_pair_cosine,
    save_subset,
)
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.open_corpora import SharedSentences
from training.errors import InputError

SENTENCES = [
    "A cat sleeps.",
    "The cat is asleep.",
    "=SUM(1)",
    "Stocks fell.",
    "Shares fell.",
    "A dog barks.",
]


@pytest.fixture
def embedded() -> EmbeddedCorpus:
    vectors = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return EmbeddedCorpus(
        Corpus("c", SENTENCES, {"kind": list("aabbbc")}), vectors, "m", "mean", "key", 0.0
    )


class TestSubset:
    def test_mean_cosines_are_those_of_the_matrix_of_all_pairs(self, embedded):
        subset = describe_subset(embedded, [4, 0, 3, 4, 99, -1])
        assert subset.rows.tolist() == [0, 3, 4]
        cosines = embedded.vectors[subset.rows] @ embedded.vectors[subset.rows].T
        others = (cosines.sum(axis=1) - np.diag(cosines)) / 2
        np.testing.assert_allclose(subset.cosines, others, atol=1e-6)
        assert subset.cosine == pytest.approx(cosines[np.triu_indices(3, 1)].mean(), abs=1e-6)

    def test_one_sentence_has_no_mean_cosine(self, embedded):
        alone = describe_subset(embedded, [2])
        assert alone.cosine is None
        assert np.isnan(alone.cosines).all()
        assert len(describe_subset(embedded, [])) == 0
        assert mean_pair_cosine(embedded.vectors[:1]) is None

    def test_a_subset_has_keywords_and_is_found_by_a_word(self, embedded):
        assert describe_subset(embedded, [3, 4]).keywords[0] == "fell"
        assert containing(embedded.corpus, " CAT ").tolist() == [0, 1]
        assert containing(embedded.corpus, " ").tolist() == []

    def test_the_file_has_row_numbers_columns_and_no_formula(self, embedded, tmp_path):
        path = save_subset(describe_subset(embedded, [1, 2]), embedded.corpus, tmp_path)
        rows = list(csv.DictReader(path.open(encoding="utf-8")))
        assert [(row["row"], row["sentence"], row["kind"]) for row in rows] == [
            ("2", "The cat is asleep.", "a"),
            ("3", "'=SUM(1)", "b"),
        ]


class TestSharedSentences:
    def test_shared_sentences_come_back_unchanged_and_as_pairs(self, tmp_path):
        shared = SharedSentences(tmp_path)
        token = shared.put(SENTENCES)
        assert shared.put(SENTENCES) == token
        assert shared.sentences(token) == SENTENCES
        assert len(shared.pairs(token).read_text().splitlines()) == 15

    def test_too_many_sentences_are_not_paired(self, tmp_path):
        shared = SharedSentences(tmp_path)
        with pytest.raises(InputError, match="501 sentences"):
            shared.pairs(shared.put([str(n) for n in range(501)]))

    def test_an_unknown_token_is_refused_in_one_sentence(self, tmp_path):
        for token in ("", "0" * 32, "../../etc/passwd"):
            with pytest.raises(InputError, match="select them again"):
                SharedSentences(tmp_path).path(token)

    def test_pairs_of_long_sentences_do_not_fill_the_disk(self, tmp_path, monkeypatch):
        monkeypatch.setattr("sbert_app.services.corpus.open_corpora.MOST_CHARACTERS", 60_000)
        shared = SharedSentences(tmp_path)
        fits, long = (
            shared.put([f"{n} " + "word " * length for n in range(10)]) for length in (100, 200)
        )
        assert len(shared.pairs(fits).read_text().splitlines()) == 45
        with pytest.raises(InputError, match="90,180 characters"):
            shared.pairs(long)
        assert [file.name for file in (tmp_path / long).iterdir()] == ["selected-sentences.jsonl"]
