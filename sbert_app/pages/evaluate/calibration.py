"""The tab What a cosine means: fits a cosine to gold scores, and checks the fit on a second set."""

import gradio as gr

from sbert_app.figures import evaluation as figures
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.file_panel import FilePanel
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.evaluate.pickers import DATA, MODELS, OR_HUB, ModelAndData, file_instead_of
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare import calibration
from sbert_app.services.container import Services
from sbert_app.services.results.precomputed import shipped_scores
from sbert_app.services.results.results import data_label
from training.errors import InputError
from training.evaluation.calibration import FITTED_ON, Reliability, reliability
from training.names import ModelName

INTRO = (
    "Compare translates a cosine to the scale of human annotators, such as “3.9 of 5”. Fit this translation to your "
    "own gold scores, then check it on other pairs."
)
IS_PUBLIC = "this app is public and keeps its shipped calibration; calibrate in an app of your own"


def build(services: Services) -> None:
    """Builds the tab inside the open Blocks; it opens with a check of the shipped calibration."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "calibrate", DATA, "stsb:dev", label="Fit on")
    with gr.Row(elem_id="calibrate-check"):
        second = open_dropdown(
            "Check on", DATA, OR_HUB, value="stsb:test", scale=2, elem_id="calibrate-check-data"
        )
        file = file_instead_of(second, min_width=260, elem_id="calibrate-check-file")
    panel = FilePanel(services, file, "calibrate-check")
    tab = MeasureTab.build(
        services, "calibration", "Calibrate", ("calibrate", "stop-calibrate", "calibrate-status")
    )
    with tab.buttons:
        test = gr.Button("Check only", elem_id="calibrate-test")
        back = gr.Button("Back to the shipped calibration", elem_id="calibrate-back")
    pickers.panel.hold([tab.start, test])
    panel.hold([tab.start, test])
    figure = gr.Plot(show_label=False, visible=False, elem_id="reliability")
    shows = {"What a cosine means": [tab.status, figure]}
    report_button(services, *of_page("Calibration", shows), "calibration")
    home = services.settings.home
    empty = {figure: hidden()}
    # The values of a handler are the model and the first set, and then, from here on, the second
    # set.
    check_from = len(pickers.inputs)

    def fit(watch: Watch, *values: str) -> Update:
        """Fits the curve on the first set, stores it, and checks it on the second set if there is one."""
        if services.settings.public:
            raise InputError(IS_PUBLIC)
        model, data = pickers.named(*values[:check_from])
        curve = calibration.calibrate_on(services.models, model, data, home, watch)
        on_pairs = f"{curve.pairs:,} pairs of {data_label(curve.fitted_on)}"
        sentence = f"“x of 5” under {model.label} is now fitted on {on_pairs}; Compare uses it."
        try:
            return check(watch, *values, sentence=sentence)
        except InputError as error:
            # The curve stays as fitted. Without a second set, by name or as a file, `check` fails
            # too, but nothing had to be checked.
            status = messages.lead(sentence)
            name, file, *_ = values[check_from:]
            if name or file:
                status += messages.error_message(error)
            return {tab.status: status, **empty}

    def check(watch: Watch, *values: str, sentence: str = "") -> Update:
        """Checks the curve of the model on the second set."""
        # The first value is the model; the first set, which follows it, is not needed.
        model, data = pickers.named(values[0], *values[check_from:])
        result = calibration.check(services.models, model, data, home, watch)
        return show(model, result, sentence)

    def show(model: ModelName, result: Reliability, sentence: str = "") -> Update:
        """Shows a check below ``sentence``, or below a sentence on the data of the fit."""
        if not sentence:
            fitted_on = data_label(result.fitted_on)
            sentence = f"“x of 5” under {model.label} is fitted on {fitted_on}."
        plot = figures.reliability(result.bins, data_label(result.data), model)
        return {
            tab.status: messages.lead(sentence) + messages.note(result.description),
            figure: visible(plot),
        }

    def go_back(watch: Watch, name: str, *_: str) -> Update:
        """Deletes the user's own calibration of a model."""
        if services.settings.public:
            raise InputError(IS_PUBLIC)
        model = ModelName.parse(name or "")
        # The curve on `FITTED_ON` is used again.
        calibration.forget(services.models, model, home)
        sentence = f"“x of 5” under {model.label} is now the one fitted on {data_label(FITTED_ON)}."
        return {tab.status: messages.lead(sentence), **empty}

    def example() -> Update:
        """Checks the calibration on shipped scores, which do not need a model.

        The calibration is the shipped one, unless the user has fitted another one.
        """
        model = ModelName.parse(MODELS[0])
        curve = calibration.load_calibration(str(model), "mean", home)
        if not curve:
            return {}
        pairs, results, _ = shipped_scores(home)
        # The results and the pairs, without the pairs that have no score.
        result, pairs = results[model].without_unscored(pairs)
        return show(model, reliability(curve, pairs, result.scores_by("cosine"), home))

    tab.wire(
        fit,
        [*pickers.inputs, second, file, *panel.inputs],
        empty,
        example=example,
        others=((test, check), (back, go_back)),
    )
