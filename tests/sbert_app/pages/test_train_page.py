"""`pages/train/`: the form's values as a RunConfig, the list of runs, the curves, the updates."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, unquote

import gradio as gr
import pytest

from sbert_app.figures.training import FIGURES, Curve
from sbert_app.pages.components.events import changes
from sbert_app.pages.train import form as train_form
from sbert_app.pages.train import live as train_live
from sbert_app.pages.train import page as train_page
from sbert_app.pages.train import runs as train_runs
from sbert_app.pages.train.form import DataUpload
from sbert_app.services.access import AccessPolicy
from sbert_app.services.container import Services
from sbert_app.services.experiments.groups import RunGroup, run_groups
from sbert_app.services.files.uploads import keep_upload
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.estimate import RunEstimate, TrainingRate
from sbert_app.services.runs.record import PRESET_GROUPS
from sbert_app.services.runs.store import RunStore
from sbert_app.settings import Settings
from training.errors import InputError
from training.trainer.config import RunConfig
from training.trainer.negatives import MinedTriplet

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
        {
            "kind": "state",
            "step": 0,
            "state": "running",
            "steps": 10,
            "device": "cpu",
            "dtype": "bfloat16",
        },
        evaluation(0, 0.80),
        *(
            {"kind": "train", "step": step, "loss": 1 / step, "sentences_per_second": 99.0}
            for step in range(1, 11)
        ),
        evaluation(10, 0.85, best=True),
    )
    with store.lease(run.id) as work:
        work.state = "finished"
    return store.get(run.id)


ACCESS = AccessPolicy()


def values(**changes: object) -> dict:
    """What the components hold: those of another objective are hidden, and keep their values."""
    return RunConfig("regression", pooling="mean").to_dict() | {"teacher": "minilm-stsb"} | changes


def test_fields_hidden_for_an_objective_are_not_in_its_config():
    config = train_form.to_config(
        values(learning_rate="5e-5", pooling="base", eval_data="none", max_steps=0), ACCESS
    )
    assert (config.learning_rate, config.pooling, config.eval_data, config.max_steps) == (
        5e-5,
        None,
        None,
        None,
    )
    # Gradio's Number shows 0 for None.
    hint = train_form.component(RunConfig("regression"), "mini_batch_size").info
    assert hint.endswith("; 0: the whole batch")
    hidden = {
        "teacher": "minilm-stsb",
        "mine_negatives": True,
        "matryoshka_dims": "16, 8",
        "mini_batch_size": 0,
    }
    config = train_form.to_config(values(**hidden), ACCESS)
    assert (config.teacher, config.mine_negatives, config.matryoshka_dims) == (None, False, (16, 8))
    assert config.mini_batch_size is None
    config = train_form.to_config(values(**hidden, objective="margin-mse"), ACCESS)
    assert (config.teacher, config.mine_negatives) == ("minilm-stsb", True)


@pytest.mark.parametrize(
    "config",
    [
        RunConfig("regression", eval_data=None, learning_rate=5e-5),
        RunConfig(
            "margin-mse",
            teacher="mpnet-stsb",
            mine_negatives=True,
            negative_margin=0.1,
            pooling="cls",
        ),
        RunConfig(
            "mnrl",
            matryoshka_dims=(256, 64),
            mini_batch_size=32,
            batch_size=1_024,
            report_to=("trackio",),
        ),
    ],
)
def test_the_form_with_the_settings_of_a_run_says_the_same_run(config):
    names = list(RunConfig.model_fields)
    updates = train_form.updates(config.to_dict() | {"name": ""}, names)
    shown = {name: update["value"] for name, update in zip(names, updates, strict=True)}
    assert train_form.to_config(shown, ACCESS) == config


def test_another_objective_brings_its_learning_rate_unless_one_was_typed():
    def shown(base: str, objective: str, rate: str) -> str | None:
        return train_form.rate_update(base, objective, rate).get("value")

    assert shown("all-MiniLM-L6-v2", "mlm", "2e-5") == "0.0001"
    assert shown("scratch:2x128", "mlm", "2e-5") == "0.001"
    assert shown("all-MiniLM-L6-v2", "mnrl", "0.0001") == "2e-5"
    assert shown("all-MiniLM-L6-v2", "mlm", "3e-5") is None


def test_another_base_brings_its_learning_rate_unless_one_was_typed():
    def shown(base: str | None, rate: str) -> list[str | None]:
        return [update.get("value") for update in train_form.base_updates(base, "mnrl", rate)]

    assert shown("scratch:bilstm", "2e-5") == ["0.001", "base"]
    assert shown("scratch:dan", "5e-4") == [None, "base"]  # typed
    assert shown("all-MiniLM-L6-v2", "0.001") == ["2e-5", None]
    assert shown("scratch:6x384", "2e-5") == [None, None]
    assert shown(None, "0.001") == ["2e-5", None]
    names = [name for _, name in train_form.base_choices([])]
    assert names == [
        "all-MiniLM-L6-v2",
        "all-mpnet-base-v2",
        "raw-bert-mini",
        "scratch:bilstm",
        "scratch:dan",
    ]


def test_an_objective_shows_the_fields_that_it_needs():
    shown = dict(zip(train_form.OF_OBJECTIVE, train_form.objective_updates("mse"), strict=True))
    assert "a teacher’s vectors" in shown["objective"]["info"]
    assert [shown[name]["visible"] for name in ("concatenation", "teacher", "negatives_group")] == [
        False,
        True,
        False,
    ]
    assert shown["batch_size"]["info"] == "Rows per step"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"objective": "mse", "teacher": ""}, "mse needs a teacher"),
        ({"objective": "mse", "teacher": "/etc/passwd"}, "cannot be used here"),
        ({"matryoshka_dims": "wide"}, "must be whole numbers from 1"),
        ({"learning_rate": "fast"}, "Learning rate is 'fast'; it must be a number"),
        ({"max_steps": -1}, r"^Maximum steps is -1, but .*; 0: as many as the epochs take$"),
        ({"max_tokens": 64, "mini_batch_size": 8}, "^Maximum tokens and Mini-batch size both say"),
        ({"pooling": "wide"}, r"^Pooling 'wide' is unknown; choose mean, [^;]*$"),
        ({"train_data": ""}, "no training data yet"),
        ({"train_data": "stsb:train+../secret.csv"}, "cannot be used here"),
        ({"eval_data": "/etc/passwd"}, "cannot be used here"),
    ],
)
def test_wrong_values_of_the_form_are_refused(changes, told):
    with pytest.raises(InputError, match=told):
        train_form.to_config(values(**changes), ACCESS)


def test_the_picker_of_encodings_opens_uploads_alone(services, tmp_path):
    """Its input is what the browser sends: any path at all."""
    with gr.Blocks():
        controls = DataUpload(services, gr.Dropdown(), gr.UploadButton(), [], "mine")
    data = controls.data
    panel = controls.panel
    secret = tmp_path / "secret.csv"
    upload = tmp_path / "old.csv"
    for file in (secret, upload):
        file.write_text("sentence1,sentence2\nпароль,кот\n" * 20, encoding="koi8-r")
    told = controls.read_as(str(secret), "koi8_r")
    assert "<section" not in told[panel.table]
    told = controls.read_as(controls.keep(str(upload))[data]["value"], "koi8_r")
    assert "пароль" in told[panel.table]
    assert told[data]["value"].endswith("old.csv?encoding=koi8_r")


def test_uploads_kept_for_runs_have_their_limit(tmp_path):
    services = Services.start(Settings(home=tmp_path / "home", temp_limit_mb=1))
    file = tmp_path / "mine.csv"
    small = tmp_path / "small.csv"
    file.write_bytes(b"x" * 900_000)
    small.write_bytes(b"x" * 100_000)
    services.check_kept_room(file)
    train_form.keep_upload(file, services.settings.home)
    services.check_kept_room(small)
    with pytest.raises(InputError, match="kept for runs take 1 MB, as much as they may"):
        services.check_kept_room(file)


def test_every_state_has_its_words_and_hostile_names_stay_text(services):
    store = services.jobs.store
    run = store.create(RunConfig("regression", name=HOSTILE, train_data=HOSTILE, base=HOSTILE))
    assert "As a model" not in train_runs.status(run, 1)
    (run.folder / "model").mkdir()
    (run.folder / "model" / "config.json").touch()
    for state in ("queued", "running", "finished", "failed", "stopped", "interrupted"):
        (run.folder / "run.json").write_text(
            json.dumps({"state": state, "created": 1.0, "reason": HOSTILE})
        )
        run = store.get(run.id)
        # Nobody works on the one that runs.
        assert run.state == ("interrupted" if state == "running" else state)
        html = (
            train_runs.status(run, 1)
            + train_runs.run_list([run], run.id, {})
            + train_runs.log(HOSTILE)
        )
        assert train_runs.state_label(run) in html
        assert ("1 run ahead in the queue" in html) == (state == "queued")
        assert f"<code>run:{run.id}</code>" in html
        assert "<img" not in html
    triplet = MinedTriplet(HOSTILE, "a positive", "a negative", 0.91, 0.52)
    html = train_runs.negatives("hard negatives are mined", [triplet])
    assert "<img" not in html and "0.91" in html and "0.52" in html


def test_a_collapse_the_gain_over_the_base_and_shorter_vectors_are_said(services):
    store = services.jobs.store
    run = finished(store, matryoshka_dims=(64,))
    html = train_runs.status(run, 0)
    assert "85.0" in html and "+5.0" in html
    assert "the space is open" in html and "Matryoshka 64" in html
    collapse = {
        "collapsed": "collapsed: random pairs have a mean cosine of 0.97",
        "by_dimension": {"64": 0.8125},
    }
    write(store, run.id, evaluation(11, 0.9, best=True, **collapse))
    html = train_runs.status(store.get(run.id), 0)
    assert "Collapsed: random pairs have a mean cosine of 0.97." in html
    assert "with 64 dimensions" in html and "81.2" in html
    equal = "undefined: all gold scores are equal"
    write(store, run.id, evaluation(12, None, loss=0.1, undefined=equal))
    assert f"Spearman’s ρ is {equal}." in train_runs.status(store.get(run.id), 0)
    assert store.get(run.id).to_json()["undefined"] == equal


def test_runs_of_an_experiment_are_one_row_with_the_mean_over_seeds(services):
    store = services.jobs.store
    one = finished(store, "one")
    two = finished(store, "two", seed=1)
    three = finished(store, "three")
    write(store, two.id, evaluation(11, 0.87, best=True))
    runs = [three, store.get(two.id), one]
    group = RunGroup("x", "seeds: pooling <x>", frozenset({one.id, two.id}), differ_in_seed=True)
    folded = {one.id: group, two.id: group}
    html = train_runs.run_list(runs, three.id, {three.id: "#0072B2"}, folded)
    assert html.count("data-group=") == 1
    assert "2 runs" in html and "2 finished" in html and "86.0 ± 1.4" in html
    assert "seeds: pooling &lt;x&gt;" in html
    assert f'data-open="{one.id}"' not in html
    assert html.count('<tr class="open">') == html.count(" checked>") == 1
    assert '<i style="background:#0072B2"></i>three' in html
    assert f'data-open="{one.id}"' in train_runs.run_list(runs, one.id, {}, folded)
    sweep = replace(group, differ_in_seed=False)
    assert "±" not in train_runs.run_list(runs, "", {}, dict.fromkeys(sweep.runs, sweep))
    assert "No run matches the filter; 2 runs are not shown." in train_runs.run_list(
        [], "", {}, hidden=2
    )


def test_several_seeds_are_one_experiment_of_as_many_runs(services, tmp_path):
    pairs = tmp_path / "my pairs.csv"
    pairs.write_text("sentence1,sentence2,score\n" + "A cat sleeps.,A dog barks.,1.5\n" * 4)
    uploaded = str(keep_upload(str(pairs), services.settings.home))
    pairs.unlink()
    assert uploaded.endswith("my-pairs.csv")
    settings = values(base="scratch:1x32", train_data=uploaded, eval_data=uploaded, seed="1-3")
    names = list(settings)
    estimate, plan = train_page._estimate(services, names, *settings.values())
    assert estimate.config.seed == 1
    assert "3 seeds" in plan(None)
    first = train_page._start(services, names, "", *settings.values())
    assert sorted(run.config.seed for run in services.jobs.store.list()) == [1, 2, 3]
    assert services.jobs.store.get(first).config.seed == 1
    train_page._start(services, names, "", *values(**settings | {"seed": "5"}).values())
    assert len(run_groups(services.settings.home)) == 3  # a single seed is a single run


def test_changes_to_a_preset_are_in_the_address_and_wrong_ones_ignored(services):
    with gr.Blocks():
        fields = train_form.config_fields(train_form.build(services))
    filled = {name: field.value for name, field in fields.items()}
    changes = {
        "max_steps": None,
        "objective": "cosent",
        "pooling": "max",
        "report_to": ["trackio"],
        "warmup": 0.2,
    }
    changed = train_form.changed_fields({**filled, **changes, "name": "mine"}, filled)
    assert changed == changes
    address = unquote(train_page.to_address({**changed, "train_data": "/home/me/uploads/mine.csv"}))
    found = train_page.from_address(address, fields)
    assert {name: update["value"] for name, update in found.items()} == changes
    assert train_page.to_address({}) == ""
    wrong = {"pooling": "none of these", "max_steps": "many", "no field": 1, "batch_size": 8}
    assert list(train_page.from_address(json.dumps(wrong), fields)) == ["batch_size"]
    assert train_page.from_address("[1", fields) == train_page.from_address("[1]", fields) == {}


def test_a_figure_is_drawn_from_nothing_one_run_or_several_of_one_measure(services):
    store = services.jobs.store
    run = finished(store)
    curve = Curve(HOSTILE, "#0072B2", store.events(run.id), 10, "spearman")
    for draw in FIGURES.values():
        assert len(draw([]).data) == 0
        one = draw([curve])
        two = draw([curve, curve])
        assert len(two.data) == 2 * len(one.data) > 0
        assert "<img" not in one.to_json().replace("\\u003c", "<")
    assert len(FIGURES["measure"]([curve, replace(curve, measure="accuracy")]).data) == 1


def test_the_plan_tells_rows_steps_and_time_or_that_they_are_unknown():
    estimate = RunEstimate(
        RunConfig("regression", max_steps=200), 5_749, 2, "scored pairs", ("one <b>note</b>",)
    )
    html = train_runs.plan(estimate, TrainingRate(300.0, 1.0, "the rate of <mine>"))
    assert "5,749 scored pairs · 200 steps of 16 · <b>about " in html
    assert "from the rate of &lt;mine&gt;" in html
    assert "<li>one &lt;b&gt;note&lt;/b&gt;</li>" in html
    assert "<b>time known after 20 steps</b>" in train_runs.plan(estimate, None)
    unknown = replace(estimate, config=RunConfig("regression"), rows=None)
    assert "known once the data is loaded" in train_runs.plan(unknown, None)


def test_a_run_on_own_pairs_tells_whether_sentences_find_their_partners(services):
    store = services.jobs.store
    run = store.create(RunConfig("mnrl", name="own pairs"))
    pair = ["Where is my <b>order</b>?", "Track & trace"]
    before = {"mrr@10": 0.78, "accuracy@1": 0.7083, "queries": 60, "loss": 0.9}
    after = before | {"mrr@10": 0.88, "accuracy@1": 0.8417, "loss": 0.6}
    write(
        store,
        run.id,
        {"kind": "eval", "step": 0, **before},
        {"kind": "eval", "step": 10, "best": True, **after, "changed": pair},
    )
    (store.folder / run.id / "model").mkdir()
    (store.folder / run.id / "model/modules.json").touch()
    run = store.get(run.id)
    html = train_runs.status(run, 0)
    assert html.index("71% → 84%") < html.index("best MRR@10 %")
    assert "finds the partner" in html and "of 60 dev pairs" in html
    [link] = [part for part in html.split('"') if part.startswith("./?")]
    query = parse_qs(unescape(link).partition("?")[2])
    assert [query["a"], query["b"]] == [[pair[0]], [pair[1]]]
    assert query["second"] == [run.config.base]
    listed = train_runs.run_list([run], "", {})
    assert "88.0" in listed and "+10.0" in listed and "MRR@10 % ↑" in listed
    write(
        store,
        run.id,
        {"kind": "eval", "step": 20, "best": True, **after, "changed": [pair[0] * 100, pair[1]]},
    )
    assert "&amp;a=" not in train_runs.status(store.get(run.id), 0), (
        "no address holds so long a text"
    )


def test_a_run_that_only_has_a_loss_has_one_chart_of_it(services):
    store = services.jobs.store
    run = store.create(RunConfig("mnrl"))
    write(
        store,
        run.id,
        *({"kind": "eval", "step": step, "loss": 1.0, "best": step > 0} for step in (0, 5)),
    )
    run = store.get(run.id)
    curves = train_live.curves_of([run])
    assert not any(len(trace.x) for trace in FIGURES["measure"](curves).data)
    assert any(len(trace.x) for trace in FIGURES["loss"](curves).data)
    assert "loss ↓" in train_runs.run_list([run], "", {})


@pytest.mark.parametrize("value", [9e99, [{}]], ids=str)
def test_events_with_values_of_a_wrong_type_break_neither_list_nor_figures(services, value):
    store = services.jobs.store
    sound = finished(store)
    odd = finished(store)
    events = [json.loads(line) for line in (odd.folder / "events.jsonl").read_text().splitlines()]
    one_of_each_kind = events[:3]
    others = events[3:]
    for name in dict.fromkeys(name for event in one_of_each_kind for name in event):
        changed = [
            event | {name: value} if name in event else event for event in one_of_each_kind
        ] + others
        (odd.folder / "events.jsonl").write_text(
            "".join(json.dumps(event) + "\n" for event in changed)
        )
        run = RunStore(store.home).get(odd.id)
        assert sound.id in train_runs.run_list([store.get(sound.id), run], "", {})
        curve = Curve(run.name, "#0072B2", run.events, run.progress.steps, run.progress.measure)
        assert train_runs.status(run, 0) and all(
            draw([curve]).to_json() for draw in FIGURES.values()
        )


def test_the_loss_of_several_data_sets_is_a_line_each():
    steps = [("pairs=cosent", 4.0), (HOSTILE, 0.5)] * 3
    events = [
        {"kind": "train", "step": step, "loss": loss, "loss_by_data": {name: loss}}
        for step, (name, loss) in enumerate(steps, 1)
    ]
    figure = FIGURES["loss"]([Curve("mixed", "#0072B2", events, 6, None)])
    lines = [trace for trace in figure.data if trace.hovertemplate and len(trace.x)]
    assert [(list(line.x), list(line.y)) for line in lines] == [
        ([1, 3, 5], [4.0] * 3),
        ([2, 4, 6], [0.5] * 3),
    ]
    assert "pairs=cosent" in lines[0].hovertemplate and lines[0].line.dash != lines[1].line.dash
    assert "<img" not in figure.to_json().replace("\\u003c", "<")


@pytest.fixture
def panel(services) -> train_live.RunPanel:
    with gr.Blocks():
        return train_live.RunPanel(services)


def test_only_what_has_changed_is_sent(services, panel):
    store = services.jobs.store
    sent = {}
    run = finished(store)
    assert panel.look("", ())[panel.timer].version == train_live.IDLE_SECONDS
    assert set(panel.figures.values()) <= set(changes(panel.look("", ()), sent))
    assert changes(panel.look("", ()), sent) == {}
    store.rename(run.id, "another name")
    updated = changes(panel.look("", ()), sent)
    assert {panel.status, panel.runs, panel.name} <= set(updated)
    assert not {panel.log, panel.stop, panel.current} & set(updated)
    assert "another name" in updated[panel.runs]


def test_a_run_that_cannot_be_deleted_does_not_keep_the_others(services, panel):
    store = services.jobs.store
    one = finished(store, "one")
    three = finished(store, "three")
    two = store.create(RunConfig("regression", name="two"))
    with store.lease(two.id):
        assert panel.look("", ())[panel.timer].version == train_live.BUSY_SECONDS
        error, opened, _ = panel._delete([one.id, two.id, three.id])
    assert "two" in error or two.id in error
    assert opened == "" and [run.id for run in store.list()] == [two.id]


def test_deleting_a_run_while_the_page_is_refreshed_does_not_break_it(services, panel, monkeypatch):
    store = services.jobs.store
    run = finished(store)
    read = store.recent

    def read_and_delete(*page):
        runs = read(*page)
        for each in runs:
            store.delete(each.id)
        return runs

    monkeypatch.setattr(store, "recent", read_and_delete)
    assert run.name in changes(panel.look(run.id, [run.id]), {})[panel.status], (
        "as it was when it was read"
    )
    assert "No run yet" in changes(panel.look(run.id, [run.id]), {})[panel.status]


def test_runs_of_the_same_name_are_exported_side_by_side(services, panel):
    store = services.jobs.store
    files = set()
    for run in (finished(store, "one name"), finished(store, "one name")):
        (run.folder / "model").mkdir()
        (run.folder / "model/modules.json").write_text("[]")
        error, download = panel._export(run.id)
        assert error == ""
        files.add(download["value"])
    assert {Path(file).name for file in files} == {"one-name.zip"}
    assert len(files) == 2, "a visitor's download is not that of another"


def test_a_queued_run_with_a_model_is_not_offered_for_export(services, panel):
    store = services.jobs.store
    run = finished(store)
    (run.folder / "model").mkdir()
    (run.folder / "model/modules.json").write_text("[]")
    assert panel._visibility(run, [run])[panel.export]
    queued = replace(run, record=replace(run.record, state="queued"))
    # A run at work cannot be exported.
    assert not panel._visibility(queued, [queued])[panel.export]


def test_the_run_at_work_is_followed_unless_another_is_opened(services):
    store = services.jobs.store
    old = finished(store, "old")
    waiting = store.create(RunConfig("mnrl"))
    new = finished(store, "new")
    runs = store.list()
    assert train_live.select_run(runs, "").id == waiting.id
    assert train_live.select_run(runs, old.id).id == old.id
    assert train_live.select_run([run for run in runs if run.id != waiting.id], "").id == new.id
    assert train_live.select_run([], "gone") is None
    assert train_live.select_run([new, old], "", {new.id}).id == old.id, (
        "a run of no experiment comes first"
    )
    assert train_live.select_run([new], "", {new.id}).id == new.id


def test_presets_are_offered_in_groups_with_ones_own_data_first(services):
    with gr.Blocks() as blocks:
        train_page.build(services)
    [preset] = [
        block for block in blocks.blocks.values() if getattr(block, "elem_id", "") == "preset"
    ]
    groups = [label.partition(": ")[0] for label, _ in preset.choices]
    assert (
        list(dict.fromkeys(groups))
        == ["My own data", "Try it", "The paper", "From scratch"]
        == [*PRESET_GROUPS]
    )
    assert preset.choices[0] == ("My own data: a file", "mine")
    assert preset.value == "demo", "the page opens with what needs no file"


def test_a_missing_base_is_named_before_start_which_does_not_download_it(services, monkeypatch):
    monkeypatch.setattr(
        ModelCache, "missing", lambda self, names, data="": [f"{name} (91 MB)" for name in names]
    )
    settings = values(base="org/tiny")
    names = list(settings)
    _, plan = train_page._estimate(services, names, *settings.values())
    assert "not on this machine yet: org/tiny (91 MB)" in plan(None)
    with pytest.raises(InputError, match=r"org/tiny .91 MB.; download it first"):
        train_page._start(services, names, "", *settings.values())
    assert services.jobs.store.list() == []
