"""Transfer: classifiers on sentence vectors that were not trained for their task (paper, section 5).

As in SentEval (Conneau & Kiela 2018) the encoder stays frozen, and logistic regression on its
vectors is scored by stratified k-fold cross-validation, as in the paper (SentEval has test sets for
SST, TREC and MRPC). The regularisation strength (1/C) is selected on the training part of each
fold, never on the rows that are scored. The features of a pair of sentences are |u − v| and u * v.

The data is a file with labels, the genres of the STS benchmark (news, captions, forums), or the
training split of a task of section 5 on the Hub.
"""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from sbert_app.formats import format_count
from sbert_app.services.background.watch import UNWATCHED, Watch
from training.atomic import open_atomic
from training.data.tables.cells import UNSURE
from training.data.tables.reading import TableReading, requested_columns
from training.data.tables.rows import HEAD_ROWS
from training.data.tables.table import open_table
from training.data.transforms import sentence_groups
from training.errors import InputError
from training.evaluation.scoring import sentence_vectors, without_score
from training.models.lexical import SparseModel
from training.models.model import Model, VectorModel
from training.names import DataName
from training.sources.hub_dataset import read_dataset
from training.sources.resolve import stsb_folder

if TYPE_CHECKING:
    from training.models.model import Vectors

FOLDS = 10
SEED = 0
# The mean squared norm of the features, about 1 per dimension of a small encoder.
MEAN_SQUARED_NORM = 400.0
C_VALUES = (0.01, 0.1, 1.0)
MAX_ROWS = 50_000
MAX_CLASSES = 100


@dataclass(frozen=True)
class ClassificationData:
    """Rows with a class each: a sentence in one column, or a pair of sentences in two.

    Each of ``pairs`` has the numbers of two related rows, such as two sentences that were a pair.
    """

    name: str
    columns: tuple[list[str], ...]
    labels: list[str]
    notes: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> list[tuple[str, int]]:
        """The classes with their numbers of rows, the largest first."""
        return Counter(self.labels).most_common()

    @property
    def groups(self) -> np.ndarray:
        """The group of each row, int (N,). Related rows, and rows that share a sentence, are in one group."""
        return sentence_groups(self.columns, self.pairs)


