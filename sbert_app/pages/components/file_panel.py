"""The panel of an uploaded file: its first rows with the role of each column, what is doubtful, where else it can go.

    upload = gr.File(…)
    panel = FilePanel(services, upload, "errors")
    panel.hold([start])
    start.click(handler, [upload, *panel.inputs], …)

    def handler(path, *choices): name = chosen_name(services, path, *choices)

Every page reads a file in the same way (`training.data.tables.reading`) and shows it by this panel. A click on the head
of a column changes its role. While the file is being uploaded and read, the controls that depend on it are off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_count
from sbert_app.pages.components.events import EVERY, LATEST, Update, on_choice
from sbert_app.pages.components.messages import error_message, sentence_case, waiting
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.container import Services
from sbert_app.services.files.doctor import EXAMPLES, Finding, clean, examine
from sbert_app.services.files.layout import suffix_like
from sbert_app.services.files.taken import TakenFile
from sbert_app.services.files.writers import cell_text
from training.catalogue import DEFAULT_MODEL, read_asset
from training.data.dataset import NOT_READ
from training.data.gold import parse_reading
from training.data.load import load_data
from training.data.tables.cells import as_text
from training.data.tables.columns import listed
from training.data.tables.reading import (
    FORMS,
    LABEL,
    NO_JUDGEMENT,
    SCORE,
    TEXTS,
    UNUSED,
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
# The faults of the rows are looked for at once in a table of at most so many.
MOST_EXAMINED = 20_000
SHOWN_ROWS = 4
SHOWN_COLUMNS = 12
LONGEST_CELL = 200
# The roles that a person can give a column; the suffix of the id of the field that holds its name.
TARGET = "target"
CHOICES = {"1": "sentence 1", "2": "sentence 2", TARGET: "score or label"}

# (label, name of the codec); the first is the default.
ENCODINGS = [("detected", ""), *((words, name) for name, words in sorted(SPOKEN.items(), key=lambda pair: pair[1]))]
DETECTED = ""
# The number of characters that are quoted from a file.
MOST_WORDS = 160
_versions = count()


class Place(NamedTuple):
    """A place that a file can be taken to: the page, a tab of it, and what it does with the file."""

    page: str
    tab: str
    purpose: str


BULK = Place("bulk", "", "Score its pairs")
MAP = Place("explore", "", "Map it")
DUPLICATES = Place("explore", "pairs", "Find duplicates")
THRESHOLD = Place("evaluate", "threshold", "Choose a threshold")
LABELLING = Place("label", "", "Label it")
TRAINING = Place("train", "", "Fine-tune on it")


def places(reading: TableReading) -> list[Place]:
    """The places that can use a file with this reading."""
    if not reading.sentences:
        return []
    are_pairs = len(reading.sentences) == 2
    on_pairs = [BULK, *([THRESHOLD] if reading.target else [])] if are_pairs else []
    listed_places = [*on_pairs, MAP, DUPLICATES, TRAINING]
    return listed_places if reading.form == FORMS[0] else [*listed_places, LABELLING]


# The columns of sentence 1, of sentence 2 and of the judgement; "" without one. All are "" where the reading decides.
Chosen = tuple[str, str, str]


def columns_of(reading: TableReading) -> Chosen:
    """The columns of a reading; those of triplets cannot be named so."""
    if reading.form == FORMS[0]:
        return "", "", ""
    first, second, *_ = *reading.sentences, "", ""
    return first, second, reading.target or ""


def with_role(columns: Chosen, column: str, role: str) -> Chosen:
    """The columns after ``column`` has got another role, one of `CHOICES` or `UNUSED`; two columns may swap theirs."""
    by_role = dict(zip(CHOICES, columns, strict=True))
    before = next((end for end, name in by_role.items() if name == column), None)
    if role in by_role:
        other = by_role[role]
        by_role[role] = column
        if before:
            by_role[before] = "" if other == NO_JUDGEMENT else other
    elif before:
        by_role[before] = NO_JUDGEMENT if before == TARGET else ""
    first, second, target = by_role.values()
    return (first, second, target) if first else (second, "", target)


def read_by(table: OpenedTable, columns: Chosen) -> TableReading:
    """The reading of a table with the columns that a person has chosen, or its own."""
    if not columns[0] or columns == columns_of(table.reading):
        return table.reading
    return table.reading.with_columns(_requested(*columns))


def _requested(first: str | None, second: str | None, target: str | None) -> list[str]:
    """The columns as ``?columns=`` lists them, without empty ones at the end."""
    if target:
        return [first or "", second or "", target]
    return [name for name in (first, second) if name]


class FilePanel:
    """The panel below an upload, empty until there is a file.

    ``inputs``, the encoding, the sheet, the three columns and the scale, are inputs of the handlers of the page.
    """

    def __init__(
        self, services: Services, upload: Any, prefix: str, page: str = "evaluate", state: gr.State | None = None
    ) -> None:
        """Builds and wires the panel inside the open Blocks; the ids of its parts begin with ``prefix``.

        ``page`` is the name of the page that it stands on. A page that copies its uploads has a ``state`` of the path
        or the table that it uses, and calls `of` itself.
        """
        self.services = services
        self.upload = upload
        self.page = page
        name = f"{prefix}-columns"
        self.table = gr.HTML(elem_id=f"{prefix}-panel")
        self.columns = [gr.Textbox("", visible="hidden", elem_id=f"{name}-{end}") for end in CHOICES]
        with gr.Row(elem_classes="file-choices"):
            self.sheet = gr.Dropdown(label="Sheet", visible=False, min_width=200, elem_id=f"{name}-sheet")
            self.encoding = encoding_dropdown(f"{prefix}-encoding")
            self.read_as = gr.Textbox(
                "",
                label="Read scores or labels as",
                placeholder="as they are; or 1-7; or yes:1, no:0",
                max_lines=1,
                min_width=200,
                visible=False,
                elem_id=f"{name}-read-as",
            )
        self.doctor = FileDoctor(services, prefix)
        self.inputs = [self.encoding, self.sheet, *self.columns, self.read_as]
        self.outputs = [self.table, *self.inputs, *self.doctor.outputs]
        file = upload if state is None else state
        inputs = [file, *self.inputs]
        outputs = [self.table, *self.columns, self.read_as, *self.doctor.outputs]
        self.hold([])
        # The event after which a person has given a column another role, or labels their values.
        self.role_event = self.table.role(self.choose, inputs, outputs, **EVERY)
        gr.on([self.read_as.submit, self.read_as.blur], self.read_anew, inputs, [self.table], **EVERY)
        self.doctor.wire(file, self.inputs)
        if state is None:
            gr.on([upload.upload, upload.clear], self.describe, upload, self.outputs, **LATEST)
            for picker in (self.encoding, self.sheet):
                on_choice(picker, self.describe, [upload, self.encoding, self.sheet], self.outputs)

    def hold(self, components: Sequence[Any]) -> None:
        """Switches ``components`` off from the first byte of an upload until the panel has read it."""
        ids = {"UPLOAD": self.upload.elem_id, "HELD": [component.elem_id for component in components]}
        names = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in ids.items())
        self.table.js_on_load = names + read_asset("file-panel.js")

    def describe(self, files: str | Sequence[str] | None, encoding: str = DETECTED, sheet: str | None = None) -> Update:
        """Shows the first file of an upload, and of several the first whose encoding is in doubt."""
        try:
            tables = [open_upload(path, encoding, sheet) for path in _paths(files)]
        except UserFacingError as error:
            in_doubt = bool(encoding) or isinstance(error, UnknownEncodingError)
            return {
                **self.of(None),
                self.table: _versioned(error_message(error)),
                self.encoding: gr.update(value=encoding, visible=in_doubt),
            }
        table = next((table for table in tables if not table.is_plain), next(iter(tables), None))
        return self.of(table, encoding=encoding)

    def of(
        self,
        table: OpenedTable | None,
        columns: Chosen | None = None,
        encoding: str = DETECTED,
        read_as: str = "",
        is_open: bool = True,
        remark: str = "",
    ) -> Update:
        """The update for a table, with these columns or those of its own reading; empty without a table.

        Args:
            read_as: the scale of the scores or the values of the labels, as a person has typed them.
            is_open: whether the first rows are shown, or folded.
            remark: a sentence about the file.
        """
        if table is None:
            # Gradio takes the value out of an update, so that one for all would empty the first alone.
            hidden = {part: gr.update(value="", visible=False) for part in (self.encoding, self.read_as)}
            sheet = gr.update(value=None, visible=False)
            empty = dict.fromkeys(self.columns, "")
            return {self.table: _versioned(""), **hidden, self.sheet: sheet, **empty, **self.doctor.offered(False)}
        columns = columns or columns_of(table.reading)
        sheets = list(table.sheets)
        return {
            self.encoding: gr.update(value=encoding, visible=bool(encoding) or not table.is_plain),
            self.sheet: gr.update(choices=sheets, value=table.sheet or None, visible=len(sheets) > 1),
            **self._of_columns(table, columns, encoding, read_as, is_open, remark),
            self.read_as: gr.update(value=read_as, visible=_has_target(columns) and self._is_upload(table)),
        }

    def choose(
        self,
        files: str | Sequence[str] | OpenedTable | None,
        encoding: str,
        sheet: str | None,
        first: str,
        second: str,
        target: str,
        read_as: str,
        event: gr.EventData,
    ) -> Update:
        """Gives a column another role, or the labels of the judgement their values."""
        table = _table(files, encoding, sheet)
        if table is None:
            return {self.table: gr.skip()}
        columns = (first, second, target)
        if not any(columns):
            columns = columns_of(table.reading)
        if event.labels:
            read_as = str(event.labels)
        else:
            columns = with_role(columns, str(event.column), str(event.role))
        return {
            **self._of_columns(table, columns, encoding, read_as),
            self.read_as: gr.update(value=read_as, visible=_has_target(columns)),
        }

    def read_anew(
        self,
        files: str | Sequence[str] | OpenedTable | None,
        encoding: str,
        sheet: str | None,
        first: str,
        second: str,
        target: str,
        read_as: str,
    ) -> Update:
        """Shows the panel for the scale or the values of labels that a person has typed."""
        table = _table(files, encoding, sheet)
        if table is None:
            return {self.table: gr.skip()}
        return {self.table: self._panel(table, (first, second, target), encoding, read_as)}

    def take(self, request: gr.Request) -> Update:
        """Shows the file that another page has sent, which the address names; changes nothing without one."""
        token = request.query_params.get("file")
        if not token:
            return {self.table: gr.skip()}
        try:
            file = self.services.taken.get(token)
            self.services.access.check_data(file.path)
            table = open_upload(file.path, file.encoding, file.sheet)
        except UserFacingError as error:
            return {**self.of(None), self.table: _versioned(error_message(error))}
        first, second, target = file.columns
        return {self.upload: file.path, **self.of(table, (first, second, target), file.encoding, file.read_as)}

    def _of_columns(
        self,
        table: OpenedTable,
        columns: Chosen,
        encoding: str,
        read_as: str,
        is_open: bool = True,
        remark: str = "",
    ) -> Update:
        """The update of what depends on the columns."""
        return {
            self.table: self._panel(table, columns, encoding, read_as, is_open, remark),
            **dict(zip(self.columns, columns, strict=True)),
            **self.doctor.offered(self._is_upload(table)),
        }

    def _is_upload(self, table: OpenedTable) -> bool:
        """Whether a table is a visitor's; the example of a page is not."""
        try:
            self.services.access.check_data(str(table.path))
        except InputError:
            return False
        return True

    def _panel(
        self,
        table: OpenedTable,
        columns: Chosen,
        encoding: str,
        read_as: str,
        is_open: bool = True,
        remark: str = "",
    ) -> Markup:
        problem = Markup()
        unclear_as_no = ""
        lines = [*([remark + "."] if remark else []), *table.remarks]
        findings: list[Finding] = []
        reading = table.reading
        try:
            reading = read_by(table, columns)
            lines += reading.notes
            asks = any(not doubt.is_possible_only for doubt in reading.doubts)
            is_small = table.row_estimate <= MOST_EXAMINED
            if reading.sentences and not asks and is_small and self._is_upload(table):
                name = chosen_name(self.services, str(table.path), encoding, table.sheet, *columns, read_as)
                data = load_data(name, self.services.settings.home)
                unclear_as_no = data.unclear_as_no
                # The heads say which columns are not used.
                new = [note for note in data.notes if note not in lines and not note.startswith(NOT_READ)]
                lines += [sentence_case(note.removesuffix(".")) + "." for note in new]
                findings = examine(data)
        except UserFacingError as error:
            problem = error_message(error)
        # Only training takes pairs without a judgement for matches.
        doubts = [doubt for doubt in reading.doubts if self.page == "train" or not doubt.is_possible_only]
        questions = [
            (doubt.question, [(name, reading.examples(name)) for name in doubt.candidates]) for doubt in doubts
        ]
        return _versioned(
            render(
                "components/templates/file_panel.html",
                problem=problem,
                name=table.path.name,
                facts=[table.description, format_count(table.row_estimate, "row")],
                words=_words(table),
                lines=lines,
                findings=findings,
                unclear_as_no=unclear_as_no,
                questions=questions,
                columns=_heads(reading, columns),
                rows=_shown_rows(table),
                hidden=max(0, len(table.columns) - SHOWN_COLUMNS),
                is_open=is_open,
                places=self._links(table, reading, columns, encoding, read_as),
            )
        )

    def _links(
        self, table: OpenedTable, reading: TableReading, columns: Chosen, encoding: str, read_as: str
    ) -> list[tuple[str, str]]:
        """The addresses of the other pages with this file, and what they do with it."""
        others = [place for place in places(reading) if place.page != self.page]
        if not others or not self._is_upload(table):
            return []
        token = self.services.taken.put(TakenFile(str(table.path), encoding, table.sheet, columns, read_as))
        queries = ({"file": token} | ({"tab": place.tab} if place.tab else {}) for place in others)
        return [
            (f"{place.page}?{urlencode(query)}", place.purpose) for place, query in zip(others, queries, strict=True)
        ]


