"""--threshold of score: which rows match, groups of duplicates, the sentences without them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.formats import format_count
from training.errors import InputError

if TYPE_CHECKING:
    from sbert_app.services.files.matches import MatchSummary
    from sbert_app.services.files.summary import ScoreSummary
    from training.data.tables.table import PairColumns, Table
    from training.evaluation.thresholds import Criterion


@dataclass(frozen=True)
class Matching:
    """What the options ask for."""

    criterion: Criterion
    output: Path
    groups: Path | None
    deduplicated: Path | None

    @classmethod
    def of(cls, threshold: str | None, output: Path, groups: Path | None, deduplicated: Path | None) -> Matching | None:
        """None without a threshold. InputError if it is none, or is missing where the others need it."""
        if threshold is None:
            if groups or deduplicated:
                raise InputError("--groups and --deduplicated need --threshold: from which cosine on are rows matches?")
            return None
        from training.evaluation.thresholds import Criterion

        paths = [path.resolve() for path in (output, groups, deduplicated) if path]
        if len(set(paths)) < len(paths):
            raise InputError("two of OUT, --groups and --deduplicated are the same file; name three")
        return cls(Criterion.parse(threshold), output, groups, deduplicated)

    @property
    def criteria(self) -> tuple[str, ...]:
        """For the report of the scores."""
        return (str(self.criterion),)

    def check(self, table: Table, columns: PairColumns) -> None:
        """InputError, before anything is scored, if a threshold cannot be chosen or a file not be written."""
        from sbert_app.services.files.gold import LOOKED_AT, GoldColumn
        from sbert_app.services.files.writers import WRITERS
        from training.evaluation.thresholds import FIXED

        for path in filter(None, (self.groups, self.deduplicated)):
            if path.suffix.lower() not in WRITERS:
                raise InputError(f"{path.name} has to end with one of {', '.join(WRITERS)}.")
            if not path.parent.is_dir():
                raise InputError(f"There is no folder {path.parent} to write {path.name} to.")
        if self.criterion.kind != FIXED and GoldColumn.of(table.preview(LOOKED_AT), columns) is None:
            raise InputError(
                f"{table.path.name} has no column of gold scores or labels to choose a threshold by; give a number, "
                "such as --threshold 0.8"
            )

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Where the scores are put meanwhile: with the types that they have, beside the output."""
        folder = self.output.absolute().parent
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder} to write {self.output.name} to.")
        with tempfile.TemporaryDirectory(prefix=".sbert-lab-", dir=folder) as inside:
            yield Path(inside) / "scored.parquet"

    def apply(self, scored: Path, summary: ScoreSummary) -> MatchSummary:
        """Write the outputs. InputError if no threshold fulfils the criterion; the scores are kept."""
        from sbert_app.services.files.matches import MatchOutputs, apply_threshold, threshold_of

        try:
            threshold = threshold_of(summary, self.criterion)
        except InputError as error:
            raise InputError(f"{error}; the scores without a column match are in {self.output}") from error
        columns = (summary.columns.sentence1, summary.columns.sentence2)
        outputs = MatchOutputs([self.output], self.groups, self.deduplicated)
        return apply_threshold(scored, columns, summary.added["cosine"], threshold, outputs)


def text(matches: MatchSummary) -> str:
    """The matches in one sentence."""
    groups = format_count(matches.groups, "group")
    return (
        f"{matches.matches:,} of {format_count(matches.pairs, 'pair')} match, from {matches.score} "
        f"{matches.threshold:.4f} on; {groups} of duplicates among {format_count(matches.sentences, 'sentence')}, "
        f"{matches.kept:,} without them."
    )
