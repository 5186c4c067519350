"""A stream of tokens: rows for attention, and for everything else the same tokens without the gaps between them.

The few dozen sentences of a training batch do not fill packed rows (packing.py) well, and in a layer nearly all the
work is done token by token. So the tokens go through a layer as a stream and lie in rows for its attention only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.inference.packing import collate, pack, round_up

TOKEN_MULTIPLE = 16  # the number of tokens is a multiple of this: for each new shape oneDNN compiles its products anew


class UnpaddedBatch(NamedTuple):
    """M tokens of n sentences, the longest of T tokens, which have their places in R rows of W tokens."""

    ids: Tensor  # (M,) int64
    positions: Tensor  # (M,) int64, the place of each token in its own sentence
    cells: Tensor  # (M,) int64, where each token lies in the flattened rows
    tokens: Tensor  # (R*W,) int64, which token lies in each place of the rows; M = none
    filled: Tensor  # (R*W,) int64, the same with the last token in the gaps
    rows: int  # R
    row_positions: Tensor  # (R, W) int64, as ``positions``
    bias: Tensor | None  # (R, 1, W, W): 0 within a sentence, the lowest number between two
    places: Tensor  # (n, T) int64, which tokens are each sentence's
    mask: Tensor | None  # (n, T) bool, which of these are real; None = all

    def spread(self, x: Tensor) -> Tensor:
        """The tokens' vectors (M, D) -> those of all places in the rows (R*W, D). In the gaps is anything."""
        return x.index_select(0, self.filled)

    def spread_gradient(self, x: Tensor) -> Tensor:
        """The same with zeros in the gaps, for what comes back to what ``gather`` has been given."""
        nothing = x.new_zeros(1, x.shape[1])
        return torch.cat([x, nothing]).index_select(0, self.tokens)

    def gather(self, x: Tensor) -> Tensor:
        """What lies in the rows (R*W, D) -> the tokens' vectors (M, D)."""
        return x.index_select(0, self.cells)


def unpad_batch(sentences: Sequence[Sequence[int]], dtype: torch.dtype) -> UnpaddedBatch:
    """Token ids of n sentences, none of them empty; ``dtype`` is the bias's."""
    rows = pack([len(ids) for ids in sentences])
    packed = collate(sentences, rows)
    owned = packed.owners.flatten().numpy() > 0
    count = min(round_up(int(owned.sum()), TOKEN_MULTIPLE), owned.size)
    owned[np.nonzero(~owned)[0][: count - owned.sum()]] = True  # gaps that come along, to make the number round
    cells = torch.from_numpy(np.nonzero(owned)[0])
    tokens = torch.full((owned.size,), count)
    tokens[cells] = torch.arange(count)
    order = np.argsort([sentence for row in rows for sentence in row])
    return UnpaddedBatch(
        packed.ids.flatten()[cells],
        packed.positions.flatten()[cells],
        cells,
        tokens,
        tokens.clamp(max=count - 1),
        len(packed.ids),
        packed.positions,
        packed.attention_bias(dtype),
        tokens[packed.places[order]],
        None if packed.mask is None else packed.mask[order],
    )
