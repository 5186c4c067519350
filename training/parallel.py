"""One thread per core, each computing a batch of its own, alone.

PyTorch's way to use several cores is to split every single operation over them, and to wait for the slowest
after each: hundreds of times a batch, and when another process has one of the cores, each time for its turn. Whole
batches side by side never wait for each other. All threads of an application share these workers, so that many
users at once cost no more switching than one.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

MB = 1 << 20
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # glibc's numbers of its settings, from malloc.h

_starting = threading.Lock()


def num_threads() -> int:
    """How many there are: as many threads as PyTorch would use (OMP_NUM_THREADS, or the cores allowed)."""
    return _pool(os.getpid())[1]


def imap(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``function`` of each item, computed on all cores, given back in order.

    Items are taken one by one and few are under way at any time, so that callers share the cores fairly and memory
    stays flat. An error comes out at its place; what is not begun by then, or when the caller stops, is dropped.
    """
    pool, threads = _pool(os.getpid())
    running: deque[Future[Result]] = deque()
    try:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


def run_parallel(pieces: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each piece of work gives, in order, as soon as may be: this thread takes its part of them.

    A sleeping thread takes a millisecond or two to wake. Here one fewer has to at the beginning, and at the end most
    often nobody. A single piece is free to use all cores.
    """
    if len(pieces) == 1:
        return [pieces[0]()]
    pool, threads = _pool(os.getpid())
    waiting = deque(enumerate(pieces))
    results: dict[int, Result] = {}

    def take() -> None:
        try:
            for number, piece in _until_empty(waiting):
                results[number] = piece()
        finally:
            waiting.clear()  # if one has failed: the others are not begun

    others = [pool.submit(take) for _ in range(min(threads, len(pieces)) - 1)]
    try:
        with single_threaded_ops():
            take()
    finally:
        begun = [other for other in others if not other.cancel()]  # the others are busy: nothing is left for them
        wait(begun)
    for other in begun:
        other.result()  # an error comes out
    return [results[number] for number in range(len(pieces))]


@contextmanager
def single_threaded_ops() -> Iterator[None]:
    """Inside the block this thread computes each operation alone.

    The threads among which PyTorch would split it stay awake for milliseconds after it, on the look-out for the next
    one, on cores that the workers need by then: a tenth of a training step.
    """
    _pool(os.getpid())  # first, for it has as many workers as there are threads before the block
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _until_empty(waiting: deque[Item]) -> Iterator[Item]:
    """What several threads take from: each item goes to one of them."""
    with suppress(IndexError):
        while True:
            item = waiting.popleft()
            yield item


def _pool(process: int) -> tuple[ThreadPoolExecutor, int]:
    with _starting:
        return _start(process)


@cache
def _start(process: int) -> tuple[ThreadPoolExecutor, int]:  # by process: a forked child needs threads of its own
    _keep_freed_memory()
    threads = torch.get_num_threads()
    all_here = threading.Barrier(threads + 1)

    def begin() -> None:
        torch.get_num_threads()  # a thread takes over the common number when it first needs one: now
        torch.set_num_threads(1)  # of this thread, but it is also what threads born later start with ...
        all_here.wait()

    pool = ThreadPoolExecutor(threads, "encode", initializer=begin)
    for _ in range(threads):
        pool.submit(lambda: None)
    all_here.wait()
    torch.set_num_threads(threads)  # ... so that is put back
    return pool, threads


def _keep_freed_memory() -> None:
    """Ask glibc to keep up to 64 MB of freed memory for the next batch, which needs as much again.

    By default it gives the blocks of activations (1 to 3 MB) back to the system after each operation and takes them
    anew for the next, page by page: 5% of the time of encoding.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_THRESHOLD, 32 * MB)
        libc.mallopt(_TRIM_THRESHOLD, 64 * MB)
