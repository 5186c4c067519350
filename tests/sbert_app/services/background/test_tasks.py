"""TaskRunner: work in a thread, with progress and a way to stop it."""

import threading
import time

import pytest

from sbert_app.services.background.tasks import (
    SupersededError,
    TaskProgress,
    TaskResult,
    TaskRunner,
    run_apart,
)
from sbert_app.services.background.watch import Watch
from training import progress
from training.errors import StoppedError


@pytest.fixture
def tasks():
    return TaskRunner()


class Endless:
    """Work that runs until it is stopped, and then returns how often it went round."""

    def __init__(self):
        self.started = threading.Event()
        self.ended = threading.Event()

    def __call__(self, watch):
        self.started.set()
        rounds = 0
        while not watch.should_stop():
            rounds += 1
            watch.report(rounds, None, rounds + 1)
            time.sleep(0.01)
        self.ended.set()
        return rounds


def test_progress_comes_in_timed_stages_and_the_result_last(tasks):
    def work(watch):
        watch.report(5, None, 10)
        time.sleep(0.4)
        watch.report(0.1, "Second stage")
        time.sleep(0.4)
        return 7

    began = time.perf_counter()
    *events, last = tasks.run("me", "First stage", work)
    assert isinstance(last, TaskResult)
    assert last.value == 7
    assert 0.8 <= last.seconds <= time.perf_counter() - began
    first = next(event for event in events if event.done)
    assert (first.description, first.done, first.total) == ("First stage", 5, 10)
    assert events[-1].description == "Second stage"
    assert events[-1].seconds < time.perf_counter() - began - 0.4


def test_a_download_is_a_stage_of_its_task_and_stops_with_it(tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    ended = threading.Event()

    def work(watch):
        (tmp_path / "half").write_bytes(bytes(2_000_000))
        try:
            progress.watch("a model", tmp_path, 8.0, threading.Event().wait)
        except StoppedError:
            ended.set()
            raise

    (tmp_path / "before").write_bytes(b"")
    events = tasks.run("me", "Loading", work)
    event = next(event for event in events if event.description != "Loading")
    assert (event.description, event.total) == ("Downloading a model, 8 MB", 8.0)
    tasks.stop("me")
    with pytest.raises(StoppedError):
        list(events)
    assert ended.wait(timeout=60)


def test_stop_ends_the_iteration_at_once_and_the_work_soon_after(tasks):
    work = Endless()
    threading.Thread(target=lambda: (work.started.wait(), tasks.stop("me tab"))).start()
    with pytest.raises(StoppedError):
        list(tasks.run("me tab", "Counting", work))
    assert work.ended.wait(60)


def test_a_task_that_is_kept_goes_on_with_any_number_of_readers(tasks):
    work = Endless()
    task = tasks.start("me tab", "Counting", work)
    readers = [task.follow() for _ in range(2)]
    assert [next(reader).description for reader in readers] == ["Counting"] * 2
    readers.pop().close()
    assert tasks.at_work() == {"me tab": task}
    tasks.stop("me tab")
    assert list(readers[0]) == []
    assert isinstance(task.result().value, int)  # what it had by then
    assert tasks.at_work() == {}


def test_a_stage_that_does_not_listen_is_left_alone_after_a_stop():
    loaded = threading.Event()
    stops = iter([False, True])
    with pytest.raises(StoppedError):
        run_apart(Watch(should_stop=lambda: next(stops)), "Loading", lambda _: loaded.wait(5))
    loaded.set()
    assert run_apart(Watch(), "Loading", lambda _: 7) == 7


def test_leaving_stops_all_tasks_of_a_session_and_no_other(tasks):
    owners = [("me", "map"), ("me", "pairs"), ("me too", "map"), ("you", "map")]
    works = {owner: Endless() for owner in owners}
    iterators = {owner: tasks.run(owner, "Counting", work) for owner, work in works.items()}
    for iterator in iterators.values():
        next(iterator)
    tasks.forget("m")
    tasks.forget("me")
    assert works["me", "map"].ended.wait(60)
    assert works["me", "pairs"].ended.wait(60)
    for other in (("me too", "map"), ("you", "map")):
        assert not works[other].ended.is_set()
        iterators[other].close()  # whoever iterates goes away
        assert works[other].ended.wait(60)


def test_a_new_task_of_the_same_owner_supersedes_the_one_before(tasks):
    work = Endless()
    first = tasks.run("me map", "first", work)
    next(first)
    [result] = tasks.run("me map", "second", lambda *_: 2)
    assert result.value == 2
    with pytest.raises(SupersededError):
        list(first)
    assert work.ended.wait(60)


def test_a_stopped_task_is_not_superseded_by_a_task_of_another_owner(tasks):
    work = Endless()
    stopped = tasks.run("me map", "first", work)
    next(stopped)
    tasks.stop("me map")
    assert work.ended.wait(60)
    while tasks.at_work():
        time.sleep(0.01)
    list(tasks.run("you map", "another", lambda *_: 2))
    with pytest.raises(StoppedError) as raised:
        list(stopped)
    assert not isinstance(raised.value, SupersededError)


def test_progress_has_a_rate_and_the_time_left_unless_it_is_too_early():
    progress = TaskProgress("Scoring", 250, 1_000, 2.0)
    assert (progress.fraction, progress.rate, progress.seconds_left) == (0.25, 125, 6.0)
    progress = TaskProgress("Scoring", 1_100, 1_000, 2.0)
    assert (progress.fraction, progress.seconds_left) == (1.0, 0.0)
    for done, seconds in ((0, 9.0), (250, 0.1)):
        assert TaskProgress("Scoring", done, 1_000, seconds).seconds_left is None


def test_closing_stops_all_tasks_and_waits_until_they_have_cleaned_up(tasks):
    work = Endless()
    iterator = tasks.run("me", "Working", work)
    next(iterator)
    assert work.started.wait(60)
    tasks.close()
    assert work.ended.is_set()
