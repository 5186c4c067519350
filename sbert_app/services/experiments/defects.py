"""The run of lesson 17: regression from a raw BERT, with any of the defects of a notebook that learned nothing.

    schedule    the schedule was made for 0 steps, so that the learning rate is 0
    mask        padding is not masked: every token attends to all positions, and all positions are averaged
    base        random weights instead of raw-bert-mini
    rate        a learning rate that is ten times as high

The data is STSb train. The loss of guessing the mean gold score is the variance of the gold scores.
Without a defect the run learns: its loss falls below that, and ρ rises. To leave padding unmasked,
[PAD] tokens are appended to the text of each sentence until all positions are filled.
``scripts/measure_defects.py`` measures all 16 combinations for the lesson.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.store.documents import read_document
from training.catalogue import RAW_BERT, asset
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError, StoppedError
from training.trainer.config import RunConfig
from training.trainer.run_metrics import warnings

DEFECTS = {
    "schedule": "schedule for 0 steps",
    "mask": "padding is not masked",
    "base": "base of random weights",
    "rate": "learning rate 3e-3",
}
# The defects of the notebook.
NOTEBOOK = ("schedule", "mask", "base")
COMBINATIONS = [
    names for count in range(len(DEFECTS) + 1) for names in combinations(DEFECTS, count)
]
RANDOM_BASE = "scratch:4x256"
# The maximum length of a sentence in tokens, to which it is padded by the defect "mask".
POSITIONS = 48
# The number of pairs of STSb dev on which a run is evaluated.
EVALUATED = 200
STEPS = 48
BATCH_SIZE = 32
RATE = 3e-4
HIGH_RATE = 3e-3
SHIPPED = asset("defects.json")


@dataclass(frozen=True)
class DefectRun:
    """A run and its metrics: losses by ``loss_steps``, and ρ and the mean cosine of random pairs by ``steps``.

    ``guess`` is the loss of guessing the mean gold score of every pair.
    """

    defects: tuple[str, ...]
    seed: int
    guess: float
    loss_steps: tuple[int, ...]
    losses: tuple[float, ...]
    steps: tuple[int, ...]
    rho: tuple[float, ...]
    random_cosine: tuple[float, ...]
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class DefectTable:
    """All runs that the lesson ships, made on one machine."""

    command: str
    measured: str
    machine: dict[str, str]
    runs: tuple[DefectRun, ...]


def shipped() -> DefectTable:
    """The runs that the lesson shows when it is opened."""
    return read_document(SHIPPED, DefectTable)


def train_with(
    defects: Collection[str],
    seed: int,
    steps: int,
    home: Path,
    watch: Watch = UNWATCHED,
) -> DefectRun:
    """Trains once with these defects.

    Raises InputError if the data or the base cannot be loaded, or the run failed; StoppedError
    after a stop.
    """
    # The import of torch takes seconds.
    from training.trainer.train import train

    base = RANDOM_BASE if "base" in defects else RAW_BERT
    learning_rate = HIGH_RATE if "rate" in defects else RATE
    config = RunConfig(
        "regression",
        base=base,
        pooling="mean",
        learning_rate=learning_rate,
        batch_size=BATCH_SIZE,
        max_steps=steps,
        eval_every=max(1, steps // 3),
        max_length=POSITIONS,
        seed=seed,
    )
    events: list[dict[str, Any]] = []

    def note_event(event: dict[str, Any]) -> None:
        events.append(event)
        if event["kind"] == "train":
            # None keeps the description of the stage.
            watch.report(event["step"], None, steps)

    dev = load_data("stsb:dev", home)
    # Evenly spaced, as the data set is sorted by genre.
    rows = [number * len(dev) // EVALUATED for number in range(EVALUATED)]
    result = train(
        config,
        note_event,
        folder=None,
        home=home,
        should_stop=watch.should_stop,
        train_data=_read(load_data("stsb:train", home), defects),
        eval_data=_read(dev.select(rows), defects),
        # A schedule for 0 steps is at its end, 0, from the first step on. None is the usual
        # schedule.
        schedule=(lambda step, total: 0.0) if "schedule" in defects else None,
    )
    if result.status == "stopped":
        raise StoppedError
    if result.status == "failed":
        raise InputError(f"the run failed: {result.reason}")
    # The event of the start of the run states ``guess``, the loss of guessing the mean gold score.
    start = next(event for event in events if event.get("state") == "running")

    def values(kind: str, key: str) -> tuple[Any, ...]:
        """One value of each event of a kind, with four decimals."""
        return tuple(round(event[key], 4) for event in events if event["kind"] == kind)

    return DefectRun(
        defects=tuple(name for name in DEFECTS if name in defects),
        seed=seed,
        guess=round(start["guess"], 4),
        loss_steps=values("train", "step"),
        losses=values("train", "loss"),
        steps=values("eval", "step"),
        rho=values("eval", "spearman"),
        random_cosine=values("eval", "random_cosine"),
        warnings=tuple(warnings(events)),
        seconds=round(result.seconds, 1),
    )


def _read(data: Dataset, defects: Collection[str]) -> Dataset:
    """The data as the network reads it. If padding is not masked, it is a part of each text."""
    if "mask" not in defects:
        return data
    padding = " [PAD]" * POSITIONS
    columns = []
    for column in data.columns:
        columns.append([text + padding for text in column])
    return replace(data, columns=tuple(columns))
