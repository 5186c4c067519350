"""Retrieval: the figures are those of sentence-transformers, BM25 that of its formula, and tests are paired."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_models import WORDS, make_model

from training.data.load import RetrievalData
from training.errors import InputError
from training.evaluation.retrieval import evaluate_retrieval
from training.evaluation.scoring import evaluate
from training.models import lexical
from training.models.encoder import Encoder
from training.models.lexical import bm25_weights
from training.models.model import Model, Retriever, open_model
from training.models.retrievers import Hybrid, Reranked, load_retriever


@pytest.fixture(scope="module")
def texts() -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Queries, corpus and relevant documents, at random; two documents are equal."""
    random = np.random.default_rng(0)
    corpus = {f"d{i}": " ".join(random.choice(WORDS, 6)) for i in range(60)}
    corpus["d7"] = corpus["d30"]
    queries = {f"q{i}": " ".join(random.choice(WORDS, 3)) for i in range(12)}
    relevant = {
        query: set(random.choice(list(corpus), 1 + i % 5)) for i, query in enumerate(queries)
    }
    return queries, corpus, relevant


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def test_the_figures_are_those_of_sentence_transformers(texts, model: Path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    k = [1, 5, 10, 100]
    referee = InformationRetrievalEvaluator(
        *texts,
        mrr_at_k=k,
        ndcg_at_k=k,
        precision_recall_at_k=k,
        map_at_k=k,
        accuracy_at_k=k,
        name="x",
    )
    theirs = referee(SentenceTransformer(str(model), device="cpu"))
    ours = evaluate_retrieval(
        Encoder.load(str(model), dtype="float32"), RetrievalData.from_dicts(*texts), cutoffs=k
    )
    assert len(ours.values) == 16
    # Its MAP divides by k where more than k documents are relevant, as at 1 here.
    for figure in set(ours.values) - {"map@1"}:
        assert ours.estimate(figure).value == pytest.approx(
            theirs[f"x_cosine_{figure}"], abs=1e-6
        ), figure
    assert 0.1 < ours.estimate("ndcg@10").value < 0.9


@pytest.mark.parametrize("relevant_from", [0, 2])
def test_graded_figures_are_those_of_pytrec_eval(texts, model: Path, relevant_from: int):
    """nDCG counts the grades; the other figures documents from a grade on. Half of the queries have more than 10."""
    import pytrec_eval

    queries, corpus, _ = texts
    random = np.random.default_rng(1)
    grades = {}
    for number, query in enumerate(queries):
        judged = random.choice(sorted(corpus), 4 * (number + 1), replace=False)
        grades[query] = {str(document): int(random.integers(-1, 4)) for document in judged} | {
            "d1": 3
        }
    names = {
        "ndcg_cut_10": "ndcg@10",
        "recall_10": "recall@10",
        "recip_rank": "mrr@60",
        "map_cut_60": "map@60",
    }
    names |= {"map_cut_5": "map@5", "map_cut_10": "map@10"}
    referee = pytrec_eval.RelevanceEvaluator(
        grades, set(names), relevance_level=max(relevant_from, 1)
    )
    encoder = Encoder.load(str(model), dtype="float32")
    data = RetrievalData.from_dicts(queries, corpus, grades)
    rankings = encoder.search(data.queries, data.documents, 60)
    ids = sorted(corpus)
    run = {
        query: {ids[document]: float(-rank) for rank, document in enumerate(rows)}
        for query, rows in zip(grades, rankings, strict=True)
    }
    theirs = referee.evaluate(run)
    ours = evaluate_retrieval(encoder, data, cutoffs=(5, 10, 60), relevant_from=relevant_from)
    for name, figure in names.items():
        assert ours.values[figure] == pytest.approx([theirs[query][name] for query in grades]), (
            figure
        )
    assert ours.to_dict()["method"].endswith("of fewer than 50 queries it is too narrow")


def test_a_corpus_in_parts_is_ranked_as_a_whole(
    texts, model: Path, monkeypatch: pytest.MonkeyPatch
):
    queries = list(texts[0].values())
    corpus = list(texts[1].values())
    encoder = Encoder.load(str(model), dtype="float32")
    whole = encoder.search(queries, corpus, 20)
    monkeypatch.setattr(encoder, "chunk_size", 7)
    done: list[tuple[int, int]] = []
    parts = encoder.search(queries, corpus, 20, on_progress=lambda *each: done.append(each))
    assert [list(rows) for rows in parts] == [list(rows) for rows in whole]
    assert done[-1] == (60, 60)
    assert [len(rows) for rows in encoder.search(queries, corpus[:3], 20)] == [3] * len(queries)


def test_each_side_has_the_prompt_that_the_folder_has_for_it(model: Path):
    asked = []

    class Spy(Encoder):
        def for_role(self, role):
            asked.append(role)
            return super().for_role(role)

    Spy.load(str(model)).search(["a cat"], ["a dog"], 1)
    assert asked == ["query", "document"]


def test_the_similarity_is_that_of_the_folder(model: Path):
    encoder = Encoder.load(str(model), dtype="float32")
    encoder.similarity_fn_name = "dot"
    documents = [" ".join(WORDS[i : i + 3]) for i in range(10)]
    dots = encoder.encode(["the cat"], normalize=None) @ encoder.encode(documents, normalize=None).T
    [rows] = encoder.search(["the cat"], documents, 10)
    assert list(rows) == list(np.argsort(-dots[0]))


def test_bm25_is_its_formula():
    documents = ["The cat sat on the mat.", "A cat and a cat!", "Dogs bark", "", "The dog sat"]
    queries = ["cat sat", "the the dogs", "zebra"]
    words = [re.findall(r"\w+", text.lower()) for text in documents]
    mean = np.mean([len(each) for each in words])
    n = len(documents)
    k1 = 0.9
    b = 0.4

    def score(query: str, document: list[str]) -> float:
        total = 0.0
        for word in query.split():
            occurs_in = sum(word in each for each in words)
            tf = document.count(word)
            idf = math.log(1 + (n - occurs_in + 0.5) / (occurs_in + 0.5))
            total += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(document) / mean))
        return total

    expected = np.array([[score(query, document) for document in words] for query in queries])
    counts, weights = bm25_weights(queries, documents)
    assert (counts @ weights.T).toarray() == pytest.approx(expected, abs=1e-6)
    for rows, scores in zip(
        load_retriever("bm25").search(queries, documents, 3), expected, strict=True
    ):
        assert list(rows) == [
            row for row in np.argsort(-scores, kind="stable")[:3] if scores[row] > 0
        ]
    assert [len(rows) for rows in load_retriever("bm25").search(["cat"], ["!", ""], 3)] == [0]


