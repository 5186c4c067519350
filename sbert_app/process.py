"""Settings of the processes of the app and the command line, the signals that end them, and their child processes.

``configure_process`` is called first thing by the app, the command line and a worker. The
libraries, ``training`` among them, change nothing of the kind: a notebook that imports them keeps
its own settings.
"""

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from training.catalogue import IN_CLONE

log = logging.getLogger("sbert_lab.process")

# OpenMP and oneDNN read these as torch is imported. By default idle threads spin for a while after
# each operation: on few cores a training step takes 6% longer, and the page answers late during a
# run. And the compiled code of a matrix product is kept twice, for each of the last 1,024 shapes:
# with batches of all lengths a run grows by 0.5 GB. With 512 shapes it grows by 0.15 GB and a step
# takes as long; with 64 a step takes 3% longer, as code is compiled again.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
ENVIRONMENT |= {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "512", "LRU_CACHE_CAPACITY": "64"}
# Allocations between two collections. The imported libraries hold a million long-lived objects,
# which each full collection looks at: with Python's default, 700, the pages are served 2.8 s of
# processor time later.
GC_THRESHOLD = 100_000
# Once it is set, what is computed for an answer stops, and what fails is no fault.
is_ending = threading.Event()
# The extra that brings what is not part of every installation, by the module that is imported.
EXTRA_OF = dict.fromkeys(
    ("gradio", "fastapi", "fastapi_offline", "uvicorn", "mcp", "plotly"), "app"
)
EXTRA_OF |= dict.fromkeys(("starlette", "anyio", "markupsafe", "segno"), "app")
EXTRA_OF |= dict.fromkeys(("faiss", "umap", "sklearn", "threadpoolctl"), "maps")
EXTRA_OF |= {name: name for name in ("ray", "mteb", "tensorboard", "trackio")} | {
    "webview": "desktop"
}


def configure_process() -> None:
    """Applies the settings, before torch is imported. Variables that are set already keep their values."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        Path.home()
    except RuntimeError:
        # The user of a container may have none, and libraries look there for caches.
        os.environ["HOME"] = os.environ.get("SBERT_HOME") or "/nonexistent"
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])


def regularly(seconds: float, work: Callable[[], object]) -> None:
    """Calls ``work`` every so many seconds, in a thread that ends with the process. Errors are logged."""

    def run() -> None:
        while True:
            time.sleep(seconds)
            try:
                work()
            except Exception:
                # The disk may be full or the database locked, and both may be well again next time.
                log.exception("%s failed", work)

    threading.Thread(target=run, name=f"regularly {work}", daemon=True).start()


def child_environment() -> dict[str, str]:
    """The environment of a child process: that of this process, and `ENVIRONMENT`.

    An installed package is found by itself. A clone may be run from any folder (``python
    …/app.py``), so there its root goes onto PYTHONPATH.
    """
    environment = {**ENVIRONMENT, **os.environ}
    if IN_CLONE:
        root = str(Path(__file__).resolve().parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (root, environment.get("PYTHONPATH")))
        )
    return environment


ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
INTERRUPTED = 130
# Set by `interrupt`. Destructors and callbacks swallow what it raises in them: long work asks here
# too.
is_interrupted = threading.Event()

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def on_ending_signal(handler: Handler) -> Iterator[None]:
    """Calls ``handler`` for the signals of `ENDING` inside the block. A signal that nohup ignores stays ignored."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [
        number for number in ENDING if is_main and signal.getsignal(number) is not signal.SIG_IGN
    ]
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        is_interrupted.clear()
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def interrupt(*_: object) -> None:
    """Raises KeyboardInterrupt, so that half-written files are removed; a second signal ends the process at once."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    is_interrupted.set()
    raise KeyboardInterrupt
