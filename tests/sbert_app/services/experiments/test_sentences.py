"""`experiments/ablations.py` and the presets: sentences with figures agree with the tables that ship."""

import re
from statistics import fmean

from sbert_app.services.experiments.ablations import ABLATIONS, precomputed
from sbert_app.services.runs.record import PRESETS
from training.catalogue import DATA_SETS


def means(name: str) -> dict[str, tuple[float, float]]:
    """variant -> (ρ ×100 before, after)."""
    table = precomputed(name)
    # An ablation may have variants that have not been measured yet.
    measured = {run.variant for run in table.runs}
    runs = {variant: [run for run in table.runs if run.variant == variant] for variant in measured}
    return {
        variant: (100 * fmean(run.before for run in each), 100 * fmean(run.after for run in each))
        for variant, each in runs.items()
    }


def test_what_presets_and_grids_say_is_true_of_the_shipped_tables():
    before, after = means("pooling")["max"]
    assert f"from {before:.1f} to {after:.1f} in one epoch" in PRESETS["max"].lesson
    assert f"Table 6 has {ABLATIONS['pooling'].variants['max'].paper:.1f}" in PRESETS["max"].lesson
    found = means("pooling")
    assert found["max"][1] < found["max"][0]
    paper = {name: variant.paper for name, variant in ABLATIONS["pooling"].variants.items()}
    for ranking in ({name: after for name, (_, after) in found.items()}, paper):
        assert sorted(ranking, key=ranking.get) == ["max", "cls", "mean"]
    assert all(after < before for before, after in means("concat").values())
    after = {name: value for name, (_, value) in means("objective").items()}
    assert max(after, key=after.get) == ABLATIONS["objective"].default == "regression"
    assert not ABLATIONS["objective"].setting, "the paper has no figures for it"
    assert f"{DATA_SETS['all-nli'].splits['train'].rows:,} pairs" in PRESETS["nli"].lesson
    assert "Maximum steps" in PRESETS["nli"].lesson
    assert not re.search(r"\b(hours|days)\b", PRESETS["nli"].lesson), "the estimate says that"
