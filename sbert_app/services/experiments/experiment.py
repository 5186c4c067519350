"""Experiments: groups of runs that are started, shown and stopped together.

A sweep is the grid of an ablation times seeds, folds are a cross-validation, seeds are one config
with several seeds.

    experiments = Experiments(jobs)
    experiment = experiments.start(new_sweep("pooling", seeds=3, changes={"max_steps": 200}))
    experiments.get(experiment.id).rows

The runs are ordinary runs in the queue (`jobs.queue`), independent of the page and the app. The
record of an experiment lists the config and the id of each run, so that any process can show it.
Its state follows from its runs. Resuming it replaces deleted runs.

    home/experiments/<id>.json        the record
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sbert_app.services.background.watch import AT_WORK, RESUMABLE, State
from sbert_app.services.experiments.ablations import (
    Ablation,
    Summary,
    VariantRow,
    ablation,
    variant_rows,
)
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate, estimate_run
from sbert_app.services.runs.record import Run, RunError, default_name
from sbert_app.services.store.documents import DocumentStore, Timestamp
from training.errors import InputError, UserFacingError
from training.names import slug
from training.trainer.config import RunConfig

SWEEP: Final = "sweep"
FOLDS: Final = "folds"
SEEDS: Final = "seeds"
MAX_SEEDS = 100
DELETED = "deleted"


class PlannedRun(BaseModel):
    """A variant or a fold with fields of a `RunConfig`, and the id of its run once it is created.

    ``pairs`` is the number of held-out pairs of a fold.
    """

    model_config = ConfigDict(frozen=True)

    label: str
    config: dict[str, Any]
    run: str | None = None
    pairs: int | None = None

    @property
    def seed(self) -> int:
        return self.config.get("seed", 0)


class ExperimentRecord(BaseModel):
    """A sweep of an ablation, the folds of a file ``by`` "topic" or "5 folds", or a run with the seeds "0-4".

    ``name`` is the ablation of a sweep, the file of folds, or the name of the run. ``changes`` are
    fields of a `RunConfig` for all runs of a sweep.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["sweep", "folds", "seeds"]
    name: str
    by: str = ""
    created: Timestamp = Field(default_factory=time.time)
    changes: dict[str, Any] = {}
    runs: tuple[PlannedRun, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_ablation(self) -> ExperimentRecord:
        """Raises InputError for a sweep of an ablation that does not exist."""
        if self.kind == SWEEP:
            ablation(self.name)
        return self


def new_sweep(name: str, seeds: int, changes: Mapping[str, Any]) -> ExperimentRecord:
    """The runs of an ablation with the seeds 0 to ``seeds`` - 1.

    Raises InputError if the ablation does not exist, or the number of seeds is not allowed.
    """
    if not isinstance(seeds, int) or not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"seeds is {seeds!r}; take a whole number from 1 to {MAX_SEEDS}")
    grid = ablation(name)
    runs = []
    # Seed by seed, so that a sweep that is stopped early is balanced.
    for seed in range(seeds):
        for variant in grid.variants:
            runs.append(PlannedRun(label=variant, config=grid.fields(variant, seed, changes)))
    return ExperimentRecord(kind=SWEEP, name=name, changes=dict(changes), runs=tuple(runs))


def parse_seeds(text: object) -> tuple[int, ...]:
    """The distinct seeds of a text such as "0-4" or "0, 3, 7".

    Raises InputError if it cannot be read, or has too many.
    """
    # The keys are distinct, and stay in their order.
    seeds: dict[int, None] = {}
    for part in str(text).split(","):
        ends = re.fullmatch(r"\s*(\d{1,10})(?:\s*[-–]\s*(\d{1,10}))?\s*", part)
        if ends is None:
            raise InputError(
                f"the seed is {str(text)!r}; give a number, or several such as 0-4 or 0,3,7"
            )
        first = int(ends[1])
        last = int(ends[2] or ends[1])
        # One seed more than is allowed is enough to reject a long range.
        stop = min(last, first + MAX_SEEDS) + 1
        seeds |= dict.fromkeys(range(first, stop))
    if not 1 <= len(seeds) <= MAX_SEEDS:
        raise InputError(f"{text} is not 1 to {MAX_SEEDS} seeds; give some such as 0-4")
    return tuple(seeds)


