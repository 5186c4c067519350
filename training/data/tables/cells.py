"""The cells of a table: as text, as numbers and as judgements; rows of nested objects as columns."""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
# White space and characters that cannot be seen.
UNSEEN = (
    r"\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
)
# Cells without text, among them missing values of databases and errors of a spreadsheet.
NO_TEXT = re.compile(
    rf"[{UNSEEN}]*|\\N|NULL|<NA>|#(?:N/A|REF!|VALUE!|DIV/0!|NAME\?|NUM!|NULL!|SPILL!|CALC!)"
)
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
# Python's bytes as pandas writes them.
_BYTES = re.compile(r"b(['\"]).*\1", re.DOTALL)
# Texts in place of a judgement, the empty text first.
_UNSURE = (
    "|-|--|—|–|.|?|nan|none|null|n/a|n.a.|na|<na>|ns|unknown|unsure|not sure|unclear|maybe|perhaps|"
    "vielleicht|peut-être|quizás|ignore|skip"
)
UNSURE = frozenset(_UNSURE.split("|"))
# The states of a judgement that does not count, as annotation tools name them; "true" stands in
# Label Studio's column was_cancelled.
_REJECTED = (
    "rejected|discarded|cancelled|canceled|draft|skipped|preview|survey preview|true|reject|ignore"
)
REJECTED = frozenset(_REJECTED.split("|"))
# The fields of a judgement in the objects of annotation tools.
VALUE_FIELDS = ("result", "value", "rating", "choices", "label", "score", "answer", "text")
# The most characters of a bad value that a note or an error quotes.
QUOTED = 60


def parse_number(value: Any) -> float | None:
    """A finite number, or None. Text may have spaces around it and a decimal comma ("0,85").

    Numbers with separated thousands, such as 1.234,56 and 1,234.56, are None: their meaning depends
    on the country.
    """
    if isinstance(value, str):
        # Word processors write a minus sign for the hyphen.
        value = value.strip().replace("\u2212", "-")
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
    place = f"row {row:,}, " if row else ""
    return f"{place}column {column}: {quoted(value)} is not a number"


def as_text(value: Any) -> str | None:
    """A cell as a sentence; None for no text (`NO_TEXT`), a list or an object. Numbers become their digits."""
    text = value
    # Most cells are texts, so this comes first.
    if not isinstance(value, str):
        if value is None or isinstance(value, list | dict):
            return None
        if isinstance(value, float) and math.isnan(value):
            return None
        text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    # Bytes that pandas has written as text, such as b'a cat'.
    if text[:2] in ("b'", 'b"') and _BYTES.fullmatch(text):
        try:
            text = ast.literal_eval(text).decode("utf-8", errors="replace")
        except (ValueError, SyntaxError):
            # It looks like bytes but is not.
            return text
    return None if NO_TEXT.fullmatch(text) else text


def judgement_of(cell: Any) -> list[Any]:
    """The judgements in a cell, by one rater or several, without what annotation tools wrap them in.

    4, [4], {"rating": 4} and these as JSON are [4]; [5, 4] holds the judgements of two raters.
    Discarded judgements are left out.
    """
    if isinstance(cell, str) and cell[:1] in ("[", "{"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            # It looks like JSON but is not.
            return [cell]
    if isinstance(cell, list):
        return list(chain.from_iterable(map(judgement_of, cell)))
    if not isinstance(cell, dict):
        return [cell]
    if str(cell.get("status", "")).lower() in REJECTED or cell.get("was_cancelled"):
        return []
    inner = next((cell[name] for name in VALUE_FIELDS if name in cell), None)
    if inner is None:
        # An object of several unknown fields says nothing.
        if len(cell) != 1:
            return []
        [inner] = cell.values()
    return judgement_of(inner)


def single_judgement(cell: Any) -> Any:
    """The judgement of a cell without what it is wrapped in; the cell if it holds none or several."""
    if not isinstance(cell, str | dict | list):
        return cell
    values = judgement_of(cell)
    return values[0] if len(values) == 1 else cell


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose objects are taken apart: {"labels": {"label": 4}} is {"labels.label": 4}."""
    cells: dict[str, Any] = {}
    for name, cell in row.items():
        if isinstance(cell, dict):
            cells |= flat({f"{name}.{key}": part for key, part in cell.items()})
        else:
            cells[name] = cell
    return cells


def rows_to_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The cells of rows by column, None where a row has none."""
    names = dict.fromkeys(chain.from_iterable(rows))
    return {name: [row.get(name) for row in rows] for name in names}


def quoted(value: Any) -> str:
    """A value as an error quotes it: in quotes, cut to a length that stays readable."""
    text = str(value)
    if len(text) > QUOTED:
        text = text[:QUOTED] + "…"
    return repr(text)
