"""What a cell depends on, as short texts: the same text, the same scores. No model is loaded to find out.

A name is not enough: a run is trained on, a folder is replaced, a file is edited. A model is known by its files
(names, sizes, times of change), a data set by its sentences and gold scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from sbert_app.services.results.model_spec import ModelSpec
from training.assets import asset
from training.data.dataset import Dataset
from training.errors import InputError
from training.models.scorer import CROSS, ENCODER, kind_of
from training.registry import CROSS_ENCODERS, GLOVE, TFIDF
from training.sources.home import home_folder
from training.sources.resolve import glove_folder, model_folder

FORM = "1"  # changes when the same model would give other scores: another tokenisation of a baseline, say
ADAPTERS = asset("cross-encoder")


def of_model(choice: ModelSpec, home: Path) -> str:
    """A text that changes with the model's files and pooling. InputError if the model cannot be had."""
    return _digest([FORM, choice.name, choice.pooling or "", *_files(choice.name, home_folder(home))])


def of_data(data: Dataset) -> str:
    """A text that changes with the sentences and the gold scores."""
    return _digest([*(text for column in data.columns for text in column), *map(repr, data.scores or ())])


def _files(name: str, home: Path) -> list[str]:
    kind = kind_of(name)
    if name == TFIDF or name.startswith("scratch:"):
        return []  # the code alone decides
    if name in CROSS_ENCODERS:
        return [*_stamps(ADAPTERS / name), *_stamps(model_folder(CROSS_ENCODERS[name], home).path)]
    if kind == ENCODER or (kind == CROSS and not (Path(name).expanduser() / "head.safetensors").is_file()):
        return _stamps(model_folder(name, home).path)
    place = glove_folder(home).path if name == GLOVE else Path(name).expanduser()
    return _stamps(place)


def _stamps(place: Path) -> list[str]:
    """Name, size and time of change of a file and those that begin like it, or of a folder's files."""
    try:
        beside = (each for each in place.parent.iterdir() if each.name.startswith(place.stem))
        files = place.rglob("*") if place.is_dir() else beside
        found = [(file, file.stat()) for file in sorted(files) if file.is_file()]
    except OSError as error:
        raise InputError(f"{place} cannot be read: {error.strerror or error}") from error
    return [f"{file.name} {stat.st_size} {stat.st_mtime_ns}" for file, stat in found]


def _digest(parts: Iterable[str]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return state.hexdigest()[:32]
