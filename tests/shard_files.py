"""Files of pairs, and folders of parts, for the tests of sharded jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def pairs(count: int, seed: int) -> dict[str, list[Any]]:
    """Columns of pairs with gold scores."""
    random = np.random.default_rng(seed)
    words = np.array(["the", "man", "cat", "dog", "guitar", "food", "is", "a"])

    def sentence() -> str:
        return " ".join(random.choice(words, 5))

    return {
        "sentence1": [sentence() for _ in range(count)],
        "sentence2": [sentence() for _ in range(count)],
        "score": [float(score) for score in random.integers(0, 6, count)],
    }


def parts(folder: str | Path) -> dict[str, pa.Table]:
    """The finished parts of a job by name."""
    return {file.name: pq.read_table(file) for file in sorted(Path(folder).glob("part-*.parquet"))}


def together(folder: str | Path) -> pa.Table:
    """All rows, without the gold scores: those of a CSV file are text, those of the others numbers."""
    return pa.concat_tables(part.drop_columns("score") for part in parts(folder).values())
