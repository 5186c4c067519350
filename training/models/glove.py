"""GloVe 6B, 50 dimensions (Pennington et al. 2014), and the arrays that word vectors are kept in."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from training.errors import InputError
from training.sources.resolve import glove_folder

# Splits contractions as the Penn Treebank and GloVe's vocabulary do: don't -> do n't, man's -> man 's.
TREEBANK = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\w+")


def read_glove(home: str | Path | None = None) -> tuple[list[str], np.ndarray]:
    """Its words, lower-cased, the most frequent first, and their vectors, float32 (400,000, 50), memory-mapped.

    NotFoundError if it is not available.
    """
    import pyarrow.parquet as pq  # takes half a second

    folder = glove_folder(home).path
    index = pq.read_table(folder / "glove_6B_index.parquet")
    return index["index"].to_pylist(), read_array(folder / "glove_6B_50d_emb.npy")


def read_array(path: Path) -> np.ndarray:
    """Numbers (V, D), memory-mapped: only the rows of words that occur are read. Never a pickle."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an array of numbers: {str(error).splitlines()[0]}") from error
    if array.ndim != 2 or array.dtype.kind != "f" or not array.size:
        raise InputError(f"{path.name} must hold decimal numbers in rows, one a word; it has the shape {array.shape}")
    return array
