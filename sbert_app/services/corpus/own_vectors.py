"""Vectors that a user brings with the sentences: a .npy file beside them, or a column of their own Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from training.errors import InputError
from training.names import ModelName

OWN = ModelName("own vectors")  # in the place of a model


def read_vectors(path: Path, column: str | None = None) -> np.ndarray:
    """One vector for each row of a file, float32 (rows, D) of length 1, so that products are cosines.

    Without a column ``path`` is a .npy file. Raises InputError if there are no such vectors in it.
    """
    try:
        array = _of_column(path, column) if column else np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors
        raise InputError(f"the vectors in {path.name} cannot be read; save an array with np.save.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu" or not array.size:
        raise InputError(f"{path.name} must hold numbers of the shape (rows, dimensions): a vector for each row.")
    vectors = array.astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    wrong = np.flatnonzero(~np.isfinite(lengths[:, 0]) | (lengths[:, 0] == 0))
    if len(wrong):
        raise InputError(f"{path.name}: the vector of row {wrong[0] + 1:,} is zero, or not a number.")
    vectors /= lengths
    return vectors


def vector_columns(path: Path | str) -> list[str]:
    """The columns of a Parquet file that hold a list of numbers in each row; none for any other file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path) if Path(path).suffix.lower() == ".parquet" else []
    except (pa.ArrowException, OSError):  # said where the file is opened
        return []
    return [field.name for field in schema if _is_list(field.type) and pa.types.is_floating(field.type.value_type)]


def _is_list(kind: Any) -> bool:
    from pyarrow.types import is_fixed_size_list, is_large_list, is_list

    return bool(is_list(kind) or is_large_list(kind) or is_fixed_size_list(kind))


def _of_column(path: Path, column: str) -> np.ndarray:
    """(rows, D); of another shape where a row has no vector, or one of another length."""
    import pyarrow.parquet as pq

    rows = pq.read_table(path, columns=[column])[column].combine_chunks()
    values = np.asarray(rows.flatten().to_numpy(zero_copy_only=False))
    even = not rows.null_count and len(set(rows.value_lengths().to_pylist())) == 1
    return values.reshape(len(rows), -1) if even else values
