"""Systems that were made here with several seeds, which ship as ``assets/systems.json``: rows beside the paper's.

    {"measured": "2026-11-22", "command": "…",
     "systems": [{"label", "made_of", "figures": {data set: [Spearman ρ ×100 of the cosine, one a seed]}}, …]}

Their models do not ship: their names, in the table of results, could not be evaluated. `scripts/measure_systems.py`
writes the file.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from training.assets import asset
from training.atomic import write_text
from training.errors import InputError

SHIPPED = asset("systems.json")


@dataclass(frozen=True)
class System:
    """A row."""

    label: str
    made_of: str  # what it was trained on, in words
    figures: Mapping[str, list[float]]  # data set -> ρ ×100, one a seed; the seeds in the same order everywhere

    def mean(self, data: Iterable[str]) -> float:
        """The mean over seeds, and over several data sets."""
        return statistics.fmean(self._by_seed(data))

    def deviation(self, data: Iterable[str]) -> float | None:
        """The standard deviation over seeds; None of one."""
        values = self._by_seed(data)
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def seeds(self) -> int:
        """How many."""
        return len(next(iter(self.figures.values())))

    def _by_seed(self, data: Iterable[str]) -> list[float]:
        return [statistics.fmean(each) for each in zip(*(self.figures[name] for name in data), strict=True)]


@dataclass(frozen=True)
class Systems:
    """The file."""

    systems: list[System]
    measured: str  # ISO 8601
    command: str

    def write(self, file: Path) -> None:
        """Atomically."""
        write_text(file, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, file: Path = SHIPPED) -> Systems:
        """Raises InputError if the file is not such a table."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{**values, "systems": [System(**system) for system in values["systems"]]})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} is not a table of systems: {error}") from error


@lru_cache(maxsize=1)
def shipped() -> Systems:
    """Those that ship, read once."""
    return Systems.read()
