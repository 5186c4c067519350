"""A form that starts runs: what Start would do stands under it, at once and then with the measured time.

form = StartForm(store, inputs, planned, estimate)
form.estimate_on([field.change for field in inputs])      also form.estimate_after(event)
form.start_on(button, start, selected)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import EVERY, UNQUEUED, Asked, Update, ask
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.server.address import visitor_of
from sbert_app.services.runs.estimate import RunEstimate, can_measure_rate, known_rate, measure_rate
from sbert_app.services.runs.store import RunStore
from training.errors import UserFacingError

# Gradio fills a form field by field, each of which fires its event, and fields in closed folds some ticks after it runs
# the next event. What is asked before that would be asked of some old values.
SETTLED = "() => new Promise((settled) => setTimeout(settled, 150))"
# (rate, measuring=False): shows what the runs would do; without a rate how long is unknown, or being measured
Plan = Callable[..., Markup]


@dataclass(frozen=True)
class StartForm:
    """The events of such a form.

    Attributes:
        store: the runs so far.
        inputs: the fields of the form.
        planned: where the estimate is shown, or what is wrong with the form.
        estimate: from the values of the fields to the estimate of a run, which the rate of all is measured with, and
            how to show it. Raises UserFacingError if it could not start.
        describe: from that estimate and the values to the updates of ``described``, what else the page says of them.
    """

    store: RunStore
    inputs: Sequence[Any]
    planned: gr.HTML
    estimate: Callable[..., tuple[RunEstimate, Plan]]
    describe: Callable[..., Update] = lambda *_: {}
    described: Sequence[Any] = ()
    asked: gr.State = field(default_factory=lambda: gr.State({}))  # no answer to older values is shown

    def estimate_on(self, events: Sequence[Any]) -> None:
        """Show the estimate at these events of the fields."""
        self._estimate_after(gr.on(events, None, None, None, js=SETTLED, **EVERY))

    def estimate_after(self, event: Any) -> None:
        """Show the estimate when the handler of an event is done."""
        self._estimate_after(event.then(None, None, None, js=SETTLED))

    def start_on(self, button: gr.Button, start: Callable[..., str], selected: Any) -> Any:
        """Start at a press of ``button``; ``selected`` gets the id that ``start(visitor, *values)`` returns."""

        def press(request: gr.Request, *values: Any) -> tuple[Any, Any]:
            try:
                return gr.skip(), start(visitor_of(request), *values)
            except UserFacingError as error:
                return error_message(error), gr.skip()

        return button.click(press, self.inputs, [self.planned, selected], **UNQUEUED)

    def _estimate_after(self, settled: Any) -> None:
        inputs, outputs = [self.asked, *self.inputs], [self.planned, *self.described]
        estimated = settled.then(self._estimate, inputs, outputs, **UNQUEUED)
        estimated.then(self._measure, inputs, outputs, **UNQUEUED)

    def _estimate(self, asked: Asked, *values: Any) -> Update:
        """The estimate, as far as it is known without measuring."""
        return self._newest(asked, values, may_measure=False)

    def _measure(self, asked: Asked, *values: Any) -> Update:
        """The estimate with the throughput measured now, if it was not known.

        All is said again: a field that was filled in fires its event while others still have their old values, and the
        answer to that may come after the answer to the whole form.
        """
        return self._newest(asked, values, may_measure=True)

    def _newest(self, asked: Asked, values: Sequence[Any], *, may_measure: bool) -> Update:
        is_newest = ask(asked)
        try:
            run, plan = self.estimate(*values)
            rate = known_rate(run, self.store.list(), self.store)
            is_measurable = rate is None and can_measure_rate(run.config, self.store)
            if is_measurable and may_measure:
                rate = measure_rate(run, self.store)
            planned = plan(rate, measuring=is_measurable and not may_measure)
            shown = {self.planned: planned, **self.describe(run, *values)}
        except UserFacingError as error:
            shown = {self.planned: error_message(error)}
        return shown if is_newest() else {self.planned: gr.skip()}
