"""Text to token ids with the model's own tokenizer: prompt, lower case and truncation as the model's folder says.

Works on the Rust tokenizer inside the transformers one, which releases the GIL and returns words and offsets. It is a
copy, so that changes to ``encoder.tokenizer`` do not change what is encoded, nor the other way round.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers

from training.errors import InputError
from training.models.model_format import ModelFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


SHORT_TEXT = 4_096  # characters; shorter texts are tokenised as they are
LONGEST_TEXT = 1_000_000  # characters; of a text that has fewer tokens than that, as one huge word, no more is read
CHARACTERS_PER_TOKEN = 16  # of a long text, more than any text has on average


class TokenVectors(NamedTuple):
    """The tokens of one sentence, after the transformer and before pooling."""

    tokens: list[str]  # T sub-words, special tokens included
    words: list[int | None]  # T, the index of the word that each belongs to; None for special tokens
    offsets: list[tuple[int, int]]  # T, start and end of each in the text
    hidden: np.ndarray  # (T, D) float32


class TextTokenizer:
    """Tokenizes sentences for one model."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, model_format: ModelFormat) -> None:
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self._prompt = model_format.prompt
        self._rust = copy.deepcopy(tokenizer.backend_tokenizer)
        self._rust.no_padding()
        if model_format.max_length:
            self._rust.enable_truncation(model_format.max_length)
        if model_format.lowercase:  # by the tokenizer, so that special tokens keep their case and offsets stay valid
            steps = [normalizers.Lowercase(), *filter(None, [self._rust.normalizer])]
            self._rust.normalizer = normalizers.Sequence(steps)

    def encodings(self, sentences: Iterable[str]) -> list[Encoding]:
        """Tokens, words and offsets in the text; what was truncated is in ``overflowing``."""
        return self._rust.encode_batch(self._prepare(sentences))

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], int]:
        """Token ids with special tokens, not padded and never empty, and the number of truncated sentences."""
        encodings = self._rust.encode_batch_fast(self._prepare(sentences))
        truncated = sum(1 for encoding in encodings if encoding.overflowing)
        return [encoding.ids or [self.pad_id] for encoding in encodings], truncated

    def _prepare(self, sentences: Iterable[str]) -> list[str]:
        return [self._prompt + replace_surrogates(read_part(text, self._rust)) for text in texts(sentences)]


def texts(sentences: Iterable[str], offset: int = 0) -> list[str]:
    """The sentences as a list. InputError if one is not text, with its number; ``offset`` came before them."""
    checked = list(sentences)
    for number, text in enumerate(checked, offset + 1):
        if not isinstance(text, str):
            raise InputError(f"sentence {number} is {type(text).__name__}, not text")
    return checked


def read_part(text: str, tokenizer: Tokenizer) -> str:
    """The beginning of a long text that is certain to hold all tokens that will not be cut off; short ones whole.

    A tokenizer truncates at the end, when it has made a token of every word: 300 bytes for each. A text of 50 MB would
    take 6 GB. ``tokenizer`` has truncation enabled, or the text is returned as it is.
    """
    if len(text) <= SHORT_TEXT or not tokenizer.truncation:
        return text
    size = max(SHORT_TEXT, CHARACTERS_PER_TOKEN * int(tokenizer.truncation["max_length"]))
    while len(text) > size:
        beginning = text[:size]
        whole_words = beginning.rsplit(maxsplit=1)[0] if beginning.strip() else beginning
        if tokenizer.encode_batch_fast([replace_surrogates(whole_words)])[0].overflowing:
            return whole_words
        if size >= LONGEST_TEXT:
            return text[:LONGEST_TEXT]
        size = min(4 * size, LONGEST_TEXT)
    return text


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates (halves of characters, from broken UTF-16), which cannot be encoded, by "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
