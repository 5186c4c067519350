"""encode_in_processes: the sentences of one call on several devices, in a process each.

Each process opens the encoder from a temporary folder and takes one part of the sentences after the other, so that a
slower device gets fewer. Starting a process takes a few seconds: worth it from some ten thousand sentences on. Before
Python 3.11.5 the call may hang if a process is killed (CPython issue 94777).
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.device import pick_device
from training.errors import InputError, Stopped
from training.models.texts import ReadReport
from training.progress import ShouldStop

PARTS_OF_A_PROCESS = 4  # at least, so that all end at about the same time
LARGEST_PART, SMALLEST_PART = 8_192, 32  # sentences
POLL_SECONDS = 0.2  # between two calls of ``should_stop``

_process: dict[str, Any] = {}  # in a process of the pool: its encoder and the event that asks it to stop


def encode_in_processes(
    encoder: Any,
    sentences: list[str],
    devices: Sequence[str],
    normalize: bool | None = True,
    on_progress: Callable[[int, int], object] | None = None,
    should_stop: ShouldStop | None = None,
    report: ReadReport | None = None,
    batch_size: int | None = None,
) -> np.ndarray:
    """Sentences -> float32 (N, D), in their order, as one process would give them. The rest is as in `Encoder.encode`.

    ``on_progress`` is called after each part, ``should_stop`` is asked several times a second; the counts of all parts
    are added to the ``report``.
    """
    if isinstance(devices, str | torch.device):
        raise InputError(
            f"device takes a list, one name for each process, such as ['{devices}'] * 2; "
            "Encoder.load(name, device=…) chooses the device of one process"
        )
    if not devices:
        raise InputError("device is an empty list; name one device for each process, such as ['cpu', 'cpu']")
    devices = [str(pick_device(str(device))) for device in devices]
    vectors = np.empty((len(sentences), encoder.dimension), dtype=np.float32)
    if not sentences:
        return vectors
    size = -(-len(sentences) // (len(devices) * PARTS_OF_A_PROCESS))
    size = min(max(size, SMALLEST_PART), LARGEST_PART)
    starts = range(0, len(sentences), size)
    devices = devices[: len(starts)]
    # A fork does not go with CUDA, nor with threads.
    context = multiprocessing.get_context("spawn")
    free, stopping = context.Queue(), context.Event()
    for device in devices:
        free.put(device)
    report, started = report or ReadReport(), time.perf_counter()
    before, done = report.truncated, 0
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
        encoder.save(Path(folder) / "encoder")
        threads = max(1, torch.get_num_threads() // max(1, devices.count("cpu")))
        dtype = str(encoder.dtype).removeprefix("torch.")
        load = partial(type(encoder).load, str(Path(folder) / "encoder"), dtype=dtype)
        encode = partial(_encode, normalize=normalize, batch_size=batch_size)
        with ProcessPoolExecutor(len(devices), context, _start, (load, threads, free, stopping)) as pool:
            waiting = {pool.submit(encode, start, sentences[start : start + size]) for start in starts}
            try:
                while waiting:
                    finished, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                    for start, part, counts in (future.result() for future in finished):
                        vectors[start : start + len(part)] = part
                        done += len(part)
                        report.add(counts)
                        if on_progress is not None:
                            on_progress(done, len(sentences))
                    if should_stop is not None and should_stop():
                        raise Stopped
            except BrokenProcessPool as error:
                raise InputError(
                    f"a process on one of {', '.join(devices)} ended unexpectedly: it was killed, such as for want of "
                    "memory, or the script that calls encode has no `if __name__ == '__main__':`"
                ) from error
            finally:
                stopping.set()
                pool.shutdown(wait=True, cancel_futures=True)
    report.seconds += time.perf_counter() - started
    encoder.warn_of_truncation(report.truncated - before)
    return vectors


def _start(load: Callable[..., Any], threads: int, free: Any, stopping: Any) -> None:
    """In a process of the pool: open the encoder on a device that no other process has."""
    device = free.get()
    if device == "cpu":
        torch.set_num_threads(threads)
    try:
        _process.update(encoder=load(device=device), stopping=stopping)
    except Exception as error:  # noqa: BLE001 - raised by the first part: the pool would only say that it is broken
        _process["error"] = error


def _encode(start: int, sentences: list[str], **options: Any) -> tuple[int, np.ndarray, ReadReport]:
    """In a process of the pool: a part -> its start, vectors (n, D), the report."""
    if "error" in _process:
        raise _process["error"]
    encoder, stopping, report = _process["encoder"], _process["stopping"], ReadReport()
    return start, encoder.encode(sentences, should_stop=stopping.is_set, report=report, **options), report
