"""The similarities of vectors, in one table.

To add a similarity, write its functions and add an entry to `SIMILARITIES`. Evaluate and its
tables, `training.similarity`, searches and the objectives that compare vectors use the table.
Larger always means more similar, so distances are negated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from scipy import sparse
    from torch import Tensor

# The rows of sparse vectors that are made dense at a time.
DENSE_ROWS = 512


class Similarity(NamedTuple):
    """A similarity: its label, and its functions of arrays and, with a gradient, of tensors.

    ``rows`` and ``tensor_rows`` compare vectors row by row, (N, D), (N, D) -> (N,); ``matrix``
    compares each with each, (N, D), (M, D) -> (N, M). ``of_equals`` is the similarity of a vector
    with itself; None if it depends on the vector, so that it does not define a distance.
    """

    label: str
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray]
    tensor_rows: Callable[[Tensor, Tensor], Tensor]
    matrix: Callable[[Tensor, Tensor], Tensor]
    of_equals: float | None = None

    def distance(self, u: Tensor, v: Tensor) -> Tensor:
        """Computes distances row by row, (B, D), (B, D) -> (B,), for one of `DISTANCES`."""
        assert self.of_equals is not None  # noqa: S101 - it is one of `DISTANCES`
        return self.of_equals - self.tensor_rows(u, v)


def cosine(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Computes cosines row by row, to 6 digits, 0 for zero vectors. (N, D), (N, D) -> (N,) float32.

    Further digits are rounding errors, which would rank pairs of equal texts differently.
    """
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    cosines = dot(u, v) / np.where(norms == 0, 1, norms)
    return cosines.round(6)


def dot(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Computes dot products row by row. (N, D), (N, D) -> (N,)."""
    return np.einsum("nd,nd->n", u, v)


def _cosine_rows(u: Tensor, v: Tensor) -> Tensor:
    # Commands read the table without torch, which takes seconds to import.
    from torch.nn.functional import cosine_similarity

    return cosine_similarity(u, v)


def _cosine_matrix(u: Tensor, v: Tensor) -> Tensor:
    from torch.nn.functional import normalize

    return normalize(u, dim=1) @ normalize(v, dim=1).T


def _negative_distance(name: str, norm: int) -> Similarity:
    """Makes the similarity of a distance: the negative ``norm``-norm of the difference of two vectors."""

    def rows(u: Tensor, v: Tensor) -> Tensor:
        from torch.nn.functional import pairwise_distance

        return -pairwise_distance(u, v, norm)

    def matrix(u: Tensor, v: Tensor) -> Tensor:
        from torch import cdist

        return -cdist(u, v, norm)

    return Similarity(
        f"negative {name}",
        lambda u, v: -np.linalg.norm(u - v, norm, axis=1),
        rows,
        matrix,
        of_equals=0,
    )


SIMILARITIES = {
    "cosine": Similarity("cosine", cosine, _cosine_rows, _cosine_matrix, of_equals=1),
    "dot": Similarity("dot product", dot, lambda u, v: (u * v).sum(dim=1), lambda u, v: u @ v.T),
    "euclidean": _negative_distance("Euclidean", 2),
    "manhattan": _negative_distance("Manhattan", 1),
}
DISTANCES = tuple(
    name for name, similarity in SIMILARITIES.items() if similarity.of_equals is not None
)


def row_similarities(
    u: np.ndarray | sparse.csr_matrix, v: np.ndarray | sparse.csr_matrix
) -> dict[str, np.ndarray]:
    """Computes each of `SIMILARITIES` row by row: (N, D), (N, D), dense or both sparse -> (N,) each."""
    # If one of them is dense, both are.
    if isinstance(u, np.ndarray) or isinstance(v, np.ndarray):
        u = np.asarray(u)
        v = np.asarray(v)
        return {name: similarity.rows(u, v) for name, similarity in SIMILARITIES.items()}
    blocks: dict[str, list[np.ndarray]] = {name: [] for name in SIMILARITIES}
    for start in range(0, u.shape[0], DENSE_ROWS):
        part = slice(start, start + DENSE_ROWS)
        dense_u = u[part].toarray()
        dense_v = v[part].toarray()
        for name, similarity in SIMILARITIES.items():
            blocks[name].append(similarity.rows(dense_u, dense_v))
    return {name: np.concatenate(parts) for name, parts in blocks.items()}
