"""Many files into a folder of Parquet parts, on this machine or on a Ray cluster.

    job = ShardJob("score", output="scored/", model="all-MiniLM-L6-v2")
    run_job(job, "pairs/*.parquet")
    run_job(job, "s3://bucket/pairs/*.parquet", RayEngine("auto", concurrency=8, gpus_per_worker=1))

A part is finished when its file exists, so a job that was killed computes only the missing parts
when it is started again. Ray Data reads the files in tasks and passes their blocks to actors; if an
actor or a node dies, another one gets its block. An actor writes its part itself, as the Parquet
writer of Ray Data neither has predictable names nor writes files atomically.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sbert_app.formats import format_count, format_duration
from sbert_app.process import configure_process
from sbert_app.services.background.ray_cluster import RayCluster, disconnect
from sbert_app.services.background.tasks import Task
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.blocks import (
    Block,
    ShardJob,
    filesystem,
    find_files,
    parts_of,
    read_blocks,
)
from sbert_app.services.files.encode import EncodeSummary, encode_file
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.files.score import score_file
from training.atomic import LEFTOVER_SECONDS, sweep, write_text
from training.data.tables.rows import changed_while_read
from training.errors import InputError, first_line, unwritable
from training.models.model import PairModel, VectorModel, open_model, required
from training.sources.home import set_offline

DESCRIPTION = "_job.json"


class OutputFolder:
    """A folder for parts, local or remote, with the job that they belong to in `DESCRIPTION`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") or "/"
        self._files, self._path, self._is_local = filesystem(self.url)

    def start(self, description: dict[str, Any]) -> set[str]:
        """Creates the folder, or checks that it belongs to this job. Returns the names of the finished parts.

        InputError if it cannot be created, or holds other files or the parts of a job with other
        settings.
        """
        if self._is_local and Path(self._path).is_file():
            raise InputError(f"{self.url} is a file; name a folder for the parts")
        text = json.dumps(description, indent=1)
        # As it will be read from the file: tuples are lists in JSON.
        description = json.loads(text)
        try:
            self._files.makedirs(self._path, exist_ok=True)
            names = self._names()
            if names and DESCRIPTION not in names:
                raise InputError(f"{self.url} holds other files; name a new folder for the parts")
            if not names:
                with self.part(DESCRIPTION) as path:
                    write_text(path, text)
            before = json.loads(self._files.cat_file(f"{self._path}/{DESCRIPTION}"))
            # Removes the unfinished parts of processes that have ended.
            self.sweep()
        except json.JSONDecodeError as error:
            raise InputError(
                f"{self.url}/{DESCRIPTION} is damaged; name a new folder for the parts"
            ) from error
        except OSError as error:
            raise unwritable(self.url, error) from error
        for key, value in description.items():
            if before.get(key) != value:
                other = f"{key} {json.dumps(before.get(key))[:80]}"
                if key == "files":
                    other = "other files"
                raise InputError(
                    f"{self.url} holds the parts of another job, with {other}; name a new folder"
                )
        return {name for name in names if name.startswith("part-")}

    @contextmanager
    def part(self, name: str) -> Iterator[Path]:
        """Yields the path to write a part to. A part for a remote folder is uploaded afterwards."""
        if self._is_local:
            yield Path(self._path) / name
            return
        with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
            path = Path(folder) / name
            yield path
            try:
                self._files.put_file(str(path), f"{self._path}/{name}")
            except OSError as error:
                raise unwritable(f"{self.url}/{name}", error) from error

    def remove(self, file_number: int) -> None:
        """Removes the parts of an input file."""
        for name in parts_of(file_number, self._names()):
            self._files.rm_file(f"{self._path}/{name}")

    def count(self) -> tuple[int, int]:
        """The number of finished parts, and the number of their rows."""
        names = [name for name in self._names() if name.startswith("part-")]
        rows = 0
        for name in names:
            rows += pq.read_metadata(f"{self._path}/{name}", filesystem=self._files).num_rows
        return len(names), rows

    def sweep(self, seconds: float = LEFTOVER_SECONDS) -> bool:
        """Removes unfinished parts of dead processes, not written for ``seconds``. Returns whether others remain."""
        return self._is_local and sweep(Path(self._path), seconds)

    def _names(self) -> list[str]:
        """The names of the files, without unfinished ones, which begin with a dot."""
        # A remote file system may repeat its last listing, which lacks the newest parts.
        paths = self._files.ls(self._path, detail=False, refresh=True)
        names = [path.rstrip("/").rpartition("/")[2] for path in paths]
        return [name for name in names if not name.startswith(".")]


