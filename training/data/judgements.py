"""The judgements of pairs: the judgements of one pair by several people become one.

A pair may be judged in columns rater_1, rater_2, …, in a list in one cell, or in a row for each
rater. The score of a pair is the mean of its scores, and its label the label of the majority. A
pair without a majority has no label. Rows that were rejected or discarded do not count.
`Judged.notes` says how many people agreed how far.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, filterfalse, repeat
from typing import Any

import numpy as np

from training.agreement import krippendorff_alpha
from training.data.gold import NUMBER, GoldColumn, label_text
from training.data.tables.cells import REJECTED, as_text, judgement_of
from training.data.tables.reading import LABEL, RATER, RATING, SCORE, STATUS, TableReading
from training.errors import InputError

# If more than this share of the pairs has several rows, each row is the judgement of one rater.
SEVERAL = 0.5
# With fewer pairs this share says nothing.
FEW_PAIRS = 3
# Stands in place of a reason for a row that is joined to an earlier one.
JOINED = ""

# The cells of a table by column, and the judgements of pairs by the first row of each. Each pair
# here has at least one judgement, as `judge` leaves out rows without any.
Columns = Mapping[str, Sequence[Any]]
Judgements = Mapping[int, Sequence[Any]]


@dataclass(frozen=True)
class Judged:
    """The judgements of the rows of a table, which are counted from 0 here.

    Attributes:
        gold: how a judgement is read.
        values: by row, the score on the scale of the column, or the name of the label.
        left_out: the rows without a score or label of their own, by the reason.
        notes: how many people judged the pairs, and how well they agree.
        bad: the errors of judgements that cannot be read, by row.
        joined: the further rows that judge the same pair, by the first row.
        unclear: the words in place of a judgement, such as "maybe", the most frequent first.
    """

    gold: GoldColumn
    values: dict[int, Any]
    left_out: dict[str, set[int]]
    notes: list[str]
    bad: dict[int, str]
    joined: dict[int, list[int]]
    unclear: list[str]


def rejected_rows(reading: TableReading, cells: Columns) -> set[int]:
    """The rows whose status says that they do not count."""
    rows = set()
    for column in reading.all(STATUS):
        for at, cell in enumerate(cells.get(column, ())):
            if str(cell).strip().lower() in REJECTED:
                rows.add(at)
    return rows


def judge(
    reading: TableReading,
    cells: Columns,
    pairs: Sequence[tuple[str, ...]],
    unusable: Collection[int],
    scale: str | None = None,
    labels: str | None = None,
    raters: str | None = None,
) -> Judged | None:
    """The judgements of pairs of sentences in the cells of a table; None if it has none.

    ``unusable`` are rows that are left out for other reasons. ``raters`` names the raters that
    count, or their columns, separated by commas. InputError if a rater is unknown, ``scale`` or
    ``labels`` is malformed, there are too many different labels, or the column holds distances.
    """
    # The columns of several raters, or else the one of a score or a label.
    columns = reading.all(RATING) or reading.all(SCORE, LABEL)
    if not columns:
        return None
    by_row = _judgements(reading, cells, columns, len(pairs), raters)
    used = []
    for at, judgements in enumerate(by_row):
        if at not in unusable:
            used += judgements
    # The judgements of several columns are read together, under the name of the first.
    gold = GoldColumn.of(columns[0], used, reading.sentences, scale, labels)

    valid = []
    missing = set()
    # Words in place of a judgement, such as "maybe".
    unclear: Counter[str] = Counter()
    for at, judgements in enumerate(by_row):
        valid.append(list(filterfalse(gold.is_missing, judgements)))
        if not valid[at]:
            missing.add(at)
            if at not in unusable:
                unclear.update(_words(judgements))

    # The rows of each pair. The judgements of all of them count for the first row, to which the
    # others are joined.
    groups = _groups(reading, pairs, missing.union(unusable))
    by_first = {}
    joined = {}
    for first, *others in groups:
        by_first[first] = valid[first]
        for at in others:
            by_first[first] += valid[at]
        if others:
            joined[first] = others
    values: dict[int, Any] = {}
    divided: set[int] = set()
    bad: dict[int, str] = {}
    if gold.kind == NUMBER:
        values, bad = _means(gold, by_first)
    else:
        values, divided = _majorities(gold, by_first)
    # The most judgements of a pair, which is the number of raters if each has a column.
    most = max(map(len, by_first.values()), default=0)
    people = most
    if rater := reading.first(RATER):
        people = len({str(cells[rater][at]) for at in chain.from_iterable(groups)})
    notes = []
    if most > 1:
        agreement = _agreement(gold, by_first, most)
        notes.append(f"{len(values):,} pairs by {people:,} raters, {agreement}")
    return Judged(
        gold,
        values,
        left_out={
            _why_missing(gold, unclear): missing,
            JOINED: set(chain.from_iterable(joined.values())),
            "with a label on which raters are equally divided": divided,
        },
        notes=notes,
        bad=bad,
        joined=joined,
        unclear=[word for word, _ in unclear.most_common()],
    )


def _judgements(
    reading: TableReading, cells: Columns, columns: Sequence[str], rows: int, raters: str | None
) -> list[list[Any]]:
    """The judgements of each row by the raters that count. InputError if one of their names is unknown."""
    rater_column = reading.first(RATER)
    names = {name.strip() for name in (raters or "").split(",")} - {""}
    # Without a column of raters, each column of judgements is a rater.
    people = set(map(str, cells[rater_column])) if rater_column else set(columns)
    if unknown := names - people:
        raise InputError(
            f"{reading.name} has no rater {min(unknown)!r}; it has {', '.join(sorted(people)[:10])}"
        )
    by_row: list[list[Any]] = [[] for _ in range(rows)]
    for column in columns:
        if names and not rater_column and column not in names:
            continue
        # Argilla writes the states of a list of responses into a column of their own. `repeat` has
        # no end, so the lengths may differ.
        states = cells.get(f"{column}.status", repeat(None))
        for judgements, cell, state in zip(by_row, cells[column], states, strict=False):
            judgements += _not_rejected(judgement_of(cell), state)
    if names and rater_column:
        for judgements, cell in zip(by_row, cells[rater_column], strict=True):
            if str(cell) not in names:
                judgements.clear()
    return by_row


def _not_rejected(judgements: list[Any], states: Any) -> list[Any]:
    """The judgements without rejected ones; all of them unless ``states`` is a list with a state for each."""
    if not isinstance(states, list) or len(states) != len(judgements):
        return judgements
    pairs = zip(judgements, states, strict=True)
    return [value for value, state in pairs if str(state).lower() not in REJECTED]


def _words(judgements: Iterable[Any]) -> list[str]:
    """The judgements that begin with a letter, such as "maybe"."""
    return [text for text in map(as_text, judgements) if text and text[0].isalpha()]


def _why_missing(gold: GoldColumn, words: Counter[str]) -> str:
    """The reason for leaving out rows without a judgement, with the most frequent words in its place."""
    reason = f"without a {'score' if gold.kind == NUMBER else 'gold label'}"
    some = ", ".join(f"{word}: {count:,}" for word, count in words.most_common(3))
    return f"{reason} ({some})" if some else reason


def _groups(
    reading: TableReading, pairs: Sequence[tuple[str, ...]], unused: Collection[int]
) -> list[list[int]]:
    """The rows that judge the same pair. Only rows of raters are joined; equal rows of other data are not.

    Rows are of raters if the table has a column of raters, or if it has at least `FEW_PAIRS` pairs
    and most of them have several rows.
    """
    by_pair: dict[tuple[str, ...], list[int]] = {}
    for at, pair in enumerate(pairs):
        if at not in unused:
            by_pair.setdefault(pair, []).append(at)
    groups = list(by_pair.values())
    repeated = sum(len(rows) > 1 for rows in groups)
    are_of_raters = len(groups) >= FEW_PAIRS and repeated > SEVERAL * len(groups)
    if are_of_raters or reading.first(RATER):
        return groups
    return [[at] for at in chain.from_iterable(groups)]


def _means(gold: GoldColumn, by_first: Judgements) -> tuple[dict[int, float], dict[int, str]]:
    """The mean score of each row, and the errors of judgements that cannot be read, by row."""
    rows = list(by_first)
    # (rows,), at least 1 each, as `judge` leaves out rows without a judgement.
    counts = np.array(list(map(len, by_first.values())), dtype=np.int64)
    places = np.repeat(np.arange(len(rows)), counts)  # (judgements,)
    numbers, wrong = gold.read(list(chain.from_iterable(by_first.values())))  # (judgements,)
    # The sums of the numbers by row, divided by how many there are.
    means = np.bincount(places, numbers) / counts  # (rows,)
    bad = {rows[places[at]]: why for at, why in wrong.items()}
    return dict(zip(rows, means.tolist(), strict=True)), bad


def _majorities(gold: GoldColumn, by_first: Judgements) -> tuple[dict[int, str], set[int]]:
    """The label of each row, and the rows whose labels are equally divided."""
    values = {}
    divided = set()
    for row, judgements in by_first.items():
        votes = Counter(gold.names[label_text(value)] for value in judgements)
        # `judge` leaves out rows without a judgement, so there is a vote.
        (label, most), *others = votes.most_common(2)
        if others and others[0][1] == most:
            divided.add(row)
        else:
            values[row] = label
    return values, divided


def _agreement(gold: GoldColumn, by_first: Judgements, most: int) -> str:
    """Krippendorff's α in words; ``most`` is the largest number of judgements of a row."""
    number_of = {name: number for number, name in enumerate(sorted(set(gold.names.values())))}
    # (most, rows), NaN where a row has fewer judgements
    ratings = np.full((most, len(by_first)), math.nan)
    for at, judgements in enumerate(by_first.values()):
        if gold.kind == NUMBER:
            values, _ = gold.read(judgements)
        else:
            values = np.array([number_of[gold.names[label_text(value)]] for value in judgements])
        ratings[: len(judgements), at] = values
    level = "nominal"
    joined_by = "majorities"
    if gold.kind == NUMBER:
        level = "interval"
        joined_by = "means"
    alpha = krippendorff_alpha(ratings, level)
    alpha_in_words = "without variation" if math.isnan(alpha) else f"α {alpha:.2f}"
    return f"{alpha_in_words} ({level}); their {joined_by} are read"
