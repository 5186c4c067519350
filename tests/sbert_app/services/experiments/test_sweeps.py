"""`experiments/ablations.py` and `experiment.py`: grids, their statistics, and sweeps that stop and resume."""

import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paths import linked_home
from scipy import stats

from sbert_app.cli import main
from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.experiments.ablations import (
    ABLATIONS,
    SHIPPED,
    Paired,
    Summary,
    ablation,
    outcome,
    precomputed,
    precomputed_tables,
    rank_variants,
    variant_rows,
)
from sbert_app.services.experiments.experiment import (
    SWEEP,
    Experiment,
    ExperimentRecord,
    Experiments,
    PlannedRun,
    new_sweep,
    records,
)
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.record import RunRecord
from sbert_app.services.runs.store import RunStore
from training.errors import InputError, UserFacingError
from training.trainer.config import CHOICES, RunConfig
from training.trainer.train import RunResult

TINY = {"base": "scratch:1x32", "max_steps": 2}
POINTS = st.floats(-100, 100).map(lambda value: round(value, 3))


@pytest.fixture
def place(home, tmp_path) -> Path:
    """A home folder with the embedded model and a part of the data, and nothing else yet."""
    return linked_home(home, tmp_path / "home", stsb_rows=130)


@pytest.fixture
def sweeps(place, monkeypatch) -> Experiments:
    """Sweeps of a home folder on which no worker works."""
    monkeypatch.setattr(RunQueue, "start_workers", lambda self: None)
    return Experiments(RunQueue(RunStore(place)))


@pytest.fixture
def two_by_two(sweeps, monkeypatch) -> Experiment:
    """A sweep of four cells, queued: pretrained and scratch, seeds 0 and 1."""
    base = ABLATIONS["base"]
    two = {name: base.variants[name] for name in ("pretrained", "scratch")}
    monkeypatch.setitem(ABLATIONS, "base", replace(base, variants=two))
    return sweeps.start(new_sweep("base", 2, {"max_steps": 2}))


def test_a_sweep_is_counted_for_its_visitor_before_anything_is_written(sweeps, monkeypatch):
    monkeypatch.setattr("sbert_app.services.jobs.queue.MOST_GROUPED_OF_ONE", 9)
    sweeps.start(new_sweep("base", 2, {"max_steps": 2}), "10.0.0.1")
    with pytest.raises(InputError, match="8 runs from your address are waiting"):
        sweeps.start(new_sweep("base", 1, {"max_steps": 2}), "10.0.0.1")
    assert len(sweeps.list(SWEEP)) == 1
    assert sweeps.start(new_sweep("base", 1, {"max_steps": 2}), "10.0.0.2").counts["queued"] == 4