class Worker:
    """Computes blocks of one job, and loads its models with the first block."""

    _models: tuple[VectorModel, PairModel | None] | None = None

    def compute(self, block: Block, watch: Watch = UNWATCHED) -> Block:
        """Writes the part of a block. Raises StoppedError after a stop."""
        job = block.job
        table = block.table
        # The rows need not be sent back.
        outcome = replace(block, table=None)
        if table is None:
            # The file could not be read.
            return outcome
        try:
            self._models = self._models or self.load(job)
            encoder, cross_encoder = self._models
            columns = block.columns
            summary: EncodeSummary | ScoreSummary
            with OutputFolder(job.output).part(block.part) as path:
                # Sentences are in one column, pairs in several.
                if isinstance(columns, str):
                    summary = encode_file(
                        table, columns, path, encoder, job.normalize, watch, all_columns=True
                    )
                else:
                    summary = score_file(
                        table,
                        [path],
                        encoder,
                        cross_encoder,
                        columns,
                        watch,
                        is_block=True,
                        keep_unknown=job.keep_unknown,
                    )
        except InputError as error:
            return replace(outcome, error=str(error))
        return replace(outcome, done=summary.rows)

    def load(self, job: ShardJob) -> tuple[VectorModel, PairModel | None]:
        """The encoder and the cross-encoder of a job, None if it has no cross-encoder."""
        if job.offline:
            set_offline(True)
        cross_encoder = None
        if job.cross_encoder:
            model = open_model(job.cross_encoder, dtype=job.dtype, device=job.device, home=job.home)
            cross_encoder = required(model, PairModel)
        model = open_model(job.model, job.pooling, job.dtype, job.device, job.home)
        return required(model, VectorModel), cross_encoder


# Computes the missing parts of a job. The arguments are the job, its files, the names of the
# finished parts, and a watch for the rows of the current block. Yields the computed blocks in any
# order.
Engine = Callable[[ShardJob, list[str], Collection[str], Watch], Iterable[Block]]


def compute_here(
    job: ShardJob, files: list[str], finished: Collection[str], watch: Watch
) -> Iterator[Block]:
    """The engine of one machine, which leaves out the remaining blocks of a file after an error.

    It also yields each block before it is computed, so that the number of rows of the file is known
    early.
    """
    worker = Worker()
    for number, file in enumerate(files):
        for block in read_blocks(job, number, file, finished):
            yield block
            outcome = worker.compute(block, watch)
            yield outcome
            if outcome.error:
                break


@dataclass
class JobResult:
    """A job that has ended.

    Attributes:
        blocks: the number of parts.
        resumed: the number of parts that an earlier start had finished.
        rows: the number of rows of all parts.
        computed: the number of rows that this start computed, in ``seconds``.
    """

    output: str
    kind: str
    files: int
    blocks: int
    resumed: int
    rows: int
    computed: int
    seconds: float
    rows_per_second: float

    @property
    def sentence(self) -> str:
        done = "scored" if self.kind == "score" else "encoded"
        files = format_count(self.files, "file")
        sentence = f"{format_count(self.rows, 'row')} of {files} {done} in {self.output}"
        if self.computed:
            seconds = format_duration(self.seconds)
            sentence += f" in {seconds} ({self.rows_per_second:,.0f} rows/s)"
        if self.resumed:
            parts = format_count(self.blocks, "part")
            sentence += f"; {self.resumed:,} of {parts} had been finished before"
        return f"{sentence}."


def run_job(
    job: ShardJob, source: str, engine: Engine = compute_here, watch: Watch = UNWATCHED
) -> JobResult:
    """Computes the missing parts of a file, a folder, a glob or a URL of these.

    A stop loses only the current block. InputError if no file is found, the output belongs to
    another job, or a model cannot be loaded; also, after all other files are finished, if some
    files could not be read, or changed while they were read.
    """
    started = time.perf_counter()
    files = find_files(source)
    if "://" not in source and Path(job.output).resolve().is_relative_to(Path(source).resolve()):
        raise InputError(
            f"{job.output} lies inside {source}, and would be read as input: name another folder"
        )
    output = OutputFolder(job.output)
    finished = output.start(job.description(files))
    errors = dict[str, str]()
    # The number of rows of each file that has been opened.
    file_rows = dict[str, int]()
    computed = 0

    def report(rows: float, _: float = 0) -> None:
        """Reports the rows of the current block. Files that are not open yet are estimated to be of average size."""
        rows_of_file = sum(file_rows.values()) / max(len(file_rows), 1)
        # The parts of an earlier start are not computed again.
        total = rows_of_file * len(files) - len(finished) * job.block_rows
        # The estimate may be too low. None leaves the description as it is.
        watch.report(computed + rows, None, max(computed + rows, total))

    for block in engine(job, files, finished, Watch.of(report, watch.should_stop)):
        if block.error:
            errors[block.file] = block.error
            # If this is the message on a file that has changed, its parts may come from different
            # versions of it.
            if block.error == changed_while_read(Path(block.file).name):
                output.remove(files.index(block.file))
            continue
        file_rows[block.file] = block.row_estimate
        # An engine may also yield a block before it is computed, with 0 rows done.
        computed += block.done
        # ``computed`` includes the block now.
        report(0)
    if errors:
        problem = next(iter(errors.values()))
        if len(errors) > 1:
            problem += (
                f" ({len(errors):,} of {len(files):,} files could not be read; this is the first)"
            )
        if len(errors) < len(files):
            problem += (
                f" The others are finished in {job.output}: repair or remove it and start again."
            )
        raise InputError(problem)
    seconds = time.perf_counter() - started
    parts, rows = output.count()
    return JobResult(
        job.output,
        job.kind,
        files=len(files),
        blocks=parts,
        resumed=len(finished),
        rows=rows,
        computed=computed,
        seconds=round(seconds, 3),
        rows_per_second=round(computed / max(seconds, 1e-9), 1),
    )


