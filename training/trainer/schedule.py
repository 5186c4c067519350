"""The schedule of a run: the learning rate of each step, and the time that steps and evaluations take."""

from __future__ import annotations

import math
import time

# The decay of the exponential moving average of the seconds per step.
DECAY = 0.95


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Linear warm-up over the first ``warmup`` fraction of ``total`` steps, then linear decay to 0.

    The paper's schedule (section 3.1). ``step`` counts from 0; the rate of the first step is 0, as in transformers'
    ``get_linear_schedule_with_warmup``.
    """
    warmup_steps = math.ceil(total * warmup)
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0, total - step) / max(1, total - warmup_steps)


class ThroughputMeter:
    """Call a method at the end of each step, evaluation and checkpoint: it times what was done since the last call."""

    def __init__(self, seconds_before: float = 0.0) -> None:
        self._started = time.perf_counter() - seconds_before
        self._last = self._last_checkpoint = time.perf_counter()
        self._seconds_per_step: float | None = None
        self._evaluations: list[float] = []
        self._sentences = 0
        self._step_seconds = 0.0

    def seconds(self) -> float:
        """Total seconds of the run, those before it was resumed included."""
        return time.perf_counter() - self._started

    def end_step(self, sentences: int) -> None:
        seconds, average = self._lap(), self._seconds_per_step
        self._seconds_per_step = seconds if average is None else DECAY * average + (1 - DECAY) * seconds
        self._sentences += sentences
        self._step_seconds += seconds

    def end_evaluation(self) -> float:
        """Record an evaluation -> its seconds."""
        self._evaluations.append(self._lap())
        return self._evaluations[-1]

    def end_checkpoint(self) -> None:
        self._lap()
        self._last_checkpoint = time.perf_counter()

    def since_checkpoint(self) -> float:
        """Seconds since the last checkpoint, or since the start."""
        return time.perf_counter() - self._last_checkpoint

    def sentences_per_second(self) -> float:
        """Throughput of the steps since the last call."""
        rate = self._sentences / max(self._step_seconds, 1e-9)
        self._sentences, self._step_seconds = 0, 0.0
        return round(rate, 1)

    def seconds_left(self, steps: int, evaluations: int) -> float | None:
        """Estimated seconds for so many steps, at the recent rate, and evaluations, at their mean.

        None before the first step.
        """
        if self._seconds_per_step is None:
            return None
        evaluation = sum(self._evaluations) / len(self._evaluations) if self._evaluations else 0.0
        return round(steps * self._seconds_per_step + evaluations * evaluation, 1)

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds
