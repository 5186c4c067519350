"""How an upload is read: its encoding, and which columns hold the sentences and the scores or labels.

file = gr.File(…)
how = UploadOptions(file, "errors")
start.click(handler, [file, *how.inputs], …)     handler(path, *how): chosen_name(services, path, *how)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.pages.components.encoding import EncodingPicker, as_named
from sbert_app.services.container import Services
from sbert_app.services.uploads import ChosenColumns, named_columns
from training.data.tables.table import Table, open_table
from training.errors import InputError, UserFacingError

NONE = ""
BY_NAME = "detected by name"

Update = dict[Any, Any]  # component -> its new value


class ColumnPicker:
    """Three dropdowns below an upload, hidden until there is a file. ``inputs`` belong to the page's own handlers."""

    def __init__(self, elem_id: str) -> None:
        """Build it inside the open Blocks; its ids are ``elem_id`` followed by -1, -2 and -target."""
        with gr.Row(visible=False, elem_id=elem_id) as self.row:
            self.first = gr.Dropdown(label="Sentence 1", min_width=150, elem_id=f"{elem_id}-1")
            self.second = gr.Dropdown(
                label="Sentence 2", info="None for single sentences", min_width=150, elem_id=f"{elem_id}-2"
            )
            self.target = gr.Dropdown(
                label="Score or label",
                info="Human judgements, if there are any",
                min_width=150,
                elem_id=f"{elem_id}-target",
            )
        self.inputs = [self.first, self.second, self.target]
        self.outputs = [self.row, *self.inputs]

    def show(self, files: str | Sequence[str] | None, encoding: str = "") -> Update:
        """The columns of the first file, with those that are found by their names chosen."""
        path = files if isinstance(files, str) else next(iter(files or ()), None)
        try:
            table = open_table(path, encoding or None) if path else None
        except UserFacingError:  # said where the file is used
            table = None
        if table is None:
            return {self.row: gr.Row(visible=False), **{each: gr.Dropdown(value=None) for each in self.inputs}}
        return {self.row: gr.Row(visible=True), **dict(zip(self.inputs, column_choices(table), strict=True))}


class UploadOptions:
    """The pickers of encoding and columns of an upload. ``inputs`` belong to the page's own handlers."""

    def __init__(self, upload: Any, prefix: str) -> None:
        """Build and wire them inside the open Blocks; ``prefix`` is that of their ids."""
        encoding, columns = EncodingPicker(f"{prefix}-encoding"), ColumnPicker(f"{prefix}-columns")
        encoding.wire(upload, besides=columns)
        self.inputs = [encoding.dropdown, *columns.inputs]


def column_choices(table: Table) -> list[Any]:
    """Updates of the three dropdowns for a file. Of triplets, which have names of their own, none is chosen."""
    found = ChosenColumns.found(table)
    names = [(name, name) for name in table.columns]
    values = (found.first, found.second, found.target) if found else (None, None, None)
    return [
        gr.Dropdown([(BY_NAME, NONE), *names] if index == 0 else [("none", NONE), *names], value=value or NONE)
        for index, value in enumerate(values)
    ]


def chosen_name(
    services: Services, path: str, encoding: str, first: str | None, second: str | None, target: str | None
) -> str:
    """The name of an upload for the loaders of data, with the encoding and the columns that were chosen.

    Raises:
        InputError: the browser has sent a path that is no upload, or the columns do not fit.
    """
    if not first:
        if second or target:
            raise InputError("choose the column of sentence 1")
        return as_named(path, encoding)
    services.access.check_data(path)
    chosen = ChosenColumns(first, second or None, target or None)
    if set(filter(None, (first, second, target))) - set(open_table(path, encoding or None).columns):
        return as_named(path, encoding)  # another of several files, found by its own names
    services.check_kept_room(Path(path))
    copy = named_columns(Path(path), chosen, services.settings.home, encoding or None)
    return as_named(path, encoding) if copy is None else str(copy)
