"""A grid of models × data sets, filled result by result. A failure is recorded and the others continue.

    grid = make_grid(["all-MiniLM-L6-v2", "tfidf"], ["stsb:test", "mine.csv"])
    evaluate_grid(grid, models, home, watch)     in a task, while other threads read the grid
    grid.estimate("tfidf", "stsb:test", Metric())                       69.12 (66.24, 72.00)

Results are cached in HOME/cache/evaluation by the fingerprints of model and data, with the speed
that was measured. A name is not enough: a run continues training, a folder is replaced, a file is
edited. So a model is identified by its files (names, sizes, modification times), and a data set by
its sentences and gold scores.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from sbert_app.formats import format_count
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.embedded import fingerprint
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.results import AVERAGE, EvalResult, Metric, averaged, data_label
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.cache import DiskCache, digest
from training.catalogue import CROSS_ENCODERS, GLOVE, LABELLED, NLI_LABELS, SCORED
from training.data.dataset import Dataset
from training.data.gold import TOP_SCORE
from training.data.load import load_data
from training.data.overlap import Overlap, overlap
from training.data.transforms import match_labels
from training.errors import InputError, UserFacingError, summary_of
from training.evaluation.bootstrap import Difference, Estimate, Statistic, sentence_keys
from training.evaluation.metrics import why_undefined
from training.evaluation.scoring import SCORE, ScoreReport, row_scores, without_score
from training.models.folder import ModelFolder
from training.models.model import Model, VectorModel, default_encode, find_opener
from training.names import DataName, ModelName
from training.objectives import training_data
from training.similarities import SIMILARITIES
from training.sources.home import home_folder
from training.sources.resolve import find_run, glove_folder

MAX_PAIRS = 20_000
MAX_RESULTS = 100
NEUTRAL = NLI_LABELS[1]
WARM_UP = (["A man plays the guitar."], ["Someone is making music."])


@dataclass(eq=False)
class ResultGrid:
    """Results by model and data. One thread fills the grid while others read it.

    Attributes:
        failures: the reason why a result is missing.
        sizes: the number of pairs of each data set that could be read.
        overlaps: the part of the data that the model was trained on, where its training data is
            known.
    """

    models: list[str]
    data: list[str]
    results: dict[tuple[str, str], EvalResult] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    overlaps: dict[tuple[str, str], Overlap] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """The number of results and failures so far."""
        return len(self.results) + len(self.failures)

    def estimate(
        self, model: str, data: str, metric: Metric, unread: bool = False
    ) -> Estimate | None:
        """The estimate of one result, or of the mean of a model's results if ``data`` is `AVERAGE`.

        None if a result is missing. With ``unread`` it is on the pairs that no model of the grid
        was trained on.
        """
        # A whole result has its own interval, which for Pearson's correlation is studentised.
        if data != AVERAGE and not unread:
            result = self.results.get((model, data))
            return None if result is None else result.estimate(metric)
        statistic = self._statistic(model, data, metric, unread)
        return None if statistic is None else statistic.estimate(100)

    def unread(self, data: str) -> list[int] | None:
        """The pairs that no model of the grid was trained on and that all can score; None for all pairs."""
        excluded = set[int]()
        # The lists are copies, as another thread may be filling the grid.
        for (_, name), model_overlap in list(self.overlaps.items()):
            if name == data:
                excluded.update(model_overlap.read)
        for (_, name), result in list(self.results.items()):
            if name == data:
                excluded.update(result.left_out)
        if not excluded:
            return None
        return [row for row in range(self.sizes[data]) if row not in excluded]

    @property
    def left_out(self) -> list[str]:
        """A sentence for each result with pairs that the model cannot score."""
        sentences = []
        # Copied, as another thread may be filling the grid.
        for (model, name), result in list(self.results.items()):
            if result.left_out:
                sentences.append(
                    f"{ModelName.parse(model).label} on {data_label(name)}: "
                    f"{format_count(len(result.left_out), 'pair')} left out, of which it knows no token of a text or "
                    "gives no finite score"
                )
        return sentences

    def speed(self, model: str) -> float | None:
        """Distinct sentences per second, over all data sets."""
        sentences = 0
        seconds = 0.0
        for (name, _), result in list(self.results.items()):
            if name == model:
                sentences += result.num_sentences
                seconds += result.seconds
        return sentences / seconds if seconds else None

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """The lead of ``a`` over ``b`` on the pairs that no model of the grid was trained on.

        None if one of the results is missing, or fewer than two such pairs are left.
        """
        first = self._statistic(a, data, metric, unread=True)
        second = self._statistic(b, data, metric, unread=True)
        if first is None or second is None:
            return None
        return Difference.of(first, second)

    def _statistic(self, model: str, data: str, metric: Metric, unread: bool) -> Statistic | None:
        """The correlation from -1 to 1, of one result, or for `AVERAGE` of the mean of a model's results.

        With ``unread`` it is on the pairs that no model of the grid was trained on. None if a
        result is missing, or fewer than two such pairs are left.
        """
        names = [data]
        if data == AVERAGE:
            names = averaged([name for name in self.data if name in self.sizes])
        statistics = []
        for name in names:
            result = self.results.get((model, name))
            if result is None:
                return None
            rows = self.unread(name) if unread else None
            if rows is not None:
                if len(rows) < 2:
                    return None
                result = result.select(rows)
            statistics.append(result.statistic(metric))
        if data == AVERAGE:
            return Statistic.mean(statistics) if statistics else None
        return statistics[0]


def make_grid(models: list[str], data: list[str]) -> ResultGrid:
    """An empty grid. Raises InputError if it has no rows or columns, is too large, or a name cannot be read."""
    models = list(dict.fromkeys(text.strip() for text in models if text.strip()))
    data = list(dict.fromkeys(text.strip() for text in data if text.strip()))
    missing = "data set" if models else "model"
    if not models or not data:
        raise InputError(f"choose at least one {missing}")
    for model in models:
        # Raises InputError for a name that cannot be read.
        ModelName.parse(model)
    if len(models) * len(data) > MAX_RESULTS:
        raise InputError(
            f"{len(models)} models on {len(data)} data sets are more than {MAX_RESULTS} evaluations; choose fewer"
        )
    return ResultGrid(models, data)


def evaluate_grid(grid: ResultGrid, models: ModelCache, home: Path, watch: Watch) -> ResultGrid:
    """Fills the grid, one model after another. After a `StoppedError` it has the results so far."""
    datasets = {}
    for name in grid.data:
        watch.report(0, f"Reading {data_label(name)}")
        try:
            datasets[name] = load_scored_pairs(name, home)
            grid.sizes[name] = len(datasets[name])
        except InputError as error:
            grid.failures.update({(model, name): summary_of(error) for model in grid.models})
    total = len(grid.models) * len(grid.data)
    for model in grid.models:
        for name, data in datasets.items():
            step = watch.stage(f"{grid.done + 1} of {total}: {model} on {data_label(name)}")
            try:
                result = evaluate_one(ModelName.parse(model), data, models, step)
            except InputError as error:
                grid.failures[model, name] = summary_of(error)
                continue
            # A correlation may be undefined although all scores are known.
            scored, _ = result.without_unscored(data)
            why = why_undefined(next(iter(scored.scores.values())), scored.gold)
            if why:
                grid.failures[model, name] = why
                continue
            grid.results[model, name] = result
            model_overlap = overlap_with(ModelName.parse(model), data, home)
            if model_overlap is not None:
                grid.overlaps[model, name] = model_overlap
    return grid


def load_scored_pairs(name: str, home: Path) -> Dataset:
    """Scored pairs by name (the test split) or from a file. Raises InputError for other data."""
    data = with_scores(load_data(name, home, split="test"))
    if data.kind != SCORED:
        raise InputError(
            f"{data.name} holds {data.kind}; this needs a score or a label for each pair"
        )
    if len(data) > MAX_PAIRS:
        raise InputError(
            f"{data.name} has {len(data):,} pairs, more than {MAX_PAIRS:,}; use python -m sbert_app evaluate"
        )
    return data


def with_scores(data: Dataset) -> Dataset:
    """Turns labelled pairs into scored pairs: 5 for a match, 2.5 for a neutral pair, 0 for any other.

    Raises InputError if it is unclear which labels are matches (`match_labels`).
    """
    if data.kind != LABELLED:
        return data
    matches, meaning = match_labels(data)
    scores = np.where(matches, TOP_SCORE, 0.0)
    if NEUTRAL in data.label_names:
        is_neutral = np.asarray(data.labels) == data.label_names.index(NEUTRAL)
        scores[is_neutral] = TOP_SCORE / 2
    note = f"the labels are read as scores: {meaning}"
    return replace(
        data, scores=scores.tolist(), labels=None, label_names=(), notes=(*data.notes, note)
    )


def evaluate_one(spec: ModelName, data: Dataset, models: ModelCache, watch: Watch) -> EvalResult:
    """Evaluates one model on one data set, or takes the result from the cache.

    The score of a pair is NaN if the model knows no token of a text, or gives no finite score. Raises
    InputError if the model cannot be loaded.
    """
    if spec.endpoint:
        # An endpoint has no files.
        model_key = fingerprint(models.get(spec, VectorModel))
    else:
        model_key = model_fingerprint(spec, models.home)
    key = f"{model_key}-{data_fingerprint(data)}"
    cache = DiskCache(models.home / "cache" / "evaluation", MAX_BYTES)
    arrays = cache.get_arrays(key) or {}
    # The arrays of a cross-encoder, or of any other model. An entry of an earlier version may lack a
    # similarity.
    if set(arrays) in ({"gold", "cost", SCORE}, {"gold", "cost", *SIMILARITIES}):
        gold = arrays.pop("gold")
        count, seconds = arrays.pop("cost").tolist()
        # ``arrays`` now has only the scores, by similarity.
        keys = sentence_keys(data.columns)
        return EvalResult(arrays, gold, int(count), seconds, from_cache=True, keys=keys)
    model = models.get(spec, Model)
    result = timed_scores(model, data, watch)
    is_left_out, _ = without_score(model, data.columns, [result.scores])
    scores = {}
    for name, values in result.scores.items():
        scores[name] = np.where(is_left_out, np.float32(np.nan), values)
    # The NaN of a pair with unknown tokens is cached. If the model itself has given a score that is
    # not finite, nothing is cached: an endpoint may fail only for a while.
    if all(np.isfinite(values).all() for values in result.scores.values()):
        cost = np.array([result.num_sentences, result.seconds])
        cache.put_arrays(key, {**scores, "gold": result.gold, "cost": cost})
    return replace(result, scores=scores)


def timed_scores(model: Model, data: Dataset, watch: Watch = UNWATCHED) -> EvalResult:
    """Scores every pair and measures the time."""
    # The first call prepares the weights, which is not part of the speed.
    row_scores(model, WARM_UP)
    report = ScoreReport()
    # The rows are pairs, so that one pair of columns has scores.
    [scores] = row_scores(
        model,
        data.columns,
        on_progress=watch.on_progress,
        should_stop=watch.should_stop,
        report=report,
    )
    gold = np.asarray(data.scores, dtype=np.float64)
    keys = sentence_keys(data.columns)
    return EvalResult(scores, gold, report.sentences, report.seconds, keys=keys)


# Increased when the same model gives other scores, such as after a change of a baseline's tokens.
VERSION = "2"
# About 2,000 results.
MAX_BYTES = 100 << 20


def model_fingerprint(model: ModelName, home: Path) -> str:
    """A key of the name, the files and the pooling of a model. Raises InputError if the model is not found."""
    name = replace(model, pooling=None)
    return digest([VERSION, str(name), model.pooling or "", *_files(model, home_folder(home))])


def data_fingerprint(data: Dataset) -> str:
    """A key of the sentences and the gold scores of a data set."""
    return digest([*chain.from_iterable(data.columns), *map(repr, data.scores or ())])


def _files(model: ModelName, home: Path) -> list[str]:
    """The names, sizes and modification times of a model's files; [] if it has no files."""
    _, folder = find_opener(model, home)
    if folder is not None:
        stats = _stat(folder.path)
        # The weights of an adapter depend on the files of its base too.
        if folder.base:
            stats += _stat(ModelFolder.of(folder.base, home).path)
        return stats
    # The model may be a file, such as one of word vectors, with or without a prefix before its
    # path.
    paths = [Path(model.name), Path(model.name.partition(":")[2])]
    if model.name == GLOVE:
        paths = [glove_folder(home).path]
    for path in map(Path.expanduser, paths):
        # Without a prefix the second path is empty, which means the working directory.
        if path.name and path.exists():
            return _stat(path)
    return []


