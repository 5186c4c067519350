"""The columns of a table that hold the sentences, the gold score and the label: by name, as requested, or by content.

Names are compared without case, spaces, dots, dashes and underscores: ``Sentence 1``, ``sentence_1`` and
``SENTENCE1`` are one name. A table of exactly two columns needs no usual names. Numbers are parsed here too, because
whether a column holds scores depends on it.

Where names say nothing, the first rows suggest columns to the user. Sentences are mostly letters, in more than one
word, and seldom the same. Judgements are 0 and 1, words such as yes and no, or numbers of a small range. What several
columns may equally well be is left open.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, count, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any
from unicodedata import category

from training.catalogue import NEGATIVE_LABELS, NLI_LABELS, POSITIVE_LABELS
from training.data.tables.rows import HEAD_ROWS, OpenedTable, quoted
from training.errors import InputError, did_you_mean

PAIR_COLUMN_NAMES = (
    ("sentence1", "sentence2"),
    ("sentencea", "sentenceb"),
    ("sent1", "sent2"),
    ("senta", "sentb"),
    ("text1", "text2"),
    ("texta", "textb"),
    ("s1", "s2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("q1", "q2"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "passage"),
    ("query", "document"),
    ("query", "text"),
    ("question", "answer"),
    ("question", "passage"),
    ("source", "target"),
    ("sentence", "paraphrase"),
    ("a", "b"),
)
NEGATIVES = ("negative", "hardnegative")
SCORES = (
    "score",
    "similarityscore",
    "similarity",
    "goldscore",
    "gold",
    "goldsimilarity",
    "relatednessscore",
    "relatedness",
    "rating",
    "sim",
)
LABELS = ("label", "goldlabel", "isduplicate", "labels", "class", "category")
SENTENCES = ("sentence", "text", "sentences", "texts", "sentence1", "document", "passage", "query", "question")
USUAL_NAMES = frozenset(chain(*PAIR_COLUMN_NAMES, NEGATIVES, SCORES, LABELS, SENTENCES))
# The labels 0, 1, 2 of this pair are classes, not a scale.
NLI_PAIR = ("premise", "hypothesis")
JUDGEMENT_WORDS = POSITIVE_LABELS | NEGATIVE_LABELS | set(NLI_LABELS)
MOST_COLUMNS = 2_000
MOST_LISTED = 20
# The most characters of a name: a header does not hold whole sentences.
LONG_NAME = 80
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")

# The least share of letters in the characters of a sentence.
LETTERS = 0.6
# From here on lie the scripts that do not put spaces between words.
UNSPACED = "\u0e00"
# A column in which each text occurs so often, on average, holds no sentences.
REPEATS = 20
# Two columns are no pair, such as a name and a comment, if one is so many times as long as the other.
UNLIKE = 4

# The cells of each column.
Cells = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class PairColumns:
    """The columns of pairs, by their names in the table; None where there is none."""

    sentence1: str
    sentence2: str
    score: str | None = None
    label: str | None = None
    negative: str | None = None


def roles_of(columns: Sequence[str]) -> dict[str, str]:
    """The names of the columns by their roles, as far as the names tell.

    The roles are sentence1 and sentence2, or anchor, positive and negative, or sentence; beside them score and label.
    Two columns without a usual name can only be the two sentences.
    """
    by_key = _by_normalized_name(columns)
    roles = {"negative": _first(NEGATIVES, by_key), "score": _first(SCORES, by_key), "label": _first(LABELS, by_key)}
    pair = next((pair for pair in PAIR_COLUMN_NAMES if pair[0] in by_key and pair[1] in by_key), None)
    if pair is None and len(columns) == 2 and not any(map(is_usual_name, columns)):
        roles |= {"sentence1": columns[0], "sentence2": columns[1]}
    elif pair is not None:
        sentences = ("anchor", "positive") if roles["negative"] else ("sentence1", "sentence2")
        roles |= {role: by_key[key] for role, key in zip(sentences, pair, strict=True)}
    else:
        roles["sentence"] = _first(SENTENCES, by_key)
    return {role: name for role, name in roles.items() if name}


def canonical_names(columns: Sequence[str]) -> dict[str, str]:
    """The canonical name of each column: text_a -> sentence1, similarity -> score. Others keep their names."""
    canonical = {name: role for role, name in roles_of(columns).items() if role not in columns or role == name}
    return {name: canonical.get(name, name) for name in columns}


def pick_columns(table: OpenedTable, requested: Sequence[str] | None = None) -> PairColumns:
    """The pair's columns: two (or three, the gold score last) as ``requested``, else by name.

    InputError, which lists the columns, if a requested one does not exist, or no names are those of a pair.
    """
    if requested:
        return _as_requested(table, [name for name in requested if name.strip()])
    roles = roles_of(table.columns)
    first, second = roles.get("sentence1") or roles.get("anchor"), roles.get("sentence2") or roles.get("positive")
    if first is None or second is None:
        raise InputError(
            f"{table.path.name} has {listed(table.columns)}, but two with sentences are needed: call them sentence1 "
            "and sentence2, or say which they are."
        )
    return _with_the_rest(table, first, second)


def has_pairs(table: OpenedTable) -> bool:
    """Whether the names of the columns show that each row is a pair of sentences."""
    return not {"sentence2", "positive"}.isdisjoint(roles_of(table.columns))


def pick_sentence(table: OpenedTable, requested: str | None = None) -> str:
    """The one column of sentences: as ``requested``, else by name, else the only one.

    InputError, which lists the columns, if there is no such column.
    """
    if requested:
        return _existing(table, requested)
    if name := _first(SENTENCES, _by_normalized_name(table.columns)):
        return name
    if len(table.columns) == 1:
        return table.columns[0]
    raise InputError(
        f"{table.path.name} has {listed(table.columns)}: call the one to use sentence, or say which it is."
    )


def split_names(text: str | None, existing: Collection[str] = ()) -> tuple[str, ...]:
    """The names in "a,b". A name may hold a comma if it is written \\, or if the whole text is an existing name."""
    if text is None:
        return ()
    if text in existing:
        return (text,)
    return tuple(name.strip().replace("\0", ",") for name in text.replace("\\,", "\0").split(","))


def requested_names(table: OpenedTable, requested: Sequence[str]) -> dict[str, str]:
    """The canonical names of the ``requested`` columns: one of sentences, the two of a pair, or these and a third.

    The third holds negatives, labels or scores, by its name or its first cells. InputError as `pick_columns`.
    """
    if len(requested) == 1:
        return {_existing(table, requested[0]): "sentence"}
    pair = _as_requested(table, requested)
    first, second, third = pair.sentence1, pair.sentence2, pair.score if requested[2:] else None
    if third is None:
        by_key = _by_normalized_name([name for name in table.columns if name not in (first, second)])
        judgements = {_first(SCORES, by_key): "score", _first(LABELS, by_key): "label"}
        return {first: "sentence1", second: "sentence2"} | {name: role for name, role in judgements.items() if name}
    key, cells = normalize_name(third), table.preview(50).rows[third]
    if key in NEGATIVES or any(_is_sentence(cell) for cell in cells if isinstance(cell, str)):
        return {first: "anchor", second: "positive", third: "negative"}
    is_score = key not in LABELS and _is_numeric(table, third)
    return {first: "sentence1", second: "sentence2", third: "score" if is_score else "label"}


def parse_number(value: Any) -> float | None:
    """A finite number, or None. Text may have spaces around it and a decimal comma ("0,85").

    Numbers with separated thousands, such as 1.234,56 and 1,234.56, are None: their meaning depends on the country.
    """
    if isinstance(value, str):
        value = value.strip()
        if DECIMAL_COMMA.fullmatch(value):
            value = value.replace(",", ".")
        if not NUMBER.fullmatch(value):
            return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def bad_number(column: str, value: Any, row: int | None = None) -> str:
    """The error for a cell that should be a number: "row 17, column score: 'abc' is not a number"."""
    return (f"row {row:,}, " if row else "") + f"column {column}: {quoted(value)} is not a number"


def as_text(value: Any) -> str | None:
    """A cell as a sentence; None for white space, a list or an object. Numbers become their digits."""
    if value is None or isinstance(value, list | dict) or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    text = value if isinstance(value, str) else str(value)
    return text if text.strip() else None


def normalize_name(name: str) -> str:
    """A name in lower case without spaces, dots, dashes and underscores."""
    return re.sub(r"[\s_.\-]+", "", name).casefold()


def is_usual_name(name: str) -> bool:
    """Whether this is one of the usual names of columns."""
    return normalize_name(name) in USUAL_NAMES


def looks_like_data(first: Sequence[str]) -> bool:
    """Whether a table's first line is a row and no header: it has a number or a whole sentence, and no usual name."""
    if any(map(is_usual_name, first)):
        return False
    return any(parse_number(cell) is not None or _is_sentence(cell) for cell in first)


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Names that differ and are not empty, and a remark on each that had to change."""
    unique: list[str] = []
    remarks = []
    stripped = [name.strip() for name in names]
    for position, name in enumerate(stripped, start=1):
        if name and name not in unique:
            unique.append(name)
            continue
        unique.append(free_name(name or f"column_{position}", [*unique, *stripped]))
        problem = f"has the same name as another, {quoted(name)}" if name else "has no name"
        remarks.append(f"Column {position} {problem}: it is called {unique[-1]} here.")
    return tuple(unique), remarks


def header_of(path: Path, first: Sequence[str]) -> tuple[tuple[str, ...], bool, list[str]]:
    """The columns by a table's first row, whether that row is a header, and remarks on both.

    InputError if it has more columns than a table of sentences can have.
    """
    if len(first) > MOST_COLUMNS:
        raise InputError(f"{path.name} has {len(first):,} columns in its first line: this is no table of sentences.")
    if not looks_like_data(first):
        columns, renamed = unique_names(first)
        return columns, True, renamed
    columns, _ = unique_names([""] * len(first))
    called = f"columns are called {columns[0]} to {columns[-1]}" if columns[1:] else f"column is called {columns[0]}"
    return columns, False, [f"The first line is data, not a header, so the {called}."]


def free_name(name: str, taken: Sequence[str]) -> str:
    """The first of ``name``, name_2, name_3, … that no column has, in any case of its letters."""
    used = {other.casefold() for other in taken}
    candidates = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate.casefold() not in used)


def listed(columns: Sequence[str], noun: str = "column") -> str:
    """The names of columns as an error lists them, on one line, cut and limited."""
    names = [" ".join(name.split()) for name in columns[:MOST_LISTED]]
    names = [name if len(name) <= LONG_NAME else name[:LONG_NAME] + "…" for name in names]
    more = f" and {len(columns) - MOST_LISTED} more" if len(columns) > MOST_LISTED else ""
    return f"the {noun}{'s' * (len(columns) > 1)} {', '.join(names)}{more}"


def _by_normalized_name(columns: Sequence[str]) -> dict[str, str]:
    """The columns by their normalized names; of several with the same, the first."""
    return {normalize_name(name): name for name in reversed(columns)}


def _first(names: Sequence[str], by_key: dict[str, str]) -> str | None:
    return next((by_key[name] for name in names if name in by_key), None)


def _as_requested(table: OpenedTable, requested: Sequence[str]) -> PairColumns:
    if len(requested) not in (2, 3):
        raise InputError(f"Name two columns, or three with the gold score last; {len(requested)} are named.")
    first, second, *score = (_existing(table, name) for name in requested)
    if first == second:
        raise InputError(f"Both sentences are to come from the column {first}: name two different columns.")
    return PairColumns(first, second, score=score[0]) if score else _with_the_rest(table, first, second)


def _with_the_rest(table: OpenedTable, first: str, second: str) -> PairColumns:
    """A pair with its gold score, label and negative, by their names."""
    by_key = _by_normalized_name([name for name in table.columns if name not in (first, second)])
    score, label, negative = (_first(names, by_key) for names in (SCORES, LABELS, NEGATIVES))
    if score is None and label and normalize_name(first) not in NLI_PAIR and _is_numeric(table, label):
        score, label = label, None
    return PairColumns(first, second, score=score, label=label, negative=negative)


def _existing(table: OpenedTable, requested: str) -> str:
    """The column as the table spells it."""
    if requested in table.columns:
        return requested
    names = [name for name in table.columns if normalize_name(name) == normalize_name(requested)]
    if len(names) == 1:
        return names[0]
    meant = did_you_mean(requested, table.columns)
    raise InputError(f"{table.path.name} has no column {quoted(requested)}; it has {listed(table.columns)}{meant}.")


def _is_numeric(table: OpenedTable, column: str) -> bool:
    values = [value for value in table.preview(50).rows[column] if as_text(value) is not None]
    return bool(values) and all(parse_number(value) is not None for value in values)


def _is_sentence(cell: str) -> bool:
    words = len(cell.split())
    return len(cell) > LONG_NAME or words >= 6 or (words >= 3 and cell.rstrip().endswith((".", "?", "!")))


# ---------------------------------------------------------------- by content


def sentence_columns(rows: Cells) -> list[str]:
    """The columns that hold sentences, in the order of the table."""
    return [name for name, cells in rows.items() if _are_sentences(_texts(cells))]


def guess_sentences(rows: Cells) -> tuple[str, ...]:
    """The two columns of a pair; or the one with the longest sentences; or none.

    Two are a pair if there are no others, or their names differ in the last character alone.
    """
    names = sentence_columns(rows)
    length = {name: fmean(map(len, _texts(rows[name]))) for name in names}
    alike = [pair for pair in combinations(names, 2) if len({normalize_name(name)[:-1] for name in pair}) == 1]
    for pair in [names] if len(names) == 2 else alike[:1]:
        if max(length[name] for name in pair) < UNLIKE * min(length[name] for name in pair):
            return tuple(pair)
    return (max(names, key=length.__getitem__),) if names else ()


def guess_target(rows: Cells, of_pairs: bool) -> str | None:
    """The column of judgements; ``rows`` are those of the columns beside the sentences.

    A label before a score, and of single sentences a class, of which there are few; None where two are as likely.
    """
    texts = {name: _texts(cells) for name, cells in rows.items()}
    checks = [_are_labels, _are_scores, *([] if of_pairs else [_are_classes])]
    likely = ([name for name in texts if check(texts[name])] for check in checks)
    best = next(filter(None, likely), [])
    return best[0] if len(best) == 1 else None


def _texts(cells: Sequence[Any]) -> list[str]:
    return [text.strip() for cell in cells[:HEAD_ROWS] if (text := as_text(cell)) is not None]


def _are_sentences(texts: list[str]) -> bool:
    if not texts or len(set(texts)) < max(min(len(texts), 2), len(texts) / REPEATS):
        return False
    in_words = fmean(" " in text or max(text) >= UNSPACED for text in texts)
    characters = ("".join(text[:200].split()) for text in texts)
    letters = fmean(fmean(category(character)[0] in "LM" for character in text) for text in characters)
    return in_words >= 0.5 and letters >= LETTERS


def _are_labels(texts: list[str]) -> bool:
    numbers = set(map(parse_number, texts))
    words = {text.lower() for text in texts}
    return len(words) > 1 and (numbers == {0.0, 1.0} or words <= JUDGEMENT_WORDS)


def _are_scores(texts: list[str]) -> bool:
    numbers = [number for text in texts if (number := parse_number(text)) is not None]
    if len(numbers) < len(texts) or len(set(numbers)) < 2:
        return False
    # Consecutive numbers are those of the rows.
    are_consecutive = all(b - a == 1 for a, b in pairwise(numbers))
    low, high = min(numbers), max(numbers)
    return not are_consecutive and ((low >= 0 and high <= 10) or (low >= -1 and high <= 1))


def _are_classes(texts: list[str]) -> bool:
    return 2 <= len(set(texts)) <= len(texts) / 3 and None in map(parse_number, texts)
