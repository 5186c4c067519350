"""Evaluation results on disk: the scores of a model on a data set, in HOME/cache/evaluation, by their fingerprints.

A fingerprint is what a result depends on, as a short text. Equal fingerprints, equal scores. No model is loaded. A name
is not enough: a run continues training, a folder is replaced, a file is edited. A model is identified by its files
(names, sizes, modification times), a data set by its sentences and gold scores.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from sbert_app.services.results.eval_result import EvalResult
from sbert_app.services.store.cache import DiskCache, digest
from training.assets import asset
from training.catalogue import CROSS_ENCODERS, GLOVE, TFIDF
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.metrics import SIMILARITIES
from training.evaluation.scoring import SCORE
from training.models.baselines import SAVED_MODEL
from training.models.scorer import CROSS, ENCODER, kind_of
from training.names import ModelName
from training.sources.home import home_folder
from training.sources.resolve import glove_folder, model_folder

VERSION = "1"  # increase it when the same model would give other scores, e.g. after a change of a baseline's tokens
ADAPTERS = asset("cross-encoder")


def model_fingerprint(model: ModelName, home: Path) -> str:
    """Changes with the model's files and the pooling. Raises InputError if the model cannot be resolved."""
    name = replace(model, pooling=None)
    return digest([VERSION, str(name), model.pooling or "", *_files(model, home_folder(home))])


def data_fingerprint(data: Dataset) -> str:
    """Changes with the sentences and the gold scores."""
    return digest([*(text for column in data.columns for text in column), *map(repr, data.scores or ())])


def _files(model: ModelName, home: Path) -> list[str]:
    """One text for each file that the model is loaded from; none where the code alone decides."""
    name, kind = model.name, kind_of(model)
    if name == TFIDF or model.is_scratch:
        return []
    if name in CROSS_ENCODERS:
        return [*_stat(ADAPTERS / name), *_stat(model_folder(CROSS_ENCODERS[name], home).path)]
    if kind == ENCODER or (kind == CROSS and not (Path(name).expanduser() / "head.safetensors").is_file()):
        return _stat(model_folder(name, home).path)
    return _stat(glove_folder(home).path if name == GLOVE else Path(name.removeprefix(SAVED_MODEL)).expanduser())


def _stat(path: Path) -> list[str]:
    """Name, size and modification time of a folder's files, or of a file and those that share its stem."""
    try:
        same_stem = (file for file in path.parent.iterdir() if file.name.startswith(path.stem))
        files = path.rglob("*") if path.is_dir() else same_stem
        stats = [(file, file.stat()) for file in sorted(files) if file.is_file()]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return [f"{file.name} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats]


MAX_BYTES = 100 << 20  # about 2,000 results


class EvalResultCache:
    """Results by the fingerprints of model and data (`fingerprint`). Safe for several threads and processes."""

    def __init__(self, home: Path) -> None:
        self.disk = DiskCache(home / "cache" / "evaluation", MAX_BYTES)

    def get(self, model: str, data: str) -> EvalResult | None:
        """The stored result; None if there is none with each similarity that there is now."""
        arrays = self.disk.get_arrays(f"{model}-{data}")
        if arrays is None or not any({"gold", "cost", *names} == set(arrays) for names in ([SCORE], SIMILARITIES)):
            return None
        gold, cost = arrays.pop("gold"), arrays.pop("cost")
        return EvalResult(arrays, gold, int(cost[0]), float(cost[1]), from_cache=True)

    def put(self, model: str, data: str, result: EvalResult) -> None:
        """Store a result."""
        cost = np.array([result.num_sentences, result.seconds])
        self.disk.put_arrays(f"{model}-{data}", {**result.scores, "gold": result.gold, "cost": cost})
