"""Prints the sheets of a workbook as lines of JSON: python sheets.py FILE [SHEET].

`training.data.tables.workbook` runs this file in a process of its own. calamine holds a sheet as a
rectangle, so that a workbook of a few kilobytes, with one cell far down and far to the right, uses
up all memory and ends the process.

Each line is an array of the name of a sheet, its number of rows and its first rows. With SHEET,
each line is an array of the cells of a row. An object is an error.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from itertools import islice

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetVisibleEnum,
)

# The same number as in `training.data.tables.rows`: this file imports nothing of the project.
HEAD_ROWS = 500
# The limit for the memory of this process.
MOST_BYTES = 4 << 30
# Characters; Excel itself allows 32,767.
LONGEST_CELL = 1 << 20


def main(path: str, sheet: str = "") -> None:
    """Prints all rows of a sheet, or the first rows of each visible sheet if no sheet is named."""
    _limit_memory()
    try:
        with CalamineWorkbook.from_path(path) as workbook:
            if sheet:
                for row in _rows(workbook.get_sheet_by_name(sheet)):
                    print(json.dumps(row))
                return
            for about in workbook.sheets_metadata:
                if about.visible == SheetVisibleEnum.Visible:
                    table = workbook.get_sheet_by_name(about.name)
                    head = list(islice(_rows(table), HEAD_ROWS))
                    print(json.dumps([about.name, table.height, head]))
    except PasswordError:
        print(json.dumps({"error": "is protected by a password: save it without one, or as CSV"}))
    except CalamineError:
        what_to_do = "open it in Excel and save it again, or as CSV"
        print(json.dumps({"error": f"is a damaged workbook: {what_to_do}"}))
    except ValueError as error:
        # `_text` raises it for a cell that is too long.
        print(json.dumps({"error": str(error)}))


def _rows(sheet: CalamineSheet) -> Iterator[list[str | None]]:
    """Yields the texts of each row, without empty cells at its end."""
    for row in sheet.iter_rows():
        cells = list(map(_text, row))
        while cells and cells[-1] is None:
            cells.pop()
        yield cells


def _text(cell: str | float | bool | date | time | timedelta) -> str | None:
    """The text of a cell: 4 is "4", TRUE is "TRUE", a date is as in ISO 8601; None for an empty one or an error."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    text = str(cell)
    if len(text) > LONGEST_CELL:
        raise ValueError(f"has a cell of more than {LONGEST_CELL >> 20} MB: this is no sentence")
    return text or None


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:
        # On Windows, which has no such limits, a large allocation fails.
        return
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


if __name__ == "__main__":
    arguments: Sequence[str] = sys.argv[1:]
    main(*arguments)
