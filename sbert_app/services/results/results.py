"""What tables, figures and texts read: the results of models × data sets, measured now or precomputed.

Names are those that the user gave, see `training.names`. AVERAGE is an additional column: the mean over the data sets,
without the development sets (STSb train and dev).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sbert_app.services.results.eval_result import Difference, Estimate, Metric
from training.names import DataName

AVERAGE = "average"
DEVELOPMENT_SETS = ("stsb:train", "stsb:dev")


class Results(Protocol):
    """Implemented by `ResultGrid` and `PrecomputedResults`."""

    @property
    def models(self) -> Sequence[str]:
        """In the order of the rows."""

    @property
    def data(self) -> Sequence[str]:
        """In the order of the columns, without AVERAGE."""

    def size(self, data: str) -> int | None:
        """The number of pairs; None if the data could not be read."""

    def estimate(self, model: str, data: str, metric: Metric) -> Estimate | None:
        """None if it is not measured yet, or cannot be (see `failure`)."""

    def failure(self, model: str, data: str) -> str:
        """Why there is no estimate; "" if nothing failed."""

    def speed(self, model: str) -> float | None:
        """Distinct sentences per second, over all data sets of the model."""

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """By how much ``a`` is better than ``b``; None if that is not known."""


def averaged(data: Sequence[str]) -> list[str]:
    """The data sets that enter the average; none if fewer than two would."""
    test_sets = [name for name in data if name not in DEVELOPMENT_SETS]
    return test_sets if len(test_sets) > 1 else []


def averaged_of(results: Results) -> list[str]:
    """The data sets of ``results`` that enter the average: those that could be read."""
    return averaged([name for name in results.data if results.size(name) is not None])


def data_label(name: str) -> str:
    """The name in tables; a path without its folders."""
    return DataName.parse(name).label