def end(
    store: RunStore,
    run_id: str,
    spearman: float | None,
    state: str = "finished",
    reason: str | None = None,
    seconds: float = 10,
) -> None:
    """Let a run have ended, as its folder tells it."""
    folder = store.folder / run_id
    opening = {"t": 1.0, "step": 0, "kind": "state", "state": "running", "steps": 2}
    figures = [(0, 0.5), (2, spearman)] if spearman is not None else [(0, 0.5)]
    events = [
        opening,
        *({"t": 1.0, "step": step, "kind": "eval", "spearman": rho} for step, rho in figures),
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    now = time.time()
    RunRecord(state, created=now - 20, started=now - seconds, ended=now, reason=reason).write(
        folder
    )


def run_of(sweep, variant: str, seed: int) -> str:
    return next(
        cell.run.id for cell in sweep.cells if (cell.plan.label, cell.plan.seed) == (variant, seed)
    )


@pytest.mark.parametrize("name", ABLATIONS)
def test_cells_of_a_grid_differ_only_in_what_is_varied_and_the_seed(name):
    grid = ABLATIONS[name]
    assert grid.default in grid.variants
    varied = {field for variant in grid.variants.values() for field in variant.changes}
    fixed = varied | {"seed", "name"}
    cells = [grid.config(variant, seed).to_dict() for variant in grid.variants for seed in (0, 1)]
    shared = [{key: value for key, value in cell.items() if key not in fixed} for cell in cells]
    assert all(each == shared[0] for each in shared)
    assert len(
        {tuple(sorted((key, str(cell[key])) for key in varied | {"seed"})) for cell in cells}
    ) == len(cells)


def test_the_grids_hold_the_variants_of_the_paper_and_all_objectives():
    assert set(ABLATIONS["concat"].variants) == set(CHOICES["concatenation"])
    assert set(ABLATIONS["objective"].variants) == set(CHOICES["objective"]) - {
        "cross-encoder",
        "mlm",
    }
    assert {name: variant.paper for name, variant in ABLATIONS["pooling"].variants.items()} == {
        "mean": 87.44,
        "max": 69.92,
        "cls": 86.62,
    }
    # After NLI the paper pools with the concatenation that is best.
    nli = {name: variant.paper for name, variant in ABLATIONS["nli-pooling"].variants.items()}
    assert nli == {
        "mean": ABLATIONS["concat"].variants["uv+diff"].paper,
        "max": 79.07,
        "cls": 79.80,
    }
    assert [variant.paper for variant in ABLATIONS["concat"].variants.values()] == [
        *(66.04, 69.78, 70.54, 78.37, 77.44, 80.78, 80.44)
    ]


def test_changes_hold_for_all_cells_except_for_what_is_varied():
    grid = ABLATIONS["base"]
    bases = ["all-MiniLM-L6-v2", "scratch:6x384", "scratch:bilstm", "scratch:dan"]
    configs = [grid.config(name, 0, base="mine", max_steps=7) for name in grid.variants]
    assert [(config.base, config.max_steps) for config in configs] == [(base, 7) for base in bases]


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(InputError, match="pooling, concat, objective, base"):
        ablation("depth")
    with pytest.raises(InputError, match="mean, max, cls"):
        ABLATIONS["pooling"].config("median", 0)


@given(st.lists(POINTS, min_size=2, max_size=12))
def test_the_interval_is_students(values):
    assume(len(set(values)) > 1)
    found = Summary.of(values)
    spread = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=spread)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
    assert found.deviation == pytest.approx(stats.tstd(values))


@given(st.lists(st.tuples(POINTS, POINTS), min_size=2, max_size=12))
def test_the_test_is_the_paired_t_test_by_seed(pairs):
    ours, default = (dict(enumerate(side)) for side in zip(*pairs, strict=True))
    differences = [a - b for a, b in pairs]
    assume(max(differences) - min(differences) > 0.01)
    found = Paired.of(ours, default)
    assert found.p == pytest.approx(
        stats.ttest_rel(list(ours.values()), list(default.values())).pvalue, rel=1e-6
    )
    assert found.difference.mean == pytest.approx(sum(differences) / len(differences), abs=1e-9)


def test_a_paired_test_takes_only_the_seeds_that_both_have():
    found = Paired.of({0: 80.0, 1: 81.0, 5: 0.0}, {0: 85.0, 1: 86.5, 2: 99.0})
    assert (found.difference.n, found.difference.mean, found.better) == (2, -5.25, 0)
    assert Paired.of({0: 1.0}, {1: 1.0}) is None


def test_a_single_value_has_no_spread():
    one = Summary.of([3.0])
    assert (one.n, one.mean, one.deviation, one.low) == (1, 3.0, None, None)
    assert Summary.of([]) is None


NOT_SIGNIFICANT = "not significantly different from the default with 3 seeds"


@pytest.mark.parametrize(
    ("ours", "default", "words"),
    [
        ({0: 70.0}, {0: 88.0}, "18.0 points worse in the one seed: nothing to test"),
        (
            {0: 70.0, 1: 70.2, 2: 69.9},
            {0: 88.0, 1: 88.1, 2: 88.0},
            "18.0 points worse (95% 17.8 to 18.2), in all 3 seeds",
        ),
        (
            {0: 57.0, 1: 56.2},
            {0: 88.4, 1: 86.8},
            "31.0 points worse (95% 25.9 to 36.1), in both seeds",
        ),
        ({0: 88.0, 1: 70.0, 2: 88.0}, {0: 70.0, 1: 88.0, 2: 87.0}, NOT_SIGNIFICANT),
        ({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}, "the same in every seed"),
        ({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0}, "1.0 points better in every seed, without variation"),
    ],
)
def test_the_test_is_told_in_words(ours, default, words):
    assert Paired.of(ours, default).words == words


