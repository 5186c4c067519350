"""Cells on disk: a model's scores of a data set, so that nobody waits for the same figures twice.

One .npz a cell in home/cache/evaluation, never unpickled, written whole or not at all. The oldest go where there are
many. A cache may fail (a full disk, a folder that may not be written to): then it remembers nothing, and says so
in the log.
"""

from __future__ import annotations

import logging
import os
import zipfile
from pathlib import Path

import numpy as np

from sbert_app.services.results.eval_result import EvalResult
from training.atomic import open_atomic, sweep

log = logging.getLogger("sbert_lab.cache")

MOST_CELLS = 2_000  # of some 50 kB each


class EvalResultCache:
    """Safe for several threads and processes: each file appears by one rename."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "cache" / "evaluation"

    def get(self, model: str, data: str) -> EvalResult | None:
        """The cell of a model's and a data set's identity (`identity`), or None."""
        file = self._file(model, data)
        try:
            with np.load(file, allow_pickle=False) as found:
                arrays = dict(found)
            gold, cost = arrays.pop("gold"), arrays.pop("cost")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            log.warning("%s is not usable: %s", file, error)
            return None
        return EvalResult(arrays, gold, int(cost[0]), float(cost[1]), from_cache=True)

    def put(self, model: str, data: str, cell: EvalResult) -> None:
        """Keep a cell."""
        file = self._file(model, data)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open_atomic(file, "wb") as fresh:
                arrays = {**cell.scores, "gold": cell.gold, "cost": np.array([cell.sentences, cell.seconds])}
                np.savez(fresh, allow_pickle=False, **arrays)
            sweep(self.folder)
            kept = sorted(self.folder.glob("*.npz"), key=os.path.getmtime)
            for old in kept[:-MOST_CELLS]:
                old.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be kept: %s", file, error)

    def _file(self, model: str, data: str) -> Path:
        return self.folder / f"{model}-{data}.npz"
