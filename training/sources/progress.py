"""Progress of downloads, for whoever waits: reported by the sources, heard by the caller of a loader.

    with listening(lambda what, done, total: bar(what, done / total), should_stop):
        Encoder.load("all-mpnet-base-v2")  # downloads 404 MB at its first use

A loader calls the sources through many layers that have nothing to do with it, so the listener is a context variable
and no argument of them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from training.errors import Stopped

Result = TypeVar("Result")

OnDownload = Callable[[str, float, float], None]  # (what, megabytes done, megabytes in all)
POLL_SECONDS = 0.3
STOP_SECONDS = 2.0


_listener: ContextVar[tuple[OnDownload, Callable[[], bool]] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(on_download: OnDownload, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Downloads of this thread inside the block report to ``on_download`` and end with `Stopped` when asked."""
    token = _listener.set((on_download, should_stop))
    try:
        yield
    finally:
        _listener.reset(token)


def watch(
    what: str, folder: Path, megabytes: float, work: Callable[[], Result], stop: Callable[[], None] = lambda: None
) -> Result:
    """Do ``work``, the download of so many ``megabytes`` into ``folder``, and report the growth of its files.

    The folder need not exist yet. Stopped if the listener asked for it; ``stop``, which makes ``work`` end early, is
    called before.
    """
    if (listener := _listener.get()) is None:
        return work()
    on_download, should_stop = listener
    future: Future[Result] = Future()

    def target() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            future.set_exception(error)

    before = megabytes_in(folder)
    thread = threading.Thread(target=target, name=f"download {what}", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_SECONDS)
        on_download(what, min(megabytes, max(0.0, megabytes_in(folder) - before)), megabytes)
        if thread.is_alive() and should_stop():
            stop()
            thread.join(STOP_SECONDS)  # so that its files can be removed
            raise Stopped
    return future.result()


def megabytes_in(folder: Path) -> float:
    """The size of all files below ``folder``, links not followed."""
    total = 0
    for file in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += 0 if file.is_symlink() else file.stat().st_size
        except FileNotFoundError:  # renamed meanwhile
            continue
    return total / 1e6