SHIPPED_TABLES = [(name, base) for name in ABLATIONS for base in precomputed_tables(name)]


@pytest.mark.parametrize(("name", "base"), SHIPPED_TABLES)
def test_the_text_on_a_figure_agrees_with_its_significance_test(name, base):
    table = precomputed_tables(name)[base]
    rows = {row.name: row for row in table.rows if row.summary}
    tied = [standing.name for standing in rank_variants(table.rows).standings if standing.tied]
    sentence = outcome(table.rows)
    if "stands out:" in sentence:
        best = sentence.partition(" stands out:")[0]
        assert [rows[best].variant] == tied
        for gap in re.findall(r"\d+\.\d", sentence):
            assert any(
                f"{rows[best].summary.mean - row.summary.mean:.1f}" == gap for row in rows.values()
            )
    elif "Training changed" in sentence:
        most = max(abs(row.summary.mean - row.before) for row in rows.values())
        assert f"by more than {most:.1f} points" in sentence
    elif "Nothing stands out" in sentence:
        assert (
            f"{len(tied)} of {len(rows)} cannot be told apart" in sentence
            and len(tied) > len(rows) / 2
        )
    else:
        listed = sentence.partition(" cannot be told apart")[0].replace(" and ", ", ").split(", ")
        assert [rows[each].variant for each in listed] == tied
    figures = {f"{value:.1f}" for row in rows.values() for value in (row.before, row.summary.mean)}
    text = ABLATIONS[name].of_base.get(base, "")
    assert set(re.findall(r"\d+\.\d", text)) <= figures
    other_bases = {
        "raw-bert-mini": "tuned on sentence pairs",
        "all-MiniLM-L6-v2": "masked language modelling",
    }
    assert other_bases.get(base, "–") not in text


def test_a_text_of_a_base_is_true_of_its_figure():
    raw, tuned = (
        precomputed_tables("concat")[base] for base in ("raw-bert-mini", "all-MiniLM-L6-v2")
    )
    for table, highest in ((raw, 53.3), (tuned, 86.2)):
        assert f"none ends above {highest}" in ABLATIONS["concat"].of_base[table.base]
        assert max(row.summary.mean for row in table.rows) == pytest.approx(highest, abs=0.05)
    assert max(row.summary.mean for row in tuned.rows) < min(row.before for row in tuned.rows), (
        "all lose"
    )
    nli = precomputed_tables("nli-pooling")["raw-bert-mini"]
    seen = nli.steps * nli.settings["batch_size"]
    training_rows = nli.training_rows
    assert (
        f"{seen:,} of {training_rows:,} pairs" in ABLATIONS["nli-pooling"].of_base["raw-bert-mini"]
    )


@pytest.mark.parametrize(("name", "base"), SHIPPED_TABLES)
def test_a_sweep_with_the_settings_of_a_figure_repeats_its_runs(name, base):
    table = precomputed_tables(name)[base]
    steps = {"max_steps": table.steps} if table.steps else {}
    bases = {"base": base} if base else {}
    sweep = new_sweep(name, len(table.seeds), table.changes | steps | bases)
    runs = {(run.variant, run.seed) for run in table.runs}
    assert runs <= {(plan.label, plan.seed) for plan in sweep.runs}
    for plan in sweep.runs:
        config = RunConfig(**plan.config)
        for field in ("base", "learning_rate", "batch_size", "pooling"):
            assert getattr(config, field) == table.settings.get(field, getattr(config, field))


def test_one_seed_and_one_variant_say_nothing():
    grid = ABLATIONS["pooling"]
    assert outcome(variant_rows(grid, {("mean", 0): 88.0})) == ""
    assert "one seed" in outcome(variant_rows(grid, {("mean", 0): 88.0, ("max", 0): 70.0}))


