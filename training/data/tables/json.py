"""JSON Lines, a JSON array of objects, or one object of columns ({"sentence1": […], "sentence2": […]}), as a table.

An object of columns may also be written by pandas, or hold the rows of each split. A row may be a
list, as in the training data of sentence-transformers: ["…", "…"] is a pair, and three texts are a
triplet.

The keys of all objects are the columns, so `open_json` reads the whole file once to collect the
keys, the types of the columns and the number of rows. A line that is not an object becomes an empty
row with a note. An array is read one object at a time, never as a whole.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from training.data.tables.cells import flat, quoted, rows_to_columns
from training.data.tables.columns import MOST_COLUMNS, unique_names
from training.data.tables.lists import with_rows_of_lists
from training.data.tables.reading import ALL_SPLITS, SPLIT
from training.data.tables.rows import OpenedTable, Record, RowBatch, gather
from training.data.tables.text import TextFile, TextTable, scan, spoken, suspicion
from training.errors import InputError

# The most characters of one element of an array.
LONGEST_OBJECT = 16 << 20
PIECE = 1 << 20
Layout = Literal["lines", "array", "objects", "columns"]
LAYOUTS = {
    "lines": "JSON Lines",
    "array": "a JSON array",
    "objects": "JSON objects of several lines",
    "columns": "a JSON object of columns",
}
# The names of a list of rows within an object.
NESTED = ("data", "rows", "examples", "records", "items")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
BETWEEN = re.compile(r"[,\s]*")
INT64 = 1 << 63
EXACT_IN_DOUBLE = 1 << 53
# The Arrow type of a column by the types of its values. All other columns are text, with nested
# values as JSON.
TYPES = {
    "bool": "bool",
    "int": "int64",
    "long": "int64",
    "int long": "int64",
    "float": "double",
    "float int": "double",
}


@dataclass(frozen=True)
class JsonTable(TextTable):
    """A file of JSON objects whose columns are known."""

    layout: Layout
    # The keys of the objects. ``columns`` has other names for empty and repeated ones.
    keys: tuple[str, ...]
    # The names of the columns' Arrow types.
    types: tuple[str, ...]

    @property
    def description(self) -> str:
        return f"{LAYOUTS[self.layout]}, {spoken(self.text.encoding)}"

    def fields(self) -> list[Any]:
        # pyarrow takes time to import, and only writers need the fields.
        import pyarrow as pa

        types = map(pa.type_for_alias, self.types)
        return list(map(pa.field, self.columns, types))

    def _read(self, size: int) -> Iterator[RowBatch]:
        return gather(self._records(), self.columns, size)

    def _records(self) -> Iterator[Record]:
        """Yields the cells of each row in the order of ``keys``, a note or None, and the number of characters."""
        empty = (None,) * len(self.columns)
        # Notes on rows, by the characters that cause them, such as � for invalid bytes.
        character_notes = self.text.notes
        for value, problem, weight in _values(self.text, self.layout):
            if problem is not None:
                yield empty, problem, weight
                continue
            note = None
            cells = [value.get(key) for key in self.keys]
            for at, cell in enumerate(cells):
                if not isinstance(cell, str | list):
                    continue
                cells[at] = _with_whole_characters(cell)
                if cells[at] != cell:
                    note = "holds half a character, shown as �"
                elif character_notes and isinstance(cell, str):
                    note = suspicion([cell], character_notes) or note
            yield cells, note, weight


def _with_whole_characters(value: Any) -> Any:
    """A value with "�" for each half of a character in its texts, which cannot be written."""
    if isinstance(value, str):
        return value if value.isascii() else LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return list(map(_with_whole_characters, value))
    if isinstance(value, dict):
        return dict(_with_whole_characters(list(item)) for item in value.items())
    return value


def open_json(path: Path, encoding: str | None = None, sheet: str | None = None) -> OpenedTable:
    """Reads the file once for columns, types and rows. InputError if it holds no object, or an array breaks off.

    ``sheet`` is ignored, as the file has none; see `training.data.tables.table.Opener`.
    """
    text = scan(path, encoding)
    layout = _layout(text)
    kinds: dict[str, set[str]] = {}
    rows = 0
    bad = 0
    first_problem = ""
    for value, problem, _ in _values(text, layout):
        rows += 1
        if problem is not None:
            bad += 1
            first_problem = first_problem or f" (row {rows:,} {problem})"
            continue
        for name, cell in value.items():
            kinds_of_column = kinds.setdefault(name, set())
            if cell is not None:
                kinds_of_column.add(_kind(cell))
        if len(kinds) > MOST_COLUMNS:
            raise InputError(
                f"{path.name} has more than {MOST_COLUMNS:,} different keys: this is no table of sentences."
            )
    if not kinds:
        needed = 'Each row has to be an object such as {"sentence1": "…", "sentence2": "…"}.'
        raise InputError(f"{path.name} holds no rows{first_problem}. {needed}")
    columns, renamed = unique_names([LONE_SURROGATE.sub("\ufffd", name) for name in kinds])
    remarks = [*renamed, *text.remarks]
    if bad:
        remark = (
            f"Rows without a JSON object: {bad:,} of {rows:,}. They are kept, empty and marked."
        )
        remarks.insert(0, remark)
    # A column whose combination of kinds `TYPES` does not list is text.
    types = [TYPES.get(" ".join(sorted(names)), "string") for names in kinds.values()]
    table = JsonTable(
        path,
        columns,
        rows,
        tuple(remarks),
        text,
        layout,
        keys=tuple(kinds),
        types=tuple(types),
    )
    return with_rows_of_lists(table)


def _layout(text: TextFile) -> Layout:
    """The layout of a file: objects on a line or several lines each, an array of objects, or one object of columns."""
    start = text.head(4096).lstrip("\ufeff \t\r\n")
    if start.startswith("["):
        # If the first line is an array of texts, each line is a row. But [{…}] and [[…]] are arrays
        # of rows, and [] is one without rows.
        first = start.partition("\n")[0].strip()
        holds_rows = first.startswith("[[") or first.lstrip("[ ").startswith(("{", "]"))
        if first.endswith("]") and not holds_rows:
            return "lines"
        return "array"
    if not start.startswith("{"):
        return "lines"
    if _columns(text) is not None:
        return "columns"
    head = text.head().lstrip("\ufeff \t\r\n")
    try:
        end = json.JSONDecoder().raw_decode(head)[1]
    except (ValueError, RecursionError):
        return "lines"
    return "objects" if "\n" in head[:end] else "lines"


def _columns(text: TextFile) -> dict[str, list[Any]] | None:
    """The columns of a file that is one object in a layout of `_by_column`; None for any other file."""
    # An object of columns is held in memory as a whole.
    if text.path.stat().st_size > LONGEST_OBJECT:
        return None
    with text.open() as file:
        first = file.readline()
        has_more = any(line.strip() for line in file)
    # Most files have an object on each line.
    if has_more and isinstance(_decoded(first), dict):
        return None
    value = _decoded(text.head(LONGEST_OBJECT).lstrip("\ufeff"))
    return _by_column(value) if isinstance(value, dict) else None


def _decoded(text: str) -> Any:
    """The value of a JSON text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _by_column(value: dict[str, Any]) -> dict[str, list[Any]] | None:
    """The columns of an object: {column: [cells]}, or another layout of tables that pandas writes; else None."""
    parts = list(value.values())
    if ALL_SPLITS.issuperset(value) and all(map(_are_objects, parts)):
        # The rows of each split.
        rows = []
        for name, part in value.items():
            rows += [row | {SPLIT: name} for row in part]
        return rows_to_columns(rows)
    nested = next((value[name] for name in NESTED if name in value), None)
    if nested and isinstance(nested, list):
        names = value.get("columns")
        if isinstance(names, list) and _are_rows(nested, len(names)):
            # pandas writes {"columns": […], "data": [[…], …]} with orient="split".
            return {str(name): [row[at] for row in nested] for at, name in enumerate(names)}
        if _are_objects(nested):
            # The dataset viewer of the Hub puts each row into an object.
            rows = []
            for item in nested:
                row = item.get("row")
                rows.append(row if isinstance(row, dict) else item)
            return rows_to_columns(rows)
    if parts and _are_objects(parts):
        # By the number of the row, then by column: orient="index" of pandas.
        if all(map(str.isdecimal, value)):
            return rows_to_columns(parts)
        # By column, then by row: orient="columns" of pandas.
        index = dict.fromkeys(chain.from_iterable(parts))
        if not index:
            return None
        return {name: [cells.get(key) for key in index] for name, cells in value.items()}
    is_rectangular = bool(parts) and isinstance(parts[0], list) and _are_rows(parts, len(parts[0]))
    return value if is_rectangular else None


