"""Builds the pickers of an upload: its encoding, its sheet, and the columns of its sentences and scores or labels.

    file = gr.File(…)
    options = UploadOptions(file, "errors")
    start.click(handler, [file, *options.inputs], …)

    def handler(path, *options): name = chosen_name(services, path, *options)

The picker of encodings is visible if a text file is not plainly UTF-8, with words from the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import LATEST, Update
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.templates import macro
from sbert_app.services.container import Services
from sbert_app.services.files.uploads import GOLD_SCALE, ChosenColumns, has_scores, has_triplets, named_columns
from training.data.tables.columns import as_text, listed
from training.data.tables.rows import OpenedTable, file_version
from training.data.tables.table import open_table
from training.data.tables.text import SPOKEN, UnknownEncodingError
from training.data.tables.xlsx import UnknownSheetError
from training.errors import InputError, UserFacingError
from training.names import DataName

# The number of uploads that stay open.
MOST_OPENED = 16
# The suffix of the id of each column picker, and its label.
COLUMNS = {"1": "Sentence 1", "2": "Sentence 2", "target": "Score or label"}
NONE, CHOOSE = "", "choose a column"


class ColumnPicker:
    """The dropdowns below an upload, hidden until there is a file: the sheet of a workbook, and the roles of columns.

    ``inputs``, the sheet and then the columns, are inputs of the handlers of the page.
    """

    def __init__(self, elem_id: str) -> None:
        """Builds the row inside the open Blocks; the ids are ``elem_id`` followed by -sheet, -1, -2 and -target."""
        with gr.Row(visible=False, elem_id=elem_id) as self.row:
            self.sheet = gr.Dropdown(label="Sheet", visible=False, min_width=200, elem_id=f"{elem_id}-sheet")
            self.columns = [
                gr.Dropdown(label=label, min_width=200, elem_id=f"{elem_id}-{end}") for end, label in COLUMNS.items()
            ]
        self.inputs = [self.sheet, *self.columns]
        self.outputs = [self.row, *self.inputs]

    def show(self, files: str | Sequence[str] | None, encoding: str = "", sheet: str | None = None) -> Update:
        """Shows the columns of the first file; those that names or contents suggest are selected."""
        try:
            paths = _paths(files)
            return self.of(open_upload(paths[0], encoding, sheet) if paths else None)
        except UserFacingError:
            # The page shows the error where it uses the file.
            return self.of(None)

    def show_sheet(self, files: str | Sequence[str] | None, encoding: str, sheet: str) -> Update:
        """Shows the columns of another sheet. Its picker is not updated: it may have changed again meanwhile."""
        update = self.show(files, encoding, sheet)
        del update[self.sheet]
        return update

    def of(self, table: OpenedTable | None, columns: ChosenColumns | None = None) -> Update:
        """The update for a table, with ``columns`` selected or else the suggested ones; hidden without a table."""
        if table is None:
            return {self.row: gr.update(visible=False), **dict.fromkeys(self.inputs, gr.update(value=None))}
        suggested, guessed = (columns, frozenset[str]()) if columns else ChosenColumns.suggested(table)
        names = [(f"{column} (guessed)" if column in guessed else column, column) for column in table.columns]
        values = (suggested.first, suggested.second, suggested.target) if suggested else (None, None, None)
        first = "anchor, positive, negative" if has_triplets(table.columns) else CHOOSE
        sheets = list(table.sheets)
        pickers = zip(self.columns, (first, "none", "none"), values, strict=True)
        return {
            self.row: gr.update(visible=True),
            self.sheet: gr.update(choices=sheets, value=table.sheet or None, visible=len(sheets) > 1),
            **{picker: gr.update(choices=[(none, NONE), *names], value=name or NONE) for picker, none, name in pickers},
        }


# (label, name of the codec); the first is the default.
ENCODINGS = [("detected", ""), *((words, name) for name, words in sorted(SPOKEN.items(), key=lambda pair: pair[1]))]
DETECTED = ""
# The number of characters that are quoted from a file.
MOST_WORDS = 160


def encoding_dropdown(elem_id: str) -> gr.Dropdown:
    """The picker of encodings, hidden until there is a doubt."""
    return gr.Dropdown(
        ENCODINGS,
        value=DETECTED,
        label="Encoding",
        info="If words look wrong",
        visible=False,
        min_width=200,
        elem_id=elem_id,
    )


class UploadOptions:
    """The pickers of an upload: its encoding, its sheet and its columns. ``inputs`` belong to the page's handlers."""

    def __init__(self, upload: Any, prefix: str) -> None:
        """Builds and wires the pickers inside the open Blocks; their ids begin with ``prefix``."""
        self.read = gr.HTML(visible=False, elem_id=f"{prefix}-encoding-read")
        self.encoding = encoding_dropdown(f"{prefix}-encoding")
        self.columns = ColumnPicker(f"{prefix}-columns")
        self.inputs = [self.encoding, *self.columns.inputs]
        self.outputs = [self.read, self.encoding, *self.columns.outputs]
        gr.on([upload.upload, upload.clear], self.describe, upload, self.outputs, **LATEST)
        others = [output for output in self.outputs if output is not self.encoding]
        self.encoding.input(self.describe_picked, [upload, self.encoding], others, **LATEST)
        others = [output for output in self.columns.outputs if output is not self.columns.sheet]
        self.columns.sheet.input(self.columns.show_sheet, [upload, self.encoding, self.columns.sheet], others, **LATEST)

    def describe(self, files: str | Sequence[str] | None, encoding: str = DETECTED) -> Update:
        """Shows words of the first doubtful file with the picker of encodings, and the columns of the first file."""
        first, doubtful = None, None
        try:
            for path in _paths(files):
                table = open_upload(path, encoding)
                first, doubtful = first or table, None if table.is_plain else table
                if doubtful:
                    break
            words, in_doubt = (how_it_reads(doubtful), True) if doubtful else ("", False)
        except UserFacingError as error:
            words, in_doubt = error_message(error), bool(encoding) or isinstance(error, UnknownEncodingError)
        return {
            self.read: gr.HTML(words, visible=bool(words)),
            self.encoding: gr.Dropdown(value=encoding, visible=in_doubt),
            **self.columns.of(first),
        }

    def describe_picked(self, files: str | Sequence[str] | None, encoding: str) -> Update:
        """Reads the files in another encoding. Its picker is not updated: it may have changed again meanwhile."""
        update = self.describe(files, encoding)
        del update[self.encoding]
        return update


