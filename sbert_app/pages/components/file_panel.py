"""The panel of an uploaded file: its first rows with the role of each column, doubts, and pages that can use it.

    upload = gr.File(…)
    panel = FilePanel(services, upload, "errors")
    panel.hold([start])
    start.click(handler, [upload, *panel.inputs], …)

    def handler(path, *choices): name = chosen_name(services, path, *choices)

Every page reads a file in the same way (`training.data.tables.reading`) and shows it in this panel.
A menu in the head of a column changes its role. Controls that depend on the file are disabled while
it is being uploaded and read.
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
from sbert_app.pages.components.events import Update, event_options, on_choice
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
# A file with more rows than this is searched for faults only after a click.
MOST_EXAMINED = 20_000
SHOWN_ROWS = 4
SHOWN_COLUMNS = 12
LONGEST_CELL = 200
# The roles that a person can give a column. The keys are also the ends of the element ids of the
# hidden fields that hold the columns.
TARGET = "target"
CHOICES = {"1": "sentence 1", "2": "sentence 2", TARGET: "score or label"}

# The value of an upload, or of a state with a table.
Files = str | Sequence[str] | OpenedTable | None
DETECTED = ""
# (label, name of the codec); the first is the default.
ENCODINGS = [("detected", DETECTED), *sorted((words, name) for name, words in SPOKEN.items())]
# The maximum length of a quotation from a file, in characters, and the number of cells that are
# searched for it.
LONGEST_QUOTATION = 160
MOST_SEARCHED_CELLS = 100_000
# The numbers of the panels that have been sent; see `_versioned`.
_versions = count()


class Place(NamedTuple):
    """A page, or a tab of it, that can use a file, and what it does with the file."""

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
    """Returns the places that can use a file with this reading."""
    if not reading.sentences:
        return []
    usable = []
    if len(reading.sentences) == 2:
        usable.append(BULK)
        if reading.target:
            usable.append(THRESHOLD)
    usable += [MAP, DUPLICATES, TRAINING]
    if not is_triplets(reading):
        usable.append(LABELLING)
    return usable


def is_triplets(reading: TableReading) -> bool:
    """Whether the sentences are triplets, whose columns a person cannot choose."""
    return len(reading.sentences) == 3


def has_question(reading: TableReading) -> bool:
    """Whether a doubt about the columns must be settled before the pairs can be scored."""
    # The other doubts are about a possible judgement, which only training on matches has to know.
    return any(not doubt.is_possible_only for doubt in reading.doubts)


# The columns of sentence 1, sentence 2 and the judgement; "" without one. All are "" if the reading
# decides. The last is `NO_JUDGEMENT` if a person has said that there is none.
Chosen = tuple[str, str, str]


def columns_of(reading: TableReading) -> Chosen:
    """Returns the columns of a reading; all are "" for triplets."""
    if is_triplets(reading):
        # A person cannot choose them, so the reading decides.
        return "", "", ""
    # There are two sentences at most.
    first, second = [*reading.sentences, "", ""][:2]
    return first, second, reading.target or ""


def with_role(columns: Chosen, column: str, role: str) -> Chosen:
    """Returns the columns after ``column`` gets another role. Two columns may swap their roles.

    Args:
        column: a column of the table, or `NO_JUDGEMENT` with the role `TARGET` for "none of them".
        role: a key of `CHOICES`, or `UNUSED`.
    """
    by_role = dict(zip(CHOICES, columns, strict=True))
    if by_role.get(role) == column:
        # Such as a second "none of them".
        return columns
    old_role = next((key for key, name in by_role.items() if name == column), None)
    if role in by_role:
        last_column = by_role[role]
        by_role[role] = column
        if old_role:
            # The column that had this role until now takes the old role. `NO_JUDGEMENT` is not a
            # column.
            by_role[old_role] = "" if last_column == NO_JUDGEMENT else last_column
    elif old_role:
        # The column is not used any more. Without a judgement, the reading would look for one,
        # unless `NO_JUDGEMENT` says that there is none.
        by_role[old_role] = NO_JUDGEMENT if old_role == TARGET else ""
    first, second, target = by_role.values()
    # A single sentence is sentence 1.
    return (first, second, target) if first else (second, "", target)


def read_by(table: OpenedTable, columns: Chosen) -> TableReading:
    """Returns the reading of a table with the columns that a person has chosen; without a choice, the table's own."""
    # Without sentence 1, nothing is chosen yet, or not enough.
    if not columns[0] or columns == columns_of(table.reading):
        return table.reading
    return table.reading.with_columns(_requested(*columns))


