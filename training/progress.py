"""A progress bar for callers in a terminal or a notebook; the app has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int | None], None]  # (done, in all if known)


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
