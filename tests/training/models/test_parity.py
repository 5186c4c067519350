"""Our embeddings are sentence-transformers' embeddings, and each opens the folders that the other writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from depth import first
from tiny_models import ARCHITECTURES, make_model

from training.data.load import load_data
from training.models.encoder import Encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}  # vectors of length 1: atol decides; raw ones have larger entries
SENTENCES = [
    "A man is playing a guitar.",
    "",
    "  spaces  before and after  ",
    "MiXeD case, ÀÉÎ and ſtrange ΣΑΣ İstanbul",
    "北京 😀 \u202eright to left\u202c שלום",
    "controls \x00\x07\x1b\x7f \ufeff",
    "[CLS] <s> [MASK] <mask>",
    "word " * 300,
    "the cat " * 20,
]
POOLINGS = ["mean", "max", "cls"]


def referee(folder: Path | str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def ours(folder: Path | str, pooling: str | None = None) -> Encoder:
    return Encoder.load(str(folder), pooling=pooling, dtype="float32", device="cpu")


def their_folder(folder: Path, plain: Path, pooling: str, normalizes: bool, **settings: object) -> Path:
    """What sentence-transformers 6 writes for these modules."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(str(plain), **settings)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
    SentenceTransformer(modules=[*modules, *[Normalize()] * normalizes], device="cpu").save(str(folder))
    return folder


def assert_same(mine: Encoder, theirs: SentenceTransformer, sentences: list[str]) -> None:
    np.testing.assert_allclose(mine.encode(sentences, normalize=None), theirs.encode(sentences), **TOLERANCE)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain transformers folder of each architecture: no modules.json."""
    return make_model(tmp_path_factory.mktemp("models") / request.param, request.param)


def test_a_plain_folder_opens_in_both_and_means_the_same(plain: Path):
    mine, theirs = ours(plain), referee(plain)
    assert (mine.pooling, mine.max_length) == ("mean", theirs.max_seq_length)
    assert_same(mine, theirs, SENTENCES)


@pytest.mark.parametrize(
    ("pooling", "normalizes"),
    first(3, [("mean", True), ("max", False), ("cls", True), ("mean", False), ("max", True), ("cls", False)]),
)
def test_a_folder_that_they_wrote_opens_here(plain: Path, tmp_path: Path, pooling: str, normalizes: bool):
    folder = their_folder(tmp_path / "theirs", plain, pooling, normalizes)
    mine = ours(folder)
    assert (mine.pooling, mine.normalizes) == (pooling, normalizes)
    assert_same(mine, referee(folder), SENTENCES)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_folder_that_we_wrote_opens_there(plain: Path, tmp_path: Path, pooling: str):
    mine = ours(plain, pooling)
    mine.save(tmp_path / "ours")
    theirs = referee(tmp_path / "ours")
    assert theirs.max_seq_length == mine.max_length
    assert_same(mine, theirs, SENTENCES)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_lower_case_means_the_same(tmp_path: Path, architecture: str):
    plain = make_model(tmp_path / "plain", architecture)
    folder = their_folder(tmp_path / "theirs", plain, "mean", False)
    settings = folder / "sentence_bert_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_lower_case": True}))
    assert_same(ours(folder), referee(folder), SENTENCES)
    ours(folder).save(tmp_path / "ours")
    assert_same(ours(folder), referee(tmp_path / "ours"), SENTENCES)


def test_the_default_prompt_means_the_same(tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    plain = make_model(tmp_path / "plain")
    SentenceTransformer(
        str(plain), prompts={"query": "the question: ", "document": "dog "}, default_prompt_name="query"
    ).save(str(tmp_path / "theirs"))
    mine = ours(tmp_path / "theirs")
    assert_same(mine, referee(tmp_path / "theirs"), SENTENCES)
    mine.save(tmp_path / "ours")
    assert_same(mine, referee(tmp_path / "ours"), SENTENCES)
    np.testing.assert_array_equal(ours(tmp_path / "ours").encode(SENTENCES), mine.encode(SENTENCES))


@pytest.mark.parametrize("normalizes", [True, False])
def test_the_options_of_encode_mean_the_same(tmp_path: Path, normalizes: bool):
    folder = their_folder(tmp_path / "theirs", make_model(tmp_path / "plain"), "mean", normalizes)
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "the question: ", "dog": "dog "}}')
    mine, theirs = ours(folder), referee(folder)
    for options in (
        {"normalize_embeddings": False},
        {"normalize_embeddings": True, "prompt_name": "query", "batch_size": 2},
        {"normalize_embeddings": True, "prompt": "a man is ", "show_progress_bar": False},
        {"normalize_embeddings": False, "prompt_name": "dog", "convert_to_tensor": True, "truncate_dim": 8},
    ):
        for sentences in (SENTENCES, SENTENCES[0]):
            found, expected = mine.encode(sentences, **options), theirs.encode(sentences, **options)
            assert type(found) is type(expected) and found.shape == expected.shape
            np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_a_shorter_maximum_means_the_same(tmp_path: Path):
    plain = make_model(tmp_path / "plain")
    folder = their_folder(tmp_path / "theirs", plain, "mean", False, processor_kwargs={"model_max_length": 20})
    assert ours(folder).max_length == referee(folder).max_seq_length == 20
    assert_same(ours(folder), referee(folder), SENTENCES)


@pytest.fixture(scope="module")
def minilm(home: Path) -> tuple[Encoder, SentenceTransformer]:
    """all-MiniLM-L6-v2, in the layout of sentence-transformers 2."""
    return ours("all-MiniLM-L6-v2"), referee((home / "models" / "all-MiniLM-L6-v2").resolve())


EVERY = {"test": 1, "dev": 6, "train": 6}  # sentences of the STS benchmark that are compared: a sixth is 2,300


@pytest.mark.slow
def test_sentences_of_the_sts_benchmark(minilm: tuple[Encoder, SentenceTransformer], home: Path):
    columns = [(each, column) for each in EVERY for column in load_data(f"stsb:{each}", home).columns]
    sentences = list(dict.fromkeys(text for split, column in columns for text in column[:: EVERY[split]]))
    mine, theirs = minilm
    assert (mine.pooling, mine.normalizes, mine.max_length) == ("mean", True, theirs.max_seq_length)
    np.testing.assert_allclose(mine.encode(sentences), theirs.encode(sentences, batch_size=64), **TOLERANCE)


def test_the_embedded_model_saved_here_opens_there(minilm: tuple[Encoder, SentenceTransformer], tmp_path: Path):
    mine, theirs = minilm
    mine.save(tmp_path / "saved")
    saved = referee(tmp_path / "saved")
    assert [type(module).__name__ for module in saved] == ["Transformer", "Pooling", "Normalize"]
    np.testing.assert_allclose(saved.encode(SENTENCES), theirs.encode(SENTENCES), **TOLERANCE)
