"""Text to token ids with the model's own tokenizer: prompt, lower case and truncation as the model's folder says.

Works on the Rust tokenizer inside the transformers one, which releases the GIL and returns words and offsets. It is a
copy, so that changes to ``encoder.tokenizer`` do not change what is encoded, nor the other way round.
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
from training.models.texts import Chunk, check_growth, numbered, replace_surrogates, texts, tokenizing

SHORT_TEXT = 4_096  # characters; shorter texts are tokenised as they are
# Of a text that has fewer tokens than that, as one huge word, no more characters are read.
LONGEST_TEXT = 1_000_000
CHARACTERS_PER_TOKEN = 16  # more than any long text has on average


class TokenVectors(NamedTuple):
    """The tokens of one sentence, after the transformer and before pooling."""

    tokens: list[str]  # T sub-words, special tokens included
    words: list[int | None]  # T, the index of the word that each belongs to; None for special tokens
    offsets: list[tuple[int, int]]  # T, start and end of each in ``prompt`` + the sentence
    hidden: np.ndarray  # (T, D) float32
    prompt: str = ""
    skipped: int = 0  # tokens at the start that are not pooled: those of a prompt, in some models


class WordEncoding(NamedTuple):
    """The known words of a text, with the fields of a tokenizers.Encoding that are read here."""

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
        """Tokens, words and offsets in prompt and text; what was truncated is in ``overflowing``."""

    @abstractmethod
    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        """Token ids with special tokens, not padded and never empty, and the positions of truncated sentences."""

    @abstractmethod
    def readable(self, sentences: Iterable[str]) -> list[str]:
        """The part of each text that is read, as another program can tokenize it."""

    @abstractmethod
    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        """Whether each text has something to read, but no token that the model knows."""

    @abstractmethod
    def prompt_length(self) -> int:
        """The tokens of the prompt, with the special ones before it and without those after it."""

    def chunk(self, sentences: Sequence[str]) -> Chunk:
        """The sentences as token ids, each distinct one once."""
        distinct, inverse = numbered(sentences)
        ids, cut = self.ids(distinct)
        return Chunk(ids, inverse, [distinct[at] for at in cut], sum(map(len, ids)))

    def with_prompt(self, prompt: str) -> TextTokenizer:
        """The same with another text before each sentence."""
        tokenizer = copy.copy(self)
        tokenizer.prompt = prompt
        return tokenizer


class SubwordTokenizer(TextTokenizer):
    """By the Rust tokenizer of a transformer. ``pad_id`` stands for a text without tokens.

    ``direction``: the side that truncation cuts, right or left.
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
        self._rust = rust_copy(tokenizer, model_format.lowercase, model_format.max_length, direction)

    @tokenizing()
    def encodings(self, sentences: Iterable[str]) -> list[Encoding]:
        return self._rust.encode_batch(self._prepare(sentences), add_special_tokens=self._adds_special)

    @tokenizing()
    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        encodings = self._rust.encode_batch_fast(self._prepare(sentences), add_special_tokens=self._adds_special)
        ids = [encoding.ids for encoding in encodings]
        if not all(ids):
            ids = [row or [self.pad_id] for row in ids]
        # To ask whether an encoding was cut takes as long as its ids; none that is shorter than the limit was.
        longest = int(self._rust.truncation["max_length"]) if self._rust.truncation else None
        cut = [at for at, row in enumerate(ids) if longest and len(row) >= longest and encodings[at].overflowing]
        return ids, cut

    @tokenizing()
    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        return are_unknown(self._rust, self._unknown_id, texts(sentences))

    @tokenizing()
    def prompt_length(self) -> int:
        ids = self._rust.encode(self.prompt, add_special_tokens=self._adds_special).ids if self.prompt else []
        return len(ids) - bool(ids and ids[-1] in self._special_ids)

    def _prepare(self, sentences: Iterable[str]) -> list[str]:
        prepared = self.readable(sentences)
        return [self.prompt + text for text in prepared] if self.prompt else prepared

    def readable(self, sentences: Iterable[str]) -> list[str]:
        """The texts without halves of characters, of long ones the beginning that is read."""
        return [
            text if len(text) <= SHORT_TEXT and text.isascii() else replace_surrogates(read_part(text, self._rust))
            for text in texts(sentences)
        ]