def _are_rows(items: list[Any], width: int) -> bool:
    """Whether all items are lists of this length."""
    return all(isinstance(item, list) and len(item) == width for item in items)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _values(text: TextFile, layout: Layout) -> Iterator[tuple[Any, str | None, int]]:
    """Yields for every row (the object, None, its weight) or ({}, the fault, its weight).

    The weight is the number of characters.
    """
    if layout == "columns":
        columns = _columns(text) or {}
        for cells in zip(*columns.values(), strict=True):
            weight = sum(len(cell) for cell in cells if isinstance(cell, str))
            yield flat(dict(zip(columns, cells, strict=True))), None, weight
        return
    with text.open() as file:
        if layout != "lines":
            # Objects that follow one another are read as an array that has only to be closed.
            yield from _array_values(file, text.path.name, "" if layout == "array" else "]")
            return
        for line in file:
            if not line.strip("\ufeff \t\r\n\x00"):
                continue
            try:
                yield _as_row(json.loads(line), len(line))
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", "too deeply nested or too long a number")
                yield {}, f"is not JSON ({reason}): {quoted(line.strip())}", len(line)


def _as_row(value: Any, weight: int) -> tuple[Any, str | None, int]:
    """A JSON value as `_values` yields it. Texts, and lists of texts with or without a score, become objects."""
    if isinstance(value, str):
        value = {"text": value}
    elif isinstance(value, list) and value:
        kinds = list(map(type, value))
        if set(kinds) == {str}:
            value = {"texts": value}
        elif kinds in ([str, str, int], [str, str, float]):
            value = dict(zip(("sentence1", "sentence2", "score"), value, strict=True))
    if isinstance(value, dict):
        return flat(value), None, weight
    return {}, f"is not a JSON object: {quoted(json.dumps(value, ensure_ascii=False))}", weight