@dataclass(frozen=True)
class TransferScore:
    """The accuracies of the folds, from 0 to 1.

    ``majority`` is the accuracy of always predicting the largest class. ``seconds`` are the time of
    encoding, and the time of fitting and scoring. ``note`` states how many rows are left out; "" if
    there are none.
    """

    model: str
    pooling: str | None
    accuracies: tuple[float, ...]
    majority: float
    seconds: tuple[float, float]
    note: str = ""

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def std(self) -> float:
        """The standard deviation over the folds."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0


def read_labelled(path: Path | str) -> ClassificationData:
    """Reads (sentence, label) or (sentence1, sentence2, label) from a file. Its path may name its encoding.

    Raises InputError if a column is missing, or fewer than two classes with two rows each remain.
    """
    file = DataName.parse(str(path))
    table = open_table(file.path, file.encoding, file.sheet)
    reading = table.reading.with_columns(requested_columns(file.columns, table.reading))
    return _labelled(reading, table.in_memory(table.columns))


def _labelled(
    reading: TableReading, cells: dict[str, list[Any]], label: str | None = None
) -> ClassificationData:
    """The labelled rows of a table in memory. The ``label`` column is the target of the reading by default."""
    name = reading.name
    label = label or reading.target
    if not reading.sentences or label not in cells:
        raise InputError(
            f"{name} has the columns {', '.join(cells)}; it needs sentence and label, or a pair and label"
        )
    columns = []
    for column in (*reading.sentences, label):
        texts = []
        for cell in cells[column]:
            texts.append("" if cell is None else str(cell).strip())
        columns.append(texts)
    # Data sets of the Hub have the label -1 where it is unknown.
    unknown_labels = UNSURE | {"-1"}
    # Each row has its texts, followed by its class.
    rows = list(zip(*columns, strict=True))
    complete = [row for row in rows if all(row) and row[-1].lower() not in unknown_labels]
    notes = []
    if len(complete) < len(rows):
        notes.append(
            f"{format_count(len(rows) - len(complete), 'row')} without text or label left out"
        )
    if len(complete) > MAX_ROWS:
        notes.append(f"the first {MAX_ROWS:,} of {len(complete):,} rows")
        complete = complete[:MAX_ROWS]
    sizes = Counter(row[-1] for row in complete)
    if len(sizes) > MAX_CLASSES:
        raise InputError(
            f"{name} has {len(sizes):,} different labels; at most {MAX_CLASSES} can be classes"
        )
    single = sorted(label for label, size in sizes.items() if size < 2)
    if single:
        notes.append(f"classes with a single row left out: {', '.join(single[:5])}")
    if len(sizes) - len(single) < 2:
        raise InputError(
            f"{name} does not have two classes of at least two rows each, which a classifier needs"
        )
    usable = [row for row in complete if row[-1] not in single]
    *text_columns, labels = map(list, zip(*usable, strict=True))
    return ClassificationData(name, tuple(text_columns), labels, tuple(notes))


def score_transfer(
    model: Model, data: ClassificationData, watch: Watch = UNWATCHED
) -> TransferScore:
    """Cross-validates a model on a task. There are fewer folds than `FOLDS` if a class has fewer rows.

    Rows of one group (`ClassificationData.groups`) are in one fold, as a near-duplicate of a test
    row in the training data would make the task easier. Rows without known tokens, or with vectors
    that are not finite, are left out. Raises InputError if the model has no sentence vectors, or
    fewer than two classes of two rows remain.
    """
    if not isinstance(model, VectorModel | SparseModel):
        raise InputError(f"a {model.kind} has no sentence embeddings")
    started = time.perf_counter()
    features, is_usable, note = _features(model, data, watch)
    encoded = time.perf_counter()
    _, targets = np.unique(np.array(data.labels)[is_usable], return_inverse=True)
    sizes = np.bincount(targets)
    # A classifier cannot be fitted to a single class.
    if (sizes >= 2).sum() < 2:
        raise InputError(f"fewer than two classes of two rows remain: {note}")
    # A class may have a single usable row, but there cannot be a single fold.
    folds = max(2, min(FOLDS, int(sizes.min())))
    accuracies = []
    for number, (train, test) in enumerate(_splits(targets, data.groups[is_usable], folds)):
        watch.check()
        watch.report(number / folds, "Classifying")
        # The matrices are too small for a second thread to help.
        with threadpool_limits(1, user_api="blas"):
            classifier = _fit(features[train], targets[train])
        is_correct = classifier.predict(features[test]) == targets[test]
        accuracies.append(float(is_correct.mean()))
    majority = float(sizes.max() / len(targets))
    seconds = (encoded - started, time.perf_counter() - encoded)
    return TransferScore(model.name, model.pooling, tuple(accuracies), majority, seconds, note)


def _splits(
    targets: np.ndarray, groups: np.ndarray, folds: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the training and the test rows of each fold, stratified by class and without dividing a group."""
    # scikit-learn takes a second to import.
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    # The first argument of ``split`` should be the features, but only their number of rows is read.
    if len(np.unique(groups)) < len(groups):
        grouped = StratifiedGroupKFold(folds, shuffle=True, random_state=SEED)
        return grouped.split(targets, targets, groups)
    # If each row is a group of its own, these are the same folds, made many times faster.
    return StratifiedKFold(folds, shuffle=True, random_state=SEED).split(targets, targets)


def _features(
    model: VectorModel | SparseModel, data: ClassificationData, watch: Watch
) -> tuple[Vectors, np.ndarray, str]:
    """Computes the features of rows whose texts have known tokens and finite vectors.

    Returns:
        The features of the N usable rows, (N, D) for sentences and (N, 2D) for pairs, scaled to a
        mean squared norm of `MEAN_SQUARED_NORM`; whether each row is usable, bool (rows,); and a
        sentence on the other rows, "" if there are none.
    """
    watch.report(0.0, "Encoding")
    texts = list(chain.from_iterable(data.columns))
    vectors = sentence_vectors(
        model, texts, on_progress=watch.on_progress, should_stop=watch.should_stop
    )
    if len(data.columns) == 2:
        u = vectors[: len(data)]
        v = vectors[len(data) :]
        if isinstance(u, np.ndarray):
            vectors = np.hstack([np.abs(u - v), u * v])
        else:
            # Both are CSR matrices already. `csr_matrix` tells this to the type checker.
            v = scipy.sparse.csr_matrix(v)
            features = scipy.sparse.hstack([abs(u - v), u.multiply(v)])
            vectors = scipy.sparse.csr_matrix(features)
    # A sum is finite only if all features of the row are.
    sums = np.asarray(vectors.sum(axis=1)).ravel()
    is_left_out, note = without_score(model, data.columns, [{"sum": sums}])
    vectors = vectors[~is_left_out]
    squares = np.square(vectors) if isinstance(vectors, np.ndarray) else vectors.power(2)
    scale = np.sqrt(MEAN_SQUARED_NORM * vectors.shape[0] / max(float(squares.sum()), 1e-12))
    return vectors * scale, ~is_left_out, note


