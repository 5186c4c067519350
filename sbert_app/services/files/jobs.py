"""Files that are scored as jobs: they go on when the page is left, and are there when it is opened again.

    job = jobs.open(Path("pairs.csv"))              the file is kept
    job = jobs.start(job.id, ScoreRequest(…))       scored in the background
    for event in jobs.watch(job.id): ...            TaskProgress, at last the ScoreSummary; for any number of readers

A job's folder holds its file, its record (``job.json``), its results and their summary; it is removed after a day. Its
id cannot be guessed, and nothing lists the jobs of others: a browser knows those that it started. A job whose process
has ended is "interrupted"; the file is still there to be scored again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex

from pydantic import BaseModel, ConfigDict, ValidationError

from sbert_app.services.files.matches import MatchOutputs, MatchSummary, apply_threshold
from sbert_app.services.files.score import score_file
from sbert_app.services.files.summary import ScoreSummary
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.tasks import ReportProgress, ShouldStop, TaskProgress, TaskResult, TaskRunner
from training.atomic import write_text
from training.data.tables.table import PairColumns, Table
from training.errors import InputError, NotFoundError, Stopped, UserFacingError, summary_of
from training.evaluation.thresholds import CRITERIA

KEPT_SECONDS = 24 * 3600
AT_ONCE = 2  # jobs that are computed; others wait
MOST_WAITING = 50  # jobs that are computed or wait
MOST_OF_ONE = 20  # of them, of one visitor
COPIES = 2  # of a file that its results may take, for the room in the folder
POLL_SECONDS = 0.2
CLOSE_SECONDS = 10.0

OPENED, QUEUED, RUNNING = "opened", "queued", "running"
FINISHED, STOPPED, FAILED, INTERRUPTED = "finished", "stopped", "failed", "interrupted"
AT_WORK = (QUEUED, RUNNING)

_ID = re.compile(r"[0-9a-f]{16}")


class _Saved(BaseModel):
    """A summary as it is kept on disk."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    summary: ScoreSummary


@dataclass(frozen=True)
class ScoreRequest:
    """What to score with which models. Pooling None is the model's own; cross-encoder None is none."""

    source: Path | Table
    columns: PairColumns | Sequence[str] | None
    model: str
    pooling: str | None = None
    cross_encoder: str | None = None
    formats: tuple[str, ...] = (".csv", ".parquet")
    criteria: tuple[str, ...] = CRITERIA  # of the thresholds that the report decides on

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path if isinstance(self.source, Table) else self.source


@dataclass(frozen=True)
class ScoreJob:
    """A job as it is now."""

    id: str
    folder: Path
    source: str  # the name of its file
    created: float  # seconds since 1970
    state: str
    encoding: str | None = None  # of the file, if the user chose one
    model: str = ""
    pooling: str | None = None
    cross_encoder: str | None = None
    reason: str = ""  # why it failed, in one sentence
    details: Sequence[str] = ()  # of the reason, of a model that was not found

    @property
    def path(self) -> Path:
        """Its file."""
        return self.folder / "input" / self.source


