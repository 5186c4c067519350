"""Fingerprints: what a result depends on, as short texts. Equal fingerprints, equal scores. No model is loaded.

A name is not enough: a run continues training, a folder is replaced, a file is edited. A model is identified by its
files (names, sizes, modification times), a data set by its sentences and gold scores.
"""

from __future__ import annotations

from pathlib import Path

from sbert_app.services.cache import digest
from sbert_app.services.results.model_spec import ModelSpec
from training.assets import asset
from training.data.dataset import Dataset
from training.errors import InputError
from training.models.reference import bare_name
from training.models.saved_model import PREFIX
from training.models.scorer import CROSS, ENCODER, kind_of
from training.registry import CROSS_ENCODERS, GLOVE, TFIDF
from training.sources.home import home_folder
from training.sources.resolve import glove_folder, model_folder

VERSION = "1"  # increase it when the same model would give other scores, e.g. after a change of a baseline's tokens
ADAPTERS = asset("cross-encoder")


def model_fingerprint(spec: ModelSpec, home: Path) -> str:
    """Changes with the model's files and the pooling. Raises InputError if the model cannot be resolved."""
    return digest([VERSION, spec.name, spec.pooling or "", *_files(bare_name(spec.name), home_folder(home))])


def data_fingerprint(data: Dataset) -> str:
    """Changes with the sentences and the gold scores."""
    return digest([*(text for column in data.columns for text in column), *map(repr, data.scores or ())])


def _files(name: str, home: Path) -> list[str]:
    """One text for each file that the model is loaded from; none where the code alone decides."""
    kind = kind_of(name)
    if name == TFIDF or name.startswith("scratch:"):
        return []
    if name in CROSS_ENCODERS:
        return [*_stat(ADAPTERS / name), *_stat(model_folder(CROSS_ENCODERS[name], home).path)]
    if kind == ENCODER or (kind == CROSS and not (Path(name).expanduser() / "head.safetensors").is_file()):
        return _stat(model_folder(name, home).path)
    return _stat(glove_folder(home).path if name == GLOVE else Path(name.removeprefix(PREFIX)).expanduser())


def _stat(path: Path) -> list[str]:
    """Name, size and modification time of a folder's files, or of a file and those that share its stem."""
    try:
        same_stem = (file for file in path.parent.iterdir() if file.name.startswith(path.stem))
        files = path.rglob("*") if path.is_dir() else same_stem
        stats = [(file, file.stat()) for file in sorted(files) if file.is_file()]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return [f"{file.name} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats]
