"""What a model is known to have been trained on: runs by their configs, the built-in cross-encoders by their card."""

from __future__ import annotations

from pathlib import Path

from sbert_app.services.runs.store import RunStore
from training.catalogue import CROSS_ENCODERS
from training.data.dataset import Dataset
from training.data.overlap import Overlap, overlap
from training.errors import UserFacingError
from training.models.model import default_encode
from training.names import DataName, ModelName
from training.objectives import training_data
from training.sources.resolve import find_run


def trained_on(model: ModelName, home: Path) -> list[Dataset]:
    """The rows that a model has learned from, those of the runs that it started from included.

    Empty where they are not known. Sets of the Hub and files that are gone are left out.
    """
    if model.name in CROSS_ENCODERS:
        return [training_data("stsb:train", "regression", home=home)]
    if model.run_id is None:
        return []
    config = RunStore(home).get(find_run(model.run_id, home)).config
    before = trained_on(ModelName.parse(config.base), home)
    names = DataName.parse_joined(config.train_data)
    if any(name.hub_parts or (name.built_in and name.built_in.repo) for name in names):
        return before
    try:
        return before + [training_data(*part, config.seed, home) for part in config.parts]
    except UserFacingError:  # an upload that was deleted
        return before


def overlap_with(model: ModelName, data: Dataset, home: Path) -> Overlap | None:
    """How much of ``data`` a model has learned from; None where that is not known."""
    rows = trained_on(model, home)
    return overlap(data, rows, default_encode(home)) if rows else None
