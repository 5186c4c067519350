"""The judgements of pairs: several of one pair, by several people, become one.

A pair may be judged in columns rater_1, rater_2, …, in a list in one cell, or in a row for each rater. The score of a
pair is the mean of its scores, its label that of the majority; a pair on which labels are divided equally has none.
Rows that were rejected or discarded do not count. `Judged.notes` says how many people agreed how far.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np

from training.agreement import krippendorff_alpha
from training.data.gold import NUMBER, GoldColumn, label_text
from training.data.tables.cells import REJECTED, as_text, judgement_of
from training.data.tables.reading import RATER, RATING, STATUS, TableReading
from training.errors import InputError

# The share of pairs that are judged in several rows from which on these are rows of raters.
SEVERAL = 0.5
# Fewer pairs say nothing of that.
FEW_PAIRS = 3
# In place of a reason: the row is joined to an earlier one.
JOINED = ""


@dataclass(frozen=True)
class Judged:
    """The judgements of the rows of a table.

    Attributes:
        gold: how a judgement is read.
        values: the score of each row that has one, or the text of its label.
        left_out: the rows without one of their own, by the reason.
        notes: how many people judged the pairs, and how well they agree.
        bad: for each row a judgement that is not understood.
        joined: for each row those that judge the same pair.
        unclear: the words of rows without a judgement, such as "maybe", the most frequent first.
    """

    gold: GoldColumn
    values: dict[int, Any]
    left_out: dict[str, set[int]]
    notes: tuple[str, ...]
    bad: dict[int, str]
    joined: dict[int, list[int]]
    unclear: tuple[str, ...]


def rejected_rows(reading: TableReading, cells: Mapping[str, Sequence[Any]]) -> set[int]:
    """The rows whose status says that they do not count."""
    return {
        at
        for column in reading.all(STATUS)
        for at, cell in enumerate(cells.get(column, ()))
        if str(cell).strip().lower() in REJECTED
    }


def judge(
    reading: TableReading,
    cells: Mapping[str, Sequence[Any]],
    pairs: Sequence[tuple[str, ...]],
    left_out: Collection[int],
    scale: str | None = None,
    labels: str | None = None,
    raters: str | None = None,
) -> Judged | None:
    """The judgements of pairs of sentences by the cells of a table; None if it has none.

    ``left_out`` are rows that are not used anyway. ``raters`` are the raters, or their columns, that count, separated
    by commas. InputError as `GoldColumn.of`, and if nobody has such a name.
    """
    columns = list(reading.all(RATING)) or [name for name in [reading.judgement] if name]
    if not columns:
        if scale or labels or raters:
            raise InputError(
                f"{reading.name} has no column of scores or labels; leave out ?scale=, ?labels= and ?raters="
            )
        return None
    rater = reading.first(RATER)
    named_raters = {name.strip() for name in (raters or "").split(",") if name.strip()}
    people = {str(cell) for cell in cells[rater]} if rater else set(columns)
    if unknown := named_raters - people:
        raise InputError(f"{reading.name} has no rater {min(unknown)!r}; it has {', '.join(sorted(people)[:10])}")
    if named_raters and not rater:
        columns = [name for name in columns if name in named_raters]
    of_rows: list[list[Any]] = [[] for _ in pairs]
    for column in columns:
        # Argilla writes the states of a list of responses beside it.
        states = cells.get(f"{column}.status", repeat(None))
        for judgements, cell, state in zip(of_rows, cells[column], states, strict=False):
            judgements += _counting(judgement_of(cell), state)
    if named_raters and rater:
        of_rows = [part if str(cell) in named_raters else [] for part, cell in zip(of_rows, cells[rater], strict=True)]
    used = (part for at, part in enumerate(of_rows) if at not in left_out)
    gold = GoldColumn.of(columns[0], chain.from_iterable(used), reading.sentences, scale, labels)
    valid = [[value for value in part if not gold.is_missing(value)] for part in of_rows]
    without = {at for at, part in enumerate(valid) if not part}
    unclear = _words_of(of_rows, without - set(left_out))
    wrong = {_why_missing(gold, unclear): without}
    groups = _groups(reading, cells, pairs, without.union(left_out))
    wrong[JOINED] = {at for rows in groups for at in rows[1:]}
    joined = {rows[0]: [value for at in rows for value in valid[at]] for rows in groups}
    values, divided, bad = _join(gold, joined)
    wrong["with a label on which raters are equally divided"] = divided
    most = max(map(len, joined.values()), default=0)
    notes: tuple[str, ...] = ()
    if most > 1:
        used_rows = {at for rows in groups for at in rows}
        count = len({str(cells[rater][at]) for at in used_rows}) if rater else most
        notes = (f"{len(values):,} pairs by {count:,} raters, {_agreement(gold, joined, most)}",)
    further = {rows[0]: rows[1:] for rows in groups if rows[1:]}
    return Judged(gold, values, wrong, notes, bad, further, tuple(word for word, _ in unclear.most_common()))


def _counting(judgements: list[Any], states: Any) -> list[Any]:
    """The judgements without those whose state says that they do not count."""
    if not isinstance(states, list) or len(states) != len(judgements):
        return judgements
    pairs = zip(judgements, states, strict=True)
    return [value for value, state in pairs if str(state).lower() not in REJECTED]


def _words_of(of_rows: Sequence[Sequence[Any]], rows: Collection[int]) -> Counter[str]:
    values = (as_text(value) or "" for at in rows for value in of_rows[at])
    return Counter(value for value in values if value[:1].isalpha())


def _why_missing(gold: GoldColumn, words: Counter[str]) -> str:
    words_in_brackets = f" ({', '.join(f'{word}: {count:,}' for word, count in words.most_common(3))})" if words else ""
    return f"without a {'score' if gold.kind == NUMBER else 'gold label'}{words_in_brackets}"


def _groups(
    reading: TableReading, cells: Mapping[str, Sequence[Any]], pairs: Sequence[tuple[str, ...]], unused: Collection[int]
) -> list[list[int]]:
    """The rows that judge the same pair. Only rows of raters are joined; equal rows of other data are not."""
    by_pair: dict[tuple[str, ...], list[int]] = {}
    for at, pair in enumerate(pairs):
        if at not in unused:
            by_pair.setdefault(pair, []).append(at)
    several = sum(len(rows) > 1 for rows in by_pair.values())
    are_repeated = len(by_pair) >= FEW_PAIRS and several > SEVERAL * len(by_pair)
    are_of_raters = reading.first(RATER) is not None or are_repeated
    groups = list(by_pair.values())
    return groups if are_of_raters else [[at] for rows in groups for at in rows]


def _join(gold: GoldColumn, joined: Mapping[int, Sequence[Any]]) -> tuple[dict[int, Any], set[int], dict[int, str]]:
    """The score or the label of each row, the rows whose labels are equally divided, and those not understood."""
    values: dict[int, Any] = {}
    divided: set[int] = set()
    bad: dict[int, str] = {}
    if gold.kind == NUMBER:
        numbers, wrong = gold.read([value for part in joined.values() for value in part])
        counts = np.array([len(part) for part in joined.values()], dtype=np.int64)
        ends = np.cumsum(counts)
        means = np.add.reduceat(numbers, ends - counts) / counts if len(counts) else numbers
        values = dict(zip(joined, means.tolist(), strict=True))
        rows = list(joined)
        bad = {rows[int(np.searchsorted(ends, place, side="right"))]: why for place, why in wrong.items()}
        return values, divided, bad
    for at, part in joined.items():
        votes = Counter(gold.names[label_text(value)] for value in part)
        (label, most), *others = votes.most_common(2)
        if others and others[0][1] == most:
            divided.add(at)
        else:
            values[at] = label
    return values, divided, bad


def _agreement(gold: GoldColumn, joined: Mapping[int, Sequence[Any]], most: int) -> str:
    level = "interval" if gold.kind == NUMBER else "nominal"
    names = {name: number for number, name in enumerate(sorted(set(gold.names.values())))}
    ratings = np.full((most, len(joined)), math.nan)
    for item, part in enumerate(joined.values()):
        read = gold.read(part)[0] if gold.kind == NUMBER else [names[gold.names[label_text(value)]] for value in part]
        ratings[: len(part), item] = read
    alpha = krippendorff_alpha(ratings, level)
    joined_by = "means" if gold.kind == NUMBER else "majorities"
    alpha_in_words = "without variation" if math.isnan(alpha) else f"α {alpha:.2f}"
    return f"{alpha_in_words} ({level}); their {joined_by} are read"
