"""A stream of tokens: rows for attention, and for everything else the same tokens without the gaps between them.

The few dozen sentences of a training batch do not fill packed rows (packing.py) well, and in a layer nearly all the
work is done token by token. So the tokens go through a layer as a stream and lie in rows for its attention only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.packing import lay_out, pack, round_up

STEP = 16  # the number of tokens is a multiple of this: for each new shape oneDNN compiles its products anew


class Stream(NamedTuple):
    """M tokens of n sentences, the longest of T tokens, which have their places in R rows of W tokens."""

    ids: Tensor  # (M,) int64
    positions: Tensor  # (M,) int64, the place of each token in its own sentence
    cells: Tensor  # (M,) int64, where each token lies in the flattened rows
    tokens: Tensor  # (R*W,) int64, which token lies in each place of the rows; M = none
    rows: int  # R
    row_positions: Tensor  # (R, W) int64, as ``positions``
    bias: Tensor | None  # (R, 1, W, W): 0 within a sentence, the lowest number between two
    places: Tensor  # (n, T) int64, which tokens are each sentence's
    mask: Tensor | None  # (n, T) bool, which of these are real; None = all

    def spread(self, x: Tensor) -> Tensor:
        """The tokens' vectors (M, D) -> those of all places in the rows (R*W, D). In the gaps is anything."""
        return _Spread.apply(x, self)

    def gather(self, x: Tensor) -> Tensor:
        """What lies in the rows (R*W, D) -> the tokens' vectors (M, D)."""
        return _Gather.apply(x, self)


def stream(sentences: Sequence[Sequence[int]], dtype: torch.dtype) -> Stream:
    """Token ids of n sentences, none of them empty; ``dtype`` is the bias's."""
    rows = pack([len(ids) for ids in sentences])
    packed = lay_out(sentences, rows)
    owned = packed.owners.flatten().numpy() > 0
    count = min(round_up(int(owned.sum()), STEP), owned.size)
    owned[np.nonzero(~owned)[0][: count - owned.sum()]] = True  # gaps that come along, to make the number round
    cells = torch.from_numpy(np.nonzero(owned)[0])
    tokens = torch.full((owned.size,), count)
    tokens[cells] = torch.arange(count)
    order = np.argsort([sentence for row in rows for sentence in row])
    return Stream(
        packed.ids.flatten()[cells],
        packed.positions.flatten()[cells],
        cells,
        tokens,
        len(packed.ids),
        packed.positions,
        packed.attention_bias(dtype),
        tokens[packed.places[order]],
        None if packed.mask is None else packed.mask[order],
    )


class _Spread(torch.autograd.Function):
    """Both ways by index_select, ten times as fast as the sums that autograd would make of an indexing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, way: Stream) -> Tensor:
        ctx.cells = way.cells
        return x.index_select(0, way.tokens.clamp(max=len(x) - 1))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        return upstream[0].index_select(0, ctx.cells), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, way: Stream) -> Tensor:
        ctx.tokens = way.tokens
        return x.index_select(0, way.cells)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        nothing = upstream[0].new_zeros(1, upstream[0].shape[1])  # what comes back to a gap
        return torch.cat([upstream[0], nothing]).index_select(0, ctx.tokens), None
