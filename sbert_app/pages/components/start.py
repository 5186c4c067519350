"""A form that starts runs: what Start would do stands under it, at once and then with the measured time.

form = StartForm(store, inputs, planned, estimate)
form.estimate_on([field.change for field in inputs])      also form.estimate_after(event)
form.start_on(button, start, selected)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components.events import EVERY, UNQUEUED, Questions, Update, ask
from sbert_app.pages.components.messages import Unknown, error_message
from sbert_app.services.quota import visitor_of
from sbert_app.services.runs.estimate import RunEstimate
from sbert_app.services.runs.rate import can_measure_rate, known_rate, measure_rate
from sbert_app.services.runs.store import RunStore
from training.errors import UserFacingError

# Gradio fills a form field by field, each of which fires its event, and fields in closed folds some ticks after it runs
# the next event. What is asked before that would be asked of some old values.
SETTLED = "() => new Promise((settled) => setTimeout(settled, 150))"
# (rate, unknown="no run"): shows what the runs would do, and without a rate why it is not known how long
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
    questions: gr.State = field(default_factory=lambda: gr.State({}))  # no answer to older values is shown

    def estimate_on(self, events: Sequence[Any], *, measures: bool = True) -> None:
        """Show the estimate at these events of the fields; without ``measures``, as far as it is known."""
        self._estimate_after(gr.on(events, None, None, None, js=SETTLED, **EVERY), measures=measures)

    def estimate_after(self, event: Any, *, measures: bool = True) -> None:
        """Show the estimate when the handler of an event is done; ``measures`` as in `estimate_on`."""
        self._estimate_after(event.then(None, None, None, js=SETTLED), measures=measures)

    def start_on(self, button: gr.Button, start: Callable[..., str], selected: Any) -> Any:
        """Start at a press of ``button``; ``selected`` gets the id that ``start(visitor, *values)`` returns."""

        def press(request: gr.Request, *values: Any) -> tuple[Any, Any]:
            try:
                return gr.skip(), start(visitor_of(request), *values)
            except UserFacingError as error:
                return error_message(error), gr.skip()

        return button.click(press, self.inputs, [self.planned, selected], **UNQUEUED)

    def _estimate_after(self, settled: Any, *, measures: bool = True) -> None:
        inputs, outputs = [self.questions, *self.inputs], [self.planned, *self.described]
        estimates = [partial(self._estimate, "measuring"), partial(self._estimate, None)]
        for estimate in estimates if measures else [partial(self._estimate, "on change")]:
            # Also while an older one is still measured, which will not be shown.
            settled = settled.then(estimate, inputs, outputs, **EVERY)

    def _estimate(self, unknown: Unknown | None, questions: Questions, *values: Any) -> Update:
        """The estimate; ``unknown``: what it says of a time that could be measured, or None to measure it.

        What is measured is said with all the rest again: a field that was filled in fires its event while others still
        have their old values, and the answer to that may come after the answer to the whole form.
        """
        is_newest = ask(questions)
        try:
            run, plan = self.estimate(*values)
            runs = self.store.list()
            rate = known_rate(run, runs, self.store)
            is_measurable = rate is None and can_measure_rate(run.config, runs, self.store)
            if is_measurable and not unknown:
                rate = measure_rate(run, self.store)
            planned = plan(rate, unknown=unknown if is_measurable and unknown else "no run")
            update = {self.planned: planned, **self.describe(run, *values)}
        except UserFacingError as error:
            update = {self.planned: error_message(error)}
        return update if is_newest() else {self.planned: gr.skip()}
