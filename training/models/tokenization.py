"""Text to token ids, as a model's own tokenizer does it: prompt before, lower case where asked, cut at a length.

It wraps the Rust tokenizer inside the transformers one, which releases the GIL and gives words and offsets; a copy
of it, because what a user does with ``encoder.tokenizer`` must not change what is encoded, nor the other way round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tokenizers import Encoding, normalizers

from training.errors import InputError
from training.models.model_format import ModelFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class TokenVectors(NamedTuple):
    """One sentence's tokens, after the transformer and before pooling."""

    tokens: list[str]  # T sub-words, special tokens included
    words: list[int | None]  # T, the word that each belongs to; None for special tokens
    offsets: list[tuple[int, int]]  # T, where each stands in the text
    hidden: np.ndarray  # (T, D) float32


class TextTokenizer:
    """Sentences -> tokens, for one model."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, layout: ModelFormat) -> None:
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._prompt = layout.prompt
        self._rust = copy.deepcopy(tokenizer.backend_tokenizer)
        self._rust.no_padding()
        if layout.max_length:
            self._rust.enable_truncation(layout.max_length)
        if layout.lowercase:  # inside the tokenizer: special tokens in the text keep their case, offsets stay true
            own = self._rust.normalizer
            self._rust.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([own] if own else [])])

    def encodings(self, sentences: Iterable[str]) -> list[Encoding]:
        """Tokens, words and offsets in the text. What was cut off is in ``overflowing``."""
        return self._rust.encode_batch(self._prepare(sentences))

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], int]:
        """Token ids with special tokens, not padded, and how many sentences were cut. No row is empty."""
        encodings = self._rust.encode_batch_fast(self._prepare(sentences))
        cut = sum(1 for encoding in encodings if encoding.overflowing)
        return [encoding.ids or [self.pad_id] for encoding in encodings], cut

    def _prepare(self, sentences: Iterable[str]) -> list[str]:
        # A lone surrogate (half of a character, from broken UTF-16) cannot be encoded; it becomes "?".
        prompt = self._prompt
        return [prompt + (t if t.isascii() else t.encode("utf-8", "replace").decode()) for t in texts(sentences)]


def texts(sentences: Iterable[str], before: int = 0) -> list[str]:
    """The sentences as a list, each checked to be text; ``before`` came earlier. InputError names the culprit."""
    checked = list(sentences)
    for row, text in enumerate(checked, before + 1):
        if not isinstance(text, str):
            raise InputError(f"sentence {row} is {type(text).__name__}, not text")
    return checked
