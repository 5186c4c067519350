"""Files that are scored as jobs, which continue while the page is closed.

    job = jobs.open(Path("pairs.csv"))              a copy of the file
    job = jobs.start(job.id, ScoreRequest(…))       scored in the background
    for event in jobs.follow(job.id): ...           TaskProgress, at last the ScoreSummary; for any number of readers

The folder of a job holds its file, its record (``job.json``) and its results for a day. Its id
cannot be guessed, and jobs are not listed; a browser remembers its own. A job whose process has
ended is "interrupted", and its file can be scored again.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sbert_app.services.access import Quota
from sbert_app.services.background.tasks import TaskProgress, TaskRunner, run_apart
from sbert_app.services.background.watch import AT_WORK, UNWATCHED, State, Watch
from sbert_app.services.files.layout import Layout
from sbert_app.services.files.matches import MatchOutputs, MatchSummary, apply_threshold
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.files.score import score_file
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.store.documents import DocumentStore, read_document
from sbert_app.services.store.temp_folder import keep_copy
from training.data.gold import parse_reading
from training.data.tables.columns import PairColumns
from training.data.tables.rows import OpenedTable
from training.data.tables.table import open_table
from training.errors import InputError, NotFoundError, StoppedError, UserFacingError, summary_of
from training.evaluation.thresholds import CRITERIA
from training.models.model import PairModel, VectorModel
from training.names import is_id

log = logging.getLogger("sbert_lab.services")

# The most jobs that run at the same time, the most that run or wait, and the most of these of one
# visitor.
AT_ONCE = 2
MOST_WAITING = 50
MOST_OF_ONE = 20
# The results of a file may take this many times its size.
COPIES = 2
FAULT = "this failed because of a fault in the app; its log has the details"


@dataclass(frozen=True)
class ScoreRequest:
    """A file to score, and the models. By default the model pools as it was trained, and the score is its cosine."""

    source: Path | OpenedTable
    columns: PairColumns | Sequence[str] | None
    model: str
    pooling: str | None = None
    cross_encoder: str | None = None
    formats: tuple[str, ...] = (".csv", ".parquet")
    criteria: tuple[str, ...] = CRITERIA
    # The scale of the scores or the values of the labels, such as 1-7 or yes:1,no:0; "" to infer
    # them from the column.
    read_as: str = ""
    keep_unknown: bool = False

    @property
    def path(self) -> Path:
        return self.source.path if isinstance(self.source, OpenedTable) else self.source


class ScoreJob(BaseModel):
    """A job as it is now: its record, ``job.json``.

    ``source`` is the name of its file. ``reason`` says in one sentence why it failed, and
    ``details`` are the sources in which a model was looked for. ``summary`` is set when the job has
    ended.
    """

    # The correlations of the summary may be NaN, which would become null.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    id: str
    source: str
    created: float
    state: State = State.OPENED
    encoding: str | None = None
    sheet: str | None = None
    model: str = ""
    pooling: str | None = None
    cross_encoder: str | None = None
    # The field of `ScoreRequest`.
    read_as: str = ""
    reason: str = ""
    details: tuple[str, ...] = ()
    summary: ScoreSummary | None = None
    # The folder that has the record; the record does not state it.
    folder: Annotated[Path, Field(exclude=True)] = Path()

    @property
    def path(self) -> Path:
        return self.folder / "input" / self.source

    def but(self, **changes: Any) -> ScoreJob:
        """A copy of the job with some fields changed."""
        return self.model_copy(update=changes)


class ScoreJobs:
    """All jobs of a home folder, each a task and its record. Thread-safe.

    Their folders are in ``temp_folder``. ``check_room`` raises InputError if a number of bytes does
    not fit into this folder.
    """

    def __init__(
        self,
        models: ModelCache,
        temp_folder: Path,
        check_room: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._models = models
        self._check_room = check_room
        self._records = DocumentStore(temp_folder / "scored", ScoreJob, "/job.json", "scored file")
        self._tasks = TaskRunner()
        # A job holds one of these places while its file is scored.
        self._places = threading.Semaphore(AT_ONCE)
        # The number of jobs that each visitor has at work.
        self._of_visitors = Quota(MOST_OF_ONE)
        # Held while a job starts, as a job whose record is saved but whose task has not started
        # yet would count as interrupted (`get`).
        self._starting = threading.Lock()
        # Whether the process is ending. A job that stops then counts as interrupted, and not as
        # stopped by its user (`_save`).
        self._is_closing = False
        # The id of the example's job, which all visitors share (`adopt`); "" before the first visit.
        self._adopted = ""

    def close(self) -> None:
        """Interrupts all jobs before the process ends, and waits until their incomplete files are removed."""
        self._is_closing = True
        self._tasks.close()

    def open(self, path: Path, encoding: str | None = None, sheet: str | None = None) -> ScoreJob:
        """Creates a job with a copy of a file. Raises InputError if it cannot be copied."""
        folder = self._records.folder / token_hex(8)
        job = ScoreJob(
            id=folder.name,
            source=path.name,
            created=time.time(),
            encoding=encoding,
            sheet=sheet,
            folder=folder,
        )
        try:
            keep_copy(path, job.path)
            self._records.put(job.id, job)
        except InputError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return job

    def adopt(self, scored: Path, source: Path) -> ScoreJob:
        """Returns the example that ships with the app, as a job that all visitors share.

        The job is made once of the folder ``scored``, which has a record and results, and the file
        ``source``. Raises InputError if they cannot be copied.
        """
        # Two first visitors at once must not make two copies.
        with self._starting:
            # The job does not exist before the first call, and is removed after a day.
            with suppress(InputError):
                return self._record(self._adopted)
            job = self._copy(scored, source)
            self._adopted = job.id
            return job

    def _copy(self, scored: Path, source: Path) -> ScoreJob:
        """A new job with the file ``source``, and the record and results of the folder ``scored``."""
        job = self.open(source)
        try:
            # `open` has copied the file itself, which a job keeps in its folder ``input``.
            ignore = shutil.ignore_patterns("input")
            shutil.copytree(scored, job.folder, dirs_exist_ok=True, ignore=ignore)
        except OSError as error:
            self._records.delete(job.id)
            raise InputError(f"{source.name} cannot be kept: {error.strerror or error}") from error
        # The record that was copied has the id and the time of the job in ``scored``.
        self._records.put(job.id, self._record(job.id).but(id=job.id, created=job.created))
        return self._record(job.id)

    def start(self, job_id: str, request: ScoreRequest, visitor: str = "") -> ScoreJob:
        """Scores the file of a job in the background, in a new job if it was scored before.

        The visitor "" is not limited. InputError if the job does not exist, this visitor or all
        together have too many, or the results do not fit into the folder.
        """
        job = self.get(job_id)
        with self._starting:
            if len(self._tasks.at_work()) >= MOST_WAITING:
                raise InputError(
                    f"{MOST_WAITING} files are being scored or wait for it; try again in a few minutes"
                )
            if visitor and self._of_visitors.seconds_to_wait(visitor):
                raise InputError(
                    f"{MOST_OF_ONE} files from your address are being scored or wait for it; wait for one"
                )
            self._check_copies(job)
            if job.state != State.OPENED:
                job = self.open(job.path, job.encoding, job.sheet)
            queued = job.but(
                state=State.QUEUED,
                model=request.model,
                pooling=request.pooling,
                cross_encoder=request.cross_encoder,
                read_as=request.read_as,
            )
            self._records.put(job.id, queued)
            # `_work` gives this use back when the job has ended.
            self._of_visitors.add(visitor)
            self._tasks.start(job.id, "Waiting", partial(self._work, queued, request, visitor))
        return queued

    def run(
        self, request: ScoreRequest, visitor: str = "", encoding: str = ""
    ) -> tuple[ScoreJob, ScoreSummary]:
        """Scores a file and waits for it. The encoding "" is inferred.

        Raises InputError if the file, the columns or a model cannot be used.
        """
        job = self.open(request.path, encoding or None)
        try:
            # Gradio replaces an upload when the same file is uploaded again, so the job reads its
            # own copy.
            table = open_table(job.path, job.encoding)
            job = self.start(job.id, replace(request, source=table), visitor)
        except InputError:
            self.delete(job.id)
            raise
        *_, last = self.follow(job.id)
        if not isinstance(last, ScoreSummary):
            raise TypeError("a job ended without a summary")
        return job, last

    def get(self, job_id: str) -> ScoreJob:
        """The job as it is now. InputError if there is none."""
        job = self._record(job_id)
        if job.state in AT_WORK and job_id not in self._tasks.at_work():
            # The job may have started or finished since its record was read.
            with self._starting:
                job = self._record(job_id)
                if job.state in AT_WORK and job_id not in self._tasks.at_work():
                    reason = "the app ended while it was being scored"
                    return job.but(state=State.INTERRUPTED, reason=reason)
        return job

    def summary(self, job_id: str) -> ScoreSummary | None:
        """The summary of a job that is finished; None for every other id."""
        with suppress(InputError):
            return self._record(job_id).summary
        return None

    def follow(self, job_id: str) -> Iterator[TaskProgress | ScoreSummary]:
        """Yields the progress while the job is at work, and then the summary.

        A job that has only been opened yields nothing. Closing this iterator does not stop the job.
        InputError if the job does not exist, has failed or was interrupted. StoppedError if it was
        stopped before the first row.
        """
        if (task := self._tasks.at_work().get(job_id)) is not None:
            yield from task.follow()
        job = self.get(job_id)
        if job.state in (State.FAILED, State.INTERRUPTED):
            # The job has details if no source has its model.
            if job.details:
                details = "; ".join(job.details)
                raise NotFoundError(f"{job.reason} ({details})", job.reason, job.details)
            raise InputError(job.reason)
        if job.summary is not None:
            yield job.summary
        elif job.state == State.STOPPED:
            raise StoppedError

    def stop(self, job_id: str) -> None:
        self._tasks.stop(job_id)

    def apply_threshold(
        self, job_id: str, threshold: float, watch: Watch = UNWATCHED
    ) -> MatchSummary:
        """Writes a scored file with a column ``match``, its groups of duplicates, and the file without duplicates.

        InputError if the job does not exist or is not scored, or the files do not fit.
        """
        job = self.get(job_id)
        summary = job.summary
        # The scored files by their endings: .parquet, and another one if it was requested.
        paths = map(Path, summary.outputs if summary else ())
        scored = {path.suffix: path for path in paths}
        if summary is None or ".parquet" not in scored:
            raise InputError("Score the file first.")
        self._check_copies(job)
        if job_id == self._adopted:
            # All visitors share the job that ships, so the outputs are written for a copy.
            job = self._copy(job.folder, job.path)
        table = open_table(job.path, job.encoding, job.sheet)
        endings = [ending for ending in scored if ending != ".parquet"]
        ending = endings[0] if endings else ".csv"
        stem = str(job.folder / Path(job.source).stem)
        outputs = MatchOutputs(
            [Path(f"{stem}-matches{ending}"), Path(f"{stem}-matches.parquet")],
            groups=Path(f"{stem}-groups{ending}"),
            deduplicated=Path(f"{stem}-deduplicated{ending}"),
            layout=Layout.of(table),
        )
        return apply_threshold(
            scored[".parquet"],
            summary.columns,
            # The name of the column of cosines.
            summary.added["cosine"],
            threshold,
            outputs,
            watch,
            summary.gold,
        )

    def delete(self, job_id: str) -> None:
        self.stop(job_id)
        # The job may not exist.
        with suppress(InputError):
            self._records.delete(job_id)

    def _record(self, job_id: str) -> ScoreJob:
        """The record on disk. InputError if there is none of this id, or it is damaged."""
        # A text that is not an id must not name a folder elsewhere. No job has the id "none".
        folder = self._records.folder / (job_id if is_id(str(job_id)) else "none")
        try:
            job = read_document(folder / "job.json", ScoreJob).but(folder=folder)
        except FileNotFoundError:
            raise InputError(
                "this file is no longer kept: jobs are removed after a day. Upload it again."
            ) from None
        if job.summary is not None:
            # The record may name the folder that the job was copied from.
            names = [Path(output).name for output in job.summary.outputs]
            job.summary.outputs = [str(folder / name) for name in names]
        return job

    def _check_copies(self, job: ScoreJob) -> None:
        """Raises InputError if the results of a job do not fit into the folder, or its file is gone."""
        try:
            self._check_room(COPIES * job.path.stat().st_size)
        except OSError as error:
            raise InputError(f"{job.source} is no longer kept; upload it again") from error

    def _work(self, job: ScoreJob, request: ScoreRequest, visitor: str, watch: Watch) -> None:
        """Scores a file when there is a place for it, and saves the outcome before the task ends."""
        try:
            summary = self._score(job, request, watch)
            state = State.FINISHED if summary.stopped_at is None else State.STOPPED
            self._save(job.but(state=state, summary=summary))
        except Exception as error:
            outcome = job.but(state=State.FAILED, reason=FAULT)
            if isinstance(error, StoppedError):
                outcome = job.but(state=State.STOPPED)
            elif isinstance(error, UserFacingError):
                outcome = outcome.but(
                    reason=summary_of(error), details=getattr(error, "details", ())
                )
            # The errors of a job that was deleted while it ran need not be logged.
            elif job.folder.is_dir():
                log.exception("%s could not be scored", job.source)
            # If the disk is full, the record stays as it is, and the job counts as interrupted.
            with suppress(InputError):
                self._save(outcome)
        finally:
            # Only this job: by default all jobs of the visitor would be given back.
            self._of_visitors.give_back(visitor, 1)

    def _score(self, job: ScoreJob, request: ScoreRequest, watch: Watch) -> ScoreSummary:
        """Waits for a place, loads the models and scores the file."""

        def load(loading: Watch) -> tuple[VectorModel, PairModel | None]:
            encoder = self._models.get(request.model, VectorModel, request.pooling)
            if request.cross_encoder:
                loading.report(0, f"Loading {request.cross_encoder}")
            return encoder, self._models.cross_encoder_or_none(request.cross_encoder)

        outputs = [job.folder / f"{request.path.stem}-scored{suffix}" for suffix in request.formats]
        with watch.holding(self._places):
            # Jobs that finished in the meantime have taken some room.
            self._check_copies(job)
            self._save(job.but(state=State.RUNNING))
            # A model cannot be stopped while it loads, but the job can.
            encoder, cross_encoder = run_apart(watch, f"Loading {request.model}", load)
            watch.check()
            scoring = watch.stage("Scoring")
            scale, labels = parse_reading(request.read_as)
            return score_file(
                request.source,
                outputs,
                encoder,
                cross_encoder,
                request.columns,
                scoring,
                request.criteria,
                scale=scale,
                labels=labels,
                keep_unknown=request.keep_unknown,
            )

    def _save(self, job: ScoreJob) -> None:
        """Saves a record, unless the job has been deleted.

        A job that stops or fails because the process ends is not saved either: its record still says
        that it is at work, so that a later process finds it interrupted (`get`).
        """
        is_interrupted = self._is_closing and job.state not in (State.RUNNING, State.FINISHED)
        if job.folder.is_dir() and not is_interrupted:
            self._records.put(job.id, job)
