"""The runs of an experiment as one line of the list of runs, and the filter of that list."""

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
    """The ids of the runs of an experiment.

    The ``label`` is for places that show the time. ``differ_in_seed`` says that the runs differ in
    nothing but the seed.
    """

    id: str
    label: str
    runs: frozenset[str]
    differ_in_seed: bool = False

    @property
    def name(self) -> str:
        """The label with the id, so that a filter by the name finds only these runs."""
        return f"{self.label} {self.id}"


def run_groups(home: Path) -> dict[str, RunGroup]:
    """The groups by the ids of their runs, without damaged experiments."""
    groups: dict[str, RunGroup] = {}
    store = records(home)
    for key in store.ids():
        # The file may have been deleted, or be a broken link.
        with suppress(InputError, OSError):
            group = _group(key, store.path(key), store.path(key).stat().st_mtime_ns)
            groups |= dict.fromkeys(group.runs, group)
    return groups


@lru_cache(maxsize=1_000)
def _group(key: str, path: Path, stamp: int) -> RunGroup:
    """The group of an experiment. Pages ask every second, so it is cached until the ``stamp`` of its file changes."""
    record = read_document(path, ExperimentRecord)
    if record.kind == SWEEP:
        label = f"sweep: {ablation(record.name).title.lower()}"
    elif record.kind == SEEDS:
        label = f"{record.name}, seeds {record.by}"
    else:
        label = f"folds: {record.name} by {record.by}"
    # Without runs that are not created yet.
    runs = frozenset(plan.run for plan in record.runs if plan.run)
    return RunGroup(key, label, runs, differ_in_seed=record.kind == SEEDS)


def matches(run: Run, group: RunGroup | None, text: str) -> bool:
    """Whether each word of the filter ``text`` is in the name, id, state, settings or group of a run."""
    config = run.config
    parts = [
        run.name,
        run.id,
        run.state,
        config.objective,
        config.base,
        config.train_data,
        config.pooling,
    ]
    if group:
        parts.append(group.name)
    haystack = " ".join(filter(None, parts)).lower()
    return all(word in haystack for word in text.lower().split())
