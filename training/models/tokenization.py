"""Text to token ids with the model's own tokenizer: prompt, lower case and truncation as the model's folder says.

Works on the Rust tokenizer inside the transformers one, which releases the GIL and returns words and offsets. It is a
copy, so that changes to ``encoder.tokenizer`` do not change what is encoded, nor the other way round.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer, normalizers, pre_tokenizers
from torch import Tensor

from training.errors import InputError
from training.inference.batching import TokenRows, pad
from training.models.model_format import ModelFormat
from training.models.modules.words import NO_LIMIT, WhitespaceTokenizer, WordEncoding

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from training.models.plain_bert import PlainTokenizer

SHORT_TEXT = 4_096  # characters; shorter texts are tokenised as they are
MOST_WORDS = 500_000  # that `WordRows` remembers
LONGEST_TEXT = 1_000_000  # characters; of a text that has fewer tokens than that, as one huge word, no more is read
CHARACTERS_PER_TOKEN = 16  # of a long text, more than any text has on average


@dataclass
class EncodeReport:
    """Counts of calls of ``encode``; pass an empty one to have it filled."""

    sentences: int = 0
    unique: int = 0  # sentences that were computed: each once within a chunk
    tokens: int = 0  # of the unique sentences, special tokens included, padding not
    truncated: int = 0  # unique sentences cut at max_length
    seconds: float = 0.0
    cut: set[str] | None = None  # pass an empty set to have the sentences that are cut collected in it

    def add(self, other: EncodeReport) -> None:
        """Add the counts of a part that was encoded elsewhere; ``seconds`` stay those of the caller."""
        self.sentences += other.sentences
        self.unique += other.unique
        self.tokens += other.tokens
        self.truncated += other.truncated
        self.add_cut(other.cut or ())

    def add_cut(self, sentences: Iterable[str]) -> None:
        """Collect sentences that were cut, where that is asked for."""
        if self.cut is not None:
            self.cut.update(sentences)


class TokenVectors(NamedTuple):
    """The tokens of one sentence, after the transformer and before pooling."""

    tokens: list[str]  # T sub-words, special tokens included
    words: list[int | None]  # T, the index of the word that each belongs to; None for special tokens
    offsets: list[tuple[int, int]]  # T, start and end of each in ``prompt`` + the sentence
    hidden: np.ndarray  # (T, D) float32
    prompt: str = ""
    skipped: int = 0  # tokens at the start that are not pooled: those of a prompt, in some models


class Chunk(NamedTuple):
    """Sentences as token ids, each once."""

    ids: Sequence[Sequence[int]]  # of a table of vectors `TokenRows`
    cut: list[str]  # those of the sentences that were cut
    inverse: list[int]  # of each sentence, its position in ``ids``


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
    def prompt_length(self) -> int:
        """The tokens of the prompt, with the special ones before it and without those after it."""

    def chunk(self, sentences: Sequence[str]) -> Chunk:
        positions: dict[str, int] = {}
        inverse = [positions.setdefault(sentence, len(positions)) for sentence in sentences]
        distinct = list(positions)
        ids, cut = self.rows(distinct)
        return Chunk(ids, [distinct[at] for at in cut], inverse)

    def rows(self, sentences: Sequence[str]) -> tuple[Sequence[Sequence[int]], list[int]]:
        """`ids`, in the form that is fastest for this model."""
        return self.ids(sentences)

    def with_prompt(self, prompt: str) -> TextTokenizer:
        tokenizer = copy.copy(self)
        tokenizer.prompt = prompt
        return tokenizer


class SubwordTokenizer(TextTokenizer):
    """By the Rust tokenizer of a transformer or, without special tokens, of a static embedding.

    ``pad_id`` stands for a text without tokens. ``direction``: the side that truncation cuts, right or left.
    """

    def __init__(
        self, tokenizer: Tokenizer, model_format: ModelFormat, pad_id: int, special_ids: Iterable[int], direction: str
    ) -> None:
        self.pad_id, self.prompt = pad_id, model_format.prompt
        self._special_ids = frozenset(special_ids)
        self._adds_special = model_format.input_module == "Transformer"
        self._words = None if self._adds_special else WordRows.of(tokenizer, model_format)
        self._rust = copy.deepcopy(tokenizer)
        self._rust.no_padding()
        if model_format.max_length:
            self._rust.enable_truncation(model_format.max_length, direction=direction)
        if model_format.expansion:
            length, pad_id, pad_token = model_format.expansion
            self._rust.enable_padding(length=length, pad_id=pad_id, pad_token=pad_token)
        if model_format.lowercase:  # by the tokenizer, so that special tokens keep their case and offsets stay valid
            steps = [normalizers.Lowercase(), *filter(None, [self._rust.normalizer])]
            self._rust.normalizer = normalizers.Sequence(steps)

    def encodings(self, sentences: Iterable[str]) -> list[Encoding]:
        return self._rust.encode_batch(self._prepare(sentences), add_special_tokens=self._adds_special)

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        encodings = self._rust.encode_batch_fast(self._prepare(sentences), add_special_tokens=self._adds_special)
        ids = [encoding.ids for encoding in encodings]
        if not all(ids):
            ids = [row or [self.pad_id] for row in ids]
        # To ask whether an encoding was cut takes as long as its ids; none that is shorter than the limit was.
        longest = int(self._rust.truncation["max_length"]) if self._rust.truncation else None
        cut = [at for at, row in enumerate(ids) if longest and len(row) >= longest and encodings[at].overflowing]
        return ids, cut

    def rows(self, sentences: Sequence[str]) -> tuple[Sequence[Sequence[int]], list[int]]:
        if self._words is None or self.prompt:
            return self.ids(sentences)
        return self._words.rows(sentences), []

    def prompt_length(self) -> int:
        ids = self._rust.encode(self.prompt, add_special_tokens=self._adds_special).ids if self.prompt else []
        return len(ids) - bool(ids and ids[-1] in self._special_ids)

    def _prepare(self, sentences: Iterable[str]) -> list[str]:
        prompt = self.prompt
        return [
            prompt + text
            if len(text) <= SHORT_TEXT and text.isascii()
            else prompt + replace_surrogates(read_part(text, self._rust))
            for text in texts(sentences)
        ]


class WordRows:
    """Texts to the ids of their words, each of which is tokenised once: for tokenizers that never join two words.

    Those of BERT's kind split text at spaces before they do anything else. Arrow splits and numbers the words of
    thousands of texts in two calls, so that a text costs a tenth of what the tokenizer takes. Thread-safe.
    """

    _numbers: dict[str, int]  # of the known words
    _first: np.ndarray  # int64, of each word: where its token ids begin among those of all
    _length: np.ndarray  # … and how many they are
    _ids: np.ndarray

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._rust = tokenizer
        self._lock = threading.Lock()
        self._forget()

    @classmethod
    def of(cls, tokenizer: Tokenizer, model_format: ModelFormat) -> WordRows | None:
        """For a tokenizer without special tokens; None if its words cannot be tokenised by themselves."""
        is_bert = isinstance(tokenizer.normalizer, normalizers.BertNormalizer) and isinstance(
            tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer
        )
        changed = model_format.max_length or model_format.expansion or model_format.lowercase
        added = "".join(token.content for token in tokenizer.get_added_tokens_decoder().values())
        if not is_bert or changed or " " in added:
            return None
        copied = copy.deepcopy(tokenizer)
        copied.no_padding()
        copied.no_truncation()
        return cls(copied)

    def rows(self, sentences: Sequence[str]) -> TokenRows:
        """The token ids of each text; of an empty one none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        split = pc.split_pattern(pa.array(list(map(replace_surrogates, sentences)), pa.large_string()), " ")
        words = split.flatten().dictionary_encode()
        with self._lock:
            if len(self._numbers) > MOST_WORDS:
                self._forget()
            first, length = self._find(words.dictionary.to_pylist())
            flat = self._ids
        first, length = (each[words.indices.to_numpy()] for each in (first, length))
        ends = length.cumsum()
        ids = flat[np.repeat(first - ends + length, length) + np.arange(ends[-1] if len(ends) else 0)]
        return TokenRows(ids, np.diff(np.concatenate([[0], ends])[split.offsets.to_numpy()]))

    def _find(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Where the ids of each word begin in ``_ids``, and how many they are: int64 (W,) each."""
        new = [word for word in words if word not in self._numbers]
        if new:
            found = [encoding.ids for encoding in self._rust.encode_batch_fast(new, add_special_tokens=False)]
            self._numbers.update(zip(new, count(len(self._numbers)), strict=False))
            rows = TokenRows.of(found)
            self._first = np.concatenate([self._first, rows.starts + len(self._ids)])
            self._length = np.concatenate([self._length, rows.lengths])
            self._ids = np.concatenate([self._ids, rows.flat])
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        return self._first[numbers], self._length[numbers]

    def _forget(self) -> None:
        self._numbers = {}
        self._first = self._length = self._ids = np.empty(0, dtype=np.int64)


class WordTokenizer(TextTokenizer):
    """By the white-space tokenizer of a table of word vectors."""

    def __init__(self, tokenizer: WhitespaceTokenizer, model_format: ModelFormat) -> None:
        self.pad_id, self.prompt = tokenizer.pad_id, model_format.prompt
        self._tokenizer, self._max_length = tokenizer, model_format.max_length or NO_LIMIT

    def encodings(self, sentences: Iterable[str]) -> list[WordEncoding]:
        return [self._tokenizer.encode(self.prompt + text, self._max_length) for text in texts(sentences)]

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        encodings = self.encodings(sentences)
        return [each.ids or [self.pad_id] for each in encodings], _cut(encodings)

    def prompt_length(self) -> int:
        return len(self._tokenizer.encode(self.prompt).ids)


def text_tokenizer(
    tokenizer: PreTrainedTokenizerFast | PlainTokenizer | Tokenizer | WhitespaceTokenizer | TextTokenizer,
    model_format: ModelFormat,
    empty_id: int = 0,
) -> TextTokenizer:
    """The ``TextTokenizer`` for a model's tokenizer. ``empty_id``: a static embedding's, of texts without tokens."""
    if isinstance(tokenizer, TextTokenizer):
        return tokenizer.with_prompt(model_format.prompt)
    if isinstance(tokenizer, WhitespaceTokenizer):
        return WordTokenizer(tokenizer, model_format)
    if isinstance(tokenizer, Tokenizer):
        return SubwordTokenizer(tokenizer, model_format, empty_id, (), "right")
    return SubwordTokenizer(
        tokenizer.backend_tokenizer,
        model_format,
        int(tokenizer.pad_token_id or 0),
        tokenizer.all_special_ids,
        tokenizer.truncation_side,
    )


def _cut(encodings: Sequence[Encoding | WordEncoding]) -> list[int]:
    """The positions of those that were truncated."""
    return [at for at, encoding in enumerate(encodings) if encoding.overflowing]


def texts(sentences: Iterable[str], offset: int = 0) -> list[str]:
    """The sentences as a list. InputError if one is not text, with its number; ``offset`` came before them."""
    checked = list(sentences)
    if set(map(type, checked)) <= {str}:
        return checked
    for number, text in enumerate(checked, offset + 1):
        if not isinstance(text, str):
            raise InputError(f"sentence {number} is {type(text).__name__}, not text")
    return checked


def first_positions(sentences: Sequence[str]) -> np.ndarray:
    """Of each sentence the position of the first one that equals it: int64 (N,)."""
    seen: dict[str, int] = {}
    return np.fromiter(map(seen.setdefault, sentences, count()), dtype=np.int64, count=len(sentences))


def chunks(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of ``size`` sentences. InputError if one is not text, or for a text, which would be read by its letters."""
    if isinstance(sentences, str):
        raise InputError("a list of sentences is needed; put the one string into a list")
    done, remaining = 0, iter(sentences)
    while part := texts(islice(remaining, size), done):
        yield part
        done += len(part)


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


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates (halves of characters, from broken UTF-16), which cannot be encoded, by "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# ---------------------------------------------------------------- pairs, the input of a cross-encoder

Pair = tuple[str, str]


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
    """Tokenizes pairs of texts for one model.

    By default the tokenizer's own template joins the two texts, and the pair may have ``max_length`` tokens; the
    longer text is truncated first. With ``separately`` each text is tokenised as if it were alone and may have
    ``max_length`` tokens itself.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast | PlainTokenizer, max_length: int, separately: bool = False
    ) -> None:
        self.separately = separately
        self.max_length = max_length
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self.mask = str(tokenizer.mask_token or tokenizer.unk_token or "")  # stands for a word that is left out
        self._rust = copy.deepcopy(tokenizer.backend_tokenizer)
        self._rust.no_padding()
        self._rust.enable_truncation(max_length, strategy="longest_first")

    def __call__(self, pairs: Sequence[Pair]) -> list[PairRow]:
        if not self.separately:
            encodings = self._rust.encode_batch_fast([(self._part(a), self._part(b)) for a, b in pairs])
            return [PairRow(e.ids, e.type_ids.count(0), bool(e.overflowing)) for e in encodings]
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))  # each text once
        encodings = self._rust.encode_batch_fast([self._part(text) for text in texts])
        known = {t: (e.ids, bool(e.overflowing)) for t, e in zip(texts, encodings, strict=True)}
        joined = ((*known[a], *known[b]) for a, b in pairs)
        return [PairRow(a + b, len(a), truncated_a or truncated_b) for a, truncated_a, b, truncated_b in joined]

    def tokens(self, text: str) -> TokenVectors:
        found = self._rust.encode(self._part(text))
        return TokenVectors(found.tokens, found.word_ids, found.offsets, np.empty((len(found.ids), 0)))

    def _part(self, text: str) -> str:
        return replace_surrogates(read_part(text, self._rust))


def pad_pairs(rows: Sequence[PairRow], pad_id: int, device: torch.device) -> PairBatch:
    """Rows -> one batch, padded on the right."""
    ids, mask = pad([row.ids for row in rows], pad_id)
    split = torch.tensor([[row.split] for row in rows])
    return PairBatch(ids.to(device), None if mask is None else mask.to(device), split.to(device))
