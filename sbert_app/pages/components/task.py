"""A long task in a tab: its progress bar where the result will be, and a Stop button while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, progress_bar
from sbert_app.services.container import Services
from sbert_app.services.tasks import TaskResult
from training.errors import Stopped, UserFacingError

Update = dict[Any, Any]  # component -> its new value


@dataclass(frozen=True)
class TaskWidget:
    """The components of a task. A person has at most one task of a name at a time."""

    name: str
    status: Any  # gr.HTML: progress, then the result, or an error message
    halt: Any  # gr.Button: Stop

    def owner(self, request: gr.Request) -> str:
        """The key of the task: the browser session and the name."""
        return f"{request.session_hash} {self.name}"

    def run(
        self,
        services: Services,
        request: gr.Request,
        work: Callable[[Any, Any], Any],
        show: Callable[[Any], Update],
        otherwise: Update,
    ) -> Iterator[Update]:
        """Run ``work(report_progress, should_stop)`` as a task, and yield the updates of the components.

        The last update is ``show(result)``; after a user error or Stop it is ``otherwise`` with the message.
        """
        idle = {self.halt: gr.Button("Stop", interactive=False)}
        try:
            for event in services.tasks.run(self.owner(request), "Preparing", work):
                if isinstance(event, TaskResult):
                    yield {**show(event.value), **idle}
                else:
                    yield {self.status: progress_bar(event), self.halt: gr.Button("Stop", interactive=True)}
        except UserFacingError as error:
            yield {**otherwise, self.status: error_message(error), **idle}
        except Stopped:
            yield {**otherwise, self.status: error_message("stopped before there was a result."), **idle}

    def wire(self, services: Services, *events: Any) -> None:
        """Connect the Stop button, and show a message when one of ``events`` fails for a fault of the app."""

        def stop(request: gr.Request) -> Any:
            services.tasks.stop(self.owner(request))
            return gr.Button("Stopping …", interactive=False)

        def failed() -> tuple[Any, ...]:
            return error_message(INTERNAL_ERROR), gr.Button("Stop", interactive=False)

        self.halt.click(stop, None, self.halt, queue=False, **PRIVATE)
        for event in events:
            event.failure(failed, None, [self.status, self.halt], **PRIVATE)
