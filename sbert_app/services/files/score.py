"""Files of sentence pairs in, scored files out, streamed: a million rows in less memory than the model takes.

    score_file(Path("pairs.csv"), [Path("scored.csv"), Path("scored.parquet")], encoder) -> ScoreSummary

Rows stay in their order and none is dropped. The input's columns go through untouched; beside them stand
``cosine``, ``cross_encoder`` where there is one, and ``note``, which says what is wrong with a row: text that
is missing, a gold score that is no number, too many fields. (Where the input has a column of that name
already, the new one is called cosine_2.) Work goes on in pieces of about two seconds, so that Stop keeps nearly
everything; outputs appear when they are complete.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.files.pair_scorer import PairPredictor, PairScorer, SentenceEncoder
from sbert_app.services.files.report import ReportBuilder
from sbert_app.services.files.summary import Progress, ScoreSummary
from sbert_app.services.files.writers import Writer, cell_text, discarded_on_error, numbers, open_writers
from training.data.tables.columns import free_name
from training.data.tables.table import (
    PairColumns,
    RowBatch,
    Table,
    as_text,
    bad_number,
    open_table,
    parse_number,
    pick_columns,
)
from training.errors import InputError, Stopped

PIECE_SECONDS = 2.0
FIRST_PIECE = 128  # rows
SMALLEST_PIECE = 16.0
TELL_SECONDS = 0.2
SHOWN_ROWS = 10  # scored rows that the summary shows
SHOWN_NOTES = 20


def score_file(
    source: Path | Table,
    outputs: Sequence[Path],
    encoder: SentenceEncoder,
    cross_encoder: PairPredictor | None = None,
    columns: PairColumns | Sequence[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> ScoreSummary:
    """Score every pair of a file.

    Args:
        source: a file, or a table that is already open.
        outputs: .csv, .tsv or .parquet files to write; all are written at once.
        encoder: its vectors' cosine is the score.
        cross_encoder: gives a second score; None for none.
        columns: the two columns with sentences, and a third with gold scores if there are any; None finds them
            by name. A ``PairColumns`` is taken as it is.
        on_progress: called several times a second.
        should_stop: asked between model batches. What is done is kept: the outputs are complete up to there.

    Raises:
        InputError: the file cannot be used, or an output cannot be written. If the file breaks off in the
            middle, the rows before are kept in the outputs.
    """
    table = source if isinstance(source, Table) else open_table(source)
    picked = columns if isinstance(columns, PairColumns) else pick_columns(table, columns)
    summary = ScoreSummary(
        source=table.path.name,
        columns=picked,
        model=encoder.name,
        pooling=encoder.pooling,
        cross_encoder=None if cross_encoder is None else cross_encoder.name,
        added=_new_names(table, cross_encoder is not None),
        remarks=list(table.remarks),
    )
    kinds = {name: "string" if what == "note" else "float" for what, name in summary.added.items()}
    sinks = open_writers(outputs, table.path, table.fields(), kinds)
    run = _Run(table, PairScorer(encoder, cross_encoder), summary, sinks, on_progress, should_stop or (lambda: False))
    with discarded_on_error(sinks):
        run.all_rows(outputs[0].parent)
    return summary


class _Run:
    """One file on its way through."""

    def __init__(
        self,
        table: Table,
        scorer: PairScorer,
        summary: ScoreSummary,
        sinks: list[Writer],
        on_progress: Callable[[Progress], None] | None,
        should_stop: Callable[[], bool],
    ) -> None:
        self.table = table
        self.scorer = scorer
        self.summary = summary
        self.sinks = sinks
        self.on_progress = on_progress
        self.should_stop = should_stop
        self.started = time.perf_counter()
        self.told = 0.0
        self.piece_rows = float(FIRST_PIECE)

    def all_rows(self, folder: Path) -> None:
        """Read, score and write until the file ends or somebody presses Stop; then finish the outputs."""
        summary, broken = self.summary, None
        with ReportBuilder(folder) as builder:
            try:
                for piece in self._pieces():
                    began = time.perf_counter()
                    self._score(piece, builder)
                    faster = PIECE_SECONDS / max(time.perf_counter() - began, 1e-6)
                    self.piece_rows = max(SMALLEST_PIECE, len(piece) * min(4.0, faster))
            except Stopped:
                summary.stopped_at = summary.rows
            except InputError as error:
                if not summary.rows:
                    raise
                broken = error
            summary.seconds = time.perf_counter() - self.started
            summary.rows_per_second = summary.rows / max(summary.seconds, 1e-9)
            summary.encoded = self.scorer.encoded
            summary.report = builder.finish()
        for sink in self.sinks:
            sink.finish()
        summary.outputs = [str(sink.path) for sink in self.sinks]
        summary.guarded = max((sink.guarded for sink in self.sinks), default=0)
        if broken:
            where = ", ".join(summary.outputs)
            raise InputError(f"{broken} The {summary.rows:,} rows before are scored in {where}.") from broken

    def _pieces(self) -> Iterator[RowBatch]:
        """The table in pieces of ``piece_rows``, which may change on the way, without small remainders."""
        for batch in self.table.batches():
            at = 0
            while at < len(batch):
                if self.should_stop():
                    raise Stopped
                left = len(batch) - at
                size = math.ceil(left / math.ceil(left / self.piece_rows))
                yield batch.part(at, at + size)
                at += size

    def _score(self, piece: RowBatch, builder: ReportBuilder) -> None:
        """Score consecutive rows, write them, count them."""
        summary, names = self.summary, (self.summary.columns.sentence1, self.summary.columns.sentence2)
        notes = dict(piece.notes)
        first, second = ([as_text(cell) for cell in piece.rows[name]] for name in names)
        ready = [at for at in range(len(piece)) if first[at] is not None and second[at] is not None]
        for at in sorted(set(range(len(piece))).difference(ready)):
            gone = [name for name, texts in zip(names, (first, second), strict=True) if texts[at] is None]
            _mark(notes, at, f"no text in {' and '.join(gone)}")
        gold, bad = self._gold(piece)
        for at, note in bad.items():
            _mark(notes, at, note)

        cosine, cross = self._predict(first, second, ready)
        scores = [cosine] if cross is None else [cosine, cross]
        columns: list[Any] = [*scores, [notes.get(at) for at in range(len(piece))]]
        added = dict(zip(summary.added.values(), columns, strict=True))
        for sink in self.sinks:
            sink.write(piece, added)
        builder.add(piece.first_row, (first, second), cosine, gold, cross)

        summary.rows += len(piece)
        summary.scored += len(ready)
        summary.missing_text += len(piece) - len(ready)
        summary.bad_gold += len(bad)
        summary.malformed += len(piece.notes)
        marked = sorted(notes)[: SHOWN_NOTES - len(summary.notes)]
        summary.notes += [(piece.first_row + at, notes[at]) for at in marked]
        if not summary.head:
            shown = piece.part(0, SHOWN_ROWS).rows
            summary.head = {name: [cell_text(cell) for cell in cells] for name, cells in shown.items()}
            for name, cells in added.items():
                texts = numbers(cells) if isinstance(cells, np.ndarray) else map(cell_text, cells)
                summary.head[name] = list(texts)[:SHOWN_ROWS]
        self._tell(0.0, force=True)

    def _predict(
        self, first: list[str | None], second: list[str | None], ready: list[int]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of the rows that are ready, NaN for the others."""
        cosine, cross = self.scorer.score(
            [first[at] or "" for at in ready],
            [second[at] or "" for at in ready],
            on_share=lambda share: self._tell(share * len(first)),
            should_stop=self.should_stop,
        )
        rows = len(first)
        return _spread(cosine, ready, rows), None if cross is None else _spread(cross, ready, rows)

    def _gold(self, piece: RowBatch) -> tuple[np.ndarray | None, dict[int, str]]:
        """Gold scores, NaN where there is none, and what is wrong with those that are no numbers."""
        column = self.summary.columns.score
        if column is None:
            return None, {}
        cells = piece.rows[column]
        found = [parse_number(cell) for cell in cells]
        bad = {
            at: bad_number(column, cell)
            for at, cell in enumerate(cells)
            if found[at] is None and cell is not None and str(cell).strip()
        }
        return np.array([math.nan if number is None else number for number in found]), bad

    def _tell(self, rows_in_hand: float, force: bool = False) -> None:
        """Report progress, at most every ``TELL_SECONDS`` within a piece."""
        now = time.perf_counter()
        if self.on_progress is None or (now - self.told < TELL_SECONDS and not force):
            return
        self.told = now
        self.on_progress(Progress(self.summary.rows + rows_in_hand, self.table.row_estimate, now - self.started))


def _new_names(table: Table, crossed: bool) -> dict[str, str]:
    """The columns that scoring adds, by names that the input does not have."""
    wanted = ("cosine", "cross_encoder", "note") if crossed else ("cosine", "note")
    return {name: free_name(name, table.columns) for name in wanted}


def _spread(scores: np.ndarray, ready: list[int], rows: int) -> np.ndarray:
    whole = np.full(rows, np.nan, dtype=np.float32)
    whole[ready] = scores
    return whole


def _mark(notes: dict[int, str], at: int, note: str) -> None:
    notes[at] = f"{notes[at]}; {note}" if at in notes else note
