"""Models of random weights: ``scratch:<layers>x<dim>``, and what language modelling starts from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.catalogue import DEFAULT_MODEL, WORD_ENCODERS
from training.errors import InputError
from training.models.folder import ModelFolder
from training.models.loading import encoder_format, importing, max_input_length, open_tokenizer
from training.models.modules import EncoderParts
from training.models.word_encoders import random_word_parts
from training.names import ModelName


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


def random_backbone(layers: int, dimension: int, vocabulary: int, seed: int) -> nn.Module:
    """A BERT of the given shape with random weights; heads of 32 or 64 dimensions, as in MiniLM and BERT.

    InputError if the shape is out of range.
    """
    with importing:
        from transformers import BertConfig, BertModel

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
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertModel(config)


def random_language_model(layers: int, dimension: int, vocabulary: int, max_length: int | None, seed: int) -> nn.Module:
    """A BERT of the given shape with its language-modelling head, with random weights."""
    with importing:
        from transformers import BertForMaskedLM

    config: Any = random_backbone(layers, dimension, vocabulary, seed).config
    config.max_position_embeddings = max_length or config.max_position_embeddings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config)