def test_of_equal_scores_the_first_rows_are_found_in_blocks_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
):
    documents = ["cat"] * 9 + ["cat dog"]
    for products in (1, 1 << 24):
        monkeypatch.setattr(lexical, "PRODUCTS", products)
        found = load_retriever("bm25").search(["dog cat", "cat", "dog"], documents, 3)
        assert [list(rows) for rows in found] == [[9, 0, 1], [0, 1, 2], [9]]


class Ranked(Retriever):
    """A retriever of known rankings."""

    def __init__(self, name: str, *rankings: list[int]):
        self.name = name
        self.rankings = rankings

    def search(self, queries, documents, k, **_):
        return [np.array(rows[:k], dtype=np.int64) for rows in self.rankings]


def test_reciprocal_ranks_are_added():
    """Of document 2: 1/61 + 1/63; of 5: 1/62 + 1/61; of 7: 1/62; of 9: 1/63."""
    fused = Hybrid([Ranked("a", [2, 5, 9], []), Ranked("b", [5, 7, 2], [4])])
    assert fused.name == "a+b"
    assert [list(rows) for rows in fused.search(["x", "y"], [""] * 10, 3)] == [[5, 2, 7], [4]]


def test_a_cross_encoder_ranks_the_best_again():
    class Longest(Model):
        name = "longest"

        def score(self, pairs, on_progress=None, should_stop=None):
            assert all(query in ("x", "y") for query, _ in pairs)
            return np.array([len(document) for _, document in pairs])

    again = Reranked(Ranked("a", [0, 1, 2, 3], []), Longest(), depth=3)
    assert again.name == "a?rerank=longest"
    assert [list(rows) for rows in again.search(["x", "y"], ["", "bb", "a", "cccc"], 4)] == [
        [1, 2, 0, 3],
        [],
    ]


def test_documents_that_a_reranker_leaves_out_follow_the_ones_that_it_ranks():
    again = Reranked(Ranked("a", [0, 1, 2, 3]), open_model("tfidf"), depth=3)
    [rows] = again.search(["cat"], ["dog", "cat", "bird", "cat"], 4)
    assert list(rows) == [1, 0, 2, 3]


def test_retrievers_by_name(texts, model: Path):
    queries, corpus, relevant = texts
    data = RetrievalData.from_dicts({"q4": queries["q4"]}, corpus, {"q4": relevant["q4"]})

    def load(name: str):
        return Encoder.load(name) if name == str(model) else open_model(name)

    both = load_retriever(f"{model}+bm25?rerank=minilm-stsb", load)
    assert both.name == f"{model}+bm25?rerank=minilm-stsb"
    assert evaluate(both, data)["recall@100"] == 1  # all 60 documents are found
    assert evaluate(open_model("tfidf"), data)["model"] == "tfidf"
    for name, told in {
        "minilm-stsb": r"would read each document .* again: bm25\?rerank=minilm-stsb",
        f"bm25?rerank={model}": "is no cross-encoder",
    }.items():
        with pytest.raises(InputError, match=told):
            load_retriever(name, load)
    with pytest.raises(InputError, match="bm25 ranks documents for queries"):
        open_model("bm25").score([("a", "b")])


def test_the_interval_holds_the_mean_and_the_test_is_paired(texts):
    data = RetrievalData.from_dicts(*texts)
    rows = [list(found) for found in data.relevant]
    best = evaluate_retrieval(Ranked("best", *rows), data)
    found = best.to_dict()
    assert (found["ndcg@10"], found["recall@100"], found["map@10"]) == (1.0, 1.0, 1.0)
    assert found["intervals"]["mrr@10"] == {"low": 1.0, "high": 1.0}
    one = evaluate_retrieval(Ranked("one", *(each[:1] for each in rows)), data)
    recall = one.estimate("recall@10")
    assert recall.value == pytest.approx(np.mean([1 / len(each) for each in rows]))
    assert recall.low < recall.value < recall.high
    apart = best.difference(one, "recall@10")
    none = best.difference(one, "mrr@10")
    assert apart.points == pytest.approx(100 * (1 - recall.value))
    assert (apart.p_value < 0.05, none.p_value) == (True, 1.0)


def test_a_cutoff_is_at_least_1(texts):
    data = RetrievalData.from_dicts(*texts)
    rows = [list(found) for found in data.relevant]
    with pytest.raises(InputError, match="must be at least 1"):
        evaluate_retrieval(Ranked("best", *rows), data, cutoffs=(0,))
