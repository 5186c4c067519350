"""Encoders over word vectors with random weights: InferSent's network, and a Deep Averaging Network.

    scratch:bilstm   InferSent (Conneau et al. 2017): GloVe -> bidirectional LSTM -> maximum over time
    scratch:dan      Deep Averaging Network (Iyyer et al. 2015, with the bigrams of Cer et al. 2018):
                     the sum of word and bigram vectors by the square root of their number -> two feed-forward layers

Both are far smaller than the published ones (InferSent: GloVe of 300 dimensions, an LSTM of 2,048 in each direction),
so that they train in minutes on a CPU. As in the papers, the LSTM leaves GloVe's vectors as they are; the averaging
network trains its own, which start as GloVe's, those of bigrams at zero. The vocabulary is that of a run's training
data and GloVe's most frequent words; other words are left out. Where GloVe cannot be had, word vectors are random and
trained, and the vocabulary is that of the data alone.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from training.catalogue import BILSTM, GLOVE
from training.errors import InputError, NotFoundError
from training.models.folder import ModelFormat
from training.models.modules import LSTM, Dense, EncoderParts, StaticEmbedding, WordEmbeddings
from training.models.modules.words import PADDING_TOKEN, BigramTokenizer, WhitespaceTokenizer, bigram
from training.models.word_vectors import TREEBANK, read_glove


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

    @property
    def is_static(self) -> bool:
        """Whether a token's vector does not depend on the others."""
        return not len(self.layers)

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


FREQUENT = 50_000  # words of GloVe that are in every vocabulary
LSTM_DIMENSION = 512  # in each direction
DENSE_DIMENSION = 512
RANDOM_DIMENSION, RANDOM_DEVIATION = 50, 0.4  # of word vectors without GloVe: its dimensions, about its deviation
MIN_BIGRAMS = 3  # occurrences of a bigram that gets a vector
MOST_BIGRAMS = 100_000


class Words(NamedTuple):
    """Words and their vectors (V, D) float32."""

    forms: list[str]
    vectors: Tensor
    source: str  # in words
    are_random: bool


def random_word_parts(
    name: str, sentences: Iterable[str] = (), seed: int = 0, home: str | Path | None = None
) -> EncoderParts:
    """The network ``name``, of `WORD_ENCODERS`, with random weights.

    The words and the frequent bigrams of ``sentences`` are in its vocabulary. InputError if there are neither sentences
    nor GloVe.
    """
    texts = list(dict.fromkeys(sentences))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        words = _words(name, texts, home)
        dimension, head = words.vectors.shape[1], nn.Sequential()
        if name == BILSTM:
            module = WordEmbeddings.from_words(words.forms, words.vectors, words.are_random, lowercase=True)
            backbone, pooling = WordBackbone(module, [LSTM(dimension, LSTM_DIMENSION)]), "max"
        else:
            module = _with_bigrams(words, texts)
            head.extend([Dense(dimension, DENSE_DIMENSION), Dense(DENSE_DIMENSION, DENSE_DIMENSION)])
            backbone, pooling = WordBackbone(module), "mean_sqrt_len_tokens"
    form = ModelFormat(pooling=pooling, max_length=module.max_length, input_module="WordEmbeddings")
    return EncoderParts(backbone, module.tokenizer, form, f"random weights over {words.source}", head)


def _with_bigrams(words: Words, texts: Sequence[str]) -> WordEmbeddings:
    """A table of the words and of the frequent bigrams of the texts, whose vectors are 0."""
    forms = [PADDING_TOKEN, *words.forms]
    tokenizer = WhitespaceTokenizer(forms, lowercase=True)
    counts = Counter(bigram(*pair) for text in texts for pair in pairwise(tokenizer.words(text)))
    bigrams = [form for form, count in counts.most_common(MOST_BIGRAMS) if count >= MIN_BIGRAMS]
    dimension = words.vectors.shape[1]
    vectors = torch.cat([torch.zeros(1, dimension), words.vectors, torch.zeros(len(bigrams), dimension)])
    return WordEmbeddings(BigramTokenizer([*forms, *bigrams], lowercase=True), vectors, update_embeddings=True)


def _words(name: str, texts: Sequence[str], home: str | Path | None) -> Words:
    pieces = (piece.strip(string.punctuation) for text in texts for piece in text.lower().split())
    occurring = dict.fromkeys(filter(_has_letters, pieces))
    try:
        return _of_glove(*read_glove(home), occurring)
    except NotFoundError as error:
        if not occurring:
            raise InputError(f"{name} has no words without GloVe or a run's training data: {error}") from error
    vectors = torch.randn(len(occurring), RANDOM_DIMENSION) * RANDOM_DEVIATION
    source = f"random word vectors, as GloVe is not here: {len(occurring):,} words of the data"
    return Words(list(occurring), vectors, source, are_random=True)


def _of_glove(forms: Sequence[str], table: np.ndarray, occurring: Iterable[str]) -> Words:
    """The words that occur and frequent ones, with GloVe's vectors; of those in parts, as don't (do, n't), the mean."""
    row_of = {form: row for row, form in enumerate(forms)}
    rows = {form: [row] for row, form in enumerate(forms[:FREQUENT]) if _has_letters(form)}
    for word in occurring:
        parts = [word] if word in row_of else TREEBANK.findall(word)
        if parts and all(part in row_of for part in parts):
            rows.setdefault(word, [row_of[part] for part in parts])
    vectors = torch.stack([torch.from_numpy(table[numbers].mean(axis=0)) for numbers in rows.values()])
    source = f"{GLOVE} 6B, {table.shape[1]} dimensions: {len(rows):,} words"
    return Words(list(rows), vectors, source, are_random=False)


def _has_letters(form: str) -> bool:
    """Whether it is a word or a number. Punctuation is not: some data sets set it apart, others do not."""
    return any(sign.isalnum() for sign in form)
