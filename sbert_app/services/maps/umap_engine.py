"""umap-learn, imported and compiled, used by one thread at a time.

numba compiles umap-learn on first use, which takes half a minute on two cores and would delay the first map. The app
therefore compiles in the background (`compile_ahead`): a separate process with low priority (`compile_umap`) leaves the
compiled functions in the home folder. From then on, also after a restart, the import takes two seconds. The app waits
for them at its first map: an app of which nobody asks for a map does not hold numba, LLVM and umap-learn in memory.

By itself umap-learn caches few of its compiled functions on disk, hence `import_umap` has it cache all.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout

from sbert_app.process import child_environment, module_command

log = logging.getLogger("sbert_lab.umap")

PACKAGES = ("umap-learn", "numba", "numpy")
MODULES = ("umap.umap_", "umap.layouts", "umap.utils", "umap.sparse")
COMPILING = "Compiling UMAP, once on this machine"  # the message meanwhile
TIMEOUT_SECONDS = 600  # for the process that compiles

_lock = threading.RLock()
_is_warm = False  # whether umap-learn is imported, with its compiled functions
_is_compiled = False  # whether they are known to be there


@contextmanager
def engine(home: Path) -> Iterator[None]:
    """umap-learn, ready, for one thread at a time: numba's parallel loops are not thread-safe.

    The first call waits for the compilation.
    """
    with _lock:
        if not _is_warm:
            _compiled(home)
            import_umap(compiled_folder(home))
        yield


def compile_ahead(home: Path) -> None:
    """Compile umap-learn if this installation has not yet, without importing it. Call it in a background thread."""
    global _is_compiled
    with _lock:
        _is_compiled = _compiled(home)


def is_warm() -> bool:
    """Whether a map can be drawn without waiting for the compilation."""
    return _is_warm or _is_compiled


def compiled_folder(home: Path) -> Path:
    """The folder of the compiled functions, specific to versions, installation, processor and layout.py.

    numba finds its files by the path and modification time of the source. What it does not find, it compiles in the
    app, which answers no request meanwhile; so every installation has a folder of its own.
    """
    umap = find_spec("umap")
    layout = Path(__file__).with_name("layout.py")
    facts = (sys.version, platform.processor(), platform.machine(), umap and umap.origin, layout.resolve())
    key = hashlib.sha256(repr((facts, layout.stat().st_mtime_ns)).encode()).hexdigest()[:12]
    return home / "numba" / "-".join([*map(version, PACKAGES), key])


def _compiled(home: Path) -> bool:
    """Compile if need be -> whether the compiled functions are there."""
    folder = compiled_folder(home)
    if not (folder / "compiled").exists():
        _compile_in_subprocess(home, folder)
    return (folder / "compiled").exists()


def _compile_in_subprocess(home: Path, folder: Path) -> None:
    """If this fails, the functions are compiled in the app when they are used.

    Of two apps that start with the same home folder one compiles, and the other waits for it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "compiling.lock", timeout=TIMEOUT_SECONDS):
            if (folder / "compiled").exists():
                return
            command = module_command("sbert_app.services.maps.compile_umap", home, folder)
            subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS, capture_output=True, env=child_environment())
            (folder / "compiled").touch()
    except (OSError, Timeout, subprocess.SubprocessError) as error:
        log.warning("umap-learn could not be compiled in advance: %s", error)


def import_umap(folder: Path) -> None:
    """Import umap-learn and cache its compiled functions in ``folder``."""
    global _is_warm
    import importlib
    import warnings

    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    import numba.core.config as numba_config

    numba_config.CACHE_DIR = str(folder)  # if numba was imported before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about TensorFlow, which is optional
        importlib.import_module("umap")
    from numba.core.dispatcher import Dispatcher

    for function in [each for name in MODULES for each in vars(importlib.import_module(name)).values()]:
        if isinstance(function, Dispatcher) and function.py_func.__module__.startswith("umap"):
            function.enable_caching()
    _is_warm = True
