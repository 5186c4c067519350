"""Text to token ids with the model's own tokenizer: prompt, lower case and truncation as the model's folder says.

Works on the Rust tokenizer inside the transformers one, which releases the GIL and returns words and offsets. It is a
copy, so that changes to ``encoder.tokenizer`` do not change what is encoded, nor the other way round.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer, normalizers, pre_tokenizers

from training.inference.batching import TokenRows, token_counts
from training.models.chat import ChatTemplate
from training.models.folder import TRANSFORMER, ModelFormat
from training.models.modules.words import NO_LIMIT, WhitespaceTokenizer, WordEncoding
from training.models.texts import Chunk, check_growth, numbered, replace_surrogates, texts, tokenizing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SHORT_TEXT = 4_096  # characters; shorter texts are tokenised as they are
# Of a text that has fewer tokens than that, as one huge word, no more characters are read.
LONGEST_TEXT = 1_000_000
CHARACTERS_PER_TOKEN = 16  # more than any long text has on average
MOST_WORDS = 500_000  # that `WordRows` remembers


class TokenVectors(NamedTuple):
    """The tokens of one sentence, after the transformer and before pooling."""

    tokens: list[str]  # T sub-words, special tokens included
    words: list[int | None]  # T, the index of the word that each belongs to; None for special tokens
    offsets: list[tuple[int, int]]  # T, start and end of each in ``prompt`` + the sentence
    hidden: np.ndarray  # (T, D) float32
    prompt: str = ""
    skipped: int = 0  # tokens at the start that are not pooled: those of a prompt, in some models


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
    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        """Whether each text has something to read, but no token that the model knows."""

    @abstractmethod
    def prompt_length(self) -> int:
        """The tokens of the prompt, with the special ones before it and without those after it."""

    def chunk(self, sentences: Sequence[str]) -> Chunk:
        """The sentences as token ids, each distinct one once."""
        distinct, inverse = numbered(sentences)
        ids, cut = self.rows(distinct)
        return Chunk(ids, inverse, [distinct[at] for at in cut], sum(token_counts(ids)))

    def rows(self, sentences: Sequence[str]) -> tuple[Sequence[Sequence[int]], list[int]]:
        """`ids`, in the form that is fastest for this model."""
        return self.ids(sentences)

    def closed(self, ids: list[int]) -> list[int]:
        """The ids of an encoding as the model reads them: with the end of a chat template, and never none."""
        return ids or [self.pad_id]

    @property
    def prefix(self) -> str:
        """The text before each sentence, which offsets count from."""
        return self.prompt

    def with_prompt(self, prompt: str) -> TextTokenizer:
        """The same with another text before each sentence."""
        tokenizer = copy.copy(self)
        tokenizer.prompt = prompt
        return tokenizer


class WordRows:
    """Texts to the ids of their words, each of which is tokenised once: for tokenizers that never join two words.

    Those of BERT's kind split text at spaces before they do anything else. Arrow splits and numbers the words of
    thousands of texts in two calls, so that a text costs a tenth of what the tokenizer takes. Thread-safe.
    """

    _numbers: dict[str, int]  # of the words so far
    _first: np.ndarray  # int64: where the token ids of each word begin in ``_ids``
    _length: np.ndarray  # int64: how many they are
    _ids: np.ndarray  # int64: the token ids of all words

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._rust = tokenizer
        self._lock = threading.Lock()
        self._forget()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> WordRows | None:
        """For a tokenizer without special tokens; None if its words cannot be tokenised by themselves."""
        is_bert = isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
        is_bert = is_bert and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        added = "".join(token.content for token in tokenizer.get_added_tokens_decoder().values())
        return cls(tokenizer) if is_bert and not (tokenizer.truncation or tokenizer.padding or " " in added) else None

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
        numbers = words.indices.to_numpy()
        first, length = first[numbers], length[numbers]
        ends = length.cumsum()
        ids = flat[np.repeat(first - ends + length, length) + np.arange(ends[-1] if len(ends) else 0)]
        return TokenRows(ids, np.diff(np.concatenate([[0], ends])[split.offsets.to_numpy()]))

    def _find(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Where the ids of each word begin in ``_ids``, and how many they are: int64 (W,) each."""
        new = [word for word in words if word not in self._numbers]
        if new:
            encodings = self._rust.encode_batch_fast(new, add_special_tokens=False)
            self._numbers.update(zip(new, count(len(self._numbers)), strict=False))
            rows = TokenRows.of([encoding.ids for encoding in encodings])
            self._first = np.concatenate([self._first, rows.starts + len(self._ids)])
            self._length = np.concatenate([self._length, rows.lengths])
            self._ids = np.concatenate([self._ids, rows.flat])
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        return self._first[numbers], self._length[numbers]

    def _forget(self) -> None:
        self._numbers = {}
        self._first = self._length = self._ids = np.empty(0, dtype=np.int64)


