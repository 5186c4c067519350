"""Watch: where long work reports its progress, and hears that it shall stop."""

import threading

import pytest

from sbert_app.services.background.watch import UNWATCHED, Watch
from training.errors import StoppedError


@pytest.fixture
def told():
    return []


@pytest.fixture
def watch(told):
    return Watch(lambda done, text=None, total=1.0, /: told.append((done, text, total)))


def test_a_stage_has_its_description_in_every_report(watch, told):
    stage = watch.stage("Encoding")
    stage.on_progress(3, 10)
    stage.report(1, "Writing")
    assert told == [(0, "Encoding", 1.0), (3, "Encoding", 10), (1, "Writing", 1.0)]


def test_a_part_is_a_range_of_the_whole(watch, told):
    part = watch.part(0.25, 0.75)
    part.report(1, None, 2)
    part.part(0.5, 1).report(1, "Drawing")
    assert told == [(0.5, None, 1.0), (0.75, "Drawing", 1.0)]


def test_progress_of_an_unknown_total_is_what_is_done(watch, told):
    watch.on_progress(0)
    watch.on_progress(7, None)
    assert told == [(0, None, 1), (7, None, 7)]


def test_stages_parts_and_who_waits_for_a_lock_stop_with_the_whole():
    watch = Watch(should_stop=lambda: True)
    for each in (watch, watch.stage("a"), watch.part(0, 0.5)):
        with pytest.raises(StoppedError):
            each.check()
    UNWATCHED.check()
    lock = threading.Lock()
    stops = iter([False, True])
    with (
        Watch().holding(lock),
        pytest.raises(StoppedError),
        Watch(should_stop=lambda: next(stops)).holding(lock),
    ):
        pass
    assert lock.acquire(blocking=False)


def test_a_progress_bar_gets_what_is_done_and_the_total(told):
    Watch.of(lambda *done: told.append(done)).part(0, 1).report(1, "Scoring", 4)
    assert told == [(0.25, 1.0)]
