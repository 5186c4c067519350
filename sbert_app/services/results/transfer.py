"""What a classifier can read out of sentence vectors that were not made for its task (the paper's section 5).

As SentEval (Conneau & Kiela 2018) has it: the encoder stays as it is, and logistic regression on its vectors is
scored by stratified k-fold cross-validation. How strongly the regression is held back (1/C) is chosen within each
fold's own training part, never on what it is scored on. For pairs of sentences the features are |u − v| and u * v.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.data.parsing import MISSING
from training.data.tables.table import read_columns
from training.errors import InputError, Stopped
from training.evaluation.scoring import sentence_vectors

if TYPE_CHECKING:
    from training.models.scorer import BiEncoder, Vectors

FOLDS = 10
LENGTH = 400.0  # mean squared length of the features: about 1 for each dimension of a small encoder
STRENGTHS = (0.01, 0.1, 1.0)  # of C, on features of that length
MOST_ROWS = 50_000
MOST_CLASSES = 100


@dataclass(frozen=True)
class ClassificationData:
    """Sentences, or pairs of them, each with a class."""

    name: str
    columns: tuple[list[str], ...]  # one or two
    labels: list[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> list[tuple[str, int]]:
        """Each class and its size, the largest first."""
        return Counter(self.labels).most_common()


@dataclass(frozen=True)
class TransferScore:
    """How well a task can be read out of a model's vectors. Shares in 0–1."""

    model: str
    pooling: str | None
    accuracies: tuple[float, ...]  # of the folds
    majority: float  # of who always names the largest class
    seconds: tuple[float, float]  # to encode, to fit and score

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def std(self) -> float:
        """Standard deviation over the folds."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0


def read_labelled(
    path: Path | str | Sequence[Path], name: str | None = None, label: str = "label"
) -> ClassificationData:
    """A file of (sentence, label) or (sentence1, sentence2, label), or several of one form, one after another.

    Raises:
        InputError: the columns are not there, or what is left has fewer than two classes of two rows each.
    """
    paths = [path] if isinstance(path, (str, Path)) else path
    name = name or Path(paths[0]).name
    parts = [read_columns(each) for each in paths]
    raw = {column: [cell for part in parts for cell in part[column]] for column in parts[0]}
    texts = ("sentence1", "sentence2") if "sentence1" in raw else ("sentence",)
    if not {*texts, label} <= set(raw):
        raise InputError(f"{name} has the columns {', '.join(raw)}; it needs sentence and label, or a pair and label")
    rows = list(zip(*([_text(cell) for cell in raw[column]] for column in (*texts, label)), strict=True))
    return _usable(name, rows)


def _usable(name: str, rows: list[tuple[str, ...]]) -> ClassificationData:
    """Rows of texts and, last, a class: what can be learned from."""
    good = [row for row in rows if all(row) and row[-1].lower() not in MISSING]
    notes = [f"{len(rows) - len(good):,} rows without text or label left out"] if len(good) < len(rows) else []
    if len(good) > MOST_ROWS:
        notes.append(f"the first {MOST_ROWS:,} of {len(good):,} rows")
        good = good[:MOST_ROWS]
    sizes = Counter(row[-1] for row in good)
    if len(sizes) > MOST_CLASSES:
        raise InputError(f"{name} has {len(sizes):,} different labels; at most {MOST_CLASSES} can be classes")
    small = sorted(label for label, size in sizes.items() if size < 2)
    if small:
        notes.append(f"classes with a single row left out: {', '.join(small[:5])}")
    if len(sizes) - len(small) < 2:
        raise InputError(f"{name} has not two classes of at least two rows each; a classifier needs that")
    *columns, labels = (list(column) for column in zip(*(row for row in good if row[-1] not in small), strict=True))
    return ClassificationData(name, tuple(columns), labels, tuple(notes))


def score_transfer(
    encoder: BiEncoder,
    data: ClassificationData,
    tell: ReportProgress = lambda *_: None,
    should_stop: ShouldStop = lambda: False,
    folds: int = FOLDS,
    seed: int = 0,
) -> TransferScore:
    """Score an encoder on a task. Fewer folds where a class has fewer rows than that.

    Raises:
        Stopped: ``should_stop`` said yes.
    """
    from sklearn.model_selection import StratifiedKFold
    from threadpoolctl import threadpool_limits

    started = time.perf_counter()
    features = _features(encoder, data, tell, should_stop)
    encoded = time.perf_counter()
    classes, truth = np.unique(data.labels, return_inverse=True)
    folds = max(2, min(folds, int(np.bincount(truth).min())))
    accuracies = []
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, truth)
    for number, (training, test) in enumerate(splits):
        if should_stop():
            raise Stopped
        tell(number / folds, "Classifying")
        with threadpool_limits(1, user_api="blas"):  # on matrices as small as these, a second thread only waits
            classifier = _fit(features[training], truth[training], seed)
        accuracies.append(float((classifier.predict(features[test]) == truth[test]).mean()))
    majority = float(np.bincount(truth, minlength=len(classes)).max() / len(truth))
    seconds = (encoded - started, time.perf_counter() - encoded)
    return TransferScore(encoder.name, getattr(encoder, "pooling", None), tuple(accuracies), majority, seconds)


def _features(encoder: BiEncoder, data: ClassificationData, tell: ReportProgress, should_stop: ShouldStop) -> Vectors:
    """(N, D) of sentences, (N, 2D) of pairs, scaled as a whole to a mean squared length of ``LENGTH``."""
    from scipy import sparse

    tell(0.0, "Encoding")
    texts = [text for column in data.columns for text in column]
    vectors = sentence_vectors(encoder, texts, lambda done, total: tell(done / (total or 1)), should_stop)
    if len(data.columns) == 2:
        u, v = vectors[: len(data)], vectors[len(data) :]
        if isinstance(u, np.ndarray):
            vectors = np.hstack([np.abs(u - v), u * v])
        else:
            v = sparse.csr_matrix(v)
            vectors = sparse.csr_matrix(sparse.hstack([abs(u - v), u.multiply(v)]))
    squares = np.square(vectors) if isinstance(vectors, np.ndarray) else vectors.power(2)
    return vectors * np.sqrt(LENGTH * len(data) / max(float(squares.sum()), 1e-12))


def _fit(features: Vectors, truth: np.ndarray, seed: int) -> Any:
    """Logistic regression; a tenth of what it may learn from decides on its strength."""
    from sklearn.linear_model import LogisticRegression

    held = np.random.default_rng(seed).random(len(truth)) < 0.1
    known = np.bincount(truth[~held], minlength=int(truth.max()) + 1) > 0
    best = STRENGTHS[1]
    if held.any() and known.all():
        scores = {}
        for strength in STRENGTHS:
            tried = LogisticRegression(C=strength, max_iter=300).fit(features[~held], truth[~held])
            scores[strength] = (tried.predict(features[held]) == truth[held]).mean()
        best = max(scores, key=scores.__getitem__)
    return LogisticRegression(C=best, max_iter=300).fit(features, truth)


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell).strip()
