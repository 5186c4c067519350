"""Maps of a corpus by umap-learn: to two or three dimensions, and aligned maps of two models.

UMAP (McInnes et al. 2018) preserves neighbourhoods. It does not preserve distances between far
groups, their sizes, or the direction of the axes. The neighbours come from `corpus.neighbours`, and
umap-learn lays them out in one thread from a seed, so the same seed gives the same map. The second
of two aligned maps starts from the first, with small steps, and is rotated onto it, so a sentence
stays where it was if its neighbours do.

umap-learn runs in a separate process (`UmapProcess`), which can be ended at any time. It holds
Python's global lock while it computes; in the process of the app, it would delay all requests. At
its first use numba compiles it for 27 seconds. The compiled code is stored in the home folder.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from tqdm.auto import tqdm

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError
from training.pooling import normalize_rows
from training.sources.home import home_folder

# Increase it when the same settings would give another map.
VERSION = "5"
DIMENSIONS = (2, 3)
CLUSTER_DIMENSIONS = 5
# The fewest distinct sentences of a map.
MIN_SENTENCES = 5
# The share of the search for neighbours in the progress; the rest is the layout.
SEARCH_FRACTION = 0.3
# Vectors are considered equal if none of their components differs by more.
COLLAPSED_RANGE = 1e-5
# For more sentences, the eigenvectors of the spectral initialisation take longer than the layout.
MAX_SPECTRAL = 20_000
# From this number of sentences on, 200 epochs suffice.
MANY_SENTENCES = 4_000
# On two maps of 10,000 STSb sentences under two poolings of MiniLM, the two points of a sentence
# are 0.32 times as far apart as two random points. With umap-learn's default rate of 1 the ratio is
# 0.38, and the second map is not more faithful.
SECOND_LEARNING_RATE = 0.1
COMPILING = "Compiling umap-learn, about 30 s, once on this machine"
# The niceness of background work.
LOW_PRIORITY = 19
POLL_SECONDS = 0.1
# A process that does not report progress for this long is considered hung.
STALLED_SECONDS = 300.0
# How long an idle process, which holds 350 MB, waits for the next map.
WAITING_SECONDS = 120.0

# Vectors float32 (N, D) with the rows int32 and distances float32 of their nearest neighbours, (N,
# k) each.
Job = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class MapSettings:
    """The settings of a map.

    Attributes:
        neighbours: few show detail, many show the overall structure.
        min_dist: the smallest distance between points, from 0 to 0.99.
        epochs: None means 500 for small corpora, 200 for large ones.
    """

    dimensions: int = 2
    neighbours: int = 15
    min_dist: float = 0.1
    seed: int = 0
    epochs: int | None = None

    def check(self) -> None:
        """Raises InputError if a value is out of range."""
        # Users draw a map in 2 or 3 dimensions, and HDBSCAN finds clusters on a map in more.
        if self.dimensions not in (*DIMENSIONS, CLUSTER_DIMENSIONS):
            raise InputError(f"a map has 2 or 3 dimensions, not {self.dimensions}.")
        if not 2 <= self.neighbours <= 200:
            raise InputError(
                f"the number of neighbours is {self.neighbours}; it must be from 2 to 200."
            )
        if not 0 <= self.min_dist <= 0.99:
            raise InputError(f"the minimum distance is {self.min_dist}; it must be from 0 to 0.99.")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"the seed is {self.seed}; it must be from 0 to {2**31 - 1:,}.")


def project(
    embedded: Sequence[EmbeddedCorpus],
    settings: MapSettings,
    cache: DiskCache,
    home: Path,
    watch: Watch = UNWATCHED,
) -> list[np.ndarray]:
    """The map of a corpus under one model, or its aligned maps under two, drawn or from the cache.

    ``embedded`` has a space for each model: the sentences with their vectors under the model.
    Returns float32 (N, dimensions) for each. Raises InputError if a setting is out of range, the
    corpus has too few distinct sentences, a model gives all of them the same vector, or two corpora
    have different sentences.
    """
    settings.check()
    if len({space.corpus.digest for space in embedded}) > 1:
        raise InputError("two maps can only be aligned if they are of the same sentences.")
    for space in embedded:
        space.corpus.require_distinct(MIN_SENTENCES, "a map needs")
        if float(np.ptp(space.vectors, axis=0).max()) < COLLAPSED_RANGE:
            raise InputError(
                f"{space.model} with {space.pooling} pooling gives all {len(space):,} sentences the same vector: it "
                "has collapsed, and there is nothing to map."
            )

    def compute() -> np.ndarray:
        maps = draw([space.vectors for space in embedded], settings, home, watch)
        # The cache stores one array: (N, dimensions), or (2, N, dimensions) for aligned maps.
        return maps[0] if len(maps) == 1 else np.stack(maps)

    maps = cache.get_or_compute(map_key(settings, *embedded), compute)
    return [maps] if len(embedded) == 1 else list(maps)


def map_key(settings: MapSettings, *embedded: EmbeddedCorpus) -> str:
    """The key of a map in the cache, by the content of the sentences, the models and the settings."""
    spaces = [space.key for space in embedded]
    values = [f"{name}={value}" for name, value in asdict(settings).items()]
    return digest([VERSION, *spaces, *values])


def compile_umap(home: Path | None = None) -> None:
    """Draws a small map at low priority, so that umap-learn is compiled into the home folder.

    This takes half a minute, once for each version of the packages; afterwards nothing is done.
    Without ``home``, the home folder is the one of the environment.
    """
    home = home_folder(home)
    if is_compiled(home):
        return
    vectors = normalize_rows(np.random.default_rng(0).standard_normal((100, 8), dtype=np.float32))
    process = UmapProcess(home, LOW_PRIORITY)
    try:
        process.draw([(vectors, *neighbours(vectors, 15))], MapSettings(epochs=1), UNWATCHED)
    finally:
        process.end()


def compiled_code(home: Path) -> Path:
    """The folder of the compiled code of the installed packages.

    The folder depends on the versions of the packages, because numba compiles a function again if
    its own file has changed, but not if the file of a function that it calls has changed.
    """
    versions = [version(name) for name in ("umap-learn", "pynndescent", "numba")]
    return home / "numba" / digest([sys.prefix, sys.version, *versions])


def is_compiled(home: Path) -> bool:
    """Whether a map was drawn with the installed packages before."""
    return (compiled_code(home) / "complete").exists()


# By home folder: the idle process that waits for the next map, and the timer that will end it.
_waiting: dict[Path, tuple[UmapProcess, threading.Timer]] = {}


def draw(
    models: Sequence[np.ndarray], settings: MapSettings, home: Path, watch: Watch = UNWATCHED
) -> list[np.ndarray]:
    """Draws a map by UMAP, or the aligned maps of two models, without the cache: float32 (N, dimensions) each.

    ``models`` has the unit vectors of the sentences under each model, float32 (N, D).
    """
    k = min(settings.neighbours, len(models[0]) - 1)
    # The share of one search in the progress.
    step = SEARCH_FRACTION / len(models)
    jobs: list[Job] = []
    for number, vectors in enumerate(models):
        searching = watch.part(number * step, (number + 1) * step)
        jobs.append((vectors, *neighbours(vectors, k, searching)))
    home = home.absolute()
    process = _take_waiting(home)
    # A process that has waited may have been killed.
    if process is None or not process.is_alive():
        process = UmapProcess(home)
    try:
        maps = process.draw(jobs, settings, watch)
    except BaseException:
        process.end()
        raise
    timer = threading.Timer(WAITING_SECONDS, end_waiting, [home])
    timer.daemon = True
    # One process waits for the next map. Another thread may have left one in the meantime, which
    # `setdefault` returns; then this one is ended.
    waiting_process, _ = _waiting.setdefault(home, (process, timer))
    if waiting_process is process:
        timer.start()
    else:
        process.end()
    if not all(np.isfinite(points).all() for points in maps):
        raise InputError(
            "UMAP found no map of these sentences; try more neighbours or another seed."
        )
    return maps


def end_waiting(home: Path) -> None:
    """Ends the idle process of this home folder, if there is one."""
    process = _take_waiting(home)
    if process is not None:
        process.end()


def _take_waiting(home: Path) -> UmapProcess | None:
    """The idle process of this home folder, which then no longer ends by itself; None if there is none."""
    process, timer = _waiting.pop(home, (None, None))
    if timer is not None:
        timer.cancel()
    return process


class UmapProcess:
    """A process that draws one map after another, until `end` or the end of this process."""

    def __init__(self, home: Path, niceness: int = 0) -> None:
        self.home = home
        self._is_ready = False
        context = multiprocessing.get_context("spawn")
        self._connection, other_end = context.Pipe()
        arguments = (other_end, compiled_code(home), niceness)
        self._process = context.Process(target=_serve, args=arguments, name="umap", daemon=True)
        self._process.start()
        # When the new process ends, `recv` raises EOFError only if this process has closed its copy
        # of the other end.
        other_end.close()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        self._process.kill()
        self._process.join()

    def draw(self, jobs: list[Job], settings: MapSettings, watch: Watch) -> list[np.ndarray]:
        """The map of one job, or the aligned maps of two, float32 (N, dimensions) each.

        Raises StoppedError after a stop, and InputError if the process ends or does nothing for
        minutes. Call `end` after either.
        """
        if not is_compiled(self.home):
            watch.report(0, COMPILING)
        layout = watch.part(SEARCH_FRACTION, 1)
        try:
            if not self._is_ready:
                # The first message of `_serve` is True.
                self._is_ready = self._answer(watch)
            # Sending blocks until the process reads, which a process that hangs never does.
            threading.Thread(target=self._send, args=((jobs, settings),), daemon=True).start()
            answer = self._answer(watch)
            # The process sends percentages, and the maps at the end.
            while isinstance(answer, float):
                # None keeps the description of the stage.
                layout.report(answer, None, 100)
                answer = self._answer(watch)
        except (EOFError, OSError) as error:
            self._process.join()
            raise InputError(
                f"the process that draws maps ended unexpectedly, with exit code {self._process.exitcode}: it was "
                "killed, such as for want of memory, or the script that draws has no `if __name__ == '__main__':`"
            ) from error
        # `is_compiled` looks for this file.
        (compiled_code(self.home) / "complete").touch()
        return answer

    def _send(self, message: tuple[list[Job], MapSettings]) -> None:
        # `_answer` reports a process that has ended.
        with suppress(OSError):
            self._connection.send(message)

    def _answer(self, watch: Watch) -> Any:
        """Waits for the next message of the process. Raises StoppedError after a stop."""
        deadline = time.monotonic() + STALLED_SECONDS
        while not self._connection.poll(POLL_SECONDS):
            watch.check()
            if time.monotonic() > deadline:
                minutes = STALLED_SECONDS / 60
                raise InputError(
                    f"the process that draws maps did nothing for {minutes:g} min and was ended; try again"
                )
        watch.check()
        return self._connection.recv()


def _serve(connection: Connection, code: Path, niceness: int) -> None:
    """The main function of the process. Sends True, and for each list of jobs percentages, followed by the maps."""
    # Ctrl-C in the terminal reaches this process, too. The app stops the work through `Watch`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if niceness and sys.platform != "win32":
        os.nice(niceness)
    os.environ["NUMBA_CACHE_DIR"] = str(code)
    # Code for a generic processor can be part of a container image. A map takes 3% longer.
    os.environ["NUMBA_CPU_NAME"] = "generic"
    umap = import_umap()
    # The default is a lock between processes, which would be left behind when this one is killed.
    tqdm.set_lock(threading.RLock())
    connection.send(True)
    with suppress(EOFError):
        while True:
            jobs, settings = connection.recv()
            connection.send(_layouts(umap, jobs, settings, _Progress(connection)))


def import_umap() -> Any:
    """umap-learn, whose functions numba caches in ``NUMBA_CACHE_DIR``. By default, few of them would be cached.

    ``enable_caching`` is the public method that ``numba.njit(cache=True)`` calls.
    """
    import umap

    # umap-learn warns that precomputed neighbours have no index, which only transforming further
    # points would need.
    warnings.filterwarnings("ignore", module="umap")
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("umap", "pynndescent"):
            for value in list(vars(module).values()):
                if hasattr(value, "enable_caching"):
                    value.enable_caching()
    return umap


class _Progress(io.TextIOBase):
    """The file of tqdm's bar, which sends the percentages that are written to it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def write(self, text: str) -> int:
        if text.strip():
            self._connection.send(float(text))
        return len(text)