def _requested(first: str | None, second: str | None, target: str | None) -> list[str]:
    """Returns the columns for ``?columns=`` in the name of a data set, without empty ones at the end."""
    if target:
        # The judgement is always the third, so the columns before it are kept even if empty.
        return [first or "", second or "", target]
    return [name for name in (first, second) if name]


class FilePanel:
    """The panel below an upload. It is empty until there is a file.

    Attributes:
        doctor: the fold with the faults of the file.
        inputs: the encoding, the sheet, the three columns and the scale, for the handlers of the
            page.
        outputs: the components that `of` updates.
        role_event: the event after a person has given a column another role, or has said what the
            labels mean.
    """

    def __init__(
        self,
        services: Services,
        upload: Any,
        prefix: str,
        page: str = "evaluate",
        state: gr.State | None = None,
    ) -> None:
        """Builds and wires the panel inside the open Blocks.

        Args:
            prefix: the beginning of the element ids.
            page: the name of the page, which is left out of the links.
            state: a state with a path or a table, in place of the upload, for a page that copies its
                uploads. Such a page calls `of` itself.
        """
        self.services = services
        self.upload = upload
        self.page = page
        # The beginning of the ids of the fields that say how the columns are read.
        id_prefix = f"{prefix}-columns"
        self.table = gr.HTML(elem_id=f"{prefix}-panel")
        self.columns = [
            gr.Textbox("", visible="hidden", elem_id=f"{id_prefix}-{end}") for end in CHOICES
        ]
        with gr.Row(elem_classes="file-choices"):
            self.sheet = gr.Dropdown(
                label="Sheet", visible=False, min_width=200, elem_id=f"{id_prefix}-sheet"
            )
            # Hidden until the encoding is in doubt.
            self.encoding = gr.Dropdown(
                ENCODINGS,
                value=DETECTED,
                label="Encoding",
                info="If words look wrong",
                visible=False,
                min_width=200,
                elem_id=f"{prefix}-encoding",
            )
            self.read_as = gr.Textbox(
                "",
                label="Read scores or labels as",
                placeholder="as they are; or 1-7; or yes:1, no:0",
                max_lines=1,
                min_width=200,
                visible=False,
                elem_id=f"{id_prefix}-read-as",
            )
        self.doctor = FileDoctor(services, prefix)
        self.inputs = [self.encoding, self.sheet, *self.columns, self.read_as]
        self.outputs = [self.table, *self.inputs, *self.doctor.outputs]
        self._wire(upload if state is None else state)

    def _wire(self, file: Any) -> None:
        """Connects the components with ``file``: the upload, or the state of a page that calls `of` itself."""
        inputs = [file, *self.inputs]
        outputs = [self.table, *self.columns, self.read_as, *self.doctor.outputs]
        # Sets the script of the panel, even if the page does not call `hold`. The event ``role``
        # below exists only once the script, which contains its name, has been set.
        self.hold([])
        self.role_event = self.table.role(
            self.choose, inputs, outputs, **event_options(queue=False, trigger_mode="multiple")
        )
        gr.on(
            [self.read_as.submit, self.read_as.blur],
            self.read_anew,
            inputs,
            self.table,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        self.doctor.wire(file, self.inputs)
        # A page with a state calls `of` itself at these events.
        if file is self.upload:
            gr.on(
                [file.upload, file.clear],
                self.describe,
                file,
                self.outputs,
                **event_options(trigger_mode="always_last"),
            )
            for picker in (self.encoding, self.sheet):
                on_choice(picker, self.describe, [file, self.encoding, self.sheet], self.outputs)

    def hold(self, components: Sequence[Any]) -> None:
        """Disables ``components`` from the first byte of an upload until the panel has read it.

        A later call replaces the components of an earlier one.
        """
        upload = json.dumps(self.upload.elem_id)
        ids = json.dumps([component.elem_id for component in components])
        script = read_asset("file-panel.js")
        self.table.js_on_load = f"const UPLOAD = {upload};\nconst HELD = {ids};\n{script}"

    def describe(
        self, files: str | Sequence[str] | None, encoding: str = DETECTED, sheet: str | None = None
    ) -> Update:
        """Shows the first file of an upload, or the first one whose encoding is in doubt.

        All files are opened with the ``encoding`` and the ``sheet`` that a person has chosen.
        """
        try:
            tables = [open_upload(path, encoding, sheet) for path in _paths(files)]
        except UserFacingError as error:
            # An encoding that a person has chosen may be the cause, so it can be changed.
            is_doubtful = bool(encoding) or isinstance(error, UnknownEncodingError)
            return {
                **self.of(None),
                self.table: _versioned(error_message(error)),
                self.encoding: gr.update(value=encoding, visible=is_doubtful),
            }
        doubtful = [table for table in tables if not table.is_plain]
        table = next(iter(doubtful or tables), None)
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
        """Returns the update that shows a table, or that empties the panel without a table.

        Args:
            columns: the columns that a person has chosen; by default the table's own reading
                decides.
            encoding: the encoding that a person has chosen.
            read_as: the scale of the scores or the values of the labels, as a person has typed
                them.
            is_open: whether the first rows are unfolded.
            remark: a sentence about the file, without its full stop.
        """
        if table is None:
            return {
                self.table: _versioned(""),
                self.encoding: gr.update(value=DETECTED, visible=False),
                self.read_as: gr.update(value="", visible=False),
                self.sheet: gr.update(value=None, visible=False),
                **dict.fromkeys(self.columns, ""),
                **self.doctor.reset(is_visible=False),
            }
        columns = columns or columns_of(table.reading)
        sheets = list(table.sheets)
        return {
            self.encoding: gr.update(value=encoding, visible=bool(encoding) or not table.is_plain),
            self.sheet: gr.update(
                choices=sheets, value=table.sheet or None, visible=len(sheets) > 1
            ),
            **self._of_columns(table, columns, encoding, read_as, is_open, remark),
        }

    def choose(
        self,
        files: Files,
        encoding: str,
        sheet: str | None,
        first: str,
        second: str,
        target: str,
        read_as: str,
        event: gr.EventData,
    ) -> Update:
        """Gives a column another role, or says what the labels of the judgement mean.

        The event has ``labels``, a text for ``read_as``, or a ``column`` and its new ``role``. What does
        not apply is "".
        """
        table = _table(files, encoding, sheet)
        if table is None:
            return {self.table: gr.skip()}
        columns = (first, second, target)
        if not any(columns):
            # No role has been chosen yet, so the new one changes the roles of the reading.
            columns = columns_of(table.reading)
        if event.labels:
            read_as = str(event.labels)
        else:
            columns = with_role(columns, str(event.column), str(event.role))
        return self._of_columns(table, columns, encoding, read_as)

    def read_anew(
        self,
        files: Files,
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
        """Shows the file that another page has sent, if the address has its token."""
        token = request.query_params.get("file")
        if not token:
            return {self.table: gr.skip()}
        try:
            file = self.services.taken.get(token)
            # Raises InputError if this visitor may not read the path.
            self.services.access.check_data(file.path)
            table = open_upload(file.path, file.encoding, file.sheet)
        except UserFacingError as error:
            return {**self.of(None), self.table: _versioned(error_message(error))}
        update = self.of(table, file.columns, file.encoding, file.read_as)
        return {self.upload: file.path, **update}

    def _of_columns(
        self,
        table: OpenedTable,
        columns: Chosen,
        encoding: str,
        read_as: str,
        is_open: bool = True,
        remark: str = "",
    ) -> Update:
        """Returns the update of the components that depend on the columns."""
        is_upload = self._is_upload(table)
        # Without a judgement the last column is "" or `NO_JUDGEMENT`.
        has_target = columns[-1] not in ("", NO_JUDGEMENT)
        return {
            self.table: self._panel(table, columns, encoding, read_as, is_open, remark),
            **dict(zip(self.columns, columns, strict=True)),
            # Hidden for the example of a page.
            self.read_as: gr.update(value=read_as, visible=has_target and is_upload),
            **self.doctor.reset(is_visible=is_upload),
        }

    def _is_upload(self, table: OpenedTable) -> bool:
        """Whether a visitor has uploaded the table. The example of a page is not an upload."""
        # The example lies outside of the folders that `check_data` allows.
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
        """Renders the panel of a table.

        ``read_as`` is the scale of the scores or the values of the labels, ``is_open`` whether the
        first rows are unfolded, and ``remark`` a sentence about the file without its full stop.
        """
        problem = Markup()
        unclear_as_no = ""
        lines = list(table.remarks)
        if remark:
            lines.insert(0, f"{remark}.")
        findings: list[Finding] = []
        # The table's own reading, which stays if the chosen columns do not fit the table.
        reading = table.reading
        try:
            reading = read_by(table, columns)
            lines += reading.notes
            is_clear = bool(reading.sentences) and not has_question(reading)
            is_small = table.row_estimate <= MOST_EXAMINED
            # `chosen_name` accepts uploads only.
            if is_clear and is_small and self._is_upload(table):
                name = chosen_name(
                    self.services, str(table.path), encoding, table.sheet, *columns, read_as
                )
                data = load_data(name, self.services.settings.home)
                # What "Count them as no" would put into ``read_as``; "" without unclear labels.
                unclear_as_no = data.unclear_as_no
                for note in data.notes:
                    # The heads of the columns say which ones are not used.
                    if note not in lines and not note.startswith(NOT_READ):
                        lines.append(sentence_case(note.removesuffix(".")) + ".")
                findings = examine(data)
        except UserFacingError as error:
            problem = error_message(error)
        questions = []
        for doubt in reading.doubts:
            # With ``is_possible_only``, nothing in the file suggests that the column is a
            # judgement. Only training has to ask: without a judgement, it takes all pairs as
            # matches.
            if self.page == "train" or not doubt.is_possible_only:
                candidates = [(name, reading.examples(name)) for name in doubt.candidates]
                questions.append((doubt.question, candidates))
        shown_columns = _shown_columns(table)
        return _versioned(
            render(
                "components/templates/file_panel.html",
                problem=problem,
                name=table.path.name,
                facts=[table.description, format_count(table.row_estimate, "row")],
                words=_quotation(table),
                lines=lines,
                findings=findings,
                unclear_as_no=unclear_as_no,
                questions=questions,
                columns=_heads(reading, columns, shown_columns),
                rows=_shown_rows(table, shown_columns),
                hidden=len(table.columns) - len(shown_columns),
                is_open=is_open,
                places=self._links(table, reading, columns, encoding, read_as),
            )
        )

    def _links(
        self,
        table: OpenedTable,
        reading: TableReading,
        columns: Chosen,
        encoding: str,
        read_as: str,
    ) -> list[tuple[str, str]]:
        """Returns the addresses of the other pages with this file, and what they do with it."""
        others = [place for place in places(reading) if place.page != self.page]
        if not others or not self._is_upload(table):
            return []
        token = self.services.taken.put(
            TakenFile(str(table.path), encoding, table.sheet, columns, read_as)
        )
        links = []
        for place in others:
            query = {"file": token}
            if place.tab:
                query["tab"] = place.tab
            links.append((f"{place.page}?{urlencode(query)}", place.purpose))
        return links


def _versioned(html: Markup | str) -> Markup:
    """Returns the panel with a new number, which tells the script of the panel that the file has been read."""
    return macro("versioned")(html, next(_versions))


class _Head(NamedTuple):
    """The head of a column: its name, its role, the evidence for that role, and the roles to choose from."""

    name: str
    role: str
    evidence: str
    roles: list[tuple[str, str]]


def _shown_columns(table: OpenedTable) -> list[str]:
    """Returns the first columns, after the ones that the table's own reading uses, which may be far to the right."""
    reading = table.reading
    # They are not moved when a person chooses another role.
    columns = [*columns_of(reading), *reading.used, *table.columns]
    # Each once. "" stands for none.
    return list(dict.fromkeys(filter(None, columns)))[:SHOWN_COLUMNS]


def _heads(reading: TableReading, columns: Chosen, shown_columns: Sequence[str]) -> list[_Head]:
    """Returns the heads of some columns, with the roles that a person has chosen."""
    chosen_roles = {name: role for name, role in zip(columns, CHOICES, strict=True) if name}
    heads = []
    by_name = {column.name: column for column in reading.columns}
    for column in map(by_name.__getitem__, shown_columns):
        role = column.role
        if columns[0] and role in (*TEXTS, SCORE, LABEL):
            # Once a person has chosen columns, only the chosen ones have these roles, which the
            # next line sets.
            role = UNUSED
        role = chosen_roles.get(column.name, role)
        roles = [*CHOICES.items(), (UNUSED, "not used")]
        if role not in dict(roles):
            # Only a reading gives other roles, such as a split.
            roles.insert(0, (role, role))
        # A role that comes from the name of the column, or from a person, needs no evidence.
        evidence = column.evidence if column.is_by_cells else ""
        heads.append(_Head(column.name, role, evidence, roles))
    return heads


def _shown_rows(table: OpenedTable, shown_columns: Sequence[str]) -> list[list[str]]:
    """Returns the first cells of some columns as texts, row by row."""
    cells = table.preview(SHOWN_ROWS).rows
    columns = []
    for name in shown_columns:
        columns.append([cell_text(cell)[:LONGEST_CELL] for cell in cells[name]])
    return [list(row) for row in zip(*columns, strict=True)]


def _quotation(table: OpenedTable) -> str:
    """Returns the first cell that is not ASCII, in which a wrong encoding shows; "" if the encoding is certain."""
    if table.is_plain:
        return ""
    for cell in islice(_cells(table), MOST_SEARCHED_CELLS):
        text = as_text(cell) or ""
        if not text.isascii():
            return " ".join(text.split())[:LONGEST_QUOTATION]
    return ""


def _cells(table: OpenedTable) -> Iterator[object]:
    """Yields the cells of all columns, batch by batch."""
    for batch in table.batches(1_000):
        for column in batch.rows.values():
            yield from column


class FileDoctor:
    """The fold with the faults of a file and a corrected file. The file is examined when the fold is opened."""

    def __init__(self, services: Services, prefix: str) -> None:
        """Builds the hidden fold inside the open Blocks. The element ids begin with ``prefix``."""
        self.services = services
        with gr.Accordion(
            "Rows at fault, and a file without them",
            open=False,
            visible=False,
            elem_id=f"{prefix}-doctor",
        ) as self.fold:
            self.findings = gr.HTML(elem_id=f"{prefix}-findings")
            self.download = gr.DownloadButton(visible=False, size="sm", elem_id=f"{prefix}-clean")
        self.outputs = [self.fold, self.findings, self.download]

    def wire(self, file: Any, choices: Sequence[Any]) -> None:
        """Connects the fold with an upload or a state, and with the inputs of the panel, which say how to read it."""
        self.fold.expand(
            self.diagnose,
            [file, *choices],
            [self.findings, self.download],
            **event_options(trigger_mode="always_last"),
        )

    def reset(self, is_visible: bool) -> Update:
        """Returns the update that closes and clears the fold for another file, and shows or hides it."""
        return {
            self.fold: gr.update(visible=is_visible, open=False),
            self.findings: "",
            self.download: gr.update(visible=False),
        }

    def diagnose(self, files: Files, *how: str) -> Iterator[Update]:
        """Lists the faults of the first file, and offers the file without the rows at fault.

        ``how`` are the inputs of the panel.
        """
        # `chosen_name` reads the rest of ``how``, which is the columns and the scale.
        encoding, sheet, *_ = how
        yield {self.findings: waiting("Reading the file …")}
        try:
            table = _table(files, encoding, sheet)
            if table is None:
                return
            name = chosen_name(self.services, str(table.path), *how)
            data = load_data(name, self.services.settings.home)
            # With a model, texts that it does not know or would cut are found as well. `_panel`
            # calls `examine` without one, so that it does not wait for a model.
            findings = examine(data, self.services.models.get(DEFAULT_MODEL, VectorModel))
            download = gr.update(visible=False)
            # Other findings, such as labels of mostly one kind, leave all rows in the file.
            if any(finding.is_left_out for finding in findings):
                folder = self.services.temp.new_folder("exports")
                output = folder / f"{table.path.stem}-clean{suffix_like(table)}"
                row_count = clean(table, output, data, findings)
                label = f"Download the {format_count(row_count, 'row')} without fault"
                download = gr.update(value=str(output), label=label, visible=True)
        except UserFacingError as error:
            yield {self.findings: error_message(error)}
            return
        # The sentences of each row, by its number in the file.
        texts = {}
        for row, *sentences in zip(data.rows, *data.columns, strict=True):
            texts[row] = "  |  ".join(sentences)
        examples = []
        for finding in findings:
            rows = finding.rows[:EXAMPLES]
            examples.append((finding, [(row, texts[row]) for row in rows]))
        yield {self.findings: macro("file_findings")(data, examples), self.download: download}


def open_upload(path: str, encoding: str = DETECTED, sheet: str | None = None) -> OpenedTable:
    """Opens an upload. A .txt file has one sentence per line.

    Args:
        encoding: the encoding of the file, which is ignored if the file is plainly UTF-8.
        sheet: the sheet of a workbook, which is ignored if the file does not have it.

    Raises InputError if the file cannot be read.
    """
    version = file_version(Path(path))
    try:
        # In the encoding that the bytes show. ``encoding`` is used only if they leave a doubt.
        table = _open_once(path, None, sheet or None, version)
        is_doubtful = not table.is_plain
    except UnknownSheetError:
        # The workbook opens at its default sheet. It states its own encoding.
        return _open_once(path, None, None, version)
    except UnknownEncodingError:
        if not encoding:
            raise
        is_doubtful = True
    if encoding and is_doubtful:
        # Text files have no sheets.
        return _open_once(path, encoding, None, version)
    return table


@lru_cache(MOST_OPENED)
def _open_once(
    path: str, encoding: str | None, sheet: str | None, version: tuple[int, int] | None
) -> OpenedTable:
    """Opens a table once for each ``version`` of the file, for all events that need it.

    The version is its `file_version`, None if it does not exist.
    """
    return open_table(path, encoding, sheet, lines=True)


def _table(files: Files, encoding: str, sheet: str | None) -> OpenedTable | None:
    """Returns the table that the panel shows: a state, or the first file of an upload; None without a file."""
    if isinstance(files, OpenedTable):
        return files
    paths = _paths(files)
    return open_upload(paths[0], encoding, sheet) if paths else None


def _paths(files: str | Sequence[str] | None) -> list[str]:
    return [files] if isinstance(files, str) else list(files or ())


def chosen_name(
    services: Services,
    path: str,
    encoding: str,
    sheet: str | None,
    first: str | None = "",
    second: str | None = "",
    target: str | None = "",
    read_as: str | None = "",
) -> str:
    """Returns the name of an upload for the loaders of data, with its encoding and its sheet.

    The columns are in the name only if they differ from the table's own reading.

    Args:
        first: the column of sentence 1; empty if the table's own reading decides.
        second: the column of sentence 2.
        target: the column of scores or labels.
        read_as: the scale of the scores, or the values of the labels.

    Raises:
        InputError: the path is not an upload of this app, or the columns or the scale do not fit
            the table.
    """
    services.access.check_data(path)
    table = open_upload(path, encoding, sheet)
    # The text has either a scale or labels, or neither.
    scale, labels = parse_reading(read_as)
    name = DataName(
        path,
        encoding if encoding and not table.is_plain else None,
        scale=scale,
        labels=labels,
        sheet=None if table.is_default_sheet else table.sheet,
    )
    requested = _requested(first, second, target)
    if not {"", *table.columns, NO_JUDGEMENT}.issuperset(requested):
        # The columns belong to another one of several files. The own reading of this file decides.
        return str(name)
    reading = table.reading
    # Without a first sentence the table's own reading decides, so it must have sentences, and
    # nothing else may be chosen.
    if not first and (requested or not reading.sentences):
        columns = listed(table.columns)
        raise InputError(
            f"choose the column of sentence 1, in the head of the table: {table.path.name} has {columns}"
        )
    # The columns of the table's own reading. The second one is "" if the table has single
    # sentences.
    sentences = [*reading.sentences, ""][:2]
    is_as_read = [first, second or ""] == sentences and (target or None) == reading.target
    if not first or is_as_read:
        return str(name)
    if second and not target and not reading.doubts:
        # There is no judgement, but a reading of the two columns alone would look for one again. If
        # the table has doubts, the person may just not have answered the question yet, so the
        # reading asks it again.
        requested = _requested(first, second, NO_JUDGEMENT)
    # A comma in the name of a column is escaped, as commas separate the names.
    columns = ",".join(column.replace(",", "\\,") for column in requested)
    # Raises an error for columns that do not fit now, and not when a run starts.
    reading.with_columns(requested_columns(columns, reading))
    return str(replace(name, columns=columns))
