"""A picker of encodings beside an upload: shown where a text file is not plainly UTF-8, with words of the file.

file = gr.File(…)
encoding = EncodingPicker("errors-encoding")
encoding.wire(file)
start.click(handler, [file, encoding.dropdown], …)          in the handler: as_named(path, encoding)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import LATEST
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.templates import macro
from training.data.reference import FileReference
from training.data.tables.columns import as_text
from training.data.tables.encodings import SPOKEN
from training.data.tables.lines import open_lines
from training.data.tables.table import Table, open_table
from training.errors import UserFacingError

# (what the picker says, the name of the codec); the first is the default
ENCODINGS = [("detected", ""), *((words, name) for name, words in sorted(SPOKEN.items(), key=lambda pair: pair[1]))]
DETECTED = ""
MOST_WORDS = 160  # characters of the file that are shown

Update = dict[Any, Any]  # component -> its new value


def encoding_dropdown(elem_id: str) -> gr.Dropdown:
    """The picker alone, hidden until there is a doubt."""
    return gr.Dropdown(
        ENCODINGS,
        value=DETECTED,
        label="Encoding",
        info="If words look wrong",
        visible=False,
        min_width=200,
        elem_id=elem_id,
    )


class Besides(Protocol):
    """Shows something of uploaded files besides their encoding."""

    outputs: list[Any]

    def show(self, files: str | Sequence[str] | None, encoding: str) -> Update:
        """New values of ``outputs``."""


class EncodingPicker:
    """The picker of an upload, and how the file was read. ``dropdown`` is an input of the page's own handlers."""

    def __init__(self, elem_id: str) -> None:
        """Build it inside the open Blocks."""
        self.read = gr.HTML(visible=False, elem_id=f"{elem_id}-read")
        self.dropdown = encoding_dropdown(elem_id)
        self.outputs = [self.read, self.dropdown]

    def wire(self, upload: Any, besides: Besides | None = None) -> None:
        """Describe what is uploaded, and how it reads in the encoding that is picked.

        Args:
            upload: a `gr.File` of one file or several.
            besides: shows more of the files, in the answers to the same events: Gradio has listeners of one event that
                wait for their turn call each other again and again (`events.EVERY`).
        """
        more = [] if besides is None else besides.outputs

        def uploaded(files: str | Sequence[str] | None) -> Update:
            return {**self.describe(files), **(besides.show(files, DETECTED) if besides else {})}

        def picked(files: str | Sequence[str] | None, encoding: str) -> Update:
            # The picker stays as it is: another encoding may have been picked meanwhile.
            read = self.describe(files, encoding)[self.read]
            return {self.read: read, **(besides.show(files, encoding) if besides else {})}

        gr.on([upload.upload, upload.clear], uploaded, upload, [*self.outputs, *more], **LATEST)
        self.dropdown.input(picked, [upload, self.dropdown], [self.read, *more], **LATEST)

    def describe(self, files: str | Sequence[str] | None, encoding: str = DETECTED) -> Update:
        """What the first doubtful file reads like, and the picker; both hidden where there is no doubt."""
        try:
            doubtful = doubtful_table(files, encoding)
            shown = how_it_reads(doubtful) if doubtful else ""
        except UserFacingError as error:
            return {self.read: gr.HTML(error_message(error), visible=True), self.dropdown: gr.Dropdown(value=encoding)}
        return {
            self.read: gr.HTML(shown, visible=bool(shown)),
            self.dropdown: gr.Dropdown(value=encoding, visible=bool(shown)),
        }


def doubtful_table(files: str | Sequence[str] | None, encoding: str = DETECTED) -> Table | None:
    """The first file that is not plainly UTF-8, read in ``encoding``; None if there is none.

    Raises:
        InputError: a file cannot be read.
    """
    paths = [files] if isinstance(files, str) else list(files or ())
    for path in paths:
        if not _open(path).is_plain:
            return _open(path, encoding or None)
    return None


def as_named(path: str, encoding: str) -> str:
    """The name of an upload for the loaders of data: with its encoding, if one was picked and the file is doubtful."""
    if not encoding or _open(path).is_plain:
        return path
    return str(FileReference(path, encoding))


def how_it_reads(table: Table) -> Markup:
    """The name of the file, how its characters were understood, and its first words beyond ASCII."""
    cells = (as_text(cell) or "" for batch in table.batches(1_000) for row in batch.rows.values() for cell in row)
    telling = next((text for text in islice(cells, 100_000) if not text.isascii()), "")
    remark = " ".join(table.remarks) or f"{table.description}."
    return macro("file_reading")(table.path.name, remark, " ".join(telling.split())[:MOST_WORDS])


def _open(path: str, encoding: str | None = None) -> Table:
    if Path(path).suffix.lower() == ".txt":
        return Table(Path(path), open_lines(Path(path), encoding))
    return open_table(path, encoding)
