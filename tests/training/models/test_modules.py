"""Folders of sentence-transformers made of any supported modules: the same vectors here, and back again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tiny_models import WORDS, make_model, module_names, word_pieces
from torch import nn

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.files import read_json, write_json
from training.models.model import VectorModel, open_model, required
from training.models.modules import Dense

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SENTENCES = [
    "A man is playing a guitar.",
    "the cat, the dog and the woman on food",
    "is",
    "Eating! in the",
    "the man was " * 40,
    "a cat is on the guitar",
]
PROMPTS = {"query": "the question: ", "document": "was ", "empty": ""}
DIMENSION = 32  # of the tiny transformers


@dataclass
class Kind:
    """How sentence-transformers makes a folder: its modules, given a plain transformer."""

    architecture: str = "bert"
    after: Callable[[Any], list[nn.Module]] = lambda modules: [modules.Pooling(DIMENSION)]
    settings: dict[str, Any] = field(default_factory=dict)  # of SentenceTransformer


def dense(modules: Any, size: int, out: int, activation: nn.Module, **settings: Any) -> nn.Module:
    return modules.Dense(size, out, activation_function=activation, **settings)


# Each stands for published models; the name says which.
KINDS: dict[str, Kind] = {
    "LaBSE": Kind(
        "bert",
        lambda m: [
            m.Pooling(DIMENSION, "cls"),
            dense(m, DIMENSION, DIMENSION, nn.Tanh()),
            m.Normalize(),
        ],
    ),
    "distiluse": Kind(
        "distilbert", lambda m: [m.Pooling(DIMENSION), dense(m, DIMENSION, 24, nn.Tanh())]
    ),
    "sentence-t5": Kind(
        "t5",
        lambda m: [
            m.Pooling(DIMENSION),
            dense(m, DIMENSION, 40, nn.Identity(), bias=False),
            m.Normalize(),
        ],
    ),
    "e5": Kind(
        "roberta",
        lambda m: [m.Pooling(DIMENSION), m.Normalize()],
        {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    ),
    "gte-modernbert": Kind(
        "modernbert", lambda m: [m.Pooling(DIMENSION, "cls")], {"truncate_dim": 20}
    ),
    "qwen3-embedding": Kind(
        "qwen3", lambda m: [m.Pooling(DIMENSION, "lasttoken"), m.Normalize()], {"prompts": PROMPTS}
    ),
    "embeddinggemma": Kind(
        "gemma3",
        lambda m: [
            m.Pooling(DIMENSION),
            dense(m, DIMENSION, 48, nn.Identity(), bias=False),
            dense(m, 48, DIMENSION, nn.Identity(), bias=False),
            m.Normalize(),
        ],
        {"prompts": PROMPTS, "truncate_dim": 16},
    ),
    "instructor": Kind(
        "t5",
        lambda m: [m.Pooling(DIMENSION, "mean", include_prompt=False), m.Normalize()],
        {"prompts": PROMPTS, "default_prompt_name": "query"},
    ),
    "sgpt": Kind(
        "qwen3",
        lambda m: [m.Pooling(DIMENSION, "weightedmean", include_prompt=False)],
        {"prompts": PROMPTS},
    ),
    "two poolings": Kind(
        "bert",
        lambda m: [
            m.Pooling(DIMENSION, ("mean", "cls", "mean_sqrt_len_tokens")),
            m.LayerNorm(3 * DIMENSION),
            dense(m, 3 * DIMENSION, 3 * DIMENSION, nn.GELU(), use_residual=True),
        ],
    ),
}
WORD_KINDS = ("average word embeddings", "infersent", "static", "model2vec")


def save(modules: list[nn.Module], folder: Path, **settings: Any) -> Path:
    from sentence_transformers import SentenceTransformer

    with torch.random.fork_rng(devices=[]):
        SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder))
    return folder


def word_folder(kind: str, folder: Path) -> Path:
    """A folder without a transformer."""
    from sentence_transformers.sentence_transformer import modules as m
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    random = np.random.default_rng(0)
    if kind in ("static", "model2vec"):
        tokenizer = word_pieces({"pad": "[PAD]", "unk": "[UNK]"})
        vectors = random.normal(size=(tokenizer.get_vocab_size(), 12)).astype(np.float32)
        made = save(
            [m.StaticEmbedding(tokenizer, embedding_weights=vectors), m.Normalize()], folder
        )
        if kind == "model2vec":  # its weights have other names, and its Normalize has no folder
            from safetensors.numpy import save_file

            mapping = random.integers(0, 50, len(vectors))
            weights = random.uniform(0.1, 1, len(vectors)).astype(np.float32)
            tensors = {
                "embeddings": vectors[:50].astype(np.float16),
                "mapping": mapping,
                "weights": weights,
            }
            save_file(tensors, made / "model.safetensors")
        return made
    vocabulary = ["PADDING_TOKEN", *WORDS, "Eating"]
    tokenizer = WhitespaceTokenizer(vocabulary, stop_words=["and"], do_lower_case=False)
    vectors = random.normal(size=(len(vocabulary), 10))
    vectors[0] = 0
    words = m.WordEmbeddings(tokenizer, vectors, max_seq_length=30)
    if kind == "average word embeddings":
        return save([words, m.Pooling(10, ("mean", "max"))], folder)
    return save([words, m.LSTM(10, 8, num_layers=2), m.Pooling(16, "max")], folder)


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What sentence-transformers wrote, with small random weights."""
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer import modules

    place = tmp_path_factory.mktemp("kinds")
    target = place / request.param.replace(" ", "-")
    if request.param in WORD_KINDS:
        return word_folder(request.param, target)
    kind = KINDS[request.param]
    modules.Dense = Dense
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = modules.Transformer(
            str(make_model(place / "plain", kind.architecture, initializer_range=0.2))
        )
        return save([first, *kind.after(modules)], target, **kind.settings)


