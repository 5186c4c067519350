"""ShardJob: what is to be done with each block, and the one who does it, `BlockWorker`.

A job is plain data: it can be sent to another process or machine. Both engines, `run.compute_here` and
`on_ray.RayEngine`, give blocks to workers; a worker loads the models once and writes each block to a Parquet file of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_app.services.files.encode import encode_columns
from sbert_app.services.files.score import score_file
from sbert_app.services.shards.blocks import Block, BlockReader
from sbert_app.services.shards.output import OutputFolder
from training.data.tables.columns import pick_columns, pick_sentence
from training.data.tables.table import Table

if TYPE_CHECKING:
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

OnRows = Callable[[int], object]  # rows done of the block
ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class ShardJob:
    """Scoring of pairs or encoding of sentences.

    ``columns`` are the two (or three) of pairs, or the one of sentences; empty = found by their names, in each file.
    """

    kind: str  # score, encode
    output: str
    model: str
    pooling: str | None = None
    cross_encoder: str | None = None
    columns: tuple[str, ...] = ()
    normalize: bool = True
    dtype: str = "auto"
    device: str = "auto"
    home: str | None = None
    offline: bool = False
    block_rows: int = 65_536
    encoding: str | None = None  # of text files; None to find out

    def description(self, files: list[str]) -> dict[str, Any]:
        """What has to be the same for a job to be resumed: all that its results depend on."""
        where = ("output", "home", "offline", "device")
        settings = {key: value for key, value in asdict(self).items() if key not in where}
        return {**settings, "files": files}


class BlockWorker:
    """Computes blocks. Loads the models when the first block is computed."""

    def __init__(self, job: ShardJob) -> None:
        self.job = job
        self.output = OutputFolder(job.output)
        self._reader = BlockReader(job.encoding)
        self._encoder: Encoder | None = None
        self._cross_encoder: CrossEncoder | None = None

    def compute(self, block: Block, on_rows: OnRows | None = None, should_stop: ShouldStop | None = None) -> int:
        """Write the part of a block -> its rows. A part that is not complete never appears.

        Raises:
            InputError: the file cannot be read, has other columns, or the part cannot be written.
            Stopped: ``should_stop`` became true.
        """
        table = self._reader.open(block)
        encoder = self._models()
        with self.output.part(block.part) as path:
            return _COMPUTE[self.job.kind](self, table, path, encoder, on_rows or (lambda rows: None), should_stop)

    def close(self) -> None:
        """Delete copies of remote files."""
        self._reader.close()

    def _models(self) -> Encoder:
        if self._encoder is None:
            from training.models.encoder import Encoder
            from training.sources.home import set_offline

            job = self.job
            if job.offline:
                set_offline(True)
            if job.cross_encoder:
                from training.models.cross_encoder import CrossEncoder

                self._cross_encoder = CrossEncoder.load(job.cross_encoder, job.dtype, job.device, job.home)
            self._encoder = Encoder.load(job.model, job.pooling, job.dtype, job.device, job.home)
        return self._encoder

    def score(self, table: Table, path: Path, encoder: Encoder, on_rows: OnRows, should_stop: ShouldStop | None) -> int:
        """The pairs of a block -> its part."""
        columns = pick_columns(self._reader.table, self.job.columns or None)
        summary = score_file(
            table,
            [path],
            encoder,
            self._cross_encoder,
            columns,
            on_progress=lambda done, total: on_rows(int(done)),
            should_stop=should_stop,
            keep_partial=False,
            with_report=False,
        )
        return summary.rows

    def encode(
        self, table: Table, path: Path, encoder: Encoder, on_rows: OnRows, should_stop: ShouldStop | None
    ) -> int:
        """The sentences of a block -> its part."""
        column = pick_sentence(self._reader.table, next(iter(self.job.columns), None))
        return encode_columns(table, column, path, encoder, self.job.normalize, on_rows, should_stop)


_COMPUTE: dict[str, Callable[..., int]] = {"score": BlockWorker.score, "encode": BlockWorker.encode}
