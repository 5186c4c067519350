"""WordEmbeddings: a table of word vectors, with a tokenizer that splits text at white space.

The tokenizer is sentence-transformers' WhitespaceTokenizer: each piece of text between white space is looked up as it
is, then without punctuation around it, then in lower case; what is not found, and stop words, are left out. The
BigramTokenizer finds pairs of adjacent words too, for which that library has no tokenizer.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from training.errors import InputError
from training.models.files import read_object, read_tensors, write_json, write_tensors

CONFIG, TOKENIZER_CONFIG = "wordembedding_config.json", "whitespacetokenizer_config.json"
TABLE = "emb_layer.weight"
PADDING_TOKEN = "PADDING_TOKEN"  # noqa: S105 - the first row of tables made from text files: a zero vector
NO_LIMIT = 1_000_000  # words of a sentence

_PIECE = re.compile(r"\S+")


class WordEncoding(NamedTuple):
    """The known words of a text, with the fields of a tokenizers.Encoding that are read here."""

    ids: list[int]
    tokens: list[str]
    word_ids: list[int | None]
    offsets: list[tuple[int, int]]
    overflowing: list[WordEncoding]  # one element if the text was cut


class FoundWord(NamedTuple):
    """A known word of a text."""

    form: str  # as it stands in the vocabulary
    text: str
    number: int  # of the piece of text that it is, from 0
    span: tuple[int, int]


class WhitespaceTokenizer:
    """Text to the ids of its words: their numbers in ``vocabulary``. Of equal words the last counts."""

    name = "sentence_transformers.sentence_transformer.modules.tokenizer.whitespace.WhitespaceTokenizer"
    pad_id = 0  # a word that no text holds, with a zero vector, in tables made from text files

    def __init__(self, vocabulary: Iterable[str], stop_words: Iterable[str] = (), lowercase: bool = False) -> None:
        self.rows = {word: row for row, word in enumerate(vocabulary)}
        self.stop_words, self.lowercase = frozenset(stop_words), lowercase

    def words(self, text: str) -> list[FoundWord]:
        """The known words of a text, in order."""
        return [
            FoundWord(form, match.group(), number, match.span())
            for number, match in enumerate(_PIECE.finditer(text))
            if (form := self._form(match.group())) is not None
        ]

    def encode(self, text: str, max_length: int = NO_LIMIT) -> WordEncoding:
        """The known words of a text, cut at ``max_length`` words."""
        found = self.words(text)
        rest = [WordEncoding([], [], [], [], [])] if len(found) > max_length else []
        found = self.tokens(found[:max_length])
        numbers: list[int | None] = [word.number for word in found]
        return WordEncoding(
            [self.rows[word.form] for word in found],
            [word.text for word in found],
            numbers,
            [word.span for word in found],
            rest,
        )

    def tokens(self, words: list[FoundWord]) -> list[FoundWord]:
        """What is looked up for these words: they themselves."""
        return words

    def write(self, folder: Path) -> None:
        """Write whitespacetokenizer_config.json."""
        settings = {"vocab": list(self.rows), "stop_words": sorted(self.stop_words), "do_lower_case": self.lowercase}
        write_json(folder / TOKENIZER_CONFIG, settings)

    def _form(self, piece: str) -> str | None:
        """A piece of text as it stands in the vocabulary; None if it is a stop word or unknown."""
        token = piece.lower() if self.lowercase else piece
        for form in (token, bare := token.strip(string.punctuation), bare.lower()):
            if form in self.stop_words:
                return None
            if form in self.rows:
                return form
        return None


class BigramTokenizer(WhitespaceTokenizer):
    """Text to the ids of its words, then of the pairs of adjacent ones that are in the vocabulary, as "new york".

    Unknown words between two known ones do not separate them. A bigram counts to the first of its words.
    """

    name = "training.models.modules.words.BigramTokenizer"

    def tokens(self, words: list[FoundWord]) -> list[FoundWord]:
        """The words and their bigrams."""
        bigrams = [
            FoundWord(form, f"{first.text} {second.text}", first.number, (first.span[0], second.span[1]))
            for first, second in pairwise(words)
            if (form := bigram(first, second)) in self.rows
        ]
        return words + bigrams


def bigram(first: FoundWord, second: FoundWord) -> str:
    """Two adjacent words as they stand in a vocabulary. No single word has a space in it."""
    return f"{first.form} {second.form}"


TOKENIZERS: dict[str, type[WhitespaceTokenizer]] = {
    each.__name__: each for each in (WhitespaceTokenizer, BigramTokenizer)
}


class WordEmbeddings(nn.Module):
    """Words to vectors: (B, T) int64 -> (B, T, D) float32."""

    def __init__(
        self,
        tokenizer: WhitespaceTokenizer,
        vectors: Tensor,
        update_embeddings: bool = False,
        max_length: int = NO_LIMIT,
    ) -> None:
        super().__init__()
        if len(vectors) != len(tokenizer.rows):
            raise InputError(f"there are {len(tokenizer.rows):,} words, but {len(vectors):,} word vectors")
        self.tokenizer, self.update_embeddings, self.max_length = tokenizer, update_embeddings, max_length
        self.table = nn.Embedding.from_pretrained(vectors.float(), freeze=not update_embeddings)

    @classmethod
    def read(cls, folder: Path) -> WordEmbeddings:
        """Open the module in ``folder``. InputError if a file is missing or damaged, or of another tokenizer."""
        config = read_object(folder / CONFIG)
        package, _, kind = str(config.get("tokenizer_class", WhitespaceTokenizer.name)).rpartition(".")
        if kind not in TOKENIZERS or package.partition(".")[0] != TOKENIZERS[kind].name.partition(".")[0]:
            raise InputError(f"{folder.name} splits text by {kind}; only {', '.join(TOKENIZERS)} are supported")
        words = read_object(folder / TOKENIZER_CONFIG)
        try:
            tokenizer = TOKENIZERS[kind](words["vocab"], words.get("stop_words", ()), bool(words.get("do_lower_case")))
            vectors = read_tensors(folder)[TABLE]
        except (KeyError, TypeError) as error:
            raise InputError(f"{folder} lacks {error}; fetch the model again") from error
        longest = config.get("max_seq_length") or NO_LIMIT
        return cls(tokenizer, vectors, bool(config.get("update_embeddings")), int(longest))

    def write(self, folder: Path) -> None:
        """Write the settings, the words and model.safetensors."""
        settings: dict[str, Any] = {
            "tokenizer_class": self.tokenizer.name,
            "update_embeddings": self.update_embeddings,
            "max_seq_length": self.max_length,
        }
        write_json(folder / CONFIG, settings)
        write_tensors(folder, {TABLE: self.table.weight})
        self.tokenizer.write(folder)

    @classmethod
    def from_words(
        cls, words: Sequence[str], vectors: Tensor, update_embeddings: bool = False, lowercase: bool = False
    ) -> WordEmbeddings:
        """A table of V words and their vectors (V, D), with a zero row for padding before them."""
        zero = torch.zeros(1, vectors.shape[1])
        tokenizer = WhitespaceTokenizer([PADDING_TOKEN, *words], lowercase=lowercase)
        return cls(tokenizer, torch.cat([zero, vectors.float()]), update_embeddings)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)