class SubwordTokenizer(TextTokenizer):
    """By the Rust tokenizer of a transformer or, without special tokens, of a static embedding.

    ``pad_id`` stands for a text without tokens. ``direction``: the side that truncation cuts, right or left.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model_format: ModelFormat,
        pad_id: int,
        special_ids: Iterable[int],
        direction: str,
        chat: ChatTemplate | None = None,
        unknown_id: int | None = None,
    ) -> None:
        self._unknown_id = unknown_id
        self.pad_id, self.prompt, self._chat = pad_id, model_format.prompt, chat
        self._special_ids = frozenset(special_ids)
        # A chat template has the special tokens itself.
        self._adds_special = model_format.input_module == TRANSFORMER and chat is None
        self._rust = rust_copy(tokenizer, model_format.lowercase, model_format.max_length, direction)
        if model_format.expansion:
            length, pad_id, pad_token = model_format.expansion
            self._rust.enable_padding(length=length, pad_id=pad_id, pad_token=pad_token)
        self._words = None if self._adds_special else WordRows.of(self._rust)

    @tokenizing()
    def encodings(self, sentences: Iterable[str]) -> list[Encoding]:
        return self._rust.encode_batch(self._prepare(sentences), add_special_tokens=self._adds_special)

    @tokenizing()
    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        encodings = self._rust.encode_batch_fast(self._prepare(sentences), add_special_tokens=self._adds_special)
        ids = [encoding.ids for encoding in encodings]
        if self._chat or not all(ids):
            ids = [self.closed(row) for row in ids]
        # To ask whether an encoding was cut takes as long as its ids; none that is shorter than the limit was.
        longest = int(self._rust.truncation["max_length"]) if self._rust.truncation else None
        cut = [at for at, row in enumerate(ids) if longest and len(row) >= longest and encodings[at].overflowing]
        return ids, cut

    @tokenizing()
    def rows(self, sentences: Sequence[str]) -> tuple[Sequence[Sequence[int]], list[int]]:
        if self._words is None or self.prompt:
            return self.ids(sentences)
        return self._words.rows(sentences), []

    @tokenizing()
    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        return are_unknown(self._rust, self._unknown_id, texts(sentences))

    def closed(self, ids: list[int]) -> list[int]:
        if self._chat and self._rust.truncation:
            ids = self._chat.closed(ids, self._rust.truncation["max_length"], self.prompt)
        return ids or [self.pad_id]

    @property
    def prefix(self) -> str:
        return self._chat.render([["\0"]], self.prompt)[0].partition("\0")[0] if self._chat else self.prompt

    @tokenizing()
    def prompt_length(self) -> int:
        if self._chat:
            # Its tokens are pooled like those of the template.
            return 0
        ids = self._rust.encode(self.prompt, add_special_tokens=self._adds_special).ids if self.prompt else []
        return len(ids) - bool(ids and ids[-1] in self._special_ids)

    def _prepare(self, sentences: Iterable[str]) -> list[str]:
        prompt = "" if self._chat else self.prompt
        prepared = [
            prompt + text
            if len(text) <= SHORT_TEXT and text.isascii()
            else prompt + replace_surrogates(read_part(text, self._rust))
            for text in texts(sentences)
        ]
        return self._chat.render([[text] for text in prepared], self.prompt) if self._chat else prepared


class WordTokenizer(TextTokenizer):
    """By the white-space tokenizer of a table of word vectors."""

    def __init__(self, tokenizer: WhitespaceTokenizer, model_format: ModelFormat) -> None:
        self.pad_id, self.prompt = tokenizer.pad_id, model_format.prompt
        self._tokenizer, self._max_length = tokenizer, model_format.max_length or NO_LIMIT

    def encodings(self, sentences: Iterable[str]) -> list[WordEncoding]:
        return [self._tokenizer.encode(self.prompt + text, self._max_length) for text in texts(sentences)]

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        encodings = self.encodings(sentences)
        cut = [at for at, encoding in enumerate(encodings) if encoding.overflowing]
        return [encoding.ids or [self.pad_id] for encoding in encodings], cut

    def is_unknown(self, sentences: Iterable[str]) -> list[bool]:
        return [bool(text.strip()) and not self._tokenizer.encode(text).ids for text in texts(sentences)]

    def prompt_length(self) -> int:
        return len(self._tokenizer.encode(self.prompt).ids)


def text_tokenizer(
    tokenizer: PreTrainedTokenizerFast | Tokenizer | WhitespaceTokenizer, model_format: ModelFormat, empty_id: int = 0
) -> TextTokenizer:
    """The ``TextTokenizer`` for a model's tokenizer. ``empty_id``: a static embedding's, of texts without tokens."""
    if isinstance(tokenizer, WhitespaceTokenizer):
        return WordTokenizer(tokenizer, model_format)
    if isinstance(tokenizer, Tokenizer):
        unknown: Any = getattr(tokenizer.model, "unk_token", None)
        unknown_id = None if unknown is None else tokenizer.token_to_id(unknown)
        side = (tokenizer.truncation or {"direction": "right"})["direction"]
        return SubwordTokenizer(tokenizer, model_format, empty_id, (), side, unknown_id=unknown_id)
    return SubwordTokenizer(
        tokenizer.backend_tokenizer,
        model_format,
        int(tokenizer.pad_token_id or 0),
        tokenizer.all_special_ids,
        model_format.truncation_side or tokenizer.truncation_side,
        ChatTemplate(tokenizer, model_format.chat) if model_format.chat else None,
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
        ordered, unknown_texts = sorted(texts), set()
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
