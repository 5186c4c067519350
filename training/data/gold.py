"""Columns of gold scores and labels, and how their cells are read.

One place decides for every page and command: `GoldColumn.of` looks at the name of a column, at the
columns beside it and at all of its cells. Numbers are scores on the scale that they fit
(`scale_of`), with two exceptions in columns whose names do not speak of scores: 0 and 1, or −1 and
1, are labels; and a few small whole numbers are classes if the name speaks of labels. Labels of
inference are entailment, neutral and contradiction; other labels are matches by the words that say
so in several languages (`side_of`). Where a file can be read otherwise, ``read_as`` says how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training.catalogue import NLI_LABELS
from training.data.tables.cells import (
    UNSURE,
    as_text,
    bad_number,
    parse_number,
    quoted,
    single_judgement,
)
from training.data.tables.columns import (
    LABELS,
    NAMED_SCALE,
    NLI_PAIR,
    SCORES,
    PairColumns,
    normalize_name,
    side_of,
)
from training.data.tables.rows import OpenedTable
from training.errors import InputError

# Gold scores run from 0 (nothing in common) to 5 (the same meaning).
TOP_SCORE = 5.0
# The lowest gold score of a positive pair, and the highest of a negative one.
POSITIVE_FROM = 4.0
NEGATIVE_TO = 1.5
MISSING = tuple(sorted(UNSURE))
# The codes of missing values in SPSS and in surveys, where ratings go up to 10.
MISSING_CODES = frozenset((-999.0, -99.0, -9.0, 99.0, 999.0, 9999.0))
TOP_RATING = 10
# Columns whose names end like this hold the opposite of a score.
DISTANCES = ("distance", "dist", "difference", "dissimilarity", "dissimilarityscore")
# A larger number is not a score.
LARGEST = 1e6
# A column with more labels holds something else, such as sentences.
MOST_LABELS = 1_000
# The most distinct cells that are held in memory.
MOST_DISTINCT = 20_000
# A column of labels with this many different whole numbers, or a number this high, holds grades and
# not classes.
GRADES = 4
TOP_CLASS = 20
# The highest grade of a scale that begins at 0 beside a query.
TOP_GRADE = 4

ENTAILMENT = "entailment"
LABEL = "label"
NUMBER = "number"
NLI_VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))
NLI_NAMES = {str(number): name for number, name in enumerate(NLI_LABELS)}
OTHER_NLI_NAMES = {
    "contradictory": "contradiction",
    "entails": "entailment",
    "contradicts": "contradiction",
}
# Abbreviated months. Spreadsheets turn a score such as 4.5 into a date: 4-May, 4. Mai.
_MONTH = r"jan|ene|gen|f[eé][bv]|m[aä]r|mrz|a[bpv]r|ma[giy]|ju[iln]|giu|lug|a[gou][gouû]|se[pt]|o[ckt]t|nov|d[eéi][ckz]"
# A number before its words: "5 - the same", "1 (unrelated)".
_WORDED = re.compile(
    rf"(?i:([+-]?\d+(?:[.,]\d+)?)\s*[-–—:=.)(]\s*(?!(?:{_MONTH})\w?\.?(?:\W\d+)?$)[^\d\s].*)"
)
# A share of a highest score, such as 85%, 4/5 or 4 out of 5.
_SHARE = re.compile(r"(\S+?)\s*(?:%|(?:/|(?:out )?of )\s*(\d+))")
_SCALE = re.compile(r"([+-]?[\d.]+)\s*(?:-|–|\.\.|to)\s*([+-]?[\d.]+)")


def label_text(cell: Any) -> str:
    """The name of a label: 3, "3" and "3.0" are one, and so are "Neutral" and "neutral"."""
    if cell is None:
        return ""
    text = str(cell).strip().lower()
    # Only texts such as 3.0 change.
    if text[-1:] == "0" and ("." in text or "," in text):
        number = parse_number(text)
        if number is not None and number.is_integer():
            return str(int(number))
    return text


def matching_labels(labels: Iterable[str]) -> tuple[frozenset[str], str]:
    """The labels that are matches, and a sentence on them; no labels if their names do not say which."""
    matches = []
    rest = []
    for label in labels:
        # True for a match, False for its opposite, None if the name does not say.
        side = side_of(label)
        # Labels such as 2 or "very similar" may be grades, so that the names decide nothing.
        may_be_grade = parse_number(label) is not None or any(map(side_of, label.split()))
        if side is None and may_be_grade:
            return frozenset(), ""
        if side:
            matches.append(label)
        else:
            rest.append(label)
    if not matches:
        return frozenset(), ""
    text = f"{' and '.join(matches)} {'are matches' if len(matches) > 1 else 'is a match'}"
    if rest:
        text += f", {' and '.join(rest[:3])} {'are' if len(rest) > 1 else 'is'} not"
    return frozenset(matches), text


def scale_of(
    low: float, high: float, is_whole: bool = False, has_query: bool = False
) -> tuple[float, float] | None:
    """The scale of scores from ``low`` to ``high``; None if they are on none of the usual scales.

    If all scores are whole and none is below 1, a scale to 6, 7 or 9 begins at 1. A scale to 10
    begins at 1 only if the lowest score is 1. The grades of documents for a query are on a scale
    from 0 to the highest grade.
    """
    if -1 <= low < 0 and high <= 1:
        return -1.0, 1.0
    if low < 0:
        return None
    if is_whole and has_query and 1 < high <= TOP_GRADE:
        return 0.0, high
    # A scale to 10 usually begins at 0.
    begins_at_one = high in (6, 7, 9) or (low == 1 and high == 10)
    if is_whole and low >= 1 and begins_at_one:
        return 1.0, high
    for top in (1.0, TOP_SCORE, 10.0, 100.0):
        if high <= top:
            return 0.0, top
    return None


def parse_scale(text: str) -> tuple[float, float]:
    """Parses the ends of a scale, such as "1-7", "-3..3" or "4-1" (1 is the most similar). InputError otherwise."""
    if match := _SCALE.fullmatch(text.strip()):
        low = parse_number(match[1])
        high = parse_number(match[2])
        if low is not None and high is not None and low != high:
            return low, high
    raise InputError(
        f"{text[:60]!r} is no scale; write its least and its most similar score, such as 1-7, -1..1 or 4-1"
    )


def parse_labels(text: str) -> dict[str, float]:
    """Parses the values of labels: "similar:1,different:0". InputError for any other text."""
    values = {}
    for part in filter(str.strip, text.split(",")):
        label, _, value = part.rpartition(":")
        values[label_text(label)] = parse_number(value)
    labels = {label: value for label, value in values.items() if label and value is not None}
    if not labels or len(labels) < len(values):
        raise InputError(
            f"{text[:60]!r} names no labels; write each with its value, such as similar:1,different:0"
        )
    return labels


def parse_reading(text: str | None) -> tuple[str | None, str | None]:
    """The scale or the labels in a field that takes either, such as "1-7" or "yes:1, no:0".

    Returns (scale, None), (None, labels), or (None, None) for an empty field. InputError for any
    other text.
    """
    text = (text or "").strip()
    if not text:
        return None, None
    # The parsers are called for their errors.
    if ":" in text:
        parse_labels(text)
        return None, text
    parse_scale(text)
    return text, None


@dataclass(frozen=True)
class GoldColumn:
    """The reading of a column of gold scores or labels.

    Attributes:
        kind: `NUMBER` for scores, `ENTAILMENT` for labels of inference, `LABEL` for other labels.
        scale: the scores of the least and of the most similar pairs, such as (0, 5) or (4, 1); None
            for labels, and for scores on no usual scale.
        values: the values of labels, or of words that stand for scores, by their text; None if the
            cells are scores in numbers.
        names: the names of labels by their text.
        missing: the texts that stand for a missing score or label.
        is_sure: whether the file can only be read in this way, so that no note is needed.
        read_as: the reading in words.
        meaning: the definition of a match by labels.
        are_shares: whether the cells are shares of the highest score, such as 85% or 4/5.
    """

    name: str
    kind: str = NUMBER
    scale: tuple[float, float] | None = None
    values: Mapping[str, float] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = MISSING
    is_sure: bool = False
    read_as: str = ""
    meaning: str = ""
    are_shares: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        cells: Iterable[Any],
        pair: Sequence[str] = (),
        scale: str | None = None,
        labels: str | None = None,
    ) -> GoldColumn:
        """The reading of a column by all of its ``cells``; ``pair`` names the two columns of sentences.

        ``scale``, such as "1-7", and ``labels``, such as "similar:1,different:0", are named by the
        user. InputError if they are malformed, there are too many different labels, or the column
        holds distances.
        """
        texts = _distinct(cells)
        # A scale at the end of the name, as in "score (0-5)", is not a part of the role. It is used
        # unless the role is one of labels, which have no scale.
        role = normalize_name(name)
        scale_in_name = NAMED_SCALE.search(name)
        if scale_in_name and role not in LABELS:
            scale = scale or scale_in_name[1]
        if labels:
            return cls._with_labels(name, parse_labels(labels), scale)
        # Names such as "different" and "is_different" mean the opposite of a match. The name 0 says
        # nothing, although `side_of` takes it for the opposite too.
        is_contrary = side_of(role.removeprefix("is")) is False and parse_number(role) is None
        if is_contrary or role.endswith(DISTANCES):
            raise InputError(
                f"{name} grows as sentences differ; write similarities, or the values of labels by ?labels="
            )
        ends = parse_scale(scale) if scale else None
        if top := _top_of_shares(texts):
            # A scale that the user or the name of the column states comes first.
            ends = ends or (0.0, top)
            return cls(
                name, scale=ends, read_as=f"shares as scores {_in_words(*ends)}", are_shares=True
            )
        if ends:
            # On a scale without negative scores, -1 stands for a missing one.
            missing = (*MISSING, "-1") if min(ends) >= 0 else MISSING
            return cls(name, scale=ends, missing=missing, read_as=f"scores {_in_words(*ends)}")
        # "-" usually stands for a missing value, so it is not in ``texts``.
        if texts == {"+"}:
            return cls._with_labels(name, {"+": 1.0, "-": 0.0}, scale=None)
        return cls._by_evidence(name, role, texts, tuple(map(normalize_name, pair)))

    @classmethod
    def in_table(
        cls,
        table: OpenedTable,
        columns: PairColumns,
        scale: str | None = None,
        labels: str | None = None,
    ) -> GoldColumn | None:
        """The reading of the gold column of pairs, by all rows of a table; None if there is no such column.

        ``scale`` and ``labels`` are named by the user. InputError if they are malformed, there are
        too many different labels, or the column holds distances.
        """
        name = columns.score or columns.label
        if name is None:
            return None
        sentences = [columns.sentence1, columns.sentence2]

        def cells() -> Iterator[Any]:
            for batch in table.batches():
                lists = [batch.rows[column] for column in (name, *sentences)]
                for cell, *texts in zip(*lists, strict=True):
                    # A repeated header has the names of the columns in its cells, and a row of
                    # totals has no sentences. Neither holds a judgement.
                    if texts != sentences and None not in map(as_text, texts):
                        yield single_judgement(cell)

        return cls.of(name, cells(), sentences, scale, labels)

    @classmethod
    def _by_evidence(
        cls, name: str, role: str, texts: set[str], pair: tuple[str, ...]
    ) -> GoldColumn:
        """Reads a column by its ``role``, its distinct cells ``texts`` and the normalized names ``pair`` beside it."""
        first = pair[0] if pair else ""
        has_query = first.startswith(("query", "search")) or first == "question"
        may_be_labels = role in LABELS
        # Labels beside a query are grades of relevance, and not classes.
        may_be_classes = may_be_labels and not has_query
        # Numbers that stand for a missing value, such as -1 or 99.
        codes = _missing_codes(_numbers(texts), may_be_labels)
        missing = (*MISSING, *sorted(codes))
        texts = texts - codes
        numbers = _numbers(texts)
        values = set(numbers.values())

        if names := _nli_names(texts):
            return cls._inference(name, names, missing)
        # 0, 1 and 2 are labels of inference if a column of labels has all three, or if 2 occurs
        # beside a premise and a hypothesis.
        if texts <= NLI_NAMES.keys():
            are_all_there = may_be_classes and len(texts) == len(NLI_NAMES)
            if are_all_there or (pair == NLI_PAIR and "2" in texts):
                names = {text: NLI_NAMES[text] for text in sorted(texts)}
                return cls._inference(name, names, missing, is_numbered=True)

        words = {text for text in texts if parse_number(text) is None}
        # A few words among numbers are bad scores, unless the column is one of labels.
        are_words = bool(words) and (may_be_labels or len(words) > len(numbers))
        if role in SCORES:
            # The name speaks for scores, so all words have to say which side they are on.
            are_labels = are_words and None not in map(side_of, words)
        else:
            are_binary = values in ({0}, {1}, {0, 1}, {-1, 1})
            are_labels = are_words or are_binary or (may_be_classes and _are_classes(values))
        if are_labels:
            return cls._labels(name, texts, missing, is_nli=pair == NLI_PAIR)
        return cls._scores(name, values, missing, has_query)

    @classmethod
    def _with_labels(cls, name: str, values: dict[str, float], scale: str | None) -> GoldColumn:
        """The reading of labels by their values: as matches (1) and others (0), or as scores if other values occur."""
        named = ", ".join(f"{label} is {value:g}" for label, value in values.items())
        # A word such as "maybe" is a judgement if the user gives it a value.
        missing = tuple(text for text in MISSING if text not in values)
        if set(values.values()) <= {0.0, 1.0}:
            # The labels with the value 1 become one label, "1", and the others become "0".
            names = {label: f"{value:g}" for label, value in values.items()}
            read_as = f"{named}; 1 is a match, 0 is not"
            return cls(name, LABEL, values=values, names=names, missing=missing, read_as=read_as)
        low = min(values.values())
        high = max(values.values())
        ends = scale_of(low, high) or (low, high)
        if scale:
            ends = parse_scale(scale)
        if ends[0] == ends[1]:
            raise InputError(
                f"{name}: all labels have the value {low:g}; name the scale by ?scale="
            )
        read_as = f"{named}; scores {_in_words(*ends)}"
        return cls(name, scale=ends, values=values, missing=missing, read_as=read_as)

    @classmethod
    def _inference(
        cls, name: str, names: dict[str, str], missing: tuple[str, ...], is_numbered: bool = False
    ) -> GoldColumn:
        """Labels of inference: ``names`` maps the text of a cell to entailment, neutral or contradiction.

        With ``is_numbered`` the texts are numbers from 0 to 2, which may also be scores.
        """
        meaning = "entailment is a match, neutral and contradiction are not"
        read_as = meaning
        if is_numbered:
            numbered = ", ".join(f"{label} ({text})" for text, label in names.items())
            read_as = f"{numbered}; ?scale=0-2 reads them as scores"
        return cls(
            name,
            ENTAILMENT,
            values={text: NLI_VALUES[label] for text, label in names.items()},
            names=names,
            missing=missing,
            is_sure=not is_numbered,
            read_as=read_as,
            meaning=meaning,
        )

    @classmethod
    def _labels(
        cls, name: str, texts: set[str], missing: tuple[str, ...], is_nli: bool
    ) -> GoldColumn:
        """Labels with the value 1 for matches and 0 for others; NaN for all if their names do not tell them apart."""
        labels = sorted(texts)
        if len(labels) > MOST_LABELS:
            raise InputError(
                f"{name} has more than {MOST_LABELS:,} different labels, the first {labels[0][:40]!r}; name another "
                "column by ?columns="
            )
        matches, meaning = matching_labels(labels)
        read_as = meaning
        if not matches:
            # The user gets an example of what to type. If no label says that it is a match, the
            # first unknown one is the match in the example.
            some = labels[:5]
            unknown = [label for label in some if side_of(label) is None]
            likely = list(filter(side_of, some)) or unknown[:1]
            example = ",".join(f"{label}:{int(label in likely)}" for label in some)
            read_as = f"labels ({', '.join(some)}) that do not say which pairs are matches; ?labels={example} says it"
        elif is_nli and texts <= {"0", "1"}:
            # In some data sets with premises and hypotheses, 0 is entailment.
            read_as += "; ?labels=0:1,1:0 reads them the other way round"
        values = dict.fromkeys(labels, math.nan)
        if matches:
            values = {label: float(label in matches) for label in labels}
        return cls(
            name,
            LABEL,
            values=values,
            names={label: label for label in labels},
            missing=missing,
            read_as=read_as,
            meaning=meaning,
        )

    @classmethod
    def _scores(
        cls, name: str, numbers: set[float], missing: tuple[str, ...], has_query: bool
    ) -> GoldColumn:
        """Scores on the scale that they fit; ``read_as`` names another one that is nearly as likely."""
        # Without a scale, `gold` raises the error that there are no scores.
        if not numbers:
            return cls(name, missing=missing)
        low = min(numbers)
        high = max(numbers)
        is_whole = all(number.is_integer() for number in numbers)
        scale = scale_of(low, high, is_whole, has_query)
        if scale is None:
            read_as = (
                f"scores from {low:g} to {high:g}, which no usual scale has; "
                f"?scale={low:g}..{high:g} names theirs"
            )
            return cls(name, missing=missing, read_as=read_as)
        other_scale = _other_scale(scale, low, high) if is_whole else ""
        read_as = f"scores {_in_words(*scale)}"
        if other_scale:
            read_as += f"; ?scale={other_scale} reads them otherwise"
        # Numbers that stand for a missing score in this column. -1 is too usual for a remark.
        codes = [code for code in missing if code not in (*MISSING, "-1")]
        if codes:
            read_as += f"; {' and '.join(codes)} as no score"
        is_sure = scale == (0, TOP_SCORE) and not other_scale and not codes
        return cls(name, scale=scale, missing=missing, is_sure=is_sure, read_as=read_as)

    def label_names(self, labels: Iterable[str]) -> tuple[str, ...]:
        """The names of the labels: all three of inference in the Hub's order, numbers by their size, others sorted."""
        if self.kind == ENTAILMENT:
            return NLI_LABELS

        def order(label: str) -> tuple[float, str]:
            number = parse_number(label)
            if number is None:
                return math.inf, label
            return number, label

        return tuple(sorted(set(labels), key=order))

    def with_others_as_no(self, others: Sequence[str]) -> str:
        """The value of ``?labels=`` that adds ``others`` to the labels that are not matches.

        It is "" without ``others``, if there is not exactly one label for a match and one for the
        opposite, or if a label has a comma.
        """
        values = dict(self.values or {})
        if not others or self.kind != LABEL or sorted(values.values()) != [0.0, 1.0]:
            return ""
        values |= dict.fromkeys(map(label_text, others), 0.0)
        if "," in "".join(values):
            return ""
        return ",".join(f"{label}:{value:g}" for label, value in values.items())

    @property
    def note(self) -> str:
        """The reading as a remark on a file."""
        return f"{self.name} read as: {self.read_as}" if self.read_as else ""

    def is_missing(self, cell: Any) -> bool:
        """Whether this cell says that a row has no label or no score."""
        text = label_text(cell)
        # A column of scores in numbers has no ``values``. A label is unknown if the user has named
        # others, or if it stands among labels of inference.
        is_unknown = self.values is not None and text not in self.values
        return is_unknown or text in self.missing or as_text(cell) is None

    def read(self, cells: Sequence[Any]) -> tuple[np.ndarray, dict[int, str]]:
        """Values (rows,), NaN where there is none, and a note for each cell that is neither empty nor understood."""
        values = np.full(len(cells), math.nan)
        bad = {}
        # Words such as "unsure" get a note, codes such as -99 do not.
        codes = set(self.missing) - UNSURE
        for row, wrapped in enumerate(cells):
            # Annotation tools wrap a judgement in a list or an object.
            cell = single_judgement(wrapped)
            text = label_text(cell)
            if as_text(cell) is None or text in codes:
                continue
            if self.values is not None:
                value = self.values.get(text)
            else:
                # Of "4/5", the 4 is read, as `of` has taken the 5 for the highest score.
                share = _SHARE.fullmatch(text) if self.are_shares else None
                value = _score(share[1] if share else cell)
            if value is None and self.values is not None:
                bad[row] = f"column {self.name}: {quoted(cell)} is none of {', '.join(self.values)}"
            elif value is None:
                bad[row] = bad_number(self.name, cell)
            # A scale such as 4-1 begins with its highest number.
            elif self.scale and not min(self.scale) <= value <= max(self.scale):
                ends = f"{self.scale[0]:g} to {self.scale[1]:g}"
                bad[row] = f"column {self.name}: {quoted(cell)} is not in {ends}"
            else:
                values[row] = value
        return values, bad

    def gold(self, values: np.ndarray) -> np.ndarray:
        """Scores on the scale 0–5. InputError if their scale is unknown."""
        if self.scale is None:
            # ``read_as`` says why the scale is unknown.
            raise InputError(f"{self.name}: {self.read_as or 'there are no scores'}")
        if self.scale == (0, TOP_SCORE):
            return values
        low, high = self.scale
        return (values - low) / (high - low) * TOP_SCORE

    def matches(self, values: np.ndarray) -> tuple[np.ndarray, str] | None:
        """The rows that are matches, bool (N,), and the definition of a match.

        None if all rows are matches, no row is one, or the scale of the scores is unknown.
        ``values`` (N,) come from `read`, without NaN. A match is entailment, a label whose name
        says so, 1 if all scores are 0 or 1, or a gold score of at least 4 after rescaling to 0–5.
        """
        are_binary = self.scale == (0, 1) and set(values.tolist()) == {0.0, 1.0}
        if self.kind != NUMBER or are_binary:
            # 1 is also the value of entailment and of matching labels.
            matches = values == 1
            meaning = self.meaning or "1 is a match, 0 is not"
        elif self.scale:
            low, high = self.scale
            matches = self.gold(values) >= POSITIVE_FROM
            bound = low + POSITIVE_FROM / TOP_SCORE * (high - low)
            # On a scale such as 4-1, low numbers are matches.
            end = "least" if low < high else "most"
            meaning = f"a gold score of at {end} {bound:g} (of {high:g}) is a match"
        else:
            return None
        if matches.all() or not matches.any():
            return None
        return matches, meaning


