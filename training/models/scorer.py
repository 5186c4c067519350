"""What can be scored against gold: a bi-encoder, a baseline without a transformer, a cross-encoder; by one name each.

    scorer = load_scorer("all-MiniLM-L6-v2", "max")      or "tfidf", "glove", "minilm-stsb", "run:<id>", a Hub id
    row_scores(scorer, [first, second])                  [{"cosine": (N,), "dot": …, "euclidean": …, "manhattan": …}]

A bi-encoder turns sentences into vectors, and four similarities compare these. A cross-encoder has no vectors: it has
one ``score`` for a pair. A name is a cross-encoder's if it is one of the two that ship, begins with cross-encoder/ as
those on the Hub do, or is a folder that holds one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from training.models.baselines import TfIdf, is_baseline, load_baseline
from training.registry import CROSS_ENCODERS

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from training.models.baselines import WordVectors
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

    BiEncoder = Encoder | TfIdf | WordVectors
    Scorer = BiEncoder | CrossEncoder
    Vectors = np.ndarray | csr_matrix

CROSS, STATIC, ENCODER = "cross-encoder", "baseline", "encoder"
SCORE = "score"  # what a cross-encoder's only similarity is called
ROWS = 512  # of sparse vectors that are compared at a time, with their zeros

Progress = Callable[[int, int | None], None]
ShouldStop = Callable[[], bool]


@dataclass
class ScoreReport:
    """What the model itself took; pass an empty one to have it filled."""

    sentences: int = 0  # different ones; for a cross-encoder two for each different pair
    seconds: float = 0.0  # without comparing vectors


def kind_of(name: str) -> str:
    """encoder, baseline or cross-encoder."""
    if name in CROSS_ENCODERS or name.startswith("cross-encoder/") or _holds_cross_encoder(Path(name).expanduser()):
        return CROSS
    return STATIC if is_baseline(name) else ENCODER


def _holds_cross_encoder(folder: Path) -> bool:
    """Whether this is a folder of either kind that `CrossEncoder.load` opens."""
    from training.errors import InputError
    from training.models.model_format import read_json

    if (folder / "head.safetensors").is_file():
        return True
    try:
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    except InputError:
        return False
    return any(str(each).endswith("ForSequenceClassification") for each in config.get("architectures") or ())


def load_scorer(
    name: str,
    pooling: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    home: str | Path | None = None,
) -> Scorer:
    """Load by name, whatever kind it is.

    Raises:
        InputError: it cannot be had, or it has no such pooling.
    """
    kind = kind_of(name)
    if kind == STATIC:
        return load_baseline(name, pooling, home)
    if kind == CROSS:
        from training.models.cross_encoder import CrossEncoder

        check_no_pooling(name, pooling)
        return CrossEncoder.load(name, dtype, device, home)
    from training.models.encoder import Encoder

    return Encoder.load(name, pooling, dtype, device, home)


def check_no_pooling(name: str, pooling: str | None) -> None:
    """InputError if a pooling is asked of a cross-encoder."""
    from training.errors import InputError

    if pooling:
        raise InputError(f"{name} is a cross-encoder, which pools nothing; leave the pooling out")


def sentence_vectors(
    encoder: BiEncoder,
    sentences: Sequence[str],
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Vectors:
    """The model's own output (of length 1 only if its folder says so); sparse for TF-IDF."""
    if isinstance(encoder, TfIdf):
        return encoder.encode_sparse(sentences, on_progress, should_stop)
    return encoder.encode(sentences, normalize=None, on_progress=on_progress, should_stop=should_stop)


def similarities(u: Vectors, v: Vectors) -> dict[str, np.ndarray]:
    """Row by row under cosine, dot, negative Euclidean and negative Manhattan. (N, D), (N, D) -> (N,) each."""
    from training.evaluation.metrics import SIMILARITIES

    blocks = list(_dense_blocks(u, v))
    return {
        name: np.concatenate([similarity(a, b) for a, b in blocks]) if len(blocks) != 1 else similarity(*blocks[0])
        for name, similarity in SIMILARITIES.items()
    }


def row_scores(
    scorer: Scorer,
    columns: Sequence[Sequence[str]],
    pairs: Sequence[tuple[int, int]] = ((0, 1),),
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    report: ScoreReport | None = None,
) -> list[dict[str, np.ndarray]]:
    """How similar two sentences of each row are: for each pair of columns, (N,) by each similarity of the scorer.

    ``columns``: K lists of N sentences; ``pairs``: which two to compare, (0, 1) and (0, 2) for triplets.
    """
    report, started = report or ScoreReport(), time.perf_counter()
    if not hasattr(scorer, "encode"):
        texts = [pair for a, b in pairs for pair in zip(columns[a], columns[b], strict=True)]
        scores = scorer.predict(texts, on_progress, should_stop)
        report.sentences, report.seconds = 2 * len(set(texts)), time.perf_counter() - started
        return [{SCORE: part} for part in np.split(scores, len(pairs))]
    n = len(columns[0])
    sentences = [text for column in columns for text in column]
    vectors = sentence_vectors(cast("BiEncoder", scorer), sentences, on_progress, should_stop)
    report.sentences, report.seconds = len(set(sentences)), time.perf_counter() - started
    parts = [vectors[n * k : n * (k + 1)] for k in range(len(columns))]
    return [similarities(parts[a], parts[b]) for a, b in pairs]


def _dense_blocks(u: Vectors, v: Vectors) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if isinstance(u, np.ndarray) or isinstance(v, np.ndarray):
        yield np.asarray(u), np.asarray(v)
        return
    for start in range(0, u.shape[0], ROWS):
        yield u[start : start + ROWS].toarray(), v[start : start + ROWS].toarray()
