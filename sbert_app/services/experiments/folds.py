"""Cross-validation: train on all folds but one, evaluate on that one, and average (the paper, section 4.3).

k-fold cross-validation measures how well a model learns the task; leave-one-topic-out, for a file with a column
``topic``, how well it generalises to an unseen topic (in the paper much less). Every fold is an ordinary run in the
queue: it is independent of the page, is shown on the Train page, and can be stopped and resumed there.

    home/folds/<id>/folds.json      the request, and the run of each fold
                    3-train.csv     the rows of each fold
                    3-test.csv
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.jobs.queue import Jobs
from sbert_app.services.runs.record import Run, one_line, slug
from sbert_app.services.runs.store import RunStore
from training.atomic import open_atomic, write_text
from training.data.dataset import SCORED, Dataset
from training.data.load import load_data
from training.data.reference import parse_file
from training.data.tables.table import read_columns
from training.errors import InputError
from training.trainer.config import RunConfig

MAX_FOLDS = 20
MIN_TEST_PAIRS = 10  # ρ of fewer pairs is noise
TOPIC = "topic"


@dataclass(frozen=True)
class Fold:
    """A split into training and test rows."""

    name: str  # "fold 3", or the topic
    training: list[int]  # rows of the data
    test: list[int]


@dataclass(frozen=True)
class FoldRun:
    """A fold and its run, as stored."""

    name: str
    run: str
    test_pairs: int


@dataclass(frozen=True)
class FoldsRecord:
    """``folds.json``."""

    id: str
    data: str  # name of the file
    by: str  # "topic" or "5 folds"
    created: float
    folds: list[FoldRun] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> FoldsRecord:
        """Raises InputError if the file is missing or damaged."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{**values, "folds": [FoldRun(**fold) for fold in values["folds"]]})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} cannot be read: {one_line(error)}") from error


@dataclass(frozen=True)
class FoldResult:
    """A fold as it is now. ρ ×100 on the test pairs before and after training; None until measured."""

    name: str
    test_pairs: int
    run: Run | None  # None: deleted
    before: float | None
    after: float | None

    @property
    def state(self) -> str:
        return self.run.state if self.run else "deleted"


def by_topic(data: Dataset, topics: Sequence[str]) -> list[Fold]:
    """One fold for each topic, the largest first.

    Args:
        data: scored pairs.
        topics: of each row.

    Raises:
        InputError: fewer than two topics, more than 20, or one with too few pairs.
    """
    rows: dict[str, list[int]] = {}
    for row, topic in enumerate(topics):
        rows.setdefault(topic, []).append(row)
    if not 2 <= len(rows) <= MAX_FOLDS:
        raise InputError(f"{data.name} has {len(rows)} topics; leave-one-topic-out needs 2 to {MAX_FOLDS}")
    small = [topic for topic, test in rows.items() if len(test) < MIN_TEST_PAIRS]
    if small:
        raise InputError(f"topic {small[0]!r} has {len(rows[small[0]])} pairs; each needs {MIN_TEST_PAIRS} at least")
    all_rows = range(len(data))
    return [
        Fold(topic, [row for row in all_rows if topics[row] != topic], test)
        for topic, test in sorted(rows.items(), key=lambda item: -len(item[1]))
    ]


def k_folds(data: Dataset, k: int, seed: int = 0) -> list[Fold]:
    """k folds of equal size, assigned at random.

    Raises:
        InputError: k is out of range, or the folds would be too small.
    """
    if not 2 <= k <= MAX_FOLDS:
        raise InputError(f"there cannot be {k} folds; choose 2 to {MAX_FOLDS}")
    if len(data) < k * MIN_TEST_PAIRS:
        raise InputError(f"{data.name} has {len(data):,} pairs; {k} folds need {k * MIN_TEST_PAIRS} at least")
    parts = np.array_split(np.random.default_rng(seed).permutation(len(data)), k)
    return [
        Fold(
            f"fold {number}",
            sorted(np.concatenate([*parts[: number - 1], *parts[number:]]).tolist()),
            sorted(part.tolist()),
        )
        for number, part in enumerate(parts, start=1)
    ]


