"""Tokenization with the model's own tokenizer, and the prompt, lower case and truncation of the model's folder.

It uses a copy of the Rust tokenizer inside the transformers one, which releases the GIL and returns
words and offsets. Because it is a copy, changes to ``encoder.tokenizer`` do not change what is
encoded.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers

from training.models.folder import ModelFormat
from training.models.texts import (
    Chunk,
    check_growth,
    numbered,
    replace_surrogates,
    texts,
    tokenizing,
)

SHORT_TEXT = 4_096  # characters; texts up to this length are tokenised whole
# At most this many characters are read, even of a text that is one huge word.
LONGEST_TEXT = 1_000_000
CHARACTERS_PER_TOKEN = 16  # more than the average of any long text


class TokenVectors(NamedTuple):
    """The T tokens of one sentence, after the transformer and before pooling."""

    tokens: list[str]  # sub-words, special tokens included
    words: list[int | None]  # the index of each token's word; None for special tokens
    # The start and the end of each token in ``prompt`` + the sentence.
    offsets: list[tuple[int, int]]
    hidden: np.ndarray  # (T, D) float32
    prompt: str = ""
    skipped: int = 0  # tokens at the start that are not pooled: a prompt, in some models


def without_vectors(encoding: Encoding | WordEncoding) -> TokenVectors:
    """Returns the tokens of a text alone, with vectors of no dimensions."""
    empty = np.empty((len(encoding.ids), 0))
    return TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, empty)


class WordEncoding(NamedTuple):
    """The known words of a text, with the fields of a tokenizers.Encoding that are used here."""

    ids: list[int]
    tokens: list[str]
    word_ids: list[int | None]
    offsets: list[tuple[int, int]]
    overflowing: bool  # whether the text was cut


class TextTokenizer(ABC):
    """Tokenizes sentences for one model. ``prompt`` is put before each of them."""

    pad_id: int
    prompt: str

    @abstractmethod
    def encodings(self, sentences: Iterable[str]) -> Sequence[Encoding | WordEncoding]:
        """Returns tokens, words and offsets in prompt and text. The truncated part is in ``overflowing``."""

    @abstractmethod
    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        """Returns token ids with special tokens, not padded, never empty, and the positions of truncated sentences."""

    @abstractmethod
    def readable(self, sentences: Iterable[str]) -> list[str]:
        """Returns the part of each text that is read, in a form that another program can tokenize."""

    @abstractmethod
    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        """Tells for each text whether it is not empty, but has no token that the model knows."""

    @abstractmethod
    def prompt_length(self) -> int:
        """Counts the tokens of the prompt, including the special tokens before it."""

    def chunk(self, sentences: Sequence[str]) -> Chunk:
        """Returns the sentences as token ids, each distinct sentence once."""
        distinct, inverse = numbered(sentences)
        ids, cut = self.ids(distinct)
        return Chunk(ids, inverse, [distinct[at] for at in cut], sum(map(len, ids)))

    def with_prompt(self, prompt: str) -> TextTokenizer:
        """Returns a copy with another text before each sentence."""
        tokenizer = copy.copy(self)
        tokenizer.prompt = prompt
        return tokenizer


class SubwordTokenizer(TextTokenizer):
    """Tokenizes with the Rust tokenizer of a transformer. A text without tokens becomes ``pad_id``.

    ``direction`` is the side that truncation cuts, right or left.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model_format: ModelFormat,
        pad_id: int,
        special_ids: Iterable[int],
        direction: str,
        unknown_id: int | None = None,
        adds_special: bool = True,
    ) -> None:
        self._unknown_id = unknown_id
        self.pad_id = pad_id
        self.prompt = model_format.prompt
        self._special_ids = frozenset(special_ids)
        self._adds_special = adds_special
        self._rust = rust_copy(
            tokenizer, model_format.lowercase, model_format.max_length, direction
        )

    @tokenizing()
    def encodings(self, sentences: Iterable[str]) -> list[Encoding]:
        prepared = self._prepare(sentences)
        return self._rust.encode_batch(prepared, add_special_tokens=self._adds_special)

    @tokenizing()
    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        prepared = self._prepare(sentences)
        encodings = self._rust.encode_batch_fast(prepared, add_special_tokens=self._adds_special)
        # A text without tokens becomes a token of padding, as each text needs one.
        ids = [encoding.ids or [self.pad_id] for encoding in encodings]
        if not self._rust.truncation:
            return ids, []
        # ``overflowing`` takes as long to read as the ids, so it is read only if the limit is
        # reached.
        longest = int(self._rust.truncation["max_length"])
        cut = []
        for row, tokens in enumerate(ids):
            if len(tokens) >= longest and encodings[row].overflowing:
                cut.append(row)
        return ids, cut

    @tokenizing()
    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        return are_unknown(self._rust, self._unknown_id, texts(sentences))

    @tokenizing()
    def prompt_length(self) -> int:
        if not self.prompt:
            return 0
        ids = self._rust.encode(self.prompt, add_special_tokens=self._adds_special).ids
        # A special token at the end follows the text, not the prompt.
        if ids and ids[-1] in self._special_ids:
            return len(ids) - 1
        return len(ids)

    def _prepare(self, sentences: Iterable[str]) -> list[str]:
        prepared = self.readable(sentences)
        return [self.prompt + text for text in prepared] if self.prompt else prepared

    def readable(self, sentences: Iterable[str]) -> list[str]:
        """Returns the texts without lone surrogates, and only the beginning of long ones."""
        readable = texts(sentences)
        for row, text in enumerate(readable):
            # Only long texts are cut, and ASCII has no surrogates.
            if len(text) > SHORT_TEXT or not text.isascii():
                readable[row] = replace_surrogates(read_part(text, self._rust))
        return readable


