"""A form that starts runs shows the answer to its newest values, whichever answer comes last."""

from pathlib import Path

import gradio as gr
import pytest

from sbert_app.pages.components import experiments
from sbert_app.pages.components.experiments import StartForm
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.config import RunConfig


def test_the_answer_to_older_values_is_not_shown_and_what_is_wrong_stands_in_its_place(tmp_path: Path):
    asked: dict = {}
    newer = []

    def estimate(steps: int):
        if steps == 100:  # while it is answered the form is filled with 12, which is answered at once
            newer.append(form._estimate("measuring", asked, 12))
        if steps < 0:
            raise InputError("max_steps is -1; it must be at least 1")
        run = RunEstimate(RunConfig("regression", base="no such model", max_steps=steps), 5_749, 2, "scored pairs")
        return run, lambda rate, unknown: f"{run.steps} steps"

    with gr.Blocks():
        planned, field = gr.HTML(), gr.Number()
        form = StartForm(RunStore(tmp_path), [field], planned, estimate)
    assert form._estimate("measuring", asked, 100) == {planned: gr.skip()}
    assert newer == [{planned: "12 steps"}]
    assert form._estimate(None, asked, 12) == {planned: "12 steps"}
    assert "must be at least 1" in form._estimate("measuring", {}, -1)[planned]


def test_an_unknown_speed_is_measured_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The plan stands there at once; the time comes when it is measured."""
    measured, said = [], []

    def measure(run: RunEstimate, store: RunStore) -> TrainingRate:
        measured.append(run)
        return TrainingRate(100.0, 1.0, "8 steps")

    monkeypatch.setattr(experiments, "measure_rate", measure)
    monkeypatch.setattr(experiments, "can_measure_rate", lambda config, runs, store: True)
    run = RunEstimate(RunConfig("regression"), 5_749, 2, "scored pairs")
    with gr.Blocks() as page:
        planned = gr.HTML()
        form = StartForm(RunStore(tmp_path), [], planned, lambda: (run, lambda rate, unknown: said.append(unknown)))
        form.estimate_on(page.load(None).then)
    for listener in page.fns.values():
        if listener.fn is not None:
            listener.fn({})
    assert said == ["measuring", "no run"]
    assert measured == [run]
