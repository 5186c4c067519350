"""A long task in a tab: its progress bar where the result will be, and a Stop button while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import gradio as gr

from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.services.container import Services
from sbert_app.services.tasks import ReportProgress, ShouldStop, Superseded, TaskResult
from training.errors import Stopped, UserFacingError

Update = dict[Any, Any]  # component -> its new value
Result = TypeVar("Result")

IDLE, STOPPING = "Stop", "Stopping …"  # on the Stop button


@dataclass(frozen=True)
class TaskWidget:
    """The components of a task. A browser session has at most one task of a name at a time.

    A task stops when the user presses Stop or starts it again; leaving the page stops all tasks of the session.
    """

    name: str
    status: Any  # gr.HTML: progress, then the result, or an error message
    stop_button: Any = None  # gr.Button, enabled while the task runs
    start_button: Any = None  # gr.Button, disabled while the task runs
    stopped: str = "stopped before there was a result."

    @property
    def outputs(self) -> list[Any]:
        """The components that ``run`` updates by itself."""
        return [each for each in (self.status, self.stop_button, self.start_button) if each is not None]

    def owner(self, request: gr.Request) -> str:
        """The key of the task: the browser session and the name."""
        return f"{request.session_hash} {self.name}"

    def run(
        self,
        services: Services,
        request: gr.Request,
        work: Callable[[ReportProgress, ShouldStop], Result],
        show: Callable[[Result], Update],
        on_error: Update,
        on_stop: Update | None = None,
    ) -> Iterator[Update]:
        """Run ``work(report_progress, should_stop)`` as a task, and yield the updates of the components.

        The last update is ``show(result)``. After a user error it is ``on_error`` with the error's message; after
        Stop, ``on_stop`` (None: the same as ``on_error``) with ``stopped`` as the message, unless it has its own.
        """
        yield {self.status: gr.skip(), **self._buttons(running=True)}
        try:
            for event in services.tasks.run(self.owner(request), "Preparing", work):
                if isinstance(event, TaskResult):
                    yield {**show(event.value), **self._buttons(running=False)}
                else:
                    yield {self.status: progress_bar(event)}
        except UserFacingError as error:
            yield {**on_error, self.status: error_message(error), **self._buttons(running=False)}
        except Superseded:
            yield {self.status: gr.skip()}  # the newer task updates the components
        except Stopped:
            update = on_error if on_stop is None else on_stop
            yield {self.status: error_message(self.stopped), **update, **self._buttons(running=False)}

    def wire(self, services: Services, *events: Any) -> None:
        """Connect the Stop button; show a message when one of ``events`` fails for a fault of the app."""

        def stop(request: gr.Request) -> Any:
            services.tasks.stop(self.owner(request))
            return gr.Button(STOPPING, interactive=False)

        def failed() -> Update:
            return {self.status: error_message(INTERNAL_ERROR), **self._buttons(running=False)}

        if self.stop_button is not None:
            self.stop_button.click(stop, None, self.stop_button, **UNQUEUED)
        for event in events:
            event.failure(failed, None, self.outputs, **PRIVATE)

    def _buttons(self, running: bool) -> Update:
        update: Update = {}
        if self.stop_button is not None:
            update[self.stop_button] = gr.Button(IDLE, interactive=running)
        if self.start_button is not None:
            update[self.start_button] = gr.Button(interactive=not running)
        return update