def _distinct(cells: Iterable[Any]) -> set[str]:
    """The different texts of cells; of many numbers the lowest and the highest are enough."""
    texts = set()
    for cell in cells:
        text = label_text(cell)
        if text in UNSURE or as_text(cell) is None:
            continue
        texts.add(text)
        if len(texts) > MOST_DISTINCT:
            numbers = _numbers(texts)
            ordered = sorted(numbers, key=numbers.__getitem__)
            # Of the numbers, the `MOST_LABELS` lowest and the `MOST_LABELS` highest stay.
            texts = texts.difference(ordered[MOST_LABELS:-MOST_LABELS])
            # Most of the texts are words, too many for labels, so further cells would not help to
            # read the column. Looking for numbers in the words at every cell would take hours.
            if len(texts) > MOST_DISTINCT / 2:
                break
    return texts


def _numbers(texts: set[str]) -> dict[str, float]:
    """The scores of the texts that have one."""
    scores = {}
    for text in texts:
        score = _score(text)
        if score is not None:
            scores[text] = score
    return scores


def _score(cell: Any) -> float | None:
    """The score of a cell, which may be followed by its meaning ("5 - the same"); None if it has none."""
    worded = _WORDED.fullmatch(cell.strip()) if isinstance(cell, str) else None
    number = parse_number(worded[1] if worded else cell)
    if number is None or abs(number) > LARGEST:
        return None
    return number


