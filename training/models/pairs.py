"""Pairs of texts as a cross-encoder reads them: tokenized together, or each as if it were alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.inference.batching import pad
from training.models.folder import ModelFormat
from training.models.model import Pair
from training.models.texts import replace_surrogates, tokenizing
from training.models.tokenization import TokenVectors, are_unknown, read_part, rust_copy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PLAIN = ModelFormat()
# Pairs that show whether a network reads the padding beside the first one.
PROBES = (("a", "b"), ("a", "a longer text than the one before it"))


@dataclass(frozen=True)
class PairRow:
    """One pair as token ids, special tokens included."""

    ids: list[int]
    split: int  # index of the second sentence's first token
    truncated: bool  # whether a sentence was too long and lost its end

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)


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
    def token_types(self) -> Tensor:
        """(B, T) int64: 1 for tokens of the second sentence, else 0, for padding too."""
        return (self.second if self.mask is None else self.second & self.mask).long()

    @property
    def positions(self) -> Tensor:
        """(B, T) int64: the position of each token in its own sentence, from 0; 0 for padding."""
        positions = torch.arange(self.ids.shape[1], device=self.ids.device) - self.second * self.split
        return positions if self.mask is None else positions * self.mask


class PairTokenizer:
    """Tokenizes pairs of texts for one model, joined by the tokenizer's own template.

    A pair may have ``max_length`` tokens; the longer text is truncated first. With ``separately`` each text is read as
    if it were alone and may have ``max_length`` tokens itself.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, max_length: int, separately: bool = False, form: ModelFormat = PLAIN
    ) -> None:
        self.separately = separately
        self.max_length = max_length
        self.form = form
        self.prompt = form.prompt
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._unknown_id = tokenizer.unk_token_id
        # It stands for a word that is left out.
        self.mask = str(tokenizer.mask_token or tokenizer.unk_token or "")
        self._rust = rust_copy(tokenizer.backend_tokenizer, form.lowercase, max_length, tokenizer.truncation_side)

    def with_prompt(self, prompt: str | None, name: str | None, model: str) -> PairTokenizer:
        """The same with another prompt, as in `ModelFormat.with_prompt`."""
        tokenizer = copy.copy(self)
        tokenizer.form = self.form.with_prompt(prompt, name, model)
        tokenizer.prompt = tokenizer.form.prompt
        return tokenizer

    @tokenizing()
    def __call__(self, pairs: Sequence[Pair]) -> list[PairRow]:
        if self.prompt:
            pairs = [(self.prompt + a, b) for a, b in pairs]
        if not self.separately:
            encodings = self._rust.encode_batch_fast([(self._part(a), self._part(b)) for a, b in pairs])
            return [PairRow(e.ids, e.type_ids.count(0), bool(e.overflowing)) for e in encodings]
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        encodings = self._rust.encode_batch_fast([self._part(text) for text in texts])
        sides = {text: (e.ids, bool(e.overflowing)) for text, e in zip(texts, encodings, strict=True)}
        joined = ((*sides[a], *sides[b]) for a, b in pairs)
        return [PairRow(a + b, len(a), truncated_a or truncated_b) for a, truncated_a, b, truncated_b in joined]

    @tokenizing()
    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        """Whether each text has no token that the model knows."""
        return are_unknown(self._rust, self._unknown_id, sentences)

    @tokenizing()
    def tokens(self, text: str) -> TokenVectors:
        """The tokens of a text alone, without vectors."""
        encoding = self._rust.encode(self._part(text))
        return TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, np.empty((len(encoding.ids), 0)))

    def _part(self, text: str) -> str:
        return replace_surrogates(read_part(text, self._rust))


def pad_pairs(rows: Sequence[PairRow], pad_id: int, device: torch.device) -> PairBatch:
    """Rows -> one batch, padded on the right."""
    ids, mask = pad([row.ids for row in rows], pad_id)
    split = torch.tensor([[row.split] for row in rows])
    return PairBatch(ids.to(device), None if mask is None else mask.to(device), split.to(device))