class WordTokenizer(TextTokenizer):
    """By a tokenizer of words of sentence-transformers, which splits texts at white space.

    ``pad_id`` stands for a text without a known word.
    """

    def __init__(self, tokenizer: Any, model_format: ModelFormat, pad_id: int = 0) -> None:
        self.pad_id = pad_id
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
        pieces = list(re.finditer(r"\S+", text))
        words = [
            (token, number) for number, piece in enumerate(pieces) for token in self._tokenizer.tokenize(piece.group())
        ]
        read_words = words[: self._max_length]
        return WordEncoding(
            [token for token, _ in read_words],
            [pieces[number].group() for _, number in read_words],
            [number for _, number in read_words],
            [pieces[number].span() for _, number in read_words],
            len(read_words) < len(words),
        )


def text_tokenizer(tokenizer: Any, model_format: ModelFormat) -> TextTokenizer:
    """The ``TextTokenizer`` for the tokenizer of a transformer, of a static embedding, or of words."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        return WordTokenizer(tokenizer, model_format)
    if backend is tokenizer:
        unknown: Any = getattr(tokenizer.model, "unk_token", None)
        unknown_id = None if unknown is None else tokenizer.token_to_id(unknown)
        return SubwordTokenizer(tokenizer, model_format, 0, (), "right", unknown_id, adds_special=False)
    return SubwordTokenizer(
        backend,
        model_format,
        int(tokenizer.pad_token_id or 0),
        tokenizer.all_special_ids,
        tokenizer.truncation_side,
        tokenizer.unk_token_id,
    )


def unpadded(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without the padding and the truncation of its file, which may pad each text to 10⁹ tokens.

    InputError as `check_growth`.
    """
    check_growth(tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def rust_copy(tokenizer: Tokenizer, lowercases: bool, max_length: int | None, direction: str) -> Tokenizer:
    """A tokenizer that does not pad; ``direction``: the side that is cut, right or left.

    One that ``lowercases`` texts keeps the case of special tokens, and its offsets stay valid.
    """
    check_growth(tokenizer)
    rust = copy.deepcopy(tokenizer)
    rust.no_padding()
    if max_length:
        rust.enable_truncation(max_length, direction=direction)
    if lowercases:
        rust.normalizer = normalizers.Sequence([normalizers.Lowercase(), *filter(None, [rust.normalizer])])
    return rust


def are_unknown(tokenizer: Tokenizer, unknown_id: int | None, sentences: Sequence[str]) -> list[bool]:
    """Whether each text has something to read, but tokens of no other id, and white space alone beside them.

    A tokenizer of bytes, whose ``unknown_id`` is None, knows all texts.
    """
    if unknown_id is None:
        return [False] * len(sentences)
    prepared = [replace_surrogates(read_part(text, tokenizer)) for text in sentences]

    def unknown(texts: set[str]) -> set[str]:
        ordered = sorted(texts)
        unknown_texts = set()
        for text, encoding in zip(ordered, tokenizer.encode_batch_fast(ordered, add_special_tokens=False), strict=True):
            others = [token for token in encoding.ids if token != unknown_id]
            # To decode takes as long as to encode; nearly all texts have known tokens alone.
            is_whole = len(others) == len(encoding.ids)
            if not (others if is_whole else tokenizer.decode(others, skip_special_tokens=False).strip()):
                unknown_texts.add(text)
        return unknown_texts

    # Nearly all texts begin with a word that the model knows, and many with the same one.
    first_words = ["".join(text.split(maxsplit=1)[:1]) for text in prepared]
    unknown_words = unknown(set(first_words)) - {""}
    unknown_texts = unknown({text for text, word in zip(prepared, first_words, strict=True) if word in unknown_words})
    return [text in unknown_texts for text in prepared]


def read_part(text: str, tokenizer: Tokenizer) -> str:
    """The beginning of a long text that is certain to hold all tokens that will not be cut off; short ones whole.

    A tokenizer truncates at the end, when it has made a token of every word: 300 bytes for each. A text of 50 MB would
    take 6 GB. ``tokenizer`` has truncation enabled, or the text is returned as it is.
    """
    if len(text) <= SHORT_TEXT or not tokenizer.truncation or tokenizer.truncation["direction"] == "left":
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
