"""`score` and `encode` of many files into a folder of parts: what both commands do then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from sbert_app.services.files.report import Report
    from sbert_app.services.shards.job import ShardJob
    from sbert_app.services.shards.run import Engine

FILE_SUFFIXES = (".csv", ".tsv", ".parquet", ".npy")
ENGINES = ("local", "ray")

EngineName = Annotated[
    str | None,
    typer.Option("--engine", metavar="local|ray", help="What computes a folder of parts. [local]"),
]
Address = Annotated[
    str | None, typer.Option("--address", metavar="ADDRESS", help="Ray: auto, ray://host:10001 or local. [local]")
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", min=1, help="Ray: workers. [as many as fit]")]
GpusPerWorker = Annotated[float, typer.Option("--gpus-per-worker", min=0, help="Ray: GPUs of a worker.")]
CpusPerWorker = Annotated[float, typer.Option("--cpus-per-worker", min=0, help="Ray: CPUs of a worker.")]
BlockRows = Annotated[int, typer.Option("--block-rows", min=1, help="Rows of a part.")]


def is_sharded(source: str, output: str, engine: str | None) -> bool:
    """Whether the output is a folder of parts.

    It is if an engine is named, if OUT is a folder or ends with a slash, and if IN is several files and OUT has no
    ending.
    """
    if engine is not None or output.endswith("/"):
        return True
    if Path(output).is_dir():
        return not output.lower().endswith(FILE_SUFFIXES)
    return _is_several(source) and not Path(output).suffix


def _is_several(source: str) -> bool:
    path = Path(source)
    return "://" in source or path.is_dir() or (any(sign in source for sign in "*?[") and not path.exists())


def run(
    job: ShardJob,
    source: str,
    engine: str | None,
    address: str | None,
    concurrency: int | None,
    gpus_per_worker: float,
    cpus_per_worker: float,
    as_json: bool,
) -> None:
    """Run a job with a bar, and print what it did."""
    from sbert_app.services.shards.run import compute_here, run_job, to_json

    if job.output.lower().endswith(FILE_SUFFIXES):
        raise InputError(f"{job.output} is the name of a file; an engine writes a folder of parts: name a folder")
    chosen: Engine = compute_here
    if (engine or "local") not in ENGINES:
        raise InputError(f"there is no engine {engine!r}; choose {' or '.join(ENGINES)}")
    if engine == "ray":
        from sbert_app.services.shards.on_ray import RayEngine

        chosen = RayEngine(address or "local", concurrency, gpus_per_worker, cpus_per_worker)
    elif address or concurrency:
        raise InputError("--address and --concurrency are options of --engine ray")
    doing = "scoring" if job.kind == "score" else "encoding"
    with clean_stdout(), ProgressBar(doing, "rows") as bar, stop_on_signal() as should_stop:
        try:
            result = run_job(job, source, chosen, bar, should_stop)
        except Stopped:
            raise Stopped(f"the parts that are finished stay in {job.output}; the same command goes on") from None
    print_result(to_json(result), as_json, "\n".join([result.sentence, *agreements(result.report)]))


def agreements(report: Report | None) -> list[str]:
    """A line for each pair of scores that a report compares."""
    pairs = ("cosine_gold", "cosine and gold"), ("cross_gold", "cross-encoder and gold"), ("cosine_cross", "both")
    lines = []
    for field, what in pairs:
        if (agreement := getattr(report, field, None)) is not None:
            low, high = agreement.spearman_interval
            lines.append(
                f"{what}: Spearman ρ ×100 {100 * agreement.spearman:.2f} (95% {100 * low:.2f} to {100 * high:.2f}), "
                f"Pearson ×100 {100 * agreement.pearson:.2f}, {agreement.n:,} rows"
            )
    return lines


def local_path(source: str) -> Path:
    """The path of a single file. InputError for a glob, a folder or a URL, whose output is a folder of parts."""
    if _is_several(source):
        raise InputError(f"{source} is not a file on this machine: for a folder, glob or URL name a folder as OUT")
    return Path(source)


def names_of(columns: str | None) -> tuple[str, ...]:
    """ "a,b" -> ("a", "b"); the name of a column may itself hold a comma, written \\, in the option."""
    if columns is None:
        return ()
    return tuple(name.strip().replace("\0", ",") for name in columns.replace("\\,", "\0").split(","))
