"""Smart batching: batches of similar length that fill a budget of tokens, results in the caller's order.

The paper (section 7) pads each batch only to its own longest sentence and groups sentences of similar length;
that gave it +89% on a CPU and +48% on a GPU. Here batches are also cut by their number of tokens, not of
sentences: a matrix product is as fast for 8 sentences of 128 tokens as for 64 of 16, and the activations of
about a thousand tokens stay in a CPU's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Batch(NamedTuple):
    """Token ids padded to the longest row. A mask of None means that nothing is padded."""

    ids: Tensor  # (B, T) int64
    mask: Tensor | None  # (B, T) bool, True = a real token


def plan(lengths: Sequence[int], token_budget: int) -> Iterator[np.ndarray]:
    """Groups of indices into ``lengths``, longest first, each at most ``token_budget`` tokens once padded.

    A row longer than the budget gets a batch of its own. Longest first: memory peaks at once, not at the end,
    and the time left that is estimated from the first batches is not too rosy.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        count = max(1, token_budget // longest)
        yield order[start : start + count]
        start += count


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    """Rows of token ids -> one rectangle, padded on the right, with a mask only where one is needed."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    if min(lengths) == longest:
        return Batch(torch.from_numpy(np.array(rows, dtype=np.int64)), None)
    ids = np.full((len(rows), longest), pad_id, dtype=np.int64)
    mask = np.arange(longest) < np.array(lengths)[:, None]
    ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return Batch(torch.from_numpy(ids), torch.from_numpy(mask))