def referee(folder: Path) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def ours(folder: Path, **settings: Any) -> Encoder:
    return Encoder.load(str(folder), dtype="float32", device="cpu", **settings)


def opened(folder: Path) -> Any:
    """The model by whoever opens it."""
    return required(open_model(folder, dtype="float32", device="cpu"), VectorModel)


def assert_same(mine: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("folder", [*KINDS, *WORD_KINDS], indirect=True)
def test_vectors_are_the_same_with_and_without_prompt_and_truncation(folder: Path):
    mine = opened(folder)
    theirs = referee(folder)
    assert_same(mine.encode(SENTENCES, normalize=None), theirs.encode(SENTENCES))
    assert_same(mine.encode(SENTENCES), theirs.encode(SENTENCES, normalize_embeddings=True))
    for name, text in theirs.prompts.items():
        named = mine.with_prompt(name=name)
        assert_same(
            named.encode(SENTENCES, normalize=None), theirs.encode(SENTENCES, prompt_name=name)
        )
        assert named.prompt == text
    assert_same(mine.encode_query(SENTENCES, normalize=None), theirs.encode_query(SENTENCES))
    assert_same(mine.encode_document(SENTENCES, normalize=None), theirs.encode_document(SENTENCES))
    free = mine.with_prompt("a cat is ")
    assert_same(
        free.encode(SENTENCES, normalize=None), theirs.encode(SENTENCES, prompt="a cat is ")
    )
    short = mine.with_dimension(8)
    assert short.dimension == 8
    for normalize in (None, True):
        expected = theirs.encode(SENTENCES, truncate_dim=8, normalize_embeddings=normalize is True)
        assert_same(short.encode(SENTENCES, normalize=normalize), expected)


@pytest.mark.parametrize("folder", KINDS, indirect=True)
def test_a_saved_model_opens_here_and_in_sentence_transformers(folder: Path, tmp_path: Path):
    mine = ours(folder)
    mine.save(tmp_path / "saved")
    theirs = referee(tmp_path / "saved")
    again = ours(tmp_path / "saved")
    assert (
        module_names(mine)
        == module_names(again)
        == tuple(type(module).__name__ for module in theirs)
    )
    assert again.prompts == mine.prompts
    assert_same(theirs.encode(SENTENCES), mine.encode(SENTENCES, normalize=None))
    np.testing.assert_array_equal(again.encode(SENTENCES), mine.encode(SENTENCES))
    assert not list((tmp_path / "saved").rglob("*.bin"))


@pytest.mark.parametrize("folder", KINDS, indirect=True)
def test_token_vectors_and_embed_are_encode_before_and_with_gradients(folder: Path):
    mine = ours(folder)
    expected = mine.encode(SENTENCES, normalize=False)
    for tokens, vector in zip(mine.token_vectors(SENTENCES), expected, strict=True):
        pooled = mine.pool(torch.from_numpy(tokens.hidden)[None], None)[0, : mine.dimension]
        assert_same(pooled.detach().numpy(), vector)
    embedded = ours(folder).embed(mine.tokenize(SENTENCES))
    assert_same(embedded.detach().numpy()[:, : mine.dimension], expected)
    assert embedded.requires_grad


@pytest.mark.parametrize(
    "name", ["os.system", "torch.nn.Linear", "torch.load", "evil.torch.nn.Tanh"]
)
def test_an_activation_is_one_of_torch_nn_by_name(name: str):
    with pytest.raises(InputError, match="the activation"):
        Dense(2, 2, activation=name)


@pytest.fixture(scope="module")
def labse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved once, copied by tests that damage it."""
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer import modules

    modules.Dense = Dense
    place = tmp_path_factory.mktemp("labse")
    first = modules.Transformer(str(make_model(place / "plain")))
    return save([first, *KINDS["LaBSE"].after(modules)], place / "labse")


@pytest.fixture
def model(labse: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(labse, tmp_path / "model"))


def test_weights_of_a_module_that_are_pickled_or_do_not_fit_are_refused(model: Path):
    config = model / "2_Dense" / "config.json"
    write_json(config, read_json(config) | {"out_features": 7})
    with pytest.raises(InputError, match="do not fit"):
        ours(model)
    (model / "2_Dense" / "model.safetensors").rename(model / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickled weights"):
        ours(model)


def test_dimensions_prompts_and_poolings_that_do_not_fit_are_refused(labse: Path, tmp_path: Path):
    for dimension in (0, -1, 33):
        with pytest.raises(InputError, match="keep 1 to 32"):
            ours(labse, dimension=dimension)
    with pytest.raises(InputError, match="leave the pooling out"):
        open_model(word_folder("static", tmp_path / "static"), "max")
    with pytest.raises(InputError, match="no prompt named 'title'"):
        ours(labse, prompt_name="title")
    with pytest.raises(InputError, match="not both"):
        ours(labse, prompt="a", prompt_name="b")


def test_a_pooling_that_does_not_fit_the_dense_layer_is_refused(labse: Path):
    encoder = ours(labse)
    assert encoder.with_pooling("max").dimension == DIMENSION
    with pytest.raises(InputError, match="Dense layer takes vectors of 32 dimensions, but gets 64"):
        encoder.with_pooling("mean+max")


def test_a_model_that_needs_a_prompt_says_so_unless_it_has_one(model: Path, caplog):
    assert ours(model).prompt_advice == ""
    general = model / "config_sentence_transformers.json"
    write_json(general, read_json(general) | {"prompts": {"query": "q: ", "document": ""}})
    encoder = ours(model)
    assert "its folder names query" in encoder.prompt_advice
    encoder.encode(SENTENCES)
    encoder.encode(SENTENCES)
    assert [text for text in caplog.messages if "prompt" in text] == [encoder.prompt_advice]  # once
    caplog.clear()
    assert encoder.with_prompt(name="query").prompt_advice == ""
    encoder.for_role("query").encode(SENTENCES)
    encoder.for_role("document").encode(SENTENCES)
    assert not [text for text in caplog.messages if "prompt" in text]
    with pytest.raises(InputError, match="choose query or document"):
        encoder.for_role("title")


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ('Each input text should start with "query: " or "passage: ".', '"query: " or "passage: "'),
        ("Use `search_query: ` and `search_document: `.", "search_query"),
        (
            'instruction = "Represent this sentence for searching relevant passages: "',
            "before a query",
        ),
        ("A query: what is it?", ""),
    ],
)
def test_a_prompt_that_only_the_model_card_states(model: Path, card: str, words: str):
    (model / "README.md").write_text(card)
    advice = ours(model).prompt_advice
    assert words in advice
    assert bool(advice) == bool(words)


def test_a_table_in_float16_is_averaged_in_float32(tmp_path: Path):
    """The referee does so in float32 alone: in the table's own format it rounds each mean by up to 5e-4."""
    from safetensors.torch import load_file, save_file

    made = word_folder("static", tmp_path / "static")
    weights = next(made.rglob("model.safetensors"))
    save_file({name: table.half() for name, table in load_file(weights).items()}, weights)
    assert_same(
        opened(made).encode(SENTENCES, normalize=None), referee(made).float().encode(SENTENCES)
    )
