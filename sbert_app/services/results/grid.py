"""Board: models × data sets, filled cell by cell. What fails says why, and the rest goes on.

    board = Board(["all-MiniLM-L6-v2", "tfidf"], ["stsb:test", "mine.csv"])
    evaluate_grid(board, shelf, home, tell, should_stop)      in a thread (`watched`); others read the board meanwhile
    board.estimate("tfidf", "stsb:test", Measure())    -> 69.12 (66.24, 72.00)

A cell that was measured before, by the same model on the same data, comes from the cache with the speed it had then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results import fingerprint
from sbert_app.services.results.cache import EvalResultCache
from sbert_app.services.results.difference import Difference
from sbert_app.services.results.eval_result import Estimate, EvalResult, Metric, interval
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.results import AVERAGE, averaged_of, data_label
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.data.dataset import SCORED, Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.scoring import ScoreReport, row_scores

if TYPE_CHECKING:
    from training.models.scorer import Scorer

log = logging.getLogger("sbert_lab.evaluation")

MOST_PAIRS = 20_000  # of a data set
MOST_CELLS = 100
WARM_UP = (["A man plays the guitar."], ["Someone is making music."])


@dataclass(eq=False)
class ResultGrid:
    """`Results` that grow. One thread fills it, any number read it."""

    models: list[str]
    data: list[str]
    results: dict[tuple[str, str], EvalResult] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """How many cells have a figure or a reason."""
        return len(self.results) + len(self.failures)

    def size(self, data: str) -> int | None:
        """The number of pairs."""
        return self.sizes.get(data)

    def estimate(self, model: str, data: str, metric: Metric) -> Estimate | None:
        """A cell's, or the mean over the cells of a row."""
        found = self._value_and_draws(model, data, metric)
        return None if found is None else interval(*found)

    def failure(self, model: str, data: str) -> str:
        """Why a cell has no figure."""
        return self.failures.get((model, data), "")

    def speed(self, model: str) -> float | None:
        """Different sentences a second, over the row."""
        row = [cell for (name, _), cell in list(self.results.items()) if name == model]
        seconds = sum(cell.seconds for cell in row)
        return sum(cell.sentences for cell in row) / seconds if seconds else None

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """A paired test; the draws are the same for all models."""
        first, second = (self._value_and_draws(model, data, metric) for model in (a, b))
        if first is None or second is None:
            return None
        return Difference.of(first[0], second[0], first[1], second[1])

    def _value_and_draws(self, model: str, data: str, metric: Metric) -> tuple[float, np.ndarray] | None:
        wanted = averaged_of(self) if data == AVERAGE else [data]
        cells = [self.results.get((model, name)) for name in wanted]
        there = [cell for cell in cells if cell is not None]
        if not there or len(there) < len(wanted):
            return None
        values = [cell.value(metric) for cell in there]
        return float(np.mean(values)), np.mean([cell.replicates(metric) for cell in there], axis=0)


def make_grid(models: list[str], data: list[str]) -> ResultGrid:
    """An empty board. InputError if there is nothing to measure, too much, or what names no model."""
    models = list(dict.fromkeys(text.strip() for text in models if text.strip()))
    data = list(dict.fromkeys(text.strip() for text in data if text.strip()))
    if not models or not data:
        raise InputError(f"choose at least one {'data set' if models else 'model'}")
    for model in models:
        ModelSpec.parse(model)
    if len(models) * len(data) > MOST_CELLS:
        raise InputError(
            f"{len(models)} models on {len(data)} data sets are more than {MOST_CELLS} cells; choose fewer"
        )
    return ResultGrid(models, data)


def evaluate_grid(
    board: ResultGrid, shelf: ModelCache, home: Path, tell: ReportProgress, should_stop: ShouldStop
) -> ResultGrid:
    """Measure every cell, a model at a time. ``Stopped`` leaves what is done."""
    cache, sets = EvalResultCache(home), {}
    for name in board.data:
        tell(0, f"Reading {data_label(name)}")
        try:
            sets[name] = load_scored_pairs(name, home)
            board.sizes[name] = len(sets[name])
        except InputError as error:
            board.failures.update({(model, name): str(error) for model in board.models})
    for model in board.models:
        for name, data in sets.items():
            title = f"{board.done + 1} of {len(board.models) * len(board.data)}: {model} on {data_label(name)}"
            tell(0, title)
            try:
                on_progress = partial(_report_cell, tell, title)
                cell = evaluate_one(ModelSpec.parse(model), data, shelf, cache, on_progress, should_stop)
            except InputError as error:
                board.failures[model, name] = str(error)
            else:
                board.results[model, name] = cell
    return board


def _report_cell(report_progress: ReportProgress, title: str, done: float) -> None:
    report_progress(done, title)


def load_scored_pairs(name: str, home: Path) -> Dataset:
    """Scored pairs by name or from a file; a set with splits gives its test. InputError if it holds something else."""
    data = load_data(name, home, split="test")
    if data.kind != SCORED:
        raise InputError(f"{data.name} holds {data.kind}; this needs a gold score for each pair: a column score")
    if len(data) > MOST_PAIRS:
        raise InputError(
            f"{data.name} has {len(data):,} pairs, more than {MOST_PAIRS:,}; use python -m sbert_app evaluate"
        )
    return data


def evaluate_one(
    choice: ModelSpec,
    data: Dataset,
    shelf: ModelCache,
    cache: EvalResultCache,
    on_progress: Callable[[float], None],
    should_stop: ShouldStop,
) -> EvalResult:
    """One model on one data set, from the cache if it is there. InputError if the model cannot be had."""
    key = fingerprint.of_model(choice, shelf.home), fingerprint.of_data(data)
    if (known := cache.get(*key)) is not None:
        return known
    scorer = shelf.scorer(choice.name, choice.pooling)
    cell = score_pairs(scorer, data, lambda done, total: on_progress(done / (total or 1)), should_stop)
    if all(np.isfinite(values).all() for values in cell.scores.values()):
        cache.put(*key, cell)
        return cell
    raise InputError(f"{choice.label} gives scores that are no numbers on {data.name}")


def score_pairs(
    scorer: Scorer,
    data: Dataset,
    on_progress: Callable[[int, int | None], None] | None = None,
    should_stop: ShouldStop | None = None,
) -> EvalResult:
    """Score every pair, and take the time."""
    row_scores(scorer, WARM_UP)  # the first call prepares the weights; that is no part of the speed
    report = ScoreReport()
    (scores,) = row_scores(scorer, data.columns, on_progress=on_progress, should_stop=should_stop, report=report)
    return EvalResult(scores, np.asarray(data.scores, dtype=np.float64), report.sentences, report.seconds)
