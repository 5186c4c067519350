"""`pages/ablation/page.py`, what it shows: precomputed tables with their source, statistics, a sweep."""

import json
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from sbert_app.pages.ablation import page as views
from sbert_app.pages.components.experiments import name_of, status_of
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import (
    ABLATIONS,
    outcome,
    precomputed_tables,
    rank_variants,
    variant_rows,
)
from sbert_app.services.experiments.experiment import Experiments, new_sweep
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
        assert "Not measured yet" in views._text(name, None, None)
    for table in tables:
        html = views.numbers_of(name, table.base, None)
        assert f"{len(table.runs)} runs" in html
        assert table.machine["device"] in html
        assert f"<code>{table.command}</code>" in html
    if name == "base":
        assert "2e-05 (pretrained, random weights); 0.001 (InferSent on NLI, DAN on NLI)" in html


def test_the_text_is_that_of_the_base_of_the_figure():
    raw = views._text("pooling", "raw-bert-mini", None)
    assert "Mean stands out: CLS is 13.4 points lower and max 24.3." in raw
    assert "masked language modelling" in raw and "MiniLM" not in raw
    tuned = views._text("pooling", "all-MiniLM-L6-v2", None)
    assert "already tuned" in tuned and "masked language modelling" not in tuned
    assert "More than one setting differs here" in views._text("base", "", None)


def test_the_form_holds_the_settings_of_the_figure_and_says_what_differs():
    for name in ABLATIONS:
        for base in precomputed_tables(name):
            model, seeds, steps, _ = (update.get("value") for update in views._fill(name, base))
            data = ABLATIONS[name].common["train_data"]
            assert views._differences(name, base, model, seeds, steps, data) == []
    differ = views._differences("pooling", "raw-bert-mini", "all-MiniLM-L6-v2", 5, 40, "")
    assert differ == ["base", "steps"]
    assert views._differences("temperature", None, "all-MiniLM-L6-v2", 3, 200, "") is None
    record = views._sweep("pooling", "raw-bert-mini", "raw-bert-mini", 2, 360, "")
    assert record.changes == {"learning_rate": 1e-4, "max_steps": 360, "base": "raw-bert-mini"}


def test_a_sweep_is_a_third_mark_in_the_figure_and_a_column_of_its_table(sweeps, monkeypatch):
    sweep = sweeps.start(new_sweep("pooling", 2, {"max_steps": 40, "base": "scratch:1x32"}))
    assert len(views._figure("pooling", "raw-bert-mini", sweep)["value"].data) == 3, (
        "before, the paper, shipped"
    )
    monkeypatch.setattr(type(sweep), "values", AFTER)
    monkeypatch.setattr(type(sweep), "rows", variant_rows(POOLING, AFTER))
    figure = views._figure("pooling", "raw-bert-mini", sweep)["value"]
    assert [trace.name for trace in figure.data] == [
        *("before training", "the paper", "here (scratch:1x32, 2 seeds, 40 steps)", "shipped")
    ]
    assert figure.data[2].x == pytest.approx((86.2, 80.3, None))
    html = views.numbers_of("pooling", "raw-bert-mini", sweep)
    assert html.index("<th>shipped</th>") < html.index(
        "<th>here (scratch:1x32, 2 seeds, 40 steps)</th>"
    )
    shipped = precomputed_tables("pooling")["raw-bert-mini"].rows[0].summary.mean
    assert f"<b>{shipped:.2f}</b>" in html and "<b>86.20</b>" in html
    assert "here (scratch:1x32, 2 seeds, 40 steps): Mean" in views._text(
        "pooling", "raw-bert-mini", sweep
    )


def test_one_seed_is_no_comparison():
    html = views.statistics_of(
        {"here": variant_rows(POOLING, {("mean", 0): 86.0, ("max", 0): 80.0})}
    )
    assert "nothing to test" in html
    assert "CLS" not in html, "a variant that nobody has measured has no row"


def test_the_statistics_have_a_row_for_each_variant_and_mark_the_default():
    html = views.statistics_of({"here": variant_rows(POOLING, AFTER, before=AFTER)})
    assert html.count("<tr class=") == 2
    assert html.count('<tr class="chosen">') == 1
    assert "<b>86.20</b> ± 0.28" in html
    assert "the default" in html
    assert "69.92" in html, "the paper's max"
    assert "p = 0.0" in html


def test_variants_that_cannot_be_told_apart_from_the_best_are_named():
    """Means of 86.2 and 86.1 with opposite signs by seed are tied; 80 in every seed is apart, by Holm over three."""
    by_seed = {
        "mean": (86.0, 86.4, 86.2, 86.3),
        "cls": (86.1, 86.2, 86.3, 86.1),
        "max": (80.0, 80.6, 80.2, 80.5),
    }
    values = {
        (name, seed): value for name, row in by_seed.items() for seed, value in enumerate(row)
    }
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
    assert outcome(rows).startswith(
        "Nothing stands out here: 2 of 3 cannot be told apart from the best"
    )


def test_the_plan_speaks_for_the_variants_that_download_other_data_too(sweeps):
    html = views.plan_of(sweeps.estimate(new_sweep("base", 1, {})), None)
    assert "4 variants × 1 seed = 4 runs · as many steps as the data has · " in html
    assert html.count("snli:dev is downloaded from the Hub when the run starts") == 1
    assert "scratch:bilstm takes its word vectors from GloVe" in html


def test_a_sweep_is_estimated_and_is_a_grid_of_links_to_its_runs(sweeps):
    plan = new_sweep("pooling", 2, {"max_steps": 20, "base": "scratch:1x32"})
    html = views.plan_of(sweeps.estimate(plan), None)
    assert "3 variants × 2 seeds = 6 runs · 20 steps each · " in html
    assert "time known after 20 steps" in html
    sweep = sweeps.start(plan)
    html = views.grid_of(sweep)
    assert html.count('<a class="cell queued" href="train?run=') == 6
    assert "seed 1</th>" in html
    status = status_of(sweep)
    assert "0 of 6 runs finished" in status
    assert "scratch:1x32 · " in status
    assert "20 steps · batch 16" in status
    assert "2 seeds · 0/6" in name_of(sweep)
    record = {"state": "failed", "created": 1.0, "reason": '"><script>alert(1)</script>'}
    (sweep.cells[0].run.folder / "run.json").write_text(json.dumps(record))
    sweep = sweeps.get(sweep.id)
    html = views.grid_of(sweep) + status_of(sweep)
    assert "<script" not in html
    assert 'class="cell failed"' in html
