"""The similarities of vectors, in one table.

A new similarity is its functions and an entry of `SIMILARITIES`: Evaluate and its tables, `training.similarity`,
searches and the objectives that compare vectors take it from there. Larger always means more similar, so distances are
negated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from scipy import sparse
    from torch import Tensor

DENSE_ROWS = 512


class Similarity(NamedTuple):
    """A similarity, its words, and its functions of arrays and, with a gradient, of tensors.

    ``rows`` and ``tensor_rows`` compare rows in pairs, (N, D), (N, D) -> (N,); ``matrix`` compares each with each,
    (N, D), (M, D) -> (N, M). ``of_equals`` is that of a vector and itself; None if it depends on the vector, so
    that there is no distance.
    """

    label: str
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray]
    tensor_rows: Callable[[Tensor, Tensor], Tensor]
    matrix: Callable[[Tensor, Tensor], Tensor]
    of_equals: float | None = None

    def distance(self, u: Tensor, v: Tensor) -> Tensor:
        """The distances of the rows, (B, D), (B, D) -> (B,), of one of `DISTANCES`."""
        assert self.of_equals is not None  # noqa: S101 - it is one of `DISTANCES`
        return self.of_equals - self.tensor_rows(u, v)


def cosine(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise cosine to 6 digits, 0 where a vector is zero. (N, D), (N, D) -> (N,) float32.

    Further digits are those of rounding errors, by which pairs of equal texts would differ in rank.
    """
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return (np.einsum("nd,nd->n", u, v) / np.where(norms == 0, 1, norms)).round(6)


def dot(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise dot product. (N, D), (N, D) -> (N,)."""
    return np.einsum("nd,nd->n", u, v)


def _cosine_rows(u: Tensor, v: Tensor) -> Tensor:
    # Torch is imported here and below: the table must be quick to read.
    from torch.nn.functional import cosine_similarity

    return cosine_similarity(u, v)


def _cosine_matrix(u: Tensor, v: Tensor) -> Tensor:
    from torch.nn.functional import normalize

    return normalize(u, dim=1) @ normalize(v, dim=1).T


def _negative_distance(name: str, norm: int) -> Similarity:
    def rows(u: Tensor, v: Tensor) -> Tensor:
        from torch.nn.functional import pairwise_distance

        return -pairwise_distance(u, v, norm)

    def matrix(u: Tensor, v: Tensor) -> Tensor:
        from torch import cdist

        return -cdist(u, v, norm)

    return Similarity(f"negative {name}", lambda u, v: -np.linalg.norm(u - v, norm, axis=1), rows, matrix, of_equals=0)


SIMILARITIES = {
    "cosine": Similarity("cosine", cosine, _cosine_rows, _cosine_matrix, of_equals=1),
    "dot": Similarity("dot product", dot, lambda u, v: (u * v).sum(dim=1), lambda u, v: u @ v.T),
    "euclidean": _negative_distance("Euclidean", 2),
    "manhattan": _negative_distance("Manhattan", 1),
}
DISTANCES = tuple(name for name, similarity in SIMILARITIES.items() if similarity.of_equals is not None)


def row_similarities(u: np.ndarray | sparse.csr_matrix, v: np.ndarray | sparse.csr_matrix) -> dict[str, np.ndarray]:
    """Each of `SIMILARITIES` row by row: (N, D), (N, D), dense or both sparse -> (N,) each."""
    if isinstance(u, np.ndarray) or isinstance(v, np.ndarray):
        u = np.asarray(u)
        v = np.asarray(v)
        return {name: similarity.rows(u, v) for name, similarity in SIMILARITIES.items()}
    parts = [slice(start, start + DENSE_ROWS) for start in range(0, u.shape[0], DENSE_ROWS)]
    blocks = [(u[part].toarray(), v[part].toarray()) for part in parts]
    return {name: np.concatenate([kind.rows(*block) for block in blocks]) for name, kind in SIMILARITIES.items()}