def _layouts(
    umap: Any, jobs: list[Job], settings: MapSettings, progress: _Progress
) -> list[np.ndarray]:
    """The map of each job. The second map starts from the first, and is rotated onto it at the end."""
    maps: list[np.ndarray] = []
    for vectors, rows, distances in jobs:
        usual_epochs = 500 if len(vectors) < MANY_SENTENCES else 200
        epochs = settings.epochs or usual_epochs
        learning_rate = 1.0
        start: np.ndarray | str = "pca"
        if maps:
            learning_rate = SECOND_LEARNING_RATE
            start = maps[0]
        elif 4 * settings.dimensions < len(vectors) <= MAX_SPECTRAL:
            # umap-learn requests 2 · dimensions + 3 Lanczos vectors, which is at most 4 · dimensions,
            # as a map has two or more. SciPy's eigsh raises an error if the map has fewer sentences.
            start = "spectral"
        mapper = umap.UMAP(
            n_neighbors=rows.shape[1],
            n_components=settings.dimensions,
            metric="cosine",
            # None stands for the index, which only transforming further points would need.
            precomputed_knn=(rows, distances, None),
            min_dist=settings.min_dist,
            random_state=settings.seed,
            n_jobs=1,
            n_epochs=epochs,
            init=start,
            learning_rate=learning_rate,
            tqdm_kwds={
                "disable": False,
                "file": progress,
                "bar_format": "{percentage}",
                # The bar of the second map continues where the bar of the first ended.
                "initial": len(maps) * epochs,
                "total": len(jobs) * epochs,
            },
        )
        points = mapper.fit_transform(vectors)
        if maps:
            # Rotated onto the first map, around its centre.
            centre = maps[0].mean(axis=0)
            centred = points - points.mean(axis=0)
            rotation, _ = scipy.linalg.orthogonal_procrustes(centred, maps[0] - centre)
            points = (centred @ rotation + centre).astype(np.float32)
        maps.append(points)
    return maps
