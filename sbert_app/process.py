"""Process-wide settings: memory allocator, idle threads, garbage collector, exit; and child processes.

``configure_process`` is called first thing by the app, the command line and a worker. The libraries, ``training``
among them, change nothing of the kind: a notebook that imports them keeps its own settings.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from training.assets import IN_CLONE

log = logging.getLogger("sbert_lab.process")

MB = 1 << 20
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX = -3, -1, -8  # parameters of glibc's mallopt(3), from malloc.h
MADV_DONTNEED = 4  # of madvise(2)
WEIGHTS_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .*\.safetensors\n((?:\w+: .*\n)+)", re.MULTILINE)  # in smaps
UNWRITTEN = re.compile(r"^Anonymous: +0 kB$", re.MULTILINE)
ENVIRONMENT = {  # what OpenMP and oneDNN read as torch is imported
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "512",
    "LRU_CACHE_CAPACITY": "64",
}
RELEASE_SECONDS = 60.0  # between two returns of free memory to the system, each some 50 milliseconds
GC_THRESHOLD = 100_000  # allocations between two collections; Python's default is 700
is_ending = threading.Event()  # what is computed for an answer stops, and what fails is no fault
# What is not part of every installation: the extra that has it, by the module that is imported.
EXTRA_OF = dict.fromkeys(
    ("gradio", "brotli", "gradio_client", "plotly", "starlette", "anyio", "markupsafe", "segno"), "app"
)
EXTRA_OF |= dict.fromkeys(("faiss", "numba", "sklearn", "threadpoolctl"), "maps")
EXTRA_OF |= {name: name for name in ("ray", "mteb", "tensorboard", "trackio")} | {"webview": "desktop"}
OUTPUT_LOST = 120  # the exit code that Python itself uses when buffered output cannot be written


def configure_process() -> None:
    """Apply all settings for the start of a process. Call it before torch is imported."""
    configure_malloc()
    set_environment()
    tune_garbage_collector()


def configure_malloc() -> None:
    """Make glibc keep up to 64 MB of freed memory for the next batch, which needs as much again.

    By default it maps blocks of the size of activations (1 to 3 MB) anew for each operation: 5% of encoding's time.
    Threads share one arena for each core, at least two; by default up to eight for each keep what its threads have
    freed: after half an hour of requests, hundreds of megabytes. Does nothing where there is no glibc.
    """
    if (mallopt := _of_libc("mallopt")) is not None:
        mallopt(M_MMAP_THRESHOLD, 32 * MB)
        mallopt(M_TRIM_THRESHOLD, 64 * MB)
        mallopt(M_ARENA_MAX, max(2, os.cpu_count() or 1))


def set_environment() -> None:
    """Make idle OpenMP threads sleep, and oneDNN's caches small. Variables that are already set keep their values.

    By default threads spin for a while after each operation: on few cores a training step takes 6% longer, and the page
    answers late during a run. And the compiled code of a matrix product is kept twice, for each of the last 1,024
    shapes: with batches of all lengths a run grows by 0.5 GB. With 512 shapes it grows by 0.15 GB and a step takes as
    long; with 64 a step takes 3% longer, as code is compiled again.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def tune_garbage_collector() -> None:
    """Collect the youngest generation after 100,000 allocations.

    The imported libraries hold a million long-lived objects: a full collection takes 0.4 s, and by default about ten
    happen before the first page is served.
    """
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])


def hide_password() -> None:
    """Start the process anew without ``--auth USER:PASSWORD``, which every user of the machine could read.

    The list of processes shows command lines, not environments: the password goes to $SBERT_AUTH. Does nothing
    where there is no such option, and on Windows, which cannot replace a process.
    """
    if sys.platform == "win32":
        return
    arguments, auth = without_option(sys.orig_argv, "--auth")
    if auth is not None:
        os.environ["SBERT_AUTH"] = auth
        os.execv(sys.executable, [sys.executable, *arguments[1:]])  # noqa: S606 - the very same command


def without_option(arguments: list[str], name: str) -> tuple[list[str], str | None]:
    """The arguments without ``name VALUE`` and ``name=VALUE``, and the last such value; None if there is none."""
    kept: list[str] = []
    found: str | None = None
    remaining = iter(arguments)
    for argument in remaining:
        option, equals, value = argument.partition("=")
        if option != name:
            kept.append(argument)
        elif equals:
            found = value
        else:
            value = next(remaining, "")
            if not value:  # the option without its value: the command line says what is wrong
                kept.append(argument)
                continue
            found = value
    return kept, found


