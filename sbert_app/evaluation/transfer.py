"""Transfer: what a classifier can read out of sentence vectors that were not made for its task (the paper's section 5).

As SentEval (Conneau & Kiela 2018) has it: the encoder stays as it is, and logistic regression on its vectors is
scored by stratified k-fold cross-validation. How strongly the regression is held back (1/C) is chosen within each
fold's own training part, never on what it is scored on. For pairs of sentences the features are |u − v| and u * v.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.watched import ShouldStop, Tell
from training.errors import InputError, Stopped
from training.raw_columns import MISSING
from training.tables import read_columns

if TYPE_CHECKING:
    from training.encoder import Encoder

FOLDS = 10
STRENGTHS = (0.1, 1.0, 10.0)  # of C, on vectors whose dimensions have a spread of 1 on average
MOST_ROWS = 50_000
MOST_CLASSES = 100


@dataclass(frozen=True)
class Labelled:
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
class Transfer:
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
    def spread(self) -> float:
        """Standard deviation over the folds."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0


def read_labelled(path: Path | str, name: str | None = None) -> Labelled:
    """A file of (sentence, label), or of (sentence1, sentence2, label).

    Raises:
        InputError: the columns are not there, or what is left has fewer than two classes of two rows each.
    """
    name = name or Path(path).name
    raw = read_columns(path)
    pairs = {"sentence1", "sentence2", "label"} <= set(raw)
    if not pairs and not {"sentence", "label"} <= set(raw):
        raise InputError(
            f"{name} has the columns {', '.join(raw)}; transfer needs sentence and label, or a pair and label"
        )
    texts = [raw["sentence1"], raw["sentence2"]] if pairs else [raw["sentence"]]
    rows = [
        ([_text(cell) for cell in cells], label)
        for *cells, label in zip(*texts, (_label(cell) for cell in raw["label"]), strict=True)
    ]
    good = [(cells, label) for cells, label in rows if all(cells) and label]
    notes = [f"{len(rows) - len(good):,} rows without text or label left out"] if len(good) < len(rows) else []
    if len(good) > MOST_ROWS:
        notes.append(f"the first {MOST_ROWS:,} of {len(good):,} rows")
        good = good[:MOST_ROWS]
    labels = [label for _, label in good]
    sizes = Counter(labels)
    if len(sizes) > MOST_CLASSES:
        raise InputError(f"{name} has {len(sizes):,} different labels; at most {MOST_CLASSES} can be classes")
    if small := {label for label, size in sizes.items() if size < 2}:
        notes.append(f"classes with a single row left out: {', '.join(sorted(small)[:5])}")
    kept = [i for i, label in enumerate(labels) if label not in small]
    if len({labels[i] for i in kept}) < 2:
        raise InputError(f"{name} has not two classes of at least two rows each; a classifier needs that")
    columns = tuple([good[i][0][k] for i in kept] for k in range(len(texts)))
    return Labelled(name, columns, [labels[i] for i in kept], tuple(notes))


def transfer(
    encoder: Encoder,
    data: Labelled,
    tell: Tell = lambda *_: None,
    should_stop: ShouldStop = lambda: False,
    folds: int = FOLDS,
    seed: int = 0,
) -> Transfer:
    """Score an encoder on a task. Fewer folds where a class has fewer rows than that.

    Raises:
        Stopped: ``should_stop`` said yes.
    """
    from sklearn.model_selection import StratifiedKFold

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
        classifier = _fit(features[training], truth[training], seed)
        accuracies.append(float((classifier.predict(features[test]) == truth[test]).mean()))
    majority = float(np.bincount(truth, minlength=len(classes)).max() / len(truth))
    seconds = (encoded - started, time.perf_counter() - encoded)
    return Transfer(encoder.name, encoder.pooling, tuple(accuracies), majority, seconds)


def _features(encoder: Encoder, data: Labelled, tell: Tell, should_stop: ShouldStop) -> np.ndarray:
    """(N, D) of sentences, (N, 2D) of pairs, scaled so that the dimensions have a spread of 1 on average."""
    tell(0.0, "Encoding")
    texts = [text for column in data.columns for text in column]
    vectors = encoder.encode(
        texts,
        normalize=None,
        on_progress=lambda done, total: tell(done / (total or 1)),
        should_stop=should_stop,
    )
    if len(data.columns) == 2:
        u, v = np.split(vectors, 2)
        vectors = np.hstack([np.abs(u - v), u * v])
    return vectors / max(float(vectors.std(axis=0).mean()), 1e-12)


def _fit(features: np.ndarray, truth: np.ndarray, seed: int) -> Any:
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


def _label(cell: Any) -> str:
    """Empty for none. A class may be the number -1 or the word none only in a file without such gaps: it is a gap."""
    text = _text(cell)
    return "" if text.lower() in MISSING else text