def split(path: Path | str, k: int | None) -> tuple[Dataset, list[Fold]]:
    """Read a file of scored pairs and split it into ``k`` folds, or by its column ``topic`` if ``k`` is None.

    ``path`` may name an encoding, see `training.data.reference`.

    Raises:
        InputError: the file has no scores, or it cannot be split like this.
    """
    data = load_data(str(path))
    if data.kind != SCORED:
        raise InputError(f"{data.name} holds {data.kind}; folds need sentence1, sentence2, score")
    if k is not None:
        return data, k_folds(data, k)
    raw = read_columns(*parse_file(str(path)))
    column = next((name for name in raw if name.strip().lower() == TOPIC), None)
    if column is None:
        raise InputError(f"{data.name} has no column topic: its columns are {', '.join(raw)}; choose k folds instead")
    return data, by_topic(data, [str(raw[column][row - 1]).strip() for row in data.rows])


def start(path: Path | str, k: int | None, jobs: Jobs, visitor: str = "", **changes: Any) -> FoldsRecord:
    """Queue a run for each fold.

    Args:
        path: as in `split`.
        k: as in `split`.
        jobs: the queue.
        visitor: who starts it, see `Jobs.start`.
        changes: fields of a `RunConfig` of objective regression.

    Raises:
        InputError: as ``split``, a setting is out of range, or too many runs are waiting.
    """
    data, folds = split(path, k)
    RunConfig(objective="regression", **changes)  # a wrong setting is reported before anything is written
    jobs.check_room(len(folds), visitor)
    folder = _new_folder(jobs.store.home, data.name)
    runs = []
    for number, fold in enumerate(folds, start=1):
        files = [folder / f"{number}-{part}.csv" for part in ("train", "test")]
        for file, rows in zip(files, (fold.training, fold.test), strict=True):
            _write(file, data, rows)
        config = RunConfig(
            objective="regression",
            train_data=str(files[0]),
            eval_data=str(files[1]),
            name=f"{Path(data.name).stem}, without {fold.name}",
            **changes,
        )
        runs.append(FoldRun(fold.name, jobs.start(config, visitor, grouped=True).id, len(fold.test)))
    record = FoldsRecord(folder.name, data.name, TOPIC if k is None else f"{k} folds", time.time(), runs)
    write_text(folder / "folds.json", json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n")
    return record


def records(home: Path) -> list[FoldsRecord]:
    """All records of a home folder, the newest first."""
    all_records = [FoldsRecord.read(file) for file in (home / "folds").glob("*/folds.json")]
    return sorted(all_records, key=lambda record: -record.created)


def results(record: FoldsRecord, store: RunStore) -> list[FoldResult]:
    """Each fold as it is now."""
    runs = {run.id: run for run in store.list()}
    fold_results = []
    for fold in record.folds:
        run = runs.get(fold.run)
        before = _rho(run.progress.baseline) if run else None
        after = _rho(run.progress.latest) if run and run.state == "finished" else None
        fold_results.append(FoldResult(fold.name, fold.test_pairs, run, before, after))
    return fold_results


def _rho(figures: dict[str, Any] | None) -> float | None:
    value = (figures or {}).get("spearman")
    return None if value is None else 100 * value


def _new_folder(home: Path, name: str) -> Path:
    folder = home / "folds" / f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(Path(name).stem) or 'pairs'}"
    number = 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = folder.with_name(f"{folder.name.removesuffix(f'-{number - 1}')}-{number}")
        else:
            return folder


def _write(file: Path, data: Dataset, rows: Sequence[int]) -> None:
    assert data.scores is not None  # noqa: S101 - checked by `split`
    with open_atomic(file, newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["sentence1", "sentence2", "score"])
        writer.writerows([data.columns[0][row], data.columns[1][row], data.scores[row]] for row in rows)
