"""The report on a scored file: the spread of the cosines, agreement with the gold scores, and where they disagree.

Rows are added as they are scored, in bounded memory. The histogram is exact. Correlations and
disagreements are computed on a uniform sample of at most a million rows that have a gold score or a
score of the cross-encoder. Their sentences are kept in a temporary file, because the rows that
disagree most are known only at the end.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # loads its submodules on first use

from sbert_app.formats import format_count, format_duration, json_values
from training.data.gold import NUMBER, GoldColumn
from training.data.tables.columns import PairColumns
from training.evaluation.bootstrap import bootstrap_interval, resamples_for, sentence_keys
from training.evaluation.metrics import pearson, spearman
from training.evaluation.thresholds import CRITERIA, DataDecision, decide

BINS = 80
# The most rows in the sample, points in the scatter plot, and disagreements.
SAMPLE = 1_000_000
SCATTER = 2_000
WORST = 20
# The bins of the histograms by label, each a hundredth wide.
FINE_BINS = 200
# A threshold is measured on at most this many rows. With more it is slower, but not more certain.
DECIDED = 50_000
# The columns of the sample. PLACE is the place of the sentences in the temporary file, FIRST and
# SECOND are their hashes.
ROW, COSINE, GOLD, CROSS, PLACE, FIRST, SECOND = range(7)
# Hashes are cut to this many bits, so that they are exact in float64.
HASH_BITS = (1 << 53) - 1

# The first and the second sentences of rows.
Texts = tuple[Sequence[str | None], Sequence[str | None]]


@dataclass(frozen=True)
class Disagreement:
    """A row whose ranks by the cosine and by the other score are far apart.

    Ranks are from 0 to 1. A row of labelled data has none; both are 0.
    """

    row: int
    sentence1: str
    sentence2: str
    cosine: float
    other: float
    cosine_rank: float
    other_rank: float


@dataclass(frozen=True)
class Correlation:
    """The correlations of two scores in -1..1 over the rows that have both, and their 95% intervals."""

    n: int
    spearman: float
    spearman_interval: tuple[float, float]
    pearson: float
    pearson_interval: tuple[float, float]
    interval_method: str


@dataclass(frozen=True)
class ScoreReport:
    """The report on a scored file.

    The histogram and the mean are of all scored rows, the rest is of the rows that also have a gold
    score or a score of the cross-encoder.

    Attributes:
        mean: the mean cosine; None without a scored row.
        sampled: whether there are too many of these rows, so that the rest is of a sample of them.
        cosine_gold: None, as each of the other two correlations, for fewer than three rows that have
            both scores.
        scatter: the gold score and the cosine of at most `SCATTER` rows.
        decision: the thresholds of the cosine; None unless the gold column says which rows match.
        by_label: for labels, the number of matches and of other rows in each hundredth of the
            cosine.
        low_matches: for labels, the matches with the lowest cosines.
        high_others: for labels, the other rows with the highest cosines.
    """

    counts: list[int]
    edges: list[float]
    mean: float | None
    sampled: bool
    cosine_gold: Correlation | None
    cross_gold: Correlation | None
    cosine_cross: Correlation | None
    scatter: list[tuple[float, float]]
    gold_disagreements: list[Disagreement]
    cross_disagreements: list[Disagreement]
    decision: DataDecision | None = None
    by_label: tuple[list[int], list[int]] | None = None
    low_matches: list[Disagreement] = field(default_factory=list)
    high_others: list[Disagreement] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self) | {"decision": self.decision and self.decision.to_dict()}


class ReportBuilder:
    """Collects scored rows for a report. A context manager, because of its temporary file in ``folder``."""

    def __init__(self, folder: Path, capacity: int = SAMPLE) -> None:
        self._edges = np.linspace(-1, 1, BINS + 1)
        # The number of cosines in each bin of the histogram, and the sum of all cosines.
        self._counts = np.zeros(BINS, dtype=np.int64)
        self._sum = 0.0
        # (capacity, columns), with the columns ROW to SECOND. The system allocates memory only for
        # the rows that are used.
        self._sample = np.empty((capacity, 7))
        # The number of rows with a gold score or a score of the cross-encoder, from which the sample
        # is drawn.
        self._count = 0
        self._random = np.random.default_rng(0)
        self._texts = tempfile.TemporaryFile("w+b", dir=folder)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> ReportBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._texts.close()

    def add(
        self,
        first_row: int,
        texts: Texts,
        cosine: np.ndarray,
        gold: np.ndarray | None,
        cross: np.ndarray | None,
    ) -> None:
        """Adds consecutive rows with their scores, (rows,) each and NaN where there is none."""
        scored = np.flatnonzero(~np.isnan(cosine))
        self._counts += np.histogram(cosine[scored], self._edges)[0]
        self._sum += float(cosine[scored].sum(dtype=np.float64))
        nothing = np.full(len(cosine), np.nan)
        gold = nothing if gold is None else gold
        cross = nothing if cross is None else cross
        has_other = ~(np.isnan(gold) & np.isnan(cross))
        useful = scored[has_other[scored]]
        # Vitter's algorithm R: row n takes a random place from 0 to n, and is left out if the sample
        # has no such place. The first rows fill the sample. If two of these rows take the same
        # place, the later one keeps it.
        order = self._count + np.arange(len(useful))
        self._count += len(useful)
        random = (self._random.random(len(useful)) * (order + 1)).astype(np.int64)
        places = np.where(order < len(self._sample), order, random)
        is_inside = places < len(self._sample)
        rows = useful[is_inside]
        places = places[is_inside]
        if not len(rows):
            return
        # Hashes tell which rows share a sentence.
        hashes = []
        for column in texts:
            hashes.append([hash(column[row]) & HASH_BITS for row in rows.tolist()])
        # In the order of the columns, from ROW to SECOND.
        figures = (first_row + rows, cosine[rows], gold[rows], cross[rows])
        self._sample[places] = np.stack([*figures, self._keep(texts, rows), *hashes], axis=1)

    def finish(
        self, reading: GoldColumn | None = None, criteria: Sequence[str] = CRITERIA
    ) -> ScoreReport:
        """The report on all rows so far.

        ``reading`` is the reading of the gold column, None without one. ``criteria`` say which
        thresholds to choose, such as precision=0.95.
        """
        sample = self._sample[: self._count]
        gold = sample[~np.isnan(sample[:, GOLD])]
        cross = sample[~np.isnan(sample[:, CROSS])]
        both = gold[~np.isnan(gold[:, CROSS])]
        total = int(self._counts.sum())
        decision = None
        label_fields: dict[str, Any] = {}
        if reading is not None:
            decision = _decision(gold, reading, criteria)
            matching = reading.matches(gold[:, GOLD])
            # Scores on a scale have matches, too, but only 0 and 1 are labels.
            are_labels = reading.kind != NUMBER or set(gold[:, GOLD].tolist()) == {0.0, 1.0}
            if matching is not None and are_labels:
                is_match, _meaning = matching
                label_fields = self._label_fields(gold, is_match)
        points = gold
        if len(gold) > SCATTER:
            points = gold[np.sort(self._random.choice(len(gold), SCATTER, replace=False))]
        return ScoreReport(
            counts=self._counts.tolist(),
            edges=self._edges.round(4).tolist(),
            mean=self._sum / total if total else None,
            sampled=self._count > len(self._sample),
            cosine_gold=correlation(gold, COSINE, GOLD),
            cross_gold=correlation(both, CROSS, GOLD),
            cosine_cross=correlation(cross, COSINE, CROSS),
            scatter=[(round(row[GOLD], 4), round(row[COSINE], 4)) for row in points.tolist()],
            gold_disagreements=[] if label_fields else self._worst(gold, GOLD),
            cross_disagreements=self._worst(cross, CROSS),
            decision=decision,
            **label_fields,
        )

    def _keep(self, texts: Texts, rows: np.ndarray) -> list[int]:
        """Writes the sentences of these rows to the temporary file. Returns their places there."""
        start = self._texts.seek(0, os.SEEK_END)
        lines = []
        for row in rows.tolist():
            pair = [column[row] for column in texts]
            lines.append(json.dumps(pair).encode() + b"\n")
        self._texts.write(b"".join(lines))
        # Each line begins where the lines before it end.
        return [start + before for before in accumulate(map(len, lines[:-1]), initial=0)]

    def _worst(self, sample: np.ndarray, other: int) -> list[Disagreement]:
        """The rows whose ranks by the cosine and by ``other``, a column of the sample, are furthest apart."""
        if len(sample) < 2:
            return []
        # Ranks from 0 to 1, (N, 2).
        scores = sample[:, [COSINE, other]]
        ranks = (scipy.stats.rankdata(scores, axis=0) - 1) / (len(sample) - 1)
        apart = np.abs(ranks[:, 0] - ranks[:, 1])
        worst = np.argsort(-apart, kind="stable")[:WORST]
        disagreements = []
        for row in worst[apart[worst] > 0]:
            cosine_rank, other_rank = ranks[row].tolist()
            disagreements.append(self._disagreement(sample[row], other, cosine_rank, other_rank))
        return disagreements

    def _disagreement(
        self, row: np.ndarray, other: int, cosine_rank: float = 0.0, other_rank: float = 0.0
    ) -> Disagreement:
        """A row of the sample with its sentences. ``other`` is the column of the other score.

        The ranks are left out for rows with labels.
        """
        self._texts.seek(int(row[PLACE]))
        first, second = json.loads(self._texts.readline())
        return Disagreement(
            int(row[ROW]),
            first,
            second,
            float(row[COSINE]),
            float(row[other]),
            cosine_rank,
            other_rank,
        )

    def _label_fields(self, gold: np.ndarray, is_match: np.ndarray) -> dict[str, Any]:
        """The fields of the report that labels have in place of disagreements."""
        # The bins begin at -1. The tolerance puts a cosine of a whole number of hundredths at the
        # beginning of its bin. A cosine of 1 belongs to the last bin.
        hundredths = np.floor((gold[:, COSINE] + 1) * 100 + 1e-4)
        bins = np.clip(hundredths.astype(int), 0, FINE_BINS - 1)
        of_matches = np.bincount(bins[is_match], minlength=FINE_BINS).tolist()
        of_others = np.bincount(bins[~is_match], minlength=FINE_BINS).tolist()
        ascending = np.argsort(gold[:, COSINE], kind="stable")
        descending = ascending[::-1]
        low_matches = ascending[is_match[ascending]][:WORST]
        high_others = descending[~is_match[descending]][:WORST]
        return {
            "by_label": (of_matches, of_others),
            "low_matches": [self._disagreement(row, GOLD) for row in gold[low_matches]],
            "high_others": [self._disagreement(row, GOLD) for row in gold[high_others]],
        }


def correlation(sample: np.ndarray, score: int, gold: int) -> Correlation | None:
    """Spearman and Pearson of two columns, with intervals; None for fewer than three rows, NaN for constant ones."""
    if len(sample) < 3:
        return None
    x = sample[:, score]
    y = sample[:, gold]
    resamples = resamples_for(len(sample))
    # The intervals allow for sentences that rows share.
    keys = _keys(sample)
    by_rank = bootstrap_interval(x, y, "spearman", resamples, keys=keys)
    by_value = bootstrap_interval(x, y, "pearson", resamples, keys=keys)
    return Correlation(
        n=len(x),
        spearman=spearman(x, y),
        spearman_interval=(by_rank.low, by_rank.high),
        pearson=pearson(x, y),
        pearson_interval=(by_value.low, by_value.high),
        interval_method=by_rank.method,
    )


def _keys(sample: np.ndarray) -> np.ndarray:
    """The `sentence_keys`, which tell which rows share a sentence, by the hashes of the sentences."""
    return sentence_keys((sample[:, FIRST].tolist(), sample[:, SECOND].tolist()))


def _decision(
    sample: np.ndarray, reading: GoldColumn, criteria: Sequence[str]
) -> DataDecision | None:
    """The thresholds, chosen on at most `DECIDED` rows; None if the gold column does not say which rows match."""
    if len(sample) > DECIDED:
        rows = np.random.default_rng(0).choice(len(sample), DECIDED, replace=False)
        sample = sample[np.sort(rows)]
    matching = reading.matches(sample[:, GOLD])
    if matching is None:
        return None
    matches, meaning = matching
    decision = decide(sample[:, COSINE], matches, criteria, keys=_keys(sample))
    return DataDecision("cosine", meaning, decision)


@dataclass
class ScoreSummary:
    """A scored file.

    Attributes:
        added: the names that the columns cosine, cross_encoder and note have in the outputs.
        malformed: the rows that the reader repaired.
        unknown: the rows with a sentence without a token that the model knows.
        unscored: the rows that have text but no score, because a sentence is unknown or its vector
            is not finite.
        not_finite: the rows with text whose cosine is not finite, whether or not a sentence is unknown.
        truncated: the rows with a sentence whose end a model has not read.
        language: the language of the first rows, if the model was trained on another one.
        encoded: the sentences that the encoder has read, without repeated ones.
        guarded: the cells of CSV with an apostrophe, as a spreadsheet would run them as formulas.
        stopped_at: the last row that was scored, if the task was stopped; otherwise None.
        notes: the first rows that have a note.
        head: the first scored rows, by column.
        report: None for a block of a larger job.
        gold: the reading of the gold column; None without one.
    """

    source: str
    columns: PairColumns
    model: str
    pooling: str
    cross_encoder: str | None
    added: dict[str, str]
    outputs: list[str] = field(default_factory=list)
    rows: int = 0
    scored: int = 0
    missing_text: int = 0
    bad_gold: int = 0
    malformed: int = 0
    truncated: int = 0
    unknown: int = 0
    unscored: int = 0
    not_finite: int = 0
    language: str = ""
    encoded: int = 0
    guarded: int = 0
    stopped_at: int | None = None
    seconds: float = 0.0
    rows_per_second: float = 0.0
    remarks: list[str] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    head: dict[str, list[Any]] = field(default_factory=dict)
    report: ScoreReport | None = None
    gold: GoldColumn | None = None

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain JSON values, NaN as null."""
        return json_values(asdict(self) | {"report": self.report and self.report.to_dict()})

    @property
    def marked(self) -> str:
        """The number of rows with each kind of note, in words."""
        counts = {
            "without text": self.missing_text,
            "with a gold score or label that is not understood": self.bad_gold,
            "malformed": self.malformed,
            "without a token that the model knows": self.unknown,
            "without a finite score": self.not_finite,
            "cut, as they are longer than the model reads": self.truncated,
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count > 0)

    @property
    def sentence(self) -> str:
        rows = format_count(self.rows, "row")
        if self.stopped_at is not None:
            rows = f"stopped at row {self.rows:,}"
        marked = f"; marked in {self.added['note']}: {self.marked}" if self.marked else ""
        time = f"{format_duration(self.seconds)} ({self.rows_per_second:,.0f} rows/s)"
        return f"{rows}: {self.scored:,} scored in {time}{marked}."
