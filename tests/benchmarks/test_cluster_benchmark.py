"""What the benchmark of a cluster concludes from the times of parts and from readings of memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import cluster
from sbert_app.services.files import shards
from sbert_app.services.files.blocks import ShardJob
from sbert_app.services.files.shards import run_job
from training.errors import InputError


def test_the_rate_is_that_after_a_fifth_of_the_parts():
    """The first part comes after 20 seconds, the second worker starts late, then there is one a second."""
    found = cluster.timeline([30.0, 27.0, 28.0, 29.0, 31.0, 32.0, 33.0, 34.0, 20.0, 35.0], started=0.0, block_rows=100)
    assert found == {"first_part_seconds": 20.0, "seconds": 35.0, "rows_per_second": pytest.approx(100.0)}


def test_memory_is_compared_while_the_workers_score():
    curve = [{"parts": part, "driver_mb": 200, "workers_mb": 500 + 40 * min(part, 4)} for part in range(1, 20)]
    found = cluster.growth(curve)
    assert (found["driver_settled_mb"], found["driver_end_mb"], found["driver_growth_percent"]) == (200, 200, 0.0)
    assert found["workers_growth_percent"] == 0.0
    for point in curve[-5:]:
        point["workers_mb"] = 726
    assert cluster.growth(curve)["workers_growth_percent"] == pytest.approx(10.0)


def test_the_sleeping_encoder_takes_its_time_for_each_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "BLOCK_SLEEPS", 0.2)
    cluster.write_pairs(tmp_path / "in.csv", 2 * cluster.SLEEPING_ROWS)
    monkeypatch.setattr(shards, "Worker", cluster.SleepingWorker)
    job = ShardJob("score", str(tmp_path / "out"), "sleeping", block_rows=cluster.SLEEPING_ROWS)
    started = time.monotonic()
    assert run_job(job, str(tmp_path / "in.csv")).blocks == 2
    assert time.monotonic() - started >= 2 * 0.2


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'sbert-lab\[ray\]'"):
        cluster.run()