def test_a_table_has_a_row_for_each_variant_in_order_even_without_runs():
    grid = ABLATIONS["pooling"]
    table = variant_rows(grid, {("mean", 0): 88.0, ("max", 0): 70.0}, {("mean", 0): 86.0})
    assert [row.label for row in table] == ["mean", "max", "CLS"]
    assert [row.summary and row.summary.mean for row in table] == [88.0, 70.0, None]
    assert (table[0].is_default, table[0].against, table[0].before) == (True, None, 86.0)
    assert table[1].against.difference.mean == -18.0
    assert json.loads(json.dumps(table[1].to_json()))["against"]["words"].startswith(
        "18.0 points worse"
    )


def test_a_sweep_is_estimated_before_it_is_started(sweeps):
    plan = sweeps.estimate(new_sweep("pooling", 3, {"max_steps": 200}))
    assert (plan.runs, plan.estimates["max"].steps) == (9, 200)
    assert 9 * 80e6 < plan.bytes < 9 * 100e6


def test_a_sweep_queues_a_run_for_each_cell_seed_by_seed(sweeps):
    sweep = sweeps.start(new_sweep("pooling", 2, TINY))
    assert [(cell.plan.label, cell.plan.seed) for cell in sweep.cells] == [
        *(("mean", 0), ("max", 0), ("cls", 0), ("mean", 1), ("max", 1), ("cls", 1))
    ]
    assert [cell.state for cell in sweep.cells] == ["queued"] * 6
    assert [cell.run.id for cell in sweep.cells] == sweeps.jobs.queued()
    configs = [cell.run.config for cell in sweep.cells]
    assert [config.pooling for config in configs] == ["mean", "max", "cls"] * 2
    assert {(config.base, config.max_steps) for config in configs} == {("scratch:1x32", 2)}
    assert sweep.state == "running"


def test_what_cannot_run_is_told_before_anything_is_queued(sweeps):
    for name, seeds, changes in (
        ("pooling", 0, {}),
        ("pooling", 101, {}),
        ("depth", 1, {}),
        ("pooling", 1, {"max_steps": -5}),
        ("pooling", 1, {"train_data": "nowhere.csv"}),
        ("pooling", 1, {"base": "run:unknown"}),
    ):
        with pytest.raises(UserFacingError):
            sweeps.start(new_sweep(name, seeds, changes))
    assert (sweeps.store.list(), sweeps.list(SWEEP)) == ([], [])


def test_the_table_fills_as_runs_finish_and_is_read_back_from_the_folders(sweeps, two_by_two):
    end(sweeps.store, run_of(two_by_two, "pretrained", 0), 0.88)
    end(sweeps.store, run_of(two_by_two, "scratch", 0), 0.30)
    half = sweeps.get(two_by_two.id)
    assert (half.state, half.counts["finished"]) == ("running", 2)
    assert half.values == {
        ("pretrained", 0): pytest.approx(88.0),
        ("scratch", 0): pytest.approx(30.0),
    }
    assert half.seconds_left == pytest.approx(20, abs=1)
    end(sweeps.store, run_of(two_by_two, "pretrained", 1), 0.89)
    end(sweeps.store, run_of(two_by_two, "scratch", 1), 0.32)
    full = sweeps.get(two_by_two.id)
    assert (full.state, full.can_resume, full.seconds_left) == ("finished", False, None)
    assert "points worse (95%" in full.rows[1].against.words
    assert full.rows[1].before == pytest.approx(50.0)
    with pytest.raises(InputError, match="nothing to resume"):
        sweeps.resume(two_by_two.id)
    elsewhere = Experiments(RunQueue(RunStore(sweeps.store.home)))
    assert elsewhere.list(SWEEP) == [full], "nothing but the folders is needed"
    assert (elsewhere.list(SWEEP, "base"), elsewhere.list(SWEEP, "pooling")) == ([full], [])


