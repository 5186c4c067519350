"""The preview of mined hard negatives: a task of some seconds, shown as a table before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.task import TaskWidget
from sbert_app.pages.train import views
from sbert_app.pages.train.form import Fields, to_config
from sbert_app.services.container import Services
from sbert_app.services.runs.negatives import NegativesPreview, preview_negatives
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import UserFacingError
from training.trainer.config import RunConfig


def connect(services: Services, fields: Fields, names: list[str]) -> None:
    """Connect the button of the preview; ``names`` are the fields of a RunConfig, in order."""
    widget = TaskWidget(
        "negatives",
        fields["negatives_shown"],
        fields["negatives_stop"],
        fields["negatives_preview"],
        stopped="stopped before the negatives were found.",
    )

    def preview(request: gr.Request, *values: Any) -> Iterator[dict[Any, Any]]:
        try:
            form = dict(zip(names, values, strict=True))
            config = to_config({**form, "mine_negatives": True}, services.access)
        except UserFacingError as error:
            yield {widget.status: error_message(error)}
            return
        mine = partial(_mine, services, config)
        yield from widget.run(services, request, mine, lambda found: {widget.status: views.negatives(found)}, {})

    inputs = [fields[name] for name in names]
    widget.wire(services, fields["negatives_preview"].click(preview, inputs, widget.outputs, **PRIVATE))


def _mine(
    services: Services, config: RunConfig, report_progress: ReportProgress, should_stop: ShouldStop
) -> NegativesPreview:
    def on_progress(done: int, total: int | None) -> None:
        report_progress(done, "Encoding the training data", total or 1)

    return preview_negatives(config, services.settings.home, on_progress, should_stop)
