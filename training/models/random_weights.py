"""Models of random weights: ``scratch:<layers>x<dim>``, and what language modelling starts from, with a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from training.catalogue import DEFAULT_MODEL, WORD_ENCODERS
from training.errors import InputError
from training.models.folder import ModelFolder
from training.models.loading import DEFAULT_MAX_LENGTH, encoder_format, importing, max_input_length, open_tokenizer
from training.models.modules import EncoderParts
from training.models.word_encoders import random_word_parts
from training.names import ModelName

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY_SIZE = 8_192
MOST_LETTERS = 1_000
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


def random_parts(name: ModelName, home: str | Path | None, seed: int, vocabulary_of: Iterable[str]) -> EncoderParts:
    """The parts of ``scratch:``, with random weights; a transformer borrows the default model's tokenizer.

    InputError if there are no such networks.
    """
    if name.name in WORD_ENCODERS:
        return random_word_parts(name.name, vocabulary_of, seed, home)
    folder = ModelFolder.of(DEFAULT_MODEL, home)
    if (shape := name.scratch_shape) is None:
        raise InputError(f"{name} is none of scratch:<layers>x<dim>, {' and '.join(WORD_ENCODERS)}")
    tokenizer, form = open_tokenizer(folder), encoder_format(folder)
    backbone = random_backbone(*shape, len(tokenizer), seed)
    longest = max_input_length(tokenizer, backbone, form.max_length)
    form = replace(form, pooling="mean", normalizes=False, sentence_modules=(), max_length=longest)
    return EncoderParts(backbone, tokenizer, form, "random weights", nn.Sequential())


def random_backbone(
    layers: int, dimension: int, vocabulary: int, seed: int, positions: int = DEFAULT_MAX_LENGTH, predicts: bool = False
) -> nn.Module:
    """A BERT of random weights, with heads of 32 or 64 dimensions; if it ``predicts``, with its head for masked tokens.

    InputError if the shape is out of range.
    """
    with importing:
        from transformers import BertConfig, BertForMaskedLM, BertModel

    if not 1 <= layers <= 24 or not 32 <= dimension <= 1024 or dimension % 32:
        raise InputError(
            f"scratch:{layers}x{dimension} is out of range: 1 to 24 layers, 32 to 1024 dimensions in steps of 32"
        )
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=layers,
        num_attention_heads=dimension // (64 if dimension >= 512 and dimension % 64 == 0 else 32),
        intermediate_size=4 * dimension,
        max_position_embeddings=positions,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config) if predicts else BertModel(config)


def train_vocabulary(sentences: Iterable[str], size: int | None = None) -> Tokenizer:
    """A tokenizer as BERT's, lower-cased, with at most ``size`` word pieces (8,192) that are made of the sentences.

    Source: Devlin et al. 2019, section 3; the pieces are chosen as in byte pair encoding (Sennrich et al. 2016).
    """
    sentences = list(sentences)
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts = Counter(chain.from_iterable(map(normalizer.normalize_str, sentences)))
    letters = sorted(letter for letter, _ in counts.most_common(MOST_LETTERS) if not letter.isspace())
    # The trainer numbers letters inside of words as it meets them, in the order of a hash table, and pairs that are
    # equally frequent by these numbers. Letters that have their numbers beforehand make the result the same each time.
    inside = [f"##{letter}" for letter in letters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size or VOCABULARY_SIZE,
        special_tokens=[*SPECIAL.values(), *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learner: Any = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(sentences, trainer)
    tokenizer: Any = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = learner.normalizer, learner.pre_tokenizer
    sep, cls = ((SPECIAL[name], tokenizer.token_to_id(SPECIAL[name])) for name in ("sep_token", "cls_token"))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return tokenizer


def as_bert_tokenizer(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    """The same as a tokenizer of transformers, for texts of at most ``max_length`` tokens."""
    from transformers import BertTokenizerFast

    return BertTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **SPECIAL)
