"""Scoring for people in front of a page: one file at a time each, watched while it runs, stopped within a moment.

``ScoreJobs.run`` works in a thread and hands out what happens: a sentence while models load, ``Progress`` a few
times a second, ``ScoreSummary`` at the end. Results lie in a folder of their own within the home folder; they
go when their owner starts another file or leaves, and after a day in any case.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from sbert_app.services.files.score import score_file
from sbert_app.services.files.summary import Progress, ScoreSummary
from sbert_app.services.models.cache import ModelCache
from training.data.tables.table import PairColumns, Table
from training.errors import Stopped

KEPT_SECONDS = 24 * 3600
POLL_SECONDS = 0.25

Event = str | Progress | ScoreSummary


@dataclass(frozen=True)
class ScoreRequest:
    """What to score, with which models. Names as everywhere; None takes the model's own pooling, no cross-encoder."""

    source: Path | Table
    columns: PairColumns | Sequence[str] | None
    model: str
    pooling: str | None = None
    cross_encoder: str | None = None
    formats: tuple[str, ...] = (".csv", ".parquet")


class ScoreJobs:
    """The files being scored, by their owner: a browser session. Thread-safe."""

    def __init__(self, shelf: ModelCache, scratch: Path) -> None:
        self._shelf = shelf
        self._folder = scratch / "scored"
        self._stops: dict[str, threading.Event] = {}
        self._folders: dict[str, Path] = {}

    def run(self, owner: str, request: ScoreRequest) -> Iterator[Event]:
        """Score a file for ``owner``, whose earlier results go.

        Raises:
            InputError: the file, the columns or a model cannot be used.
            Stopped: somebody pressed Stop while a model was still loading; loading goes on for the next time.
        """
        self.forget(owner)
        self._sweep()
        folder = self._folders[owner] = self._folder / token_hex(8)
        folder.mkdir(parents=True)
        stop = self._stops[owner] = threading.Event()
        events: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        work = threading.Thread(target=self._work, args=(request, folder, events, stop), name="score", daemon=True)
        work.start()
        try:
            yield from _until_done(events, stop)
        finally:
            stop.set()  # also when the reader goes away
            if self._stops.get(owner) is stop:
                del self._stops[owner]

    def stop(self, owner: str) -> None:
        """Let what is running come to an end; it keeps what is done."""
        if owner in self._stops:
            self._stops[owner].set()

    def forget(self, owner: str) -> None:
        """Stop what is running and remove the owner's results."""
        self.stop(owner)
        if owner in self._folders:
            shutil.rmtree(self._folders.pop(owner), ignore_errors=True)

    def _work(
        self,
        request: ScoreRequest,
        folder: Path,
        events: queue.SimpleQueue[Event | Exception],
        stop: threading.Event,
    ) -> None:
        try:
            if not self._shelf.has("encoder", request.model):
                events.put(f"Loading {request.model} …")
            encoder = self._shelf.encoder(request.model, request.pooling)
            crossed = request.cross_encoder
            if crossed and not self._shelf.has("cross-encoder", crossed):
                events.put(f"Loading {crossed} …")
            cross_encoder = self._shelf.cross_encoder(crossed) if crossed else None
            path = request.source.path if isinstance(request.source, Table) else request.source
            outputs = [folder / f"{path.stem}-scored{ending}" for ending in request.formats]
            events.put(
                score_file(
                    request.source,
                    outputs,
                    encoder,
                    cross_encoder,
                    request.columns,
                    events.put,
                    should_stop=stop.is_set,
                )
            )
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that waits for it
            events.put(error)

    def _sweep(self) -> None:
        """Remove what earlier owners left behind, those of an earlier start of the app too."""
        if not self._folder.is_dir():
            return
        for folder in self._folder.iterdir():
            if folder not in self._folders.values() and folder.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _until_done(events: queue.SimpleQueue[Event | Exception], stop: threading.Event) -> Iterator[Event]:
    """What the thread says, until its summary."""
    begun = False
    while True:
        event = _next(events)
        if isinstance(event, Exception):
            raise event
        if event is not None:
            yield event
        if isinstance(event, ScoreSummary):
            return
        begun = begun or isinstance(event, Progress)
        if stop.is_set() and not begun:
            raise Stopped


def _next(events: queue.SimpleQueue[Event | Exception]) -> Event | Exception | None:
    """The next event; the latest of the progresses that come within a moment; None where nothing comes."""
    until, latest = time.monotonic() + POLL_SECONDS, None
    while (left := until - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left)
        except queue.Empty:
            break
        if not isinstance(event, Progress):
            return event
        latest = event
    return latest
