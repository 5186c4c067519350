"""Uploads of the Train page: kept in the home folder; where the text is not plainly UTF-8, a picker of encodings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.pages.components.columns import ColumnPicker, chosen_name
from sbert_app.pages.components.encoding import DETECTED, doubtful_table, how_it_reads
from sbert_app.pages.components.events import EVERY, LATEST, UNQUEUED
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.train.form import DEV_DATA, TRAIN_DATA, keep_upload
from sbert_app.services.container import Services
from training.data.dataset import LABELLED, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.data.load import load_data
from training.data.reference import FileReference
from training.errors import UserFacingError

# Kind of data -> the objective that fits it
OBJECTIVE_FOR = {
    SCORED: "regression",
    LABELLED: "classification",
    TRIPLETS: "triplet",
    PAIRS: "mnrl",
    SENTENCES: "simcse",
}
HIDDEN: dict[str, Any] = {"visible": False}

Update = dict[Any, Any]  # component -> its new value


@dataclass(frozen=True)
class UploadControls:
    """The components of one upload, and where it goes."""

    data: gr.Dropdown  # the name of the data set
    button: gr.UploadButton
    read: gr.HTML  # how the characters were understood
    encoding: gr.Dropdown
    columns: ColumnPicker
    original: gr.State  # the upload itself; what is chosen may be a copy with the chosen columns
    known: list[tuple[str, str]]  # the other choices of ``data``
    services: Services

    @property
    def outputs(self) -> list[Any]:
        """What these methods update."""
        return [self.data, self.read, self.encoding, self.original, *self.columns.outputs]

    def keep(self, file: str) -> Update:
        """Keep an upload and choose it; show its columns, and the picker of encodings where there is a doubt.

        A gr.Error says that it cannot be kept.
        """
        try:
            self.services.check_kept_room(Path(file))
        except UserFacingError as error:
            raise gr.Error(error.public, print_exception=False) from error
        kept = str(keep_upload(file, self.services.settings.home))
        return {**self._chosen(FileReference(kept)), self.original: kept, **self.columns.show(kept)}

    def name_encoding(self, original: str | None, encoding: str) -> Update:
        """Read the chosen upload in another encoding."""
        chosen = self._chosen(FileReference(original or "", encoding or None))
        del chosen[self.encoding]
        try:
            self.services.access.check_data(original or "")
        except UserFacingError:
            return chosen
        return {**chosen, **self.columns.show(original, encoding)}

    def name_columns(self, original: str | None, encoding: str, *columns: str) -> Update:
        """Choose other columns of the upload. A gr.Error says what is wrong with them."""
        try:
            name = chosen_name(self.services, original or "", encoding, *columns)
        except UserFacingError as error:
            raise gr.Error(error.public, print_exception=False) from error
        choices = [(f"{Path(original or '').name} (uploaded)", name), *self.known]
        return {self.data: gr.update(choices=choices, value=name)}

    def _chosen(self, file: FileReference) -> Update:
        choices = [(f"{Path(file.path).name} (uploaded)", str(file)), *self.known]
        try:
            self.services.access.check_data(file.path)  # which the browser has sent
            doubtful = doubtful_table(file.path, file.encoding or DETECTED)
            shown = how_it_reads(doubtful) if doubtful else ""
        except UserFacingError:  # said where the run is estimated
            shown = ""
        return {
            self.data: gr.update(choices=choices, value=str(file)),
            self.read: gr.update(value=shown, visible=bool(shown)),
            self.encoding: gr.update(value=file.encoding or DETECTED, visible=bool(shown or file.encoding)),
        }


def connect(
    services: Services, fields: dict[str, Any], planned: gr.HTML, estimate_after: Callable[[Any], None]
) -> None:
    """Wire both uploads; one of training data selects the objective that fits it.

    Args:
        services: the home folder, and what visitors may name.
        fields: the form.
        planned: where an error is shown.
        estimate_after: estimates the run anew after an event.
    """
    train, dev = _controls(services, fields, "train", TRAIN_DATA), _controls(services, fields, "dev", DEV_DATA)

    def keep_train(file: str) -> Update:
        chosen = train.keep(file)
        try:
            kind = load_data(chosen[train.data]["value"]).kind
        except UserFacingError as error:
            return {**chosen, planned: error_message(error)}
        return {**chosen, fields["objective"]: OBJECTIVE_FOR.get(kind, gr.skip())}

    outputs = [*train.outputs, fields["objective"], planned]
    estimate_after(train.button.upload(keep_train, train.button, outputs, **UNQUEUED).success(None, None, None))
    estimate_after(dev.button.upload(dev.keep, dev.button, dev.outputs, **UNQUEUED))
    for each in (train, dev):
        estimate_after(
            each.encoding.input(each.name_encoding, [each.original, each.encoding], each.outputs, **LATEST, queue=False)
        )
        picked = [each.original, each.encoding, *each.columns.inputs]
        for column in each.columns.inputs:
            estimate_after(column.input(each.name_columns, picked, each.data, **EVERY))
        each.data.input(_hide_unless_upload, each.data, [each.read, each.encoding, each.columns.row], **EVERY)


def sent_sentences(services: Services, token: str) -> dict[str, Any]:
    """Updates of fields, by name: sentences that another page has sent as the training data; they train by SimCSE.

    Raises:
        InputError: they are not kept any more, or there is no room for them beside the data of other runs.
    """
    sent = services.handover.path(token)
    services.check_kept_room(sent)
    kept = keep_upload(sent, services.settings.home)
    choices = [(f"{kept.name} (from Explore)", str(kept)), *TRAIN_DATA]
    return {"train_data": gr.update(choices=choices, value=str(kept)), "objective": OBJECTIVE_FOR[SENTENCES]}


def _hide_unless_upload(name: str | None) -> tuple[Any, Any, Any]:
    """Nothing to pick for a data set that is chosen by its name."""
    is_upload = "/" in (name or "") and not (name or "").startswith("hf:")
    return (gr.skip(),) * 3 if is_upload else (gr.update(**HIDDEN),) * 3


def _controls(services: Services, fields: dict[str, Any], name: str, known: list[tuple[str, str]]) -> UploadControls:
    data = fields["train_data" if name == "train" else "eval_data"]
    return UploadControls(
        data,
        fields[f"upload_{name}"],
        fields[f"read_{name}"],
        fields[f"encoding_{name}"],
        fields[f"columns_{name}"],
        gr.State(None),
        known,
        services,
    )
