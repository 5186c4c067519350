"""The Label page: a file becomes pairs worth judging, people judge them by keyboard, a model is measured and trained.

``/label?project=<id>&rater=<name>`` opens a project for a rater. The page shows the next pair at
once and sends the scores one after another (assets/label.js); each is stored before the next
(`services.annotations.project`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.address import keep_touched
from sbert_app.pages.components.events import (
    Questions,
    Update,
    enable_when,
    event_options,
    note_action,
    on_open,
    run_js,
)
from sbert_app.pages.components.file_panel import FilePanel, chosen_name, open_upload
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.components.pickers import (
    NO_CROSS_ENCODER,
    cross_encoder_picker,
    model_picker,
)
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.label.results import Results
from sbert_app.services.annotations import quality
from sbert_app.services.annotations.project import HIGHEST, LOWEST, Project, Projects
from sbert_app.services.annotations.selection import (
    REASONS,
    ProjectRequest,
    choose_pairs,
    says_yes_or_no,
)
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL, read_asset
from training.errors import InputError, UserFacingError

TAGLINE = "Judge your own pairs of sentences, see whether people agree, and measure or train a model on them."
NO_PROJECT = ""
SELECTION_NOTE = (
    "The two models score all pairs. One third of what you judge are the pairs that they rank most differently, one "
    "third lie nearest to the threshold, and one third are drawn at random. From a file of single sentences, the app "
    "makes pairs of neighbours and random pairs."
)


class Scale(NamedTuple):
    """The question to a rater, the keys in words, and the answers: key, score and meaning."""

    question: str
    keys: str
    answers: Sequence[tuple[str, int, str]]


# The meanings of the scores: the scale of the STS tasks (Agirre et al. 2012), in short.
MEANINGS = (
    "on different topics",
    "not equivalent, but on the same topic",
    "not equivalent, but share some details",
    "roughly equivalent, important details differ",
    "mostly equivalent, unimportant details differ",
    "the same meaning",
)
GRADED = Scale(
    "How similar is the meaning?",
    "the keys 0 to 5",
    [(str(score), score, meaning) for score, meaning in enumerate(MEANINGS)],
)
YES_NO = Scale(
    "Is the meaning the same?",
    "y for yes and n for no",
    [("y", HIGHEST, "yes"), ("n", LOWEST, "no")],
)
TO_FIVE = "0 to 5"
YES_OR_NO = "yes or no"

# The reasons for refusing ratings, as HTML, by project, rater and pair.
Refusals = dict[tuple[str, str, int], str]
# The number of following pairs that are sent with a card, so that a rating shows the next one at
# once.
MOST_AHEAD = 8
# What the browser sends if the rater cannot judge the pair.
NO_SCORE = "none"
# In place of a score on the card; None says that the rater cannot judge the pair.
NOT_JUDGED = "not judged"
REMEMBER = """window.nameInAddress(["project", "rater"], [project, rater])"""
# Digits are ratings unless a field has the focus, so the field that opened a project gives it up.
# Another field, which the person has reached by Tab since, keeps it.
BLUR = """if (document.activeElement?.closest("#%s")) document.activeElement.blur()"""


def build(services: Services) -> None:
    _LabelPage(services).wire()


class _LabelPage:
    """The components of the page and their event handlers.

    Attributes:
        begin: the button that opens the project for the rater.
        card: the pair to judge.
        new: the fold with the form of a new project.
        how_read: the panel of the uploaded file, which says how the file is read.
        second: the picker of the second model of a new project.
        enough: says what the chosen number of pairs is enough for.
        results: the lower half of the page.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.projects = Projects(services.settings.home)
        gr.HTML(messages.heading("Label", TAGLINE))
        with gr.Row(elem_id="label-choice"):
            # The value of a link may be sent before the choices have loaded, so any value is
            # allowed.
            self.project = gr.Dropdown(
                [("none yet", NO_PROJECT)],
                value=NO_PROJECT,
                label="Project",
                allow_custom_value=True,
                min_width=220,
                elem_id="label-project",
            )
            self.rater = gr.Textbox(
                label="Your name",
                info="Others’ ratings stay hidden until you have rated",
                elem_id="label-rater",
                max_lines=1,
                min_width=180,
            )
            self.begin = gr.Button("Judge", variant="primary", min_width=120, elem_id="label-begin")
        enable_when(
            self.begin, {self.project: "make a project first", self.rater: "type your name first"}
        )
        self.error = gr.HTML(elem_id="label-error")
        waiting = messages.waiting("Opening the projects …")
        self.card = gr.HTML(waiting, js_on_load=read_asset("label.js"), elem_id="label-card")
        with gr.Accordion("A new project", open=False, elem_id="label-new") as self.new:
            self._build_new(services)
        self.results = Results(services, self.projects, self.project)

    def _build_new(self, services: Services) -> None:
        with gr.Row():
            self.name = gr.Textbox(label="Name", max_lines=1, min_width=180, elem_id="label-name")
            self.data = gr.Textbox(
                "stsb:dev",
                label="Data",
                info="A built-in set or hf:<org>/<name>, unless you upload a file",
                max_lines=1,
                min_width=220,
                elem_id="label-data",
            )
            self.file = gr.File(
                label="Your own file", height=110, min_width=200, elem_id="label-file"
            )
            self.file.change(
                lambda path: gr.update(visible=path is None),
                self.file,
                self.data,
                **event_options(queue=False, trigger_mode="multiple"),
            )
        # The element ids begin with the name of the page.
        self.how_read = FilePanel(services, self.file, "label", "label")
        self.scale = gr.Radio(
            [TO_FIVE, YES_OR_NO], value=TO_FIVE, label="Scale", elem_id="label-scale"
        )
        with gr.Row():
            self.model = model_picker(
                services, info="Measured and trained later", elem_id="label-model"
            )
            # Pairs on which the two models disagree are worth judging.
            self.second = cross_encoder_picker()
            self.threshold = gr.Slider(
                0, 1, 0.5, step=0.01, label="Threshold", min_width=180, elem_id="label-at"
            )
            self.count = gr.Slider(
                15, 300, 60, step=15, label="Pairs to judge", min_width=180, elem_id="label-count"
            )
        self.enough = gr.HTML(how_many_are_enough(60, TO_FIVE), elem_id="label-enough")
        self.tab = MeasureTab.build(
            services,
            "label",
            "Choose the pairs",
            ("label-create", "label-stop", "label-status"),
            messages.note(SELECTION_NOTE),
            variant="secondary",
        )
        enable_when(self.tab.start, {self.name: "name the project first"})
        self.how_read.hold([self.tab.start])

    def wire(self) -> None:
        # Not empty once the person has opened a project. `note_action` changes it in place, so it is
        # not among the outputs.
        opened_by_person = gr.State({})

        def open_link(opened_by_person: Questions, request: gr.Request) -> Update:
            query = request.query_params
            update = self.open_project(query.get("project", NO_PROJECT), query.get("rater", ""))
            if opened_by_person:
                # The person has opened another project while the one in the address was read.
                return {self.error: gr.skip()}
            return update

        choice = [self.project, self.rater]
        card_outputs = [self.card, self.error]
        everything = [*choice, *card_outputs, self.new, *self.results.outputs]
        # The `Refusals` of the ratings that this page has sent.
        refusals = gr.State({})
        linked = on_open().then(
            open_link, opened_by_person, everything, **event_options(queue=False)
        )
        # If the person has typed a name before the link's project arrived, the name stays.
        keep_touched([self.rater], linked)
        for event, field in (
            (self.begin.click, self.begin),
            (self.rater.submit, self.rater),
            (self.project.input, self.project),
        ):
            event(
                note_action,
                opened_by_person,
                None,
                **event_options(queue=False, trigger_mode="multiple"),
            )
            opened = event(self.open_project, choice, everything, **event_options(queue=False))
            # The field gives up the focus, so that digits are ratings from now on.
            js = f"(project, rater) => {{ {BLUR % field.elem_id}; {REMEMBER}; }}"
            run_js(opened.then, js, choice)
        for name in ("judge", "take_back", "turn", "agree"):
            # An event of the card, which ``label.js`` triggers, has the name of its handler.
            pressed = getattr(self.card, name)(
                getattr(self, name),
                [*choice, refusals],
                card_outputs,
                **event_options(queue=False, trigger_mode="multiple"),
            )
            # The agreement is computed once for a burst of presses, as it takes a second for dozens
            # of raters.
            pressed.then(
                self.show_agreement,
                choice,
                self.results.outputs,
                **event_options(trigger_mode="always_last"),
            )
        plan = [self.count, self.scale]
        gr.on(
            [field.change for field in plan],
            how_many_are_enough,
            plan,
            self.enough,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        # Not empty once the person has chosen a scale.
        scale_choice = gr.State({})
        self.scale.input(
            note_action, scale_choice, None, **event_options(queue=False, trigger_mode="multiple")
        )
        self.file.upload(
            preset_scale,
            [self.file, scale_choice],
            self.scale,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        inputs = [
            self.name,
            self.data,
            self.file,
            self.scale,
            self.model,
            self.second,
            self.threshold,
            self.count,
            *self.how_read.inputs,
        ]
        # Without outputs to clear, an error or a stop changes the status only.
        make = self.tab.handler(self.make, {})
        created = self.tab.on(self.tab.start.click, make, inputs, [self.project, self.new])
        opened = created.success(
            self.open_project, choice, everything, **event_options(queue=False)
        )
        run_js(opened.then, f"(project, rater) => {REMEMBER}", choice)
        on_open(self.take, [self.new, self.file, *self.how_read.outputs])
        self.results.wire()

    def take(self, request: gr.Request) -> Update:
        """Opens the form of a new project with the file that another page has sent."""
        update = self.how_read.take(request)
        if "file" in request.query_params:
            update[self.new] = gr.Accordion(open=True)
        return update

    def open_project(self, project_id: str, rater: str) -> Update:
        """Opens a project at the first pair that this rater has not judged.

        Without a project, or for one that does not exist, opens the first of the list.
        """
        projects = self.projects.list()
        errors = [messages.error_message(error) for error in self.projects.store.list().damaged]
        # A key is the id of a project.
        choices = [(f"{info.name} ({info.source})", key) for key, info in projects]
        if not projects:
            choices.append(("none yet", NO_PROJECT))
        ids = [key for _, key in choices]
        if project_id not in ids:
            if project_id:
                errors.append(messages.error_message(f"there is no project {project_id[:80]!r}"))
            project_id = ids[0]
        update: Update = {
            self.project: gr.Dropdown(choices, value=project_id),
            self.rater: rater,
            self.error: "".join(errors),
        }
        if not projects:
            # An open form is never closed: its user may be at work there.
            update[self.new] = gr.Accordion(open=True)
        try:
            project = self.projects.open(project_id) if project_id else None
            results = self.results.for_project(project, rater)
        except UserFacingError as error:
            project = None
            results = self.results.for_project(None)
            update[self.error] = messages.error_message(error)
        if project is None:
            # The new version makes the browser accept presses again, even if the card is the same.
            card = macro("label/no_project")(version=next(_versions))
        else:
            # The first pair that is not judged, looked for from pair 0.
            card = self._card(project, rater, 0, seek=True)
        return {**update, self.card: card, **results}

    def judge(self, project_id: str, rater: str, refusals: Refusals, event: gr.EventData) -> Update:
        """Saves a rating for the project and the rater of the card.

        ``project_id`` and ``rater`` are the choice on the page, which may have changed while ratings
        were queued. The reason for refusing a rating stays on the page until the pair is rated:
        otherwise the answer to the next rating would remove it at once.
        """

        def work(project: Project) -> tuple[int, bool]:
            project.rate(event.rater, event.pair, _score(event))
            # True: from this pair, the card moves on to the next one that is not judged.
            return event.pair, True

        key = (event.project, event.rater, event.pair)
        # The pair is being rated again, so an earlier reason is dropped.
        refusals.pop(key, None)
        update = self._after(event.project, event.rater, refusals, work, key)
        # The card has the name of the rater without needless spaces. If another project or rater
        # has been chosen since, the card of that choice is shown.
        if (event.project, event.rater) != (project_id, _name(rater)):
            update[self.card] = self.open_project(project_id, rater)[self.card]
        return update

    def take_back(
        self, project_id: str, rater: str, refusals: Refusals, event: gr.EventData
    ) -> Update:
        """Undoes the last rating of the rater, and shows its pair."""

        def work(project: Project) -> tuple[int, bool]:
            pair = project.undo(rater)
            if pair is None:
                # Nothing is left to undo, so the card stays.
                pair = event.pair
            # False: the card shows this pair, although it may be judged.
            return pair, False

        return self._after(project_id, rater, refusals, work)

    def agree(self, project_id: str, rater: str, refusals: Refusals, event: gr.EventData) -> Update:
        """Saves the score that the raters have agreed on."""

        def work(project: Project) -> tuple[int, bool]:
            # A score of None takes back what was agreed on.
            project.agree(rater, event.pair, _score(event))
            # False: the card stays at this pair.
            return event.pair, False

        return self._after(project_id, rater, refusals, work)

    def turn(self, project_id: str, rater: str, refusals: Refusals, event: gr.EventData) -> Update:
        """Shows the next pair or the one before; a step is 1 or -1."""
        return self._after(project_id, rater, refusals, lambda _: (event.pair + event.step, False))

    def make(self, watch: Watch, *values: Any) -> Update:
        """Chooses the pairs of a new project; ``values`` come from its form."""
        name, data, file, scale, model, second, threshold, count, *how = values
        services = self.services
        source = chosen_name(services, file, *how) if file else (data or "").strip()
        source = services.access.check_data(source)
        if second == NO_CROSS_ENCODER:
            raise InputError("choose a second model: pairs are worth judging where two disagree")
        request = ProjectRequest(
            name, source, (model or DEFAULT_MODEL).strip(), second, float(threshold), int(count)
        )
        # Before the long work, so that a name that cannot be used is reported at once.
        self.projects.check_new(name)
        info, pairs = choose_pairs(request, services.models, services.settings.home, watch)
        info = replace(info, is_binary=scale == YES_OR_NO)
        if file:
            # The source is the upload, even if a copy with other columns was read.
            info = replace(info, source=Path(file).name)
        project_id = self.projects.create(info, pairs)
        return {
            self.tab.status: messages.note(SELECTION_NOTE),
            # `open_project` follows, and lists the other projects again.
            self.project: gr.update(choices=[(name, project_id)], value=project_id),
            self.new: gr.Accordion(open=False),
        }

    def _after(
        self,
        project_id: str,
        rater: str,
        refusals: Refusals,
        work: Callable[[Project], tuple[int, bool]],
        rating: tuple[str, str, int] | None = None,
    ) -> Update:
        """Does ``work`` and shows a card.

        Args:
            work: returns the pair of the card, and whether to move on from there to the next pair
                that is not judged.
            rating: the key in ``refusals`` if the work saves a rating, whose error is kept there.
                Other errors are shown once.
        """
        error = ""
        try:
            project = self.projects.open(project_id or "")
            pair, seek = work(project)
            card = self._card(project, rater, pair, seek)
        except UserFacingError as wrong:
            # The card is sent again, so that the browser accepts presses again.
            card = self.open_project(project_id or "", rater)[self.card]
            if rating:
                _, _, pair = rating
                problem = f"pair {pair + 1} is not saved: {wrong}"
                refusals[rating] = messages.error_message(problem)
            else:
                error = messages.error_message(wrong)
        place = (project_id, _name(rater))
        # A key is (project, rater, pair).
        problems = [html for key, html in refusals.items() if key[:2] == place]
        return {self.error: "".join([*problems, error]), self.card: card}

    def show_agreement(self, project_id: str, rater: str) -> Update:
        """Updates the agreement after a rating."""
        try:
            return self.results.after_rating(self.projects.open(project_id or ""), rater)
        except UserFacingError:
            # The card says what is wrong.
            return {self.results.agreement: gr.skip()}

    def _card(self, project: Project, rater: str, pair: int, seek: bool) -> Markup:
        """Renders the card of a pair: its number and reason, the rater's own score if there is one, and the progress.

        ``seek`` moves on to the next pair that the rater has not judged.
        """
        rater = _name(rater)
        count = len(project.pairs)
        # By pair, with None for a pair that the rater cannot judge: it counts as judged, too.
        own_scores = project.judgements().get(rater, {})
        # The number of the pair on the card. A step beyond the first or the last pair stays there.
        at = min(max(pair, 0), count - 1)
        # The pairs that are not judged, from here to the end and then from the start.
        ahead = [other for other in [*range(at, count), *range(at)] if other not in own_scores]
        if seek and ahead:
            at = ahead[0]
        # The pair on the card does not follow itself.
        if at in ahead:
            ahead.remove(at)
        following = []
        for other in ahead[:MOST_AHEAD]:
            next_pair = project.pairs[other]
            reason = REASONS.get(next_pair.reason, next_pair.reason)
            following.append(
                {
                    "at": other,
                    "first": next_pair.first,
                    "second": next_pair.second,
                    "reason": reason,
                }
            )
        current = project.pairs[at]
        return render(
            "label/templates/card.html",
            project=project.id,
            rater=rater,
            pair=current,
            at=at,
            count=count,
            judged=len(own_scores),
            score=own_scores.get(at, NOT_JUDGED),
            # What others have agreed on stays hidden until the rater has judged the pair.
            agreed=project.agreed().get(at) if at in own_scores else None,
            scale=YES_NO if project.info.is_binary else GRADED,
            reason=REASONS.get(current.reason, current.reason),
            ahead=following,
            # Without a name, nothing can be rated.
            named=bool(rater),
            # The new version makes the browser accept presses again, even if the card is the same.
            version=next(_versions),
        )


def how_many_are_enough(count: float, scale: str) -> Markup:
    """Renders what this number of judged pairs is enough for, in measuring and in training."""
    pairs = int(count)
    # The pairs that training leaves out, to measure the trained model on them.
    held_out = round(count * quality.HELD_OUT)
    is_binary = scale == YES_OR_NO
    # Functions of the number of pairs, which return half the width of an interval.
    margin = quality.agreement_margin if is_binary else quality.expected_margin
    return macro("label/enough")(
        is_binary=is_binary,
        count=pairs,
        fewest=quality.FEWEST,
        held_out=held_out,
        margin=round(margin(pairs)),
        held_out_margin=round(margin(held_out)),
    )


def preset_scale(path: str | None, scale_choice: Questions) -> Any:
    """Selects the scale of the judgements in an upload. A scale that the person has chosen stays."""
    try:
        is_binary = path is not None and says_yes_or_no(open_upload(path).reading)
    except UserFacingError:
        # The form says what is wrong with the file.
        return gr.skip()
    # The person may have chosen a scale while the file was read.
    if scale_choice:
        return gr.skip()
    return YES_OR_NO if is_binary else TO_FIVE


def _name(rater: str | None) -> str:
    """Returns the name of a rater without needless spaces."""
    return " ".join((rater or "").split())


def _score(event: gr.EventData) -> int | None:
    """Returns the score that the browser has sent; None if the rater cannot judge the pair."""
    return None if event.score == NO_SCORE else event.score


# A card that is sent again needs another number, so that the browser notices it and accepts presses
# again.
_versions = count()
