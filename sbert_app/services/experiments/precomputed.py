"""Precomputed tables, which ship as ``assets/ablation/<name>.json``.

    {"ablation", "settings": {…}, "training_rows", "machine": {…}, "command", "measured": "2026-11-21",
     "runs": [{"variant", "seed", "before", "after", "random_cosine", "steps", "seconds"}, …]}

``before`` and ``after`` are Spearman ρ on the evaluation data, -1..1, of the base and after the last step; no run is
left out. `scripts/measure_ablation.py` writes the file after each run, so that it can be interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.assets import asset
from training.atomic import write_text
from training.errors import InputError

SHIPPED = asset("ablation")


@dataclass(frozen=True)
class PrecomputedRun:
    """One run of a table."""

    variant: str
    seed: int
    before: float  # Spearman ρ, -1..1
    after: float
    random_cosine: float  # mean over random pairs of the training data, after the last step
    steps: int
    seconds: float


@dataclass(frozen=True)
class PrecomputedTable:
    """All runs of an ablation on one machine under one setting."""

    ablation: str
    settings: dict[str, Any]  # fields of a RunConfig that differ from the defaults, without the seed
    training_rows: int
    machine: dict[str, str]
    command: str
    measured: str  # the day of the last run, ISO 8601
    runs: Sequence[PrecomputedRun]

    @property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return sorted({run.seed for run in self.runs})

    def has(self, variant: str, seed: int) -> bool:
        """Whether the table has this run."""
        return any((run.variant, run.seed) == (variant, seed) for run in self.runs)

    def write(self, file: Path) -> None:
        """Atomically."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> PrecomputedTable:
        """Raises InputError if the file is not such a table."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{**values, "runs": [PrecomputedRun(**run) for run in values["runs"]]})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} is not a precomputed table: {error}") from error


def precomputed(name: str, folder: Path = SHIPPED) -> PrecomputedTable | None:
    """The precomputed table of an ablation; None if there is none."""
    file = folder / f"{name}.json"
    return PrecomputedTable.read(file) if file.exists() else None
