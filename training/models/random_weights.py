"""Models with random weights, and the vocabulary of a language model that starts from random weights.

    scratch:<layers>x<dim>   a BERT
    scratch:bilstm           InferSent (Conneau et al. 2017): GloVe -> bidirectional LSTM -> maximum over time
    scratch:dan              Deep Averaging Network (Iyyer et al. 2015): the sum of the word vectors, divided by the
                             square root of their number -> two feed-forward layers

Both networks over words are far smaller than the published ones (InferSent: GloVe with 300
dimensions, an LSTM with 2,048 in each direction), so that they train in minutes on a CPU. As in the
papers, the LSTM does not train GloVe's vectors; the averaging network trains its own, which start
from GloVe's. The vocabulary consists of the words of a run's training data and GloVe's most
frequent words. Without GloVe, word vectors are random and trained, and the vocabulary consists of
the words of the data.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn

from training.catalogue import BILSTM, DEFAULT_MODEL, GLOVE, WORD_ENCODERS
from training.errors import InputError, NotFoundError
from training.models.folder import ModelFolder, ModelFormat
from training.models.loading import (
    DEFAULT_MAX_LENGTH,
    NO_LIMIT,
    import_lock,
    max_input_length,
    open_tokenizer,
    own_form,
)
from training.models.modules import Dense, EncoderParts
from training.models.word_networks import WordBackbone
from training.models.word_vectors import TREEBANK, read_glove
from training.names import ModelName

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY_SIZE = 8_192
MOST_LETTERS = 1_000  # the most frequent letters, each of which is a word piece
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
FREQUENT = 50_000  # words of GloVe that are in every vocabulary
LSTM_DIMENSION = 512  # in each direction
DENSE_DIMENSION = 512
# Word vectors without GloVe: the same dimensions and about the same standard deviation.
RANDOM_DIMENSION = 50
RANDOM_DEVIATION = 0.4
PADDING_TOKEN = "PADDING_TOKEN"  # noqa: S105 - the first row of sentence-transformers' tables: a zero vector


def random_parts(
    name: ModelName, home: str | Path | None, seed: int, vocabulary_of: Iterable[str]
) -> EncoderParts:
    """Makes the parts of ``scratch:`` with random weights. A transformer uses the default model's tokenizer.

    InputError if ``name`` is not a network that can start from random weights.
    """
    if name.name in WORD_ENCODERS:
        return random_word_parts(name.name, vocabulary_of, seed, home)
    if name.scratch_shape is None:
        raise InputError(f"{name} is none of scratch:<layers>x<dim>, {' and '.join(WORD_ENCODERS)}")
    layers, dimension = name.scratch_shape
    folder = ModelFolder.of(DEFAULT_MODEL, home)
    tokenizer = open_tokenizer(folder)
    # The settings of the default model, from its pooling to its longest input.
    form = own_form(DEFAULT_MODEL, folder)
    backbone = random_backbone(layers, dimension, len(tokenizer), seed)
    longest = max_input_length(tokenizer, backbone, form.max_length)
    # What the default model does after its transformer is left out.
    form = replace(form, pooling="mean", normalizes=False, sentence_modules=(), max_length=longest)
    return EncoderParts(backbone, tokenizer, form, "random weights", nn.Sequential())


def random_backbone(
    layers: int,
    dimension: int,
    vocabulary: int,
    seed: int,
    positions: int = DEFAULT_MAX_LENGTH,
    predicts: bool = False,
) -> nn.Module:
    """Makes a BERT with random weights, for texts of at most ``positions`` tokens.

    ``predicts`` adds the head for masked tokens. InputError if the shape is out of range.
    """
    with import_lock:
        from transformers import BertConfig, BertForMaskedLM, BertModel

    has_width = 32 <= dimension <= 1024 and dimension % 32 == 0
    if not 1 <= layers <= 24 or not has_width:
        raise InputError(
            f"scratch:{layers}x{dimension} is out of range: 1 to 24 layers, 32 to 1024 dimensions in steps of 32"
        )
    # 64 as in BERT, or 32 as in MiniLM.
    head_size = 64 if dimension >= 512 and dimension % 64 == 0 else 32
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=layers,
        num_attention_heads=dimension // head_size,
        intermediate_size=4 * dimension,
        max_position_embeddings=positions,
    )
    # The seed must not change the caller's random numbers. The weights are drawn on the CPU.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config) if predicts else BertModel(config)


def train_vocabulary(sentences: Iterable[str], size: int | None = None) -> Tokenizer:
    """Trains a lower-casing tokenizer like BERT's on the sentences, with at most ``size`` word pieces (None: 8,192).

    Source: Devlin et al. 2019, section 3. The pieces are chosen as in byte pair encoding (Sennrich
    et al. 2016).
    """
    sentences = list(sentences)
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts = Counter(chain.from_iterable(map(normalizer.normalize_str, sentences)))
    frequent = counts.most_common(MOST_LETTERS)
    letters = sorted(letter for letter, _ in frequent if not letter.isspace())
    # The trainer numbers the letters inside of words in the order of a hash table, and orders
    # equally frequent pairs by these numbers. Passing the letters as special tokens fixes the
    # numbers, so the result is always the same.
    inside = [f"##{letter}" for letter in letters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size or VOCABULARY_SIZE,
        special_tokens=[*SPECIAL.values(), *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learner: Any = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(sentences, trainer)
    # The letters are not special tokens of the result.
    pieces = models.WordPiece(learner.get_vocab(), unk_token=SPECIAL["unk_token"])
    tokenizer: Any = Tokenizer(pieces)
    tokenizer.normalizer = learner.normalizer
    tokenizer.pre_tokenizer = learner.pre_tokenizer
    sep = SPECIAL["sep_token"]
    cls = SPECIAL["cls_token"]
    tokenizer.post_processor = processors.BertProcessing(
        (sep, tokenizer.token_to_id(sep)),
        (cls, tokenizer.token_to_id(cls)),
    )
    return tokenizer


def as_bert_tokenizer(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    """Wraps a tokenizer as one of transformers, for texts of at most ``max_length`` tokens."""
    # transformers takes seconds to import.
    from transformers import BertTokenizerFast

    return BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **SPECIAL)


class Words(NamedTuple):
    """Words and their vectors (V, D) float32."""

    forms: list[str]
    vectors: Tensor
    source: str  # where the vectors came from, in words
    are_random: bool


def random_word_parts(
    name: str, sentences: Iterable[str], seed: int, home: str | Path | None
) -> EncoderParts:
    """Makes the network ``name``, one of `WORD_ENCODERS`, with random weights.

    Its vocabulary contains the words of ``sentences``. InputError if there are neither sentences
    nor GloVe.
    """
    with import_lock:
        from sentence_transformers.sentence_transformer.modules import LSTM, WordEmbeddings
        from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    texts = list(dict.fromkeys(sentences))
    # The seed must not change the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        words = _choose_words(name, texts, home)
        dimension = words.vectors.shape[1]
        # Row 0 is the padding.
        vectors = torch.cat([torch.zeros(1, dimension), words.vectors])
        # By default, the library leaves out English stop words.
        tokenizer = WhitespaceTokenizer(
            [PADDING_TOKEN, *words.forms], stop_words=[], do_lower_case=True
        )
        head = nn.Sequential()
        if name == BILSTM:
            # As in InferSent, GloVe's vectors are not trained.
            table = WordEmbeddings(tokenizer, vectors, update_embeddings=words.are_random)
            backbone = WordBackbone(table, LSTM(dimension, LSTM_DIMENSION))
            pooling = "max"
        else:
            table = WordEmbeddings(tokenizer, vectors, update_embeddings=True)
            head.append(Dense(dimension, DENSE_DIMENSION))
            head.append(Dense(DENSE_DIMENSION, DENSE_DIMENSION))
            backbone = WordBackbone(table)
            pooling = "mean_sqrt_len_tokens"
    # These networks have no positions, and read texts of any length.
    form = ModelFormat(pooling=pooling, max_length=NO_LIMIT)
    return EncoderParts(backbone, tokenizer, form, f"random weights over {words.source}", head)


def _choose_words(name: str, texts: Sequence[str], home: str | Path | None) -> Words:
    """Returns the words of the texts and GloVe's frequent words, with GloVe's vectors.

    Without GloVe, returns the words of the texts, with random vectors. InputError, with the
    ``name`` of the network, if there are none.
    """
    # A dictionary, as a set has no order.
    words: dict[str, None] = {}
    for text in texts:
        for piece in text.lower().split():
            word = piece.strip(string.punctuation)
            if _has_letters(word):
                words[word] = None
    try:
        forms, table = read_glove(home)
        return _words_of_glove(forms, table, words)
    except NotFoundError as error:
        if not words:
            raise InputError(
                f"{name} has no words without GloVe or a run's training data: {error}"
            ) from error
    # Without GloVe, the words get random vectors.
    vectors = torch.randn(len(words), RANDOM_DIMENSION) * RANDOM_DEVIATION
    source = f"random word vectors, as GloVe is not here: {len(words):,} words of the data"
    return Words(list(words), vectors, source, are_random=True)


def _words_of_glove(forms: Sequence[str], table: np.ndarray, words: Iterable[str]) -> Words:
    """Collects GloVe's vectors of its frequent words and of ``words``. A word like don't gets the mean of its parts.

    Words that GloVe does not have are left out.
    """
    row_of = {form: row for row, form in enumerate(forms)}
    rows = {form: [row] for row, form in enumerate(forms[:FREQUENT]) if _has_letters(form)}
    for word in words:
        parts = [word] if word in row_of else TREEBANK.findall(word)
        if parts and all(part in row_of for part in parts):
            rows.setdefault(word, [row_of[part] for part in parts])
    means = [table[numbers].mean(axis=0) for numbers in rows.values()]
    vectors = torch.from_numpy(np.stack(means))
    source = f"{GLOVE} 6B, {table.shape[1]} dimensions: {len(rows):,} words"
    return Words(list(rows), vectors, source, are_random=False)


def _has_letters(form: str) -> bool:
    """Tells whether a form is a word or a number. Only some data sets separate punctuation from words."""
    return any(sign.isalnum() for sign in form)
