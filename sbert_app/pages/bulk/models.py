"""The models of the Bulk page, folded: the bi-encoder, its pooling, and a cross-encoder beside it."""

from typing import Any

import gradio as gr

from sbert_app.formats import model_label
from sbert_app.pages.components.address import keep_touched
from sbert_app.pages.components.events import Update, event_options, on_open
from sbert_app.pages.components.pickers import (
    NO_CROSS_ENCODER,
    cross_encoder_picker,
    model_and_pooling,
    pooling_radio,
)
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError

USUAL_MODELS = (DEFAULT_MODEL, "mean", NO_CROSS_ENCODER)


class Models:
    """The three pickers in a fold. Their values are in the address and in the title of the fold."""

    def __init__(self, services: Services) -> None:
        with gr.Accordion(_title(*USUAL_MODELS), open=False, elem_id="bulk-models") as self.fold:
            self.model, self.pooling = model_and_pooling(services, "bulk")
            self.cross = cross_encoder_picker(NO_CROSS_ENCODER, elem_id="bulk-cross")
        self.pickers = [self.model, self.pooling, self.cross]

    def wire(self) -> Any:
        """Fills the pickers from the address, and keeps the title of the fold up to date.

        Returns the event after which the pickers have their values.
        """
        for picker in self.pickers:
            picker.change(
                lambda *values: gr.Accordion(label=_title(*values)),
                self.pickers,
                self.fold,
                **event_options(queue=False, trigger_mode="multiple"),
            )
        return keep_touched(self.pickers, on_open(self._of_address, self.pickers))

    def _of_address(self, request: gr.Request) -> list[Any]:
        """Returns an update of each picker: the value in the address, if there is one."""
        model, pooling, cross = (
            request.query_params.get(str(picker.elem_id)) for picker in self.pickers
        )
        # The picker may not offer the pooling in the address. `pooling_radio` adds it.
        radio = pooling_radio(pooling) if pooling else gr.skip()
        return [model or gr.skip(), radio, cross or gr.skip()]

    def of_job(self, model: str, pooling: str | None, cross: str | None) -> Update:
        """Returns the update for a job that was scored with these models; {} if it has not been scored."""
        # The record of a job that was only opened has "" as its model.
        if not model:
            return {}
        update: Update = {self.model: model, self.cross: cross or NO_CROSS_ENCODER}
        if pooling:
            update[self.pooling] = pooling
        return update

    def keep_from_address(self, *values: str | None) -> Update:
        """Returns an update that skips each picker whose value is not the usual one, so it came from the address."""
        choices = zip(self.pickers, values, USUAL_MODELS, strict=True)
        return {picker: gr.skip() for picker, value, usual in choices if value != usual}


def _title(model: str | None, pooling: str | None, cross: str | None) -> str:
    title = f"Model: {_label(model or DEFAULT_MODEL)}, {pooling or 'its own'} pooling"
    if cross and cross != NO_CROSS_ENCODER:
        title += f", beside {_label(cross)}"
    return title


def _label(name: str) -> str:
    """Returns the label of a model. An invalid name stays as it was typed; Score says what is wrong with it."""
    try:
        return model_label(name)
    except InputError:
        return name
