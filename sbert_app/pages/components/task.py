"""Long work in a tab of the Explore page: its bar where the result will be, a Stop button that lives meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from sbert_app.pages.components.common import error_message, progress_bar
from sbert_app.services.container import Services
from sbert_app.services.tasks import TaskResult
from training.errors import InputError, Stopped

OUR_FAULT = "this failed for a reason of our own, which the app's log tells."

Update = dict[Any, Any]  # component -> its new value


@dataclass(frozen=True)
class TaskWidget:
    """Where the work of a tab shows."""

    name: str  # of the work: one at a time for each person
    status: Any  # gr.HTML: the bar, then what was found, or one sentence about what is wrong
    halt: Any  # gr.Button: Stop

    def owner(self, request: gr.Request) -> str:
        """Whose work it is."""
        return f"{request.session_hash} {self.name}"

    def run(
        self,
        services: Services,
        request: gr.Request,
        work: Callable[[Any, Any], Any],
        show: Callable[[Any], Update],
        otherwise: Update,
    ) -> Iterator[Update]:
        """Do ``work(tell, should_stop)``; then ``show`` its result, or ``otherwise`` where there is none."""
        idle = {self.halt: gr.Button("Stop", interactive=False)}
        try:
            for event in services.watched.run(self.owner(request), "Preparing", work):
                if isinstance(event, TaskResult):
                    yield {**show(event.value), **idle}
                else:
                    yield {self.status: progress_bar(event), self.halt: gr.Button("Stop", interactive=True)}
        except InputError as error:
            yield {**otherwise, self.status: error_message(str(error)), **idle}
        except Stopped:
            yield {**otherwise, self.status: error_message("stopped before anything was found."), **idle}

    def wire(self, services: Services, *events: Any) -> None:
        """Let the Stop button stop, and an error of our own be said."""

        def stop(request: gr.Request) -> Any:
            services.watched.stop(self.owner(request))
            return gr.Button("Stopping …", interactive=False)

        def failed() -> tuple[Any, ...]:
            return error_message(OUR_FAULT), gr.Button("Stop", interactive=False)

        private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        self.halt.click(stop, None, self.halt, queue=False, **private)
        for event in events:
            event.failure(failed, None, [self.status, self.halt], **private)