def _top_of_shares(texts: set[str]) -> float | None:
    """The highest score if all texts are shares of it: 5 for "4/5", 100 for "85%"; else None."""
    tops = set()
    for text in texts:
        share = _SHARE.fullmatch(text)
        if share is None:
            return None
        # `GoldColumn.read` makes the error for a text such as x/5, which has no score.
        if _score(share[1]) is not None:
            # A percentage states no highest score.
            tops.add(float(share[2] or 100))
    return tops.pop() if len(tops) == 1 else None


def _missing_codes(numbers: Mapping[str, float], are_labels: bool) -> set[str]:
    """The texts of numbers that stand for a missing value."""
    codes = set()
    # -1 is a missing value if the other numbers are labels from 0 on, or go beyond a scale from -1
    # to 1.
    others = set(numbers.values()) - {-1.0}
    if "-1" in numbers and others and min(others) >= 0:
        are_numbered_labels = are_labels and 0 in others
        if are_numbered_labels or max(others) > 1:
            codes.add("-1")
            numbers = {text: number for text, number in numbers.items() if text != "-1"}
    # Codes such as 99 and -9 count as missing beside three or more different ratings from 0 to 10.
    ratings = set(numbers.values()) - MISSING_CODES
    if len(ratings) > 2 and ratings.issubset(range(TOP_RATING + 1)):
        codes |= {text for text, number in numbers.items() if number in MISSING_CODES}
    return codes


