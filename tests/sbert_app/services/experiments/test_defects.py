"""The defects of the notebook, and the runs of lesson 17 that have them."""

import math
from dataclasses import replace

import pytest

from sbert_app.pages.learn.lesson import Context
from sbert_app.pages.learn.lessons import learned_nothing
from sbert_app.services.experiments import defects
from sbert_app.services.experiments.defects import COMBINATIONS, DEFECTS, NOTEBOOK, shipped, train_with
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from training.errors import InputError, Stopped


@pytest.fixture(scope="module")
def run(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defects, "EVALUATED", 20)
        return train_with(("schedule", "base"), 0, 20, home)


def test_a_run_with_defects_says_which_and_learns_nothing(run):
    assert run.defects == ("schedule", "base")
    assert len(set(run.rho)) == 1 and len(set(run.random_cosine)) == 1
    assert run.warnings[0].startswith("The learning rate is 0")


def test_every_combination_ships_with_three_seeds_and_behaves_as_the_lesson_says():
    runs = shipped().runs
    assert sorted((run.defects, run.seed) for run in runs) == sorted((d, s) for d in COMBINATIONS for s in range(3))
    for run in runs:
        if "schedule" in run.defects:
            assert len(set(run.rho)) == 1
            assert any(warning.startswith("The learning rate is 0") for warning in run.warnings)


def test_the_lesson_shows_the_runs_that_are_chosen_and_one_of_this_machine(home, run, monkeypatch):
    monkeypatch.setattr(learned_nothing, "train_with", lambda *_: replace(run, losses=(math.pi,) * 20))
    context = Context(ModelCache(home), RunStore(home))
    figure, html, _ = learned_nothing.show(context, list(NOTEBOOK), True)
    assert "loss 3.142" in html and "The learning rate is 0" in html
    assert ", ".join(DEFECTS[name] for name in NOTEBOOK) in html and "no defect" in html
    assert len(figure.data) == len(learned_nothing.CURVES) * (3 + 3 + 1)
    same, _, _ = learned_nothing.show(context, [], False)
    assert len(same.data) == len(learned_nothing.CURVES) * 3


def test_one_visitor_trains_at_a_time_and_a_stop_is_no_result(home):
    context = Context(ModelCache(home), RunStore(home))
    with learned_nothing._training, pytest.raises(InputError, match="somebody else is training"):
        learned_nothing.show(context, [], True)
    with pytest.raises(Stopped):
        train_with((), 0, 12, home, should_stop=lambda: True)
