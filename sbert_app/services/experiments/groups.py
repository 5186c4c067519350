"""Which runs belong together: those of an experiment are one group in the list of all runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sbert_app.services.experiments.ablations import ablation
from sbert_app.services.experiments.experiment import SEEDS, SWEEP, ExperimentRecord, records
from sbert_app.services.runs.record import Run
from sbert_app.services.store.documents import read_document
from training.errors import InputError


@dataclass(frozen=True)
class RunGroup:
    id: str
    name: str  # which no other has: a filter by it finds these runs alone
    runs: frozenset[str]  # ids
    differ_in_seed: bool = False  # and in nothing else

    @property
    def label(self) -> str:
        """The name without the id, where its time stands beside it."""
        return self.name.removesuffix(self.id).rstrip()


def run_groups(home: Path) -> dict[str, RunGroup]:
    """The experiment of each run of a home folder that is part of one. Files that are damaged are left out."""
    groups: dict[str, RunGroup] = {}
    store = records(home)
    for key in store.ids():
        # It may have been deleted meanwhile, or be a link that leads nowhere.
        with suppress(InputError, OSError):
            group = _group(key, store.path(key), store.path(key).stat().st_mtime_ns)
            groups |= dict.fromkeys(group.runs, group)
    return groups


@lru_cache(maxsize=1_000)
def _group(key: str, path: Path, stamp: int) -> RunGroup:
    """``stamp`` is part of the cache key, so that a file is read again when it has changed: pages ask each second."""
    record = read_document(path, ExperimentRecord)
    name = f"folds: {record.name} by {record.by}"
    if record.kind == SWEEP:
        name = f"sweep: {ablation(record.name).title.lower()} {key}"
    if record.kind == SEEDS:
        name = f"{record.name}, seeds {record.by} {key}"
    return RunGroup(key, name, frozenset(plan.run for plan in record.runs if plan.run), record.kind == SEEDS)


def matches(run: Run, group: RunGroup | None, text: str) -> bool:
    """Whether a run is shown under a filter: each word of the text is in its name, id, state, settings or group."""
    config = run.config
    parts = (run.name, run.id, run.state, config.objective, config.base, config.train_data, config.pooling)
    haystack = " ".join(filter(None, (*parts, group.name if group else ""))).lower()
    return all(word in haystack for word in text.lower().split())
