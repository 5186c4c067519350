"""The names of sentence-transformers on our encoder, and the usual types as arguments."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset as HFDataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import mine_hard_negatives
from test_reference import TEXTS, written
from tiny_models import make_model

from training import Dataset, Encoder, InputError, evaluate, load_data, train

FIRST = ["A cat.", "A dog barks.", "Cars drive.", "He eats."]
SECOND = ["A kitten.", "A dog.", "Trees grow.", "She sleeps."]
EVALUATORS = [
    evaluation.EmbeddingSimilarityEvaluator(
        FIRST, SECOND, [0.9, 0.8, 0.1, 0.2], precision="int8", truncate_dim=16
    ),
    evaluation.InformationRetrievalEvaluator(
        {"q": "pets"}, {"d": "A cat.", "e": "Cars."}, {"q": {"d"}}
    ),
    evaluation.BinaryClassificationEvaluator(FIRST, SECOND, [1, 1, 0, 0]),
    evaluation.ParaphraseMiningEvaluator(dict(zip("abcd", FIRST, strict=True)), [("a", "b")]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "plain")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return Encoder(folder, dtype=torch.float32, device=torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", EVALUATORS, ids=lambda evaluator: evaluator.description)
def test_evaluators_of_sentence_transformers_give_the_same_figures(evaluator, encoder, folder):
    theirs = evaluator(SentenceTransformer(str(folder), device="cpu"))
    assert evaluator(encoder) == pytest.approx(theirs, abs=5e-3)


def test_the_names_of_sentence_transformers_mean_the_same(
    encoder: Encoder, folder: Path, tmp_path: Path
):
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert encoder.max_seq_length == theirs.max_seq_length
    assert encoder.get_embedding_dimension() == theirs.get_embedding_dimension()
    vectors = encoder.encode(FIRST, normalize_embeddings=False)
    np.testing.assert_allclose(
        encoder.similarity(vectors, vectors), theirs.similarity(vectors, vectors), atol=1e-6
    )
    for precision in ("uint8", "int8", "binary", "ubinary"):
        ours = encoder.encode(FIRST, precision=precision, normalize_embeddings=False)
        codes = theirs.encode(FIRST, precision=precision)
        assert ours.dtype == codes.dtype
        assert np.abs(ours.astype(int) - codes).max() <= 1 or "binary" in precision
    assert all(
        isinstance(row, torch.Tensor) for row in encoder.encode(FIRST, convert_to_numpy=False)
    )
    encoder.to("cpu").save_pretrained(tmp_path / "copy")
    np.testing.assert_array_equal(
        Encoder(tmp_path / "copy", dtype="float32").encode(FIRST), encoder.encode(FIRST)
    )
    with pytest.raises(InputError, match="precision 'int4' is unknown; choose float32, int8"):
        encoder.encode(FIRST, precision="int4")


@pytest.mark.parametrize("normalizes", [True, False])
def test_encode_normalizes_and_prompts_as_sentence_transformers_does(
    folder: Path, tmp_path: Path, normalizes: bool
):
    made = written(tmp_path / "model", folder, "mean", *[Normalize()] * normalizes)
    (made / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "the question: ", "dog": "dog "}}'
    )
    ours = Encoder(made, dtype="float32", device="cpu")
    theirs = SentenceTransformer(str(made), device="cpu")
    for options in (
        {"normalize_embeddings": False},
        {"normalize_embeddings": True, "prompt_name": "query", "batch_size": 2},
        {"normalize_embeddings": True, "prompt": "a man is ", "show_progress_bar": False},
        {
            "normalize_embeddings": False,
            "prompt_name": "dog",
            "convert_to_tensor": True,
            "truncate_dim": 8,
        },
    ):
        for texts in (TEXTS, TEXTS[0]):
            vectors = ours.encode(texts, **options)
            expected = theirs.encode(texts, **options)
            assert type(vectors) is type(expected) and vectors.shape == expected.shape
            np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-5)


def test_rows_are_compared_in_pairs_as_sentence_transformers_compares_them(
    encoder: Encoder, folder: Path
):
    theirs = SentenceTransformer(str(folder), device="cpu")
    first = encoder.encode(FIRST)
    second = encoder.encode(SECOND)
    np.testing.assert_allclose(
        encoder.similarity_pairwise(first, second),
        theirs.similarity_pairwise(first, second),
        atol=1e-6,
    )
    with pytest.raises(InputError, match="4 and 3 vectors cannot be compared row by row"):
        encoder.similarity_pairwise(first, second[:3])


def test_the_vectors_of_tokens_are_those_of_sentence_transformers(encoder: Encoder, folder: Path):
    theirs = SentenceTransformer(str(folder), device="cpu")
    for texts in (FIRST, FIRST[1]):
        ours, expected = (
            model.encode(texts, output_value="token_embeddings") for model in (encoder, theirs)
        )
        assert type(ours) is type(expected)
        for tokens, rows in zip(ours, expected, strict=True):
            torch.testing.assert_close(tokens, rows, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="output_value 'words' is unknown"):
        encoder.encode(FIRST, output_value="words")


def test_a_shorter_length_is_set_as_in_sentence_transformers(folder: Path):
    ours = Encoder(folder, dtype="float32", device="cpu")
    theirs = SentenceTransformer(str(folder), device="cpu")
    whole = ours.encode(FIRST[1])
    ours.max_seq_length = theirs.max_seq_length = 3
    shorter = ours.encode(FIRST[1])
    assert np.abs(shorter - whole).max() > 1e-3
    np.testing.assert_allclose(
        shorter, theirs.encode(FIRST[1], normalize_embeddings=True), rtol=1e-5, atol=1e-5
    )
    for length in (-1, 0, 2, 100_000):
        with pytest.raises(
            InputError, match=rf"max_seq_length is {length}; .* reads 3 to \d\d+ tokens"
        ):
            ours.max_seq_length = length


def test_fewer_dimensions_are_kept_from_the_start(folder: Path):
    ours = Encoder(folder, truncate_dim=8)
    theirs = SentenceTransformer(str(folder), truncate_dim=8)
    np.testing.assert_allclose(
        ours.encode(FIRST), theirs.encode(FIRST, normalize_embeddings=True), atol=1e-2
    )
    assert ours.get_embedding_dimension() == 8


def test_swapped_and_wrong_arguments_are_named(encoder: Encoder):
    data = Dataset.from_pairs(FIRST, SECOND, [1, 0.8, 0, 0.2])
    with pytest.raises(InputError, match="and then data; its first argument is a Dataset"):
        evaluate(data, encoder)
    with pytest.raises(InputError, match=r"train takes a RunConfig, .* this is a Encoder"):
        train(encoder)


def test_a_name_or_a_path_does_where_a_model_or_data_is_expected(folder: Path, tmp_path: Path):
    file = tmp_path / "pairs.csv"
    rows = zip(FIRST, SECOND, (5, 4, 0, 1), strict=True)
    file.write_text(
        "sentence1,sentence2,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in rows)
    )
    assert len(load_data(file)) == 4
    named = evaluate(folder, file)
    opened = evaluate(Encoder(folder), file)
    assert named["spearman"] == opened["spearman"]


def test_what_tutorials_pass_works_or_says_what_to_do(folder: Path):
    encoder = Encoder(folder, dtype="float32", device="cpu")
    expected = encoder.encode(FIRST)
    np.testing.assert_array_equal(encoder.encode(FIRST, device="cpu", pool=None), expected)
    with pytest.raises(InputError, match=r"there are no pools of processes: .*; leave pool out"):
        encoder.encode(FIRST, pool={"processes": []})
    with pytest.raises(InputError, match="there are no pools of processes"):
        encoder.start_multi_process_pool(["cpu", "cpu"])
    with pytest.raises(
        InputError, match="sentence 1 is tuple, not text; join its texts, or score pairs"
    ):
        encoder.encode([("a cat", "a kitten")])
    with pytest.raises(
        InputError, match="Cannot compute int8 quantization ranges from a single embedding"
    ):
        encoder.encode(FIRST[0:1], precision="int8")


def test_prompts_that_are_set_without_the_default_one_leave_none(folder: Path):
    encoder = Encoder(folder, dtype="float32", device="cpu", prompt="a question: ")
    encoder.prompts = {**encoder.prompts, "query": "the query: "}
    assert encoder.prompt == "a question: "
    encoder.prompts = {"query": "the query: "}
    assert encoder.prompt == ""
    np.testing.assert_array_equal(
        encoder.encode(FIRST), Encoder(folder, dtype="float32", device="cpu").encode(FIRST)
    )


def test_prompts_are_set_as_in_sentence_transformers(folder: Path, tmp_path: Path):
    encoder = Encoder(folder, dtype="float32", device="cpu")
    encoder.prompts = {"query": "a question: "}
    vectors = encoder.encode_query(FIRST)
    np.testing.assert_array_equal(vectors, encoder.encode(FIRST, prompt="a question: "))
    encoder.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(
        vectors, theirs.encode_query(FIRST, normalize_embeddings=True), rtol=1e-5, atol=1e-5
    )


def test_hard_negatives_are_mined_with_an_encoder(encoder: Encoder, folder: Path, tmp_path: Path):
    data = HFDataset.from_dict({"query": FIRST, "passage": SECOND})
    theirs = SentenceTransformer(str(folder), device="cpu")
    ours, expected = (
        mine_hard_negatives(
            data, model, num_negatives=2, verbose=False, cache_folder=str(tmp_path / kind)
        )
        for kind, model in (("ours", encoder), ("theirs", theirs))
    )
    assert len(ours) == 8
    assert ours.to_list() == expected.to_list()
