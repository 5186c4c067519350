"""The soak in a short form: it keeps an app busy, reads its memory, and compares the end with the start."""

import pytest

from benchmarks import soak


@pytest.mark.slow
def test_a_short_soak_answers_everything_and_draws_a_curve(monkeypatch, home):
    monkeypatch.setattr(soak, "POINTS", 6)
    monkeypatch.setattr(soak, "LAST_ANSWERS_SECONDS", 30.0)
    result = soak.run(minutes=0.2, users=2, bulk_rows=50)
    assert result["failed"] == {}
    assert set(result["answers"]) >= {"compare", "run"}, "however slow the machine is"
    curve = result["curve"]
    assert [point["seconds"] for point in curve] == sorted(point["seconds"] for point in curve)
    assert len(curve) == 7
    assert all(100 < point["app_mb"] < 10_000 and point["threads"] > 1 for point in curve)
    assert any(point["worker_mb"] > 100 for point in curve), "a run was on"
    assert result["peak_mb"] == max(point["app_mb"] for point in curve)


def test_the_end_is_compared_with_the_time_after_which_all_is_loaded():
    curve = [{"seconds": minute * 60, "app_mb": 500 + 100 * min(minute, 5)} for minute in range(31)]
    compared = soak.compared(curve, settled=300)
    assert (compared["settled_mb"], compared["end_mb"], compared["growth_percent"]) == (1000, 1000, 0.0)
    curve[-3:] = [{**point, "app_mb": 1100} for point in curve[-3:]]
    assert soak.compared(curve, settled=300)["growth_percent"] == pytest.approx(10.0)
    curve[20]["app_mb"] = 3000
    assert soak.compared(curve, settled=300)["peak_mb"] == 3000
