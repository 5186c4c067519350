"""Long work that a visitor starts in a tab: Start and Stop, progress where the result will be, errors in its place.

    pickers = ModelAndData(services, "cost", DATA, "stsb:test")
    tab = MeasureTab.build(services, "cost", "Measure", ("measure-cost", "stop-cost", "cost-status"), PRESS_MEASURE)
    figure, table = gr.Plot(visible=False), gr.HTML()

    def measure(watch: Watch, model: str, data: str, …) -> Update:      in a thread of its own
        watch.report(0.5)
        return {tab.status: …, figure: visible(…), table: …}

    tab.wire(measure, pickers.inputs, {figure: hidden(), table: ""}, example=example)

Four facts about Gradio explain this module:

- A handler that is a generator and yields nothing clears its outputs, so `handler` always yields something.
- Gradio drops a press while an answer is on its way, unless the listener is one with "always_last".
- Only ``failure`` listeners learn of a fault of the app; without one, the progress bar would stay for ever.
- A component made in a thread, such as ``gr.Plot(figure)``, prepares its value twice, as a page and as an update.
  `visible` prepares it once, and copies a file once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gradio as gr

from sbert_app.pages.components.events import EVERY, LATEST, PRIVATE, UNQUEUED, Questions, Update, note_action
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.services.background.tasks import Owner, SupersededError, TaskResult
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from training.errors import StoppedError, UserFacingError

# The labels of the Stop button.
IDLE = "Stop"
STOPPING = "Stopping …"


def visible(value: Any) -> Update:
    """An update that shows a component with this value, or hides it if the value is None."""
    return gr.update(value=value, visible=value is not None)


def hidden() -> Update:
    """An update that hides a component, whatever its value."""
    return gr.update(visible=False)


@dataclass(frozen=True)
class MeasureTab:
    """The components of the work, and the events that start it. A browser session does one work of each name at a time.

    It stops when the user presses Stop or starts it again; leaving the page stops all work of the session.

    Attributes:
        status: the gr.HTML with the progress, then the result or an error message.
        start: the gr.Button that starts the work, disabled while it runs.
        stop: the gr.Button that stops the work, visible while it runs.
        stopped: the message after a stop.
        buttons: the gr.Row of both buttons, to which a tab can add: ``with tab.buttons: …``.
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
        """Builds Start, called ``label``, and Stop in a row, and the status below; ``ids`` belong to these three."""
        with gr.Row(elem_classes="actions") as buttons:
            start = gr.Button(label, variant=variant, elem_id=ids[0])
            stop = gr.Button(IDLE, visible=False, elem_id=ids[1])
        return cls(services, name, gr.HTML(status, elem_id=ids[2]), start, stop, buttons=buttons, **options)

    @property
    def outputs(self) -> list[Any]:
        """The components that `run` updates itself."""
        return [component for component in (self.status, self.stop, self.start) if component is not None]

    @property
    def tab(self) -> gr.Tab:
        """The gr.Tab that contains the status."""
        block = self.status
        while not isinstance(block, gr.Tab):
            block = block.parent
        return block

    def owner(self, request: gr.Request) -> Owner:
        return (request.session_hash or "", self.name)

    def __post_init__(self) -> None:
        def halt(request: gr.Request) -> Any:
            self.services.tasks.stop(self.owner(request))
            return gr.Button(STOPPING, interactive=False)

        if self.stop is not None:
            self.stop.click(halt, None, self.stop, **UNQUEUED)

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
            measure: ``measure(watch, *values)`` returns the update of the outputs; the values are those of ``inputs``.
            empty: the update of the outputs without a result: after an error or a stop.
            outputs: further outputs, which an error or a stop leaves as they are.
            limit: the number of visitors who can measure at the same time; others wait.
            example: returns the update of the outputs when the tab is first selected, measured beforehand.
            others: further buttons, which measure something else.
        """
        outputs = [*outputs, *empty]
        # The results are dimmed from a change of an input on, until they are measured again.
        ids = json.dumps([part.elem_id for part in (self.status, *outputs) if part.elem_id])
        changes = [getattr(part, name, None) for part in inputs for name in ("input", "upload", "clear")]
        dim, undim = (f"() => window.dim({ids}, {is_stale})" for is_stale in ("true", "false"))
        if any(changes):
            gr.on([change for change in changes if change], None, None, None, js=dim, **EVERY)
        for button, work in ((self.start, measure), *others):
            done = self.on(button.click, self.handler(work, empty), inputs, outputs, concurrency_limit=limit)
            button.click(None, None, None, js=f"() => window.dim(['{self.status.elem_id}'], false)", **EVERY)
            done.then(None, None, None, js=undim, **EVERY)
        if example is None:
            return
        was_opened = gr.State(False)
        starts = gr.State({})
        self.start.click(note_action, starts, None, **EVERY)

        def first(opened: bool, starts: Questions) -> Update:
            try:
                update = {} if opened else example()
            except UserFacingError as error:
                # The data of the example is not on this machine, and there is no network.
                update = {self.status: error_message(error)}
            # What a person measures meanwhile stays.
            return {was_opened: True, **({} if starts else update)}

        self.on(self.tab.select, first, [was_opened, starts], [was_opened, *outputs], concurrency_limit=limit)

    def on(
        self, events: Any, handler: Callable[..., Any], inputs: Sequence[Any], outputs: Iterable[Any], **options: Any
    ) -> Any:
        """Listens to an event, such as ``button.click``, or to several, with a `handler` or one that calls `run`.

        After a fault of the app, a message takes the place of the result.
        """

        def failed() -> Update:
            return {self.status: error_message(INTERNAL_ERROR), **self._buttons(running=False)}

        listen = partial(gr.on, events) if isinstance(events, list) else events
        parts = list(dict.fromkeys([*self.outputs, *outputs]))
        event = listen(handler, inputs, parts, **{"concurrency_limit": 2, **LATEST, **options})
        event.failure(failed, None, self.outputs, **PRIVATE)
        return event

    def handler(
        self,
        measure: Callable[..., Update],
        empty: Update,
        on_stop: Update | None = None,
        unless: Callable[..., bool] | None = None,
    ) -> Callable[..., Iterator[Update]]:
        """The handler of an event that measures; see `wire`.

        Args:
            on_stop: the update after a stop; by default ``empty``.
            unless: ``unless(*values)`` says whether there is nothing to measure; everything stays as it is then.
        """

        def handle(request: gr.Request, *values: Any) -> Iterator[Update]:
            if unless is not None and unless(*values):
                yield {self.status: gr.skip()}
            else:
                yield from self.run(request, lambda watch: measure(watch, *values), empty, on_stop)

        return handle

    def run(
        self, request: gr.Request, work: Callable[[Watch], Update], empty: Update, on_stop: Update | None = None
    ) -> Iterator[Update]:
        """Does ``work`` in a thread and yields the updates of the components, for handlers that do more than that.

        The last update is the result of ``work``. After a user error it is ``empty`` with the message of the error.
        After Stop it is ``on_stop``, by default ``empty``, with the message ``stopped`` unless it has its own.
        """
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
            yield {self.status: error_message(self.stopped), **update, **self._buttons(running=False)}

    def _buttons(self, running: bool) -> Update:
        update: Update = {}
        if self.stop is not None:
            update[self.stop] = gr.Button(IDLE, interactive=True, visible=running)
        if self.start is not None:
            update[self.start] = gr.Button(interactive=not running)
        return update
