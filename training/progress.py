"""The progress of long work: callbacks, a bar for a terminal or a notebook, downloads, and the time left.

Many layers between a loader and the sources of models and data have nothing to do with downloads.
So the listener of downloads is a context variable, not an argument:

    with listening(lambda what, done, total: bar(what, done / total), should_stop):
        Encoder.load("all-mpnet-base-v2")
"""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from tqdm.auto import tqdm

from training.atomic import folder_size
from training.errors import StoppedError

Step = TypeVar("Step")
Result = TypeVar("Result")
Progress = Callable[[int, int | None], None]  # (done, in all if known)
ShouldStop = Callable[[], bool]

# The decay of the exponential moving average of the seconds per step.
DECAY = 0.95

# tqdm warns in a notebook without ipywidgets, although it shows bars as text.
warnings.filterwarnings("ignore", message="IProgress not found")


def steps(
    items: Sequence[Step],
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Iterator[Step]:
    """Yields the items and calls ``on_progress`` with (done, all). Raises StoppedError if ``should_stop`` is true.

    A range with a step is a range of batches: on_progress counts the texts, not the batches.
    """
    batch = 1
    total = len(items)
    if isinstance(items, range):
        batch = items.step
        total = items.stop
    for done, item in enumerate(items, start=1):
        if should_stop is not None and should_stop():
            raise StoppedError
        yield item
        if on_progress is not None:
            on_progress(min(done * batch, total), total)


def is_interactive() -> bool:
    """Tells whether this is a terminal or a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


@contextmanager
def progress_bar(
    visible: bool, description: str, also: Progress | None = None
) -> Iterator[Progress | None]:
    """Yields a callback that draws a bar and calls ``also``; ``also`` itself if the bar is not ``visible``.

    with progress_bar(True, "Encoding") as on_progress:
        encoder.encode(sentences, on_progress=on_progress)
    """
    if not visible:
        yield also
        return
    with tqdm(desc=description) as bar:

        def report(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)
            if also is not None:
                also(done, total)

        yield report


# A function of a name, the megabytes done, and the megabytes in all.
OnDownload = Callable[[str, float, float], None]
POLL_SECONDS = 0.3
STOP_SECONDS = 2.0

_listener: ContextVar[tuple[OnDownload, ShouldStop] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(on_download: OnDownload, should_stop: ShouldStop = lambda: False) -> Iterator[None]:
    """In the block, this thread's downloads report to ``on_download``, and raise StoppedError if ``should_stop``."""
    token = _listener.set((on_download, should_stop))
    try:
        yield
    finally:
        _listener.reset(token)


def watch(
    what: str,
    folder: Path,
    megabytes: float,
    work: Callable[[], Result],
    stop: Callable[[], None] = lambda: None,
) -> Result:
    """Does ``work``, a download of about ``megabytes`` into ``folder``, and reports the growth of its files.

    The folder need not exist yet. If the listener asks for a stop, ``stop`` is called, which makes
    ``work`` end early, and StoppedError is raised.
    """
    listener = _listener.get()
    if listener is None:
        return work()
    on_download, should_stop = listener
    future: Future[Result] = Future()

    def target() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            future.set_exception(error)

    before = folder_size(folder) / 1e6
    done = 0.0
    # As a daemon it does not keep the process from ending.
    thread = threading.Thread(target=target, name=f"download {what}", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_SECONDS)
        growth = folder_size(folder) / 1e6 - before
        # The size may shrink when pieces are joined and their files removed.
        done = max(done, min(megabytes, growth))
        on_download(what, done, megabytes)
        if thread.is_alive() and should_stop():
            stop()
            # The files can be removed only after the work has ended.
            thread.join(STOP_SECONDS)
            raise StoppedError
    return future.result()


# The first steps of a run are slower than the others, so the time left is unknown before this many
# steps.
STEPS_BEFORE_ESTIMATE = 20


class ThroughputMeter:
    """Measures the times of steps, evaluations and checkpoints. A method is called at the end of each.

    ``seconds_before`` are the seconds of the run before it was resumed.
    """

    def __init__(self, seconds_before: float = 0.0) -> None:
        # The seconds before the run was resumed count, so the start is moved back.
        self._started = time.perf_counter() - seconds_before
        self._last = self._last_checkpoint = time.perf_counter()
        self._seconds_per_step: float | None = None
        self._steps = 0
        # The seconds of each evaluation.
        self._evaluations: list[float] = []
        # The sentences and the seconds since the last call of `sentences_per_second`.
        self._sentences = 0
        self._step_seconds = 0.0

    def seconds(self) -> float:
        """Returns the total seconds of the run, including the time before it was resumed."""
        return time.perf_counter() - self._started

    def end_step(self, sentences: int) -> None:
        """Records a step of this many sentences."""
        seconds = self._lap()
        # The moving average begins with the first step.
        if self._seconds_per_step is None:
            self._seconds_per_step = seconds
        self._seconds_per_step += (1 - DECAY) * (seconds - self._seconds_per_step)
        self._steps += 1
        self._sentences += sentences
        self._step_seconds += seconds

    def end_evaluation(self) -> float:
        """Records an evaluation, and returns its seconds."""
        self._evaluations.append(self._lap())
        return self._evaluations[-1]

    def end_checkpoint(self) -> None:
        # The next lap begins here, so no step contains the checkpoint.
        self._lap()
        self._last_checkpoint = time.perf_counter()

    def since_checkpoint(self) -> float:
        """Returns the seconds since the last checkpoint, or since the start."""
        return time.perf_counter() - self._last_checkpoint

    def sentences_per_second(self) -> float:
        """Returns the throughput of the steps since the last call."""
        rate = self._sentences / max(self._step_seconds, 1e-9)
        self._sentences = 0
        self._step_seconds = 0.0
        return round(rate, 1)

    def seconds_left(self, steps: int, evaluations: int) -> float | None:
        """Estimates the seconds for steps, at the recent rate, and evaluations. None after too few steps."""
        if self._seconds_per_step is None or self._steps < STEPS_BEFORE_ESTIMATE:
            return None
        seconds = steps * self._seconds_per_step
        if self._evaluations:
            seconds += evaluations * fmean(self._evaluations)
        return round(seconds, 1)

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds = now - self._last
        # The next lap begins here.
        self._last = now
        return seconds
