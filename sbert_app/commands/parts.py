"""Options of score and encode for many files, which become a folder of parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sbert_app.commands.options import Computing, ModelOptions, check_engine
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.data.tables.table import SUFFIXES
from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from sbert_app.services.files.shards import Engine

FILE_SUFFIXES = (*SUFFIXES, ".npy")


@dataclass(frozen=True)
class PartsOptions:
    """`score` and `encode` of many files into a folder of parts."""

    engine: Annotated[
        str | None, typer.Option("--engine", metavar="local|ray", help="What computes a folder of parts. [local]")
    ] = None
    address: Annotated[
        str | None, typer.Option("--address", metavar="ADDRESS", help="Ray: auto, ray://host:10001 or local. [local]")
    ] = None
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, metavar="N", help="Ray: workers. [as many as fit]")
    ] = None
    gpus_per_worker: Annotated[
        float, typer.Option("--gpus-per-worker", min=0, metavar="N", help="Ray: GPUs of a worker.")
    ] = 0
    cpus_per_worker: Annotated[
        float, typer.Option("--cpus-per-worker", min=0, metavar="N", help="Ray: CPUs of a worker.")
    ] = 1
    block_rows: Annotated[int, typer.Option("--block-rows", min=1, metavar="N", help="Rows of a part.")] = 65_536

    def are_meant(self, source: str, output: str) -> bool:
        """Whether the output is a folder of parts.

        It is one if an engine is named, if OUT is a folder or ends with a slash, or if IN is several files and OUT has
        no ending.
        """
        if self.engine is not None or output.endswith("/"):
            return True
        if Path(output).is_dir():
            return not output.lower().endswith(FILE_SUFFIXES)
        return _is_several(source) and not Path(output).suffix

    def run(self, kind: str, source: str, output: str, model: ModelOptions, computing: Computing, **job: Any) -> None:
        """Run a `ShardJob`, which has the fields ``job`` besides these, with a bar, and print what it did."""
        from sbert_app.services.background.watch import Watch
        from sbert_app.services.files.blocks import ShardJob
        from sbert_app.services.files.shards import compute_here, run_job

        if output.lower().endswith(FILE_SUFFIXES):
            raise InputError(f"{output} is the name of a file; an engine writes a folder of parts: name a folder")
        engine: Engine = compute_here
        check_engine(self.engine)
        if self.engine == "ray":
            from sbert_app.services.files.shards import RayEngine

            engine = RayEngine(self.address or "local", self.concurrency, self.gpus_per_worker, self.cpus_per_worker)
        elif self.address or self.concurrency:
            raise InputError("--address and --concurrency are options of --engine ray")
        computed = {"dtype": computing.dtype, "device": computing.device, "offline": computing.offline}
        home = str(computing.prepare())
        job |= {"pooling": model.pooling, "home": home, "block_rows": self.block_rows, **computed}
        doing = "scoring" if kind == "score" else "encoding"
        with clean_stdout(), ProgressBar(doing, "rows") as bar, stop_on_signal() as should_stop:
            try:
                result = run_job(ShardJob(kind, output, model.name, **job), source, engine, Watch.of(bar, should_stop))
            except Stopped:
                raise Stopped(f"the parts that are finished stay in {output}; the same command goes on") from None
        print_result(asdict(result), computing.as_json, result.sentence)


def local_path(source: str) -> Path:
    """The path of a single file. InputError for a glob, a folder or a URL, whose output is a folder of parts."""
    if _is_several(source):
        raise InputError(f"{source} is not a file on this machine: for a folder, glob or URL name a folder as OUT")
    return Path(source)


def _is_several(source: str) -> bool:
    path = Path(source)
    return "://" in source or path.is_dir() or (any(sign in source for sign in "*?[") and not path.exists())