def _has_target(columns: Chosen) -> bool:
    return columns[-1] not in ("", NO_JUDGEMENT)


def _versioned(html: Markup | str) -> Markup:
    """The panel with a number, by which the page knows that its file has been read."""
    return macro("versioned")(html, next(_versions))


class _Head(NamedTuple):
    """The head of a column: its name and role, the evidence for that, and the roles that it can have, with words."""

    name: str
    role: str
    evidence: str
    roles: list[tuple[str, str]]


def _heads(reading: TableReading, columns: Chosen) -> list[_Head]:
    """The heads of the first columns."""
    by_name = {name: end for end, name in zip(CHOICES, columns, strict=True) if name}
    own = (*TEXTS, SCORE, LABEL) if columns[0] else ()
    heads = []
    for column in reading.columns[:SHOWN_COLUMNS]:
        role = by_name.get(column.name) or (UNUSED if column.role in own else column.role)
        others = [] if role in (*CHOICES, UNUSED) else [(role, role)]
        evidence = column.evidence if column.is_by_cells else ""
        heads.append(_Head(column.name, role, evidence, [*others, *CHOICES.items(), (UNUSED, "not used")]))
    return heads


def _shown_rows(table: OpenedTable) -> list[list[str]]:
    rows = table.preview(SHOWN_ROWS).rows
    cells = [list(map(cell_text, rows[name])) for name in table.columns[:SHOWN_COLUMNS]]
    return [[text[:LONGEST_CELL] for text in row] for row in zip(*cells, strict=True)]


