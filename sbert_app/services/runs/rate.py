"""The duration of a run, by the rate of the newest run from the same base on this machine.

Without such a run a few training steps measure the rate, in a second or two; the machine's home remembers it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from sbert_app.services.background.watch import State
from sbert_app.services.runs.estimate import RunEstimate, dev_data, is_on_hub
from sbert_app.services.runs.record import Event, Run
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.documents import read_document, write_document
from training.catalogue import RAW_BERT, WORD_ENCODERS, plain_sentences
from training.errors import InputError
from training.evaluation.diagnostics import RANDOM_SENTENCES
from training.names import DataName, ModelName
from training.sources.resolve import has_glove
from training.trainer.config import RunConfig

MEASURED_STEPS = 8
# The time to load data and model, where no run has measured it.
STARTING_SECONDS = 3.0

# The file of the home folder that remembers what was measured on this machine: sentences per second, seconds of each
# evaluated sentence, and seconds until the first step, by kind of run.
REMEMBERED = "training-rates.json"
_measuring = threading.Lock()


class TrainingRate(NamedTuple):
    """The speed of training on this machine, its ``source`` in words, and the time of the start and of the test."""

    sentences_per_second: float
    evaluation_seconds: float
    source: str
    other_seconds: float = STARTING_SECONDS

    def seconds(self, estimate: RunEstimate) -> float | None:
        """The duration of a run; None if the number of steps is unknown."""
        config, steps = estimate.config, estimate.steps
        if steps is None:
            return None
        sentences = steps * config.gradient_accumulation_steps * config.batch_size * estimate.columns
        evaluations = math.ceil(steps / config.evaluate_every(steps)) + 1
        return self.other_seconds + (sentences / self.sentences_per_second + evaluations * self.evaluation_seconds)


def known_rate(estimate: RunEstimate, runs: Sequence[Run], store: RunStore) -> TrainingRate | None:
    """The rate of the newest run of the same kind, or one measured by `measure_rate`; None if there is neither."""
    for run in runs:
        if _is_same_kind(run.config, estimate.config) and len(rates := _rates(run.events)) > 1:
            seconds = [event["seconds"] for event in run.events if event["kind"] == "eval"]
            source = f"the rate of “{run.name}”, {median(rates):,.0f} sentences/s on {run.progress.device}"
            return TrainingRate(median(rates), median(seconds), source, _other_seconds(run))
    if (measured := _remembered(store.home).get(_key(estimate))) is None:
        return None
    rate, seconds_each, start = measured
    source = f"{MEASURED_STEPS} steps measured on this machine, {rate:,.0f} sentences/s"
    dev = estimate.config.eval_data
    test = DataName.parse(dev or "").test_split
    evaluation, after = (seconds_each * _evaluated_sentences(name, store.home) for name in (dev, test))
    return TrainingRate(rate, evaluation, source, start + (after if test else 0.0))


def can_measure_rate(config: RunConfig, runs: Sequence[Run], store: RunStore) -> bool:
    """Whether `measure_rate` can run: base and data are on this machine, and none of the ``runs`` is running."""
    model, folders = ModelName.parse(config.base), (Path(config.base).expanduser(), store.home / "models" / config.base)
    is_here = model.is_scratch or model.run_id is not None or model.name == RAW_BERT
    has_base = is_here or any(folder.is_dir() for folder in folders)
    if config.base in WORD_ENCODERS:
        has_base = has_glove(store.home)
    has_data = not any(map(is_on_hub, DataName.parse_joined(config.train_data)))
    return has_base and has_data and not any(run.state == State.RUNNING for run in runs)


def measure_rate(estimate: RunEstimate, store: RunStore) -> TrainingRate:
    """Train a few steps without saving anything, for some seconds, once for each kind of run."""
    from training.trainer.train import train

    with _measuring:
        if _key(estimate) not in _remembered(store.home):
            config = estimate.config.replace(
                max_steps=MEASURED_STEPS, eval_data=None, eval_every=MEASURED_STEPS, report_to=(), mine_negatives=False
            )
            # This run has the same speed, but no targets of a teacher and no negatives before its first step.
            if config.teacher:
                objective = "triplet" if estimate.columns == 3 else "simcse"
                data = next(part.data for part in config.parts if part.facts.needs_teacher())
                changes = {"objective": objective, "train_data": data, "teacher": None}
                config = config.replace(**changes, batch_size=max(2, config.batch_size))
            events: list[Event] = []
            begun = time.time()
            train(config, on_event=events.append, folder=None, home=store.home)
            # The first steps and the first evaluation are slower than all others.
            rates = _rates(events)
            last_evaluation = [event["seconds"] for event in events if event["kind"] == "eval"][-1]
            seconds_each = last_evaluation / _evaluated_sentences(None, store.home)
            start = next(event["t"] for event in events if event["kind"] == "state") - begun
            measured = {_key(estimate): (median(rates[len(rates) // 2 :]), seconds_each, start)}
            write_document(store.home / REMEMBERED, _remembered(store.home) | measured)
    rate = known_rate(estimate, [], store)
    assert rate is not None  # noqa: S101 - it has been measured
    return rate


def _other_seconds(run: Run) -> float:
    """The seconds of a run besides steps and evaluations: until its first step, and for the test of its best model."""
    times = {event.get("state") or event["kind"]: event.get("t") or 0.0 for event in run.events}
    test = times["test"] - times["eval"] if {"test", "eval"} <= times.keys() else 0.0
    running, started = times.get(State.RUNNING), run.record.started
    return test + (STARTING_SECONDS if running is None or started is None else max(0.0, running - started))


def _evaluated_sentences(eval_data: str | None, home: Path) -> int:
    """The approximate number of sentences of an evaluation: random ones, plain ones, the evaluation data."""
    distinct = {text for data in dev_data(eval_data, home) for column in data.columns for text in column}
    return RANDOM_SENTENCES + len(plain_sentences()) + len(distinct)


def _remembered(home: Path) -> dict[str, tuple[float, float, float]]:
    """The rates measured on this machine, by the keys of estimates; none if the file is missing or damaged."""
    with suppress(FileNotFoundError, InputError):
        return read_document(home / REMEMBERED, dict[str, tuple[float, float, float]])
    return {}


def _key(estimate: RunEstimate) -> str:
    return repr((*_settings(estimate.config), estimate.config.batch_size, estimate.columns))


def _settings(config: RunConfig) -> tuple[object, ...]:
    """The settings, besides data and batch size, by which a run is fast or slow."""
    kind = config.objective_class.predicts_tokens
    return config.base, kind, config.max_length, config.dtype, config.head, config.mini_batch_size, config.lora_rank > 0


def _is_same_kind(one: RunConfig, other: RunConfig) -> bool:
    """Whether one run trains about as fast as the other."""
    names = ("train_data", "eval_data", "objective", "mine_negatives")
    is_same = _settings(one) == _settings(other) and all(getattr(one, name) == getattr(other, name) for name in names)
    return is_same and 0.5 <= one.batch_size / other.batch_size <= 2


def _rates(events: Sequence[Event]) -> list[float]:
    return [event["sentences_per_second"] for event in events if event["kind"] == "train"]