def test_a_clock_that_was_set_back_leaves_the_time_left_unknown(sweeps, two_by_two):
    end(sweeps.store, run_of(two_by_two, "pretrained", 0), 0.88, seconds=-3_600)
    assert sweeps.get(two_by_two.id).seconds_left is None
    end(sweeps.store, run_of(two_by_two, "scratch", 0), 0.30)
    assert sweeps.get(two_by_two.id).seconds_left == pytest.approx(20, abs=1)


def test_a_failed_sweep_tells_why(sweeps, two_by_two):
    for cell in two_by_two.cells:
        end(sweeps.store, cell.run.id, None, "failed", "the disk is full")
    sweep = sweeps.get(two_by_two.id)
    assert (sweep.state, sweep.reasons, sweep.can_resume) == ("failed", ["the disk is full"], True)


def test_stop_keeps_finished_runs_and_resume_queues_the_rest(sweeps, two_by_two):
    end(sweeps.store, run_of(two_by_two, "pretrained", 0), 0.88)
    stopped = sweeps.stop(two_by_two.id)
    assert (stopped.state, stopped.counts) == ("stopped", {"finished": 1, "stopped": 3})
    resumed = sweeps.resume(two_by_two.id)
    assert (resumed.state, resumed.counts) == ("running", {"finished": 1, "queued": 3})
    assert [cell.run.id for cell in resumed.cells] == [cell.run.id for cell in two_by_two.cells]


def test_a_sweep_at_work_cannot_be_deleted_until_it_is_stopped(sweeps, two_by_two):
    with pytest.raises(InputError, match="stop it before"):
        sweeps.delete(two_by_two.id)
    sweeps.stop(two_by_two.id)
    sweeps.delete(two_by_two.id)
    assert (sweeps.list(SWEEP), sweeps.store.list()) == ([], [])


def test_a_file_that_is_no_sweep_is_a_sentence_and_hides_no_other(sweeps, two_by_two):
    folder = sweeps.store.home / "experiments"
    plan = '[{"label": "a", "config": {}}]'
    (folder / "broken.json").write_text("{")
    (folder / "other.json").write_text(
        f'{{"kind": "sweep", "name": "depth", "created": 1, "runs": {plan}}}'
    )
    (folder / "empty.json").write_text(
        '{"kind": "sweep", "name": "base", "created": 1, "runs": []}'
    )
    assert [each.id for each in sweeps.list(SWEEP)] == [two_by_two.id]
    broken, empty, other = map(str, sweeps.damaged())
    assert f"{folder}/broken.json cannot be read" in broken
    assert "runs" in empty
    assert "there is no ablation 'depth'; choose pooling" in other


