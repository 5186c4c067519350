"""Files scored for the people in front of a page: watched, stopped, cleaned up after."""

import os
import threading
import time
from pathlib import Path

import pytest
from bag_encoder import BagEncoder, OverlapCrossEncoder

from sbert_app.services.files.score_jobs import KEPT_SECONDS, ScoreJobs, ScoreRequest
from sbert_app.services.files.summary import Progress, ScoreSummary
from training.data.tables.table import open_table
from training.errors import InputError, Stopped


class Shelf:
    """A shelf whose models are there at once, or when ``ready`` is set."""

    def __init__(self, encoder=None):
        self.ready = threading.Event()
        self.ready.set()
        self._encoder = encoder or BagEncoder()

    def has(self, kind, name):
        return False

    def encoder(self, name, pooling=None):
        if name == "no-such":
            raise InputError("there is no model no-such")
        self.ready.wait(timeout=30)
        return self._encoder

    def cross_encoder(self, name):
        return OverlapCrossEncoder()


class SlowEncoder(BagEncoder):
    """A hundred sentences a second."""

    def encode(self, sentences, normalize=True, on_progress=None, should_stop=None):
        for _ in sentences:
            if should_stop():
                raise Stopped
            time.sleep(0.01)
        return super().encode(sentences)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("s1,s2\n" + "".join(f"sentence {i},neighbour {i}\n" for i in range(2_000)))
    return path


def folders(scratch: Path) -> list[Path]:
    return sorted((scratch / "scored").iterdir())


def test_what_happens_is_told_and_the_summary_comes_last(pairs, tmp_path):
    jobs = ScoreJobs(Shelf(), tmp_path / "tmp")
    *events, summary = jobs.run("me", ScoreRequest(pairs, None, "bag", cross_encoder="overlap"))
    assert events[:2] == ["Loading bag …", "Loading overlap …"]
    assert all(isinstance(event, Progress) for event in events[2:])
    assert isinstance(summary, ScoreSummary)
    assert [Path(output).name for output in summary.outputs] == ["pairs-scored.csv", "pairs-scored.parquet"]
    assert all(Path(output).is_relative_to(tmp_path / "tmp") for output in summary.outputs)


def test_a_table_that_is_open_already(pairs, tmp_path):
    *_, summary = ScoreJobs(Shelf(), tmp_path / "tmp").run("me", ScoreRequest(open_table(pairs), None, "bag"))
    assert summary.rows == 2_000


def test_stop_keeps_what_is_done(pairs, tmp_path):
    jobs = ScoreJobs(Shelf(SlowEncoder()), tmp_path / "tmp")
    for event in jobs.run("me", ScoreRequest(pairs, None, "bag", formats=(".csv",))):
        if isinstance(event, Progress) and event.rows >= 16:
            jobs.stop("me")
    assert isinstance(event, ScoreSummary)
    assert 0 < event.stopped_at < 2_000
    assert len(Path(event.outputs[0]).read_text().splitlines()) == event.stopped_at + 1


def test_stop_does_not_wait_for_a_model_that_loads(pairs, tmp_path):
    shelf = Shelf()
    shelf.ready.clear()
    jobs = ScoreJobs(shelf, tmp_path / "tmp")
    with pytest.raises(Stopped):
        for event in jobs.run("me", ScoreRequest(pairs, None, "bag")):
            assert event == "Loading bag …"
            jobs.stop("me")
    shelf.ready.set()


def test_nobody_stops_the_work_of_another(pairs, tmp_path):
    jobs = ScoreJobs(Shelf(), tmp_path / "tmp")
    running = jobs.run("me", ScoreRequest(pairs, None, "bag"))
    next(running)
    jobs.stop("you")
    jobs.forget("you")
    *_, summary = running
    assert summary.stopped_at is None


def test_who_leaves_takes_the_work_along(pairs, tmp_path):
    jobs = ScoreJobs(Shelf(), tmp_path / "tmp")
    list(jobs.run("me", ScoreRequest(pairs, None, "bag")))
    assert len(folders(tmp_path / "tmp")) == 1
    list(jobs.run("me", ScoreRequest(pairs, None, "bag")))
    assert len(folders(tmp_path / "tmp")) == 1, "the earlier results are gone"
    jobs.forget("me")
    assert folders(tmp_path / "tmp") == []


def test_a_reader_that_goes_away_stops_the_work(pairs, tmp_path):
    encoder = SlowEncoder()
    jobs = ScoreJobs(Shelf(encoder), tmp_path / "tmp")
    running = jobs.run("me", ScoreRequest(pairs, None, "bag"))
    next(running)
    running.close()
    for thread in [thread for thread in threading.enumerate() if thread.name == "score"]:
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert len(encoder.seen) < 4_000


def test_results_that_nobody_came_back_for_go_after_a_day(pairs, tmp_path):
    old, young = tmp_path / "tmp" / "scored" / "old", tmp_path / "tmp" / "scored" / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    list(ScoreJobs(Shelf(), tmp_path / "tmp").run("me", ScoreRequest(pairs, None, "bag")))
    assert not old.exists()
    assert young.exists()


def test_what_is_wrong_is_raised_where_it_is_waited_for(pairs, tmp_path):
    jobs = ScoreJobs(Shelf(), tmp_path / "tmp")
    with pytest.raises(InputError, match="no-such"):
        list(jobs.run("me", ScoreRequest(pairs, None, "no-such")))
    with pytest.raises(InputError, match="There is no file"):
        list(jobs.run("me", ScoreRequest(tmp_path / "gone.csv", None, "bag")))

    class Broken(BagEncoder):
        def encode(self, *_, **__):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        list(ScoreJobs(Shelf(Broken()), tmp_path / "tmp").run("me", ScoreRequest(pairs, None, "bag")))
