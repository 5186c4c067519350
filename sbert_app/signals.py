"""The signals that ask a process to end, all treated alike: Ctrl-C, `kill`, a terminal that is closed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

AGAIN_SECONDS = 0.5  # after which an interrupt that had no effect is raised again
IMPORT_SECONDS = 5.0  # for which an interrupt waits until what is being imported is there
LOOK_SECONDS = 0.02  # between two looks whether it is
IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")

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


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside the block each of `ENDING` raises KeyboardInterrupt, so that temporary files are removed.

    A signal may come while a library calls back, where exceptions are printed and forgotten. So the interrupt is raised
    again until the block has ended, but never while it is being handled. Where it comes during an import it waits for
    that, and no longer than `IMPORT_SECONDS`: libraries in C++ abort the process if they are interrupted as they are
    loaded. A second signal does not wait.
    """
    can_repeat = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGALRM, _again) if can_repeat else None
    try:
        with on_ending_signal(interrupt):
            yield
    finally:
        if can_repeat:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        _waiting.clear()


_waiting: list[float] = []  # until when the interrupt waits for an import, on the monotonic clock; one or none


def interrupt(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """A handler for the code inside of `interruptible`: raises KeyboardInterrupt, now and until the block has ended."""
    can_repeat = hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is _again
    if can_repeat and not _waiting and _is_importing(frame):
        _waiting.append(time.monotonic() + IMPORT_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
        return
    if can_repeat:
        _waiting[:] = [0.0]
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
    raise KeyboardInterrupt


def stop_repeating() -> None:
    """The interrupt has had its effect: what follows, in order to end, is not interrupted again but by a new signal."""
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is _again:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename in IMPORTS:
            return True
        frame = frame.f_back
    return False


def _again(number: int, frame: FrameType | None) -> None:
    if _waiting and _waiting[0] > 0:
        if time.monotonic() < _waiting[0] and _is_importing(frame):
            return
        interrupt(number)
    handled = sys.exception()
    while handled is not None:
        if not isinstance(handled, Exception):  # KeyboardInterrupt, or what closes generators on its way
            return
        handled = handled.__context__
    raise KeyboardInterrupt
