"""Threads that compute whole batches, one per core.

PyTorch splits each operation over its own threads and waits for the slowest, hundreds of times a
batch. If another process occupies one core, every operation waits for it. Batches that are computed
independently, one per thread, never wait for each other. All callers in a process share these
threads. A hundred users cause no more context switches than one.
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

_start_lock = threading.Lock()


def num_threads() -> int:
    """Returns the number of worker threads: as many as PyTorch would use (OMP_NUM_THREADS, or the available cores)."""
    return _pool()[1]


def imap(
    function: Callable[[Item], Result], items: Iterable[Item], at_a_time: int | None = None
) -> Iterator[Result]:
    """Yields ``function`` of each item, computed on all cores, in the order of the items.

    Items are taken one by one, and only a few are in progress at a time (``at_a_time``, or one for
    each core), so that callers share the cores fairly and memory stays constant. A single item is
    computed by the calling thread, as other threads may sleep. An error is raised in place of the
    result. If that happens, or the caller stops, work that has not started is cancelled.
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
    """Runs all tasks, some of them in the calling thread, for the lowest latency. Returns their results in order.

    A sleeping thread needs a millisecond or two to wake up. The calling thread starts immediately,
    and usually does not wait at the end. A single task may use all cores. An error in a task is
    raised, and tasks that have not started are skipped.
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

    # The calling thread is one of the workers.
    helpers = [pool.submit(work) for _ in range(min(threads, len(tasks)) - 1)]
    try:
        with single_threaded_ops():
            work()
    finally:
        # A helper is cancelled if its thread is still busy with another caller's work. `cancel` returns
        # False for a helper that has started.
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()
    return [results[index] for index in range(len(tasks))]


@contextmanager
def single_threaded_ops() -> Iterator[None]:
    """Makes this thread compute each operation alone within the block.

    PyTorch's own threads stay awake for milliseconds after an operation, on cores that the workers
    need. That takes a tenth of a training step.
    """
    # This starts the pool, if it is not running. The pool takes its size from the number of
    # PyTorch's threads, which is 1 inside the block.
    _pool()
    before = torch.get_num_threads()
    # The number is 1 in a thread of the pool. It is not set again, as that would also change the
    # number that later threads start with.
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pool() -> tuple[ThreadPoolExecutor, int]:
    """Returns the threads of this process, and their number."""
    with _start_lock:
        return _start_pool(os.getpid())


@cache
def _start_pool(process: int) -> tuple[ThreadPoolExecutor, int]:
    """Starts the threads of a process. The id ``process`` is the key of the cache: a forked child starts its own."""
    threads = torch.get_num_threads()
    all_started = threading.Barrier(threads + 1)

    def initialize() -> None:
        # When a thread first needs the number, it adopts the global one. This call makes it do so.
        torch.get_num_threads()
        # This sets the number of this thread, and the global number that later threads start with.
        torch.set_num_threads(1)
        all_started.wait()

    pool = ThreadPoolExecutor(threads, "encode", initializer=initialize)
    # Each thread waits at the barrier, so every task starts another one.
    for _ in range(threads):
        pool.submit(lambda: None)
    all_started.wait()
    # The global number is restored.
    torch.set_num_threads(threads)
    return pool, threads
