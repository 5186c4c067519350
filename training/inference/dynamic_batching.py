"""Together: calls of several threads at once, answered as one.

A pass of the transformer over two short sentences takes nearly as long as one over twenty: the weights are fetched
from memory either way. So when many people ask at the same time, whoever's turn it is answers for all who wait by
then. Nobody waits for company: alone, a call is computed at once, as if this were not here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class DynamicBatcher(Generic[Question, Answer]):
    """``work`` answers a list of questions at once, in order; calling this answers one. Thread-safe.

    What ``work`` raises is raised to all whose questions were in the list.
    """

    def __init__(self, work: Callable[[list[Question]], list[Answer]]) -> None:
        self._work = work
        self._turn = threading.Lock()  # held by the thread that computes
        self._door = threading.Lock()  # held for a moment, to come in or to see who waits
        self._waiting: list[tuple[Question, Future[Answer]]] = []

    def __call__(self, question: Question) -> Answer:
        answer: Future[Answer] = Future()
        with self._door:
            self._waiting.append((question, answer))
        with self._turn:
            if not answer.done():  # nobody has answered it on the way
                self._answer_all()
        return answer.result()

    def _answer_all(self) -> None:
        """Answer everything that waits, this thread's own question among it."""
        with self._door:
            calls, self._waiting = self._waiting, []
        try:
            answers = self._work([question for question, _ in calls])
        except BaseException as error:  # noqa: BLE001 - it is raised again, to each who asked
            for _, answer in calls:
                answer.set_exception(error)
            return
        for (_, waiting), answered in zip(calls, answers, strict=True):
            waiting.set_result(answered)
