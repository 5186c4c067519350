"""Tables of vectors, WordEmbeddings of words and StaticEmbedding of sub-words; the LSTM; WordBackbone, made of these.

The tokenizer of words is sentence-transformers' WhitespaceTokenizer: each piece of text between white space is looked
up as it is, then without punctuation around it, then in lower case; what is not found, and stop words, are left out.
The BigramTokenizer finds pairs of adjacent words too, for which that library has no tokenizer. A StaticEmbedding's is
a tokenizers.Tokenizer; special tokens are not added, and texts are cut where its file says. model2vec's folders open.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from training.errors import InputError, first_line
from training.models.files import load_weights, read_object, read_tensors, write_json, write_tensors
from training.models.settings import checked
from training.models.sizes import check_module_sizes
from training.models.texts import check_growth

CONFIG, TOKENIZER_CONFIG = "wordembedding_config.json", "whitespacetokenizer_config.json"
TABLE = "emb_layer.weight"
PADDING_TOKEN = "PADDING_TOKEN"  # noqa: S105 - the first row of tables made from text files: a zero vector
NO_LIMIT = 1_000_000  # words of a sentence


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

    def __init__(self, vocabulary: Iterable[str], stop_words: Iterable[str] = (), lowercase: bool = False) -> None:
        self.rows = {word: row for row, word in enumerate(vocabulary)}
        # The id of a text without words: in tables made from text files that of the padding, else one more.
        self.pad_id = self.rows.get(PADDING_TOKEN, len(self.rows))
        self.stop_words, self.lowercase = frozenset(stop_words), lowercase

    def words(self, text: str) -> list[FoundWord]:
        return [
            FoundWord(form, match.group(), number, match.span())
            for number, match in enumerate(re.finditer(r"\S+", text))
            if (form := self._form(match.group())) is not None
        ]

    def encode(self, text: str, max_length: int = NO_LIMIT) -> WordEncoding:
        """The known words of a text, cut at ``max_length`` words."""
        words = self.words(text)
        tokens = self.tokens(words[:max_length])
        return WordEncoding(
            [self.rows[token.form] for token in tokens],
            [token.text for token in tokens],
            [token.number for token in tokens],
            [token.span for token in tokens],
            [WordEncoding([], [], [], [], [])] if len(words) > max_length else [],
        )

    def tokens(self, words: list[FoundWord]) -> list[FoundWord]:
        """The words that are looked up for these: they themselves."""
        return words

    def write(self, folder: Path) -> None:
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
        bigrams = [
            FoundWord(form, f"{first.text} {second.text}", first.number, (first.span[0], second.span[1]))
            for first, second in pairwise(words)
            if (form := bigram(first, second)) in self.rows
        ]
        return words + bigrams


def bigram(first: FoundWord, second: FoundWord) -> str:
    """Two adjacent words as they stand in a vocabulary. No single word has a space in it."""
    return f"{first.form} {second.form}"


TOKENIZERS = {"WhitespaceTokenizer": WhitespaceTokenizer, "BigramTokenizer": BigramTokenizer}


class WordEmbeddings(nn.Module):
    """Words to vectors: (B, T) int64 -> (B, T, D) float32."""

    def __init__(
        self, tokenizer: WhitespaceTokenizer, vectors: Tensor, trainable: bool = False, max_length: int = NO_LIMIT
    ) -> None:
        super().__init__()
        if len(vectors) != len(tokenizer.rows):
            raise InputError(f"there are {len(tokenizer.rows):,} words, but {len(vectors):,} word vectors")
        self.tokenizer, self.trainable, self.max_length = tokenizer, trainable, max_length
        zeros = torch.zeros(int(tokenizer.pad_id == len(vectors)), vectors.shape[1])
        table = torch.cat([vectors.float(), zeros])
        self.table = nn.Embedding.from_pretrained(table, freeze=not trainable)

    @classmethod
    def read(cls, folder: Path) -> WordEmbeddings:
        """Open the module in ``folder``. InputError if a file is missing or damaged, or of another tokenizer."""
        config = read_object(folder / CONFIG)
        package, _, kind = str(config.get("tokenizer_class", WhitespaceTokenizer.name)).rpartition(".")
        if kind not in TOKENIZERS or package.partition(".")[0] != TOKENIZERS[kind].name.partition(".")[0]:
            raise InputError(f"{folder.name} splits text by {kind}; only {', '.join(TOKENIZERS)} are supported")
        words = read_object(folder / TOKENIZER_CONFIG)
        checked(folder.name, CONFIG, config, ("tokenizer_class", "update_embeddings", "max_seq_length"))
        checked(folder.name, TOKENIZER_CONFIG, words, ("vocab", "stop_words", "do_lower_case"))
        try:
            tokenizer = TOKENIZERS[kind](words["vocab"], words.get("stop_words", ()), bool(words.get("do_lower_case")))
            vectors = read_tensors(folder)[TABLE]
        except (KeyError, TypeError) as error:
            raise InputError(f"{folder} lacks {error}; fetch the model again") from error
        longest = config.get("max_seq_length") or NO_LIMIT
        return cls(tokenizer, vectors, bool(config.get("update_embeddings")), int(longest))

    def write(self, folder: Path) -> None:
        settings = {"update_embeddings": self.trainable, "max_seq_length": self.max_length}
        write_json(folder / CONFIG, {"tokenizer_class": self.tokenizer.name, **settings})
        write_tensors(folder, {TABLE: self.table.weight[: len(self.tokenizer.rows)]})
        self.tokenizer.write(folder)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


TOKENIZER, STATIC_TABLE = "tokenizer.json", "embedding.weight"


class StaticEmbedding(nn.Module):
    """Tokens to vectors: (B, T) int64 -> (B, T, D) float32.

    The table has one row more than the vocabulary: zero, for a text without tokens.
    """

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor) -> None:
        """``vectors``: (V, D), of any floating dtype."""
        super().__init__()
        self.tokenizer = tokenizer
        zero = torch.zeros(1, vectors.shape[1])
        self.table = nn.Embedding.from_pretrained(torch.cat([vectors.float(), zero]), freeze=False)

    @property
    def max_length(self) -> int | None:
        """The most tokens of a text, by the truncation in tokenizer.json; None if it states none."""
        return self.tokenizer.truncation["max_length"] if self.tokenizer.truncation else None

    @property
    def vectors(self) -> Tensor:
        """(V, D) float32, without the row for texts without tokens."""
        return self.table.weight.detach()[:-1]

    @classmethod
    def read(cls, folder: Path) -> StaticEmbedding:
        """Open the module in ``folder``. InputError if a file is missing or damaged."""
        file = folder / TOKENIZER
        if not file.is_file():
            raise InputError(f"{file} is missing; fetch the model again")
        try:
            tokenizer = Tokenizer.from_file(str(file))
            tokenizer.no_padding()
        except Exception as error:
            raise InputError(f"{file} is no tokenizer: {first_line(error)}") from error
        check_growth(tokenizer)
        vectors = _vectors_of(read_tensors(folder), folder)
        if vectors.ndim != 2 or len(vectors) < tokenizer.get_vocab_size():
            raise InputError(
                f"{folder} has vectors {[*vectors.shape]} for {tokenizer.get_vocab_size():,} tokens; fetch it again"
            )
        return cls(tokenizer, vectors)

    def write(self, folder: Path) -> None:
        write_tensors(folder, {STATIC_TABLE: self.vectors})
        self.tokenizer.save(str(folder / TOKENIZER))

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


def _vectors_of(tensors: dict[str, Tensor], folder: Path) -> Tensor:
    """The table (V, D). model2vec stores it as embeddings, optionally shared by tokens (mapping), and weights."""
    if STATIC_TABLE in tensors:
        return tensors[STATIC_TABLE]
    if "embeddings" not in tensors:
        raise InputError(f"the weights in {folder} hold no table of embeddings; fetch the model again")
    vectors = tensors["embeddings"].float()
    try:
        if "mapping" in tensors:
            vectors = vectors[tensors["mapping"].long()]
        return vectors * tensors["weights"].float()[:, None] if "weights" in tensors else vectors
    except (IndexError, RuntimeError) as error:
        raise InputError(f"the weights in {folder} do not fit each other: {first_line(error)}") from error


LSTM_CONFIG = "lstm_config.json"
LSTM_SETTINGS = ("embedding_dimension", "hidden_dim", "num_layers", "dropout", "bidirectional")


class LSTM(nn.Module):
    """(B, T, D) -> (B, T, H), or (B, T, 2H) if bidirectional. Padding has no effect on real tokens."""

    def __init__(
        self,
        embedding_dimension: int,
        hidden_dim: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        values = (embedding_dimension, hidden_dim, num_layers, dropout, bidirectional)
        self.settings = dict(zip(LSTM_SETTINGS, values, strict=True))
        self.encoder = nn.LSTM(
            embedding_dimension, hidden_dim, num_layers, batch_first=True, dropout=dropout, bidirectional=bidirectional
        )

    @property
    def dimension(self) -> int:
        """D of the token vectors that it returns."""
        return self.encoder.hidden_size * (2 if self.encoder.bidirectional else 1)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """``mask`` (B, T), not 0 for real tokens, which come first in each row; None = all are real."""
        if mask is None:
            return self.encoder(hidden)[0]
        lengths = mask.long().sum(dim=1).clamp(min=1)
        if hidden.device.type == "cpu" and not (self.training and self.encoder.dropout):
            return self._by_direction(hidden, lengths)
        lengths = lengths.cpu()
        packed = pack_padded_sequence(hidden, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=hidden.shape[1])[0]

    def _by_direction(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """``forward`` without packing. ``lengths`` (B,): real tokens of each row, which come first."""
        position = torch.arange(hidden.shape[1])
        order = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)[:, :, None]
        for layer in range(self.encoder.num_layers):
            parts = [self._read_forwards(hidden, f"l{layer}")]
            if self.encoder.bidirectional:
                turned = hidden.gather(1, order.expand_as(hidden))
                backwards = self._read_forwards(turned, f"l{layer}_reverse")
                parts.append(backwards.gather(1, order.expand_as(backwards)))
            hidden = torch.cat(parts, dim=2)
        return hidden

    def _read_forwards(self, hidden: Tensor, suffix: str) -> Tensor:
        """One layer in one direction, by the weights whose names end so: (B, T, D) -> (B, T, H)."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = [getattr(self.encoder, f"{name}_{suffix}") for name in names]
        start = hidden.new_zeros(1, len(hidden), self.encoder.hidden_size)
        return torch.lstm(hidden, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]

    @classmethod
    def read(cls, folder: Path) -> LSTM:
        """Open the module in ``folder``. InputError if a file is missing or damaged."""
        config = read_object(folder / LSTM_CONFIG)
        config.setdefault("embedding_dimension", config.pop("word_embedding_dimension", None))
        settings: dict[str, Any] = checked(folder.parent.name, f"{folder.name}/{LSTM_CONFIG}", config, LSTM_SETTINGS)
        check_module_sizes(folder, settings)
        try:
            module = cls(**settings)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{folder / LSTM_CONFIG} cannot be used: {first_line(error)}") from error
        load_weights(module, folder)
        return module

    def write(self, folder: Path) -> None:
        write_json(folder / LSTM_CONFIG, self.settings)
        write_tensors(folder, self.state_dict())


