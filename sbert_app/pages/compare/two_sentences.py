"""The first tab of the front page: two sentences, their scores, and the words behind them."""

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Literal

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.compare import answers
from sbert_app.pages.compare.answers import Answer, Question, compute
from sbert_app.pages.components.address import keep_touched
from sbert_app.pages.components.events import (
    Questions,
    Update,
    ask,
    event_options,
    follow,
    listener,
    on_open,
    run_js,
)
from sbert_app.pages.components.measure_tab import MeasureTab, hidden
from sbert_app.pages.components.messages import (
    ask_first,
    error_message,
    note,
    progress_bar,
    waiting,
)
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
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.background.watch import Watch
from sbert_app.services.compare import calibration, examples
from sbert_app.services.compare.comparison import Comparison, leave_one_out_by_name
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, UserFacingError
from training.evaluation.calibration import Calibration
from training.models.model import VectorModel
from training.names import ModelName
from training.pooling import PAPER_POOLINGS

# The page opens with a pair that everybody understands: one word reverses the meaning.
OPENING_PAIR = next(pair for pair in examples.pairs() if pair.name == "negation")
# Keys of the questions of a visitor: the `Answer` or the error on the page, which is None while
# models are downloaded, and the models of the question that waits for a download.
SHOWN = "shown"
NEEDED = "needed"
# The page checks this often whether a curve has been measured.
CALIBRATION_SECONDS = 2.0
REMEMBER_PAIR = f"(...inputs) => window.rememberPair({answers.LONGEST_LINK}, ...inputs)"
ASK_AGAIN = """window.askAgain = () => trigger("again");"""
SET_ASIDE = "Your own calibration of {} was fitted on other weights and is not used. Fit it again on the page Evaluate."
STOPPED = "stopped: choose another model, or press Enter in a sentence to download this one."
# The next value of a component that fires an event by changing.
_downloads = count()


