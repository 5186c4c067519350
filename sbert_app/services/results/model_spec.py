"""A model and a pooling as one line of text, so that a table can hold one model under several poolings.

all-MiniLM-L6-v2        its own pooling
all-MiniLM-L6-v2:cls    the same weights under CLS pooling; likewise :mean, :max, :lasttoken, …
all-MiniLM-L6-v2?dim=64 the first 64 dimensions; likewise ?prompt_name=query (`training.models.reference`)
tfidf, glove, minilm-stsb, run:<id>, a Hub id, a folder, a file of word vectors
"""

from __future__ import annotations

from typing import NamedTuple

from training.errors import InputError
from training.models.reference import parse_reference
from training.registry import CROSS_ENCODERS, GLOVE, TFIDF

POOLINGS = {
    "mean": "mean",
    "max": "max",
    "cls": "CLS",
    "lasttoken": "last-token",
    "weightedmean": "weighted-mean",
    "mean_sqrt_len_tokens": "mean × √length",
}
LABELS = {
    TFIDF: "TF-IDF",
    GLOVE: "GloVe average, 50 d",
    **{name: f"{name} (cross-encoder)" for name in CROSS_ENCODERS},
}


class ModelSpec(NamedTuple):
    """A model's name and the requested pooling; None is the model's own."""

    name: str
    pooling: str | None

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Read ``name`` or ``name:pooling``. Raises InputError if there is no name."""
        name, _, pooling = text.strip().rpartition(":")
        spec = cls(name, pooling) if pooling in POOLINGS else cls(text.strip(), None)
        if not spec.name:
            raise InputError(f"{text!r} names no model; write a name such as all-MiniLM-L6-v2 or all-MiniLM-L6-v2:cls")
        return spec

    def with_dimension(self, dimension: int) -> str:
        """The line of the same model and pooling with the first ``dimension`` numbers of each vector."""
        name = str(parse_reference(self.name)._replace(dimension=dimension))
        return f"{name}:{self.pooling}" if self.pooling else name

    @property
    def label(self) -> str:
        """The name in tables."""
        stated = parse_reference(self.name)
        name = stated._replace(name=LABELS.get(stated.name, stated.name)).label
        return f"{name}, {POOLINGS[self.pooling]} pooling" if self.pooling else name
