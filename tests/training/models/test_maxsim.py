"""Late interaction: MaxSim of any encoder's tokens, and folders of ColBERT's kind with their referee's scores."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from depth import first
from tiny_models import WORDS, make_model
from torch import nn

from training.data.dataset import Dataset
from training.data.load import RetrievalData
from training.errors import InputError, StoppedError
from training.evaluation.retrieval import evaluate_retrieval
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.models.files import read_json, write_json
from training.models.maxsim import LateInteraction, MaxSim
from training.models.model import open_model, opener_of
from training.models.retrievers import as_retriever, load_retriever

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder

QUERIES = ["A man is playing a guitar?", "the cat", "", "the man was " * 30, "a dog, a cat: food!"]
DOCUMENTS = ["A woman, eating food.", "the dog on the guitar!", "is", "", "was on the cat " * 30]
PAIRS = list(zip(QUERIES, DOCUMENTS, strict=True))
PUNCTUATION = list(string.punctuation)
MARKERS = {"query": "[Q] ", "document": "the: "}
UNTRAINED = "maxsim:scratch:1x32"


@dataclass
class Kind:
    """How sentence-transformers makes a folder."""

    architecture: str = "bert"
    reading: dict[str, Any] = field(default_factory=dict)  # of the transformer
    mask: dict[str, Any] | None = field(default_factory=dict)
    sizes: tuple[int, ...] = (24,)  # of the projections
    settings: dict[str, Any] = field(default_factory=dict)  # of MultiVectorEncoder
    normalizes: bool = True


def filled(strategy: str, length: int, **more: Any) -> dict[str, Any]:
    return {"query_expansion": {"strategy": strategy, "length": length, **more}}


KINDS = {
    "as ColBERT": Kind(
        "bert", filled("fixed", 16), {"skiplist_words": PUNCTUATION}, settings={"prompts": MARKERS}
    ),
    "masks are attended to": Kind(
        "roberta", filled("fixed", 20, attend=True), {"skiplist_words": ["!", "."]}
    ),
    "a least length, the mean": Kind(
        "mpnet",
        filled("min", 12),
        sizes=(),
        settings={"similarity_fn_name": "meanmaxsim", "prompts": MARKERS},
    ),
    "a least and a greatest length": Kind(
        "bert", {**filled("min", 8, token="food"), "query_length": 14}
    ),
    "shorter texts, punctuation of both left out": Kind(
        "distilbert",
        {"query_length": 6, "document_length": 10},
        {"skiplist_words": [",", "!", "no token"], "skiplist_tasks": ["query", "document"]},
    ),
    "queries filled up beyond the length of texts": Kind(
        "bert", {"max_seq_length": 9, **filled("fixed", 16)}
    ),
    "two projections, not of length 1": Kind("modernbert", sizes=(40, 16), normalizes=False),
    "a passage prompt, no mask": Kind(
        "t5", mask=None, settings={"prompts": {"query": "a: ", "passage": "on "}}
    ),
}


def save(folder: Path, kind: Kind) -> MultiVectorEncoder:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(1)
    tokens = {"module_input_name": "token_embeddings"}
    size = 32
    modules: list[nn.Module] = [
        Transformer(str(make_model(folder / "plain", kind.architecture)), **kind.reading)
    ]
    for out in kind.sizes:
        modules.append(
            Dense(
                size,
                out,
                bias=out > 30,
                activation_function=nn.Identity(),
                use_residual=out < 20,
                **tokens,
            )
        )
        size = out
    if kind.mask is not None:
        modules.append(MultiVectorMask(**kind.mask))
    modules += [Normalize(**tokens)] * kind.normalizes
    made = MultiVectorEncoder(modules=modules, device="cpu", **kind.settings)
    made.save_pretrained(str(folder / "saved"))
    return made


def assert_equal_scores(ours: LateInteraction, theirs: MultiVectorEncoder) -> None:
    queries = theirs.encode_query(QUERIES)
    documents = theirs.encode_document(DOCUMENTS)
    for mine, other in (
        (ours.encode_query(QUERIES), queries),
        (ours.encode_document(DOCUMENTS), documents),
    ):
        for vectors, expected in zip(mine, other, strict=True):
            np.testing.assert_allclose(vectors, expected.numpy(), rtol=1e-4, atol=1e-5)
    pairwise = theirs.similarity_pairwise(queries, documents).numpy()
    np.testing.assert_allclose(ours.predict(PAIRS), pairwise, rtol=1e-5, atol=1e-5)
    every = theirs.similarity(queries, documents).numpy()
    np.testing.assert_allclose(ours.similarity(QUERIES, DOCUMENTS), every, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", first(3, KINDS))
def test_a_folder_of_sentence_transformers_scores_as_there(tmp_path: Path, kind: str):
    theirs = save(tmp_path, KINDS[kind])
    ours = open_model(str(tmp_path / "saved"), dtype="float32", device="cpu")
    assert isinstance(ours, LateInteraction)
    assert not ours.is_symmetric
    assert_equal_scores(ours, theirs)


# PyLate's layout: markers and lengths stand in config_sentence_transformers.json, the projection is
# PyLate's own class, and neither mask nor Normalize is listed.
PYLATE: dict[str, dict[str, Any]] = {
    "as it is written": {
        "query_length": 16,
        "document_length": 20,
        "attend_to_expansion_tokens": False,
    },
    "masks are attended to": {
        "query_length": 12,
        "attend_to_expansion_tokens": True,
        "skiplist_words": ["!"],
    },
    "no expansion": {"query_length": 9, "do_query_expansion": False, "skiplist_words": []},
    "before it named its class": {"query_length": 16, "model_type": None},
}


@pytest.mark.parametrize("settings", first(1, PYLATE))
def test_a_folder_of_pylate_scores_as_in_sentence_transformers(tmp_path: Path, settings: str):
    from sentence_transformers import MultiVectorEncoder

    folder = pylate(tmp_path, PYLATE[settings])
    ours = open_model(str(folder), dtype="float32", device="cpu")
    assert isinstance(ours, LateInteraction)
    assert_equal_scores(ours, MultiVectorEncoder(str(folder), device="cpu"))


def pylate(folder: Path, settings: dict[str, Any]) -> Path:
    save(folder, Kind())
    saved = folder / "saved"
    general = {
        "prompts": {"query": "was "},
        "similarity_fn_name": "MaxSim",
        # In the vocabulary, but the tokenizer would split it: as ColBERT's [unused0]
        "query_prefix": "##q ",
        "document_prefix": "[D] ",
        "model_type": "ColBERT",
        **settings,
    }
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    write_json(saved / "modules.json", modules)
    write_json(
        saved / "config_sentence_transformers.json",
        {k: v for k, v in general.items() if v is not None},
    )
    write_json(saved / "sentence_bert_config.json", {"max_seq_length": 30, "do_lower_case": False})
    dense = read_json(saved / "1_Dense/config.json")
    write_json(
        saved / "1_Dense/config.json",
        {k: v for k, v in dense.items() if not k.startswith("module_")},
    )
    return saved


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colbert")
    save(folder, KINDS["as ColBERT"])
    return folder / "saved"


def test_late_interaction_has_no_sentence_vectors(colbert: Path):
    with pytest.raises(
        InputError, match="MultiVectorEncoder with modules or settings that sentence-transformers"
    ):
        Encoder.load(str(colbert))
    with pytest.raises(
        InputError, match="late interaction; for sentence vectors load scratch:1x32"
    ):
        Encoder.load(UNTRAINED)


@pytest.fixture(scope="module")
def untrained(home: Path) -> LateInteraction:
    return LateInteraction(UNTRAINED, dtype="float32", device="cpu", home=home)


def test_the_constructor_opens_both_kinds(untrained: LateInteraction, colbert: Path, home: Path):
    encoder = LateInteraction(
        UNTRAINED.removeprefix("maxsim:"), dtype="float32", device="cpu", home=home
    )
    np.testing.assert_array_equal(encoder.predict(PAIRS), untrained.predict(PAIRS))
    assert type(encoder) is type(untrained) is MaxSim
    assert repr(encoder) == f"MaxSim('{UNTRAINED}')"
    trained = LateInteraction(colbert, dtype="float32", device="cpu")
    expected = open_model(colbert, dtype="float32", device="cpu")
    assert type(trained) is type(expected)
    np.testing.assert_array_equal(trained.predict(PAIRS), expected.score(PAIRS))
    with pytest.raises(InputError, match="cross-encoder"):
        LateInteraction("minilm-stsb", home=home)


def test_maxsim_is_the_mean_both_ways_without_special_tokens(untrained: LateInteraction):
    from sentence_transformers.util.similarity import mean_maxsim_pairwise

    a = "A man is playing."
    b = "the woman eats food"
    states = [each.hidden[1:-1] for each in untrained.encoder.token_vectors([a, b])]
    u, v = ([torch.nn.functional.normalize(torch.from_numpy(each), dim=1)] for each in states)
    expected = (mean_maxsim_pairwise(u, v) + mean_maxsim_pairwise(v, u)) / 2
    assert untrained.predict([(a, b)])[0] == pytest.approx(float(expected), abs=1e-6)


def test_maxsim_is_symmetric_between_minus_1_and_1_and_0_without_tokens(
    untrained: LateInteraction, monkeypatch
):
    monkeypatch.setattr("training.models.maxsim.CHUNK", 2)
    steps: list[tuple[int, int | None]] = []
    scores = untrained.predict(PAIRS, lambda done, count: steps.append((done, count)))
    assert steps == [(2, 5), (4, 5), (5, 5)]
    swapped = untrained.predict([(b, a) for a, b in PAIRS])
    np.testing.assert_allclose(scores, swapped, atol=1e-6)
    assert np.abs(scores).max() <= 1
    assert untrained.predict([("the cat", "the cat")])[0] == pytest.approx(1)
    assert untrained.predict([("", "the cat"), ("", "")]).tolist() == [0, 0]
    assert untrained.predict([]).shape == (0,)
    with pytest.raises(StoppedError):
        untrained.predict(PAIRS, should_stop=lambda: True)


@pytest.fixture(scope="module")
def judged() -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Queries, corpus and relevant documents, at random."""
    random = np.random.default_rng(0)
    corpus = {f"d{i}": " ".join(random.choice(WORDS, 8)) for i in range(40)}
    queries = {f"q{i}": " ".join(random.choice(WORDS, 3)) for i in range(8)}
    return (
        queries,
        corpus,
        {query: set(random.choice(list(corpus), 1 + i % 3)) for i, query in enumerate(queries)},
    )


