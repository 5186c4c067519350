"""The tables that ship: models in ``assets/evaluation.json``, our own systems in
``assets/systems.json``, and the results of Reimers & Gurevych (EMNLP 2019) in
``assets/paper.json``.

Correlations are ×100. Differences are of Spearman ρ under the cosine, each pair of models once, in
table order. `scripts/measure_evaluation.py` writes the first table from a `ResultGrid`, as the page
would measure it, and `scripts/measure_systems.py` writes the second, whose models do not ship.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from sbert_app.services.results.results import EvalResult, Metric
from sbert_app.services.store.documents import read_document
from training.catalogue import asset
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.overlap import Overlap
from training.evaluation.bootstrap import Difference, Estimate, sentence_keys
from training.names import ModelName

SHIPPED = asset("evaluation.json")
SHIPPED_SYSTEMS = asset("systems.json")
SHIPPED_COST = asset("examples/cost.json")
SHIPPED_SCORES = asset("examples/scores-stsb-dev.npz")
SCORED_DATA = "stsb:dev"

Numbers = tuple[Any, ...]


@dataclass(frozen=True)
class PrecomputedResults:
    """Results from a file, with the methods of a `ResultGrid`.

    Attributes:
        sizes: the number of pairs of each data set.
        speeds: distinct sentences of STSb test per second, by model.
        figures: estimates by model, data set, statistic and similarity; None for a data set on
            which the model has no results.
        differences: a `Difference` by data set, first and second model.
        measured: the day of the measurement, ISO 8601.
    """

    sizes: Annotated[Mapping[str, int], Field(validation_alias="data")]
    speeds: Mapping[str, float]
    figures: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Numbers]] | None]]
    differences: Mapping[str, Mapping[str, Mapping[str, Numbers]]]
    machine: dict[str, str]
    command: str
    measured: str
    # As in a grid without failures, whose models were not trained on the data.
    failures: ClassVar[Mapping[tuple[str, str], str]] = {}
    overlaps: ClassVar[Mapping[tuple[str, str], Overlap]] = {}

    @property
    def models(self) -> list[str]:
        return list(self.figures)

    @property
    def data(self) -> list[str]:
        return list(self.sizes)

    def estimate(
        self, model: str, data: str, metric: Metric, unread: bool = False
    ) -> Estimate | None:
        """The estimate of one result; None if the file has none.

        ``unread`` has no effect, as the file has no overlaps with training data.
        """
        estimates = self.figures.get(model, {}).get(data)
        figures = estimates and estimates[metric.statistic].get(metric.similarity)
        return Estimate(*figures) if figures else None

    def speed(self, model: str) -> float | None:
        return self.speeds.get(model)

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """The difference of two models, which the file has only for Spearman ρ under the cosine."""
        stored = self.differences.get(data, {}) if metric == Metric() else {}
        if b in stored.get(a, {}):
            return Difference(*stored[a][b])
        reverse = stored.get(b, {}).get(a)
        if not reverse:
            return None
        value, low, high = reverse
        return Difference(-value, -high, -low)


def shipped_scores(home: Path) -> tuple[Dataset, dict[ModelName, EvalResult], str]:
    """The pairs of `SCORED_DATA`, results of a few models, and the time and place of the measurement.

    `scripts/measure_examples.py` made them. The speed of a model is taken from the table that ships,
    so that all pages state the same. Raises InputError if the data cannot be loaded.
    """
    data = load_data(SCORED_DATA, home)
    speeds = read_document(SHIPPED, PrecomputedResults).speeds
    with np.load(SHIPPED_SCORES) as arrays:
        scores_of: dict[str, dict[str, np.ndarray]] = {}
        for key, array in arrays.items():
            # MODEL/SIMILARITY or MODEL/cost. The other key is "made".
            model, slash, name = key.rpartition("/")
            if slash:
                scores_of.setdefault(model, {})[name] = array
        origin = str(arrays["made"])
    gold = np.asarray(data.scores, dtype=np.float64)
    results = {}
    for model, scores in scores_of.items():
        # What remains are the scores by similarity.
        sentences, seconds = scores.pop("cost")
        if model in speeds:
            seconds = sentences / speeds[model]
        results[ModelName.parse(model)] = EvalResult(
            scores,
            gold,
            int(sentences),
            float(seconds),
            from_cache=True,
            keys=sentence_keys(data.columns),
        )
    return data, results, origin


@dataclass(frozen=True)
class System:
    """One of our own systems or of the paper's.

    Attributes:
        figures: Spearman ρ ×100 of the cosine by data set, in a list with one figure for each seed.
        made_of: the training data of one of our own systems, in words.
        std: the standard deviation over ten seeds that the paper states for its means.
        speed: sentences per second.
    """

    label: str
    figures: Mapping[str, list[float]]
    made_of: str = ""
    std: float | None = None
    speed: float | None = None

    def mean(self, data: Iterable[str]) -> float:
        """The mean over seeds and data sets."""
        return statistics.fmean(self._by_seed(data))

    def deviation(self, data: Iterable[str]) -> float | None:
        """The standard deviation over seeds; for a single figure the stated one, if there is one."""
        values = self._by_seed(data)
        return statistics.stdev(values) if len(values) > 1 else self.std

    @property
    def seeds(self) -> int:
        return len(next(iter(self.figures.values())))

    def _by_seed(self, data: Iterable[str]) -> list[float]:
        """The mean over data sets of each seed."""
        figures = [self.figures[name] for name in data]
        return [statistics.fmean(of_seed) for of_seed in zip(*figures, strict=True)]


@dataclass(frozen=True)
class Systems:
    """``assets/systems.json``: our own systems, the day of the measurement, and the command."""

    systems: list[System]
    measured: str
    command: str


@lru_cache(maxsize=1)
def shipped_systems() -> list[System]:
    """Our own systems, read once."""
    return read_document(SHIPPED_SYSTEMS, Systems).systems


PAPER = "Reimers & Gurevych 2019"
PAPER_COLUMNS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb:test", "sickr")
# The number of pairs of the test sets that people have as files of these names.
PAPER_SIZES = {"sts12": 3_108, "sts13": 1_500, "sts14": 3_750, "sts15": 3_000, "sts16": 1_186}


# Table 1 has models without STS training data on the test sets of STS12–16, STSb and SICK-R. Table
# 2 has only STSb test, and some models that were trained on STSb. The speeds are the highest of
# Table 7, on an Intel i7-5820K.
TABLE_1, TABLE_2 = read_document(asset("paper.json"), dict[str, list[System]]).values()
DEFAULT_PAPERS = "Table 1"
PAPER_TABLES = {"none": [], DEFAULT_PAPERS: TABLE_1, "Tables 1 and 2": TABLE_1 + TABLE_2}


def paper_column(data: str, size: int | None) -> str | None:
    """The column of the paper for a data set, by its name, or by the name and size of a file; None if there is none."""
    for column in PAPER_COLUMNS:
        if data in (column, f"{column}:test"):
            return column
    file_name = data.replace("\\", "/").rpartition("/")[2]
    stem = file_name.partition(".")[0].lower()
    # A file named sts12 is the paper's only if it has as many pairs.
    if size is not None and PAPER_SIZES.get(stem) == size:
        return stem
    return None
