"""Evaluation results on disk: the scores of a model on a data set, in HOME/cache/evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sbert_app.services.cache import DiskCache
from sbert_app.services.results.eval_result import EvalResult

MAX_BYTES = 100 << 20  # about 2,000 results


class EvalResultCache:
    """Results by the fingerprints of model and data (`fingerprint`). Safe for several threads and processes."""

    def __init__(self, home: Path) -> None:
        self.disk = DiskCache(home / "cache" / "evaluation", MAX_BYTES)

    def get(self, model: str, data: str) -> EvalResult | None:
        """The stored result, or None."""
        arrays = self.disk.get_arrays(f"{model}-{data}")
        if arrays is None or not {"gold", "cost"} < set(arrays):
            return None
        gold, cost = arrays.pop("gold"), arrays.pop("cost")
        return EvalResult(arrays, gold, int(cost[0]), float(cost[1]), from_cache=True)

    def put(self, model: str, data: str, result: EvalResult) -> None:
        """Store a result."""
        cost = np.array([result.num_sentences, result.seconds])
        self.disk.put_arrays(f"{model}-{data}", {**result.scores, "gold": result.gold, "cost": cost})
