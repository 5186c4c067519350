"""A model's name with settings, as one line of text, wherever a model is named.

all-mpnet-base-v2?dim=256                        keep the first 256 dimensions
google/embeddinggemma-300m?prompt_name=query     put the prompt of that name before every sentence
intfloat/e5-base-v2?prompt=query%3A+             the same, the text itself
all-MiniLM-L6-v2?dtype=int8                      compute in 8-bit integers
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from training.errors import InputError

BY_ROLE = "query|document"  # as a prompt's name: the model's prompt for queries on one side, for documents on the other
SETTINGS = DIMENSION, PROMPT, PROMPT_NAME, DTYPE = "dim", "prompt", "prompt_name", "dtype"


class ModelReference(NamedTuple):
    """A model's name and how it is used; None = as its folder says."""

    name: str
    dimension: int | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    dtype: str | None = None

    def __str__(self) -> str:
        said = {DIMENSION: self.dimension, PROMPT: self.prompt, PROMPT_NAME: self.prompt_name, DTYPE: self.dtype}
        settings = urlencode({key: value for key, value in said.items() if value is not None})
        return f"{self.name}?{settings}" if settings else self.name

    @property
    def label(self) -> str:
        """In words, such as "all-mpnet-base-v2, 256 dimensions"."""
        parts = [self.name]
        if self.dimension is not None:
            parts.append(f"{self.dimension} dimensions")
        if self.prompt_name == BY_ROLE:
            parts.append("query and document prompts")
        elif self.prompt is not None or self.prompt_name is not None:
            parts.append(f"prompt {self.prompt_name or self.prompt or 'none'}")
        if self.dtype is not None:
            parts.append(self.dtype)
        return ", ".join(parts)


def parse_reference(text: str) -> ModelReference:
    """Read a model's name, with or without settings. InputError if a setting is unknown or not a number."""
    name, mark, query = text.partition("?")
    if not mark or _is_folder(text):
        return ModelReference(text)
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := set(settings) - set(SETTINGS):
        raise InputError(f"{text!r}: {min(unknown)!r} is no setting of a model; choose {', '.join(SETTINGS)}")
    number = settings.get(DIMENSION)
    if number is not None and not number.isdecimal():
        raise InputError(f"{text!r}: {DIMENSION} is {number!r}, but must be a whole number")
    dimension = None if number is None else int(number)
    return ModelReference(name, dimension, settings.get(PROMPT), settings.get(PROMPT_NAME), settings.get(DTYPE))


def bare_name(text: str) -> str:
    """The name without settings."""
    return parse_reference(text).name


def computed_name(text: str) -> str:
    """The name with the dtype alone: what has a copy of its own in memory. Other settings share one."""
    reference = parse_reference(text)
    return str(ModelReference(reference.name, dtype=reference.dtype))


def _is_folder(text: str) -> bool:
    try:
        return Path(text).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False
