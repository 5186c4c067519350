"""Batches of token ids for the transformer: padded, packed, or unpadded in a single row.

Smart batching: the paper (section 7) groups sentences of similar length and pads each batch only to
its own longest sentence, which gained 89% on a CPU and 48% on a GPU. Here batches are limited by
tokens, not by sentences: a matrix product is as fast for 8 sentences of 128 tokens as for 64 of 16,
and the activations of about a thousand tokens fit into a CPU's cache. ``plan`` groups sentences,
``pad`` makes the tensors.

Packing: a row of 32 tokens holds, for example, sentences of 19 and 13 tokens, and a mask separates
them in attention. Less than 1% of the tokens is padding, and nearly all batches have one of two
widths, which suits the kernels: attention in a row is a product of 32 x 32, not of 13 x 13, and
oneDNN does not compile a kernel for each new shape. ``plan_rows`` decides which sentences share a
row, ``collate`` makes the tensors of a batch of rows.

Unpadded batches, for NVIDIA GPUs: the sentences follow each other in a single row, and
``boundaries`` returns where each begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.device import to_device

# Widths are multiples of this: PyTorch's bfloat16 softmax is three times slower between them.
TOKEN_MULTIPLE = 32
# Tokens that may stay empty at the end of a row. If there are more, the row is widened once and
# filled further.
GAP = 2

Row = list[int]  # the indices of the sentences that share a row


class Batch(NamedTuple):
    """Token ids padded to the longest row. A mask of None means no padding."""

    ids: Tensor  # (B, T) int64
    mask: Tensor | None  # (B, T) bool, False = padding

    def to(self, device: torch.device) -> Batch:
        """Copies the batch to a device."""
        mask = None if self.mask is None else to_device(self.mask, device)
        return Batch(to_device(self.ids, device), mask)


def plan(lengths: Sequence[int], token_budget: int) -> Iterator[np.ndarray]:
    """Yields batches of indices into ``lengths``, longest first, each of at most ``token_budget`` tokens with padding.

    A row longer than the budget gets its own batch. With the longest rows first, memory peaks at
    the start, and the first batches do not lead to an underestimate of the remaining time.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        count = max(1, token_budget // longest)
        yield order[start : start + count]
        start += count


def plan_alike(lengths: Sequence[int], token_budget: int, most: int | None = None) -> Iterator[Row]:
    """Yields batches of texts of one length. All batches of a length have the same number of texts, at most ``most``.

    The last text is repeated to fill a batch. So a text is always computed in the same shapes,
    whatever texts are beside it, and its vector has the same bits.
    """
    by_length: dict[int, Row] = {}
    for text, length in enumerate(lengths):
        by_length.setdefault(length, []).append(text)
    for length, same in sorted(by_length.items(), reverse=True):
        # The width of a packed row is a multiple of TOKEN_MULTIPLE, even if it holds one text.
        count = max(1, token_budget // round_up(length, TOKEN_MULTIPLE))
        if most:
            count = min(count, most)
        for start in range(0, len(same), count):
            batch = same[start : start + count]
            missing = count - len(batch)
            yield batch + batch[-1:] * missing


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    """Makes a batch of rows of token ids, padded on the right, with a mask only if something is padded."""
    lengths = list(map(len, rows))
    longest = max(lengths)
    if min(lengths) == longest:
        return Batch(torch.from_numpy(np.array(rows, dtype=np.int64)), None)
    # NumPy, because torch.nn.utils.rnn.pad_sequence takes ten times as long.
    ids = np.full((len(rows), longest), pad_id, dtype=np.int64)
    mask = np.arange(longest) < np.array(lengths)[:, None]
    ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    return Batch(torch.from_numpy(ids), torch.from_numpy(mask))


class PackedBatch(NamedTuple):
    """A batch of R rows of W tokens that hold n sentences, the longest of T tokens."""

    ids: Tensor  # (R, W) int64
    positions: Tensor  # (R, W) int64, the position of each token in its own sentence
    # (R, W) int64, the sentence that each token belongs to, counted from 1; 0 = padding
    sequence_ids: Tensor
    token_index: Tensor  # (n, T) int64, the index of each sentence's tokens in the flattened rows
    mask: Tensor | None  # (n, T) bool, False for padding of ``token_index``; None = no padding

    def to(self, device: torch.device) -> PackedBatch:
        """Copies the batch to another device."""
        return PackedBatch(
            to_device(self.ids, device),
            to_device(self.positions, device),
            to_device(self.sequence_ids, device),
            to_device(self.token_index, device),
            None if self.mask is None else to_device(self.mask, device),
        )

    def unpack(self, hidden: Tensor) -> Tensor:
        """Rearranges hidden states from rows (R, W, D) to sentences (n, T, D)."""
        return hidden.flatten(0, 1)[self.token_index]

    def attention_bias(self, dtype: torch.dtype) -> Tensor | None:
        """Makes a bias (R, 1, W, W): 0 within a sentence, the lowest number elsewhere; None if none is needed."""
        # If n = R, T = W and nothing is padded, each row is filled by one sentence.
        if self.token_index.shape == self.sequence_ids.shape and self.mask is None:
            return None
        apart = self.sequence_ids[:, None, :, None] != self.sequence_ids[:, None, None, :]
        bias = torch.zeros(apart.shape, dtype=dtype, device=apart.device)
        return bias.masked_fill_(apart, torch.finfo(dtype).min)


def plan_rows(lengths: Sequence[int], token_budget: int) -> Iterator[list[Row]]:
    """Yields batches of rows of equal width, each of at most ``token_budget`` tokens or a single row.

    Best fit decreasing: the longest remaining sentence opens a row, whose width is the next
    multiple of ``TOKEN_MULTIPLE``. Then the longest sentence that still fits is added until none
    does. If more than ``GAP`` tokens stay empty, the row is widened by one multiple and filled once
    more. This takes a microsecond per sentence.
    """
    # At position n are the sentences of n tokens, reversed, as `_fill` takes the last one first.
    by_length: list[Row] = [[] for _ in range(max(lengths, default=0) + 1)]
    for sentence in reversed(range(len(lengths))):
        by_length[lengths[sentence]].append(sentence)
    rows_by_width: dict[int, list[Row]] = {}
    # No sentence is empty, so the lengths end at 1.
    for longest in range(len(by_length) - 1, 0, -1):
        while by_length[longest]:
            width = round_up(longest, TOKEN_MULTIPLE)
            row, room = _fill(by_length, width)
            if room > GAP:
                more, _ = _fill(by_length, room + TOKEN_MULTIPLE)
                if more:
                    row += more
                    width += TOKEN_MULTIPLE
            rows_by_width.setdefault(width, []).append(row)
    for width, rows in rows_by_width.items():
        count = max(1, token_budget // width)
        for start in range(0, len(rows), count):
            yield rows[start : start + count]


def split_rows(rows: Sequence[Row], most: int) -> Iterator[list[Row]]:
    """Splits a batch of rows into batches of at most ``most`` sentences."""
    batch: list[Row] = []
    for row in rows:
        for start in range(0, len(row), most):
            part = row[start : start + most]
            if batch and sum(map(len, batch)) + len(part) > most:
                yield batch
                batch = []
            batch.append(part)
    yield batch


def collate(sentences: Sequence[Any], rows: Sequence[Row]) -> PackedBatch:
    """Makes the tensors of a batch of rows. ``sentences`` are token ids, or pairs that iterate over their token ids.

    The n texts of the batch are the sentences in ``rows``, in that order.
    """
    texts = [sentences[i] for i in chain.from_iterable(rows)]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))  # (n,)
    row_sizes = list(map(len, rows))
    # For each row, where each of its texts ends.
    ends_by_row = [part.cumsum() for part in np.split(lengths, np.cumsum(row_sizes)[:-1])]
    width = round_up(max(int(row_ends[-1]) for row_ends in ends_by_row), TOKEN_MULTIPLE)
    # Where each text ends and where it starts in the flattened rows, (n,).
    ends = np.concatenate([row * width + row_ends for row, row_ends in enumerate(ends_by_row)])
    starts = ends - lengths

    steps = np.arange(lengths.max())
    mask = steps < lengths[:, None]  # (n, T)
    # For each token: its text, its position in the text, and its position in the flattened rows.
    text, position = np.nonzero(mask)
    index = starts[text] + position
    # The padding of a row keeps 0 in all three. Its token id does not matter, as no sentence attends
    # to padding: sentences have sequence ids from 1.
    ids, positions, sequence_ids = np.zeros((3, len(rows) * width), dtype=np.int64)
    ids[index] = np.fromiter(chain.from_iterable(texts), np.int64, len(index))
    positions[index] = position
    sequence_ids[index] = text + 1
    return PackedBatch(
        torch.from_numpy(ids).view(-1, width),
        torch.from_numpy(positions).view(-1, width),
        torch.from_numpy(sequence_ids).view(-1, width),
        # The padding of ``token_index`` repeats the first token of its text.
        torch.from_numpy(starts[:, None] + steps * mask),
        None if mask.all() else torch.from_numpy(mask),
    )


def _fill(by_length: list[Row], room: int) -> tuple[Row, int]:
    """Repeatedly removes the longest sentence that fits into ``room`` tokens. Returns the row, and the room left."""
    row: Row = []
    length = min(room, len(by_length) - 1)
    while length > 0:
        if by_length[length]:
            row.append(by_length[length].pop())
            room -= length
            length = min(length, room)
        else:
            length -= 1
    return row, room


def round_up(number: int, step: int) -> int:
    """Returns the smallest multiple of ``step`` that is not below ``number``."""
    return math.ceil(number / step) * step


class Boundaries(NamedTuple):
    """The boundaries of the n sentences in a single row, used instead of a bias on the attention's logits."""

    # (n + 1,) int32: sentence i consists of the tokens from starts[i] to starts[i + 1]
    starts: Tensor
    longest: int  # tokens
    # Tokens to either side that a token attends to; None = its whole sentence.
    window: int | None = None


def boundaries(packed: PackedBatch) -> Boundaries:
    """Returns the boundaries in a batch of one row. Its padding at the end counts as another sentence."""
    # The batch is still on the host, so nothing waits for a GPU.
    tokens = packed.ids.numel()
    text_tokens = int((packed.sequence_ids > 0).sum())
    # The sentences follow each other from the beginning of the row, and the padding comes last.
    starts = packed.token_index[:, 0].tolist()
    if text_tokens < tokens:
        starts.append(text_tokens)
    starts.append(tokens)
    longest = max(packed.token_index.shape[1], tokens - text_tokens)
    return Boundaries(torch.tensor(starts, dtype=torch.int32), longest)


def plan_unpadded(lengths: Sequence[int], token_budget: int) -> Iterator[list[Row]]:
    """Yields batches of one row, at most ``token_budget`` tokens or one sentence, of sentences of similar length."""
    for group in plan(lengths, token_budget):
        yield [group.tolist()]