@pytest.mark.slow
def test_ablate_runs_a_sweep_in_the_foreground_and_prints_its_table(place, capsys):
    asked = [
        "ablate",
        "--preset",
        "pooling",
        "--seeds",
        "1",
        "--max-steps",
        "2",
        "--base",
        "scratch:1x32",
    ]
    assert main([*asked, "--home", str(place), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["preset"], told["state"], told["settings"]["max_steps"]) == (
        "pooling",
        "finished",
        2,
    )
    assert [row["variant"] for row in told["rows"]] == ["mean", "max", "cls"]
    assert all(-100 <= row["summary"]["mean"] <= 100 for row in told["rows"])
    assert {
        each["name"]: (each["highest"], each["lowest"]) for each in told["ranking"]
    } == dict.fromkeys(("mean", "max", "cls"), (1, 3))  # one seed tells nothing apart
    # Nothing is left to do.
    assert main(["ablate", "--resume", told["id"], "--home", str(place)]) == 0
    assert "mean" in capsys.readouterr().out
    assert len(RunStore(place).list()) == 3


def test_ablate_does_not_resume_folds(place, capsys):
    plan = PlannedRun(label="fold 1", config=RunConfig("regression").to_dict())
    stored = records(place).create(
        "folds", ExperimentRecord(kind="folds", name="my.csv", runs=(plan,))
    )
    assert main(["ablate", "--resume", stored, "--home", str(place)]) == 2
    assert f"{stored} is not a sweep" in capsys.readouterr().err


def test_ablate_names_the_presets_that_there_are(capsys, tmp_path):
    assert main(["ablate", "--home", str(tmp_path)]) == 2
    assert "pooling|concat|objective|base" in capsys.readouterr().err


def test_ablate_gives_a_cluster_as_many_runs_as_it_has_room_for(place, capsys, monkeypatch):
    under_way = []
    all_begun = threading.Barrier(3, timeout=60)

    def executes(store, run_id, states, **_):
        with store.lease(run_id, states) as lease:
            under_way.append(run_id)
            all_begun.wait()
            return lease.end(RunResult(run_id, "finished", 1, 0.0))

    monkeypatch.setattr("sbert_app.commands.ablate.executor", lambda cluster: executes)
    monkeypatch.setattr(RayCluster, "room", lambda self: 3)
    monkeypatch.setenv("SBERT_RAY", "auto")
    asked = [
        "ablate",
        "--preset",
        "pooling",
        "--seeds",
        "1",
        "--max-steps",
        "2",
        "--base",
        "scratch:1x32",
    ]
    assert main([*asked, "--home", str(place), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"
    assert len(under_way) == 3


SHIPPED_NAMES = sorted(file.stem for file in SHIPPED.glob("*.json"))


def test_a_file_that_is_no_table_is_said_so(tmp_path):
    (tmp_path / "pooling.json").write_text('{"runs": [{"speed": 1}]}')
    with pytest.raises(
        InputError, match=r"pooling.json cannot be read \(ablation: Field required\)"
    ):
        precomputed("pooling", tmp_path)
    assert precomputed("concat", tmp_path) is None


def test_numbers_are_varied_around_the_defaults():
    default = RunConfig("mnrl")
    fields = {
        "learning-rate": "learning_rate",
        "temperature": "mnrl_scale",
        "batch-size": "batch_size",
    }
    for name, field in fields.items():
        grid = ABLATIONS[name]
        found = {variant: getattr(grid.config(variant, 0), field) for variant in grid.variants}
        assert found[grid.default] == getattr(default, field)
        assert {float(variant): value for variant, value in found.items()} == {
            value: value for value in found.values()
        }


@pytest.mark.parametrize("name", SHIPPED_NAMES)
def test_a_shipped_table_holds_the_grid_it_says(name):
    table = precomputed(name)
    grid = ABLATIONS[table.ablation]
    assert name in (table.ablation, f"{table.ablation}-{table.settings.get('base')}")
    variants = {run.variant for run in table.runs}
    assert variants <= set(grid.variants)
    assert grid.default in variants
    if name != "objective":  # of which the page says what is missing
        assert variants == set(grid.variants)
    assert len({(run.variant, run.seed) for run in table.runs}) == len(table.runs)
    assert all(
        -1 <= run.before <= 1 and -1 <= run.after <= 1 and run.seconds > 0 for run in table.runs
    )
    assert not any("/" in str(value) for value in table.settings.values())  # no path of the machine
    assert f"--seeds {len(table.seeds)}" in table.command
    changed = [
        field
        for field, option in (("base", "--base"), ("learning_rate", "--lr"))
        if option in table.command
    ]
    changes = {field: table.settings[field] for field in ("max_steps", *changed)}
    fixed = grid.config(grid.default, 0, **changes)
    for field in ("base", "learning_rate", "batch_size", "epochs", "eval_data"):
        if field in table.settings:
            assert table.settings[field] == getattr(fixed, field)


def test_tables_from_other_bases_come_before_that_of_the_default_one(tmp_path):
    for name, base in (("pooling", "all-MiniLM-L6-v2"), ("pooling-raw-bert-mini", "raw-bert-mini")):
        table = json.loads((SHIPPED / "pooling.json").read_text())
        (tmp_path / f"{name}.json").write_text(
            json.dumps(table | {"settings": table["settings"] | {"base": base}})
        )
    assert list(precomputed_tables("pooling", tmp_path)) == ["raw-bert-mini", "all-MiniLM-L6-v2"]
    assert list(precomputed_tables("base")) == [""]