class ScoreJobs:
    """All jobs of a home folder. Thread-safe.

    Args:
        models: the models that score.
        temp_folder: where the jobs' folders are.
        check_room: called with a number of bytes; raises InputError if there is no room for them.
    """

    def __init__(
        self, models: ModelCache, temp_folder: Path, check_room: Callable[[int], None] = lambda size: None
    ) -> None:
        self._models, self._check_room = models, check_room
        self._folder = temp_folder / "scored"
        self._tasks = TaskRunner()
        self._places = threading.Semaphore(AT_ONCE)
        self._live: dict[str, TaskProgress] = {}  # the latest progress of each job of this process
        self._stops: dict[str, threading.Event] = {}
        self._visitors: dict[str, str] = {}  # who has started each of them
        self._is_closing = False

    def close(self) -> None:
        """Stop all jobs as the process ends, and wait for them: "interrupted", with nothing half-written."""
        self._is_closing = True
        for job_id in list(self._live):
            self.stop(job_id)
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._live and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def files(self) -> Iterator[Path]:
        """Every file of every job."""
        return (path for path in self._folder.rglob("*") if path.is_file())

    def open(self, path: Path, encoding: str | None = None) -> ScoreJob:
        """A job with a copy of this file, not yet scored. Raises InputError if it cannot be kept."""
        self._remove_old_jobs()
        job_id = token_hex(8)
        job = ScoreJob(job_id, self._folder / job_id, path.name, time.time(), OPENED, encoding)
        try:
            job.path.parent.mkdir(parents=True)
            try:
                os.link(path, job.path)  # takes no room
            except OSError:
                shutil.copyfile(path, job.path)
            self._write(job)
        except OSError as error:
            shutil.rmtree(job.folder, ignore_errors=True)
            raise InputError(f"{path.name} cannot be kept: {error.strerror or error}") from error
        return job

    def start(self, job_id: str, request: ScoreRequest, visitor: str = "") -> ScoreJob:
        """Score the file of a job in the background; one that was scored before gives a new job with the same file.

        ``visitor``: who starts it, such as an address; "" has no limit of its own.

        Raises:
            InputError: there is no such job, too many wait, of this visitor or of all, or there is no room.
        """
        job = self.get(job_id)
        if len(self._live) >= MOST_WAITING:
            raise InputError(f"{MOST_WAITING} files are being scored or wait for it; try again in a few minutes")
        if visitor and list(self._visitors.values()).count(visitor) >= MOST_OF_ONE:
            raise InputError(f"{MOST_OF_ONE} files from your address are being scored or wait for it; wait for one")
        self._check_room(COPIES * job.path.stat().st_size)
        if job.state != OPENED:
            job = self.open(job.path, job.encoding)
        job = replace(
            job, state=QUEUED, model=request.model, pooling=request.pooling, cross_encoder=request.cross_encoder
        )
        self._live[job.id], self._stops[job.id] = TaskProgress("Waiting", 0, 1, 0), threading.Event()
        self._visitors[job.id] = visitor
        self._write(job)
        threading.Thread(target=self._work, args=(job, request), name=f"score {job.id}", daemon=True).start()
        return job

    def run(self, request: ScoreRequest, visitor: str = "") -> tuple[ScoreJob, ScoreSummary]:
        """Score a file and wait for it. Raises InputError if the file, the columns or a model cannot be used."""
        job = self.start(self.open(request.path).id, request, visitor)
        *_, last = self.watch(job.id)
        if not isinstance(last, ScoreSummary):
            raise TypeError("a job ended without a summary")
        return job, last

    def get(self, job_id: str) -> ScoreJob:
        """The job as it is now. Raises InputError if there is none."""
        folder = self._folder / (job_id if _ID.fullmatch(job_id) else "none")
        try:
            job = ScoreJob(folder=folder, **json.loads((folder / "job.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise InputError("this file is no longer kept: jobs are removed after a day. Upload it again.") from None
        if job.state in AT_WORK and job.id not in self._live:
            return replace(job, state=INTERRUPTED, reason="the app ended while it was being scored")
        return job

    def summary(self, job_id: str) -> ScoreSummary | None:
        """What scoring found; None as long as it has not ended well."""
        file = self._folder / job_id / "summary.json"
        try:
            return _Saved.model_validate_json(file.read_bytes()).summary if _ID.fullmatch(job_id) else None
        except (OSError, ValidationError):
            return None

    def watch(self, job_id: str) -> Iterator[TaskProgress | ScoreSummary]:
        """Progress a few times a second as long as the job is at work, then the summary. Leaving it stops nothing.

        Raises:
            InputError: there is no such job, or it failed.
            Stopped: it was stopped before the first row.
        """
        last: TaskProgress | None = None
        while (progress := self._live.get(job_id)) is not None:
            if progress is not last:
                last = progress
                yield progress
            time.sleep(POLL_SECONDS)
        job, summary = self.get(job_id), self.summary(job_id)
        if job.state in (FAILED, INTERRUPTED) and job.details:
            raise NotFoundError(f"{job.reason} ({'; '.join(job.details)})", job.reason, tuple(job.details))
        if job.state in (FAILED, INTERRUPTED):
            raise InputError(job.reason)
        if summary is not None:
            yield summary
        elif job.state == STOPPED:
            raise Stopped

    def stop(self, job_id: str) -> None:
        """Stop a job; the rows scored so far are kept."""
        if (stop := self._stops.get(job_id)) is not None:
            stop.set()
        self._tasks.stop(job_id)

    def apply_threshold(self, job_id: str, threshold: float, should_stop: ShouldStop = lambda: False) -> MatchSummary:
        """Which rows of a scored file match: written as CSV and Parquet, with groups and without duplicates as CSV.

        Raises:
            InputError: there is no such job, it is not scored, or there is no room.
            Stopped: ``should_stop`` returned True.
        """
        job, summary = self.get(job_id), self.summary(job_id)
        scored = next((Path(path) for path in (summary.outputs if summary else ()) if path.endswith(".parquet")), None)
        if summary is None or scored is None:
            raise InputError("Score the file first.")
        self._check_room(COPIES * job.path.stat().st_size)
        stem = Path(job.source).stem
        names = [f"{stem}-matches.csv", f"{stem}-matches.parquet", f"{stem}-groups.csv", f"{stem}-deduplicated.csv"]
        csv, parquet, groups, deduplicated = (job.folder / name for name in names)
        outputs = MatchOutputs([csv, parquet], groups, deduplicated)
        columns = (summary.columns.sentence1, summary.columns.sentence2)
        return apply_threshold(scored, columns, summary.added["cosine"], threshold, outputs, should_stop)

    def delete(self, job_id: str) -> None:
        """Stop a job and remove its file and results."""
        self.stop(job_id)
        if _ID.fullmatch(job_id):
            shutil.rmtree(self._folder / job_id, ignore_errors=True)

    def _work(self, job: ScoreJob, request: ScoreRequest) -> None:
        """Wait for a place, load the models, score; the outcome is in the folder before the job counts as done."""
        try:
            summary = self._score(job, request)
            if self._is_closing and summary.stopped_at is not None:
                return  # as the record says "running", it counts as interrupted
            write_text(job.folder / "summary.json", _Saved(summary=summary).model_dump_json())
            self._write(replace(job, state=FINISHED if summary.stopped_at is None else STOPPED))
        except Stopped:
            self._end(job, STOPPED, "")
        except UserFacingError as error:
            self._end(job, FAILED, summary_of(error), error.details if isinstance(error, NotFoundError) else ())
        except BaseException as error:
            self._end(job, FAILED, "this failed because of a fault in the app; its log has the details")
            if not isinstance(error, FileNotFoundError) or job.folder.exists():  # else it was deleted meanwhile
                raise
        finally:
            for kept in (self._visitors, self._stops, self._live):
                kept.pop(job.id, None)

    def _score(self, job: ScoreJob, request: ScoreRequest) -> ScoreSummary:
        stop = self._stops[job.id]

        def load(report_progress: ReportProgress, _: ShouldStop) -> None:
            self._models.encoder(request.model, request.pooling)
            if request.cross_encoder:
                report_progress(0, f"Loading {request.cross_encoder} …")
                self._models.cross_encoder(request.cross_encoder)

        def score(report_progress: ReportProgress, should_stop: ShouldStop) -> ScoreSummary:
            return score_file(
                request.source,
                [job.folder / f"{request.path.stem}-scored{suffix}" for suffix in request.formats],
                self._models.encoder(request.model, request.pooling),
                self._models.cross_encoder(request.cross_encoder) if request.cross_encoder else None,
                request.columns,
                on_progress=lambda done, total: report_progress(done, None, total),
                should_stop=lambda: stop.is_set() or should_stop(),
                criteria=request.criteria,
            )

        while not self._places.acquire(timeout=POLL_SECONDS):
            if stop.is_set():
                raise Stopped
        try:
            self._check_room(COPIES * job.path.stat().st_size)  # those that were computed meanwhile have taken some
            self._write(replace(job, state=RUNNING))
            for event in self._tasks.run(job.id, f"Loading {request.model} …", load):
                if isinstance(event, TaskProgress):
                    self._live[job.id] = event
            if stop.is_set():
                raise Stopped
            for event in self._tasks.run(job.id, "Scoring", score, keeps_partial_result=True):
                if isinstance(event, TaskResult):
                    return event.value
                self._live[job.id] = event
        finally:
            self._places.release()
        raise Stopped

    def _end(self, job: ScoreJob, state: str, reason: str, details: Sequence[str] = ()) -> None:
        if self._is_closing:
            return
        with contextlib.suppress(OSError):  # the disk is full, or the job was deleted meanwhile
            self._write(replace(job, state=state, reason=reason, details=details))

    def _write(self, job: ScoreJob) -> None:
        values = {name: value for name, value in asdict(job).items() if name != "folder"}
        write_text(job.folder / "job.json", json.dumps(values, ensure_ascii=False))

    def _remove_old_jobs(self) -> None:
        """Also those of an earlier start of the app."""
        if not self._folder.is_dir():
            return
        for folder in self._folder.iterdir():
            if folder.name not in self._live and folder.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
