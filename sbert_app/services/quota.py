"""Quota: how much each visitor may use at once, within a time, or before they have to wait longer and longer.

    at_once = Quota(16)                        what is under way: `take`, or `held` for the length of a block
    in_an_hour = Quota(1 << 30, window=3600)   bytes; an hour after the first of them all are free again
    failures = Quota(5, window=900, longest_delay=60)
                                               beyond five the delay doubles from a second on, to a minute at most;
                                               900 s after the last one they are forgotten

A visitor is an address (`visitor_of`). Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

from training.errors import InputError

MOST_VISITORS = 10_000  # remembered where there is a window, the oldest are dropped


def visitor_of(request: Any) -> str:
    """The address that a request (of Starlette or Gradio) came from; "" where there is none, as in a test."""
    return getattr(getattr(request, "client", None), "host", None) or ""


class TooMany(InputError):  # noqa: N818 - the visitor's doing
    """A visitor has as much under way as they may."""


class _Used(NamedTuple):
    amount: float
    first: float  # when
    last: float


class Quota:
    """See the module.

    Args:
        most: what a visitor may use.
        window: seconds after which it is free again; without, what is taken is given back.
        longest_delay: with it, more than ``most`` may be used, after a delay that doubles up to so many seconds.
    """

    def __init__(
        self, most: float, window: float = inf, longest_delay: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most, self._window, self._longest_delay, self._clock = most, window, longest_delay, clock
        self._used: OrderedDict[str, _Used] = OrderedDict()
        self._lock = threading.Lock()

    def seconds_to_wait(self, visitor: str, amount: float = 1) -> float:
        """0 if so much more may be used now; infinite if something has to be given back before."""
        with self._lock:
            return self._wait(visitor, amount)

    def add(self, visitor: str, amount: float = 1) -> None:
        """Count what was used, whether it fits or not."""
        with self._lock:
            self._add(visitor, amount)

    def take(self, visitor: str, amount: float = 1) -> float:
        """`seconds_to_wait`; if that is 0, what is taken is counted."""
        with self._lock:
            wait = self._wait(visitor, amount)
            if wait == 0:
                self._add(visitor, amount)
            return wait

    def give_back(self, visitor: str, amount: float = inf) -> None:
        """Count so much less; without ``amount``, forget the visitor."""
        with self._lock:
            used = self._used.pop(visitor, None)
            if used is not None and used.amount > amount:
                self._used[visitor] = used._replace(amount=used.amount - amount)

    @contextmanager
    def held(self, visitor: str) -> Iterator[None]:
        """Take one for the length of the block. TooMany if the visitor has ``most``."""
        if self.take(visitor):
            raise TooMany(
                f"{self.most:g} such requests from your address are being worked on; wait until one is answered"
            )
        try:
            yield
        finally:
            self.give_back(visitor, 1)

    def _wait(self, visitor: str, amount: float) -> float:
        used = self._now(visitor)
        if used is None or used.amount + amount <= self.most:
            return 0.0
        if self._longest_delay:
            doubled = 2.0 ** min(used.amount - self.most, 60)  # a day has 2**17 seconds
            return max(0.0, used.last + min(doubled, self._longest_delay) - self._clock())
        return used.first + self._window - self._clock()

    def _add(self, visitor: str, amount: float) -> None:
        now = self._clock()
        used = self._now(visitor) or _Used(0, now, now)
        self._used[visitor] = _Used(used.amount + amount, used.first, now)
        self._used.move_to_end(visitor)
        while self._window < inf and len(self._used) > MOST_VISITORS:
            self._used.popitem(last=False)

    def _now(self, visitor: str) -> _Used | None:
        """What the visitor has used and is not free again."""
        used = self._used.get(visitor)
        if used is None:
            return None
        begun = used.last if self._longest_delay else used.first
        return used if self._clock() - begun < self._window else None
