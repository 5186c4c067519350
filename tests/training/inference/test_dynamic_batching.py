"""Calls of several threads are answered as one, each with its own answer."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from training.inference.dynamic_batching import DynamicBatcher


def test_alone_a_question_is_answered_at_once():
    asked = []

    def work(questions: list[int]) -> list[int]:
        asked.append(questions)
        return [2 * question for question in questions]

    assert [DynamicBatcher(work)(question) for question in (1, 2)] == [2, 4]
    assert asked == [[1], [2]]


def test_those_who_wait_are_answered_together_and_each_gets_its_own():
    asked: list[list[int]] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def work(questions: list[int]) -> list[int]:
        asked.append(sorted(questions))
        first_is_in.set()
        go_on.wait(10)
        return [2 * question for question in questions]

    together = DynamicBatcher(work)
    with ThreadPoolExecutor(9) as people:
        early = people.submit(together, 0)
        first_is_in.wait(10)
        late = [people.submit(together, question) for question in range(1, 9)]
        while len(together._waiting) < 8:
            threading.Event().wait(0.001)
        go_on.set()
        assert early.result() == 0
        assert [answer.result() for answer in late] == [2 * question for question in range(1, 9)]
    assert asked == [[0], list(range(1, 9))]


def test_an_error_is_everyones_and_the_next_question_is_answered():
    def work(questions: list[int]) -> list[float]:
        return [1 / question for question in questions]

    together = DynamicBatcher(work)
    with pytest.raises(ZeroDivisionError):
        together(0)
    assert together(4) == 0.25
