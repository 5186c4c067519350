"""`results/results.py` and `table.py`: what cannot be told apart is said to be tied; ranks are intervals."""

import numpy as np
import pytest

from sbert_app.services.results.grid import EvalResult, ResultGrid
from sbert_app.services.results.results import Metric, holm, rank
from sbert_app.services.results.table import rank_models


def grid(seed: int, noises: dict[str, float], n: int = 300) -> ResultGrid:
    random = np.random.default_rng(seed)
    gold = random.uniform(0, 5, n)
    found = ResultGrid(list(noises), ["mine.csv"])
    found.sizes = {"mine.csv": n}
    for model, noise in noises.items():
        scores = (gold + noise * random.standard_normal(n)).astype(np.float32)
        found.results[model, "mine.csv"] = EvalResult({"cosine": scores}, gold, 10, 0.1)
    return found


def test_holms_correction_is_that_of_its_paper():
    # The least p-value is compared with 0.05 / 4, the next with 0.05 / 3, and so on until one
    # fails.
    p_values = {("a", "b"): 0.01, ("a", "c"): 0.016, ("a", "d"): 0.06, ("b", "c"): 0.001}
    corrected = holm(p_values)
    assert corrected == pytest.approx(
        {("b", "c"): 0.004, ("a", "b"): 0.03, ("a", "c"): 0.032, ("a", "d"): 0.06}
    )
    assert holm({("a", "b"): 0.03, ("a", "c"): 0.04})["a", "c"] == pytest.approx(0.06)


def test_ranks_are_left_open_where_models_cannot_be_compared():
    found = rank(["a", "b", "c"], lambda a, b: (3.0, 0.0002) if (a, b) == ("a", "c") else None)
    assert [(each.highest, each.lowest) for each in found.standings] == [(1, 2), (1, 3), (2, 3)]
    assert found.above[0] == [None, None, 0.9999]


def test_equal_models_are_tied_and_a_worse_one_is_not():
    found = rank_models(grid(0, {"bad": 4.0, "one": 0.8, "other": 0.8}), "mine.csv", Metric())
    assert {each.name: (each.tied, each.highest, each.lowest) for each in found.standings} == {
        "one": (True, 1, 2),
        "other": (True, 1, 2),
        "bad": (False, 3, 3),
    }
    assert found.above[0][2] > 0.999
    assert found.above[0][1] + found.above[1][0] == pytest.approx(1)
    assert found.above[0][0] is None


def test_ten_models_of_which_one_is_bad_are_ranked():
    """1,000 resamples show no p-value below 0.002, and 45 tests ask for 0.0011."""
    noises = {f"m{i}": 0.8 for i in range(9)} | {"bad": 4.0}
    found = rank_models(grid(1, noises, 200), "mine.csv", Metric())
    assert [each.name for each in found.standings if not each.tied] == ["bad"]


@pytest.mark.slow
def test_the_true_ranks_are_in_their_intervals():
    """Equally good models: an interval that leaves rank 1 or 3 out is wrong, which happens in 5 of 100 at most."""
    wrong = 0
    for seed in range(30):
        standings = rank_models(
            grid(seed, dict.fromkeys("abc", 1.0), 100), "mine.csv", Metric()
        ).standings
        wrong += any((each.highest, each.lowest) != (1, 3) for each in standings)
    assert wrong <= 4
