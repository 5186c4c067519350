"""The first tab of the front page: two sentences, their scores, and the words behind them."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import gradio as gr

from sbert_app.figures import compare as figures
from sbert_app.pages.compare import answers
from sbert_app.pages.compare.answers import Answer, Question, compute
from sbert_app.pages.components.address import keep_touched
from sbert_app.pages.components.events import LATEST, PRIVATE, UNQUEUED, Questions, Update, ask, follow, on_open
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.messages import ask_first, attribution, error_message, note, waiting
from sbert_app.pages.components.pickers import (
    cross_encoder_picker,
    model_picker,
    model_settings,
    named_model,
    pooling_picker,
    pooling_radio,
)
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import macro
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare import calibration, examples
from sbert_app.services.compare.comparison import Comparison, explain, leave_one_out
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, UserFacingError
from training.evaluation.calibration import Calibration
from training.models.model import VectorModel
from training.names import ModelName
from training.pooling import PAPER_POOLINGS

# The page opens with a pair that needs no explanation: one word reverses the meaning.
OPENING_PAIR = next(pair for pair in examples.pairs() if pair.name == "negation")
# The key of the `Answer` on the page among the questions of a visitor.
SHOWN = "shown"
# The key of the models that are to be downloaded.
MISSING = "missing"
# The seconds between two looks for a measured curve.
CALIBRATION_SECONDS = 2.0
REMEMBER_PAIR = f"(...inputs) => window.rememberPair({answers.LONGEST_LINK}, ...inputs)"
SET_ASIDE = "Your own calibration of {} was fitted on other weights and is not used. Fit it again on the page Evaluate."
STOPPED = "stopped: choose another model, or press Enter in a sentence to download this one."
_downloads = count()
COPY_LINK = "(link) => { if (link.startsWith('http')) navigator.clipboard.writeText(link); return link; }"


class TwoSentences:
    def __init__(self, services: Services) -> None:
        self.services = services
        with gr.Row(equal_height=True):
            self.a = _sentence("First sentence", OPENING_PAIR.a, "sentence-a")
            self.b = _sentence("Second sentence", OPENING_PAIR.b, "sentence-b")
        with gr.Row(elem_classes="chips", elem_id="examples"):
            self.chips = [gr.Button(pair.name, size="sm", elem_classes="chip") for pair in examples.pairs()]
            self.random_pair = gr.Button("a random STSb pair", size="sm", elem_classes="chip", elem_id="random-pair")
        self.answer = gr.HTML(waiting("Loading the model…"), elem_id="answer")
        self.stop = gr.Button("Stop", size="sm", visible=False, elem_id="stop-loading")
        self.download = gr.Button("Download", size="sm", visible=False, elem_id="start-loading")
        self.lesson = gr.HTML(note(OPENING_PAIR.lesson), elem_id="lesson")
        with gr.Row(elem_id="compare-models"):
            self.model, self.pooling = model_picker(services), pooling_picker()
            self.cross = cross_encoder_picker()
            hint = "Shown beside the first"
            self.second = model_picker(services, "", "Second model", optional=True, info=hint, elem_id="second-model")
        model_settings(services, self.model, roles=True)
        # The last random STSb pair, an `ExamplePair`.
        self.random_stsb = gr.State(None)
        # The model whose pooling was selected last; see `_with_pooling`.
        self.shown_model = gr.State(DEFAULT_MODEL)
        # The `Answer` on the page; None after an error.
        self.result = gr.State(None)
        # The inputs whose download was stopped, or not begun, as they are those of a link.
        self.stopped = gr.State(None)
        self.questions = gr.State({})
        # Their values change when models are to be downloaded, and when they are there.
        self.download_needed, self.download_ended = (gr.HTML("", visible="hidden") for _ in range(2))
        self._build_details()
        self.calibration = gr.Timer(CALIBRATION_SECONDS, active=False)
        self.loading = MeasureTab(services, "compare", self.answer, stopped=STOPPED)

    def _build_details(self) -> None:
        with gr.Tabs(overflow_behavior="wrap", elem_id="why"):
            with gr.Tab("Which words matter"):
                self.map_note = gr.HTML(elem_id="map-note")
                self.word_map = gr.Plot(show_label=False, visible=False, elem_id="word-map")
                self.token_map = gr.HTML(elem_id="token-map")
                with gr.Row(elem_classes="actions"):
                    label = "Explain the cross-encoder’s score"
                    self.explain_cross = gr.Button(label, size="sm", visible=False, elem_id="explain-cross")
                self.cross_words = gr.HTML(elem_id="cross-words")
                self.tokens = gr.HTML(elem_id="tokens")
            with gr.Tab("Leave out a word") as self.left_out_tab:
                self.left_out = gr.HTML(elem_id="what-if")
                self.left_out_is_open = gr.State(False)
            with gr.Tab("Poolings"):
                self.poolings = gr.HTML(elem_id="poolings")
            with gr.Tab("Copy"):
                self.copy_link = gr.Button("Copy a link to this view", size="sm", elem_id="copy-link")
                self.link = gr.Textbox(label="Link", interactive=False, buttons=["copy"], elem_id="link")
                code: dict[str, Any] = {"wrap_lines": True, "max_lines": 18, "show_line_numbers": False}
                self.as_json = gr.Code(label="JSON", language="json", elem_id="as-json", **code)
                self.as_python = gr.Code(label="Python", language="python", elem_id="as-python", **code)
                self.as_curl = gr.Code(label="curl", language="shell", elem_id="as-curl", **code)
        shows = {
            "Scores": [self.answer, self.poolings],
            "Words": [self.map_note, self.word_map, self.cross_words, self.token_map],
        }
        inputs = [self.a, self.b, self.model, self.pooling, self.cross, self.second]
        report_button(self.services, *of_page("Comparison", shows, inputs), "comparison")
        gr.HTML(macro("compare/doors")())

    def wire(self) -> None:
        inputs = [self.a, self.b, self.model, self.pooling, self.cross, self.second]
        outputs = [
            *(self.result, self.pooling, self.shown_model, self.lesson, self.answer, self.stop, self.poolings),
            *(self.map_note, self.word_map, self.tokens, self.link, self.as_json, self.as_python, self.as_curl),
            *(self.calibration, self.explain_cross, self.cross_words, self.token_map, self.download),
            self.download_needed,
        ]
        # A paste fires no input event, so these are change events. A burst of keys gets one answer, to its last state.
        # The answer itself sets the pooling, which must not ask again.
        edited = [field.change for field in inputs if field is not self.pooling]
        state = [self.random_stsb, self.shown_model, self.stopped, self.questions]
        answered: dict[str, Any] = {"fn": self.answer_pair, "inputs": [*inputs, *state], "outputs": outputs, **UNQUEUED}
        triggers = [*edited, self.pooling.input, self.download_ended.change]
        changed = gr.on(triggers, **answered, trigger_mode="always_last")
        loading = [*inputs, self.stopped, self.questions]
        self.download_needed.change(self.load_models, loading, [*outputs, self.download_ended], **LATEST)
        # Enter starts a stopped download again, too.
        again = gr.on([self.a.submit, self.b.submit, self.download.click], lambda: None, None, self.stopped, **UNQUEUED)
        opened = keep_touched(inputs, on_open(self.open_link, [*inputs, self.shown_model, self.stopped], **UNQUEUED))
        for event in (changed, again.then(**answered), opened.then(**answered)):
            event.then(None, inputs, None, js=REMEMBER_PAIR, trigger_mode="always_last")
            event.then(self.explain, [self.result, self.questions], self.map_note, **LATEST)
            event.then(self.leave_out, [self.result, self.left_out_is_open], self.left_out, **LATEST)
        of_cross_encoder = partial(self.explain, of_cross_encoder=True)
        self.explain_cross.click(of_cross_encoder, [self.result, self.questions], self.cross_words, **PRIVATE)
        calibrated = [self.answer, self.poolings, self.calibration]
        follow(self.calibration, self.show_calibrated, [self.result], calibrated)
        # The inputs are noted before the download stops: a change that waits for its end must not start it again.
        noted = self.stop.click(lambda *typed: typed, inputs, self.stopped, **UNQUEUED)
        noted.then(self.stop_loading, None, None, **UNQUEUED)
        self.left_out_tab.select(
            lambda result: (True, self.leave_out(result)),
            self.result,
            [self.left_out_is_open, self.left_out],
            api_visibility="private",
        )
        # A notice needs the queue.
        self.copy_link.click(_confirm_copy, self.link, None, js=COPY_LINK, **PRIVATE)
        for chip, pair in zip(self.chips, examples.pairs(), strict=True):
            chip.click(lambda pair=pair: (pair.a, pair.b), None, [self.a, self.b], **UNQUEUED)

        def draw_pair() -> tuple[str, str, examples.ExamplePair]:
            pair = examples.random_stsb_pair(self.services.settings.home)
            return pair.a, pair.b, pair

        self.random_pair.click(draw_pair, None, [self.a, self.b, self.random_stsb], **PRIVATE)

    def open_link(self, request: gr.Request) -> tuple[Any, ...]:
        """The inputs in the address; those that it omits, or gets wrong, keep their defaults.

        A link begins no download of the models that it names.
        """
        query = dict(request.query_params)
        if query.get("pooling") not in PAPER_POOLINGS:
            query.pop("pooling", None)
        # A model that is not on the page yet is opened with its own pooling.
        shown_model = ""
        if "pooling" in query or "model" not in query:
            with suppress(InputError):
                shown_model = str(_with_pooling(named_model(query.get("model"))))
        fields = (self.a, self.b, self.model, self.pooling, self.cross, self.second)
        names = tuple(field.name for field in dataclasses.fields(Question))
        inputs = tuple(query.get(name) or field.value for name, field in zip(names, fields, strict=True))
        has_models = any(query.get(name) for name in ("model", "cross", "second"))
        return *(query.get(name) or gr.skip() for name in names), shown_model, inputs if has_models else None

    def stop_loading(self, request: gr.Request) -> None:
        self.services.tasks.stop(self.loading.owner(request))

    def answer_pair(self, request: gr.Request, *values: Any) -> Update:
        """Updates everything that the page shows of a pair, or shows the error in the inputs.

        Missing models are downloaded first, unless that was ``stopped`` for the same inputs. Nothing is updated if a
        later question was asked meanwhile, or the answer is on the page already: an address fills in fields, whose
        changes ask the same question again. ``values`` are the inputs, the last random pair, the model whose pooling
        was selected last, the inputs whose download was stopped, and the questions.
        """
        *fields, random_pair, shown_model, stopped, questions = values
        is_newest, models = ask(questions), self.services.models
        try:
            inputs = Question.parse(*fields)
            if not all(map(models.is_here, inputs.models)):
                questions[SHOWN] = None
                if tuple(fields) == tuple(stopped or ()) and (missing := models.missing(inputs.models)):
                    question = ask_first(missing, "Download, or choose another model.")
                    return {**self._nothing(), self.answer: question, self.download: gr.update(visible=True)}
                questions[MISSING] = inputs.models
                return {**self._nothing(), self.download_needed: str(next(_downloads))}
            opened = _with_pooling(inputs.model)
            if str(opened) != shown_model:
                # A model that was selected just now is opened with the pooling in its name, or its own.
                inputs = replace(inputs, pooling=models.get(opened, VectorModel).pooling)
            last = questions.get(SHOWN)
            is_shown = isinstance(last, Answer) and last.inputs == inputs and not last.errors
            answer = None if is_shown else compute(models, inputs, random_pair)
        except UserFacingError as wrong:
            if not is_newest():
                return {self.answer: gr.skip()}
            questions[SHOWN] = wrong
            return {**self._nothing(), self.answer: error_message(wrong)}
        if answer is None or not is_newest():
            return {self.answer: gr.skip()}
        questions[SHOWN] = answer
        base_url = request.headers.get("referer", "http://127.0.0.1:7860").partition("?")[0]
        return {
            self.result: answer,
            self.pooling: gr.skip() if inputs.pooling == fields[3] else pooling_radio(inputs.pooling),
            self.shown_model: str(opened),
            self.lesson: note(answer.example.lesson if answer.example else ""),
            **self._scores(answer),
            **self._words(answer.comparison),
            self.token_map: answers.token_map(answer.tokens),
            self.download: hidden(),
            self.stop: hidden(),
            self.link: answers.link(base_url, inputs),
            self.as_json: json.dumps(answer.comparison.to_json(), ensure_ascii=False, indent=1),
            self.as_python: answers.as_python(inputs),
            self.as_curl: answers.as_curl(base_url, inputs),
        }

    def load_models(self, request: gr.Request, *values: Any) -> Iterator[Update]:
        """Downloads the missing models of the last question and shows how far that is, until something else is shown.

        ``values`` are the inputs, those whose download was stopped, and the questions.
        """
        *inputs, stopped, questions = values
        models, missing = self.services.models, questions.get(MISSING, ())
        if tuple(inputs) == tuple(stopped or ()) or all(map(models.is_here, missing)):
            yield {self.answer: gr.skip()}
            return

        def download(watch: Watch) -> Update:
            models.download(missing, watch)
            return {}

        for update in self.loading.run(request, download, self._nothing()):
            if questions[SHOWN] is not None:
                # Another question was answered meanwhile.
                self.stop_loading(request)
                break
            yield {**update, self.stop: gr.update(visible=True)}
        if questions[SHOWN] is not None or all(map(models.is_here, missing)):
            # The fields are as they are now; the progress may have hidden an answer.
            questions[SHOWN] = None
            yield {self.stop: hidden(), self.download_ended: str(next(_downloads))}
        else:
            yield {self.stop: hidden()}

    def show_calibrated(self, answer: Answer | None) -> Update:
        """Shows the scores again once the curves of their models are measured."""
        if answer is None or any(self.services.is_calibrating(comparison.model) for comparison in answer.comparisons):
            return {self.calibration: gr.skip()}
        return self._scores(answer)

    def leave_out(self, answer: Answer | None, is_open: bool = True) -> Any:
        """The pair without each of its words in turn, if the tab is open: that takes a batch of its own."""
        if not is_open:
            return gr.skip()
        if answer is None:
            return note("Type two sentences first.")
        models, comparison = self.services.models, answer.comparison
        encoder = models.get(comparison.model, VectorModel, comparison.pooling, "query")
        cross_encoder = models.cross_encoder_or_none(comparison.cross_encoder)
        return answers.left_out(leave_one_out(encoder, cross_encoder, comparison), comparison)

    def explain(self, answer: Answer | None, questions: Questions, of_cross_encoder: bool = False) -> Any:
        """The contribution of each word to a score without an exact map, unless the page shows another answer."""
        if answer is None or not (of_cross_encoder or answer.comparison.lacks_words):
            return gr.skip()
        try:
            words = attribution(explain(self.services.models, answer.comparison, of_cross_encoder))
        except UserFacingError as wrong:
            words = error_message(wrong)
        return words if questions.get(SHOWN) is answer else gr.skip()

    def _nothing(self) -> Update:
        """Clears the results, so that none stands beside an error."""
        empty = (self.lesson, self.poolings, self.map_note, self.cross_words, self.token_map, self.tokens, self.link)
        code = (self.as_json, self.as_python, self.as_curl)
        return {
            self.result: None,
            **dict.fromkeys((*empty, *code), ""),
            self.word_map: visible(None),
            self.explain_cross: hidden(),
            self.download: hidden(),
            self.calibration: gr.update(active=False),
        }

    def _scores(self, answer: Answer) -> Update:
        home, pending, errors = self.services.settings.home, False, [*answer.errors]
        own_curves: list[Calibration | None] = []
        first_curves: dict[str, Calibration | None] = {}
        for comparison in answer.comparisons:
            by_pooling: dict[str, Calibration | None] = {}
            # Curves are stored under the names of encoders.
            model = str(replace(self.services.models.canonical(comparison.model), pooling=None))
            for name in comparison.by_pooling:
                try:
                    by_pooling[name] = calibration.load_calibration(model, name, home, comparison.weights)
                    if name == comparison.pooling and calibration.is_set_aside(model, name, home, comparison.weights):
                        errors.append(note(SET_ASIDE.format(comparison.model)))
                except UserFacingError as damaged:
                    errors.append(error_message(damaged))
                    by_pooling[name] = calibration.computed_curve(model, name, home, comparison.weights)
            if None in by_pooling.values():
                self.services.calibrate_later(comparison.model, comparison.pooling)
                pending = pending or self.services.is_calibrating(comparison.model)
            own_curves.append(by_pooling[comparison.pooling])
            first_curves = first_curves or by_pooling
        return {
            self.answer: answers.result(
                answer.comparisons, own_curves, answer.example, measuring=pending, errors=errors, tokens=answer.tokens
            ),
            self.poolings: answers.poolings(answer.comparison, first_curves, measuring=pending),
            self.calibration: gr.update(active=pending),
        }

    def _words(self, comparison: Comparison) -> Update:
        exact = None if comparison.is_blind else comparison.attribution
        vectors_only = note(comparison.no_map) if comparison.no_map or comparison.is_blind else ""
        sides = [("First", comparison.a), ("Second", comparison.b)]
        plot = figures.word_map(exact.words_a, exact.words_b, exact.matrix) if exact else None
        return {
            self.map_note: attribution(exact) if exact else vectors_only or waiting("Attributing the cosine …"),
            self.word_map: visible(plot),
            self.explain_cross: gr.update(visible=comparison.cross_score is not None and not comparison.is_blind),
            self.cross_words: "",
            self.tokens: "" if comparison.no_map else macro("compare/tokens")(sides=sides),
        }


def _with_pooling(model: ModelName) -> ModelName:
    """The model with the pooling in its name, without other settings."""
    return ModelName(model.name, pooling=model.pooling)


def _confirm_copy(link: str) -> None:
    gr.Info("The link is copied." if link.startswith("http") else link, duration=3)


def _sentence(label: str, value: str, elem_id: str) -> gr.Textbox:
    return gr.Textbox(value, label=label, lines=1, max_lines=8, elem_id=elem_id, min_width=280)
