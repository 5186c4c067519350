"""What the Ablation page shows: precomputed tables with their source, statistics, a sweep; and folds in its panel."""

import json
from pathlib import Path

import gradio as gr
import pytest
from scipy.stats import ttest_rel

from sbert_app.pages.ablation import page as views
from sbert_app.pages.components.experiments import ExperimentPanel, name_of, status_of
from sbert_app.pages.components.templates import macro
from sbert_app.services.container import Services
from sbert_app.services.experiments import folds
from sbert_app.services.experiments.ablations import (
    ABLATIONS,
    precomputed,
    precomputed_tables,
    rank_variants,
    variant_rows,
)
from sbert_app.services.experiments.experiment import FOLDS, Experiments, new_sweep
from sbert_app.settings import Settings

POOLING = ABLATIONS["pooling"]
AFTER = {("mean", 0): 86.0, ("mean", 1): 86.4, ("max", 0): 80.0, ("max", 1): 80.6}


@pytest.fixture
def sweeps(tmp_path: Path) -> Experiments:
    services = Services.start(Settings(home=tmp_path))
    services.jobs.starts_workers = False
    return Experiments(services.jobs)


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_precomputed_table_says_where_it_comes_from(name):
    tables = precomputed_tables(name).values()
    if not tables:
        assert "Not measured yet" in macro("ablation/not_measured")(ABLATIONS[name])
    for table in tables:
        html = views.source_of(table)
        assert f"{len(table.runs)} runs" in html
        assert table.machine["device"] in html
        assert f"<code>{table.command}</code>" in html


def test_a_setting_in_which_variants_differ_is_given_for_each():
    base = precomputed("base")
    assert {"train_data", "batch_size", "learning_rate"}.isdisjoint(base.settings)
    html = views.source_of(base)
    assert "stsb:train (pretrained, random weights); snli:dev+snli:test (InferSent on NLI, DAN on NLI)" in html
    assert "2e-05 (pretrained, random weights); 0.001 (InferSent on NLI, DAN on NLI)" in html
    assert "16 (pretrained, random weights); 64 (InferSent on NLI, DAN on NLI) rows" in html
    pooling = views.source_of(precomputed("pooling"))
    assert "stsb:train, 5,749 rows; a run saw 5,749 of them" in pooling
    assert "360 steps of 16 rows, learning rate 2e-05" in pooling


def test_the_legend_names_the_best_and_the_worst_and_the_span_in_the_paper():
    html = views.legend_of(POOLING, variant_rows(POOLING, AFTER), "all-MiniLM-L6-v2")
    assert (
        "Best: <b>mean</b>. Worst: <b>max</b>, 5.9 points lower; in the paper best and worst are 17.5 points apart"
        in html
    )
    assert "bert-base-uncased" in html
    assert not any(colour in html.lower() for colour in ("blue", "orange", "grey"))  # a mark is named as in the figure


def test_one_variant_is_no_comparison():
    html = views.legend_of(POOLING, variant_rows(POOLING, {("mean", 0): 86.0}), "raw-bert-mini")
    assert "Best:" not in html
    html = views.statistics_of(variant_rows(POOLING, {("mean", 0): 86.0, ("max", 0): 80.0}))
    assert "told apart" not in html
    assert "Not precomputed: CLS. Start below runs" in views.not_precomputed(variant_rows(POOLING, AFTER))
    assert views.not_precomputed(variant_rows(POOLING, AFTER | {("cls", 0): 80.0})) == ""


def test_the_statistics_have_a_row_for_each_variant_and_mark_the_default():
    html = views.statistics_of(variant_rows(POOLING, AFTER, before=AFTER))
    assert html.count("<tr class=") == len(POOLING.variants)
    assert html.count('<tr class="chosen">') == 1
    assert "<b>86.20</b> ± 0.28" in html
    assert "the default" in html
    assert "69.92" in html, "the paper's max"
    assert "p = 0.0" in html


