"""`models/st_models.py`, SPLADE: the vectors of sentence-transformers, and the terms that make a score."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from depth import first
from tiny_models import WORDS, make_model

from training.data.dataset import Dataset
from training.data.load import RetrievalData
from training.errors import InputError, StoppedError
from training.evaluation.retrieval import evaluate_retrieval
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.models.files import write_json
from training.models.model import open_model
from training.models.st_models import SparseEncoder

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder as Referee

SENTENCES = ["A man is playing a guitar.", "the cat", "", "the man was " * 40, "is!", "the cat"]
# Architecture, pooling, settings of the model
KINDS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "SPLADE v2": ("bert", {"pooling_strategy": "max"}, {}),
    "SPLADE": (
        "distilbert",
        {"pooling_strategy": "sum"},
        {"prompts": {"query": "was "}, "default_prompt_name": "query"},
    ),
    "OpenSearch": (
        "modernbert",
        {"pooling_strategy": "max", "activation_function": "log1p_relu"},
        {},
    ),
    "at most 12 terms": (
        "mpnet",
        {"pooling_strategy": "max"},
        {"max_active_dims": 12, "similarity_fn_name": "cosine"},
    ),
}


def save(folder: Path, kind: str) -> Referee:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    architecture, pooling, settings = KINDS[kind]
    plain = make_model(folder / "plain", architecture)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(plain)
    transformers.AutoModelForMaskedLM.from_config(config).eval().save_pretrained(plain)
    modules = [Transformer(str(plain), transformer_task="fill-mask"), SpladePooling(**pooling)]
    made = SparseEncoder(modules=modules, device="cpu", **settings)
    made.save_pretrained(str(folder / "saved"))
    return made


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("splade")
    save(folder, "SPLADE v2")
    return folder / "saved"


@pytest.fixture(scope="module")
def encoder(splade: Path) -> SparseEncoder:
    return SparseEncoder.load(str(splade), dtype="float32", device="cpu")


@pytest.mark.parametrize("kind", first(2, KINDS))
def test_a_folder_of_sentence_transformers_gives_the_same_vectors(tmp_path: Path, kind: str):
    theirs = save(tmp_path, kind)
    ours = open_model(str(tmp_path / "saved"), dtype="float32", device="cpu")
    assert isinstance(ours, SparseEncoder)
    expected = theirs.encode(SENTENCES).to_dense().numpy()
    np.testing.assert_allclose(
        ours.encode_sparse(SENTENCES).toarray(), expected, rtol=1e-5, atol=1e-5
    )


def test_a_folder_that_names_its_transformer_as_before_opens_too(
    splade: Path, tmp_path: Path, encoder: SparseEncoder
):
    folder = tmp_path / "older"
    shutil.copytree(splade, folder)
    package = "sentence_transformers.sparse_encoder.models"
    paths = {"MLMTransformer": "", "SpladePooling": "1_SpladePooling"}
    write_json(
        folder / "modules.json",
        [{"name": kind, "path": path, "type": f"{package}.{kind}"} for kind, path in paths.items()],
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    older = SparseEncoder.load(str(folder), dtype="float32", device="cpu")
    assert (older.encode_sparse(SENTENCES) != encoder.encode_sparse(SENTENCES)).nnz == 0


def test_the_shares_of_the_terms_add_up_to_the_dot_product(encoder: SparseEncoder):
    a = "a man on the guitar"
    b = "the dog"
    terms = encoder.terms(a, b)
    u, v = encoder.encode_sparse([a, b]).toarray()
    assert sum(term.share for term in terms) == pytest.approx(float(u @ v), rel=1e-5)
    assert [term.share for term in terms] == sorted((term.share for term in terms), reverse=True)
    assert {"the", "dog"} <= {term.token for term in terms if term.in_second}
    assert any(not term.in_first and term.first > 0 for term in terms)  # added


def test_dense_and_sparse_vectors_are_the_same(encoder: SparseEncoder):
    np.testing.assert_array_equal(
        encoder.encode(SENTENCES, normalize=None), encoder.encode_sparse(SENTENCES).toarray()
    )
    lengths = np.linalg.norm(encoder.encode(SENTENCES), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)
    assert encoder.encode_sparse([]).shape == (0, encoder.dimension)


def test_a_sparse_encoding_can_be_stopped(encoder: SparseEncoder):
    with pytest.raises(StoppedError):
        encoder.encode_sparse(SENTENCES, should_stop=lambda: True)


def test_a_sparse_encoder_is_evaluated_by_name_and_is_not_a_dense_one(splade: Path):
    data = Dataset.from_pairs(
        ["a man", "the cat", "a dog"], ["a man", "a cat", "food"], [5.0, 3.0, 0.0]
    )
    assert evaluate(open_model(str(splade)), data)["spearman"].keys() >= {"cosine", "dot"}
    with pytest.raises(
        InputError, match="is a SparseEncoder with modules or settings that sentence-transformers"
    ):
        Encoder.load(str(splade))


def test_splade_ranks_documents_as_sentence_transformers_does(tmp_path: Path):
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator

    random = np.random.default_rng(0)
    corpus = {f"d{i}": " ".join(random.choice(WORDS, 8)) for i in range(40)}
    queries = {f"q{i}": " ".join(random.choice(WORDS, 3)) for i in range(8)}
    judged = queries, corpus, {query: set(random.choice(list(corpus), 2)) for query in queries}
    theirs = save(tmp_path, "SPLADE")
    expected = SparseInformationRetrievalEvaluator(*judged, name="x", write_csv=False)(theirs)
    loaded = open_model(str(tmp_path / "saved"), dtype="float32", device="cpu")
    found = evaluate_retrieval(loaded, RetrievalData.from_dicts(*judged))
    for figure in ("ndcg@10", "mrr@10", "map@100", "recall@10"):
        assert found.estimate(figure).value == pytest.approx(expected[f"x_dot_{figure}"], abs=1e-6)