def _nli_names(texts: set[str]) -> dict[str, str]:
    """The label of inference of each text; empty if the texts are something else."""
    names = {}
    for text in sorted(texts):
        label = OTHER_NLI_NAMES.get(text, text)
        if label in NLI_LABELS:
            names[text] = label
    others = texts - names.keys()
    # "neutral" may also stand among the words of a scale of agreement.
    is_neutral_alone = others and set(names.values()) == {"neutral"}
    # Such as "duplicate" or "no": labels of a match or of its opposite.
    has_other_labels = any(side_of(text) is not None for text in others)
    if not names or is_neutral_alone or has_other_labels:
        return {}
    # The labels of inference that do not occur among these texts are added.
    return dict(zip(NLI_LABELS, NLI_LABELS, strict=True)) | names


def _are_classes(values: set[float]) -> bool:
    """Whether numbers in a column of labels are classes and not grades: few, small, whole ones in order."""
    if not values or not all(value.is_integer() for value in values):
        return False
    top = max(values)
    # A class may be missing if the highest number is low, as in 0 and 2. Higher numbers with gaps,
    # such as 0, 4 and 5, are grades.
    are_in_order = top < GRADES or top - min(values) < len(values)
    return len(values) < GRADES and top <= TOP_CLASS and are_in_order


def _other_scale(scale: tuple[float, float], low: float, high: float) -> str:
    """Another scale that whole numbers from ``low`` to ``high`` may have; "" without one."""
    bottom, top = scale
    # A scale that begins at 1 goes to 6, 7, 9 or 10.
    if bottom == 1:
        return "0-10"
    if top not in (TOP_SCORE, 10):
        return ""
    # Where some scores are high and none is 0, the scale may begin at 1.
    if low >= 1 and high > 4:
        return f"1-{top:g}"
    # The highest rating may be the end of the scale.
    return f"0-{high:g}" if high < top else ""


def _in_words(low: float, high: float) -> str:
    """The ends of a scale in words, with "stretched to 0–5" unless they are 0 and 5."""
    text = f"from {low:g} to {high:g}"
    if (low, high) == (0, TOP_SCORE):
        return text
    return f"{text} stretched to 0–5"
