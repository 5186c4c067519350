"""Sweep: a snapshot of an ablation in progress.

``home/sweeps/<id>.json`` has the ablation, the seeds, the settings that were changed for all cells, and the run of
each cell. A sweep has no other state than that of its runs.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sbert_app.services.experiments.ablations import Ablation, ablation
from sbert_app.services.experiments.errors import SweepNotFound
from sbert_app.services.experiments.statistics import VariantRow, rows
from sbert_app.services.runs.record import AT_WORK, RESUMABLE, Run, one_line
from training.atomic import write_text

DELETED = "deleted"  # the state of a cell without a run


@dataclass
class SweepRecord:
    """The file. ``runs`` has the id of each cell's run by "variant/seed"; null until it is created."""

    ablation: str
    created: float  # seconds since 1970
    seeds: list[int]
    changes: dict[str, Any] = field(default_factory=dict)  # fields of a RunConfig, for all cells
    runs: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> SweepRecord:
        """Raises SweepNotFound if the file is missing or damaged, or its ablation unknown."""
        try:
            record = cls(**json.loads(file.read_text(encoding="utf-8")))
            ablation(record.ablation)
        except (OSError, ValueError, TypeError) as error:  # an unknown ablation is a ValueError too
            raise SweepNotFound(f"{file} cannot be read: {one_line(error)}") from error
        return record

    def write(self, file: Path) -> None:
        """Atomically."""
        write_text(file, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def cells(self) -> list[tuple[str, int]]:
        """(variant, seed), ordered by seed, so that a sweep that is stopped early is balanced."""
        return [(variant, seed) for seed in self.seeds for variant in ablation(self.ablation).variants]


def cell_key(variant: str, seed: int) -> str:
    """The key of a cell in the file."""
    return f"{variant}/{seed}"


@dataclass(frozen=True)
class SweepCell:
    """One run of the grid."""

    variant: str
    seed: int
    run: Run | None  # None: not created yet, or deleted

    @property
    def state(self) -> str:
        """The state of the run, or "deleted"."""
        return DELETED if self.run is None else self.run.state

    @property
    def value(self) -> float | None:
        """Spearman ρ ×100 after the last step; None until the run is finished."""
        return _spearman(self.run.progress.latest) if self.run and self.state == "finished" else None

    @property
    def before(self) -> float | None:
        """Spearman ρ ×100 of the base, before the first step."""
        return _spearman(self.run.progress.baseline) if self.run else None

    @property
    def share(self) -> float:
        """How much of the run is done, 0 to 1."""
        if self.run is None or not self.run.progress.steps:
            return 0.0
        return min(1.0, self.run.progress.step / self.run.progress.steps)


@dataclass(frozen=True)
class Sweep:
    """A sweep as it is now."""

    id: str
    record: SweepRecord
    cells: Sequence[SweepCell]

    @property
    def ablation(self) -> Ablation:
        """What is varied."""
        return ablation(self.record.ablation)

    @property
    def state(self) -> str:
        """running while a run is queued or running; finished when all are; else failed or stopped."""
        counts = self.counts
        if any(counts[state] for state in AT_WORK):
            return "running"
        if counts["finished"] == len(self.cells):
            return "finished"
        return "failed" if counts["failed"] else "stopped"

    @property
    def counts(self) -> Counter[str]:
        """How many cells are in each state."""
        return Counter(cell.state for cell in self.cells)

    @property
    def can_resume(self) -> bool:
        """Whether there are cells that `Sweeps.resume` would queue."""
        return any(cell.state in RESUMABLE or cell.run is None for cell in self.cells)

    @property
    def values(self) -> Mapping[tuple[str, int], float]:
        """The results of the finished runs."""
        return {(cell.variant, cell.seed): cell.value for cell in self.cells if cell.value is not None}

    @property
    def rows(self) -> list[VariantRow]:
        """The rows of the table, from the finished runs."""
        before = {(cell.variant, cell.seed): cell.before for cell in self.cells if cell.before is not None}
        return rows(self.ablation, self.values, before)

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the finished runs; None before the first is finished."""
        finished = [cell.run.record for cell in self.cells if cell.run and cell.state == "finished"]
        durations = [run.ended - run.started for run in finished if run.ended and run.started]
        durations = [seconds for seconds in durations if seconds > 0]  # else the clock was set back meanwhile
        if not durations or self.state != "running":
            return None
        return statistics.median(durations) * sum(1 - cell.share for cell in self.cells if cell.state in AT_WORK)

    @property
    def reasons(self) -> list[str]:
        """Why runs failed, without repetition."""
        failed = [cell.run for cell in self.cells if cell.run and cell.state == "failed"]
        return list(dict.fromkeys(run.record.reason or "no reason was recorded" for run in failed))

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the command line."""
        return {
            "id": self.id,
            "preset": self.record.ablation,
            "state": self.state,
            "seeds": self.record.seeds,
            "settings": self.record.changes,
            "rows": [row.to_json() for row in self.rows],
            "runs": self.record.runs,
        }


def _spearman(figures: Mapping[str, Any] | None) -> float | None:
    value = (figures or {}).get("spearman")
    return None if value is None else 100 * value