def open_upload(path: str, encoding: str = DETECTED, sheet: str | None = None) -> OpenedTable:
    """Opens an upload: in ``encoding`` if it is not plainly UTF-8, at ``sheet`` if it is a workbook that has it.

    A .txt file has one sentence per line. InputError if the file cannot be read.
    """
    version = file_version(Path(path))
    try:
        table = _opened(path, None, sheet or None, version)
        is_doubtful = not table.is_plain
    except UnknownSheetError:
        return _opened(path, None, None, version)
    except UnknownEncodingError:
        if not encoding:
            raise
        is_doubtful = True
    return _opened(path, encoding, None, version) if encoding and is_doubtful else table


@lru_cache(MOST_OPENED)
def _opened(path: str, encoding: str | None, sheet: str | None, version: tuple[int, int] | None) -> OpenedTable:
    """Opens a table once for each ``version`` of the file, however many events need it."""
    return open_table(path, encoding, sheet, lines=True)


def _paths(files: str | Sequence[str] | None) -> list[str]:
    return [files] if isinstance(files, str) else list(files or ())


def how_it_reads(table: OpenedTable) -> Markup:
    """The name of the file, its encoding, and its first words beyond ASCII."""
    cells = (as_text(cell) or "" for batch in table.batches(1_000) for row in batch.rows.values() for cell in row)
    sample = next((text for text in islice(cells, 100_000) if not text.isascii()), "")
    remark = " ".join(table.remarks) or f"{table.description}."
    return macro("file_reading")(table.path.name, remark, " ".join(sample.split())[:MOST_WORDS])


def chosen_name(services: Services, path: str, encoding: str, sheet: str | None, *names: str | None) -> str:
    """The name of an upload for the loaders of data, with its encoding, its sheet and its columns.

    InputError if the path is no upload of this app, or the columns do not fit.
    """
    services.access.check_data(path)
    table = open_upload(path, encoding, sheet)
    as_named = str(DataName(path, encoding)) if encoding and not table.is_plain else path
    first, *others = (name or None for name in names)
    columns = ChosenColumns(first, *others) if first else None
    if columns and not set(columns.names) <= set(table.columns):
        # This is another of several files, and its columns are found by their own names.
        return as_named
    if columns is None and (any(others) or not has_triplets(table.columns)):
        raise InputError(
            f"choose the column of sentence 1, below the file: {table.path.name} has {listed(table.columns)}"
        )
    services.check_kept_room(Path(path))
    copy = named_columns(table, columns, services.settings.home)
    if copy is None:
        return as_named
    return str(DataName(str(copy), scale=GOLD_SCALE if columns and has_scores(copy) else None))
