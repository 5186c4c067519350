"""Starting points of a run (``assets/presets.json``): what to set, and what it teaches. The page shows them as buttons.

The recipes of the paper (sections 3.1 and 4) start from a raw BERT and need the Hub. Ours start from the model that
ships, which was already trained on sentence pairs, so that they work anywhere and the curves rise less; each says
which base the paper had.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sbert_app.services.runs.record import Run
from sbert_app.services.store.documents import read_document
from training.catalogue import DEFAULT_MODEL, asset
from training.names import ModelName
from training.trainer.config import RunConfig

NLI = ("nli", "snli", "mnli", "all-nli")


@dataclass(frozen=True)
class Preset:
    """``values`` are fields of a `RunConfig`; those left out keep their default."""

    title: str
    lesson: str
    values: dict[str, Any] = field(default_factory=dict)

    def config(self) -> RunConfig:
        return RunConfig(**self.fields())

    def fields(self) -> dict[str, Any]:
        """A value for each field of a run; the data may still have to be chosen."""
        return RunConfig("regression", pooling="mean").to_dict() | self.values


PRESETS = read_document(asset("presets.json"), dict[str, Preset])


def two_stage_base(runs: Iterable[Run]) -> str:
    """The newest run on NLI data that has a model, as a base; the default base if there is none."""
    for run in runs:
        if run.has_model and run.config.train_data.partition(":")[0] in NLI:
            return str(ModelName.of_run(run.id))
    return DEFAULT_MODEL
