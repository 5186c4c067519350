"""What scoring says while it runs (Progress) and when it is done (ScoreSummary)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from sbert_app.services.files.report import Report
from training.data.tables.table import PairColumns


@dataclass(frozen=True)
class Progress:
    """How far scoring is."""

    rows: float  # rows done; parts of a row while a piece is being worked on
    total: int  # rows in the file, as estimated before
    seconds: float

    @property
    def share(self) -> float:
        """0 to 1."""
        return min(1.0, self.rows / max(self.total, 1))

    @property
    def rows_per_second(self) -> float:
        """On average since the start."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """None until there is a rate."""
        rate = self.rows_per_second
        return max(0.0, self.total - self.rows) / rate if rate else None


@dataclass
class ScoreSummary:
    """What became of a file."""

    source: str
    columns: PairColumns
    model: str
    pooling: str
    cross_encoder: str | None
    added: dict[str, str]  # what it is -> the name of its column
    outputs: list[str] = field(default_factory=list)
    rows: int = 0  # rows read and written
    scored: int = 0
    missing_text: int = 0
    bad_gold: int = 0
    malformed: int = 0  # rows that the reader could not take as they stood
    encoded: int = 0  # sentences that went through the encoder; repeats did not
    guarded: int = 0  # cells that got an apostrophe in the CSV
    stopped_at: int | None = None  # the last row kept, if somebody pressed Stop
    seconds: float = 0.0
    rows_per_second: float = 0.0
    remarks: list[str] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)  # the first marked rows
    head: dict[str, list[Any]] = field(default_factory=dict)  # the first scored rows, by column
    report: Report | None = None

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain JSON values, NaN as null."""
        return _plain(asdict(self))

    @property
    def sentence(self) -> str:
        """What happened in one sentence."""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        how = rows if self.stopped_at is None else f"stopped at row {self.rows:,}"
        said = f"{how}: {self.scored:,} scored in {self.seconds:,.1f} s ({self.rows_per_second:,.0f} rows/s)"
        counts = {
            "without text": self.missing_text,
            "with a gold score that is no number": self.bad_gold,
            "malformed": self.malformed,
        }
        marked = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return said + (f"; marked in {self.added['note']}: {marked}" if marked else "") + "."


def _plain(value: Any) -> Any:
    """NaN has no place in JSON."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