class WordTokenizer(TextTokenizer):
    """Tokenizes with a word tokenizer of sentence-transformers, which splits texts at white space.

    A text without a known word becomes the word number 0, the padding.
    """

    def __init__(self, tokenizer: Any, model_format: ModelFormat) -> None:
        self.pad_id = 0
        self.prompt = model_format.prompt
        self._tokenizer = tokenizer
        self._max_length = model_format.max_length

    def encodings(self, sentences: Iterable[str]) -> list[WordEncoding]:
        return [self._encode(self.prompt + text) for text in texts(sentences)]

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        encodings = self.encodings(sentences)
        cut = [at for at, encoding in enumerate(encodings) if encoding.overflowing]
        return [encoding.ids or [self.pad_id] for encoding in encodings], cut

    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        return [bool(text.strip()) and not self._encode(text).ids for text in texts(sentences)]

    def readable(self, sentences: Iterable[str]) -> list[str]:
        return texts(sentences)

    def prompt_length(self) -> int:
        return len(self._encode(self.prompt).ids)

    def _encode(self, text: str) -> WordEncoding:
        encoding = WordEncoding([], [], [], [], False)
        for number, piece in enumerate(re.finditer(r"\S+", text)):
            # The ids of the known words in the piece.
            for token in self._tokenizer.tokenize(piece.group()):
                if len(encoding.ids) == self._max_length:
                    return encoding._replace(overflowing=True)
                encoding.ids.append(token)
                encoding.tokens.append(piece.group())
                encoding.word_ids.append(number)
                encoding.offsets.append(piece.span())
        return encoding


