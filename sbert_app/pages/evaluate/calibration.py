"""The calibration below the table of scores: fits a cosine to gold scores, and checks the fit on a second set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from sbert_app.figures.evaluation import reliability
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.pages.evaluate.pickers import DATA, OR_HUB
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare.calibration import calibrate_on, check, forget
from sbert_app.services.container import Services
from sbert_app.services.results.results import Results, data_label
from training.errors import InputError
from training.evaluation.calibration import FITTED_ON
from training.models.model import VectorModel, opener_of
from training.names import ModelName

# The sets to check the fit on; the second one if the fit was made on the first.
SECOND_SETS = ("stsb:test", "sickr")
INTRO = (
    "Compare translates a cosine to the scale of human annotators, such as “3.9 of 5”. Fit this translation to your "
    "own gold scores, then check it on other pairs."
)
IS_PUBLIC = "this app is public and keeps its shipped calibration; calibrate in an app of your own"


class CalibrationSection:
    """The components and their events; the models and data sets are those of the table above."""

    def __init__(self, services: Services, results: Results) -> None:
        self.services = services
        gr.HTML(messages.note(INTRO))
        with gr.Row():
            models, model = _models(results)
            self.model = gr.Dropdown(models, value=model, label="Model", min_width=220, elem_id="calibrate-model")
            data, name = _data(results)
            label = "Fit on the scores of"
            self.data = gr.Dropdown(data, value=name, label=label, min_width=220, elem_id="calibrate-data")
            self.second = open_dropdown("Check on", DATA, OR_HUB, 220, value=SECOND_SETS[0], elem_id="calibrate-check")
        ids = ("calibrate", "stop-calibrate", "calibrate-status")
        self.tab = MeasureTab.build(services, "calibration", "Calibrate on these scores", ids, "", "secondary")
        with self.tab.buttons:
            test = gr.Button("Check only", elem_id="calibrate-test")
            back = gr.Button("Back to the shipped calibration", elem_id="calibrate-back")
        self.figure = gr.Plot(show_label=False, visible=False, elem_id="reliability")
        inputs, outputs, empty = [self.model, self.data, self.second], [self.figure], {self.figure: hidden()}
        for button, work in ((self.tab.start, self.fit), (test, self.check), (back, self.go_back)):
            self.tab.on(button.click, self.tab.handler(work, empty), inputs, outputs)

    @property
    def pickers(self) -> Sequence[gr.Dropdown]:
        return self.model, self.data, self.second

    @property
    def results(self) -> list[Any]:
        return [self.tab.status, self.figure]

    def show(self, results: Results) -> Update:
        """Offers the models and the data sets of another table."""
        (models, model), (data, first) = _models(results), _data(results)
        second = next(name for name in (*results.data, *SECOND_SETS) if name != first)
        others = [(data_label(name), name) for name in results.data if name not in dict(DATA).values()]
        return {
            self.model: gr.Dropdown(models, value=model),
            self.data: gr.Dropdown(data, value=first),
            self.second: gr.Dropdown([*others, *DATA], value=second),
        }

    def fit(self, watch: Watch, model: str | None, data: str | None, second: str | None) -> Update:
        """Fits the curve on the first set, stores it, and checks it on the second set if there is one."""
        if self.services.settings.public:
            raise InputError(IS_PUBLIC)
        name = ModelName.parse(model or "")
        curve = calibrate_on(self.services.models, name, self._allowed(data), self.services.settings.home, watch)
        sentence = (
            f"“x of 5” under {name.label} is now fitted on {curve.pairs:,} pairs of {data_label(curve.fitted_on)}"
        )
        sentence = f"{sentence}; Compare uses it."
        return self._checked(watch, name, second, sentence) if second else {self.tab.status: messages.lead(sentence)}

    def check(self, watch: Watch, model: str | None, data: str | None, second: str | None) -> Update:
        return self._checked(watch, ModelName.parse(model or ""), second, "")

    def go_back(self, watch: Watch, model: str | None, data: str | None, second: str | None) -> Update:
        """Deletes the user's own calibration."""
        if self.services.settings.public:
            raise InputError(IS_PUBLIC)
        name = ModelName.parse(model or "")
        forget(self.services.models, name, self.services.settings.home)
        sentence = f"“x of 5” under {name.label} is now the one fitted on {data_label(FITTED_ON)}."
        return {self.tab.status: messages.lead(sentence), self.figure: hidden()}

    def _checked(self, watch: Watch, model: ModelName, second: str | None, sentence: str) -> Update:
        try:
            result = check(self.services.models, model, self._allowed(second), self.services.settings.home, watch)
        except InputError as error:
            # The fit, if there was one, stays.
            if not sentence:
                raise
            return {self.tab.status: messages.lead(sentence) + messages.error_message(error), self.figure: hidden()}
        head = messages.lead(sentence or f"“x of 5” under {model.label} is fitted on {data_label(result.fitted_on)}.")
        figure = reliability(result.bins, data_label(result.data))
        return {self.tab.status: head + messages.note(result.describe), self.figure: visible(figure)}

    def _allowed(self, data: str | None) -> str:
        if not data:
            raise InputError("choose a data set")
        return self.services.access.check_data(data)


def _models(results: Results) -> tuple[list[tuple[str, str]], str | None]:
    """The bi-encoders of a table, and the first of them."""
    names = [model for model in results.models if opener_of(model).type is VectorModel]
    return [(ModelName.parse(name).label, name) for name in names], next(iter(names), None)


def _data(results: Results) -> tuple[list[tuple[str, str]], str | None]:
    """The data sets of a table, and the last of them: the user's own files come last."""
    return [(data_label(name), name) for name in results.data], results.data[-1]
