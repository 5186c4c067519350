"""Scores sentence pairs with any model, and evaluates a model on any data.

    model = open_model("all-MiniLM-L6-v2", "max")
    row_scores(model, [first, second])                   [{"cosine": (N,), "dot": …, "euclidean": …, "manhattan": …}]
    evaluate(model, "stsb:test")["spearman"]["cosine"]

The vectors of a bi-encoder are compared by four similarities. Cross-encoders and late interaction
do not give sentence vectors: their only similarity is the ``score`` of a pair.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
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
from training.evaluation.metrics import (
    PairClassification,
    classify_pairs,
    pearson,
    remarks_on_correlation,
    spearman,
)
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
    """Counts of a call of `row_scores`, which fills an empty report that is passed to it.

    ``sentences`` are the distinct sentences, or two for each distinct pair of a cross-encoder.
    ``seconds`` is the time of the model, without the comparison of vectors.
    """

    sentences: int = 0
    seconds: float = 0.0


def sentence_vectors(
    model: VectorModel | SparseModel, sentences: Sequence[str], **watch: Any
) -> Vectors:
    """Computes the model's own output (N, D), normalised only if its folder says so; sparse for TF-IDF and SPLADE.

    ``watch``: on_progress and should_stop.
    """
    if isinstance(model, SparseModel):
        return model.encode_sparse(sentences, **watch)
    return model.encode(sentences, normalize=None, **watch)


def row_scores(
    model: Model,
    columns: Sequence[Sequence[str]],
    pairs: Sequence[tuple[int, int]] = ((0, 1),),
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    report: ScoreReport | None = None,
) -> list[dict[str, np.ndarray]]:
    """Scores the sentences of each row.

    Args:
        model: any model that scores pairs.
        columns: K lists of N sentences.
        pairs: the indices of the columns to compare: (0, 1) and (0, 2) for triplets.
        report: filled with counts.

    Returns:
        For each pair of columns, scores (N,) by each similarity of the model.
    """
    report = report or ScoreReport()
    started = time.perf_counter()
    if not isinstance(model, VectorModel | SparseModel):
        texts: list[tuple[str, str]] = []
        for a, b in pairs:
            texts += zip(columns[a], columns[b], strict=True)
        scores = model.score(texts, on_progress, should_stop)
        # A cross-encoder computes a sentence again in each of its pairs.
        report.sentences = 2 * len(set(texts))
        report.seconds = time.perf_counter() - started
        return [{SCORE: part} for part in np.split(scores, len(pairs))]
    sentences = list(chain.from_iterable(columns))
    vectors = sentence_vectors(model, sentences, on_progress=on_progress, should_stop=should_stop)
    report.sentences = len(set(sentences))
    report.seconds = time.perf_counter() - started
    # The vectors of the columns follow one another.
    n = len(columns[0])
    parts = [vectors[n * k : n * (k + 1)] for k in range(len(columns))]
    return [row_similarities(parts[a], parts[b]) for a, b in pairs]


def score(
    frame: Any,
    model: Model | Path | str = DEFAULT_MODEL,
    columns: str | None = None,
    home: str | Path | None = None,
    keep_unknown: bool = False,
) -> Any:
    """Scores the pairs of sentences of a pandas.DataFrame.

    Args:
        frame: a DataFrame of N rows, which is not changed.
        model: a model of ``open_model``, or its name. A bi-encoder's score is the cosine.
        columns: the two columns of sentences, "a,b"; None finds them by their names and cells.
        keep_unknown: also score texts that consist only of unknown tokens.

    Returns:
        A DataFrame with the same rows, columns and index, and a column ``score``, float32 (N,). If
        there is one already, the new column is score_2. Rows without two texts have NaN.

    Raises:
        InputError: there are no two columns of sentences, or several columns could be meant.

    Example::

        import pandas as pd
        from sbert_lab import score

        frame = pd.DataFrame({"sentence1": ["A man is eating."], "sentence2": ["A man eats food."]})
        print(score(frame, "all-MiniLM-L6-v2"))
    """
    if not hasattr(frame, "assign"):
        raise InputError(
            f"score takes a DataFrame and then a model; its first argument is a {type(frame).__name__}"
        )
    values = {str(column): frame[column] for column in frame.columns}
    # The cells of all columns, and what the columns are.
    cells, reading = read_cells(values, "DataFrame", columns)
    pair = reading.pair()
    scorer = open_model(model, home=home) if isinstance(model, Path | str) else model
    first = map(as_text, cells[pair.sentence1])
    second = map(as_text, cells[pair.sentence2])
    rows = []
    pairs = []
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        if a is not None and b is not None:
            rows.append(row)
            pairs.append((a, b))
    scores = np.full(len(frame), np.nan, dtype=np.float32)
    if pairs:
        scores[rows] = scorer.score(pairs)
    if not keep_unknown:
        # The first sentences of all pairs, and then the second ones.
        for column in zip(*pairs, strict=True):
            unknown_rows = np.extract(scorer.is_unknown(column), rows)
            scores[unknown_rows] = np.nan
    return frame.assign(**{free_name("score", list(cells)): scores})


def without_score(
    model: Model,
    columns: Sequence[Sequence[str]],
    scores: Sequence[dict[str, np.ndarray]],
    keep_unknown: bool = False,
) -> tuple[np.ndarray, str]:
    """Finds rows with meaningless scores, bool (N,), and counts them in a sentence, "" if there are none.

    A score is meaningless if it is not finite or, without ``keep_unknown``, if the model knows no
    token of one of the texts. InputError if all rows have such scores.
    """
    n = len(columns[0])
    is_finite = np.ones(n, dtype=bool)
    for part in scores:
        for values in part.values():
            is_finite &= np.isfinite(values)
    is_unknown = np.zeros(n, dtype=bool)
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

    The vectors are the model's own output, normalised only if its folder says so. The accuracy on
    triplets is how often the anchor is closer to the positive than to the negative (section 4.4 of
    the paper). Labelled pairs match or not by their label; neutral ones are left out.

    Args:
        encoder: a model of ``open_model``, or its name; for retrieval data also a retriever of
            ``load_retriever``.
        data: a `Dataset` or an object that `as_dataset` takes; the name of a data set;
            ``mteb:<task>`` (see `training.evaluation.mteb_tasks`); `RetrievalData`, or its name
            (``beir:<folder>``).
        relevant_from: the least grade of a relevant document, in all figures of retrieval but nDCG.
        keep_unknown: also count texts that consist only of unknown tokens. Otherwise such rows are
            left out, as are rows with scores that are not finite.

    Returns:
        A dictionary with "model", "pooling", "data", "n", "notes", "seconds", and by the kind of
        data:

        - scored pairs: "spearman" and "pearson", in -1..1 by similarity (cosine, dot, euclidean,
          manhattan), and "interval", with the low and high end for the first similarity's Spearman,
          and the method.
        - labelled pairs: "average_precision", "f1", "threshold", "precision" and "recall" by
          similarity (see `training.evaluation.metrics`), and "positives", the number of pairs that
          belong together.
        - triplets: "accuracy" in 0..1 by similarity, "interval", and "ties", the triplets with
          equal similarities, which count as wrong.
        - retrieval data: other figures, such as "ndcg@10", with "intervals", see
          `training.evaluation.retrieval`.

        Cross-encoders and late interaction have one similarity, ``score``.

    Raises:
        InputError: the data has neither scores, nor triplets, nor labels that tell which pairs
            match.

    Example::

        from sbert_lab import evaluate

        result = evaluate("all-MiniLM-L6-v2", "stsb:dev")
        print(result["spearman"]["cosine"], result["interval"])
    """
    started = time.perf_counter()
    if isinstance(encoder, Path | str):
        encoder = open_model(encoder, home=home)
    if not isinstance(encoder, Model | Retriever):
        raise InputError(
            "evaluate takes a model (a name, a folder, or what open_model returns) and then data; its first argument "
            f"is a {type(encoder).__name__}"
        )
    if isinstance(data, Path):
        data = str(data)
    is_retrieval = isinstance(data, RetrievalData)
    if isinstance(data, str):
        is_retrieval = DataName.parse(data).is_retrieval
    if is_retrieval:
        result = evaluate_retrieval(
            encoder,
            data,
            home,
            relevant_from=relevant_from,
            on_progress=on_progress,
            should_stop=should_stop,
        )
        return result.to_dict()
    if not isinstance(encoder, Model):
        raise InputError(
            "a retriever ranks documents for queries; on other data evaluate what open_model returns"
        )
    if isinstance(data, str):
        task = DataName.parse(data).mteb_task
        if task is not None:
            return evaluate_task(
                encoder, find_task(task), home, on_progress=on_progress, should_stop=should_stop
            )
        data = load_data(data, home, split="test")
    data = as_dataset(data, "data")
    if data.kind not in MEASURES:
        # A file that can be read in several ways asks which one is meant.
        if data.question:
            raise QuestionError(data.question)
        raise InputError(
            f"{data.name} holds {data.kind}; an evaluation needs scored pairs, labelled pairs or triplets"
        )
    notes = []
    if data.kind == LABELLED:
        total = len(data)
        # The same pairs match as for the objective "contrastive". An error names this objective.
        data = transform_for(data, TOGETHER_ROWS, "contrastive")
        # The transform has noted the pairs that it leaves out.
        if len(data) < total:
            notes.append(data.notes[-1])
    pairs = ((0, 1), (0, 2)) if data.kind == TRIPLETS else ((0, 1),)
    scores = row_scores(encoder, data.columns, pairs, on_progress, should_stop)
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
    """Computes the figures of scored pairs: correlations by similarity, and the interval of the first one."""
    gold = np.asarray(data.scores, dtype=np.float64)
    # Scored pairs have one pair of columns.
    [by_similarity] = scores
    # The first similarity is the cosine, or the only score of the model.
    main_scores = next(iter(by_similarity.values()))
    interval = bootstrap_interval(main_scores, gold, keys=sentence_keys(data.columns))
    return {
        "spearman": {name: spearman(values, gold) for name, values in by_similarity.items()},
        "pearson": {name: pearson(values, gold) for name, values in by_similarity.items()},
        "interval": interval._asdict(),
    }