def new_seeds(config: RunConfig, text: str) -> ExperimentRecord:
    """A run of ``config`` for each seed of a text (`parse_seeds`)."""
    name = config.name or default_name(config)
    runs = []
    for seed in parse_seeds(text):
        fields = {**config.to_dict(), "seed": seed, "name": f"{name}, seed {seed}"}
        runs.append(PlannedRun(label=name, config=fields))
    return ExperimentRecord(kind=SEEDS, name=name, by=text, runs=tuple(runs))


@dataclass(frozen=True)
class Cell:
    """A planned run, and the run itself; None if it was deleted or is not created yet."""

    plan: PlannedRun
    run: Run | None

    @property
    def state(self) -> str:
        return DELETED if self.run is None else self.run.state

    @property
    def value(self) -> float | None:
        """Spearman ρ ×100 after the last step; None until the run is finished."""
        if self.run is None or self.run.state != State.FINISHED:
            return None
        return self.run.progress.figure(self.run.progress.latest)

    @property
    def before(self) -> float | None:
        """Spearman ρ ×100 of the base, before the first step."""
        if self.run is None:
            return None
        return self.run.progress.figure(self.run.progress.baseline)

    @property
    def share(self) -> float:
        """The share of the steps that are done, from 0 to 1."""
        if self.run is None or not self.run.progress.steps:
            return 0.0
        return min(1.0, self.run.progress.step / self.run.progress.steps)

    @property
    def can_resume(self) -> bool:
        """Whether `Experiments.resume` would queue the run."""
        return self.run is None or self.state in RESUMABLE


