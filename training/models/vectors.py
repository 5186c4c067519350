"""Rows of a matrix of sentence vectors."""

from __future__ import annotations

import numpy as np


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Each row scaled to length 1; a row of zeros stays. Floats (N, D) -> the same dtype (N, D)."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms == 0, 1, norms)