def text_tokenizer(tokenizer: Any, model_format: ModelFormat) -> TextTokenizer:
    """Makes the ``TextTokenizer`` for the tokenizer of a transformer, of a static embedding, or of words."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        return WordTokenizer(tokenizer, model_format)
    if backend is tokenizer:
        # A static embedding uses the Rust tokenizer, without special tokens.
        unknown: Any = getattr(tokenizer.model, "unk_token", None)
        return SubwordTokenizer(
            tokenizer,
            model_format,
            pad_id=0,
            special_ids=(),
            direction="right",
            unknown_id=None if unknown is None else tokenizer.token_to_id(unknown),
            adds_special=False,
        )
    return SubwordTokenizer(
        backend,
        model_format,
        pad_id=int(tokenizer.pad_token_id or 0),
        special_ids=tokenizer.all_special_ids,
        direction=tokenizer.truncation_side,
        unknown_id=tokenizer.unk_token_id,
    )


def unpadded(tokenizer: Tokenizer) -> Tokenizer:
    """Removes, in place, the padding and the truncation that a tokenizer.json states.

    It may pad each text to 10⁹ tokens. InputError if the tokenizer would make texts many times
    longer before it splits them (`check_growth`).
    """
    check_growth(tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def rust_copy(
    tokenizer: Tokenizer, lowercases: bool, max_length: int | None, direction: str
) -> Tokenizer:
    """Copies a tokenizer, without padding. ``direction`` is the side that is cut, right or left.

    Without a ``max_length``, the copy truncates as the tokenizer does. If it ``lowercases`` texts,
    it keeps the case of special tokens, and its offsets stay valid.
    """
    check_growth(tokenizer)
    rust = copy.deepcopy(tokenizer)
    rust.no_padding()
    if max_length:
        rust.enable_truncation(max_length, direction=direction)
    if lowercases:
        parts: list[Any] = [normalizers.Lowercase()]
        if rust.normalizer is not None:
            parts.append(rust.normalizer)
        rust.normalizer = normalizers.Sequence(parts)
    return rust


def are_unknown(
    tokenizer: Tokenizer, unknown_id: int | None, sentences: Sequence[str]
) -> list[bool]:
    """Tells for each text whether all of its tokens are unknown or white space. False for an empty text.

    A tokenizer of bytes, whose ``unknown_id`` is None, knows all texts.
    """
    if unknown_id is None:
        return [False] * len(sentences)
    prepared = [replace_surrogates(read_part(text, tokenizer)) for text in sentences]

    def find_unknown(candidates: set[str]) -> set[str]:
        ordered = sorted(candidates)
        encodings = tokenizer.encode_batch_fast(ordered, add_special_tokens=False)
        unknown_texts = set()
        for text, encoding in zip(ordered, encodings, strict=True):
            known_ids = [token for token in encoding.ids if token != unknown_id]
            is_known = bool(known_ids)
            # The known tokens beside unknown ones may be white space, which only decoding shows.
            # Decoding takes as long as encoding, but few texts have unknown tokens.
            if len(known_ids) < len(encoding.ids):
                is_known = bool(tokenizer.decode(known_ids, skip_special_tokens=False).strip())
            if not is_known:
                unknown_texts.add(text)
        return unknown_texts

    # Nearly all texts begin with a word that the model knows, and many with the same word. Only a
    # text with an unknown first word is tokenized whole.
    first_words = ["".join(text.split(maxsplit=1)[:1]) for text in prepared]
    # The first word of an empty text is "".
    unknown_words = find_unknown(set(first_words)) - {""}
    candidates = set()
    for text, word in zip(prepared, first_words, strict=True):
        if word in unknown_words:
            candidates.add(text)
    unknown_texts = find_unknown(candidates)
    return [text in unknown_texts for text in prepared]


def read_part(text: str, tokenizer: Tokenizer) -> str:
    """Returns a beginning of a long text that contains all tokens before the cut, and short texts unchanged.

    A tokenizer truncates only after it has made tokens of every word, 300 bytes each. A text of 50
    MB would take 6 GB. If ``tokenizer`` does not truncate, or cuts the beginning of texts, the text
    is returned unchanged.
    """
    truncation = tokenizer.truncation
    if len(text) <= SHORT_TEXT or not truncation:
        return text
    # This tokenizer keeps the end of a text and not the beginning.
    if truncation["direction"] == "left":
        return text
    size = max(SHORT_TEXT, CHARACTERS_PER_TOKEN * int(truncation["max_length"]))
    while len(text) > size:
        beginning = text[:size]
        # The last word of the beginning may be incomplete.
        whole_words = beginning.rsplit(maxsplit=1)[0] if beginning.strip() else beginning
        if tokenizer.encode_batch_fast([replace_surrogates(whole_words)])[0].overflowing:
            return whole_words
        # The beginning has too few tokens to be cut, so a longer one is tried, up to a limit.
        if size >= LONGEST_TEXT:
            return text[:LONGEST_TEXT]
        size = min(4 * size, LONGEST_TEXT)
    return text
