"""Cross-validation: train on all folds but one, evaluate on that one, and average (the paper, section 4.3).

k-fold cross-validation measures how well a model learns the task. Leave-one-topic-out, for a file
with a column ``topic``, measures how well it generalises to an unseen topic, which is harder. The
folds are an experiment. The rows of each fold are stored with the uploads, for its run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.experiments.experiment import (
    FOLDS,
    Experiment,
    ExperimentRecord,
    Experiments,
    PlannedRun,
)
from sbert_app.services.files.uploads import keep_pairs
from sbert_app.services.results.grid import overlap_with
from training.catalogue import SCORED
from training.data.dataset import Dataset
from training.data.tables.columns import listed
from training.data.tables.table import opened_file
from training.data.transforms import sentence_folds
from training.errors import InputError
from training.names import DataName, ModelName
from training.trainer.config import RunConfig

MAX_FOLDS = 20
MIN_TEST_PAIRS = 10
TOPIC = "topic"

# The rows to test on, by the name of the fold, such as "fold 3" or a topic.
Folds = dict[str, list[int]]


def by_topic(data: Dataset, topics: Sequence[str]) -> Folds:
    """One fold for each topic, the largest first. ``topics`` has the topic of each row of the data.

    Raises InputError for fewer than two topics, more than 20, or a topic with too few pairs.
    """
    # The rows of each topic.
    rows: Folds = {}
    for row, topic in enumerate(topics):
        rows.setdefault(topic, []).append(row)
    if not 2 <= len(rows) <= MAX_FOLDS:
        raise InputError(
            f"{data.name} has {len(rows)} topics; leave-one-topic-out needs 2 to {MAX_FOLDS}"
        )
    for topic, test_rows in rows.items():
        if len(test_rows) < MIN_TEST_PAIRS:
            raise InputError(
                f"topic {topic!r} has {len(test_rows)} pairs; each needs {MIN_TEST_PAIRS} at least"
            )
    return dict(sorted(rows.items(), key=lambda item: -len(item[1])))


def k_folds(data: Dataset, k: int) -> Folds:
    """k random folds of about equal size. Pairs that share a sentence are in the same fold.

    Raises InputError if k is out of range, or the folds would be too small.
    """
    if not 2 <= k <= MAX_FOLDS:
        raise InputError(f"there cannot be {k} folds; choose 2 to {MAX_FOLDS}")
    if len(data) < k * MIN_TEST_PAIRS:
        raise InputError(
            f"{data.name} has {len(data):,} pairs; {k} folds need {k * MIN_TEST_PAIRS} at least"
        )
    folds = sentence_folds(data.columns, k, seed=0)
    sizes = np.bincount(folds, minlength=k)
    if sizes.min() < MIN_TEST_PAIRS:
        raise InputError(
            f"{data.name} cannot be split into {k} folds: pairs that share a sentence stay together, and "
            f"{sizes.max():,} of its {len(data):,} pairs are in one fold. Choose fewer folds, or leave one topic out"
        )
    return {f"fold {i + 1}": np.flatnonzero(folds == i).tolist() for i in range(k)}


def split(path: Path | str, k: int | None) -> tuple[Dataset, Folds]:
    """Reads a file of scored pairs and splits it into ``k`` folds, or by its column ``topic`` if ``k`` is None.

    ``path`` may name an encoding, see `training.names`. Raises InputError if the file has no
    scores, or cannot be split.
    """
    file = DataName.parse(str(path))
    with opened_file(file.path, file.encoding, file.sheet) as table:
        data = Dataset.from_table(
            table,
            file.columns,
            file.path.name,
            split=file.rows,  # the name of a split, or None
            scale=file.scale,
            labels=file.labels,
            raters=file.raters,
        )
        if data.kind != SCORED:
            raise InputError(
                f"{data.name} holds {data.kind}; folds need sentence1, sentence2, score"
            )
        if k is not None:
            return data, k_folds(data, k)
        column = next((name for name in table.columns if name.lower() == TOPIC), None)
        if column is None:
            raise InputError(
                f"{data.name} has no column topic, but {listed(table.columns)}; choose k folds instead"
            )
        topics = table.in_memory([column])[column]
    # The data may lack rows of the file. ``data.rows`` has the number in the file, from 1, of each
    # row of the data.
    topics_of_rows = [str(topics[row - 1]).strip() for row in data.rows]
    return data, by_topic(data, topics_of_rows)


def start(
    path: Path | str, k: int | None, experiments: Experiments, visitor: str = "", **changes: Any
) -> Experiment:
    """Queues a run for each fold of `split`; ``changes`` are fields of a `RunConfig` for regression.

    A fold is not tested on pairs that the base was trained on. Raises InputError if the file has no
    scores or cannot be split, too few other pairs are left, a setting is out of range, or too many
    runs are waiting, in total or for this visitor.
    """
    data, folds = split(path, k)
    # This config gives the default base, and raises InputError for a wrong setting before anything
    # is written.
    base = RunConfig(objective="regression", **changes).base
    overlap = overlap_with(ModelName.parse(base), data, experiments.store.home)
    rows = set(range(len(data)))
    # The rows that the base was not trained on.
    unread = rows if overlap is None else set(overlap.unread)
    if any(len(unread.intersection(test)) < MIN_TEST_PAIRS for test in folds.values()):
        raise InputError(
            f"{base} was trained on these pairs: {overlap}; too few are left to judge it by"
        )
    experiments.jobs.check_room(len(folds), visitor)
    stem = Path(data.name).stem
    plans = []
    for number, (name, fold) in enumerate(folds.items(), start=1):
        files = {}
        # Pairs that the base was trained on may be learned again, but are not tested.
        test_rows = unread.intersection(fold)
        for field, part, part_rows in (
            ("train_data", "train", rows.difference(fold)),
            ("eval_data", "test", test_rows),
        ):
            part_data = data.select(sorted(part_rows))
            pairs = zip(*part_data.columns, part_data.scores or (), strict=True)
            file_name = f"{stem}-{number}-{part}.csv"
            files[field] = str(keep_pairs(file_name, pairs, experiments.store.home))
        config = {"objective": "regression", "name": f"{stem}, without {name}", **files, **changes}
        plans.append(PlannedRun(label=name, config=config, pairs=len(test_rows)))
    by = TOPIC if k is None else f"{k} folds"
    record = ExperimentRecord(kind=FOLDS, name=data.name, by=by, runs=tuple(plans))
    return experiments.start(record, visitor)
