"""Smart batching: sentences of similar length in batches of limited numbers of tokens.

The paper (section 7) groups sentences of similar length and pads each batch only to its own longest sentence, which
gained 89% on a CPU and 48% on a GPU. Here batches are also limited by tokens, not by sentences: a matrix product is
as fast for 8 sentences of 128 tokens as for 64 of 16, and the activations of about a thousand tokens fit into a CPU's
cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Batch(NamedTuple):
    """Token ids padded to the longest row. A mask of None means no padding."""

    ids: Tensor  # (B, T) int64
    mask: Tensor | None  # (B, T) bool, False = padding


def plan(lengths: Sequence[int], token_budget: int) -> Iterator[np.ndarray]:
    """Yield batches of indices into ``lengths``, longest first, each of at most ``token_budget`` tokens with padding.

    A row longer than the budget gets a batch of its own. With the longest first, memory peaks at the start, and the
    remaining time is not underestimated from the first batches.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        count = max(1, token_budget // longest)
        yield order[start : start + count]
        start += count


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    """Rows of token ids -> one batch, padded on the right, with a mask only if something is padded."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    if min(lengths) == longest:
        return Batch(torch.from_numpy(np.array(rows, dtype=np.int64)), None)
    ids = np.full((len(rows), longest), pad_id, dtype=np.int64)
    mask = np.arange(longest) < np.array(lengths)[:, None]
    ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return Batch(torch.from_numpy(ids), torch.from_numpy(mask))
