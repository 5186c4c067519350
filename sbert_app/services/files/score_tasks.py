"""Scoring for the people in front of a page: a task for each browser session, with results on disk.

Results are kept in a folder of their own inside the home folder. They are removed when their owner starts another
file or leaves the page, and after a day in any case.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from sbert_app.services.files.score import score_file
from sbert_app.services.files.summary import ScoreSummary
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.tasks import ReportProgress, ShouldStop, TaskProgress, TaskResult, TaskRunner
from training.data.tables.table import PairColumns, Table

KEPT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class ScoreRequest:
    """What to score with which models. Pooling None is the model's own; cross-encoder None is none."""

    source: Path | Table
    columns: PairColumns | Sequence[str] | None
    model: str
    pooling: str | None = None
    cross_encoder: str | None = None
    formats: tuple[str, ...] = (".csv", ".parquet")

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path if isinstance(self.source, Table) else self.source


class ScoreTasks:
    """The files that are being scored, by their owner. Thread-safe."""

    def __init__(self, models: ModelCache, temp_folder: Path) -> None:
        self._models = models
        self._folder = temp_folder / "scored"
        self._tasks = TaskRunner()
        self._folders: dict[str, Path] = {}

    def run(self, owner: str, request: ScoreRequest) -> Iterator[TaskProgress | ScoreSummary]:
        """Score a file for ``owner``, whose earlier results are removed. The summary comes last.

        Raises:
            InputError: the file, the columns or a model cannot be used.
            Stopped: `stop` was called while a model was being loaded. Later it ends with the rows scored so far.
        """
        self.forget(owner)
        self._remove_old_results()
        folder = self._folders[owner] = self._folder / token_hex(8)
        folder.mkdir(parents=True)

        def load(report_progress: ReportProgress, _: ShouldStop) -> None:
            self._models.encoder(request.model, request.pooling)
            if request.cross_encoder:
                report_progress(0, f"Loading {request.cross_encoder} …")
                self._models.cross_encoder(request.cross_encoder)

        def score(report_progress: ReportProgress, should_stop: ShouldStop) -> ScoreSummary:
            return score_file(
                request.source,
                [folder / f"{request.path.stem}-scored{suffix}" for suffix in request.formats],
                self._models.encoder(request.model, request.pooling),
                self._models.cross_encoder(request.cross_encoder) if request.cross_encoder else None,
                request.columns,
                on_progress=lambda done, total: report_progress(done, None, total),
                should_stop=should_stop,
            )

        yield from (
            event
            for event in self._tasks.run(owner, f"Loading {request.model} …", load)
            if isinstance(event, TaskProgress)
        )
        for event in self._tasks.run(owner, "Scoring", score, keeps_partial_result=True):
            yield event.value if isinstance(event, TaskResult) else event

    def stop(self, owner: str) -> None:
        """Stop the owner's task; it keeps the rows scored so far."""
        self._tasks.stop(owner)

    def forget(self, owner: str) -> None:
        """Stop the owner's task and remove its results."""
        self.stop(owner)
        if owner in self._folders:
            shutil.rmtree(self._folders.pop(owner), ignore_errors=True)

    def _remove_old_results(self) -> None:
        """Also those of an earlier start of the app."""
        if not self._folder.is_dir():
            return
        for folder in self._folder.iterdir():
            if folder not in self._folders.values() and folder.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