def _words(table: OpenedTable) -> str:
    """The first words beyond ASCII of a file whose encoding is in doubt."""
    if table.is_plain:
        return ""
    cells = (as_text(cell) or "" for batch in table.batches(1_000) for row in batch.rows.values() for cell in row)
    sample = next((text for text in islice(cells, 100_000) if not text.isascii()), "")
    return " ".join(sample.split())[:MOST_WORDS]


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
        title = "Which rows, and a file without them"
        with gr.Accordion(title, open=False, visible=False, elem_id=f"{prefix}-doctor") as self.fold:
            self.findings = gr.HTML(elem_id=f"{prefix}-findings")
            self.download = gr.DownloadButton(visible=False, size="sm", elem_id=f"{prefix}-clean")
        self.outputs = [self.fold, self.findings, self.download]

    def wire(self, file: Any, choices: Sequence[Any]) -> None:
        """Takes the file from an upload or a state, and how it is read from the inputs of the panel."""
        self.fold.expand(self.diagnose, [file, *choices], [self.findings, self.download], **LATEST)

    def offered(self, is_visible: bool = True) -> Update:
        """The closed fold of another file."""
        hidden = gr.update(visible=False)
        return {self.fold: gr.update(visible=is_visible, open=False), self.findings: "", self.download: hidden}

    def diagnose(self, files: str | Sequence[str] | OpenedTable | None, *how: str) -> Iterator[Update]:
        """Lists the faults of the first file, and offers the file without the rows at fault."""
        encoding, sheet, *_ = how
        yield {self.findings: waiting("Reading the file …")}
        try:
            table = _table(files, encoding, sheet)
            if table is None:
                return
            data = load_data(chosen_name(self.services, str(table.path), *how), self.services.settings.home)
            findings = examine(data, self.services.models.get(DEFAULT_MODEL, VectorModel))
            download = gr.update(visible=False)
            if any(finding.is_left_out for finding in findings):
                folder = self.services.temp.new_folder("exports")
                output = folder / f"{table.path.stem}-clean{suffix_like(table)}"
                rows = format_count(clean(table, output, data, findings), "row")
                download = gr.update(value=str(output), label=f"Download the {rows} without fault", visible=True)
        except UserFacingError as error:
            yield {self.findings: error_message(error)}
            return
        texts = dict(zip(data.rows, map("  |  ".join, zip(*data.columns, strict=True)), strict=True))
        examples = [(finding, [(row, texts[row]) for row in finding.rows[:EXAMPLES]]) for finding in findings]
        yield {self.findings: macro("file_findings")(data, examples), self.download: download}


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


