"""Packing: several sentences side by side in one row, so that almost nothing is padded and all rows are alike.

Smart batching (batching.py) pads sentences of similar length to the longest of them. Packing goes further: a row
of 32 tokens holds, say, sentences of 19 and 13 tokens, and a mask keeps each sentence's attention to itself. Less
than 1% of the tokens is padding then, and nearly all batches have one of two shapes, which kernels like: a row's
attention is a product of 32 x 32, not of 13 x 13, and nothing is set up anew for each shape.

``plan_rows`` decides which sentences share a row, ``collate`` makes the tensors of a batch of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

TOKEN_MULTIPLE = 32  # widths are multiples of this: PyTorch's bfloat16 softmax is three times slower between them
GAP = 2  # tokens that may stay empty at the end of a row; for more, the row is made a step wider and filled on

Row = list[int]  # the sentences that share a row, by number


class PackedBatch(NamedTuple):
    """A batch of R rows of W tokens that hold n sentences, the longest of T tokens."""

    ids: Tensor  # (R, W) int64
    positions: Tensor  # (R, W) int64, the place of each token in its own sentence
    owners: Tensor  # (R, W) int64, the sentence of each token, counted from 1; 0 = padding
    places: Tensor  # (n, T) int64, where each sentence's tokens lie in the flattened rows
    mask: Tensor | None  # (n, T) bool, which of these places are real; None = all

    def to(self, device: torch.device) -> PackedBatch:
        """The same on another device."""
        ids, positions, owners, places = (part.to(device, non_blocking=True) for part in self[:4])
        mask = None if self.mask is None else self.mask.to(device, non_blocking=True)
        return PackedBatch(ids, positions, owners, places, mask)

    def unpack(self, hidden: Tensor) -> Tensor:
        """Hidden states of the rows (R, W, D) -> of the sentences (n, T, D)."""
        return hidden.flatten(0, 1)[self.places]

    def attention_bias(self, dtype: torch.dtype) -> Tensor | None:
        """(R, 1, W, W): 0 within a sentence, the lowest number between two. None: each row is one sentence."""
        if self.places.shape == self.owners.shape and self.mask is None:
            return None
        apart = self.owners[:, None, :, None] != self.owners[:, None, None, :]
        return torch.zeros(apart.shape, dtype=dtype, device=apart.device).masked_fill_(apart, torch.finfo(dtype).min)


def plan_rows(lengths: Sequence[int], token_budget: int) -> Iterator[list[Row]]:
    """Batches of rows of one width, of at most ``token_budget`` tokens or one row.

    Best fit: the longest sentence left opens a row, whose tokens are rounded up to a multiple of ``TOKEN_MULTIPLE``;
    then the longest that still fits is added until none does. If a gap is left, once more in a row a step wider.
    A microsecond a sentence; less than 1% of the tokens are padding.
    """
    shelves = bins_by_length(lengths)
    groups: dict[int, list[Row]] = {}
    for longest in range(len(shelves) - 1, 0, -1):
        while shelves[longest]:
            width = round_up(longest, TOKEN_MULTIPLE)
            row, room = pack_bin(shelves, width)
            if room > GAP:
                more, _ = pack_bin(shelves, room + TOKEN_MULTIPLE)
                row, width = row + more, width + TOKEN_MULTIPLE * bool(more)
            groups.setdefault(width, []).append(row)
    for width, rows in groups.items():
        count = max(1, token_budget // width)
        yield from (rows[start : start + count] for start in range(0, len(rows), count))


def pack(lengths: Sequence[int]) -> list[Row]:
    """All sentences in rows of one width, the longest's rounded up: best fit, the longest first."""
    shelves, width, rows = bins_by_length(lengths), round_up(max(lengths), TOKEN_MULTIPLE), list[Row]()
    while sum(map(len, rows)) < len(lengths):
        rows.append(pack_bin(shelves, width)[0])
    return rows


def collate(sentences: Sequence[Sequence[int]], rows: Sequence[Row]) -> PackedBatch:
    """Token ids -> the tensors of a batch. Its n sentences are those in ``rows``, one after the other."""
    chosen = [sentences[i] for row in rows for i in row]
    lengths = np.array([len(ids) for ids in chosen])
    ends = [np.cumsum([len(sentences[i]) for i in row]) for row in rows]
    width = round_up(max(int(end[-1]) for end in ends), TOKEN_MULTIPLE)
    firsts = np.concatenate([number * width + end for number, end in enumerate(ends)]) - lengths
    steps = np.arange(lengths.max())
    mask = steps < lengths[:, None]  # (n, T)
    sentence, step = np.nonzero(mask)
    cells = firsts[sentence] + step
    ids, positions, owners = np.zeros((3, len(rows) * width), dtype=np.int64)
    ids[cells], positions[cells], owners[cells] = np.concatenate(chosen), step, sentence + 1
    return PackedBatch(
        torch.from_numpy(ids).view(-1, width),
        torch.from_numpy(positions).view(-1, width),
        torch.from_numpy(owners).view(-1, width),
        torch.from_numpy(firsts[:, None] + steps * mask),
        None if mask.all() else torch.from_numpy(mask),
    )


def bins_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Sentences on shelves: those of n tokens on shelf n, the first on top."""
    shelves: list[list[int]] = [[] for _ in range(max(lengths, default=0) + 1)]
    for sentence in reversed(range(len(lengths))):
        shelves[lengths[sentence]].append(sentence)
    return shelves


def pack_bin(shelves: list[list[int]], room: int) -> tuple[Row, int]:
    """Take the longest sentence that fits off the shelves, and again, until none does. The room left, too."""
    row: Row = []
    length = min(room, len(shelves) - 1)
    while length > 0:
        if shelves[length]:
            row.append(shelves[length].pop())
            room -= length
            length = min(length, room)
        else:
            length -= 1
    return row, room


def round_up(number: int, step: int) -> int:
    """The next multiple of ``step``, or ``number`` itself."""
    return -(-number // step) * step
