"""Which runs belong together: the cells of a sweep, the folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sbert_app.services.experiments.ablations import ablation
from sbert_app.services.experiments.folds import FoldsRecord
from sbert_app.services.experiments.record import SweepRecord
from sbert_app.services.runs.record import Run
from training.errors import InputError, UserFacingError


@dataclass(frozen=True)
class RunGroup:
    """An experiment that consists of several runs."""

    id: str
    name: str  # which no other has: a filter by it finds these runs alone
    runs: frozenset[str]  # ids

    @property
    def label(self) -> str:
        """The name without the id, where its time stands beside it."""
        return self.name.removesuffix(self.id).rstrip()


def run_groups(home: Path) -> list[RunGroup]:
    """The sweeps and the cross-validations of a home folder. Files that are damaged are left out."""
    files = [*(home / "sweeps").glob("*.json"), *(home / "folds").glob("*/folds.json")]
    groups = []
    for file in files:
        with suppress(UserFacingError, FileNotFoundError):  # deleted meanwhile
            groups.append(_read(file, file.stat().st_mtime_ns))
    return groups


def matches(run: Run, group: RunGroup | None, text: str) -> bool:
    """Whether a run is shown under a filter: each word of the text is in its name, id, state, settings or group."""
    config = run.config
    parts = (run.name, run.id, run.state, config.objective, config.base, config.train_data, config.pooling)
    haystack = " ".join(filter(None, (*parts, group.name if group else ""))).lower()
    return all(word in haystack for word in text.lower().split())


def group_of(run: Run, groups: Sequence[RunGroup]) -> RunGroup | None:
    """The group that a run belongs to."""
    return next((group for group in groups if run.id in group.runs), None)


@lru_cache(maxsize=512)
def _read(file: Path, stamp: int) -> RunGroup:
    """``stamp`` is part of the cache key, so that a file is read again when it has changed."""
    if file.name == "folds.json":
        folds = FoldsRecord.read(file)
        return RunGroup(folds.id, f"folds: {folds.data} by {folds.by}", frozenset(fold.run for fold in folds.folds))
    sweep = SweepRecord.read(file)
    runs = frozenset(run for run in sweep.runs.values() if run)
    if not runs:
        raise InputError(f"{file} has no run yet")
    return RunGroup(file.stem, f"sweep: {ablation(sweep.ablation).title.lower()} {file.stem}", runs)