def test_variants_that_cannot_be_told_apart_from_the_best_are_named():
    """Means of 86.2 and 86.1 with opposite signs by seed are tied; 80 in every seed is apart, by Holm over three."""
    by_seed = {"mean": (86.0, 86.4, 86.2, 86.3), "cls": (86.1, 86.2, 86.3, 86.1), "max": (80.0, 80.6, 80.2, 80.5)}
    values = {(name, seed): value for name, row in by_seed.items() for seed, value in enumerate(row)}
    rows = variant_rows(POOLING, values)
    standings, above, p_values = rank_variants(rows)
    assert [(each.name, each.tied, each.highest, each.lowest) for each in standings] == [
        ("mean", True, 1, 2),
        ("cls", True, 1, 2),
        ("max", False, 3, 3),
    ]
    assert above[0][1] == pytest.approx(1 - ttest_rel(by_seed["mean"], by_seed["cls"]).pvalue / 2)
    assert above[2][0] == pytest.approx(ttest_rel(by_seed["mean"], by_seed["max"]).pvalue / 2)
    # One p value a row, which is the corrected one of the ranking.
    assert next(row for row in rows if row.variant == "max").against.p == p_values["mean", "max"]
    assert rank_variants(rows).to_json()[1]["above"] == {
        "mean": 1 - above[0][1],
        "cls": None,
        "max": above[1][2],
    }
    html = views.statistics_of(rows)
    assert "<b>mean, CLS</b> cannot be told apart from the best over these seeds, of 3 variants." in html
    assert "1–2" in html and "&gt; max" in html


def test_with_one_seed_nothing_is_ranked():
    html = views.statistics_of(variant_rows(POOLING, {("mean", 0): 86.0, ("max", 0): 80.0}))
    assert "told apart" not in html


def test_variants_that_are_not_precomputed_are_named():
    assert "Not precomputed: CLS. Start below runs" in views.not_precomputed(variant_rows(POOLING, AFTER))
    assert views.not_precomputed(variant_rows(POOLING, AFTER | {("cls", 0): 80.0})) == ""


def test_a_new_sweep_is_a_grid_of_links_to_its_runs(sweeps):
    sweep = sweeps.start(new_sweep("pooling", 2, {"max_steps": 20, "base": "scratch:1x32"}))
    html = views.grid_of(sweep)
    assert html.count('<a class="cell queued" href="train?run=') == 6
    assert html.count("queued</a>") == 6
    assert "seed 1</th>" in html
    status = status_of(sweep)
    assert "0 of 6 runs finished" in status
    assert "scratch:1x32 · " in status
    assert "20 steps · batch 16" in status
    assert "2 seeds · 0/6" in name_of(sweep)


def test_the_reason_of_a_failed_run_is_text(sweeps):
    sweep = sweeps.start(new_sweep("pooling", 1, {"max_steps": 20, "base": "scratch:1x32"}))
    run = sweep.cells[0].run
    record = {"state": "failed", "created": 1.0, "reason": '"><script>alert(1)</script>'}
    (run.folder / "run.json").write_text(json.dumps(record))
    sweep = sweeps.get(sweep.id)
    html = views.grid_of(sweep) + status_of(sweep)
    assert "<script" not in html
    assert 'class="cell failed"' in html


def test_an_estimate_counts_variants_seeds_and_runs(sweeps):
    estimate = sweeps.estimate(new_sweep("pooling", 1, {"max_steps": 200, "base": "scratch:1x32"}))
    html = views.plan_of(estimate, None, unknown="measuring")
    assert "3 variants × 1 seed = 3 runs · 200 steps each · " in html
    assert "measuring the speed" in html


def test_folds_are_stopped_resumed_and_deleted_as_sweeps_are(sweeps, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("sentence1,sentence2,score\n" + "".join(f"a {i},b {i},{i % 6}\n" for i in range(40)))
    experiment = folds.start(file, 2, sweeps, base="scratch:1x32", max_steps=2)
    with gr.Blocks():
        panel = ExperimentPanel(sweeps, FOLDS, "folds", "Experiment", watches_always=False)

    def offered() -> list[bool]:
        now = panel.look(lambda _: {}, experiment.id)
        return [now[button].version["visible"] for button in (panel.stop, panel.resume, panel.delete)]

    assert offered() == [True, False, False]
    assert panel.look(lambda _: {}, None)[panel.timer].version, "while they are at work they are watched"
    sweeps.stop(experiment.id)
    assert offered() == [False, True, True]
    assert not panel.look(lambda _: {}, None)[panel.timer].version
    sweeps.resume(experiment.id)
    assert offered() == [True, False, False]
    sweeps.stop(experiment.id)
    sweeps.delete(experiment.id)
    assert offered() == [False, False, False]
    status = status_of(experiment)
    assert "0 of 2 runs finished" in status and "scratch:1x32 · regression · 2 steps · batch 16" in status
    assert "mine.csv, 2 folds · 0/2" in name_of(experiment)
