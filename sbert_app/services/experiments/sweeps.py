"""Ablations: a grid of RunConfigs times seeds -> runs -> a table with intervals.

    sweep = Sweeps(jobs).start("pooling", seeds=3, changes={"max_steps": 200})
    Sweeps(jobs).get(sweep.id).rows

The runs are ordinary runs in the queue (`sbert_app.services.jobs.queue`), independent of the page and the app. The
sweep's file lists them (`sbert_app.services.experiments.record`), so that any process can show it. A cell whose run
was deleted gets a new one when the sweep is resumed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from sbert_app.services.experiments.ablations import ablation
from sbert_app.services.experiments.errors import SweepBusy, SweepNotFound, SweepStateError
from sbert_app.services.experiments.record import Sweep, SweepCell, SweepRecord, cell_key
from sbert_app.services.jobs.queue import Jobs
from sbert_app.services.runs.errors import RunError
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate, estimate_run, known_rate
from sbert_app.services.runs.record import RESUMABLE, Run
from training.errors import InputError, UserFacingError
from training.trainer.config import RunConfig

MAX_SEEDS = 100
STOP_ORDER = ("queued", "running")  # the other way round, the worker would start the next run meanwhile

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)


@dataclass(frozen=True)
class SweepEstimate:
    """What a sweep would do: an estimate for each variant, times seeds."""

    estimates: Mapping[str, RunEstimate]
    seeds: int
    model_bytes: int | None  # of each finished run; None if not known

    @property
    def runs(self) -> int:
        """How many runs in all."""
        return len(self.estimates) * self.seeds

    @property
    def bytes(self) -> int | None:
        """Disk space of the models of all runs."""
        return None if self.model_bytes is None else self.model_bytes * self.runs

    def seconds(self, rate: TrainingRate) -> float | None:
        """Of all runs, one after another; None if the number of steps is not known."""
        each = [one.seconds(rate) for one in self.estimates.values()]
        known = [seconds for seconds in each if seconds is not None]
        return self.seeds * sum(known) if len(known) == len(each) else None


class Sweeps:
    """The sweeps of a home folder. They have no state in memory."""

    def __init__(self, jobs: Jobs, check_config: Callable[[RunConfig], object] = lambda config: None) -> None:
        """``check_config`` raises InputError for a run that may not be started."""
        self.jobs = jobs
        self.check_config = check_config
        self.store = jobs.store
        self.folder = jobs.store.home / "sweeps"

    # ------------------------------------------------------------ reading

    def get(self, sweep_id: str) -> Sweep:
        """Raises SweepNotFound if there is no such sweep."""
        record = SweepRecord.read(self._file(sweep_id))
        return Sweep(
            sweep_id,
            record,
            [SweepCell(variant, seed, self._run(record, variant, seed)) for variant, seed in record.cells()],
        )

    def list(self, name: str | None = None) -> list[Sweep]:
        """Every sweep (of one ablation), the newest first."""
        sweeps = []
        for file in self.folder.glob("[!.]*.json"):
            with suppress(SweepNotFound):  # deleted meanwhile, or of another version
                if name in (None, SweepRecord.read(file).ablation):
                    sweeps.append(self.get(file.stem))
        return sorted(sweeps, key=lambda sweep: (sweep.record.created, sweep.id), reverse=True)

    def estimate(self, name: str, seeds: int, changes: Mapping[str, Any]) -> SweepEstimate:
        """What a sweep would do. Raises InputError if a run could not start."""
        _check_seeds(seeds)
        grid = ablation(name)
        configs = {variant: grid.config(variant, 0, **changes) for variant in grid.variants}
        for config in configs.values():
            self.check_config(config)
        estimates = {variant: estimate_run(config, self.store) for variant, config in configs.items()}
        sizes = [_model_bytes(self.store.home, one.config.base) for one in estimates.values()]
        known = [size for size in sizes if size]
        return SweepEstimate(estimates, seeds, max(known) if known else None)

    def rate(self, estimate: SweepEstimate) -> TrainingRate | None:
        """The rate of the newest run of the same kind; None if there is none."""
        return known_rate(next(iter(estimate.estimates.values())), self.store.list(), self.store)

    # ------------------------------------------------------------ changing

    def start(self, name: str, seeds: int, changes: Mapping[str, Any], visitor: str = "") -> Sweep:
        """Queue the runs of a new sweep. Raises InputError, before any is queued, if one could not start.

        ``visitor``: see `Jobs.start`.
        """
        _check_seeds(seeds)
        self.jobs.check_room(seeds * len(ablation(name).variants), visitor)
        sweep = self.create(name, seeds, changes)
        self._create_missing(sweep.id, partial(self.jobs.start, visitor=visitor, grouped=True))
        return self.get(sweep.id)

    def create(self, name: str, seeds: int, changes: Mapping[str, Any]) -> Sweep:
        """A new sweep without runs: `resume` queues them, `run_here` executes them."""
        self.estimate(name, seeds, changes)
        record = SweepRecord(name, time.time(), list(range(seeds)), dict(changes))
        record.runs = {cell_key(*cell): None for cell in record.cells()}
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep_id = self._free_id(f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
        record.write(self.folder / f"{sweep_id}.json")
        return self.get(sweep_id)

    def stop(self, sweep_id: str) -> Sweep:
        """Stop all queued and running runs. Finished ones stay."""
        cells = self.get(sweep_id).cells
        for state in STOP_ORDER:
            for cell in cells:
                if cell.run is not None and cell.state == state:
                    with suppress(RunError):  # it ended meanwhile
                        self.jobs.stop(cell.run.id)
        return self.get(sweep_id)

    def resume(self, sweep_id: str) -> Sweep:
        """Queue unfinished runs again, from their checkpoints, and new ones for those that were deleted."""
        sweep = self.get(sweep_id)
        if not sweep.can_resume:
            raise SweepStateError(f"sweep {sweep_id} is {sweep.state}; there is nothing to resume")
        for cell in sweep.cells:
            if cell.run is not None and cell.state in RESUMABLE:
                with suppress(RunError):  # another process resumed it meanwhile
                    self.jobs.resume(cell.run.id)
        self._create_missing(sweep_id, self.jobs.start)
        return self.get(sweep_id)

    def run_here(self, sweep_id: str, execute: Callable[[str], object]) -> Sweep:
        """Call ``execute`` with the id of each unfinished run, one after another, in this process."""
        self._create_missing(sweep_id, lambda config: self.store.create(config, queue=False))
        for cell in self.get(sweep_id).cells:
            if cell.run is not None and cell.state in RESUMABLE:
                execute(cell.run.id)
        return self.get(sweep_id)

    def delete(self, sweep_id: str) -> None:
        """Remove a sweep, its runs and their models. Raises SweepBusy while a run is queued or running."""
        sweep = self.get(sweep_id)
        if sweep.state == "running":
            raise SweepBusy(f"sweep {sweep_id} is running; stop it before you delete it")
        for cell in sweep.cells:
            if cell.run is not None:
                self.store.delete(cell.run.id)
        self._file(sweep_id).unlink()

    # ------------------------------------------------------------ internal

    def _create_missing(self, sweep_id: str, create: Callable[[RunConfig], Run]) -> None:
        """Create the missing runs. The file is written after each, so that none is created twice."""
        sweep = self.get(sweep_id)
        for cell in sweep.cells:
            if cell.run is None:
                config = sweep.ablation.config(cell.variant, cell.seed, **sweep.record.changes)
                sweep.record.runs[cell_key(cell.variant, cell.seed)] = create(config).id
                sweep.record.write(self._file(sweep_id))

    def _run(self, record: SweepRecord, variant: str, seed: int) -> Run | None:
        run_id = record.runs.get(cell_key(variant, seed))
        if run_id is not None:
            with suppress(UserFacingError, FileNotFoundError):  # deleted, or damaged
                return self.store.get(run_id)
        return None

    def _file(self, sweep_id: str) -> Path:
        file = self.folder / f"{sweep_id}.json"
        if not _ID.fullmatch(sweep_id) or not file.exists():
            raise SweepNotFound(f"there is no sweep {sweep_id[:100]!r}")
        return file

    def _free_id(self, stem: str) -> str:
        names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        return next(name for name in names if not (self.folder / f"{name}.json").exists())


def _check_seeds(seeds: int) -> None:
    if not isinstance(seeds, int) or not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"seeds is {seeds!r}; take a whole number from 1 to {MAX_SEEDS}")


def _model_bytes(home: Path, base: str) -> int | None:
    """The size of the base's weights, which is that of a run's model; None if they are not on this machine."""
    folder = home / "models" / base
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    return sum(sizes) or None
