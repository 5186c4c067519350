"""Scores a file of sentence pairs as a stream: a million rows in less memory than the model takes.

    score_file(Path("pairs.csv"), [Path("scored.csv"), Path("scored.parquet")], encoder) -> ScoreSummary

Rows stay in their order and none is dropped. The columns of the input are copied. The new columns
are ``cosine``, ``cross_encoder`` if there is one, and ``note``. A note says what is wrong with a
row: missing text, a gold score that is not a number, too many fields, a sentence that is longer
than the model reads, or a sentence of unknown tokens only, which has no score. (If the input has a
column ``cosine``, the new one is called cosine_2.)

Sentences repeat in a file of pairs: one premise with three hypotheses, one query with a hundred
passages. Each distinct sentence of a chunk is encoded once, and `RecentEmbeddings` keeps the most
recent ones. Rows are processed in chunks of about two seconds, so that little is lost when the task
is stopped. Output files appear when they are complete.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.doctor import language_of
from sbert_app.services.files.layout import Layout
from sbert_app.services.files.report import ReportBuilder, ScoreSummary
from sbert_app.services.files.writers import Writer, cell_text, numbers, open_writers
from training.data.dataset import Dataset
from training.data.gold import NUMBER, TOP_SCORE, GoldColumn
from training.data.tables.cells import as_text
from training.data.tables.columns import PairColumns, free_name, join_names
from training.data.tables.reading import RATER, RATING, SPLIT, TableReading
from training.data.tables.rows import EMPTY_LINE, OpenedTable, RowBatch
from training.data.tables.table import open_table
from training.errors import InputError, StoppedError
from training.evaluation.metrics import remarks_on_correlation
from training.evaluation.thresholds import CRITERIA
from training.inference.recent import RecentEmbeddings
from training.models.model import PairModel, VectorModel
from training.models.texts import ReadReport

# The time of a chunk, the rows of the first and of the smallest chunk, and the largest growth from
# one chunk to the next.
CHUNK_SECONDS = 2.0
FIRST_CHUNK = 128
MIN_CHUNK = 16.0
MAX_GROWTH = 4.0
# The states of a sentence; 0 is the usual one.
CUT = 1
UNKNOWN = 2
# The number of scored rows, and of notes, in the summary.
EXAMPLE_ROWS = 10
EXAMPLE_NOTES = 20


def score_file(
    source: Path | OpenedTable,
    outputs: Sequence[Path],
    encoder: VectorModel,
    cross_encoder: PairModel | None = None,
    columns: PairColumns | Sequence[str] | None = None,
    watch: Watch = UNWATCHED,
    criteria: Sequence[str] = CRITERIA,
    is_block: bool = False,
    scale: str | None = None,
    labels: str | None = None,
    keep_unknown: bool = False,
    raters: str | None = None,
) -> ScoreSummary:
    """Scores every pair of a file.

    Args:
        source: a file, or a table that is already open.
        outputs: .csv, .tsv, .jsonl, .parquet or .xlsx files; all are written at the same time. Text
            has the layout of the input.
        encoder: the score is the cosine of its embeddings.
        cross_encoder: adds a second score.
        columns: the two columns with sentences, and a third with gold scores or labels if there are
            any; by default their names decide.
        watch: after a stop the outputs hold the rows scored so far.
        criteria: the thresholds to choose if there are gold scores or labels.
        is_block: whether the table is a block of a larger job. Then the summary has no report; and
            damage, or a stop, which raises `StoppedError`, leaves no outputs.
        scale: the lowest and the highest gold score: "1-7"; None to find out.
        labels: the values of labels: "similar:1,different:0"; None to go by their names.
        keep_unknown: whether sentences without a token that the encoder knows have scores.
        raters: the raters that count, separated by commas; None for all.

    Raises:
        InputError: the file cannot be used, or an output cannot be written. If the file is damaged
            in the middle, or changed while it was read, the outputs hold the rows before.
    """
    table = source if isinstance(source, OpenedTable) else open_table(source)
    # The columns of a block are known. To infer them again would use up its rows, which can be read
    # only once.
    reading: TableReading | None = None
    if not is_block:
        requested = columns.names if isinstance(columns, PairColumns) else columns or ()
        reading = table.reading.with_columns(requested)
    gold = _read_gold(table, reading, scale, labels, raters) if reading else _Gold(column=None)
    if not isinstance(columns, PairColumns):
        # Only a block has no reading, and a block has `PairColumns`. So ``reading`` is set here, and
        # the alternative is only for the type checker.
        columns = (reading or table.reading).pair()
    # The type of each new column.
    added = {"cosine": "float"}
    if cross_encoder is not None:
        added["cross_encoder"] = "float"
    added["note"] = "string"
    summary = ScoreSummary(
        source=table.path.name,
        columns=columns,
        model=encoder.name,
        pooling=encoder.pooling,
        cross_encoder=None if cross_encoder is None else cross_encoder.name,
        added={kind: free_name(kind, table.columns) for kind in added},
        remarks=list(table.remarks),
        gold=gold.column,
    )
    if summary.gold and summary.gold.note:
        summary.remarks.append(f"{summary.gold.note}.")
    summary.remarks += gold.notes
    if reading and (splits := reading.first(SPLIT)):
        summary.remarks.append(
            f"The column {splits} names parts of the file: the rows of all are scored and measured."
        )
    # The types again, by the names that the columns have in the outputs.
    types = dict(zip(summary.added.values(), added.values(), strict=True))
    layout = Layout.of(table)
    with open_writers(outputs, table.path, table.fields(), types, layout=layout) as writers:
        scorer = PairScorer(encoder, cross_encoder, keep_unknown)
        scoring = _Scoring(table, scorer, summary, writers, watch, gold.by_row)
        # The report has a temporary file beside the first output. A block has no report.
        damage = scoring.run(None if is_block else outputs[0].parent, criteria)
    if summary.report and summary.report.cosine_gold:
        summary.remarks += remarks_on_correlation(summary.report.cosine_gold.spearman)
    summary.outputs = list(map(str, outputs))
    # The number of cells that got an apostrophe. Each text file has counted the same ones.
    summary.guarded = max((writer.guarded for writer in writers), default=0)
    if damage:
        rows = f"The {summary.rows:,} rows before are scored in {', '.join(summary.outputs)}."
        raise InputError(f"{damage} {rows}") from damage
    return summary


@dataclass(frozen=True)
class _Gold:
    """The gold column of a file; None if there is none.

    If the file has the judgements of several people, ``by_row`` has one joint judgement for each
    pair, by the number of the pair's first row.
    """

    column: GoldColumn | None
    by_row: dict[int, str] | None = None
    notes: tuple[str, ...] = ()


def _read_gold(
    table: OpenedTable,
    reading: TableReading,
    scale: str | None,
    labels: str | None,
    raters: str | None,
) -> _Gold:
    """Finds out how the gold column of a file is read.

    InputError if the column, or the judgements of several people, cannot be read with these settings.
    """
    if not reading.all(RATING, RATER):
        # Without judgements of several people, each row has a gold value of its own.
        return _Gold(GoldColumn.in_table(table, reading.pair(), scale, labels))
    columns = join_names(reading.pair().names)
    data = Dataset.from_table(table, columns, scale=scale, labels=labels, raters=raters)
    # Only these notes are about the judgements of several people.
    notes = tuple(f"{note}." for note in data.notes if "raters" in note)
    if data.scores is not None:
        # `Dataset` has rescaled the scores, so that their scale is certain. They become texts, as
        # `GoldColumn` reads cells.
        column = GoldColumn(reading.target or "", NUMBER, (0.0, TOP_SCORE), is_sure=True)
        return _Gold(column, dict(zip(data.rows, map(str, data.scores), strict=True)), notes)
    names = [data.label_names[label] for label in data.labels or ()]
    column = GoldColumn.of(reading.target or "", names, reading.sentences, labels=labels)
    return _Gold(column, dict(zip(data.rows, names, strict=True)), notes)


class _Scoring:
    """The state of one file that is being scored. ``gold_by_row`` is `_Gold.by_row`."""

    def __init__(
        self,
        table: OpenedTable,
        scorer: PairScorer,
        summary: ScoreSummary,
        writers: list[Writer],
        watch: Watch,
        gold_by_row: dict[int, str] | None,
    ) -> None:
        self.table = table
        self.scorer = scorer
        self.summary = summary
        self.writers = writers
        self.watch = watch
        self.gold_by_row = gold_by_row
        # The number of rows of the next chunk: a float, as `run` multiplies it by a factor.
        self.chunk_rows = float(FIRST_CHUNK)

    def run(self, report_folder: Path | None, criteria: Sequence[str]) -> InputError | None:
        """Reads, scores and writes until the file ends or the task is stopped. Returns the error of a damaged file.

        The report has a temporary file in ``report_folder``, which is None for a block.
        """
        summary = self.summary
        damage = None
        # A block of a larger job is scored whole or not at all.
        is_block = report_folder is None
        started = time.perf_counter()
        with nullcontext() if report_folder is None else ReportBuilder(report_folder) as builder:
            try:
                for chunk in self._chunks():
                    chunk_started = time.perf_counter()
                    self._score(chunk, builder)
                    # The next chunk should take `CHUNK_SECONDS`.
                    growth = CHUNK_SECONDS / max(time.perf_counter() - chunk_started, 1e-6)
                    self.chunk_rows = max(MIN_CHUNK, len(chunk) * min(MAX_GROWTH, growth))
            except StoppedError:
                if is_block:
                    raise
                summary.stopped_at = summary.rows
            except InputError as error:
                if is_block or not summary.rows:
                    raise
                damage = error
            summary.seconds = time.perf_counter() - started
            summary.rows_per_second = summary.rows / max(summary.seconds, 1e-9)
            summary.encoded = self.scorer.encoded
            if builder is not None:
                summary.language = self._language()
                summary.report = builder.finish(summary.gold, criteria)
        return damage

    def _language(self) -> str:
        """The language of the first rows, or "" (`language_of`)."""
        columns = self.summary.columns
        texts: list[str] = []
        for name in (columns.sentence1, columns.sentence2):
            texts += filter(str.strip, self.summary.head.get(name, []))
        return language_of(texts, self.scorer.encoder)

    def _chunks(self) -> Iterator[RowBatch]:
        """Yields the rows of the table, about ``chunk_rows`` at a time; a batch is split into equal parts."""
        for batch in self.table.batches():
            start = 0
            while start < len(batch):
                self.watch.check()
                left = len(batch) - start
                # Computed anew for each chunk, as `run` adapts ``chunk_rows``.
                chunks = math.ceil(left / self.chunk_rows)
                size = math.ceil(left / chunks)
                yield batch.part(start, start + size)
                start += size

    def _score(self, chunk: RowBatch, builder: ReportBuilder | None) -> None:
        """Scores the rows of a chunk, writes them, and adds them to the summary and the report."""
        summary = self.summary
        names = (summary.columns.sentence1, summary.columns.sentence2)
        # The notes of the reader are the first of each row.
        notes = dict(chunk.notes)
        first_texts = list(map(as_text, chunk.rows[names[0]]))
        second_texts = list(map(as_text, chunk.rows[names[1]]))
        # The positions of the rows that have both sentences, and these sentences.
        complete = []
        firsts = []
        seconds = []
        for row, texts in enumerate(zip(first_texts, second_texts, strict=True)):
            if texts[0] is not None and texts[1] is not None:
                complete.append(row)
                firsts.append(texts[0])
                seconds.append(texts[1])
            else:
                missing = [name for name, text in zip(names, texts, strict=True) if text is None]
                _add_note(notes, row, f"no text in {' and '.join(missing)}")
        gold, bad_gold = self._gold_values(chunk)
        for row, note in bad_gold.items():
            _add_note(notes, row, note)

        def report(done: float, total: float) -> None:
            self._report(done / total * len(chunk))

        watch = Watch.of(report, self.watch.should_stop)
        cosine, cross, pair_notes, unknown, not_finite = self.scorer.score(firsts, seconds, watch)
        parts = [cosine] if cross is None else [cosine, cross]
        # (1 or 2, rows), NaN for rows without both sentences.
        scores = np.full((len(parts), len(chunk)), np.nan, dtype=np.float32)
        scores[:, complete] = parts
        for at, note in pair_notes.items():
            _add_note(notes, complete[at], note)
        unscored = int(np.isnan(cosine).sum())
        note_cells = [notes.get(row) for row in range(len(chunk))]
        # In the order of `ScoreSummary.added`: cosine, cross_encoder if there is one, note.
        columns: list[Any] = [*scores, note_cells]
        added = dict(zip(summary.added.values(), columns, strict=True))
        for writer in self.writers:
            writer.write(chunk, added)
        if builder is not None:
            cross_scores = None if cross is None else scores[1]
            builder.add(chunk.first_row, (first_texts, second_texts), scores[0], gold, cross_scores)

        summary.rows += len(chunk)
        summary.scored += len(complete) - unscored
        summary.unscored += unscored
        summary.unknown += unknown
        summary.not_finite += not_finite
        summary.missing_text += len(chunk) - len(complete)
        # The notes of `PairScorer` on sentences that are cut have this word.
        summary.truncated += sum("cut " in note for note in pair_notes.values())
        summary.bad_gold += len(bad_gold)
        # An empty line counts as a row without text.
        summary.malformed += sum(note != EMPTY_LINE for note in chunk.notes.values())
        noted = sorted(notes)[: EXAMPLE_NOTES - len(summary.notes)]
        summary.notes += [(chunk.first_row + row, notes[row]) for row in noted]
        # Only the first chunk is quoted.
        if not summary.head:
            summary.head = _head(chunk, added)
        # The rows of the chunk are in the summary now.
        self._report(rows_in_chunk=0)

    def _gold_values(self, chunk: RowBatch) -> tuple[np.ndarray | None, dict[int, str]]:
        """The gold values of the rows and the notes on them, as `GoldColumn.read`; None without a gold column."""
        column = self.summary.gold
        if column is None:
            return None, {}
        if self.gold_by_row is None:
            return column.read(chunk.rows[column.name])
        # Only the first row of a pair has the joint judgement, so that ``get`` returns None for the
        # other rows.
        row_numbers = range(chunk.first_row, chunk.first_row + len(chunk))
        return column.read(list(map(self.gold_by_row.get, row_numbers)))

    def _report(self, rows_in_chunk: float) -> None:
        """Reports the rows before the chunk, and ``rows_in_chunk`` of it."""
        done = self.summary.rows + rows_in_chunk
        # The estimate may be too low. None leaves the description as it is.
        self.watch.report(done, None, max(done, self.table.row_estimate))


def _head(chunk: RowBatch, added: dict[str, Any]) -> dict[str, list[str]]:
    """The first rows as text, by column."""
    head = {}
    for name, cells in (chunk.rows | added).items():
        first = cells[:EXAMPLE_ROWS]
        if isinstance(first, np.ndarray):
            head[name] = numbers(first)
        else:
            head[name] = list(map(cell_text, first))
    return head


def _add_note(notes: dict[int, str], row: int, note: str) -> None:
    notes[row] = f"{notes[row]}; {note}" if row in notes else note


def _sides(is_side: np.ndarray) -> str:
    """The sentences of a pair for which ``is_side`` (2,) is true, in words."""
    return " and ".join(f"sentence {at + 1}" for at in np.flatnonzero(is_side))


class PairScorer:
    """Scores pairs by the cosine of an encoder's embeddings and, if there is one, by a cross-encoder."""

    def __init__(
        self,
        encoder: VectorModel,
        cross_encoder: PairModel | None = None,
        keep_unknown: bool = False,
    ) -> None:
        self.encoder = encoder
        self.cross_encoder = cross_encoder
        self.keep_unknown = keep_unknown
        # The number of sentences that were encoded, without those found in the cache.
        self.encoded = 0
        # The number after the vector is the state of the sentence: 0, CUT or UNKNOWN.
        self._cache = RecentEmbeddings(encoder.dimension + 1)

    def score(
        self, firsts: list[str], seconds: list[str], watch: Watch = UNWATCHED
    ) -> tuple[np.ndarray, np.ndarray | None, dict[int, str], int, int]:
        """Scores N pairs.

        Scores that are not finite are NaN. Both scores are NaN if the cosine is not finite and,
        unless ``keep_unknown``, if the encoder knows no token of a sentence.

        Returns:
            The cosines, float32 (N,); the scores of the cross-encoder, float32 (N,), None without
            one; notes by the positions of pairs; the number of pairs with a sentence without known
            tokens; and the number of pairs whose cosine is not finite.
        """
        # With a cross-encoder, encoding is the first half of the work.
        encoding = watch if self.cross_encoder is None else watch.part(0, 0.5)
        # Each distinct sentence is encoded once. ``rows`` are the positions of the sentences among
        # the distinct ones.
        positions: dict[str, int] = {}
        rows = [positions.setdefault(text, len(positions)) for text in (*firsts, *seconds)]
        # Filled by the encoder: texts that a server refuses, with its reasons.
        refused: dict[str, str] = {}

        def encode(texts: list[str]) -> np.ndarray:
            """The vectors of texts, each followed by the state of its text: (texts, D + 1)."""
            self.encoded += len(texts)
            cut = set[str]()
            report = ReadReport(cut=cut, refused=refused)
            vectors = self.encoder.encode(
                texts,
                normalize=True,
                on_progress=encoding.on_progress,
                should_stop=watch.should_stop,
                report=report,
            )
            is_cut = [text in cut for text in texts]
            states = np.where(is_cut, CUT, 0)
            states[self.encoder.is_unknown(texts)] = UNKNOWN
            return np.column_stack([vectors, states.astype(np.float32)])

        # (distinct sentences, D + 1). Only the sentences that the cache lacks are encoded.
        embeddings = self._cache.get(list(positions), encode)
        u = embeddings[rows[: len(firsts)]]
        v = embeddings[rows[len(firsts) :]]
        products = np.einsum("nd,nd->n", u[:, :-1], v[:, :-1])
        cosine = np.clip(products, -1, 1).astype(np.float32, copy=False)
        notes: dict[int, str] = {}
        states = np.stack([u[:, -1], v[:, -1]])  # (2, N)
        for at in np.flatnonzero(states.any(axis=0)).tolist():
            # `_sides` names the sentences in this state; "" for neither.
            if unknown := _sides(states[:, at] == UNKNOWN):
                _add_note(notes, at, f"no known token in {unknown}")
            if cut := _sides(states[:, at] == CUT):
                # A model that cuts sentences has a ``max_length``.
                _add_note(notes, at, f"{cut} cut at {self.encoder.max_length or 0:,} tokens")
        is_left_out = ~np.isfinite(cosine)
        not_finite = int(is_left_out.sum())
        for at in np.flatnonzero(is_left_out).tolist():
            # An endpoint may refuse a sentence, for example because it is too long.
            refusals = []
            for number, text in enumerate((firsts[at], seconds[at]), 1):
                if text in refused:
                    refusal = f"refuses sentence {number}: {refused[text]}"
                    refusals.append(f"{self.encoder.sent_to} {refusal}")
            _add_note(notes, at, "; ".join(refusals) or "the model gives no finite vector")
        is_unknown = (states == UNKNOWN).any(axis=0)
        unknown_pairs = int(is_unknown.sum())
        if not self.keep_unknown:
            is_left_out |= is_unknown
        cosine[is_left_out] = np.nan
        if self.cross_encoder is None:
            return cosine, None, notes, unknown_pairs, not_finite
        predicting = watch.part(0.5, 1)
        cut_pairs = set[tuple[str, str]]()
        report = ReadReport(cut=cut_pairs)
        pairs = list(zip(firsts, seconds, strict=True))
        scores = self.cross_encoder.predict(
            pairs, predicting.on_progress, watch.should_stop, report
        )
        for at, pair in enumerate(pairs):
            if pair in cut_pairs:
                _add_note(notes, at, "cut for the cross-encoder")
        is_not_finite = ~np.isfinite(scores)
        for at in np.flatnonzero(is_not_finite).tolist():
            _add_note(notes, at, "the cross-encoder gives no finite score")
        scores = np.where(is_left_out | is_not_finite, np.float32(np.nan), scores)
        return cosine, scores, notes, unknown_pairs, not_finite
