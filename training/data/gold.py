"""Columns of gold scores and labels, and how their cells are read.

One place decides for every page and command: `GoldColumn.of` looks at the name of a column, at the columns beside it
and at all of its cells. Numbers are scores on the scale that they fit (`scale_of`), unless they are 0 and 1 or −1
and 1 of a column of labels. Labels of inference are entailment, neutral and contradiction; other labels are matches by
the words that say so in several languages (`side_of`). Where a file can be read otherwise, ``read_as`` says how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training.catalogue import NLI_LABELS
from training.data.tables.cells import UNSURE, as_text, bad_number, parse_number, quoted, single_judgement
from training.data.tables.columns import LABELS, NAMED_SCALE, NLI_PAIR, SCORES, PairColumns, normalize_name, side_of
from training.data.tables.rows import OpenedTable
from training.errors import InputError

# Gold scores run from 0 (nothing in common) to 5 (the same meaning).
TOP_SCORE = 5.0
# Gold scores from here on make a positive pair, up to there a negative one.
POSITIVE_FROM, NEGATIVE_TO = 4.0, 1.5
MISSING = tuple(sorted(UNSURE))
# Missing values in SPSS and in surveys, beside ratings up to 10.
MISSING_CODES, TOP_RATING = frozenset({-999.0, -99.0, -9.0, 99.0, 999.0, 9999.0}), 10
# Columns with these ends of names are the reverse of a score.
DISTANCES = ("distance", "dist", "difference", "dissimilarity", "dissimilarityscore")
# A number beyond this is no score.
LARGEST = 1e6
# More labels are no classes but something else, such as sentences.
MOST_LABELS = 1_000
# Different cells that are held at a time.
MOST_DISTINCT = 20_000
# So many different whole numbers in a column of labels, or one so high, are grades and no classes.
GRADES, TOP_CLASS = 4, 20
# The highest grade that begins at 0 beside a query.
TOP_GRADE = 4

ENTAILMENT, LABEL, NUMBER = "entailment", "label", "number"
NLI_VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))
NLI_NAMES = {str(number): name for number, name in enumerate(NLI_LABELS)}
OTHER_NLI_NAMES = {"contradictory": "contradiction", "entails": "entailment", "contradicts": "contradiction"}
# Months in short. Spreadsheets turn a score such as 4.5 into a date: 4-May, 4. Mai.
_MONTH = r"jan|ene|gen|f[eé][bv]|m[aä]r|mrz|a[bpv]r|ma[giy]|ju[iln]|giu|lug|a[gou][gouû]|se[pt]|o[ckt]t|nov|d[eéi][ckz]"
# A number before its words: "5 - the same", "1 (unrelated)".
_WORDED = re.compile(rf"(?i:([+-]?\d+(?:[.,]\d+)?)\s*[-–—:=.)(]\s*(?!(?:{_MONTH})\w?\.?(?:\W\d+)?$)[^\d\s].*)")
# A share of a highest score, such as 85%, 4/5 or 4 out of 5.
_SHARE = re.compile(r"(\S+?)\s*(?:%|(?:/|(?:out )?of )\s*(\d+))")
_SCALE = re.compile(r"([+-]?[\d.]+)\s*(?:-|–|\.\.|to)\s*([+-]?[\d.]+)")


def label_text(cell: Any) -> str:
    """The name of a label: 3, "3" and "3.0" are one, and so are "Neutral" and "neutral"."""
    text = "" if cell is None else str(cell).strip().lower()
    if text[-1:] == "0" and ("." in text or "," in text):
        number = parse_number(text)
        return text if number is None or number % 1 else str(int(number))
    return text


def matching_labels(labels: Iterable[str]) -> tuple[frozenset[str], str]:
    """The labels that are matches, and a sentence on them; no labels where their names do not tell."""
    labels = list(labels)
    matches, rest = ([label for label in labels if (side_of(label) is True) == is_match] for is_match in (True, False))
    # "very similar" is no match by its name alone, and not the contrary of one either; nor is 2 that of 1.
    others = [label for label in rest if side_of(label) is None]
    is_unclear = any(parse_number(label) is not None or any(map(side_of, label.split())) for label in others)
    if not matches or is_unclear:
        return frozenset(), ""
    text = f"{' and '.join(matches)} {'are matches' if matches[1:] else 'is a match'}"
    return frozenset(matches), text + (f", {' and '.join(rest[:3])} {'are' if rest[1:] else 'is'} not" if rest else "")


def scale_of(low: float, high: float, is_whole: bool = False, has_query: bool = False) -> tuple[float, float] | None:
    """The scale of scores from ``low`` to ``high``; None if no usual scale holds them.

    Whole numbers without a 0 are on a scale that begins at 1, if they go beyond 5; grades beside a query end with their
    highest.
    """
    if low < 0:
        return (-1.0, 1.0) if low >= -1 and high <= 1 else None
    if is_whole and has_query and 1 < high <= TOP_GRADE:
        return 0.0, high
    if is_whole and low >= 1 and (high in (6, 7, 9) or (low == 1 and high == 10)):
        return 1.0, high
    return next(((0.0, top) for top in (1.0, TOP_SCORE, 10.0, 100.0) if high <= top), None)


def parse_scale(text: str) -> tuple[float, float]:
    """The ends of a scale such as "1-7" or "-3..3", or "4-1", where 1 is most similar. InputError for other texts."""
    match = _SCALE.fullmatch(text.strip())
    low, high = (parse_number(match[1]), parse_number(match[2])) if match else (None, None)
    if low is None or high is None or low == high:
        raise InputError(
            f"{text[:60]!r} is no scale; write its least and its most similar score, such as 1-7, -1..1 or 4-1"
        )
    return low, high


def parse_labels(text: str) -> dict[str, float]:
    """The values of labels: "similar:1,different:0". InputError for any other text."""
    parts = [part.rpartition(":") for part in text.split(",") if part.strip()]
    values = {label_text(label): parse_number(value) for label, _, value in parts}
    if not values or "" in values or None in values.values():
        raise InputError(f"{text[:60]!r} names no labels; write each with its value, such as similar:1,different:0")
    return {label: value for label, value in values.items() if value is not None}


def parse_reading(text: str | None) -> tuple[str | None, str | None]:
    """The scale or the labels that a user has typed into one field, such as "1-7" or "yes:1, no:0". InputError else."""
    text = (text or "").strip()
    if not text:
        return None, None
    if ":" in text:
        parse_labels(text)
        return None, text
    parse_scale(text)
    return text, None


@dataclass(frozen=True)
class GoldColumn:
    """The reading of a column of gold scores or labels.

    Attributes:
        scale: the lowest and the highest score; None for labels, and for scores on no usual scale.
        values: the values of labels by their text; None for numbers.
        names: the names of labels by their text.
        meaning: the definition of a match by labels.
        is_sure: whether the file can be read in no other way, so that nobody needs to be told.
        read_as: the reading in words.
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

        ``scale``, such as "1-7", and ``labels``, such as "similar:1,different:0", are those that the user has named.
        InputError if they are malformed, there are more labels than classes can be, or the column holds distances.
        """
        texts, role = _distinct(cells), normalize_name(name)
        if role not in LABELS and (named := NAMED_SCALE.search(name)):
            scale = scale or named[1]
        if labels:
            return cls._with_labels(name, parse_labels(labels), scale)
        if role.endswith(DISTANCES) or (side_of(role.removeprefix("is")) is False and parse_number(role) is None):
            raise InputError(
                f"{name} grows as sentences differ; write similarities, or the values of labels by ?labels="
            )
        shares = [_SHARE.fullmatch(text) for text in texts]
        tops = {float(share[2] or 100) for share in shares if share and _score(share[1]) is not None}
        if len(tops) == 1 and min(tops) > 0 and None not in shares:
            low, high = parse_scale(scale) if scale else (0.0, tops.pop())
            text = f"shares as scores {_stretched(low, high)}"
            return cls(name, NUMBER, (low, high), read_as=text, are_shares=True)
        numbers = {text: number for text in texts if (number := _score(text)) is not None}
        if scale:
            low, high = parse_scale(scale)
            missing = (*MISSING, "-1") if min(low, high) >= 0 else MISSING
            return cls(name, NUMBER, (low, high), missing=missing, read_as=f"scores {_stretched(low, high)}")
        if texts == {"+"}:
            return cls._with_labels(name, {"+": 1.0, "-": 0.0}, None)
        pair = tuple(map(normalize_name, pair))
        has_query = pair != () and (pair[0].startswith(("query", "search")) or pair[0] == "question")
        is_nli, missing = pair == NLI_PAIR, MISSING
        # -1 stands for a missing value beside numbers that no scale from -1 on has, or beside labels from 0 on.
        others = set(numbers.values()) - {-1.0}
        if "-1" in numbers and others and min(others) >= 0 and (max(others) > 1 or (role in LABELS and 0 in others)):
            texts, missing = texts - {"-1"}, (*MISSING, "-1")
            del numbers["-1"]
        ratings = set(numbers.values()) - MISSING_CODES
        are_ratings = len(ratings) > 2 and all(0 <= value <= TOP_RATING and not value % 1 for value in ratings)
        if are_ratings and (codes := {text for text, value in numbers.items() if value in MISSING_CODES}):
            texts, missing = texts - codes, (*missing, *sorted(codes))
            numbers = {text: value for text, value in numbers.items() if text not in codes}
        words = {text for text in texts if parse_number(text) is None}
        nli = {text: label for text in sorted(texts) if (label := OTHER_NLI_NAMES.get(text, text)) in NLI_LABELS}
        # Beside words of agreement, "neutral" alone is no label of inference.
        is_inference = not texts - nli.keys() or set(nli.values()) - {"neutral"}
        if nli and is_inference and not any(side_of(text) is not None for text in texts - nli.keys()):
            return cls._inference(name, {label: label for label in NLI_LABELS} | nli, missing)
        could_be_nli = role in LABELS and not has_query and texts == set(NLI_NAMES)
        if could_be_nli or (is_nli and texts <= set(NLI_NAMES) and "2" in texts):
            return cls._inference(name, {text: NLI_NAMES[text] for text in sorted(texts)}, missing, is_numbered=True)
        if words and (role in LABELS or len(words) > len(numbers)):
            is_label = role not in SCORES or None not in map(side_of, words)
        else:
            values = set(numbers.values())
            are_two = values <= {0, 1} or values == {-1, 1}
            are_whole = not any(value % 1 for value in values)
            top = max(values, default=0)
            are_few = len(values) < GRADES and top <= TOP_CLASS
            # 0, 4 and 5 are grades of which some are missing, 1, 2 and 3 may be classes.
            are_in_order = top < GRADES or top - min(values) < len(values)
            are_classes = role in LABELS and are_whole and are_few and are_in_order
            is_label = role not in SCORES and bool(values) and (are_two or (are_classes and not has_query))
        if is_label:
            return cls._labels(name, texts, missing, is_nli)
        return cls._scores(name, list(numbers.values()), missing, has_query)

    @classmethod
    def in_table(
        cls, table: OpenedTable, columns: PairColumns, scale: str | None = None, labels: str | None = None
    ) -> GoldColumn | None:
        """The reading of a pair's gold column by all rows of a table; None if it has none. InputError as `of`."""
        if (name := columns.score or columns.label) is None:
            return None
        sentences = [column for column in (columns.sentence1, columns.sentence2) if column]
        cells = (
            single_judgement(cell)
            for batch in table.batches()
            for cell, *texts in zip(batch.rows[name], *map(batch.rows.__getitem__, sentences), strict=True)
            # The sum below a column of scores is none of them, nor is a header among the rows.
            if None not in map(as_text, texts) and texts != sentences
        )
        return cls.of(name, cells, sentences, scale, labels)

    @classmethod
    def _with_labels(cls, name: str, values: dict[str, float], scale: str | None) -> GoldColumn:
        named = ", ".join(f"{label} is {value:g}" for label, value in values.items())
        missing = tuple(text for text in MISSING if text not in values)
        if set(values.values()) <= {0.0, 1.0}:
            names = {label: f"{value:g}" for label, value in values.items()}
            return cls(name, LABEL, None, values, names, missing, read_as=f"{named}; 1 is a match, 0 is not")
        low, high = min(values.values()), max(values.values())
        ends = parse_scale(scale) if scale else scale_of(low, high) or (low, high)
        return cls(name, NUMBER, ends, values, missing=missing, read_as=f"{named}; scores {_stretched(*ends)}")

    @classmethod
    def _inference(
        cls, name: str, names: dict[str, str], missing: tuple[str, ...], is_numbered: bool = False
    ) -> GoldColumn:
        values = {text: NLI_VALUES[label] for text, label in names.items()}
        text = meaning = "entailment is a match, neutral and contradiction are not"
        if is_numbered:
            numbered = ", ".join(f"{label} ({text})" for text, label in names.items())
            text = f"{numbered}; ?scale=0-2 reads them as scores"
        return cls(name, ENTAILMENT, None, values, names, missing, not is_numbered, text, meaning)

    @classmethod
    def _labels(cls, name: str, texts: set[str], missing: tuple[str, ...], is_nli: bool) -> GoldColumn:
        if len(texts) > MOST_LABELS:
            raise InputError(
                f"{name} has {len(texts):,} different labels, the first {min(texts)[:40]!r}; a label is one of "
                f"at most {MOST_LABELS}"
            )
        matches, meaning = matching_labels(sorted(texts))
        some = sorted(texts)[:5]
        alike = [label for label in some if side_of(label)] or [label for label in some if side_of(label) is None][:1]
        example = ",".join(f"{label}:{int(label in alike)}" for label in some)
        text = meaning
        if not matches:
            text = f"labels ({', '.join(some)}) that do not say which pairs are matches; ?labels={example} says it"
        elif is_nli and texts <= {"0", "1"}:
            text += "; ?labels=0:1,1:0 reads them the other way round"
        values = {label: float(label in matches) if matches else math.nan for label in sorted(texts)}
        names = {label: label for label in texts}
        return cls(name, LABEL, None, values, names, missing, False, text, meaning)

    @classmethod
    def _scores(cls, name: str, numbers: Sequence[float], missing: tuple[str, ...], has_query: bool) -> GoldColumn:
        if not numbers:
            return cls(name, missing=missing)
        low, high, is_whole = min(numbers), max(numbers), not any(number % 1 for number in numbers)
        scale = scale_of(low, high, is_whole, has_query)
        if scale is None:
            text = f"scores from {low:g} to {high:g}, which no usual scale has; ?scale={low:g}..{high:g} names theirs"
            return cls(name, missing=missing, read_as=text)
        other = ""
        if scale[0] == 1:
            other = "0-10"
        elif is_whole and scale == (0, TOP_SCORE):
            other = "1-5" if low >= 1 and high > 4 else f"0-{high:g}" if high < TOP_SCORE else ""
        elif is_whole and scale == (0, 10) and (low >= 1 or high < 10):
            other = f"1-{scale[1]:g}" if low >= 1 else f"0-{high:g}"
        text = f"scores {_stretched(*scale)}" + (f"; ?scale={other} reads them otherwise" if other else "")
        if codes := " and ".join(code for code in missing if code not in (*MISSING, "-1")):
            text += f"; {codes} as no score"
        is_sure = scale == (0, TOP_SCORE) and not other and not codes
        return cls(name, NUMBER, scale, missing=missing, is_sure=is_sure, read_as=text)

    def label_names(self, labels: Iterable[str]) -> tuple[str, ...]:
        """The names of these labels: those of inference in the Hub's order, numbers by their size, others sorted."""
        if self.kind == ENTAILMENT:
            return NLI_LABELS
        return tuple(sorted(set(labels), key=lambda text: (parse_number(text) is None, parse_number(text) or 0, text)))

    def with_others_as_no(self, others: Sequence[str]) -> str:
        """The value of ``?labels=`` that reads further labels as no match.

        It is empty without ``others``, and where the labels are not two, a match and no match, or one has a comma.
        """
        if not others or self.kind != LABEL or sorted((self.values or {}).values()) != [0.0, 1.0]:
            return ""
        values = {**(self.values or {}), **dict.fromkeys(map(label_text, others), 0.0)}
        if any("," in label for label in values):
            return ""
        return ",".join(f"{label}:{value:g}" for label, value in values.items())

    @property
    def note(self) -> str:
        """The reading as a remark on a file."""
        return f"{self.name} read as: {self.read_as}" if self.read_as else ""

    def is_missing(self, cell: Any) -> bool:
        """Whether this cell says that a row has no label or no score."""
        text = label_text(cell)
        # Labels that the user has not named have no value.
        return as_text(cell) is None or text in self.missing or (self.values is not None and text not in self.values)

    def read(self, cells: Sequence[Any]) -> tuple[np.ndarray, dict[int, str]]:
        """Values (rows,), NaN where there is none, and a note for each cell that is neither empty nor understood."""
        values, bad = np.full(len(cells), math.nan), {}
        codes = set(self.missing).difference(MISSING)
        for row, wrapped in enumerate(cells):
            cell = single_judgement(wrapped)
            text = label_text(cell)
            if as_text(cell) is None or text in codes:
                continue
            share = _SHARE.fullmatch(text) if self.are_shares else None
            value = _score(share[1] if share else cell) if self.values is None else self.values.get(text)
            if value is None:
                wrong = "is not a number" if self.values is None else f"is none of {', '.join(self.values)}"
                bad[row] = bad_number(self.name, cell).replace("is not a number", wrong)
            elif self.scale and not min(self.scale) <= value <= max(self.scale):
                bad[row] = f"column {self.name}: {quoted(cell)} is not in {self.scale[0]:g} to {self.scale[1]:g}"
            else:
                values[row] = value
        return values, bad

    def gold(self, values: np.ndarray) -> np.ndarray:
        """Scores on the scale 0–5. InputError if there is no scale that they are on."""
        if self.scale is None:
            raise InputError(f"{self.name}: {self.read_as or 'there are no scores'}")
        low, high = self.scale
        return values if self.scale == (0, TOP_SCORE) else (values - low) / (high - low) * TOP_SCORE

    def matches(self, values: np.ndarray) -> tuple[np.ndarray, str] | None:
        """The rows that are matches, bool (N,), and the definition of a match; None where the values do not tell.

        ``values`` (N,) are those of `read`, none of them NaN. A match is entailment against the rest; a label that
        says so; 1 against 0; or a gold score of at least 4 on the scale 0 to 5, whatever scale the file has.
        """
        if self.kind != NUMBER or (self.scale == (0, 1) and set(values.tolist()) == {0.0, 1.0}):
            matches, meaning = values == 1, self.meaning or "1 is a match, 0 is not"
        elif self.scale:
            low, high = self.scale
            matches = self.gold(values) >= POSITIVE_FROM
            least = low + POSITIVE_FROM / TOP_SCORE * (high - low)
            end = "least" if low < high else "most"
            meaning = f"a gold score of at {end} {least:g} (of {high:g}) is a match"
        else:
            return None
        return None if matches.all() or not matches.any() else (matches, meaning)


def _distinct(cells: Iterable[Any]) -> set[str]:
    """The different texts of cells; of many numbers the lowest and the highest are enough."""
    texts: set[str] = set()
    for cell in cells:
        if as_text(cell) is not None and (text := label_text(cell)) not in MISSING:
            texts.add(text)
            if len(texts) > MOST_DISTINCT:
                numbers = sorted(
                    (text for text in texts if _score(text) is not None), key=lambda text: _score(text) or 0.0
                )
                texts = texts.difference(numbers[MOST_LABELS:-MOST_LABELS])
    return texts


def _score(cell: Any) -> float | None:
    worded = _WORDED.fullmatch(cell.strip()) if isinstance(cell, str) else None
    number = parse_number(worded[1] if worded else cell)
    return None if number is None or abs(number) > LARGEST else number


def _stretched(low: float, high: float) -> str:
    return f"from {low:g} to {high:g}" + ("" if (low, high) == (0, TOP_SCORE) else " stretched to 0–5")
