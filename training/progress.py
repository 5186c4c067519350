"""Progress of long work: computations, a bar for callers in a terminal or a notebook, and downloads.

A loader calls the sources of models and data through many layers that have nothing to do with downloads, so that the
listener of downloads is a context variable and no argument of them all:

    with listening(lambda what, done, total: bar(what, done / total), should_stop):
        Encoder.load("all-mpnet-base-v2")
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from training.errors import Stopped

Step = TypeVar("Step")
Result = TypeVar("Result")
Progress = Callable[[int, int | None], None]  # (done, in all if known)
ShouldStop = Callable[[], bool]

# What tqdm says, whichever library imports it first, in a notebook without ipywidgets: its bars are of text then.
warnings.filterwarnings("ignore", message="IProgress not found")


def steps(
    items: Sequence[Step], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
) -> Iterator[Step]:
    """Each item. Before it ``should_stop`` is asked, and Stopped raised; after it ``on_progress`` gets (done, all).

    Of a range from 0 in steps of 256, its items are batches: texts are counted, and not batches.
    """
    batch, total = (items.step, items.stop) if isinstance(items, range) else (1, len(items))
    for done, item in enumerate(items, start=1):
        if should_stop is not None and should_stop():
            raise Stopped
        yield item
        if on_progress is not None:
            on_progress(min(done * batch, total), total)


def is_interactive() -> bool:
    """Whether somebody watches: in a terminal or a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


@contextmanager
def progress_bar(visible: bool, description: str, also: Progress | None = None) -> Iterator[Progress | None]:
    """A callback that draws a bar and calls ``also``; ``also`` itself if the bar is not ``visible``.

    with progress_bar(True, "Encoding") as on_progress:
        encoder.encode(sentences, on_progress=on_progress)
    """
    if not visible:
        yield also
        return
    from tqdm.auto import tqdm

    with tqdm(desc=description) as bar:

        def report(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)
            if also is not None:
                also(done, total)

        yield report


# ---------------------------------------------------------------- downloads

# A function of a name, the megabytes done, and the megabytes in all.
OnDownload = Callable[[str, float, float], None]
POLL_SECONDS = 0.3
STOP_SECONDS = 2.0

_listener: ContextVar[tuple[OnDownload, Callable[[], bool]] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(on_download: OnDownload, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """A block in which this thread's downloads report to ``on_download`` and end with `Stopped` if ``should_stop``."""
    token = _listener.set((on_download, should_stop))
    try:
        yield
    finally:
        _listener.reset(token)


def watch(
    what: str, folder: Path, megabytes: float, work: Callable[[], Result], stop: Callable[[], None] = lambda: None
) -> Result:
    """Does ``work``, a download of so many ``megabytes`` into ``folder``, and reports the growth of its files.

    The folder need not exist yet. If the listener asks for a stop, ``stop`` is called, which makes ``work`` end early,
    and Stopped is raised.
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
            # Its files can be removed only when it has ended.
            thread.join(STOP_SECONDS)
            raise Stopped
    return future.result()


def megabytes_in(folder: Path) -> float:
    """The size of all files below ``folder``, links not followed."""
    total = 0
    for file in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += 0 if file.is_symlink() else file.stat().st_size
        except FileNotFoundError:
            # It was renamed meanwhile.
            continue
    return total / 1e6
