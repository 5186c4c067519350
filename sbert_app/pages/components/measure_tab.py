"""Long work that a visitor starts in a tab: Start and Stop, progress where the result will be, errors in its place.

    pickers = ModelAndData(services, "cost", DATA, "stsb:test")
    tab = MeasureTab.build(services, "cost", "Measure", ("measure-cost", "stop-cost", "cost-status"), PRESS_MEASURE)
    figure, table = gr.Plot(visible=False), gr.HTML()

    def measure(watch: Watch, model: str, data: str, …) -> Update:      in a thread of its own
        watch.report(0.5)
        return {tab.status: …, figure: visible(…), table: …}

    tab.wire(measure, pickers.inputs, {figure: hidden(), table: ""}, example=example)

What has to be known of Gradio for it is written here:

- A handler that is a generator and yields nothing clears its outputs: `handler` says what is to stay.
- A press while an answer is on its way is dropped, unless the listener is one with "always_last".
- What fails for a fault of the app is told to ``failure`` listeners only; without one, the bar stands for ever.
- A component made in a thread, as ``gr.Plot(figure)``, prepares its value as that of a page, and then once more as an
  update: `visible` does it once, and does not copy a file twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gradio as gr

from sbert_app.pages.components.events import LATEST, PRIVATE, UNQUEUED, Update
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.services.background.tasks import Superseded, TaskResult
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from training.errors import Stopped, UserFacingError

IDLE, STOPPING = "Stop", "Stopping …"  # on the Stop button


def visible(value: Any) -> Update:
    """An update: the component is visible with this value; hidden if it is None."""
    return gr.update(value=value, visible=value is not None)


def hidden() -> Update:
    """An update: the component is hidden, whatever its value."""
    return gr.update(visible=False)


@dataclass(frozen=True)
class MeasureTab:
    """The components of the work, and the events that start it. A browser session does one of a name at a time.

    It stops when the user presses Stop or starts it again; leaving the page stops all work of the session.
    """

    services: Services
    name: str
    status: Any  # gr.HTML: progress, then the result, or an error message
    start: Any = None  # gr.Button, disabled while the work runs
    stop: Any = None  # gr.Button, there while the work runs
    stopped: str = "stopped before there was a result."
    buttons: Any = None  # gr.Row of both, for more: ``with tab.buttons: …``

    @classmethod
    def build(
        cls,
        services: Services,
        name: str,
        label: str,
        ids: tuple[str, str, str],
        status: str,
        variant: Literal["primary", "secondary"] = "primary",
        **options: Any,
    ) -> MeasureTab:
        """A row with Start, called ``label``, and Stop; below it the status. ``ids``: of the three, in this order."""
        with gr.Row(elem_classes="actions") as buttons:
            start = gr.Button(label, variant=variant, elem_id=ids[0])
            stop = gr.Button(IDLE, visible=False, elem_id=ids[1])
        return cls(services, name, gr.HTML(status, elem_id=ids[2]), start, stop, buttons=buttons, **options)

    @property
    def outputs(self) -> list[Any]:
        """The components that `run` updates by itself."""
        return [component for component in (self.status, self.stop, self.start) if component is not None]

    @property
    def tab(self) -> gr.Tab:
        """The tab in which it stands."""
        block = self.status
        while not isinstance(block, gr.Tab):
            block = block.parent
        return block

    def owner(self, request: gr.Request) -> str:
        return f"{request.session_hash} {self.name}"

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
    ) -> None:
        """Measure when Start is pressed.

        Args:
            measure: ``measure(watch, *values)`` with those of ``inputs`` -> the update of the outputs.
            empty: what the outputs become where there is no result: after an error, or a stop.
            outputs: those that keep what they show then.
            limit: how many visitors measure at the same time; others wait for their turn.
            example: what the outputs become when the tab is first selected: what ships measured.
        """
        handler, outputs = self.handler(measure, empty), [*outputs, *empty]
        self.on(self.start.click, handler, inputs, outputs, concurrency_limit=limit)
        if example is None:
            return
        was_opened = gr.State(False)

        def first(opened: bool) -> Update:
            try:
                return {was_opened: True, **({} if opened else example())}
            except UserFacingError as error:  # its data is not on this machine, and there is no network
                return {was_opened: True, self.status: error_message(error)}

        self.on(self.tab.select, first, [was_opened], [was_opened, *outputs], concurrency_limit=limit)

    def on(
        self, events: Any, handler: Callable[..., Any], inputs: Sequence[Any], outputs: Iterable[Any], **options: Any
    ) -> Any:
        """Listen to an event, such as ``button.click``, or to several, with a `handler` or one that calls `run`.

        After a fault of the app, a message stands in the place of the result.
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
            on_stop: what the outputs become after a stop, where that is not ``empty``.
            unless: ``unless(*values)`` -> whether there is nothing to measure: everything stays as it is.
        """

        def handle(request: gr.Request, *values: Any) -> Iterator[Update]:
            if unless is not None and unless(*values):
                yield {self.status: gr.skip()}  # a generator that yields nothing would clear its outputs
            else:
                yield from self.run(request, lambda watch: measure(watch, *values), empty, on_stop)

        return handle

    def run(
        self, request: gr.Request, work: Callable[[Watch], Update], empty: Update, on_stop: Update | None = None
    ) -> Iterator[Update]:
        """Do ``work`` in a thread, and yield the updates of the components: for handlers that do more than that.

        The last update is what it returns. After a user error it is ``empty`` with the error's message; after Stop,
        ``on_stop`` (None: ``empty``) with ``stopped`` as the message, unless it has its own.
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
        except Superseded:
            yield {self.status: gr.skip()}  # the newer work updates the components
        except Stopped:
            update = empty if on_stop is None else on_stop
            yield {self.status: error_message(self.stopped), **update, **self._buttons(running=False)}

    def _buttons(self, running: bool) -> Update:
        update: Update = {}
        if self.stop is not None:
            update[self.stop] = gr.Button(IDLE, interactive=True, visible=running)
        if self.start is not None:
            update[self.start] = gr.Button(interactive=not running)
        return update
