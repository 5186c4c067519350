"""Distil an encoder into a static model in the home folder: models/static/<name of the encoder>-<dimensions>."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.record import slug
from training.data.load import load_data
from training.names import ModelName

PREFIX = "static/"  # of the names of these models


@dataclass(frozen=True)
class Distilled:
    model: str  # its name
    teacher: str
    dimension: int
    tokens: int  # rows of its table
    megabytes: float
    seconds: float


def distill_to_home(
    models: ModelCache, teacher: str, dimension: int, data: str = "", watch: Watch = UNWATCHED
) -> Distilled:
    """Distil ``teacher``; its static model of this dimension is replaced. ``data``: sentences to count tokens in.

    Raises InputError if the model or the data cannot be used.
    """
    from training.models.distill import distill
    from training.models.encoder import Encoder

    started = time.perf_counter()
    corpus = [text for column in load_data(data, models.home).columns for text in column] if data else None
    static = distill(models.get(teacher, Encoder), dimension, corpus, watch.on_progress, watch.should_stop)
    name = f"{PREFIX}{slug(teacher) or 'model'}-{dimension}"
    static.save(models.home / "models" / name)
    models.forget(ModelName(name))
    size = static.vocabulary_size * dimension * 4 / 1e6
    seconds = time.perf_counter() - started
    return Distilled(name, teacher, dimension, static.vocabulary_size, round(size, 1), round(seconds, 2))
