"""Sentence pairs as batches of token ids, the input of a cross-encoder.

A row holds the first sentence of a pair, then the second; ``split`` is the index of the second's first token. Token
types and positions follow from it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from training.inference.batching import pad
from training.models.tokenization import read_part, replace_surrogates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Pair = tuple[str, str]


@dataclass(frozen=True)
class PairRow:
    """One pair as token ids, special tokens included."""

    ids: list[int]
    split: int  # index of the second sentence's first token
    truncated: bool  # whether a sentence was too long and lost its end

    def __len__(self) -> int:
        return len(self.ids)


class PairBatch(NamedTuple):
    """Rows padded to the longest. A mask of None means that nothing is padded."""

    ids: Tensor  # (B, T) int64
    mask: Tensor | None  # (B, T) bool, False = padding
    split: Tensor  # (B, 1) int64, index of the second sentence's first token

    @property
    def second(self) -> Tensor:
        """(B, T) bool: the token belongs to the second sentence, or is padding."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) >= self.split

    @property
    def positions(self) -> Tensor:
        """(B, T) int64: the position of each token in its own sentence, from 0; 0 for padding."""
        positions = torch.arange(self.ids.shape[1], device=self.ids.device) - self.second * self.split
        return positions if self.mask is None else positions * self.mask


class PairTokenizer:
    """Tokenizes pairs of texts for one model.

    By default the tokenizer's own template joins the two texts, and the pair may have ``max_length`` tokens; the
    longer text is truncated first. With ``separately`` each text is tokenised as if it were alone and may have
    ``max_length`` tokens itself.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, max_length: int, separately: bool = False) -> None:
        self.separately = separately
        self.max_length = max_length
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._rust = copy.deepcopy(tokenizer.backend_tokenizer)
        self._rust.no_padding()
        self._rust.enable_truncation(max_length, strategy="longest_first")

    def __call__(self, pairs: Sequence[Pair]) -> list[PairRow]:
        """One row per pair, in order."""
        if not self.separately:
            encodings = self._rust.encode_batch_fast([(self._part(a), self._part(b)) for a, b in pairs])
            return [PairRow(e.ids, e.type_ids.count(0), bool(e.overflowing)) for e in encodings]
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))  # each text once
        encodings = self._rust.encode_batch_fast([self._part(text) for text in texts])
        known = {t: (e.ids, bool(e.overflowing)) for t, e in zip(texts, encodings, strict=True)}
        joined = ((*known[a], *known[b]) for a, b in pairs)
        return [PairRow(a + b, len(a), truncated_a or truncated_b) for a, truncated_a, b, truncated_b in joined]

    def _part(self, text: str) -> str:
        return replace_surrogates(read_part(text, self._rust))


def pad_pairs(rows: Sequence[PairRow], pad_id: int, device: torch.device) -> PairBatch:
    """Rows -> one batch, padded on the right."""
    ids, mask = pad([row.ids for row in rows], pad_id)
    split = torch.tensor([[row.split] for row in rows])
    return PairBatch(ids.to(device), None if mask is None else mask.to(device), split.to(device))
