"""Sentences that were selected, groups that are kept, clusters that were renamed and merged, sentences handed on."""

import csv

import numpy as np
import pytest

from sbert_app.services.clusters.clustering import ClusterSettings
from sbert_app.services.clusters.edits import (
    MAX_GROUPS,
    delete_group,
    edit_store,
    edited,
    edits_key,
    group_store,
    groups_of,
    merge,
    rename,
    save_group,
)
from sbert_app.services.clusters.summary import (
    containing,
    describe_clusters,
    describe_subset,
    mean_pair_cosine,
    save_subset,
)
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.open_corpora import SharedSentences
from training.errors import InputError

SENTENCES = ["A cat sleeps.", "The cat is asleep.", "=SUM(1)", "Stocks fell.", "Shares fell.", "A dog barks."]


@pytest.fixture
def embedded() -> EmbeddedCorpus:
    vectors = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return EmbeddedCorpus(Corpus("c", SENTENCES, {"kind": list("aabbbc")}), vectors, "m", "mean", "key", 0.0)


class TestSubset:
    def test_mean_cosines_are_those_of_the_matrix_of_all_pairs(self, embedded):
        subset = describe_subset(embedded, [4, 0, 3, 4, 99, -1])
        assert subset.rows.tolist() == [0, 3, 4]
        cosines = embedded.vectors[subset.rows] @ embedded.vectors[subset.rows].T
        others = (cosines.sum(axis=1) - np.diag(cosines)) / 2
        np.testing.assert_allclose(subset.cosines, others, atol=1e-6)
        assert subset.cosine == pytest.approx(cosines[np.triu_indices(3, 1)].mean(), abs=1e-6)

    def test_one_sentence_has_no_cosine_and_keywords_and_words_are_found(self, embedded):
        alone = describe_subset(embedded, [2])
        assert alone.cosine is None
        assert np.isnan(alone.cosines).all()
        assert len(describe_subset(embedded, [])) == 0
        assert mean_pair_cosine(embedded.vectors[:1]) is None
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


class TestGroups:
    def test_a_group_is_kept_by_corpus_and_replaced_by_its_name(self, embedded, tmp_path):
        corpus, other = embedded.corpus, Corpus("other", ["x", "y"])
        save_group(group_store(tmp_path), corpus, " cats ", "blue", (0, 1))
        save_group(group_store(tmp_path), corpus, "money", "green", (3, 4))
        save_group(group_store(tmp_path), corpus, "cats", "orange", (0,))
        assert [(g.name, g.colour, g.rows) for g in groups_of(group_store(tmp_path), corpus)] == [
            ("money", "green", (3, 4)),
            ("cats", "orange", (0,)),
        ]
        assert groups_of(group_store(tmp_path), other) == ()
        delete_group(group_store(tmp_path), corpus, "money")
        assert [g.name for g in groups_of(group_store(tmp_path), corpus)] == ["cats"]

    def test_what_cannot_be_a_group_is_said(self, embedded, tmp_path):
        store, corpus = group_store(tmp_path), embedded.corpus
        for name, rows, words in ((" ", (1,), "no name"), ("x" * 61, (1,), "61 characters"), ("x", (), "no sentence")):
            with pytest.raises(InputError, match=words):
                save_group(store, corpus, name, "blue", rows)
        for n in range(MAX_GROUPS):
            save_group(store, corpus, str(n), "blue", (n,))
        with pytest.raises(InputError, match="delete one first"):
            save_group(store, corpus, "one more", "blue", (1,))


class TestEdits:
    labels = np.array([0, 0, 0, 1, 1, 2, 3, -1])

    def test_names_and_merges_are_kept_and_numbered_by_size(self, tmp_path):
        store = edit_store(tmp_path)
        rename(store, "key", edited(self.labels, store.get("key")), 1, " two  of them ")
        merge(store, "key", edited(self.labels, store.get("key")), [1, 2, 3])
        found = edited(self.labels, store.get("key"))
        assert found.labels.tolist() == [1, 1, 1, 0, 0, 0, 0, -1]
        assert found.names == {0: "two of them"}
        rename(store, "key", found, 0, "four")  # under its number now
        merge(store, "key", edited(self.labels, store.get("key")), [0, 1])
        found = edited(self.labels, store.get("key"))
        assert found.labels.tolist() == [0] * 7 + [-1]
        assert found.names == {0: "four"}
        rename(store, "key", found, 0, "")
        assert edited(self.labels, store.get("key")).names == {}

    def test_what_cannot_be_changed_is_said(self, tmp_path):
        store = edit_store(tmp_path)
        found = edited(self.labels, store.get("key"))
        with pytest.raises(InputError, match="two clusters or more"):
            merge(store, "key", found, [1, 1])
        with pytest.raises(InputError, match="no name to take away"):
            rename(store, "key", found, 0, " ")
        with pytest.raises(InputError, match="no cluster 5; there are 4"):
            rename(store, "key", found, 4, "x")

    def test_other_settings_have_changes_of_their_own_and_a_cluster_is_called_by_its_name(self, embedded):
        first, second = ClusterSettings(), ClusterSettings(min_cluster_size=9)
        assert edits_key(embedded, first) != edits_key(embedded, second)
        assert edits_key(embedded, first) == edits_key(embedded, ClusterSettings())
        labels = np.array([0, 0, -1, 1, 1, -1])
        named, other, noise = describe_clusters(embedded, labels, {0: "cats"})
        assert (named.title, other.title.split(", ")[0], noise.title) == ("cats", "fell", "")


class TestSharedSentences:
    def test_sentences_come_back_as_they_were_and_as_pairs_unless_they_are_too_many(self, tmp_path):
        shared = SharedSentences(tmp_path)
        token = shared.put(SENTENCES)
        assert shared.put(SENTENCES) == token
        assert shared.sentences(token) == SENTENCES
        assert len(shared.pairs(token).read_text().splitlines()) == 15
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
        fits, long = (shared.put([f"{n} " + "word " * length for n in range(10)]) for length in (100, 200))
        assert len(shared.pairs(fits).read_text().splitlines()) == 45
        with pytest.raises(InputError, match="90,180 characters"):
            shared.pairs(long)
        assert [file.name for file in (tmp_path / long).iterdir()] == ["selected-sentences.jsonl"]