@contextmanager
def quick_gradio(mcp: bool = False) -> Iterator[None]:
    """Inside the block ``import gradio`` takes half the time.

    MCP's SDK is a seventh of it, and not loaded unless it is asked for. The stubs for editors (.pyi), which Gradio
    writes, or reads and compares, for each of its components at each start, are a third, and left alone.
    """
    hidden = [] if mcp or "mcp" in sys.modules else ["mcp"]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # None makes an import fail
    file_of = inspect.getfile

    def no_file_of_a_component(object: Any) -> str:
        if isinstance(object, type) and object.__module__.startswith("gradio."):
            raise OSError("a class without a file, for which Gradio writes no stub")
        return file_of(object)

    inspect.getfile = no_file_of_a_component
    try:
        yield
    finally:
        inspect.getfile = file_of
        for package in hidden:
            sys.modules.pop(package, None)


def freeze_startup_objects() -> None:
    """Exclude all objects that exist now from future collections. Does not collect first: that would be a pause."""
    gc.freeze()


def release_memory() -> None:
    """Give back what large objects that were dropped have left: collect cycles, and return free pages to the system."""
    gc.collect()
    if (trim := _of_libc("malloc_trim")) is not None:
        trim(0)


def release_mapped_weights() -> None:
    """Let go the pages of weights' files that are mapped: encoding computes with a copy in another layout.

    They stay in the system's file cache, and come back when they are read. A mapping that was written to, the only
    place of what was written, is left alone. Does nothing but on Linux, and where /proc is hidden.
    """
    if (madvise := _of_libc("madvise")) is None:
        return
    try:
        mapped = Path("/proc/self/smaps").read_text(errors="replace")
    except OSError as error:
        log.info("the mapped weights stay in memory: %s", error)
        return
    for first, end, about in WEIGHTS_MAPPED.findall(mapped):
        if UNWRITTEN.search(about):
            start = int(first, 16)
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(int(end, 16) - start), MADV_DONTNEED)


def _of_libc(name: str) -> Any:
    """A function of Linux's C library; None if it has none of that name, as musl, or on another system."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def release_memory_regularly(seconds: float = RELEASE_SECONDS) -> None:
    """Each connection leaves a cycle of objects, which the collector reaches only after `GC_THRESHOLD` allocations.

    And glibc keeps what was freed in one of its arenas unless it lies at the arena's end.
    """
    regularly(seconds, release_memory)


def regularly(seconds: float, work: Callable[[], object]) -> None:
    """Do it every so many seconds from now on, in a thread that ends with the process. Errors are logged."""

    def run() -> None:
        while True:
            time.sleep(seconds)
            try:
                work()
            except Exception:  # a full disk, a database that is locked: it may be well again next time
                log.exception("%s failed", work.__name__)

    threading.Thread(target=run, name=work.__name__, daemon=True).start()


def exit_now(code: int) -> NoReturn:
    """End the process without freeing its objects one by one, which takes Python more than a second.

    Waits for non-daemon threads, runs the exit handlers and flushes the output, as Python does. Output that cannot
    be written turns exit code 0 into 120.
    """
    threading.excepthook = _report_unless_cut_off
    try:
        threading._shutdown()  # type: ignore[attr-defined] # joins non-daemon threads
        atexit._run_exitfuncs()  # closes logs, removes temporary folders
        sys.stdout.flush()
    except OSError as error:
        code = code or OUTPUT_LOST
        with suppress(OSError):
            print(f"error: the output could not be written: {error.strerror or error}", file=sys.stderr)
    finally:
        with suppress(OSError):  # stderr is closed: nothing is left to report to
            sys.stderr.flush()
        os._exit(code)


def _report_unless_cut_off(raised: threading.ExceptHookArgs) -> None:
    """Executors take nothing more while the process ends: what a daemon thread was doing is lost, and is no error."""
    if not isinstance(raised.exc_value, RuntimeError):
        threading.__excepthook__(raised)


def end_within(seconds: float, processor_seconds: float) -> None:
    """End this process so long from now whatever its threads do, or when it has used so much processor time from now.

    One may wait for a server that says nothing more, another compute what nobody will see. The time that it may compute
    is the processor's, as on a busy machine the same takes longer.
    """
    is_ending.set()
    end, used = time.monotonic() + seconds, time.process_time() + processor_seconds

    def watch() -> None:
        while time.monotonic() < end and time.process_time() < used:
            time.sleep(0.05)
        os._exit(0)

    threading.Thread(target=watch, name="end", daemon=True).start()


def module_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module with this interpreter.

    With ``-P``, as the working directory is the user's: a folder named ``training`` there must not be imported.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def child_environment() -> dict[str, str]:
    """The environment for such a command: this process's, and `ENVIRONMENT`.

    An installed package is found by itself. A clone may be run from any folder (``python …/app.py``), so there its
    root goes onto PYTHONPATH.
    """
    environment = {**ENVIRONMENT, **os.environ}
    if IN_CLONE:
        root = str(Path(__file__).resolve().parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    return environment
