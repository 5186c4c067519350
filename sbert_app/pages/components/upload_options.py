"""Builds the pickers of an upload: its encoding, its sheet, and the columns of its sentences and scores or labels.

    file = gr.File(…)
    options = UploadOptions(services, file, "errors")
    start.click(handler, [file, *options.inputs], …)

    def handler(path, *options): name = chosen_name(services, path, *options)

The picker of encodings is visible if a text file is not plainly UTF-8, with words from the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_count
from sbert_app.pages.components.events import EVERY, LATEST, Update, on_choice
from sbert_app.pages.components.messages import error_message, waiting
from sbert_app.pages.components.templates import macro
from sbert_app.services.container import Services
from sbert_app.services.files.doctor import EXAMPLES, clean, examine
from sbert_app.services.files.layout import suffix_like
from training.catalogue import DEFAULT_MODEL
from training.data.gold import parse_reading
from training.data.load import load_data
from training.data.tables.cells import as_text
from training.data.tables.columns import listed
from training.data.tables.reading import (
    FORMS,
    LABEL,
    NO_JUDGEMENT,
    RATING,
    SCORE,
    TEXTS,
    Column,
    TableReading,
    requested_columns,
)
from training.data.tables.rows import OpenedTable, file_version
from training.data.tables.table import open_table
from training.data.tables.text import SPOKEN, UnknownEncodingError
from training.data.tables.workbook import UnknownSheetError
from training.errors import InputError, UserFacingError
from training.models.model import VectorModel
from training.names import DataName

# The number of uploads that stay open.
MOST_OPENED = 16
# The suffix of the id of each column picker, and its label.
COLUMNS = {"1": "Sentence 1", "2": "Sentence 2", "target": "Score or label"}
NONE = ""
CHOOSE = "choose a column"
# The roles that the pickers show.
READ = (*TEXTS, SCORE, LABEL, RATING)


class ColumnPicker:
    """The controls below an upload, hidden until there is a file: the sheet of a workbook, the roles of columns, and
    the scale of the scores or the values of the labels.

    ``inputs``, the sheet, the columns and the scale, are inputs of the handlers of the page.
    """

    def __init__(self, elem_id: str) -> None:
        """Builds the row inside the open Blocks; the ids are ``elem_id`` and -sheet, -1, -2, -target and -read-as."""
        with gr.Row(visible=False, elem_id=elem_id) as self.row:
            self.sheet = gr.Dropdown(label="Sheet", visible=False, min_width=200, elem_id=f"{elem_id}-sheet")
            self.columns = [
                gr.Dropdown(label=label, min_width=200, elem_id=f"{elem_id}-{end}") for end, label in COLUMNS.items()
            ]
            label = "Read scores or labels as"
            example = "as they are; or 1-7; or yes:1, no:0"
            self.read_as = gr.Textbox(
                "",
                label=label,
                placeholder=example,
                max_lines=1,
                min_width=200,
                visible=False,
                elem_id=f"{elem_id}-read-as",
            )
        self.inputs = [self.sheet, *self.columns, self.read_as]
        self.outputs = [self.row, *self.inputs]
        target = self.columns[-1]
        target.change(lambda name: gr.update(visible=bool(name)), target, self.read_as, **EVERY)

    def show(self, files: str | Sequence[str] | None, encoding: str = "", sheet: str | None = None) -> Update:
        """Shows the columns of the first file; those that names or contents suggest are selected."""
        try:
            paths = _paths(files)
            return self.of(open_upload(paths[0], encoding, sheet) if paths else None)
        except UserFacingError:
            # The page shows the error where it uses the file.
            return self.of(None)

    def of(self, table: OpenedTable | None, reading: TableReading | None = None) -> Update:
        """The update for a table, with the columns of the ``reading`` or its own selected; hidden without a table."""
        if table is None:
            # Gradio takes the value out of an update, so that one for all would empty the first alone.
            return {self.row: gr.update(visible=False), **{part: gr.update(value=None) for part in self.inputs}}
        reading = reading or table.reading
        names = [(_with_evidence(column), column.name) for column in reading.columns]
        are_triplets = reading.form == FORMS[0]
        sentences = () if are_triplets else reading.sentences
        values = [*[*sentences, None, None][:2], None if are_triplets else reading.target]
        first = ", ".join(FORMS[0]) if are_triplets else CHOOSE
        sheets = list(table.sheets)
        # A doubt leaves the choice to the user, who may also say that there is no judgement.
        target = "which?" if reading.doubts and sentences else "none"
        pickers = zip(self.columns, (first, "none", target), values, strict=True)
        names += [("none of them", NO_JUDGEMENT)] if target != "none" else []
        return {
            self.row: gr.update(visible=True),
            self.sheet: gr.update(choices=sheets, value=table.sheet or None, visible=len(sheets) > 1),
            **{picker: gr.update(choices=[(none, NONE), *names], value=name or NONE) for picker, none, name in pickers},
            self.read_as: gr.update(value="", visible=bool(values[-1])),
        }


def _with_evidence(column: Column) -> str:
    is_by_cells = column.is_by_cells and column.role in READ
    return f"{column.name} ({column.evidence})" if is_by_cells else column.name


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
        elem_id=elem_id,
        label="Encoding",
        info="If words look wrong",
        visible=False,
        min_width=200,
    )


class FileDoctor:
    """The fold with the faults of a file and the file without them, which is examined when the fold is opened."""

    def __init__(self, services: Services, prefix: str) -> None:
        """Builds the hidden fold inside the open Blocks; the ids of its parts begin with ``prefix``."""
        self.services = services
        with gr.Accordion("What is in this file?", open=False, visible=False, elem_id=f"{prefix}-doctor") as self.fold:
            self.findings = gr.HTML(elem_id=f"{prefix}-findings")
            self.download = gr.DownloadButton(visible=False, size="sm", elem_id=f"{prefix}-clean")
        self.outputs = [self.fold, self.findings, self.download]

    def wire(self, file: Any, pickers: Sequence[Any]) -> None:
        """Takes the file from an upload or a state, and how it is read from the encoding, the sheet and the columns."""
        self.fold.expand(self.diagnose, [file, *pickers], [self.findings, self.download], **LATEST)
        # Another encoding or sheet is described anew.
        _, _, *columns = pickers
        gr.on([column.input for column in columns], lambda: self.offered(), None, self.outputs, **EVERY)

    def offered(self, is_visible: bool = True) -> Update:
        """The closed fold of another file."""
        hidden = gr.update(visible=False)
        return {self.fold: gr.update(visible=is_visible, open=False), self.findings: "", self.download: hidden}

    def diagnose(self, files: str | Sequence[str] | OpenedTable | None, *how: str) -> Iterator[Update]:
        """Lists the faults of the first file, and offers the file without the rows at fault."""
        paths = [str(files.path)] if isinstance(files, OpenedTable) else _paths(files)
        if not paths:
            return
        yield {self.findings: waiting("Reading the file …")}
        try:
            data = load_data(chosen_name(self.services, paths[0], *how), self.services.settings.home)
            findings = examine(data, self.services.models.get(DEFAULT_MODEL, VectorModel))
            download = gr.update(visible=False)
            if any(finding.is_left_out for finding in findings):
                table = open_upload(paths[0], *how[:2])
                folder = self.services.temp.new_folder("exports")
                output = folder / f"{Path(paths[0]).stem}-clean{suffix_like(table)}"
                rows = format_count(clean(table, output, data, findings), "row")
                download = gr.update(value=str(output), label=f"Download the {rows} without fault", visible=True)
        except UserFacingError as error:
            yield {self.findings: error_message(error)}
            return
        texts = dict(zip(data.rows, map("  |  ".join, zip(*data.columns, strict=True)), strict=True))
        examples = [(finding, [(row, texts[row]) for row in finding.rows[:EXAMPLES]]) for finding in findings]
        yield {self.findings: macro("file_findings")(data, examples), self.download: download}


class UploadOptions:
    """The pickers of an upload: its encoding, its sheet and its columns. ``inputs`` belong to the page's handlers.

    Below them a fold tells what is wrong with its rows.
    """

    def __init__(self, services: Services, upload: Any, prefix: str) -> None:
        """Builds and wires the pickers inside the open Blocks; their ids begin with ``prefix``."""
        self.read = gr.HTML(visible=False, elem_id=f"{prefix}-encoding-read")
        self.encoding = encoding_dropdown(f"{prefix}-encoding")
        self.columns = ColumnPicker(f"{prefix}-columns")
        self.inputs = [self.encoding, *self.columns.inputs]
        self.doctor = FileDoctor(services, prefix)
        self.doctor.wire(upload, self.inputs)
        self.outputs = [self.read, self.encoding, *self.columns.outputs, *self.doctor.outputs]
        gr.on([upload.upload, upload.clear], self.describe, upload, self.outputs, **LATEST)
        sheet = self.columns.sheet
        read = [upload, self.encoding]
        on_choice(self.encoding, self.describe, read, self.outputs)
        on_choice(sheet, self.columns.show, [*read, sheet], self.columns.outputs)

    def describe(self, files: str | Sequence[str] | None, encoding: str = DETECTED) -> Update:
        """Shows words of the first doubtful file with the picker of encodings, and the columns of the first file."""
        first = None
        doubtful = None
        try:
            for path in _paths(files):
                table = open_upload(path, encoding)
                first = first or table
                doubtful = None if table.is_plain else table
                if doubtful:
                    break
            words, in_doubt = (how_it_reads(doubtful), True) if doubtful else ("", False)
        except UserFacingError as error:
            words = error_message(error)
            in_doubt = bool(encoding) or isinstance(error, UnknownEncodingError)
        return {
            self.read: gr.HTML(words, visible=bool(words)),
            self.encoding: gr.Dropdown(value=encoding, visible=in_doubt),
            **self.columns.of(first),
            **self.doctor.offered(first is not None),
        }


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
    """The name of an upload for the loaders of data, with its encoding and its sheet.

    ``names`` are its two sentences, its target, and the scale or the labels of that. InputError if the path is no
    upload of this app, or they do not fit.
    """
    services.access.check_data(path)
    table = open_upload(path, encoding, sheet)
    first, second, target, read_as = (name or None for name in (*names, *[None] * (4 - len(names))))
    scale, labels = parse_reading(read_as)
    own_sheet = None if table.is_default_sheet else table.sheet
    own_encoding = encoding if encoding and not table.is_plain else None
    name = DataName(path, own_encoding, scale=scale, labels=labels, sheet=own_sheet)
    named = [column for column in (first, second, target) if column]
    if not set(named) <= {*table.columns, NO_JUDGEMENT}:
        # This is another of several files, and its columns are found by themselves.
        return str(name)
    reading = table.reading
    if first is None and (named or not reading.sentences):
        has = f"{table.path.name} has {listed(table.columns)}"
        raise InputError(f"choose the column of sentence 1, below the file: {has}")
    is_as_read = (first, second) == (*reading.sentences, None)[:2] and target == reading.target
    if first is None or is_as_read:
        return str(name)
    if second and not target and not reading.doubts:
        named.append(NO_JUDGEMENT)
    columns = ",".join(column.replace(",", "\\,") for column in named)
    # What cannot be is an error now, and not when a run begins.
    reading.with_columns(requested_columns(columns, reading))
    return str(replace(name, columns=columns))