def _table(files: str | Sequence[str] | OpenedTable | None, encoding: str, sheet: str | None) -> OpenedTable | None:
    """The table that the panel shows: a state, or the first file of an upload."""
    if isinstance(files, OpenedTable):
        return files
    paths = _paths(files)
    return open_upload(paths[0], encoding, sheet) if paths else None


def _paths(files: str | Sequence[str] | None) -> list[str]:
    return [files] if isinstance(files, str) else list(files or ())


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
    named = _requested(first, second, target)
    if not set(filter(None, named)) <= {*table.columns, NO_JUDGEMENT}:
        # This is another of several files, and its columns are found by themselves.
        return str(name)
    reading = table.reading
    if first is None and (named or not reading.sentences):
        has = f"{table.path.name} has {listed(table.columns)}"
        raise InputError(f"choose the column of sentence 1, in the head of the table: {has}")
    is_as_read = (first, second) == (*reading.sentences, None)[:2] and target == reading.target
    if first is None or is_as_read:
        return str(name)
    if second and not target and not reading.doubts:
        named = _requested(first, second, NO_JUDGEMENT)
    columns = ",".join(column.replace(",", "\\,") for column in named)
    # What cannot be is an error now, and not when a run begins.
    reading.with_columns(requested_columns(columns, reading))
    return str(replace(name, columns=columns))