# The most workers in a row that may die while they start, for instance with their node.
INIT_DEATHS = 3
# The longest time, in seconds, that workers need to end after they have lost their node.
END_SECONDS = 10.0


def read(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A task of Ray that yields the blocks of one file."""
    for block in read_blocks(**row, collect=list):
        yield {"block": block}


class Compute:
    """An actor of Ray that computes one block after the other."""

    def __init__(self) -> None:
        configure_process()
        self.worker = Worker()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"block": self.worker.compute(row["block"])}


@dataclass(frozen=True)
class RayEngine:
    """An engine that computes the blocks in actors of Ray.

    ``address`` is the address of the cluster. ``concurrency`` is the number of actors; None for as
    many as fit.
    """

    address: str = "local"
    concurrency: int | None = None
    gpus_per_worker: float = 0
    cpus_per_worker: float = 1

    def __call__(
        self, job: ShardJob, files: list[str], finished: Collection[str], watch: Watch
    ) -> Iterator[Block]:
        """Computes the blocks. InputError if Ray is not installed, or the cluster at the address is missing or ends."""
        cluster = RayCluster(self.address)
        cluster.connect()
        # Ray Data takes seconds to import, and may not be installed.
        import ray.data

        # Errors are also raised, so the log need not have them.
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_consecutive_actor_init_deaths = INIT_DEATHS
        # In bytes. Every block of ours is larger, so that it becomes a block of Ray Data, which is
        # scheduled by itself.
        context.target_max_block_size = 1
        # The rows contain the job, as the arguments of an actor's constructor are lost with the
        # node that holds them. An actor may run in another folder than this process, so that paths
        # become absolute; names of models stay as they are.
        job = replace(
            job,
            output=_absolute(job.output),
            model=_absolute(job.model),
            cross_encoder=job.cross_encoder and _absolute(job.cross_encoder),
            home=job.home and _absolute(job.home),
        )
        rows = []
        for number, file in enumerate(files):
            parts = parts_of(number, finished)
            rows.append({"job": job, "number": number, "file": file, "finished": parts})
        # One reader per node keeps its actors busy. It reserves no CPU, as the actors may have
        # reserved them all.
        readers = ray.data.TaskPoolStrategy(min(len(cluster.nodes()), len(rows)))
        if self.concurrency:
            actors = ray.data.ActorPoolStrategy(size=self.concurrency)
        else:
            actors = ray.data.ActorPoolStrategy(min_size=1, max_size=None)
        # One block for each file, so that each file has a task of its own.
        items = ray.data.from_items(rows, override_num_blocks=len(rows))
        blocks = items.flat_map(read, num_cpus=0, compute=readers)
        outcomes = blocks.map(
            Compute,
            compute=actors,
            num_cpus=self.cpus_per_worker,
            num_gpus=self.gpus_per_worker or None,
        )
        computed = iter(outcomes.iter_rows())
        try:
            while row := _next(computed, cluster, watch):
                yield row["block"]
        except (ray.exceptions.RayError, ConnectionError) as error:
            # Our code raised an error in a worker, so the cluster is not at fault.
            if isinstance(error, ray.exceptions.RayTaskError):
                raise
            disconnect()
            ended_by = time.monotonic() + END_SECONDS
            # Waits until no unfinished part is left. Workers remove their parts when they notice that
            # Ray is gone, and `sweep` removes the parts of dead workers.
            while OutputFolder(job.output).sweep(seconds=0) and time.monotonic() < ended_by:
                time.sleep(0.2)
            raise InputError(
                f"Ray at {self.address} cannot go on: {first_line(error).rstrip('.')}. The parts that are finished "
                f"stay in {job.output}; the same command goes on."
            ) from error


def _next(rows: Iterator[Any], cluster: RayCluster, watch: Watch) -> Any:
    """The next row; None after the last. StoppedError after a stop; ConnectionError if Ray is gone."""
    # In a thread of its own, as ``next`` cannot be stopped while it waits for a block.
    waiting = Task("Waiting for Ray", lambda _: next(rows, None))
    waiting.start()
    # `follow` yields a few times a second, also while no block comes.
    for _ in waiting.follow():
        watch.check()
        cluster.check()
    return waiting.result().value


def _absolute(name: str) -> str:
    """The absolute path of a file or folder, perhaps with settings of a model; URLs and other names are unchanged."""
    is_local = "://" not in name and Path(name.partition("?")[0]).exists()
    return str(Path(name).absolute()) if is_local else name
