"""Texts of which a model knows no token, or for which it gives no numbers, are noted, and are similar to nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_models import make_model

from sbert_app.services.clusters.clustering import K_MEANS, ClusterSettings, cluster
from sbert_app.services.compare.comparison import compare, compare_all
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.corpus.search import find_near_duplicates, nearest_in, search, similar_pairs
from sbert_app.services.files.encode import encode_file, open_sentences
from sbert_app.services.models.batching import BatchingRunner
from sbert_app.services.store.cache import DiskCache
from training.errors import InputError
from training.models.encoder import Encoder
from training.models.texts import ReadReport

KHMER = "\u1797\u17b6\u179f\u17b6"
EMOJI = "\U0001f600 \U0001f600"
SENTENCES = ["a cat", KHMER, "the dog", EMOJI, "a cat", "the man is eating"]
COUNT = "knows no token of 2 sentences (number 2, 4)"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(
        str(make_model(tmp_path_factory.mktemp("model"))), dtype="float32", device="cpu"
    )


@pytest.fixture
def embedded(model: Encoder, tmp_path: Path) -> EmbeddedCorpus:
    return encode(Corpus("c", SENTENCES), model, DiskCache(tmp_path / "cache"))


def test_a_comparison_names_the_side(model: Encoder):
    [warning] = compare(model, None, "a cat", KHMER).to_json()["warnings"]
    assert "knows no token of sentence B:" in warning
    assert compare(model, None, "a cat", f"a {KHMER}").warnings == []
    [note] = compare_all(model, None, "\n".join(SENTENCES[:4])).notes
    assert COUNT in note


def test_a_search_finds_no_such_text_and_nothing_for_such_a_query(
    model: Encoder, embedded: EmbeddedCorpus
):
    result = search(embedded, "a cat", model, 6)
    assert [hit.rank for hit in result.hits] == [1, 2, 3, 4]
    assert not {hit.row for hit in result.hits} & {1, 3}
    assert COUNT in result.to_json()["warnings"][0]
    of_unknown = search(embedded, EMOJI, model, 6)
    assert (of_unknown.hits, of_unknown.finds_nothing) == ([], False)
    assert "of the query" in of_unknown.warnings[0]
    assert search(embedded, EMOJI, model, 1, keep_unknown=True).hits[0].row == 3


def test_text_of_unknown_tokens_has_no_duplicates_but_its_copies(
    embedded: EmbeddedCorpus, model: Encoder, tmp_path: Path
):
    assert find_near_duplicates(embedded, 0.99).original.tolist() == [0, 1, 2, 3, 0, 5]
    copied = encode(Corpus("c", [KHMER, EMOJI, KHMER]), model)
    assert find_near_duplicates(copied).original.tolist() == [0, 1, 0]
    pairs = similar_pairs(embedded, 100)
    assert (pairs.compared, pairs.same_text, pairs.unknown) == (3, 1, 2)
    other = encode(Corpus("d", [EMOJI, "the dog"]), model)
    nearest = nearest_in(embedded, other, DiskCache(tmp_path / "other"))
    assert nearest.matches(0.999).tolist() == [2]
    assert nearest.cosines[[1, 3]].tolist() == [-1, -1]


def test_text_of_unknown_tokens_is_in_no_cluster(embedded: EmbeddedCorpus, tmp_path: Path):
    settings = ClusterSettings(K_MEANS, num_clusters=2)
    cache = DiskCache(tmp_path / "cache")
    assert np.flatnonzero(cluster(embedded, settings, cache, tmp_path) < 0).tolist() == [1, 3]
    assert cluster(embedded, settings, cache, tmp_path, keep_unknown=True).min() == 0


def test_an_encoded_file_counts_it(model: Encoder, tmp_path: Path):
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    summary = encode_file(*open_sentences(tmp_path / "in.txt"), tmp_path / "out.npy", model)
    assert (summary.unknown, summary.not_finite) == (2, 0)
    assert "; 2 of which" in summary.sentence


# ---------------------------------------------------------------- no numbers


def overflowing(folder: Path, architecture: str) -> Encoder:
    """A model whose numbers are finite, but for a text with the word guitar are too large for float32."""
    make_model(folder, architecture)
    network = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    others = {*tokenizer(" ".join(SENTENCES))["input_ids"]}
    token = next(token for token in tokenizer(" guitar")["input_ids"] if token not in others)
    with torch.no_grad():
        network.get_input_embeddings().weight[token, ::2] = 3e38
    network.save_pretrained(folder)
    return Encoder.load(str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("shares_batches", [False, True])
def test_a_text_without_numbers_leaves_the_others_of_its_batch_as_they_are(
    tmp_path: Path, architecture: str, shares_batches: bool
):
    model = overflowing(tmp_path, architecture)
    if shares_batches:
        model = model.with_runner(BatchingRunner(model.inference))
    sentences = ["a cat", "the guitar", "the dog", "a man", "a guitar"]
    report = ReadReport()
    vectors = model.encode(sentences, report=report)
    assert np.isnan(vectors[[1, 4]]).any(axis=1).all()
    np.testing.assert_allclose(
        vectors[[0, 2, 3]], [model.encode([sentences[row]])[0] for row in (0, 2, 3)], atol=1e-6
    )
    assert report.not_finite == 2


def test_vectors_without_numbers_reach_nobody(tmp_path: Path):
    model = overflowing(tmp_path / "model", "bert")
    with pytest.raises(InputError, match="NaN or infinite numbers for this pair"):
        compare(model, None, "a cat", "the guitar")
    with pytest.raises(InputError, match="NaN or infinite numbers for input 2"):
        compare_all(model, None, "a cat\nthe guitar")
    sentences = ["a cat", "the guitar", "a guitar"]
    embedded = encode(Corpus("c", sentences), model, None, folder=tmp_path)
    assert embedded.unknown.tolist() == [1, 2]
    assert [hit.row for hit in search(embedded, "a cat", model).hits] == [0]
    (tmp_path / "in.txt").write_text("\n".join(sentences))
    summary = encode_file(*open_sentences(tmp_path / "in.txt"), tmp_path / "out.npy", model)
    assert summary.not_finite == 2
    assert np.isnan(np.load(tmp_path / "out.npy")).all(axis=1).tolist() == [False, True, True]
