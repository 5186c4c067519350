"""Cross-encoding: pairs a second, from strings to scores, beside sentence-transformers' CrossEncoder.

All sides score the same pairs (of the STS benchmark's test part). Ours is the built-in
cross-encoder, an adapter merged into MiniLM-L6. The peer has no way to open it, so it is given a
classification model of exactly that shape (MiniLM-L6, one output) with an untrained head: the same
products for each token. ``agreement`` is measured on that model, which both can open: the largest
difference of our scores, in each precision, from the peer's scores in float32.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.models.cross_encoder import CrossEncoder
from training.sources.resolve import model_folder

Pairs = list[tuple[str, str]]
Predict = Callable[[Pairs], np.ndarray]


def run(
    rounds: int = 5,
    against: str | None = "sentence-transformers",
    model: str = DEFAULT_CROSS_ENCODER,
    data: str = "stsb:test",
) -> dict[str, Any]:
    """Plain JSON; ``rows`` is the table, our default first; ``times_ours`` is each one's time over that.

    Args:
        rounds: times each side scores all pairs; the median counts.
        against: sentence-transformers, or None = alone.
        model: one of our cross-encoders over MiniLM.
        data: scored pairs.

    Raises:
        InputError: the peer is unknown or not installed, or the data have no scores.
    """
    if against not in (None, "sentence-transformers"):
        raise InputError(
            f"there is no comparison against {against!r}; choose sentence-transformers"
        )
    loaded = load_data(data)
    if loaded.scores is None:
        raise InputError(f"{data} has no gold scores; choose scored pairs such as stsb:test")
    pairs: Pairs = list(zip(*loaded.columns, strict=True))
    about = machine.describe()
    sides = ours(model)
    gold = np.asarray(loaded.scores)
    rho = {
        label: round(100 * spearman(predict(pairs), gold), 2) for label, predict in sides.items()
    }
    result: dict[str, Any] = {
        "benchmark": "cross",
        "model": model,
        "data": data,
        "pairs": len(pairs),
        "rounds": rounds,
    }
    with tempfile.TemporaryDirectory() as folder:
        if against is not None:
            theirs = peer(Path(folder))
            result["agreement"] = agreement(
                Path(folder), theirs["sentence-transformers, float32"], pairs
            )
            sides |= theirs
        # The first call of each side warms up.
        for predict in sides.values():
            predict(pairs[:64])
        times = machine.alternate(
            {label: partial(predict, pairs) for label, predict in sides.items()}, rounds
        )
    rows: list[dict[str, Any]] = []
    for label, timings in times.items():
        figures = machine.summary(timings)
        rate = round(len(pairs) / figures["seconds"])
        # The peer's head is untrained, so its scores have no Spearman correlation to report.
        rows.append(
            {"side": label, **figures, "pairs_per_second": rate, "spearman": rho.get(label)}
        )
    machine.compare(rows)
    return {**result, "rows": rows, "machine": about}


def ours(model: str) -> dict[str, Predict]:
    """Our scores in the machine's own precision and in float32."""
    sides: dict[str, Predict] = {}
    for dtype in ("auto", "float32"):
        cross_encoder = CrossEncoder.load(model, dtype=dtype)
        precision = str(cross_encoder.dtype).removeprefix("torch.")
        sides[f"SBERT Lab, {precision}"] = cross_encoder.predict
    return sides


def peer(folder: Path) -> dict[str, Predict]:
    """A classification model of MiniLM-L6's shape, saved in ``folder``, in both precisions."""
    try:
        from sentence_transformers import CrossEncoder as Theirs
    except ImportError as error:
        raise InputError(
            "sentence-transformers is not installed: pip install sentence-transformers"
        ) from error
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    source = model_folder(DEFAULT_MODEL).path
    AutoModelForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)

    def predict(model: Theirs, pairs: Pairs) -> np.ndarray:
        return model.predict(pairs, show_progress_bar=False)

    sides: dict[str, Predict] = {}
    for dtype in ("float32", "bfloat16"):
        model = Theirs(str(folder), model_kwargs={"dtype": dtype})
        sides[f"sentence-transformers, {dtype}"] = partial(predict, model)
    return sides


def agreement(folder: Path, theirs: Predict, pairs: Pairs) -> dict[str, float]:
    """The largest difference of our scores from theirs, by our precision."""
    expected = theirs(pairs)
    differences = {}
    for dtype in ("float32", "bfloat16"):
        scores = CrossEncoder.load(str(folder), dtype=dtype).predict(pairs)
        difference = np.abs(scores - expected).max()
        differences[dtype] = float(f"{difference:.1e}")
    return differences
