"""The uploads of the form of a run: a file in place of a named data set, and the objective that fits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import EVERY, LATEST, UNQUEUED, Update
from sbert_app.pages.components.messages import error_message, gradio_errors
from sbert_app.pages.components.pickers import data_choices
from sbert_app.pages.components.upload_options import (
    DETECTED,
    ColumnPicker,
    chosen_name,
    encoding_dropdown,
    how_it_reads,
    open_upload,
)
from sbert_app.services.container import Services
from sbert_app.services.files.uploads import keep_upload
from training.catalogue import LABELLED, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.data.load import load_data
from training.errors import UserFacingError
from training.names import DataName

# The components, or their values, by the field of RunConfig.
Fields = dict[str, Any]
TRAIN_DATA, DEV_DATA = data_choices("train"), data_choices("dev")
# The objective for each kind of data.
OBJECTIVE_FOR = {
    SCORED: "regression",
    LABELLED: "classification",
    TRIPLETS: "triplet",
    PAIRS: "mnrl",
    SENTENCES: "simcse",
}


class DataUpload:
    """An upload in place of a named data set, with pickers of its encoding, its sheet and its columns."""

    def __init__(
        self,
        services: Services,
        data: gr.Dropdown,
        button: gr.UploadButton,
        choices: Sequence[tuple[str, str]],
        name: str,
    ) -> None:
        """Builds the pickers inside the open Blocks, hidden until there is a doubt.

        ``data`` is the picker of the data set, with these other choices; the ids of the pickers begin with ``name``.
        """
        self.services, self.data, self.button, self.choices = services, data, button, choices
        self.read = gr.HTML(visible=False, elem_id=f"{name}-encoding-read")
        self.encoding = encoding_dropdown(f"{name}-encoding")
        self.columns = ColumnPicker(f"{name}-columns")
        # The upload itself; the picker may name a copy with other columns.
        self.original = gr.State(None)
        self.outputs = [self.data, self.read, self.encoding, self.original, *self.columns.outputs]

    def keep(self, file: str) -> Update:
        """Stores and selects an upload, and shows its columns, and the picker of encodings if there is a doubt."""
        with gradio_errors():
            self.services.check_kept_room(Path(file))
        copy = str(keep_upload(file, self.services.settings.home))
        return {**self.read_as(copy), self.original: copy}

    def read_as(self, original: str | None, encoding: str = DETECTED, sheet: str | None = None) -> Update:
        """Selects the upload with this encoding and sheet and the suggested columns, and shows the pickers."""
        original, reads = original or "", ""
        pickers: Update = {}
        name = str(DataName(original, encoding or None))
        # The estimate of the run shows the error.
        with suppress(UserFacingError):
            # The path comes from the browser.
            self.services.access.check_data(original)
            pickers = self.columns.of(None)
            table = open_upload(original, encoding, sheet)
            pickers, reads = self.columns.of(table), "" if table.is_plain else how_it_reads(table)
            columns = [pickers[picker]["value"] for picker in self.columns.inputs]
            name = chosen_name(self.services, original, encoding, *columns)
        return {
            **pickers,
            self.data: self._named(name, original),
            self.read: gr.update(value=reads, visible=bool(reads)),
            self.encoding: gr.update(value=encoding, visible=bool(reads or encoding)),
        }

    def read_again(self, *how: str) -> Update:
        """Reads the upload again. The picker that asked is not updated: it may have changed again meanwhile."""
        asking = self.encoding if len(how) == 2 else self.columns.sheet
        return {component: update for component, update in self.read_as(*how).items() if component is not asking}

    def name_columns(self, original: str | None, encoding: str, *columns: str) -> Update:
        """Selects other columns of the upload."""
        with gradio_errors():
            name = chosen_name(self.services, original or "", encoding, *columns)
        return {self.data: self._named(name, original or "")}

    def _named(self, name: str, original: str) -> Any:
        return gr.update(choices=[(f"{Path(original).name} (uploaded)", name), *self.choices], value=name)


def connect_uploads(fields: Fields, planned: gr.HTML, estimate_after: Callable[[Any], None]) -> None:
    """Wires both uploads of the form; training data selects the objective that fits it.

    ``planned`` shows errors; ``estimate_after(event)`` estimates the run again.
    """
    train, dev = fields["train_upload"], fields["dev_upload"]
    # An objective that a person has chosen stays when the columns of a file change.
    by_hand = gr.State(False)
    fields["objective"].input(lambda: True, None, by_hand, **UNQUEUED)

    def with_objective(update: Update) -> Update:
        """Adds the objective that fits the file."""
        try:
            kind = load_data(update[train.data]["value"]).kind
        except UserFacingError as error:
            return {**update, planned: error_message(error)}
        return {**update, fields["objective"]: OBJECTIVE_FOR.get(kind, gr.skip())}

    def keep_train(file: str) -> Update:
        return {**with_objective(train.keep(file)), by_hand: False}

    def name_train_columns(is_by_hand: bool, *values: Any) -> Update:
        update = train.name_columns(*values)
        return update if is_by_hand else with_objective(update)

    def hide_unless_upload(name: str | None) -> tuple[Any, Any, Any]:
        """Hides the pickers of the upload when a named data set is selected."""
        is_upload = "/" in (name or "") and not DataName.parse(name or "").is_set
        return (gr.skip(),) * 3 if is_upload else (gr.update(visible=False),) * 3

    outputs = [*train.outputs, fields["objective"], planned, by_hand]
    estimate_after(train.button.upload(keep_train, train.button, outputs, **UNQUEUED).success(None, None, None))
    estimate_after(dev.button.upload(dev.keep, dev.button, dev.outputs, **UNQUEUED))
    for upload in (train, dev):
        read = [upload.original, upload.encoding]
        for picker, inputs in ((upload.encoding, read), (upload.columns.sheet, [*read, upload.columns.sheet])):
            outputs = [part for part in upload.outputs if part is not picker]
            estimate_after(picker.input(upload.read_again, inputs, outputs, **LATEST, queue=False))
        for column in upload.columns.columns:
            name_columns, inputs, outputs = upload.name_columns, [*read, *upload.columns.inputs], [upload.data]
            if upload is train:
                name_columns, inputs = name_train_columns, [by_hand, *inputs]
                outputs += [fields["objective"], planned]
            estimate_after(column.input(name_columns, inputs, outputs, **EVERY))
        upload.data.input(hide_unless_upload, upload.data, [upload.read, upload.encoding, upload.columns.row], **EVERY)


def sent_sentences(services: Services, token: str) -> dict[str, Any]:
    """The updates of fields, by name, that make sentences from another page the training data, for SimCSE.

    InputError if the sentences are deleted meanwhile, or there is no room for them.
    """
    sent = services.shared_sentences.path(token)
    services.check_kept_room(sent)
    copy = keep_upload(sent, services.settings.home)
    choices = [(f"{copy.name} (from Explore)", str(copy)), *TRAIN_DATA]
    return {"train_data": gr.update(choices=choices, value=str(copy)), "objective": OBJECTIVE_FOR[SENTENCES]}
