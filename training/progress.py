"""Progress of long computations: what they report to and ask, and a bar for callers in a terminal or a notebook."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from training.errors import Stopped

Step = TypeVar("Step")
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
def progress_bar(shown: bool, description: str, also: Progress | None = None) -> Iterator[Progress | None]:
    """A callback that draws a bar and calls ``also``; ``also`` itself if the bar is not ``shown``.

    with progress_bar(True, "Encoding") as on_progress:
        encoder.encode(sentences, on_progress=on_progress)
    """
    if not shown:
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