@dataclass(frozen=True)
class Experiment:
    """The state of an experiment when it was read."""

    id: str
    record: ExperimentRecord
    cells: Sequence[Cell]

    @property
    def runs(self) -> list[Run]:
        return [cell.run for cell in self.cells if cell.run is not None]

    @property
    def ablation(self) -> Ablation:
        # The name of a sweep is the name of its ablation. Folds and seeds have none.
        return ablation(self.record.name)

    @property
    def seeds(self) -> list[int]:
        return sorted({plan.seed for plan in self.record.runs})

    @property
    def state(self) -> str:
        """Running while a run is queued or running, finished when all runs are finished, or else failed or stopped."""
        states = set(self.counts)
        if states & AT_WORK:
            return State.RUNNING
        if states == {State.FINISHED}:
            return State.FINISHED
        return State.FAILED if State.FAILED in states else State.STOPPED

    @property
    def counts(self) -> Counter[str]:
        return Counter(cell.state for cell in self.cells)

    @property
    def can_resume(self) -> bool:
        """Whether `Experiments.resume` would queue a run."""
        return any(cell.can_resume for cell in self.cells)

    def summary(self, which: str) -> Summary | None:
        """The summary of the main metric over the finished runs, on the scale that pages show (ρ ×100).

        ``which`` is the evaluation to take of each run: baseline, best, latest or test.
        """
        values = []
        for run in self._finished:
            value = run.progress.figure(getattr(run.progress, which))
            if value is not None:
                values.append(value)
        return Summary.of(values)

    @property
    def values(self) -> Mapping[tuple[str, int], float]:
        """The values of the finished runs, by label and seed."""
        values = {}
        for cell in self.cells:
            if cell.value is not None:
                values[cell.plan.label, cell.plan.seed] = cell.value
        return values

    @property
    def rows(self) -> list[VariantRow]:
        # Only for a sweep, whose labels are the variants of its ablation.
        before = {}
        for cell in self.cells:
            if cell.before is not None:
                before[cell.plan.label, cell.plan.seed] = cell.before
        return variant_rows(self.ablation, self.values, before)

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the finished runs, as if one run followed the other; None before the first is finished."""
        seconds = []
        for run in self._finished:
            started = run.record.started
            ended = run.record.ended
            # By its times, a run ends before it starts if the clock was set back in between.
            if started and ended and ended > started:
                seconds.append(ended - started)
        if not seconds or self.state != State.RUNNING:
            return None
        runs_left = 0.0
        for cell in self.cells:
            if cell.state in AT_WORK:
                runs_left += 1 - cell.share
        return statistics.median(seconds) * runs_left

    @property
    def _finished(self) -> list[Run]:
        return [run for run in self.runs if run.state == State.FINISHED]

    @property
    def reasons(self) -> list[str]:
        """The distinct reasons why runs failed."""
        reasons = []
        for run in self.runs:
            if run.state == State.FAILED:
                reasons.append(run.record.reason or "no reason was recorded")
        return list(dict.fromkeys(reasons))


@dataclass(frozen=True)
class ExperimentEstimate:
    """The estimates of the runs of an experiment, by label.

    ``bytes`` is the disk space for the models of all runs; 0 if it is unknown.
    """

    estimates: Mapping[str, RunEstimate]
    runs: int
    bytes: int

    @property
    def seeds(self) -> int:
        # Every label has the same number of seeds.
        return self.runs // len(self.estimates)

    def seconds(self, rate: TrainingRate) -> float | None:
        """The duration of all runs; None if the number of steps of one is unknown."""
        total = 0.0
        for estimate in self.estimates.values():
            seconds = rate.seconds(estimate)
            if seconds is None:
                return None
            total += seconds
        # ``estimates`` has one run for each label, and each label has a run for each seed.
        return self.seeds * total


class Experiments:
    """The experiments of a home folder. They have no state in memory."""

    def __init__(
        self, jobs: RunQueue, check_config: Callable[[RunConfig], RunConfig] = lambda config: config
    ) -> None:
        """``check_config`` returns the config to train, or raises InputError for a run that may not be started."""
        self.jobs = jobs
        self.store = jobs.store
        self.check_config = check_config
        self._records = records(jobs.store.home)

    def get(self, experiment_id: str) -> Experiment:
        """The experiment of that id. Raises InputError if it does not exist, or its file is damaged."""
        return self._current(experiment_id, self._records.get(experiment_id))

    def list(self, kind: str, name: str | None = None) -> list[Experiment]:
        """The experiments of a kind (and of one ablation), the newest first, without `damaged` ones."""
        experiments = []
        for experiment_id, record in self._records.list().documents.items():
            if record.kind == kind and name in (None, record.name):
                experiments.append(self._current(experiment_id, record))
        return sorted(
            experiments,
            key=lambda experiment: (experiment.record.created, experiment.id),
            reverse=True,
        )

    def damaged(self) -> Sequence[InputError]:
        """The errors of the files that cannot be read."""
        return self._records.list().damaged

    def estimate(self, record: ExperimentRecord) -> ExperimentEstimate:
        """The estimate of an experiment. Raises InputError if a run could not start."""
        configs: dict[str, RunConfig] = {}
        for plan in record.runs:
            if plan.label not in configs:
                configs[plan.label] = self.check_config(RunConfig(**plan.config))
        estimates = {label: estimate_run(config, self.store) for label, config in configs.items()}
        # The size of the largest base that is in the home folder; 0, for unknown, if none is there.
        model_bytes = 0
        for config in configs.values():
            weights = (self.store.home / "models" / config.base).glob("*.safetensors")
            model_bytes = max(model_bytes, sum(file.stat().st_size for file in weights))
        return ExperimentEstimate(estimates, len(record.runs), model_bytes * len(record.runs))

    def start(self, record: ExperimentRecord, visitor: str = "") -> Experiment:
        """Queues the runs of a new experiment for a visitor (`RunQueue.start`).

        Raises InputError, before any run is queued, if one of them could not start.
        """
        self.jobs.check_room(len(record.runs), visitor)
        experiment = self.create(record)
        # `RunQueue.resume` queues a run that has been created. The runs of experiments are grouped:
        # a visitor may have more of them in the queue than of single runs.
        queue = partial(self.jobs.resume, visitor=visitor, grouped=True)
        return self._create_missing(experiment, queue)

    def create(self, record: ExperimentRecord) -> Experiment:
        """Creates an experiment without runs. `resume` queues them, and `run_here` executes them."""
        # Called for its InputError if a run could not start; the estimate is not needed.
        self.estimate(record)
        # The slug of a name without Latin letters and digits is empty.
        words = slug(Path(record.name).stem) or "pairs"
        return self.get(self._records.create(f"{time.strftime('%Y%m%d-%H%M%S')}-{words}", record))

    def stop(self, experiment_id: str) -> Experiment:
        """Stops all queued and running runs. Finished ones stay."""
        # The queued runs are stopped first; otherwise the worker would start the next one.
        for run in sorted(self.get(experiment_id).runs, key=lambda run: run.state == State.RUNNING):
            with suppress(RunError):
                self.store.stop(run.id)
        return self.get(experiment_id)

    def resume(self, experiment_id: str) -> Experiment:
        """Queues unfinished runs again, from their checkpoints, and new runs for deleted ones."""
        experiment = self.get(experiment_id)
        if not experiment.can_resume:
            kind = experiment.record.kind
            raise InputError(
                f"{kind} {experiment_id} is {experiment.state}; there is nothing to resume"
            )
        for run in experiment.runs:
            if run.state in RESUMABLE:
                # Another process may have resumed the run.
                with suppress(RunError):
                    self.jobs.resume(run.id)
        # Here `resume` queues the runs that replace deleted ones.
        return self._create_missing(experiment, self.jobs.resume)

    def run_here(
        self, experiment_id: str, execute: Callable[[str], object], at_once: int = 1
    ) -> Experiment:
        """Calls ``execute`` with the id of each unfinished run, in this thread or in several."""
        experiment = self._create_missing(self.get(experiment_id))
        # A run that was created and not queued is stopped, so it is among them.
        unfinished = [run.id for run in experiment.runs if run.state in RESUMABLE]
        if at_once > 1:
            with ThreadPoolExecutor(at_once) as threads:
                # Reading the results raises the errors of the threads.
                list(threads.map(execute, unfinished))
        else:
            for run_id in unfinished:
                execute(run_id)
        return self.get(experiment_id)

    def delete(self, experiment_id: str) -> None:
        """Removes an experiment, its runs and their models. Raises InputError while a run is queued or running."""
        experiment = self.get(experiment_id)
        if experiment.state == State.RUNNING:
            raise InputError(
                f"{experiment.record.kind} {experiment_id} is running; stop it before you delete it"
            )
        for run in experiment.runs:
            self.store.delete(run.id)
        self._records.delete(experiment_id)

    def _create_missing(
        self, experiment: Experiment, queue: Callable[[str], Run] | None = None
    ) -> Experiment:
        """Creates the missing runs, and queues them by ``queue`` if it is given.

        Each is recorded before it is queued, so that none is computed twice.
        """
        for index, cell in enumerate(experiment.cells):

            def with_run(record: ExperimentRecord, index: int = index) -> ExperimentRecord:
                """The record with the id of a run at ``index``."""
                plans = [*record.runs]
                # Another process may have created the run.
                if self._run(plans[index]) is None:
                    config = self.check_config(RunConfig(**plans[index].config))
                    run = self.store.create(config, queue=False)
                    plans[index] = plans[index].model_copy(update={"run": run.id})
                return record.model_copy(update={"runs": tuple(plans)})

            if cell.run is None:
                # `change` reads the record anew, and no other process can change it meanwhile.
                record = self._records.change(experiment.id, with_run)
                run_id = record.runs[index].run
                if queue is not None and run_id is not None:
                    # Another process may have queued the run.
                    with suppress(RunError):
                        queue(run_id)
        return self.get(experiment.id)

    def _current(self, experiment_id: str, record: ExperimentRecord) -> Experiment:
        cells = [Cell(plan, self._run(plan)) for plan in record.runs]
        return Experiment(experiment_id, record, cells)

    def _run(self, plan: PlannedRun) -> Run | None:
        if plan.run is not None:
            # The run may have been deleted, or be damaged.
            with suppress(UserFacingError, FileNotFoundError):
                return self.store.get(plan.run)
        return None


def is_experiment(home: Path, experiment_id: str) -> bool:
    return experiment_id in records(home).ids()


def records(home: Path) -> DocumentStore[ExperimentRecord]:
    """The records of the experiments in a home folder."""
    return DocumentStore(home / "experiments", ExperimentRecord, what="experiment")