def _stat(path: Path) -> list[str]:
    """The names, sizes and modification times of a folder's files, or of a file and the files that belong to it.

    The files in the same folder whose names begin with its stem belong to it, such as
    vectors.words.txt to vectors.npy.
    """
    stats = []
    try:
        if path.is_dir():
            files = list(path.rglob("*"))
        else:
            files = [file for file in path.parent.iterdir() if file.name.startswith(path.stem)]
        for file in sorted(files):
            if file.is_file():
                stat = file.stat()
                stats.append(f"{file.name} {stat.st_size} {stat.st_mtime_ns}")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return stats


def trained_on(model: ModelName, home: Path) -> list[Dataset]:
    """The training data of a model, and of the runs that it started from.

    It is known for built-in cross-encoders and for runs; other models have none. The data of a run
    is left out if a part of it is from the Hub or a file that was deleted.
    """
    datasets: list[Dataset] = []
    ids = set[str]()
    # Edited configs may form a cycle.
    while model.run_id is not None:
        # A run may also be named by its title or the beginning of its id.
        run_id = find_run(model.run_id, home)
        if run_id in ids:
            break
        ids.add(run_id)
        config = RunStore(home).get(run_id).config
        names = DataName.parse_joined(config.train_data)
        if not any(name.hub_parts or (name.built_in and name.built_in.repo) for name in names):
            # An upload may have been deleted.
            with suppress(UserFacingError):
                sets = []
                for part in config.parts:
                    sets.append(training_data(part.data, part.objective, config.seed, home))
                # The data of the earliest run comes first.
                datasets[:0] = sets
        model = ModelName.parse(config.base)
    if model.name in CROSS_ENCODERS:
        datasets.insert(0, training_data("stsb:train", "regression", home=home))
    return datasets


def overlap_with(model: ModelName, data: Dataset, home: Path) -> Overlap | None:
    """The part of ``data`` that a model was trained on; None if its training data is unknown."""
    datasets = trained_on(model, home)
    # The default model finds the rows that are nearly equal.
    return overlap(data, datasets, default_encode(home)) if datasets else None
