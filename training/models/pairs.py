"""Tokenization of pairs for a cross-encoder: both texts together, or each as if it were alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from training.inference.batching import pad
from training.models.folder import ModelFormat
from training.models.model import Pair
from training.models.texts import replace_surrogates, tokenizing
from training.models.tokenization import (
    TokenVectors,
    are_unknown,
    read_part,
    rust_copy,
    without_vectors,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PLAIN = ModelFormat()
# Pairs of different lengths, which show whether a network reads the padding of the first one.
PROBES = (("a", "b"), ("a", "a longer text than the one before it"))


@dataclass(frozen=True)
class PairRow:
    """The token ids of a pair, special tokens included."""

    ids: list[int]
    split: int  # index of the second sentence's first token
    truncated: bool  # whether a sentence was too long and has been cut

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
        """(B, T) bool: whether a token belongs to the second sentence, or is padding."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) >= self.split

    @property
    def token_types(self) -> Tensor:
        """(B, T) int64: 1 for tokens of the second sentence, else 0, also for padding."""
        second = self.second
        if self.mask is not None:
            second = second & self.mask
        return second.long()

    @property
    def positions(self) -> Tensor:
        """(B, T) int64: the position of each token in its sentence, from 0; 0 for padding."""
        places = torch.arange(self.ids.shape[1], device=self.ids.device)
        positions = places - self.second * self.split
        return positions if self.mask is None else positions * self.mask


class PairTokenizer:
    """Tokenizes pairs of texts for one model, joined by the tokenizer's own template.

    A pair is cut to ``max_length`` tokens, the longer text first. With ``separately`` each text is
    read as if it were alone, and is cut to ``max_length`` tokens itself.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        max_length: int,
        separately: bool = False,
        form: ModelFormat = PLAIN,
    ) -> None:
        self.separately = separately
        self.max_length = max_length
        self.form = form
        self.prompt = form.prompt
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._unknown_id = tokenizer.unk_token_id
        # The token that explanations put in place of a word to see how the score changes without it.
        self.mask = str(tokenizer.mask_token or tokenizer.unk_token or "")
        self._rust = rust_copy(
            tokenizer.backend_tokenizer, form.lowercase, max_length, tokenizer.truncation_side
        )

    def with_prompt(self, prompt: str | None, name: str | None, model: str) -> PairTokenizer:
        """Returns a copy with another prompt, as in `ModelFormat.with_prompt`."""
        tokenizer = copy.copy(self)
        tokenizer.form = self.form.with_prompt(prompt, name, model)
        tokenizer.prompt = tokenizer.form.prompt
        return tokenizer

    @tokenizing()
    def __call__(self, pairs: Sequence[Pair]) -> list[PairRow]:
        """Tokenizes pairs, in their order. A row counts as truncated if one of its texts has been cut."""
        # As in sentence-transformers, the prompt belongs to the first text.
        if self.prompt:
            pairs = [(self.prompt + a, b) for a, b in pairs]
        rows = []
        if not self.separately:
            parts = [(self._part(a), self._part(b)) for a, b in pairs]
            for encoding in self._rust.encode_batch_fast(parts):
                # The first text and its special tokens have the type 0, so their number is the
                # split. A tokenizer without types gives all tokens 0. Then the split is not needed:
                # scorers that read both texts together use it only to compute the types of the
                # tokens.
                split = encoding.type_ids.count(0)
                rows.append(PairRow(encoding.ids, split, bool(encoding.overflowing)))
            return rows
        texts = list(dict.fromkeys(chain.from_iterable(pairs)))
        encodings = self._rust.encode_batch_fast([self._part(text) for text in texts])
        # Reading a field of an encoding converts it to Python, so it is read once for each text.
        ids = {}
        is_cut = {}
        for text, encoding in zip(texts, encodings, strict=True):
            ids[text] = encoding.ids
            is_cut[text] = bool(encoding.overflowing)
        for a, b in pairs:
            rows.append(PairRow(ids[a] + ids[b], len(ids[a]), is_cut[a] or is_cut[b]))
        return rows

    @tokenizing()
    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        """Tells for each text whether the model knows none of its tokens."""
        return are_unknown(self._rust, self._unknown_id, sentences)

    @tokenizing()
    def tokens(self, text: str) -> TokenVectors:
        """Returns the tokens of a text alone, without vectors."""
        return without_vectors(self._rust.encode(self._part(text)))

    def _part(self, text: str) -> str:
        """Returns the part of a text that is read, without lone surrogates."""
        return replace_surrogates(read_part(text, self._rust))


def pad_pairs(rows: Sequence[PairRow], pad_id: int, device: torch.device) -> PairBatch:
    """Makes a batch of rows, padded on the right."""
    ids, mask = pad([row.ids for row in rows], pad_id).to(device)
    split = torch.tensor([[row.split] for row in rows], device=device)
    return PairBatch(ids, mask, split)
