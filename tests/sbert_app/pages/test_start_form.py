"""`components/experiments.py`: a form that starts runs shows the answer to its newest values, even out of order."""

from pathlib import Path

import gradio as gr

from sbert_app.pages.components.experiments import StartForm
from sbert_app.services.runs.estimate import RunEstimate
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.config import RunConfig


def test_the_estimate_for_older_values_of_the_form_is_not_shown(tmp_path: Path):
    asked: dict = {}
    newer = []

    def estimate(steps: int):
        # While it is answered the form is filled with 12, which is answered at once.
        if steps == 100:
            newer.append(form._estimate(asked, 12))
        if steps < 0:
            raise InputError("max_steps is -1; it must be at least 1")
        run = RunEstimate(
            RunConfig("regression", base="no such model", max_steps=steps), 5_749, 2, "scored pairs"
        )
        return run, lambda rate: f"{run.steps} steps"

    with gr.Blocks():
        planned = gr.HTML()
        field = gr.Number()
        form = StartForm(RunStore(tmp_path), [field], planned, estimate)
    assert form._estimate(asked, 100) == {planned: gr.skip()}
    assert newer == [{planned: "12 steps"}]
    assert form._estimate(asked, 12) == {planned: "12 steps"}
    assert "must be at least 1" in form._estimate({}, -1)[planned]
