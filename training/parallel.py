"""Threads that compute whole batches, one per core.

PyTorch uses several cores by splitting each operation over its own threads and waiting for the slowest, hundreds of
times a batch; when another process occupies one core, every operation waits for it. Batches that are computed
independently, one per thread, never wait for each other. All callers in a process share these threads, so that many
users at once cost no more context switches than one.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_starting = threading.Lock()


def num_threads() -> int:
    """Number of worker threads: as many as PyTorch would use (OMP_NUM_THREADS, or the available cores)."""
    return _pool()[1]


def imap(function: Callable[[Item], Result], items: Iterable[Item], at_a_time: int | None = None) -> Iterator[Result]:
    """Yields ``function`` of each item, computed on all cores, in the order of the items.

    Items are taken one by one and only a few are under way at any time (``at_a_time``, or one for each core), so that
    callers share the cores fairly and memory stays flat. A single item is computed by the caller, who would wait for a
    sleeping thread to wake up. An error is raised in place of the result. Work that has not started by then, or when
    the caller stops, is cancelled.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) == 1:
        with single_threaded_ops():
            result = function(first[0])
        yield result
        return
    pool, threads = _pool()
    futures: deque[Future[Result]] = deque()
    try:
        for item in chain(first, items):
            futures.append(pool.submit(function, item))
            if len(futures) > (at_a_time or threads):
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()


def run_parallel(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Runs all tasks, some of them in the calling thread, for the lowest latency; returns their results in order.

    A sleeping thread needs a millisecond or two to wake up. The caller starts at once, and at the end it usually
    waits for nobody. A single task may use all cores. An error in a task is raised; tasks not yet started are skipped.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    pool, threads = _pool()
    remaining = deque(enumerate(tasks))
    results: dict[int, Result] = {}

    def work() -> None:
        try:
            while True:
                try:
                    index, task = remaining.popleft()
                except IndexError:
                    return
                results[index] = task()
        finally:
            # After an error the other threads skip the rest.
            remaining.clear()

    helpers = [pool.submit(work) for _ in range(min(threads, len(tasks)) - 1)]
    try:
        with single_threaded_ops():
            work()
    finally:
        # The rest are busy with the work of other callers.
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()
    return [results[index] for index in range(len(tasks))]


@contextmanager
def single_threaded_ops() -> Iterator[None]:
    """Within the block this thread computes each operation alone.

    PyTorch's own threads stay awake for milliseconds after an operation, waiting for the next, on cores that the
    workers need by then: a tenth of a training step.
    """
    # The pool takes its size from the number of threads outside the block.
    _pool()
    before = torch.get_num_threads()
    # Setting the number again would set the one with which later threads start.
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pool() -> tuple[ThreadPoolExecutor, int]:
    """The threads of this process, and how many they are."""
    with _starting:
        return _start_pool(os.getpid())


@cache
def _start_pool(process: int) -> tuple[ThreadPoolExecutor, int]:  # by process: a forked child needs its own threads
    threads = torch.get_num_threads()
    all_started = threading.Barrier(threads + 1)

    def initialize() -> None:
        # A thread adopts the global number when it first needs one, which is here.
        torch.get_num_threads()
        # This sets the number of this thread, and the global number, with which later threads start.
        torch.set_num_threads(1)
        all_started.wait()

    pool = ThreadPoolExecutor(threads, "encode", initializer=initialize)
    for _ in range(threads):
        pool.submit(lambda: None)
    all_started.wait()
    # The global number is restored.
    torch.set_num_threads(threads)
    return pool, threads
