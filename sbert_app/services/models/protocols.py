"""What services need of models, so that any object with these methods serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np


class SentenceEncoder(Protocol):
    """A bi-encoder, such as `training.models.encoder.Encoder`."""

    @property
    def name(self) -> str: ...
    @property
    def pooling(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Callable[[int, int | None], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> np.ndarray: ...


class PairPredictor(Protocol):
    """A cross-encoder, such as `training.models.cross_encoder.CrossEncoder`."""

    @property
    def name(self) -> str: ...
    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> np.ndarray: ...