def _array_values(
    file: TextIOWrapper, name: str, closing: str
) -> Iterator[tuple[Any, str | None, int]]:
    """The elements of a JSON array, decoded one at a time from a sliding piece of the file.

    ``closing`` is "]" for objects that follow one another without brackets around them, else "".
    """
    decode = json.JSONDecoder().raw_decode
    buffer = file.read(PIECE)
    # Where the first object or the first element begins. `_layout` has seen the brace or bracket.
    at = buffer.index("{") if closing else buffer.index("[") + 1
    row = 0
    while True:
        at = BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]  # it matches the empty string too
        if buffer.startswith("]", at):
            return
        try:
            value, end = decode(buffer, at)
            # A number at the end of the piece may have more digits.
            is_complete = end < len(buffer)
        except (ValueError, RecursionError):
            is_complete = False
        if is_complete:
            row += 1
            yield _as_row(value, end - at)
            at = end
            continue
        # A long element is decoded again from its beginning with every piece, so the pieces grow
        # with it.
        more = file.read(max(PIECE, len(buffer) - at))
        if not more:
            # Objects without brackets end where the file ends, so the bracket is added there, once.
            more = closing
            closing = ""
        if not more or len(buffer) - at > LONGEST_OBJECT:
            raise InputError(f"{name}, row {row + 1:,}: the JSON is broken here, or breaks off.")
        buffer = buffer[at:] + more
        at = 0


def _kind(cell: Any) -> str:
    """The name of a value's type. Integers that double cannot represent exactly are "long", beyond int64 "huge"."""
    if type(cell) is not int:
        return type(cell).__name__
    if abs(cell) < EXACT_IN_DOUBLE:
        return "int"
    if abs(cell) < INT64:
        return "long"
    return "huge"
