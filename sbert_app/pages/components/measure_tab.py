"""Long work that a visitor starts in a tab, with Start and Stop. Progress and errors take the place of the result.

    pickers = ModelAndData(services, "cost", DATA, "stsb:test")
    ids = ("measure-cost", "stop-cost", "cost-status")
    tab = MeasureTab.build(services, "cost", "Measure", ids, PRESS_MEASURE)
    figure = gr.Plot(visible=False)
    table = gr.HTML()

    def measure(watch: Watch, model: str, data: str, …) -> Update:      called in a thread
        watch.report(0.5)
        return {tab.status: …, figure: visible(…), table: …}

    tab.wire(measure, pickers.inputs, {figure: hidden(), table: ""}, example=example)

Four facts about Gradio explain this module:

- A generator that yields nothing clears the outputs of its event, so `handler` always yields
  something.
- Gradio drops a press while an answer is on its way, unless the trigger mode of the listener is
  "always_last".
- Only ``failure`` listeners are told about a fault of the app. Without one, the progress bar would
  stay for ever.
- A component made in a thread, such as ``gr.Plot(figure)``, prepares its value twice, for the page
  and for the update. `visible` prepares it once, so that a file is copied once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from sbert_app.pages.components.events import (
    Questions,
    Update,
    event_options,
    listener,
    note_action,
    run_js,
)
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.services.background.tasks import Owner, SupersededError, TaskResult
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from training.errors import StoppedError, UserFacingError

# The labels of the Stop button.
STOP = "Stop"
STOPPING = "Stopping …"


def visible(value: Any) -> Update:
    """Returns an update that shows a component with this value, or hides it if the value is None."""
    return gr.update(value=value, visible=value is not None)


def hidden() -> Update:
    """Returns an update that hides a component and leaves its value."""
    return gr.update(visible=False)


@dataclass(frozen=True)
class MeasureTab:
    """The components for long work, and the events that start it.

    The work stops when the user presses Stop or starts work of the same name again. All work of a
    session stops when the page is left.

    Attributes:
        name: the name of the work. A session does one work of a name at a time.
        status: the gr.HTML with the progress, and then the result or an error message.
        start: the gr.Button that starts the work; it is disabled while the work runs. None for a tab
            whose work starts otherwise.
        stop: the gr.Button that stops the work; it is visible while the work runs. None for a tab
            without one.
        stopped: the message after a stop.
        buttons: the gr.Row with both buttons, where a tab can add more: ``with tab.buttons: …``.
    """

    services: Services
    name: str
    status: Any
    start: Any = None
    stop: Any = None
    stopped: str = "stopped before there was a result."
    buttons: Any = None

    @classmethod
    def build(
        cls,
        services: Services,
        name: str,
        label: str,
        ids: tuple[str, str, str],
        status: str = "",
        variant: Literal["primary", "secondary"] = "primary",
        **options: Any,
    ) -> MeasureTab:
        """Builds Start and Stop in a row, and the status below.

        Args:
            label: the label of Start.
            ids: the element ids of Start, Stop and the status.
            status: the HTML of the status when the page opens.
            options: further attributes of the tab, such as ``stopped``.
        """
        start_id, stop_id, status_id = ids
        with gr.Row(elem_classes="actions") as buttons:
            start = gr.Button(label, variant=variant, elem_id=start_id)
            stop = gr.Button(STOP, visible=False, elem_id=stop_id)
        html = gr.HTML(status, elem_id=status_id)
        return cls(services, name, html, start, stop, buttons=buttons, **options)

    @property
    def outputs(self) -> list[Any]:
        """The components that `run` updates itself."""
        components = (self.status, self.stop, self.start)
        return [component for component in components if component is not None]

    @property
    def tab(self) -> gr.Tab:
        """The gr.Tab that contains the status."""
        block = self.status
        while not isinstance(block, gr.Tab):
            block = block.parent
        return block

    def owner(self, request: gr.Request) -> Owner:
        # Work of the same owner takes the place of earlier work.
        return (request.session_hash or "", self.name)

    def __post_init__(self) -> None:
        def halt(request: gr.Request) -> Any:
            self.services.tasks.stop(self.owner(request))
            return gr.Button(STOPPING, interactive=False)

        if self.stop is not None:
            self.stop.click(halt, None, self.stop, **event_options(queue=False))

    def wire(
        self,
        measure: Callable[..., Update],
        inputs: Sequence[Any],
        empty: Update,
        outputs: Iterable[Any] = (),
        limit: int = 2,
        example: Callable[[], Update] | None = None,
        others: Sequence[tuple[gr.Button, Callable[..., Update]]] = (),
    ) -> None:
        """Measures when Start is pressed.

        Args:
            measure: ``measure(watch, *values)`` returns the update of the outputs for the values of
                ``inputs``.
            empty: the update that clears the outputs after an error or a stop. Its keys are
                outputs.
            outputs: further outputs, which an error or a stop leaves as they are.
            limit: the number of visitors who can measure at the same time; others wait.
            example: returns the update of the outputs when the tab is selected for the first time.
            others: further buttons, each with its function in place of ``measure``.
        """
        # The keys of ``empty`` are components.
        outputs = [*outputs, *empty]
        # After a change of an input, the results are dimmed until they are measured again.
        ids = json.dumps([part.elem_id for part in (self.status, *outputs) if part.elem_id])
        changes = []
        for part in inputs:
            # These events come from a person only. Fields have the first one, uploads the others.
            for name in ("input", "upload", "clear"):
                if hasattr(part, name):
                    changes.append(getattr(part, name))
        if changes:
            run_js(changes, f"() => window.dim({ids}, true)")
        for button, work in ((self.start, measure), *others):
            done = self.on(
                button.click, self.handler(work, empty), inputs, outputs, concurrency_limit=limit
            )
            # The progress is not dimmed, and neither is the new result.
            run_js(button.click, f"() => window.dim(['{self.status.elem_id}'], false)")
            run_js(done.then, f"() => window.dim({ids}, false)")
        if example is None:
            return
        # Whether the tab has been selected before, so that its example is shown only once.
        was_opened = gr.State(False)
        # Not empty once a person has pressed Start. `note_action` changes this dictionary in place,
        # so `show_example` sees a press that comes while the example is made.
        starts = gr.State({})
        self.start.click(
            note_action, starts, None, **event_options(queue=False, trigger_mode="multiple")
        )

        def show_example(was_selected: bool, starts: Questions) -> Update:
            if was_selected:
                # Nothing changes, but an answer needs at least one component.
                return {was_opened: True}
            try:
                update = example()
            except UserFacingError as error:
                # The data of the example is not on this machine and cannot be downloaded.
                update = {self.status: error_message(error)}
            if starts:
                # A person has started to measure something while the example was made.
                return {was_opened: True}
            return {was_opened: True, **update}

        self.on(
            self.tab.select,
            show_example,
            [was_opened, starts],
            [was_opened, *outputs],
            concurrency_limit=limit,
        )

    def on(
        self,
        events: Any,
        handler: Callable[..., Any],
        inputs: Sequence[Any],
        outputs: Iterable[Any],
        concurrency_limit: int = 2,
    ) -> Any:
        """Calls ``handler`` at an event, such as ``button.click``, or at several events.

        The handler is made by the method `handler`, or calls `run` itself. Returns the event after
        which it has ended. After a fault of the app, a message takes the place of the result.
        """

        def failed() -> Update:
            return {self.status: error_message(INTERNAL_ERROR), **self._buttons(running=False)}

        # Without duplicates, as ``outputs`` may contain the status.
        parts = list(dict.fromkeys([*self.outputs, *outputs]))
        event = listener(events)(
            handler,
            inputs,
            parts,
            concurrency_limit=concurrency_limit,
            **event_options(trigger_mode="always_last"),
        )
        event.failure(failed, None, self.outputs, **event_options())
        return event

    def handler(
        self,
        measure: Callable[..., Update],
        empty: Update,
        on_stop: Update | None = None,
        unless: Callable[..., bool] | None = None,
    ) -> Callable[..., Iterator[Update]]:
        """Returns the handler of an event that measures.

        Args:
            measure: ``measure(watch, *values)`` returns the update of the outputs.
            empty: the update that clears the outputs after an error or a stop.
            on_stop: the update after a stop; by default ``empty``.
            unless: if ``unless(*values)`` is true, nothing is measured, and the page is not
                changed.
        """

        def handle(request: gr.Request, *values: Any) -> Iterator[Update]:
            if unless is not None and unless(*values):
                yield {self.status: gr.skip()}
            else:
                yield from self.run(request, lambda watch: measure(watch, *values), empty, on_stop)

        return handle

    def run(
        self,
        request: gr.Request,
        work: Callable[[Watch], Update],
        empty: Update,
        on_stop: Update | None = None,
    ) -> Iterator[Update]:
        """Does ``work`` in a thread and yields the updates of the components.

        The last update is the result of ``work``. After a user error it is ``empty`` with the
        message of the error. After Stop it is ``on_stop``, by default ``empty``, with the message
        ``stopped`` as the status unless it sets the status itself.
        """
        # An update needs at least one component, and there may be no buttons.
        yield {self.status: gr.skip(), **self._buttons(running=True)}
        try:
            events = self.services.tasks.run(self.owner(request), "Preparing", work)
            for event in events:
                if isinstance(event, TaskResult):
                    yield {**event.value, **self._buttons(running=False)}
                else:
                    yield {self.status: progress_bar(event)}
        except UserFacingError as error:
            yield {**empty, self.status: error_message(error), **self._buttons(running=False)}
        except SupersededError:
            # The newer work updates the components.
            yield {self.status: gr.skip()}
        except StoppedError:
            update = empty if on_stop is None else on_stop
            # ``update`` comes after the message, so that its status, if it has one, replaces the
            # message.
            yield {
                self.status: error_message(self.stopped),
                **update,
                **self._buttons(running=False),
            }

    def _buttons(self, running: bool) -> Update:
        update: Update = {}
        if self.stop is not None:
            update[self.stop] = gr.Button(STOP, interactive=True, visible=running)
        if self.start is not None:
            update[self.start] = gr.Button(interactive=not running)
        return update
