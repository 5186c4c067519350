"""The signals that ask a process to end, all treated alike: Ctrl-C, `kill`, a terminal that is closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def on_ending_signal(handler: Handler) -> Iterator[None]:
    """Inside the block ``handler`` is called for each of `ENDING`.

    A signal that is ignored stays so: ``nohup`` means that a closed terminal is no reason to end. Does nothing outside
    of the main thread, where Python takes no handlers.
    """
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def interruptible() -> AbstractContextManager[None]:
    """Inside the block each of `ENDING` raises KeyboardInterrupt, so that temporary files are removed."""
    return on_ending_signal(_interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
