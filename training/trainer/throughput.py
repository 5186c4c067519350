"""The time a run has taken and, as an estimate, the time that is left."""

from __future__ import annotations

import time

PAST = 0.95  # the weight of the past in the running mean of a step's seconds


class ThroughputMeter:
    """Told of steps, evaluations and checkpoints as they end.

    Steps count at their recent rate, evaluations at their mean. ``seconds_before`` are those of earlier sessions.
    """

    def __init__(self, seconds_before: float = 0.0) -> None:
        self._began = time.perf_counter() - seconds_before
        self._last = self._last_checkpoint = time.perf_counter()
        self._per_step: float | None = None
        self._evaluations: list[float] = []
        self._sentences = 0
        self._busy = 0.0

    def seconds(self) -> float:
        """Of work, all sessions together."""
        return time.perf_counter() - self._began

    def step(self, sentences: int) -> None:
        """A step on so many sentences has ended."""
        taken = self._lap()
        self._per_step = taken if self._per_step is None else PAST * self._per_step + (1 - PAST) * taken
        self._sentences += sentences
        self._busy += taken

    def evaluation(self) -> float:
        """An evaluation has ended -> the seconds it took."""
        self._evaluations.append(self._lap())
        return self._evaluations[-1]

    def checkpoint(self) -> None:
        """A checkpoint has been written."""
        self._lap()
        self._last_checkpoint = time.perf_counter()

    def since_checkpoint(self) -> float:
        """Seconds since the last checkpoint, or since the start."""
        return time.perf_counter() - self._last_checkpoint

    def rate(self) -> float:
        """Sentences per second in the steps since the last call."""
        rate = self._sentences / max(self._busy, 1e-9)
        self._sentences, self._busy = 0, 0.0
        return round(rate, 1)

    def left(self, steps: int, evaluations: int) -> float | None:
        """Seconds for so many steps and evaluations; None before the first step."""
        if self._per_step is None:
            return None
        evaluation = sum(self._evaluations) / len(self._evaluations) if self._evaluations else 0.0
        return round(steps * self._per_step + evaluations * evaluation, 1)

    def _lap(self) -> float:
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        return taken
