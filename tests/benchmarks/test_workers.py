"""The benchmark of workers, in a small form."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import workers


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server")
def test_a_sweep_is_measured_on_one_and_two_workers() -> None:
    measured = workers.run(runs=3, seconds=0.3)
    assert [row["workers"] for row in measured["rows"]] == [1, 2]
    assert measured["rows"][0]["seconds"] >= 0.9
    assert measured["rows"][1]["seconds"] >= 0.6
