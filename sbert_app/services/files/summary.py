"""ScoreSummary: what scoring a file did, with the statistics of the scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sbert_app.formats import format_count, format_duration, json_values
from sbert_app.services.files.report import Report
from training.data.tables.table import PairColumns


@dataclass
class ScoreSummary:
    """The result of scoring a file."""

    source: str
    columns: PairColumns
    model: str
    pooling: str
    cross_encoder: str | None
    added: dict[str, str]  # cosine, cross_encoder, note -> the name of that column in the outputs
    outputs: list[str] = field(default_factory=list)
    rows: int = 0  # rows read and written
    scored: int = 0
    missing_text: int = 0
    bad_gold: int = 0
    malformed: int = 0  # rows that the reader had to repair
    encoded: int = 0  # sentences that went through the encoder; repeated ones only once
    guarded: int = 0  # cells of the CSV that were given an apostrophe, as a spreadsheet would run them
    stopped_at: int | None = None  # the last row that was scored, if the task was stopped
    seconds: float = 0.0
    rows_per_second: float = 0.0
    remarks: list[str] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)  # (row, note) of the first rows that have one
    head: dict[str, list[Any]] = field(default_factory=dict)  # the first scored rows, by column
    report: Report | None = None

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain JSON values, NaN as null."""
        return json_values(asdict(self) | {"report": self.report and self.report.to_dict()})

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        rows = format_count(self.rows, "row") if self.stopped_at is None else f"stopped at row {self.rows:,}"
        counts = {
            "without text": self.missing_text,
            "with a gold score that is no number": self.bad_gold,
            "malformed": self.malformed,
        }
        problems = ", ".join(f"{count:,} {problem}" for problem, count in counts.items() if count)
        marked = f"; marked in {self.added['note']}: {problems}" if problems else ""
        speed = f"{self.rows_per_second:,.0f} rows/s"
        return f"{rows}: {self.scored:,} scored in {format_duration(self.seconds)} ({speed}){marked}."