def _classify(scores: list[dict[str, np.ndarray]], data: Dataset) -> dict[str, Any]:
    """Computes the figures of pairs with the labels 1 (together) and 0. InputError if one label is missing."""
    together = np.asarray(data.labels)
    if together.all() or not together.any():
        missing = "do not" if together.all() else "do"
        raise InputError(
            f"{data.name} has no pairs that {missing} belong together; pair classification needs both"
        )
    # Labelled pairs have one pair of columns.
    [by_similarity] = scores
    results: dict[str, Any] = {figure: {} for figure in PairClassification._fields}
    for similarity, values in by_similarity.items():
        for figure, value in classify_pairs(values, together)._asdict().items():
            results[figure][similarity] = value
    results["positives"] = int(together.sum())
    return results


def _triplet_accuracy(scores: list[dict[str, np.ndarray]], data: Dataset) -> dict[str, Any]:
    """Computes the share of triplets whose positive is more similar to the anchor, by similarity."""
    # The similarities of (anchor, positive) and of (anchor, negative).
    positive, negative = scores
    # The interval and the ties are of the first similarity.
    near = next(iter(positive.values()))
    far = next(iter(negative.values()))
    return {
        "accuracy": {name: float((positive[name] > negative[name]).mean()) for name in positive},
        "interval": wilson_interval(int((near > far).sum()), len(near))._asdict(),
        "ties": int((near == far).sum()),
    }


MEASURES = {SCORED: _correlate, LABELLED: _classify, TRIPLETS: _triplet_accuracy}