class WordBackbone(nn.Module):
    """The modules before the pooling. ``input_module`` holds the table and the tokenizer."""

    def __init__(self, input_module: WordEmbeddings | StaticEmbedding, layers: Sequence[LSTM] = ()) -> None:
        super().__init__()
        self.input_module = input_module
        self.layers = nn.ModuleList(layers)
        self._empty_id = input_module.tokenizer.pad_id if isinstance(input_module, WordEmbeddings) else -1
        dimension = input_module.table.embedding_dim
        for layer in layers:
            if (size := layer.encoder.input_size) != dimension:
                raise InputError(f"an LSTM takes vectors of {size} dimensions, but gets {dimension}")
            dimension = layer.dimension
        # The part of a transformer's config that is asked for.
        self.config = SimpleNamespace(hidden_size=dimension, model_type=type(input_module).__name__)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.input_module.table

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> SimpleNamespace:
        """Token ids (B, T), or their vectors (B, T, D), and a mask that is not 0 for real tokens; None = all are."""
        hidden = self.input_module(input_ids) if inputs_embeds is None else inputs_embeds
        for layer in self.layers:
            hidden = layer(hidden, attention_mask)
            if input_ids is not None:
                # Of a text without words, too, an LSTM has a state.
                hidden = hidden * input_ids.ne(self._empty_id)[..., None]
        return SimpleNamespace(last_hidden_state=hidden)
