"""How many bytes a loaded model holds: its weights, and the copy of them that inference computes with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

OWN_PACKAGES = ("training", "sbert_app")  # whose objects are looked into; the rest of a model is small


def model_bytes(model: Any) -> int:
    """Bytes of all arrays and tensors that the model refers to; those that are shared within it count once."""
    return sum(dict(_storages(model, set())).values())


def _storages(value: Any, seen: set[int]) -> Iterator[tuple[int, int]]:
    """(address, bytes) of each array below ``value``."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.is_mkldnn:  # packed for oneDNN, without a storage of its own
            yield id(value), value.numel() * value.element_size()
        else:
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.nbytes()
    elif isinstance(value, torch.nn.Module):
        for tensor in (*value.parameters(), *value.buffers()):
            yield from _storages(tensor, seen)
    elif isinstance(value, np.ndarray):
        yield id(value), value.nbytes
    elif hasattr(value, "indptr"):  # a sparse matrix, without the import of scipy, which the default models do not need
        yield id(value), value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    else:
        for part in _parts(value):
            yield from _storages(part, seen)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if type(value).__module__.partition(".")[0] in OWN_PACKAGES:
        slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        return [*getattr(value, "__dict__", {}).values(), *slots]
    return []
