"""The garbage collector leaves alone what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sbert_app.cli import main
from sbert_app.garbage import YOUNG, collect_rarely, leave_what_is_there


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_every_command_collects_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert gc.get_threshold()[0] == YOUNG


def test_the_older_generations_are_collected_as_often_as_before() -> None:
    before = gc.get_threshold()
    collect_rarely()
    assert gc.get_threshold()[1:] == before[1:]


def test_what_is_there_is_not_looked_at_again() -> None:
    kept: list[list[int]] = [[] for _ in range(1_000)]
    leave_what_is_there()
    assert gc.get_freeze_count() >= len(kept)
    assert not any(object_ is kept for object_ in gc.get_objects())


def test_what_comes_later_is_still_collected() -> None:
    leave_what_is_there()
    circle: list[object] = []
    circle.append(circle)
    del circle
    assert gc.collect() >= 1
