"""The signals that ask a process to end, all treated alike: Ctrl-C, `kill`, a terminal that is closed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
INTERRUPTED = 130

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def on_ending_signal(handler: Handler) -> Iterator[None]:
    """Inside the block ``handler`` is called for each of `ENDING`. A signal that is ignored, as by nohup, stays so."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in ENDING if is_main and signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def interrupt(*_: object) -> None:
    """A handler: raises KeyboardInterrupt, so that what is half-written is removed; a second signal ends at once."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    raise KeyboardInterrupt
