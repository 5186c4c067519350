"""Ablations: a grid of RunConfigs times seeds -> runs -> a table with intervals.

    sweep = Sweeps(jobs).start("pooling", seeds=3, changes={"max_steps": 200})
    Sweeps(jobs).get(sweep.id).rows

The runs are ordinary runs, queued one after another (`jobs.queue`); to close the page or to kill the app changes
nothing for them. The sweep's own file names them (`sweeps.record`), so that any process reads it back. A
cell whose run was deleted gets a new one when the sweep is resumed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from sbert_app.services.experiments.ablations import ablation
from sbert_app.services.experiments.record import Sweep, SweepCell, SweepRecord, cell_key
from sbert_app.services.jobs.queue import Jobs
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate, estimate_run, known_rate
from sbert_app.services.runs.record import RESUMABLE, Run
from training.errors import InputError
from training.trainer.config import RunConfig

MOST_SEEDS = 100
ORDER = ("queued", "running")  # stopped in this order: else the worker takes the next while the first stops

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)


@dataclass(frozen=True)
class SweepEstimate:
    """What a sweep would do: a plan for each variant, times seeds."""

    estimates: Mapping[str, RunEstimate]
    seeds: int
    model_bytes: int | None  # that a finished run keeps; None if not known

    @property
    def runs(self) -> int:
        """How many runs in all."""
        return len(self.estimates) * self.seeds

    @property
    def bytes(self) -> int | None:
        """What the models of all runs will take on the disk."""
        return None if self.model_bytes is None else self.model_bytes * self.runs

    def seconds(self, rate: TrainingRate) -> float | None:
        """An estimate of the whole, one run after another; None where the steps are not known."""
        each = [one.seconds(rate) for one in self.estimates.values()]
        known = [seconds for seconds in each if seconds is not None]
        return self.seeds * sum(known) if len(known) == len(each) else None


class Sweeps:
    """The sweeps of a home folder. Thread-safe as far as `Jobs` is; the truth is on disk."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.store = jobs.store
        self.folder = jobs.store.home / "sweeps"

    # ------------------------------------------------------------ reading

    def get(self, sweep_id: str) -> Sweep:
        """InputError if there is no such sweep."""
        record = SweepRecord.read(self._file(sweep_id))
        return Sweep(
            sweep_id,
            record,
            [SweepCell(variant, seed, self._run(record, variant, seed)) for variant, seed in record.cells()],
        )

    def list(self, name: str | None = None) -> list[Sweep]:
        """Every sweep (of one ablation), the newest first."""
        found = []
        for file in self.folder.glob("[!.]*.json"):
            with suppress(InputError):  # deleted meanwhile, or of another version
                if name in (None, SweepRecord.read(file).ablation):
                    found.append(self.get(file.stem))
        return sorted(found, key=lambda sweep: (sweep.record.created, sweep.id), reverse=True)

    def estimate(self, name: str, seeds: int, changes: Mapping[str, Any]) -> SweepEstimate:
        """Look at a sweep before it starts. InputError if a cell cannot run, with what can be done."""
        if not isinstance(seeds, int) or not 1 <= seeds <= MOST_SEEDS:
            raise InputError(f"seeds is {seeds!r}; take a whole number from 1 to {MOST_SEEDS}")
        grid = ablation(name)
        estimates = {variant: estimate_run(grid.config(variant, 0, **changes), self.store) for variant in grid.variants}
        sizes = [_model_bytes(self.store.home, one.config.base) for one in estimates.values()]
        known = [size for size in sizes if size]
        return SweepEstimate(estimates, seeds, max(known) if known else None)

    def rate(self, planned: SweepEstimate) -> TrainingRate | None:
        """The rate of the newest run of the same kind; None if there was none."""
        return known_rate(next(iter(planned.estimates.values())), self.store.list(), self.store)

    # ------------------------------------------------------------ changing

    def start(self, name: str, seeds: int, changes: Mapping[str, Any]) -> Sweep:
        """Queue every cell of a new sweep. InputError before anything is queued if a cell cannot run."""
        sweep = self.create(name, seeds, changes)
        self._fill(sweep.id, self.jobs.start)
        return self.get(sweep.id)

    def create(self, name: str, seeds: int, changes: Mapping[str, Any]) -> Sweep:
        """A new sweep without any run yet: all cells can be resumed, here or by `run_here`."""
        self.estimate(name, seeds, changes)
        record = SweepRecord(name, time.time(), list(range(seeds)), dict(changes))
        record.runs = {cell_key(*cell): None for cell in record.cells()}
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep_id = self._free_id(f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
        record.write(self.folder / f"{sweep_id}.json")
        return self.get(sweep_id)

    def stop(self, sweep_id: str) -> Sweep:
        """Stop every run that waits or works. What is done stays."""
        cells = self.get(sweep_id).cells
        for state in ORDER:
            for cell in cells:
                if cell.run is not None and cell.state == state:
                    with suppress(InputError):  # it ended meanwhile
                        self.jobs.stop(cell.run.id)
        return self.get(sweep_id)

    def resume(self, sweep_id: str) -> Sweep:
        """Queue again what did not finish, from its checkpoint, and what was deleted, from the start."""
        sweep = self.get(sweep_id)
        if not sweep.can_resume:
            raise InputError(f"sweep {sweep_id} is {sweep.state}; there is nothing to resume")
        for cell in sweep.cells:
            if cell.run is not None and cell.state in RESUMABLE:
                with suppress(InputError):  # somebody else was faster
                    self.jobs.resume(cell.run.id)
        self._fill(sweep_id, self.jobs.start)
        return self.get(sweep_id)

    def run_here(self, sweep_id: str, execute: Callable[[str], object]) -> Sweep:
        """Work on everything that did not finish in this process: ``execute`` is given one run's id at a time."""
        self._fill(sweep_id, lambda config: self.store.create(config, queue=False))
        for cell in self.get(sweep_id).cells:
            if cell.run is not None and cell.state in RESUMABLE:
                execute(cell.run.id)
        return self.get(sweep_id)

    def delete(self, sweep_id: str) -> None:
        """Remove a sweep, its runs and their models. InputError while one of them waits or works."""
        sweep = self.get(sweep_id)
        if sweep.state == "running":
            raise InputError(f"sweep {sweep_id} is running; stop it before you delete it")
        for cell in sweep.cells:
            if cell.run is not None:
                self.store.delete(cell.run.id)
        self._file(sweep_id).unlink()

    # ------------------------------------------------------------ within

    def _fill(self, sweep_id: str, make: Callable[[RunConfig], Run]) -> None:
        """Make the runs that are missing. The file is written after each, so that none is made twice."""
        sweep = self.get(sweep_id)
        for cell in sweep.cells:
            if cell.run is None:
                config = sweep.ablation.config(cell.variant, cell.seed, **sweep.record.changes)
                sweep.record.runs[cell_key(cell.variant, cell.seed)] = make(config).id
                sweep.record.write(self._file(sweep_id))

    def _run(self, record: SweepRecord, variant: str, seed: int) -> Run | None:
        run_id = record.runs.get(cell_key(variant, seed))
        if run_id is not None:
            with suppress(InputError, FileNotFoundError):  # deleted
                return self.store.get(run_id)
        return None

    def _file(self, sweep_id: str) -> Path:
        file = self.folder / f"{sweep_id}.json"
        if not _ID.fullmatch(sweep_id) or not file.exists():
            raise InputError(f"there is no sweep {sweep_id[:100]!r}")
        return file

    def _free_id(self, stem: str) -> str:
        names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        return next(name for name in names if not (self.folder / f"{name}.json").exists())


def _model_bytes(home: Path, base: str) -> int | None:
    """The size of a base's weights, where they are on this machine: a run's model has as many."""
    folder = home / "models" / base
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    return sum(sizes) or None