class TwoSentences:
    """The components of the tab and their event handlers.

    Attributes:
        answer: the scores of the pair, the progress of a download, or an error.
        calibrating: the progress of the calibration of a model, below the answer.
        ask_reason: the button that leaves out each word of a pair that gets no reason by itself.
        download: the button that starts a download after a stop or for a link.
        loading: runs the download of missing models.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        with gr.Row(equal_height=True):
            self.a = _sentence("First sentence", OPENING_PAIR.a, "sentence-a")
            self.b = _sentence("Second sentence", OPENING_PAIR.b, "sentence-b")
        with gr.Row(elem_classes="chips", elem_id="examples"):
            self.chips = [
                gr.Button(pair.name, size="sm", elem_classes="chip") for pair in examples.pairs()
            ]
            self.random_pair = gr.Button(
                "a random STSb pair", size="sm", elem_classes="chip", elem_id="random-pair"
            )
        self.answer = gr.HTML(waiting("Loading the model…"), elem_id="answer")
        self.calibrating = gr.HTML(elem_id="calibrating")
        self.ask_reason = gr.Button(
            "Why? Leave out each word", size="sm", visible=False, elem_id="ask-reason"
        )
        self.stop = gr.Button("Stop", size="sm", visible=False, elem_id="stop-loading")
        self.download = gr.Button("Download", size="sm", visible=False, elem_id="start-loading")
        with gr.Row(elem_id="compare-models"):
            self.model = model_picker(services)
            self.pooling = pooling_picker()
            self.cross = cross_encoder_picker()
            self.second = model_picker(
                services,
                "",
                "Second model",
                optional=True,
                info="Shown beside the first",
                elem_id="second-model",
            )
        model_settings(services, self.model, roles=True)
        # The last random STSb pair, an `ExamplePair`.
        self.random_stsb = gr.State(None)
        # The model whose pooling was selected last, by its name without other settings
        # (`_name_and_pooling`).
        self.shown_model = gr.State(DEFAULT_MODEL)
        # The inputs for which nothing is downloaded until the visitor asks: those whose download
        # was stopped, and those that a link has filled in.
        self.stopped = gr.State(None)
        # The newest question (`ask`), the answer on the page (`SHOWN`), and the models that have to
        # be downloaded for a question (`NEEDED`). Handlers change this dictionary in place, so the
        # state is never an output.
        self.questions = gr.State({})
        # The values change when models have to be downloaded, and when the download has ended.
        self.download_needed = gr.HTML("", visible="hidden")
        self.download_ended = gr.HTML("", visible="hidden")
        # Asks again if the answer on the page belongs to other sentences than the fields contain.
        self.asker = gr.HTML("", js_on_load=ASK_AGAIN, elem_id="ask-again")
        # Active while a missing curve is being measured.
        self.calibration = gr.Timer(CALIBRATION_SECONDS, active=False)
        # Made without buttons: a change of `download_needed` starts the download, and `stop` stores
        # the inputs before it stops the download.
        self.loading = MeasureTab(services, "compare", self.answer, stopped=STOPPED)
        self.inputs = [self.a, self.b, self.model, self.pooling, self.cross, self.second]
        report_button(
            services, *of_page("Comparison", {"Scores": [self.answer]}, self.inputs), "comparison"
        )
        gr.HTML(macro("compare/doors")())

    def wire(self) -> None:
        """Connects the fields with the answer, and with its downloads, its reason and its calibration."""
        inputs = self.inputs
        outputs = [
            self.answer,
            self.pooling,
            self.shown_model,
            self.ask_reason,
            self.stop,
            self.download,
            self.calibrating,
            self.calibration,
            self.download_needed,
        ]
        # Change events, because a paste does not fire an input event of Gradio. Keys that are typed
        # quickly get one answer, for the last state. The pooling is set by the answer itself, so
        # its changes must not ask again.
        edits = [field.change for field in inputs if field is not self.pooling]
        values = [*inputs, self.random_stsb, self.shown_model, self.stopped, self.questions]

        def answer_on(
            events: Any, trigger_mode: Literal["once", "always_last"] | None = None
        ) -> None:
            """Answers at an event. Then the address is updated, and a reason is added to the answer."""
            answered = listener(events)(
                self.answer_pair,
                values,
                outputs,
                **event_options(queue=False, trigger_mode=trigger_mode),
            )
            run_js(answered.then, REMEMBER_PAIR, inputs)
            answered.then(
                self.add_reason,
                self.questions,
                self.answer,
                **event_options(trigger_mode="always_last"),
            )

        changes = [*edits, self.pooling.input, self.download_ended.change]
        answer_on(changes, trigger_mode="always_last")
        # While a question is being answered, the mode "once" drops further ones of `asker`.
        answer_on(self.asker.again, trigger_mode="once")
        self.download_needed.change(
            self.load_models,
            [*inputs, self.stopped, self.questions],
            [*outputs, self.download_ended],
            **event_options(trigger_mode="always_last"),
        )
        # Enter and Download start a stopped download again.
        starts = [self.a.submit, self.b.submit, self.download.click]
        started = gr.on(starts, lambda: None, None, self.stopped, **event_options(queue=False))
        answer_on(started.then)
        restored = on_open(self.open_link, [*inputs, self.shown_model, self.stopped])
        opened = keep_touched(inputs, restored)
        # The cosine is shown before the cross-encoder has been loaded.
        first = opened.then(self.answer_first, values, outputs, **event_options(queue=False))
        answer_on(first.then)
        # By itself a pair gets a reason only if it is short (`is_automatic`). A click asks for the
        # reason of any pair.
        add_reason_now = partial(self.add_reason, is_asked=True)
        self.ask_reason.click(add_reason_now, self.questions, self.answer, **event_options())
        follow(
            self.calibration,
            self.show_calibrated,
            [self.questions],
            [self.answer, self.calibrating, self.calibration],
        )
        # The inputs are stored before the download stops: its end triggers an answer, which does
        # not download again for the stored inputs.
        stored = self.stop.click(
            lambda *values: values, inputs, self.stopped, **event_options(queue=False)
        )
        stored.then(self.stop_loading, None, None, **event_options(queue=False))
        self._wire_examples()

    def _wire_examples(self) -> None:
        """Fills in two sentences when the button of an example or of a random pair is pressed."""
        sentences = [self.a, self.b]
        for chip, pair in zip(self.chips, examples.pairs(), strict=True):
            chip.click(
                lambda pair=pair: (pair.a, pair.b), None, sentences, **event_options(queue=False)
            )

        def draw_pair() -> tuple[str, str, examples.ExamplePair]:
            pair = examples.random_stsb_pair(self.services.settings.home)
            return pair.a, pair.b, pair

        self.random_pair.click(draw_pair, None, [*sentences, self.random_stsb], **event_options())

    def open_link(self, request: gr.Request) -> tuple[Any, ...]:
        """Returns the inputs in the address, `shown_model` and `stopped`.

        Missing or invalid inputs keep their defaults. The models of a link are not downloaded
        without a click.
        """
        query = dict(request.query_params)
        # The picker opens with these poolings only.
        if query.get("pooling") not in PAPER_POOLINGS:
            query.pop("pooling", None)
        # Without a pooling in the address, another model is opened with its own pooling:
        # `answer_pair` selects it for every model but ``shown_model``.
        shown_model = ""
        if "pooling" in query or "model" not in query:
            # `answer_pair` reports an invalid name.
            with suppress(InputError):
                shown_model = str(_name_and_pooling(named_model(query.get("model"))))
        inputs = []
        updates = []
        # The fields of a question are in the order of the inputs. An update leaves a field as it is
        # where the address has no value, but ``stopped`` needs the value of every field.
        for parameter, field in zip(dataclasses.fields(Question), self.inputs, strict=True):
            value = query.get(parameter.name)
            # Only a sentence can be empty.
            if value is None or (value == "" and parameter.name not in ("a", "b")):
                inputs.append(field.value)
                updates.append(gr.skip())
            else:
                inputs.append(value)
                updates.append(value)
        has_models = any(query.get(name) for name in ("model", "cross", "second"))
        stopped = tuple(inputs) if has_models else None
        return *updates, shown_model, stopped

    def stop_loading(self, request: gr.Request) -> None:
        self.services.tasks.stop(self.loading.owner(request))

    def answer_first(self, request: gr.Request, *values: Any) -> Update:
        """Shows the answer when the page is opened, without the cross-encoder if that is still being loaded."""
        return self.answer_pair(request, *values, waits=False)

    def answer_pair(self, request: gr.Request, *values: Any, waits: bool = True) -> Update:
        """Shows the scores of a pair, or the error in the inputs. `add_reason` adds the reason later.

        Missing models are downloaded first, unless the download was stopped for the same inputs or a
        link has filled them in. Returns no updates if a newer request has started, or if the same
        answer is already shown: filling the fields from an address triggers this handler a second
        time.

        Args:
            values: the inputs, the last random pair, the model for which the pooling was selected
                last, the inputs whose download was stopped, and the questions: a dict with a mark of
                the newest request and, under `SHOWN`, the answer that the page shows.
            waits: whether to wait for a cross-encoder that is being loaded. If not, its score is
                left out.
        """
        *fields, random_pair, shown_model, stopped, questions = values
        # A function that tells whether no newer request has started since.
        is_newest = ask(questions)
        models = self.services.models
        try:
            inputs = Question.parse(*fields)
            # The pooling of the picker, which is updated at the end if another one was used.
            picked_pooling = inputs.pooling
            if not all(map(models.is_here, inputs.models)):
                # The progress of a download, or the request for a click, takes the place of the
                # answer.
                questions[SHOWN] = None
                is_stopped = tuple(fields) == stopped
                return self._without_models(inputs, is_stopped, questions)
            # Other settings of the model do not change its pooling.
            model = _name_and_pooling(inputs.model)
            if str(model) != shown_model:
                # A newly selected model is opened with the pooling in its name, or its own.
                inputs = replace(inputs, pooling=models.get(model, VectorModel).pooling)
            # The cross-encoder is on this machine (`is_here`), but perhaps not in memory yet
            # (`has`).
            is_loading = bool(inputs.cross) and not models.has(inputs.cross)
            if is_loading and not waits:
                inputs = replace(inputs, cross="")
            last = questions.get(SHOWN)
            # An answer with errors, such as a second model that is missing, is computed again.
            if isinstance(last, Answer) and last.inputs == inputs and not last.errors:
                # The page shows this answer already.
                return {self.answer: gr.skip()}
            # The address of the page, or of an app on this machine if the browser does not send it.
            base_url = request.headers.get("referer", "http://127.0.0.1:7860").partition("?")[0]
            answer = compute(models, inputs, random_pair, base_url)
        except UserFacingError as error:
            if not is_newest():
                return {self.answer: gr.skip()}
            questions[SHOWN] = error
            return {**self._nothing(), self.answer: error_message(error)}
        if not is_newest():
            return {self.answer: gr.skip()}
        questions[SHOWN] = answer
        pooling = gr.skip()
        if inputs.pooling != picked_pooling:
            pooling = pooling_radio(inputs.pooling)
        # The reason of an automatic answer is added without a click, after this handler.
        needs_click = answer.word_count > 0 and not answers.is_automatic(answer)
        return {
            **self._scores(answer),
            self.pooling: pooling,
            self.shown_model: str(model),
            self.ask_reason: gr.update(visible=needs_click),
            self.download: hidden(),
            self.stop: hidden(),
        }

    def _without_models(self, inputs: Question, is_stopped: bool, questions: Questions) -> Update:
        """Returns the update that starts the download of missing models, or asks for a click if ``is_stopped``."""
        # A click is asked for only after a stop or for a link. Even then, models in the cache of the
        # Hub are not missing, because they do not have to be downloaded.
        missing = self.services.models.missing(inputs.models) if is_stopped else []
        if missing:
            question = ask_first(missing, "Download, or choose another model.")
            return {
                **self._nothing(),
                self.answer: question,
                self.download: gr.update(visible=True),
            }
        # The new value of ``download_needed`` starts `load_models`, which reads this.
        questions[NEEDED] = inputs.models
        return {**self._nothing(), self.download_needed: str(next(_downloads))}

    def load_models(self, request: gr.Request, *values: Any) -> Iterator[Update]:
        """Downloads the missing models of the last question and shows the progress, until something else is shown.

        `answer_pair` has set ``questions[SHOWN]`` to None, and sets it again if it answers another
        question during the download.

        ``values`` are the inputs, the inputs whose download was stopped, and the questions.
        """
        *inputs, stopped, questions = values
        models = self.services.models
        needed = questions.get(NEEDED, ())
        # An earlier call may have downloaded the models, or the visitor may have pressed Stop.
        if tuple(inputs) == stopped or all(map(models.is_here, needed)):
            # A generator that yields nothing would clear the outputs.
            yield {self.answer: gr.skip()}
            return

        def download(watch: Watch) -> Update:
            models.download(needed, watch)
            return {}

        empty = self._nothing()
        # After a stop, `run` shows its message in the answer, unless the update contains the
        # answer.
        del empty[self.answer]
        for update in self.loading.run(request, download, empty):
            if questions[SHOWN] is not None:
                # Another question has been answered since.
                self.stop_loading(request)
                break
            yield {**update, self.stop: gr.update(visible=True)}
        if questions[SHOWN] is not None or all(map(models.is_here, needed)):
            # Ask again: the progress may have replaced the answer to another question, or this
            # question can now be answered. None makes `answer_pair` send the answer even if it has
            # sent the same one before.
            questions[SHOWN] = None
            yield {self.stop: hidden(), self.download_ended: str(next(_downloads))}
        else:
            # The download has failed, was stopped, or was replaced by a newer one.
            yield {self.stop: hidden()}

    def show_calibrated(self, questions: Questions) -> Update:
        """Shows the progress of a calibration, and then the calibrated scores."""
        answer = questions.get(SHOWN)
        if not isinstance(answer, Answer):
            return {self.calibration: gr.skip()}
        for comparison in answer.comparisons:
            if progress := self.services.calibration_progress(comparison.model):
                return {self.calibrating: progress_bar(progress)}
        # No curve is being measured any more. The update also ends the timer.
        return self._scores(answer)

    def add_reason(self, questions: Questions, is_asked: bool = False) -> Any:
        """Measures the scores without each word, and returns the answer with these scores, as HTML.

        Without a click (``is_asked``), pairs that are not short are left out (`is_automatic`).
        """
        answer = questions.get(SHOWN)
        if not isinstance(answer, Answer) or answer.changes is not None:
            return gr.skip()
        if not (is_asked or answers.is_automatic(answer)):
            return gr.skip()
        changes = leave_one_out_by_name(self.services.models, answer.comparison)
        if questions.get(SHOWN) is not answer:
            # The page shows another pair now.
            return gr.skip()
        answer = replace(answer, changes=changes)
        questions[SHOWN] = answer
        return self._scores(answer)[self.answer]

    def _nothing(self) -> Update:
        """Returns the update that clears the answer, so that an error is not shown beside an old answer."""
        return {
            self.answer: "",
            self.ask_reason: hidden(),
            self.download: hidden(),
            self.calibrating: "",
            self.calibration: gr.update(active=False),
        }

    def _scores(self, answer: Answer) -> Update:
        """Returns the update that shows an answer. Missing curves are measured in the background."""
        progress: TaskProgress | None = None
        errors = list(answer.errors)
        curves = []
        for comparison in answer.comparisons:
            by_pooling, problems = self._curves(comparison)
            curves.append(by_pooling)
            errors += problems
            if None in by_pooling.values():
                # Does nothing if the model is being calibrated already. If it cannot be calibrated,
                # there is no progress.
                self.services.calibrate_later(comparison.model, comparison.pooling)
                progress = progress or self.services.calibration_progress(comparison.model)
        html = answers.result(answer, curves, is_measuring=progress is not None, errors=errors)
        return {
            self.answer: html,
            self.calibrating: progress_bar(progress) if progress else "",
            self.calibration: gr.update(active=progress is not None),
        }

    def _curves(self, comparison: Comparison) -> tuple[dict[str, Calibration | None], list[Markup]]:
        """Returns the curve of each pooling, and the problems of the user's own curves, as HTML."""
        home = self.services.settings.home
        weights = comparison.weights
        # Curves are stored under the full names of encoders.
        model = str(replace(self.services.models.canonical(comparison.model), pooling=None))
        curves: dict[str, Calibration | None] = {}
        problems = []
        for pooling in comparison.by_pooling:
            try:
                curves[pooling] = calibration.load_calibration(model, pooling, home, weights)
                # The remark that the user's own curve is not used, as the weights have changed. Only
                # the selected pooling gets it, whose score is on the card.
                is_selected = pooling == comparison.pooling
                if is_selected and calibration.is_set_aside(model, pooling, home, weights):
                    problems.append(note(SET_ASIDE.format(comparison.model)))
            except UserFacingError as error:
                # The user's own curve cannot be read, so the curve fitted on STSb takes its place.
                problems.append(error_message(error))
                curves[pooling] = calibration.computed_curve(model, pooling, home, weights)
        return curves, problems


def _name_and_pooling(model: ModelName) -> ModelName:
    """Returns the model with the pooling in its name if there is one, and without other settings."""
    return ModelName(model.name, pooling=model.pooling)


def _sentence(label: str, value: str, elem_id: str) -> gr.Textbox:
    return gr.Textbox(value, label=label, lines=1, max_lines=8, elem_id=elem_id, min_width=280)
