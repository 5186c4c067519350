"""Files that are scored as jobs: they go on when the page is left, and are there when it is opened again.

    job = jobs.open(Path("pairs.csv"))              the file is kept
    job = jobs.start(job.id, ScoreRequest(…))       scored in the background
    for event in jobs.follow(job.id): ...           TaskProgress, at last the ScoreSummary; for any number of readers

A job's folder holds its file, its record (``job.json``), its results and their summary; it is removed after a day. Its
id cannot be guessed, and nothing lists the jobs of others: a browser knows those that it started. A job whose process
has ended is "interrupted"; the file is still there to be scored again.
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sbert_app.services.background.state import AT_WORK, State
from sbert_app.services.background.tasks import TaskProgress, TaskRunner, run_apart
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.matches import MatchOutputs, MatchSummary, apply_threshold
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.files.score import score_file
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.quota import Quota
from sbert_app.services.store.documents import DocumentStore, read_document, write_document
from sbert_app.services.store.temp_folder import keep_copy
from training.data.tables.columns import PairColumns
from training.data.tables.table import Table, open_table
from training.errors import InputError, NotFoundError, Stopped, UserFacingError, summary_of
from training.evaluation.thresholds import CRITERIA
from training.models.model import VectorModel

log = logging.getLogger("sbert_lab.services")

AT_ONCE = 2  # jobs that are computed; others wait
MOST_WAITING = 50  # jobs that are computed or wait
MOST_OF_ONE = 20  # of them, of one visitor
COPIES = 2  # of a file that its results may take, for the room in the folder
_ID = re.compile(r"[0-9a-f]{16}")
FAULT = "this failed because of a fault in the app; its log has the details"


class _Saved(BaseModel):
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
        return self.source.path if isinstance(self.source, Table) else self.source


@dataclass(frozen=True)
class ScoreJob:
    """A job as it is now: its record, ``job.json``."""

    id: str
    source: str  # the name of its file
    created: float  # seconds since 1970
    state: State = State.OPENED
    encoding: str | None = None  # of the file, if the user chose one
    sheet: str | None = None  # of a workbook, likewise
    model: str = ""
    pooling: str | None = None
    cross_encoder: str | None = None
    reason: str = ""  # why it failed, in one sentence
    details: Sequence[str] = ()  # of the reason, of a model that was not found
    folder: Annotated[Path, Field(exclude=True)] = Path()  # of its file and its results

    @property
    def path(self) -> Path:
        return self.folder / "input" / self.source


class ScoreJobs:
    """All jobs of a home folder, each a task and its record. Thread-safe.

    Args:
        models: the models that score.
        temp_folder: where the jobs' folders are.
        check_room: called with a number of bytes; raises InputError if there is no room for them.
    """

    def __init__(
        self, models: ModelCache, temp_folder: Path, check_room: Callable[[int], None] = lambda size: None
    ) -> None:
        self._models, self._check_room = models, check_room
        self._records = DocumentStore(temp_folder / "scored", ScoreJob, "/job.json", "scored file")
        self._tasks = TaskRunner()
        self._places = threading.Semaphore(AT_ONCE)
        self._of_visitors = Quota(MOST_OF_ONE)
        self._starting = threading.Lock()
        self._is_closing = False

    def close(self) -> None:
        """Stop all jobs as the process ends, and wait for them: "interrupted", with nothing half-written."""
        self._is_closing = True
        self._tasks.close()

    def files(self) -> Iterator[Path]:
        return (path for path in self._records.folder.rglob("*") if path.is_file())

    def open(self, path: Path, encoding: str | None = None, sheet: str | None = None) -> ScoreJob:
        """A job with a copy of this file, not yet scored. Raises InputError if it cannot be kept."""
        folder = self._records.folder / token_hex(8)
        job = ScoreJob(folder.name, path.name, time.time(), encoding=encoding, sheet=sheet, folder=folder)
        try:
            keep_copy(path, job.path)
            self._records.put(job.id, job)
        except InputError:
            shutil.rmtree(job.folder, ignore_errors=True)
            raise
        return job

    def adopt(self, made: Path, source: Path) -> ScoreJob:
        """A job that is scored already: a copy of the folder ``made`` of one that ships, with its file.

        InputError if it cannot be kept.
        """
        job_id = token_hex(8)
        folder = self._records.folder / job_id
        try:
            shutil.copytree(made, folder)
            job = replace(read_document(folder / "job.json", ScoreJob), id=job_id, created=time.time(), folder=folder)
            job.path.parent.mkdir()
            shutil.copyfile(source, job.path)
            self._records.put(job_id, job)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise InputError(f"{source.name} cannot be kept: {error.strerror or error}") from error
        return job

    def start(self, job_id: str, request: ScoreRequest, visitor: str = "") -> ScoreJob:
        """Score the file of a job in the background; one that was scored before gives a new job with the same file.

        ``visitor``: who starts it, such as an address; "" has no limit of its own.

        InputError if there is no such job, too many wait, of this visitor or of all, or there is no room.
        """
        job = self.get(job_id)
        with self._starting:
            if len(self._tasks.at_work()) >= MOST_WAITING:
                raise InputError(f"{MOST_WAITING} files are being scored or wait for it; try again in a few minutes")
            if visitor and self._of_visitors.seconds_to_wait(visitor):
                raise InputError(f"{MOST_OF_ONE} files from your address are being scored or wait for it; wait for one")
            self._check_copies(job)
            if job.state != State.OPENED:
                job = self.open(job.path, job.encoding, job.sheet)
            queued = replace(
                job,
                state=State.QUEUED,
                model=request.model,
                pooling=request.pooling,
                cross_encoder=request.cross_encoder,
            )
            self._records.put(job.id, queued)
            self._of_visitors.add(visitor)
            self._tasks.start(job.id, "Waiting", lambda watch: self._work(queued, request, visitor, watch))
        return queued

    def run(self, request: ScoreRequest, visitor: str = "", encoding: str = "") -> tuple[ScoreJob, ScoreSummary]:
        """Score a file and wait for it. Raises InputError if the file, the columns or a model cannot be used."""
        job = self.open(request.path, encoding or None)
        try:  # with its own copy: Gradio replaces an upload when the same file is uploaded again
            job = self.start(job.id, replace(request, source=open_table(job.path, job.encoding)), visitor)
        except InputError:
            self.delete(job.id)
            raise
        *_, last = self.follow(job.id)
        if not isinstance(last, ScoreSummary):
            raise TypeError("a job ended without a summary")
        return job, last

    def get(self, job_id: str) -> ScoreJob:
        """The job as it is now. Raises InputError if there is none."""
        job = self._record(job_id)
        if job.state in AT_WORK and job_id not in self._tasks.at_work():
            with self._starting:  # it may have begun or ended meanwhile
                job = self._record(job_id)
                if job.state in AT_WORK and job_id not in self._tasks.at_work():
                    return replace(job, state=State.INTERRUPTED, reason="the app ended while it was being scored")
        return job

    def summary(self, job_id: str) -> ScoreSummary | None:
        """What scoring found; None as long as it has not ended well."""
        try:
            file = self._records.path(job_id).with_name("summary.json")
            summary = read_document(file, _Saved).summary
            return replace(summary, outputs=[str(file.with_name(Path(each).name)) for each in summary.outputs])
        except (FileNotFoundError, InputError):
            return None

    def follow(self, job_id: str) -> Iterator[TaskProgress | ScoreSummary]:
        """Progress a few times a second as long as the job is at work, then the summary. Leaving it stops nothing.

        InputError if there is no such job, or it failed. Stopped if it was stopped before the first row.
        """
        if (task := self._tasks.at_work().get(job_id)) is not None:
            yield from task.follow()
        job, summary = self.get(job_id), self.summary(job_id)
        if job.state in (State.FAILED, State.INTERRUPTED) and job.details:
            raise NotFoundError(f"{job.reason} ({'; '.join(job.details)})", job.reason, tuple(job.details))
        if job.state in (State.FAILED, State.INTERRUPTED):
            raise InputError(job.reason)
        if summary is not None:
            yield summary
        elif job.state == State.STOPPED:
            raise Stopped

    def stop(self, job_id: str) -> None:
        self._tasks.stop(job_id)

    def apply_threshold(self, job_id: str, threshold: float, watch: Watch = UNWATCHED) -> MatchSummary:
        """Which rows of a scored file match: written as CSV and Parquet, with groups and without duplicates as CSV.

        InputError if there is no such job, it is not scored, or there is no room.
        """
        job, summary = self.get(job_id), self.summary(job_id)
        scored = next((Path(path) for path in (summary.outputs if summary else ()) if path.endswith(".parquet")), None)
        if summary is None or scored is None:
            raise InputError("Score the file first.")
        self._check_copies(job)
        names = ("matches.csv", "matches.parquet", "groups.csv", "deduplicated.csv")
        csv, parquet, groups, deduplicated = (job.folder / f"{Path(job.source).stem}-{name}" for name in names)
        outputs = MatchOutputs([csv, parquet], groups, deduplicated)
        return apply_threshold(scored, summary.columns, summary.added["cosine"], threshold, outputs, watch)

    def delete(self, job_id: str) -> None:
        self.stop(job_id)
        with suppress(InputError):  # there is none
            self._records.delete(job_id)

    def _record(self, job_id: str) -> ScoreJob:
        """What is on disk. InputError if nothing is kept under this id, or the record is damaged."""
        file = self._records.folder / (job_id if _ID.fullmatch(job_id) else "none") / "job.json"
        try:
            return replace(read_document(file, ScoreJob), folder=file.parent)
        except FileNotFoundError:
            raise InputError("this file is no longer kept: jobs are removed after a day. Upload it again.") from None

    def _check_copies(self, job: ScoreJob) -> None:
        """InputError if there is no room for what is made of a job's file, or the file is gone."""
        try:
            self._check_room(COPIES * job.path.stat().st_size)
        except OSError as error:
            raise InputError(f"{job.source} is no longer kept; upload it again") from error

    def _work(self, job: ScoreJob, request: ScoreRequest, visitor: str, watch: Watch) -> None:
        """Wait for a place, load the models, score; the outcome is in the folder before the task ends."""
        try:
            summary = self._score(job, request, watch)
            if self._is_closing and summary.stopped_at is not None:
                return  # as the record says "running", it counts as interrupted
            write_document(job.folder / "summary.json", _Saved(summary=summary))
            self._save(replace(job, state=State.FINISHED if summary.stopped_at is None else State.STOPPED))
        except Stopped:
            self._fail(job, State.STOPPED)
        except UserFacingError as error:
            details = error.details if isinstance(error, NotFoundError) else ()
            self._fail(job, State.FAILED, summary_of(error), details)
        except Exception:
            if job.folder.exists():  # else it was deleted meanwhile
                log.exception("%s could not be scored", job.source)
            self._fail(job, State.FAILED, FAULT)
        finally:
            self._of_visitors.give_back(visitor, 1)

    def _score(self, job: ScoreJob, request: ScoreRequest, watch: Watch) -> ScoreSummary:
        def load(loading: Watch) -> None:
            self._models.get(request.model, VectorModel, request.pooling)
            if request.cross_encoder:
                loading.report(0, f"Loading {request.cross_encoder} …")
                self._models.cross_encoder_or_none(request.cross_encoder)

        with watch.holding(self._places):
            self._check_copies(job)  # those that were computed meanwhile have taken some room
            self._save(replace(job, state=State.RUNNING))
            run_apart(watch, f"Loading {request.model} …", load)
            watch.check()
            return score_file(
                request.source,
                [job.folder / f"{request.path.stem}-scored{suffix}" for suffix in request.formats],
                self._models.get(request.model, VectorModel, request.pooling),
                self._models.cross_encoder_or_none(request.cross_encoder),
                request.columns,
                watch.stage("Scoring"),
                criteria=request.criteria,
            )

    def _fail(self, job: ScoreJob, state: State, reason: str = "", details: Sequence[str] = ()) -> None:
        if not self._is_closing:
            with suppress(InputError):  # the disk is full
                self._save(replace(job, state=state, reason=reason, details=details))

    def _save(self, job: ScoreJob) -> None:
        if job.folder.is_dir():  # else it was deleted meanwhile
            self._records.put(job.id, job)
