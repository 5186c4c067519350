"""The parts of the Train page that need no browser: the form's way to a config, the views, the curves, the look."""

import json
from pathlib import Path

import pytest

from sbert_app.figures.training import FIGURES, Curve
from sbert_app.pages.train import form as train_form
from sbert_app.pages.train import live as train_live
from sbert_app.pages.train import views as train_views
from sbert_app.services.container import Services
from sbert_app.services.runs.store import RunStore
from sbert_app.settings import Settings
from training.errors import InputError
from training.trainer.config import RunConfig

HOSTILE = "<img src=x onerror=alert(1)> & more"


@pytest.fixture
def services(tmp_path: Path) -> Services:
    services = Services.start(Settings(home=tmp_path))
    services.jobs.starts_workers = False
    return services


def write(store: RunStore, run_id: str, *events: dict) -> None:
    with (store.folder / run_id / "events.jsonl").open("a") as file:
        file.writelines(json.dumps({"t": 1.0, **event}) + "\n" for event in events)


def evaluation(step: int, spearman: float, **more: object) -> dict:
    figures = {"random_cosine": 0.1, "plain_cosine": 0.05, "seconds": 1.0}
    return {"kind": "eval", "step": step, "spearman": spearman, **figures, **more}


def finished(store: RunStore, name: str = "a run", **settings: object):
    run = store.create(RunConfig("regression", name=name, **settings))
    write(
        store,
        run.id,
        {"kind": "state", "step": 0, "state": "running", "steps": 10, "device": "cpu", "dtype": "bfloat16"},
        evaluation(0, 0.80),
        *({"kind": "train", "step": step, "loss": 1 / step, "sentences_per_second": 99.0} for step in range(1, 11)),
        evaluation(10, 0.85, best=True),
    )
    with store.lease(run.id) as work:
        work.state = "finished"
    return store.get(run.id)


# ---------------------------------------------------------------- the form


def values(**changes: object) -> dict:
    return RunConfig("regression", pooling="mean").to_dict() | changes


def test_the_form_says_what_a_config_says(tmp_path):
    found = train_form.to_config(values(learning_rate="5e-5", pooling="base", eval_data="none", max_steps=0), tmp_path)
    assert (found.learning_rate, found.pooling, found.eval_data, found.max_steps) == (5e-5, None, None, None)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; it must be a number"),
        ({"epochs": None}, "epochs is None, but passes over the training data"),
        ({"train_data": ""}, "no training data yet"),
        ({"train_data": "/etc/passwd"}, "neither a known set"),
        ({"train_data": "stsb:train+../secret.csv"}, "neither a known set"),
        ({"eval_data": "/etc/passwd"}, "neither a known set"),
    ],
)
def test_what_the_form_cannot_mean_is_told(tmp_path, changes, told):
    with pytest.raises(InputError, match=told):
        train_form.to_config(values(**changes), tmp_path)


def test_an_upload_is_kept_under_its_content_and_may_be_trained_on(tmp_path):
    upload = tmp_path / "gradio" / "my data (1).csv"
    upload.parent.mkdir()
    upload.write_text("sentence1,sentence2\na,b\n")
    home = tmp_path / "home"
    kept = train_form.keep_upload(str(upload), home)
    upload.unlink()
    assert kept.read_text().startswith("sentence1")
    assert kept.name == "my-data-1-.csv"
    assert train_form.to_config(values(train_data=str(kept)), home).train_data == str(kept)


# ---------------------------------------------------------------- the views


@pytest.mark.parametrize("state", ["queued", "running", "finished", "failed", "stopped", "interrupted"])
def test_every_state_has_its_words_and_hostile_names_stay_text(services, state):
    store = services.jobs.store
    run = store.create(RunConfig("regression", name=HOSTILE, train_data=HOSTILE, base=HOSTILE))
    (run.folder / "run.json").write_text(json.dumps({"state": state, "created": 1.0, "reason": HOSTILE}))
    run = store.get(run.id)
    if state == "running":  # nobody works on it
        assert run.state == "interrupted"
    shown = train_views.status(run, 0) + train_views.run_list([run], run.id, {}) + train_views.log_view(HOSTILE)
    assert train_views.STATE_WORDS[run.state] in shown
    assert "<img" not in shown


def test_a_collapse_is_said_in_words(services):
    store = services.jobs.store
    run = finished(store)
    write(store, run.id, evaluation(11, 0.4, collapsed="collapsed: random pairs have a mean cosine of 0.97"))
    shown = train_views.status(store.get(run.id), 0)
    assert "Collapsed: random pairs have a mean cosine of 0.97." in shown


def test_the_gain_over_the_base_is_shown(services):
    shown = train_views.status(finished(services.jobs.store), 0)
    assert "85.0" in shown
    assert "+5.0" in shown
    assert "the space is open" in shown


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (42, "42 s"), (200, "3 min"), (7_200, "2.0 hours"), (300_000, "3.5 days")]
)
def test_a_time_is_said_as_people_say_it(seconds, words):
    assert train_views.duration(seconds) == words


# ---------------------------------------------------------------- the curves


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_from_nothing_one_run_or_several(services, name):
    store = services.jobs.store
    run = finished(store)
    curve = Curve(HOSTILE, "#0072B2", store.events(run.id), 10, "spearman")
    assert len(FIGURES[name]([]).data) == 0
    one, two = FIGURES[name]([curve]), FIGURES[name]([curve, curve])
    assert len(two.data) == 2 * len(one.data) > 0
    assert "<img" not in one.to_json().replace("\\u003c", "<")


def test_a_run_judged_by_something_else_is_not_drawn_among_the_others(services):
    store = services.jobs.store
    run = finished(store)
    spearman = Curve("a", "#000000", store.events(run.id), 10, "spearman")
    accuracy = Curve("b", "#ffffff", store.events(run.id), 10, "accuracy")
    assert len(FIGURES["measure"]([spearman, accuracy]).data) == 1


# ---------------------------------------------------------------- the look


def parts(services: Services, shown: dict, opened: str = "", ticked: tuple[str, ...] = ()) -> tuple[set[str], dict]:
    """The parts that are sent to a browser that has ``shown``, and what it has then."""
    *updates, now = train_live.look(services, opened, ticked, shown)
    skipped = {"__type__": "update"}
    sent = {name for name, update in zip(train_live.PARTS, updates, strict=True) if update != skipped}
    return sent, shown if now == skipped else now


def test_a_browser_is_told_only_what_changed(services):
    store = services.jobs.store
    run = finished(store)
    sent, shown = parts(services, {})
    assert sent == set(train_live.PARTS)
    sent, shown = parts(services, shown)
    assert sent == set()
    store.rename(run.id, "another name")
    sent, shown = parts(services, shown)
    assert {"status", "runs", "name"} <= sent
    assert not {"log", "stop", "current"} & sent


def test_the_run_at_work_is_followed_unless_another_is_opened(services):
    store = services.jobs.store
    old, waiting, new = finished(store, "old"), store.create(RunConfig("mnrl")), finished(store, "new")
    runs = store.list()
    assert train_live.pick(runs, "").id == waiting.id
    assert train_live.pick(runs, old.id).id == old.id
    assert train_live.pick([run for run in runs if run.id != waiting.id], "").id == new.id
    assert train_live.pick([], "gone") is None


def test_before_the_first_run_the_page_says_what_to_do(services):
    assert "No run yet" in train_live._parts(services, "", [])["status"].update()
