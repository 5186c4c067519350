"""Sentence pairs as rectangles of token ids: what a cross-encoder reads in one pass.

Both sentences of a pair lie in one row, the first, then the second; ``split`` says where the second begins.
Everything else (which sentence a token is of, its place in it) follows from that, so nothing else is kept.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from training.inference.batching import pad

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Pair = tuple[str, str]


@dataclass(frozen=True)
class PairRow:
    """One pair as token ids, special tokens included."""

    ids: list[int]
    split: int  # index of the second sentence's first token
    cut: bool  # whether something was too long and lost its end

    def __len__(self) -> int:
        return len(self.ids)


class PairBatch(NamedTuple):
    """Rows padded to the longest. A mask of None means that nothing is padded."""

    ids: Tensor  # (B, T) int64
    mask: Tensor | None  # (B, T) bool, True = a real token
    split: Tensor  # (B, 1) int64

    @property
    def second(self) -> Tensor:
        """(B, T) bool: the token is of the second sentence (or padding)."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) >= self.split

    @property
    def places(self) -> Tensor:
        """(B, T) int64: the place of each token in its own sentence, from 0; 0 for padding."""
        places = torch.arange(self.ids.shape[1], device=self.ids.device) - self.second * self.split
        return places if self.mask is None else places * self.mask


class PairTokenizer:
    """Pairs of texts -> rows of token ids.

    Joined, the tokenizer's own template puts the two texts together and the pair may have ``max_length``
    tokens; the longer text is cut first. Apart, each text is tokenised as if it were alone and may have
    ``max_length`` tokens itself.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, max_length: int, apart: bool) -> None:
        self.apart = apart
        self.max_length = max_length
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._rust = copy.deepcopy(tokenizer.backend_tokenizer)
        self._rust.no_padding()
        self._rust.enable_truncation(max_length, strategy="longest_first")

    def __call__(self, pairs: Sequence[Pair]) -> list[PairRow]:
        """One row per pair, in order."""
        if not self.apart:
            encodings = self._rust.encode_batch_fast([(_clean(a), _clean(b)) for a, b in pairs])
            return [PairRow(e.ids, e.type_ids.count(0), bool(e.overflowing)) for e in encodings]
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))  # each text once
        encodings = self._rust.encode_batch_fast([_clean(text) for text in texts])
        known = {t: (e.ids, bool(e.overflowing)) for t, e in zip(texts, encodings, strict=True)}
        joined = ((*known[a], *known[b]) for a, b in pairs)
        return [PairRow(ids_a + ids_b, len(ids_a), cut_a or cut_b) for ids_a, cut_a, ids_b, cut_b in joined]


def pad_pairs(rows: Sequence[PairRow], pad_id: int, device: torch.device) -> PairBatch:
    """Rows -> one rectangle, padded on the right."""
    ids, mask = pad([row.ids for row in rows], pad_id)
    split = torch.tensor([[row.split] for row in rows])
    return PairBatch(ids.to(device), None if mask is None else mask.to(device), split.to(device))


def _clean(text: str) -> str:
    """A lone surrogate (half of a character, from broken UTF-16) cannot be encoded; it becomes "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