def test_late_interaction_ranks_as_sentence_transformers_does(tmp_path: Path, judged):
    """By any encoder: the tokens of the query alone find those of the document."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.evaluation import (
        MultiVectorInformationRetrievalEvaluator,
    )

    plain = str(make_model(tmp_path / "plain"))
    modules = [Transformer(plain), Normalize(module_input_name="token_embeddings")]
    theirs = MultiVectorEncoder(modules=modules, device="cpu")
    expected = MultiVectorInformationRetrievalEvaluator(*judged, name="x", write_csv=False)(theirs)
    ours = open_model(f"maxsim:{plain}", dtype="float32", device="cpu")
    result = evaluate_retrieval(ours, RetrievalData.from_dicts(*judged))
    for figure in ("ndcg@10", "mrr@10", "map@100", "recall@10"):
        assert result.estimate(figure).value == pytest.approx(
            expected[f"x_maxsim_{figure}"], abs=1e-6
        )


def test_late_interaction_re_ranks_the_best_of_another_model(judged, untrained: LateInteraction):
    data = RetrievalData.from_dicts(*judged)
    again = load_retriever(f"bm25?rerank={UNTRAINED}", lambda name: untrained)
    [whole], [best] = (
        each.search(data.queries[:1], data.documents, 40)
        for each in (as_retriever(untrained), again)
    )
    assert list(best) == [row for row in whole if row in set(best)]


def test_the_matches_add_up_to_the_score(untrained: LateInteraction, colbert: Path):
    a = "a man plays"
    b = "the guitar"
    found = untrained.matches(a, b)
    assert [token for token, _, _ in found.first] == ["a", "man", "plays"]
    assert {other for _, other, _ in found.first} <= {"the", "guitar"}
    means = [np.mean([cosine for _, _, cosine in side]) for side in (found.first, found.second)]
    assert found.score == pytest.approx(np.mean(means), abs=1e-6)
    trained = LateInteraction(colbert, dtype="float32")
    found = trained.matches(a, b)
    assert sum(cosine for _, _, cosine in found.first) == pytest.approx(found.score, abs=1e-5)
    assert (len(found.first), found.second) == (16, [])
    assert found.first[-1][0] == "[MASK]"


def test_late_interaction_is_evaluated_by_a_name_without_settings(home: Path, colbert: Path):
    data = Dataset.from_pairs(
        ["a man", "the cat", "a dog"], ["a man", "a cat", "food"], [5.0, 3.0, 0.0]
    )
    result = evaluate(open_model(UNTRAINED, home=home), data)
    assert result["model"] == UNTRAINED
    assert result["spearman"].keys() == {"score"}
    assert opener_of(UNTRAINED).group == opener_of(str(colbert)).group == "late interaction"
    for setting in (":cls", "?dim=8", "?prompt=a"):
        with pytest.raises(InputError, match="leave"):
            LateInteraction(f"{UNTRAINED}{setting}")
