"""umap-learn, ready to work: imported, compiled, and one map at a time.

umap-learn is compiled by numba when it is first used: half a minute on two cores, the import included, and it would
be paid by the first person who asks for a map. So the app pays it in the background (`warm_up`), in a process of
its own with low priority, which leaves what it compiled in the home folder. After that, also after a restart, the
import takes two seconds and nothing is compiled.

umap-learn compiles most of its functions anew in each process unless told otherwise, hence `_keep_compiled`.
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
from typing import Any

from sbert_app.child_process import child_environment, module_command

log = logging.getLogger("sbert_lab.umap")

COMPILED_BY = ("umap-learn", "numba", "numpy")
MODULES = ("umap.umap_", "umap.layouts", "umap.utils", "umap.sparse")
TOO_LONG = 600  # seconds; a process that compiles longer than this is stuck

_lock = threading.RLock()
_is_warm = False


@contextmanager
def engine(home: Path) -> Iterator[None]:
    """umap-learn, ready, for one thread at a time: numba's parallel loops do not bear two.

    The first call waits for the compiler, as `warm_up` does.
    """
    with _lock:
        _make_ready(home)
        yield


def warm_up(home: Path) -> None:
    """Import and compile. For a thread in the background."""
    with _lock:
        _make_ready(home)


def is_warm() -> bool:
    """Whether a map would start at once."""
    return _is_warm


def _make_ready(home: Path) -> None:
    if not _is_warm:
        folder = home / "numba" / _key()
        done = folder / "compiled"
        if not done.exists():
            _compile_apart(home, folder, done)
        import_umap(folder)


def _key() -> str:
    """What numba's files are good for: these versions, at these places, on this processor, of these functions.

    Numba looks its files up by where the source lies and when it was written. What it does not find it compiles
    again, in the app, which answers nobody meanwhile: so a second installation needs a folder of its own.
    """
    umap = find_spec("umap")
    layout = Path(__file__).with_name("layout.py")
    facts = (sys.version, platform.processor(), platform.machine(), umap and umap.origin, layout.resolve())
    written = layout.stat().st_mtime_ns
    digest = hashlib.sha256(repr((facts, written)).encode()).hexdigest()[:12]
    return "-".join([*(version(package) for package in COMPILED_BY), digest])


def _compile_apart(home: Path, folder: Path, done: Path) -> None:
    """Compile in a process of its own. If that fails, the app compiles for itself when it must."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        command = module_command("sbert_app.services.maps.compile_umap", home, folder)
        subprocess.run(command, check=True, timeout=TOO_LONG, capture_output=True, env=child_environment())
        done.touch()
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("umap-learn could not be compiled ahead: %s", error)


def import_umap(folder: Path) -> None:
    """Import umap-learn with its compiled functions kept in ``folder``."""
    global _is_warm
    import importlib
    import warnings

    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    import numba.core.config as numba_config

    numba_config.CACHE_DIR = str(folder)  # where numba was imported before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on TensorFlow, which is not needed
        importlib.import_module("umap")
    for name in MODULES:
        _keep_compiled(importlib.import_module(name))
    _is_warm = True


def _keep_compiled(module: Any) -> None:
    from numba.core.dispatcher import Dispatcher

    for function in vars(module).values():
        if isinstance(function, Dispatcher) and function.py_func.__module__.startswith("umap"):
            function.enable_caching()
