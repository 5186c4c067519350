"""Settings of the processes of the app and the command line, the signals that end them, and their child processes.

The app, the command line and a worker call ``configure_process`` first. ``training`` does not change
such settings, so a notebook that imports it keeps its own.
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

# OpenMP and oneDNN read these variables when torch is imported. By default idle threads spin for a
# while after each operation: on few cores a training step takes 6% longer, and pages answer late
# during a run. By default two caches keep the compiled code of matrix products, each for the last
# 1,024 shapes: with batches of all lengths, a run grows by 0.5 GB. With 512 shapes it grows by
# 0.15 GB at the same speed; with 64 a step takes 3% longer, because code is compiled again.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "512",
    "LRU_CACHE_CAPACITY": "64",
}
# The allocations between two garbage collections. A full collection visits a million long-lived
# objects of the imported libraries: with Python's default, 700, the first page is served after 2.8 s
# more of processor time.
GC_THRESHOLD = 100_000
# Once it is set, requests stop computing, and their errors are not logged as faults.
is_ending = threading.Event()
# The extra that installs a module, by the name of the module.
EXTRA_OF = {
    "gradio": "app",
    "fastapi": "app",
    "fastapi_offline": "app",
    "uvicorn": "app",
    "mcp": "app",
    "plotly": "app",
    "starlette": "app",
    "anyio": "app",
    "markupsafe": "app",
    "segno": "app",
    "faiss": "maps",
    "umap": "maps",
    "sklearn": "maps",
    "threadpoolctl": "maps",
    "ray": "ray",
    "mteb": "mteb",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "webview": "desktop",
}


def configure_process() -> None:
    """Applies the settings. Called before torch is imported. Variables that are set already keep their values."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        Path.home()
    except RuntimeError:
        # The user of a container may have no home, but libraries look for their caches there.
        os.environ["HOME"] = os.environ.get("SBERT_HOME") or "/nonexistent"
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])


def regularly(seconds: float, work: Callable[[], object]) -> None:
    """Calls ``work`` at intervals of ``seconds``, in a thread that ends with the process. Errors are logged."""

    def run() -> None:
        while True:
            time.sleep(seconds)
            try:
                work()
            except Exception:
                # The disk may be full, for example, and have space the next time.
                log.exception("%s failed", work)

    threading.Thread(target=run, name=f"regularly {work}", daemon=True).start()


def child_environment() -> dict[str, str]:
    """The environment of a child process: the environment of this process, and `ENVIRONMENT`.

    A clone may be run from any folder (``python …/app.py``), so its root is added to PYTHONPATH. Python
    finds an installed package without that.
    """
    environment = {**ENVIRONMENT, **os.environ}
    if IN_CLONE:
        root = str(Path(__file__).resolve().parents[1])
        folders = filter(None, (root, environment.get("PYTHONPATH")))
        environment["PYTHONPATH"] = os.pathsep.join(folders)
    return environment


ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# The exit code after Ctrl-C.
INTERRUPTED = 130
# Set by `interrupt`. If the KeyboardInterrupt is raised in a destructor or a callback, Python
# swallows it, so long work checks this event, too.
is_interrupted = threading.Event()

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def on_ending_signal(handler: Handler) -> Iterator[None]:
    """Calls ``handler`` for the signals of `ENDING` inside the block.

    A signal that the process ignores stays ignored, such as SIGHUP under nohup.
    """
    previous = {}
    # Only the main thread can set handlers.
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        # The block has ended, so the interruption does not concern the work that comes after it.
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
