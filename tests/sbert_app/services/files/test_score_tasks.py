"""ScoreTasks: files scored for browser sessions, with progress, Stop and results that are removed."""

import os
import threading
import time
from pathlib import Path

import pytest
from bag_encoder import BagEncoder, OverlapCrossEncoder

from sbert_app.services.files.score_tasks import KEPT_SECONDS, ScoreRequest, ScoreTasks
from sbert_app.services.files.summary import ScoreSummary
from sbert_app.services.tasks import TaskProgress
from training.data.tables.table import open_table
from training.errors import InputError, Stopped


class Models:
    """A cache whose models are loaded at once, or when ``ready`` is set."""

    def __init__(self, encoder=None):
        self.ready = threading.Event()
        self.ready.set()
        self._encoder = encoder or BagEncoder()

    def encoder(self, name, pooling=None, role=None):
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


def head(pairs: Path, rows: int) -> Path:
    """The file with its first rows alone."""
    pairs.write_text("".join(pairs.read_text().splitlines(keepends=True)[: rows + 1]))
    return pairs


def folders(temp_folder: Path) -> list[Path]:
    return sorted((temp_folder / "scored").iterdir())


def test_progress_is_reported_and_the_summary_comes_last(pairs, tmp_path):
    tasks = ScoreTasks(Models(SlowEncoder()), tmp_path / "tmp")
    *events, summary = tasks.run("me", ScoreRequest(head(pairs, 200), None, "bag", cross_encoder="overlap"))
    assert events
    assert all(isinstance(event, TaskProgress) for event in events)
    assert (events[-1].description, 0 < events[-1].done <= events[-1].total) == ("Scoring", True)
    assert isinstance(summary, ScoreSummary)
    assert [Path(output).name for output in summary.outputs] == ["pairs-scored.csv", "pairs-scored.parquet"]
    assert all(Path(output).is_relative_to(tmp_path / "tmp") for output in summary.outputs)


def test_a_table_that_is_open_already(pairs, tmp_path):
    *_, summary = ScoreTasks(Models(), tmp_path / "tmp").run("me", ScoreRequest(open_table(pairs), None, "bag"))
    assert summary.rows == 2_000


def test_stop_keeps_the_rows_scored_so_far(pairs, tmp_path):
    tasks = ScoreTasks(Models(SlowEncoder()), tmp_path / "tmp")
    for event in tasks.run("me", ScoreRequest(pairs, None, "bag", formats=(".csv",))):
        if isinstance(event, TaskProgress) and event.done >= 16:
            tasks.stop("me")
    assert isinstance(event, ScoreSummary)
    assert 0 < event.stopped_at < 2_000
    assert len(Path(event.outputs[0]).read_text().splitlines()) == event.stopped_at + 1


def test_stop_does_not_wait_for_a_model_that_loads(pairs, tmp_path):
    models = Models()
    models.ready.clear()
    tasks = ScoreTasks(models, tmp_path / "tmp")
    with pytest.raises(Stopped):
        for event in tasks.run("me", ScoreRequest(pairs, None, "bag")):
            assert event.description == "Loading bag …"
            tasks.stop("me")
    models.ready.set()


def test_an_owner_cannot_stop_the_task_of_another(pairs, tmp_path):
    tasks = ScoreTasks(Models(), tmp_path / "tmp")
    running = tasks.run("me", ScoreRequest(pairs, None, "bag"))
    first = next(running)  # the only event, where scoring is very quick
    tasks.stop("you")
    tasks.forget("you")
    *_, summary = [first, *running]
    assert summary.stopped_at is None


def test_results_are_removed_when_their_owner_leaves(pairs, tmp_path):
    tasks = ScoreTasks(Models(), tmp_path / "tmp")
    list(tasks.run("me", ScoreRequest(pairs, None, "bag")))
    assert len(folders(tmp_path / "tmp")) == 1
    list(tasks.run("me", ScoreRequest(pairs, None, "bag")))
    assert len(folders(tmp_path / "tmp")) == 1, "the earlier results are gone"
    tasks.forget("me")
    assert folders(tmp_path / "tmp") == []


def test_closing_the_iterator_stops_the_task(pairs, tmp_path):
    encoder = SlowEncoder()
    tasks = ScoreTasks(Models(encoder), tmp_path / "tmp")
    running = tasks.run("me", ScoreRequest(pairs, None, "bag"))
    next(running)
    running.close()
    for thread in [thread for thread in threading.enumerate() if thread.name == "task: Scoring"]:
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert len(encoder.seen) < 4_000


def test_results_are_removed_after_a_day(pairs, tmp_path):
    old, young = tmp_path / "tmp" / "scored" / "old", tmp_path / "tmp" / "scored" / "young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    list(ScoreTasks(Models(), tmp_path / "tmp").run("me", ScoreRequest(pairs, None, "bag")))
    assert not old.exists()
    assert young.exists()


def test_errors_are_raised_in_the_iteration(pairs, tmp_path):
    tasks = ScoreTasks(Models(), tmp_path / "tmp")
    with pytest.raises(InputError, match="no-such"):
        list(tasks.run("me", ScoreRequest(pairs, None, "no-such")))
    with pytest.raises(InputError, match="There is no file"):
        list(tasks.run("me", ScoreRequest(tmp_path / "gone.csv", None, "bag")))

    class Broken(BagEncoder):
        def encode(self, *_, **__):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        list(ScoreTasks(Models(Broken()), tmp_path / "tmp").run("me", ScoreRequest(pairs, None, "bag")))
