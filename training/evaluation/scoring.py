"""The scores of sentence pairs by any model, and the evaluation of a model on any data.

    model = open_model("all-MiniLM-L6-v2", "max")
    row_scores(model, [first, second])                   [{"cosine": (N,), "dot": …, "euclidean": …, "manhattan": …}]
    evaluate(model, "stsb:test")["spearman"]["cosine"]

A bi-encoder turns sentences into vectors, which four similarities compare. A cross-encoder has no vectors, and late
interaction one for each token: their only similarity is the ``score`` of a pair.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.catalogue import DEFAULT_MODEL, LABELLED, SCORED, TRIPLETS
from training.data.dataset import Data, Dataset, as_dataset, read_cells
from training.data.load import RetrievalData, load_data
from training.data.tables.cells import as_text
from training.data.tables.columns import free_name
from training.data.transforms import TOGETHER_ROWS, transform_for
from training.errors import InputError, QuestionError
from training.evaluation.bootstrap import bootstrap_interval, sentence_keys, wilson_interval
from training.evaluation.metrics import classify_pairs, pearson, remarks_on_correlation, spearman
from training.evaluation.mteb_tasks import evaluate_task, find_task
from training.evaluation.retrieval import evaluate_retrieval
from training.models.lexical import SparseModel
from training.models.model import Model, Retriever, VectorModel, open_model
from training.names import DataName
from training.progress import Progress, ShouldStop
from training.similarities import row_similarities

if TYPE_CHECKING:
    from training.models.model import Vectors

# The only similarity of models without sentence vectors.
SCORE = "score"


@dataclass
class ScoreReport:
    """The counts of a call of `row_scores`, which fills the empty report that it is passed.

    ``sentences`` are the different sentences, or two for each different pair of a cross-encoder. ``seconds`` is the
    time of the model, without the comparison of vectors.
    """

    sentences: int = 0
    seconds: float = 0.0


def sentence_vectors(model: VectorModel | SparseModel, sentences: Sequence[str], **watch: Any) -> Vectors:
    """The model's own output (N, D), of length 1 only if its folder says so; sparse for TF-IDF and SPLADE.

    ``watch`` has on_progress and should_stop.
    """
    if isinstance(model, SparseModel):
        return model.encode_sparse(sentences, **watch)
    return model.encode(sentences, None, **watch)


def row_scores(
    model: Model,
    columns: Sequence[Sequence[str]],
    pairs: Sequence[tuple[int, int]] = ((0, 1),),
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    report: ScoreReport | None = None,
) -> list[dict[str, np.ndarray]]:
    """Similarities of sentences in the same row: for each pair of columns, (N,) by each similarity of the model.

    ``columns`` are K lists of N sentences, ``pairs`` the indices of those to compare: (0, 1) and (0, 2) for triplets.
    ``report`` is filled with counts.
    """
    report, started = report or ScoreReport(), time.perf_counter()
    if not isinstance(model, VectorModel | SparseModel):
        texts = [pair for a, b in pairs for pair in zip(columns[a], columns[b], strict=True)]
        scores = model.score(texts, on_progress, should_stop)
        report.sentences, report.seconds = 2 * len(set(texts)), time.perf_counter() - started
        return [{SCORE: part} for part in np.split(scores, len(pairs))]
    n = len(columns[0])
    sentences = [text for column in columns for text in column]
    vectors = sentence_vectors(model, sentences, on_progress=on_progress, should_stop=should_stop)
    report.sentences, report.seconds = len(set(sentences)), time.perf_counter() - started
    parts = [vectors[n * k : n * (k + 1)] for k in range(len(columns))]
    return [row_similarities(parts[a], parts[b]) for a, b in pairs]


def score(
    frame: Any,
    model: Model | Path | str = DEFAULT_MODEL,
    columns: str | None = None,
    home: str | Path | None = None,
    keep_unknown: bool = False,
) -> Any:
    """The pairs of sentences of a pandas.DataFrame, scored: the same rows, columns and index, and a column ``score``.

    It is called score_2 if the frame has a score. Rows without two texts have NaN. InputError, with a question where
    several columns may be meant, if there are no two columns of sentences.

    Args:
        frame: a DataFrame, which stays as it is.
        model: a model of ``open_model``, or its name; of a bi-encoder the score is the cosine.
        columns: the two columns, "a,b"; None goes by their names and cells.
        keep_unknown: whether rows have a score with a text of which the model knows no token.
    """
    if not hasattr(frame, "assign"):
        raise InputError(f"score takes a DataFrame and then a model; its first argument is a {type(frame).__name__}")
    cells, reading = read_cells({str(column): frame[column] for column in frame.columns}, "DataFrame", columns)
    pair = reading.pair()
    opened = open_model(model, home=home) if isinstance(model, Path | str) else model
    texts = [list(map(as_text, cells[name])) for name in (pair.sentence1, pair.sentence2)]
    rows = np.array([row for row, both in enumerate(zip(*texts, strict=True)) if None not in both], dtype=np.int64)
    readable = [[column[row] or "" for row in rows] for column in texts]
    scores = np.full(len(frame), np.nan, dtype=np.float32)
    if len(rows):
        scores[rows] = opened.score(list(zip(*readable, strict=True)))
    for column in readable if not keep_unknown else ():
        scores[np.extract(opened.is_unknown(column), rows)] = np.nan
    return frame.assign(**{free_name("score", list(cells)): scores})


def without_score(
    model: Model, columns: Sequence[Sequence[str]], scores: Sequence[dict[str, np.ndarray]], keep_unknown: bool = False
) -> tuple[np.ndarray, str]:
    """The rows whose scores say nothing, bool (N,), and a sentence that counts them, "" if there are none.

    The model knows no token of one of their texts, unless ``keep_unknown``, or a score is not a finite number.
    InputError if all rows are of that kind.
    """
    is_finite = np.all([np.isfinite(values) for part in scores for values in part.values()], axis=0)
    is_unknown = np.zeros(len(is_finite), dtype=bool)
    if not keep_unknown:
        for column in columns:
            is_unknown |= model.is_unknown(column)
    is_left_out = is_unknown | ~is_finite
    if not is_left_out.any():
        return is_left_out, ""
    reasons = {
        f"there is a text of which {model.name} knows no token": is_unknown.sum(),
        f"the score by {model.name} is not a finite number": (~is_finite & ~is_unknown).sum(),
    }
    parts = [f"in {count:,} {reason}" for reason, count in reasons.items() if count]
    note = f"{is_left_out.sum():,} of {len(is_left_out):,} rows are left out: {', '.join(parts)}"
    if is_left_out.all():
        raise InputError(f"nothing can be measured: {note}")
    return is_left_out, note


def evaluate(
    encoder: Model | Retriever | Path | str,
    data: Data,
    home: str | Path | None = None,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    relevant_from: float = 0.0,
    keep_unknown: bool = False,
) -> dict[str, Any]:
    """Evaluates any model: correlations on scored pairs, pair classification on labelled ones, accuracy on triplets.

    The vectors are the model's own output: of length 1 only if its folder says so. The accuracy on triplets is how
    often the anchor is closer to the positive than to the negative (section 4.4 of the paper). Labelled
    pairs count as matches or as others by their label, but for neutral ones. InputError if the data has no scores, no
    triplets, and no labels that say which pairs are matches.

    Args:
        encoder: a model of ``open_model``, or its name; for retrieval data also a retriever of ``load_retriever``.
        data: a `Dataset` or an object that `as_dataset` takes; the name of a data set; ``mteb:<task>`` (see
            `training.evaluation.mteb_tasks`); `RetrievalData`, or its name (``beir:<folder>``).
        relevant_from: the grade from which a document is relevant, in all figures of retrieval but nDCG.
        keep_unknown: whether rows count with a text of which the model knows no token. Others, and rows whose scores
            are not finite, are left out.

    Returns:
        ``{"model", "pooling", "data", "n", "spearman": {cosine, dot, euclidean, manhattan}, "pearson": {…},
        "interval": {"low", "high", "method"}, "notes", "seconds"}`` with correlations in -1..1, the interval being that
        of the first similarity's Spearman, and in ``"notes"`` a sentence on rows that are left out; for triplets
        ``"accuracy": {…}`` in 0..1 in place of the correlations, an interval, and ``"ties"``, the triplets with two
        equal similarities, which count as wrong; for labelled pairs ``"average_precision"``, ``"f1"``,
        ``"threshold"``, ``"precision"`` and ``"recall"`` (see `training.evaluation.metrics`) and ``"positives"``, the
        number of pairs that belong together.
        A cross-encoder and late interaction have one ``score`` in place of the four similarities. Retrieval data has
        figures of its own, see `training.evaluation.retrieval`: ``{"model", "data", "queries", "documents", "ndcg@10",
        "mrr@10", "recall@10", …, "intervals": {"ndcg@10": {"low", "high"}, …}, "method", "seconds"}``.
    """
    started = time.perf_counter()
    watch: dict[str, Any] = {"on_progress": on_progress, "should_stop": should_stop}
    data = str(data) if isinstance(data, Path) else data
    encoder = open_model(encoder, home=home) if isinstance(encoder, Path | str) else encoder
    if isinstance(data, RetrievalData) or (isinstance(data, str) and DataName.parse(data).is_retrieval):
        return evaluate_retrieval(encoder, data, home, relevant_from=relevant_from, **watch).to_dict()
    if not isinstance(encoder, Model | Retriever):
        raise InputError(f"evaluate takes a model and then data; its first argument is a {type(encoder).__name__}")
    if not isinstance(encoder, Model):
        raise InputError("a retriever ranks documents for queries; on other data evaluate what open_model returns")
    if isinstance(data, str):
        if (task := DataName.parse(data).mteb_task) is not None:
            return evaluate_task(encoder, find_task(task), home, **watch)
        data = load_data(data, home, split="test")
    data = as_dataset(data, "data")
    if data.kind not in MEASURES and data.question:
        raise QuestionError(data.question)
    if data.kind not in MEASURES:
        raise InputError(f"{data.name} holds {data.kind}; an evaluation needs scored pairs, labelled pairs or triplets")
    total, notes = len(data), list[str]()
    if data.kind == LABELLED:
        data = transform_for(data, TOGETHER_ROWS, "contrastive")
        notes += data.notes[-1:] if len(data) < total else ()
    pairs = ((0, 1), (0, 2)) if data.kind == TRIPLETS else ((0, 1),)
    scores = row_scores(encoder, data.columns, pairs, **watch)
    is_left_out, note = without_score(encoder, data.columns, scores, keep_unknown)
    if note:
        notes.append(note)
        data = data.select(np.flatnonzero(~is_left_out).tolist())
        scores = [{name: values[~is_left_out] for name, values in part.items()} for part in scores]
    figures = MEASURES[data.kind](scores, data)
    if data.kind == SCORED:
        notes += remarks_on_correlation(next(iter(figures["spearman"].values())))
    return {
        "model": encoder.name,
        "pooling": encoder.pooling,
        "data": data.name,
        "n": len(data),
        **figures,
        "notes": notes,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _correlate(scores: list[dict[str, np.ndarray]], data: Dataset) -> dict[str, Any]:
    gold, [by_similarity] = np.asarray(data.scores, dtype=np.float64), scores
    interval = bootstrap_interval(next(iter(by_similarity.values())), gold, keys=sentence_keys(data.columns))
    return {
        "spearman": {name: spearman(values, gold) for name, values in by_similarity.items()},
        "pearson": {name: pearson(values, gold) for name, values in by_similarity.items()},
        "interval": interval._asdict(),
    }


def _classify(scores: list[dict[str, np.ndarray]], data: Dataset) -> dict[str, Any]:
    together = np.asarray(data.labels)
    if together.all() or not together.any():
        missing = "do not" if together.all() else "do"
        raise InputError(f"{data.name} has no pairs that {missing} belong together; pair classification needs both")
    [by_similarity] = scores
    classified = {name: classify_pairs(values, together)._asdict() for name, values in by_similarity.items()}
    figures = next(iter(classified.values())).keys()
    by_figure = {figure: {name: classified[name][figure] for name in classified} for figure in figures}
    return {**by_figure, "positives": int(together.sum())}


def _triplet_accuracy(scores: list[dict[str, np.ndarray]], data: Dataset) -> dict[str, Any]:
    positive, negative = scores
    near, far = next(iter(positive.values())), next(iter(negative.values()))
    return {
        "accuracy": {name: float((positive[name] > negative[name]).mean()) for name in positive},
        "interval": wilson_interval(int((near > far).sum()), len(near))._asdict(),
        "ties": int((near == far).sum()),
    }


MEASURES = {SCORED: _correlate, LABELLED: _classify, TRIPLETS: _triplet_accuracy}
