"""Results: what a table of models × data sets is made of. Measured now (`board`) or when the app was made (`measured`).

Names here are those that people gave: a model as `ModelChoice` reads it, a data set as `load_data` does. AVERAGE is
one more column: the mean over the data sets, without those that are for choosing (STSb train and dev).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Protocol

from sbert_app.services.results.difference import Difference
from sbert_app.services.results.eval_result import Estimate, Metric

AVERAGE = "average"
DATA_LABELS = {
    **{f"sts{year}": f"STS{year}" for year in range(12, 17)},
    "stsb:test": "STSb",
    "stsb:dev": "STSb dev",
    "stsb:train": "STSb train",
    "sickr": "SICK-R",
    AVERAGE: "average",
}
DEVELOPMENT_SETS = ("stsb:train", "stsb:dev")


class Results(Protocol):
    """Read by tables, figures and texts."""

    @property
    def models(self) -> Sequence[str]:
        """In the order of the rows."""

    @property
    def data(self) -> Sequence[str]:
        """In the order of the columns, without AVERAGE."""

    def size(self, data: str) -> int | None:
        """The number of pairs; None where the data could not be read."""

    def estimate(self, model: str, data: str, metric: Metric) -> Estimate | None:
        """None where it is not there: not yet, or for a reason."""

    def failure(self, model: str, data: str) -> str:
        """Why a figure will not come; "" where nothing speaks against it."""

    def speed(self, model: str) -> float | None:
        """Different sentences a second, over all data sets of the model."""

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """How much better ``a`` is; None where that was not measured."""


def averaged(data: Sequence[str]) -> list[str]:
    """The data sets that the average is over; none where only one remains."""
    kept = [name for name in data if name not in DEVELOPMENT_SETS]
    return kept if len(kept) > 1 else []


def averaged_of(results: Results) -> list[str]:
    """The same of results, without data sets that could not be read."""
    return averaged([name for name in results.data if results.size(name) is not None])


def data_label(name: str) -> str:
    """How a table calls a data set; a file without its folders."""
    return DATA_LABELS.get(name) or (PurePath(name).name if "/" in name or "\\" in name else name)
