"""The defects of the notebook, and the runs of lesson 17 that have them."""

import json
import math
from dataclasses import replace
from statistics import fmean

import pytest

from sbert_app.pages.learn.lesson import Context
from sbert_app.pages.learn.lessons import learned_nothing
from sbert_app.services.background.watch import Watch
from sbert_app.services.experiments import defects
from sbert_app.services.experiments.defects import (
    COMBINATIONS,
    DEFECTS,
    NOTEBOOK,
    shipped,
    train_with,
)
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from training.catalogue import read_asset
from training.errors import InputError, StoppedError
from training.trainer.run_metrics import ALIKE, TOLERANCE


@pytest.fixture(scope="module")
def run(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defects, "EVALUATED", 20)
        return train_with(("schedule", "base"), 0, 20, home)


@pytest.mark.slow
def test_a_run_with_defects_says_which_and_learns_nothing(run):
    assert run.defects == ("schedule", "base")
    assert len(set(run.rho)) == 1 and len(set(run.random_cosine)) == 1
    assert run.warnings[0].startswith("The learning rate is 0")


def test_every_combination_ships_with_three_seeds():
    runs = [(run.defects, run.seed) for run in shipped().runs]
    assert sorted(runs) == sorted((names, seed) for names in COMBINATIONS for seed in range(3))


@pytest.mark.parametrize(
    "run", shipped().runs, ids=lambda run: f"{'-'.join(run.defects) or 'none'}-{run.seed}"
)
def test_a_healthy_run_learns_and_a_defective_one_is_warned_of(run):
    if not run.defects:
        assert run.warnings == ()
        assert fmean(run.losses[-20:]) < run.guess - TOLERANCE
        assert run.rho[-1] > run.rho[0] + 0.02
        return
    assert run.warnings
    if "schedule" in run.defects:
        assert len(set(run.rho)) == 1
        assert any(warning.startswith("The learning rate is 0") for warning in run.warnings)
    if {"mask", "base"} & set(run.defects):
        assert any(
            warning.startswith("All vectors were much alike before the first step")
            for warning in run.warnings
        )


@pytest.mark.parametrize("seed", range(3))
def test_the_question_has_one_answer(seed):
    """Both make vectors alike before the first step; unmasked padding alone costs ρ there."""
    before = {run.defects: run for run in shipped().runs if run.seed == seed}
    healthy, mask, base = (before[names] for names in ((), ("mask",), ("base",)))
    assert min(mask.random_cosine[0], base.random_cosine[0]) > ALIKE > healthy.random_cosine[0]
    assert mask.rho[0] < healthy.rho[0] - 0.1 < base.rho[0]


def test_the_text_quotes_the_figures_of_the_runs_that_ship():
    """Those of random weights, which the check is about and which learn all the same."""

    def rho(defects, at):
        return 100 * fmean(run.rho[at] for run in shipped().runs if run.defects == defects)

    text = json.loads(read_asset("lessons/17.json"))["text"][-1]
    random = f"ρ rises from {rho(('base',), 0):.0f} to {rho(('base',), -1):.0f}"
    assert f"{random}, and from the raw BERT from {rho((), 0):.0f} to {rho((), -1):.0f}" in text


def test_the_lesson_shows_the_runs_that_are_chosen_and_one_of_this_machine(home, run, monkeypatch):
    monkeypatch.setattr(
        learned_nothing, "train_with", lambda *_: replace(run, losses=(math.pi,) * 20)
    )
    context = Context(ModelCache(home), RunStore(home))
    figure, html = learned_nothing.show(context, list(NOTEBOOK), True)
    assert "loss 3.142" in html and "The learning rate is 0" in html
    assert ", ".join(DEFECTS[name] for name in NOTEBOOK) in html and "no defect" in html
    assert len(figure.data) == len(learned_nothing.CURVES) * (3 + 3 + 1)
    titles = [annotation.text for annotation in figure.layout.annotations]
    assert "ρ ×100 on 200 pairs of STSb dev" in titles
    same, _ = learned_nothing.show(context, [], False)
    assert len(same.data) == len(learned_nothing.CURVES) * 3


def test_one_visitor_trains_at_a_time(home):
    context = Context(ModelCache(home), RunStore(home))
    with learned_nothing._training, pytest.raises(InputError, match="somebody else is training"):
        learned_nothing.show(context, [], True)


def test_a_training_that_is_stopped_has_no_result(home):
    with pytest.raises(StoppedError):
        train_with((), 0, 12, home, Watch(should_stop=lambda: True))
