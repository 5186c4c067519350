"""The benchmark of runs on Ray, in a small form."""

from __future__ import annotations

import pytest

from benchmarks import runs


@pytest.mark.slow
def test_runs_are_measured_on_two_nodes() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    measured = runs.run(nodes=2, runs=4, seconds=0.3)
    assert measured["seconds"] >= measured["ideal_seconds"] == 0.6
