"""open_modules: the modules of an encoder, by the name of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from training.models.loading import (
    default_pooling,
    max_input_length,
    open_head,
    open_input_module,
    open_tokenizer,
    random_backbone,
)
from training.models.model_format import ModelFormat, read_model_format
from training.models.word_backbone import WordBackbone
from training.models.word_encoders import build_word_encoder
from training.registry import DEFAULT_MODEL, WORD_ENCODERS
from training.sources.resolve import model_folder

SCRATCH = re.compile(r"scratch:(\d{1,2})x(\d{1,4})")  # a transformer of random weights: layers, dimension


class OpenedModules(NamedTuple):
    """What `open_modules` found."""

    backbone: nn.Module
    tokenizer: Any
    head: nn.Sequential
    model_format: ModelFormat  # with a pooling and a longest input
    source: str  # where it is from, in words


def open_modules(
    name: str, home: str | Path | None = None, seed: int = 0, vocabulary_of: Iterable[str] = ()
) -> OpenedModules:
    """Open a model by name, without settings. Arguments and errors are those of `Encoder.load`."""
    opened = _open(name, home, seed, vocabulary_of)
    model_format = replace(
        opened.model_format,
        pooling=opened.model_format.pooling or default_pooling(opened.backbone),
        max_length=_longest_input(opened.model_format, opened.tokenizer, opened.backbone),
    )
    return opened._replace(model_format=model_format)


def _open(name: str, home: str | Path | None, seed: int, vocabulary_of: Iterable[str]) -> OpenedModules:
    if name in WORD_ENCODERS:
        made = build_word_encoder(name, vocabulary_of, seed, home)
        return OpenedModules(
            made.backbone, made.backbone.input_module.tokenizer, made.head, made.model_format, made.source
        )
    scratch = SCRATCH.fullmatch(name)
    resolved = model_folder(DEFAULT_MODEL if scratch else name, home)  # random weights borrow its tokenizer
    model_format = read_model_format(resolved.path)
    if scratch:
        tokenizer = open_tokenizer(model_format.transformer)
        backbone = random_backbone(int(scratch[1]), int(scratch[2]), len(tokenizer), seed)
        model_format = replace(model_format, pooling="mean", normalizes=False)
        return OpenedModules(backbone, tokenizer, nn.Sequential(), model_format, "random weights")
    return OpenedModules(*open_input_module(model_format), open_head(model_format), model_format, resolved.source)


def _longest_input(model_format: ModelFormat, tokenizer: Any, backbone: nn.Module) -> int | None:
    """The most tokens of an input; None of a static embedding, which truncates nothing."""
    if isinstance(backbone, WordBackbone):
        return getattr(backbone.input_module, "max_length", None)
    longest = max_input_length(tokenizer, backbone)
    return min(model_format.max_length or longest, longest)