def _fit(features: Vectors, targets: np.ndarray) -> Any:
    """Fits logistic regression. C is selected on a tenth of the training rows, if the others have all classes."""
    from sklearn.linear_model import LogisticRegression

    is_held_out = np.random.default_rng(SEED).random(len(targets)) < 0.1
    sizes = np.bincount(targets[~is_held_out], minlength=int(targets.max()) + 1)
    # The middle value, if none can be selected.
    best = C_VALUES[1]
    if is_held_out.any() and sizes.all():

        def accuracy(c: float) -> float:
            classifier = LogisticRegression(C=c, max_iter=300)
            classifier.fit(features[~is_held_out], targets[~is_held_out])
            return float(classifier.score(features[is_held_out], targets[is_held_out]))

        best = max(C_VALUES, key=accuracy)
    return LogisticRegression(C=best, max_iter=300).fit(features, targets)


@dataclass(frozen=True)
class TransferTask:
    """A task of the paper's section 5: its repository on the Hub, and the column of the classes."""

    title: str
    repo: str
    label: str = "label"


TRANSFER_TASKS = {
    "mr": TransferTask("MR, film reviews", "cornell-movie-review-data/rotten_tomatoes"),
    "cr": TransferTask("CR, product reviews", "SetFit/SentEval-CR"),
    "subj": TransferTask("SUBJ, subjective or not", "SetFit/subj"),
    "mpqa": TransferTask("MPQA, polarity of phrases", "jxm/mpqa"),
    "sst": TransferTask("SST, film reviews", "SetFit/sst2"),
    "trec": TransferTask("TREC, kinds of questions", "SetFit/TREC-QC", "label_coarse_text"),
    "mrpc": TransferTask("MRPC, paraphrases (pairs)", "SetFit/mrpc"),
}


def load_task(name: str, home: Path) -> ClassificationData:
    """Loads a task by name, from the home folder (data/<repository>) or the Hub.

    Raises InputError if the name is unknown, the files cannot be found, or a column is missing.
    """
    if name not in TRANSFER_TASKS:
        raise InputError(f"there is no task {name!r}; choose {', '.join(TRANSFER_TASKS)}")
    task = TRANSFER_TASKS[name]
    # The default configuration (), and all columns, which ``list`` selects. Cross-validation takes
    # its test rows from the training split.
    columns = read_dataset(task.repo, (), "train", list, home).columns
    heads = {column: cells[:HEAD_ROWS] for column, cells in columns.items()}
    reading = TableReading.of(task.title, heads)
    return _labelled(reading, columns, task.label)


# The genres of STSb, by their names in its files.
GENRES = {
    "main-news": "news",
    "main-captions": "captions",
    "main-forums": "forums",
    "main-forum": "forums",
}
# The columns of these files.
GENRE = 0
SCORE = 4
FIRST = 5
SECOND = 6


def sentences_by_genre(home: Path) -> ClassificationData:
    """The distinct sentences of STSb dev, each with its genre. Sentences that occur in two genres are left out.

    The sentences of a pair are in one group (``pairs``), as many of them are near-duplicates.
    """
    genres: dict[str, set[str]] = {}
    rows = _rows(home)
    for row in rows:
        for sentence in (row[FIRST], row[SECOND]):
            genres.setdefault(sentence, set()).add(GENRES[row[GENRE]])
    genre_of = {sentence: names.pop() for sentence, names in genres.items() if len(names) == 1}
    number_of = {sentence: number for number, sentence in enumerate(genre_of)}
    pairs = []
    for row in rows:
        if row[FIRST] in number_of and row[SECOND] in number_of:
            pairs.append((number_of[row[FIRST]], number_of[row[SECOND]]))
    columns = (list(genre_of),)
    labels = list(genre_of.values())
    return ClassificationData("STSb dev by genre", columns, labels, pairs=tuple(pairs))


def pairs_by_genre(home: Path) -> Path:
    """STSb dev as a CSV file with the columns sentence1, sentence2, score, topic, written to the home folder once."""
    file = home / "data" / "stsb-dev-by-genre.csv"
    if not file.exists():
        rows = _rows(home)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(file, newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["sentence1", "sentence2", "score", "topic"])
            for row in rows:
                writer.writerow([row[FIRST], row[SECOND], row[SCORE], GENRES[row[GENRE]]])
    return file


def _rows(home: Path) -> list[list[str]]:
    """The rows of STSb dev. Raises InputError for the Hub's copy of the benchmark, which has no genres."""
    lines = (stsb_folder(home).path / "sts-dev.csv").read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line.strip()]
    if not all(row[GENRE] in GENRES for row in rows):
        raise InputError(
            "this copy of the STS benchmark comes from the Hub and does not contain the genres; upload a file instead"
        )
    return rows
