"""ShardJob: what is to be done with each block, and the one who does it, `BlockWorker`.

A job is plain data: it can be sent to another process or machine. Both engines, `run.compute_here` and
`on_ray.RayEngine`, give blocks to workers; a worker loads the models once and writes each block to a Parquet file of
its own.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.encode import encode_file
from sbert_app.services.files.score import score_file
from sbert_app.services.shards.blocks import BLOCK_ROWS, Block, BlockReader, filesystem, is_remote
from training.atomic import sweep, write_text
from training.data.tables.columns import pick_columns, pick_sentence
from training.errors import InputError, unwritable

if TYPE_CHECKING:
    from training.models.cross_encoder import CrossEncoder
    from training.models.model import VectorModel


DESCRIPTION = "_job.json"


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
    block_rows: int = BLOCK_ROWS
    encoding: str | None = None  # of text files; None to find out

    def description(self, files: list[str]) -> dict[str, Any]:
        """What has to be the same for a job to be resumed: all that its results depend on."""
        where = ("output", "home", "offline", "device")
        settings = {key: value for key, value in asdict(self).items() if key not in where}
        return {**settings, "files": files}


class OutputFolder:
    """A folder for parts, local or remote. InputError if it cannot be created.

    A part appears under its name when it is complete, so the names there say what is done. `DESCRIPTION` says of which
    job they are: a second start of the same one resumes, another one is refused.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") or "/"
        self._files, self._name = filesystem(self.url)
        self._is_local = not is_remote(self._files)
        if self._is_local and Path(self._name).is_file():
            raise InputError(f"{url} is a file; name a folder for the parts")

    def start(self, description: dict[str, Any]) -> set[str]:
        """Create the folder, or check that it belongs to this very job -> the names of the parts that are finished.

        InputError if it holds other files, or the parts of another job; it names the first setting that differs.
        """
        try:
            self._files.makedirs(self._name, exist_ok=True)
            names = self._names()
            if DESCRIPTION in names:
                self._check(description)
            elif names:
                raise InputError(f"{self.url} holds other files; name a new folder for the parts")
            else:
                with self.part(DESCRIPTION) as path:
                    write_text(path, json.dumps(description, indent=1))
            self.sweep()
        except OSError as error:
            raise unwritable(self.url, error) from error
        return {name for name in names if name.startswith("part-")}

    def sweep(self, **options: float) -> bool:
        """Remove what processes that died have begun, see `training.atomic.sweep`; returns whether more is begun."""
        return self._is_local and sweep(Path(self._name), **options)

    @contextmanager
    def part(self, name: str) -> Iterator[Path]:
        """A path to write a part to. The writer makes it appear whole; a remote one is uploaded when it is."""
        if self._is_local:
            yield Path(self._name) / name
            return
        with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
            path = Path(folder) / name
            yield path
            try:
                self._files.put_file(str(path), f"{self._name}/{name}")
            except OSError as error:
                raise unwritable(f"{self.url}/{name}", error) from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove these parts, as far as they are there."""
        for name in set(names).intersection(self._names()):
            self._files.rm_file(f"{self._name}/{name}")

    def _names(self) -> list[str]:
        listed = self._files.ls(self._name, detail=False, refresh=True)
        names = [each.rstrip("/").rsplit("/", 1)[-1] for each in listed]
        return [name for name in names if not name.startswith(".")]

    def _check(self, description: dict[str, Any]) -> None:
        try:
            found = json.loads(self._files.cat_file(f"{self._name}/{DESCRIPTION}"))
        except ValueError as error:
            raise InputError(f"{self.url}/{DESCRIPTION} is damaged; name a new folder for the parts") from error
        for key, value in json.loads(json.dumps(description)).items():
            if found.get(key) != value:
                shown = "other files" if key == "files" else f"{key} {json.dumps(found.get(key))[:80]}"
                raise InputError(f"{self.url} holds the parts of another job, with {shown}; name a new folder")


class BlockWorker:
    """Computes blocks. Loads the models when the first block is computed."""

    def __init__(self, job: ShardJob) -> None:
        self.job = job
        self.output = OutputFolder(job.output)
        self._reader = BlockReader(job.encoding)
        self._encoder: VectorModel | None = None
        self._cross_encoder: CrossEncoder | None = None

    def compute(self, block: Block, watch: Watch = UNWATCHED) -> int:
        """Write the part of a block -> its rows. A part that is not complete never appears.

        InputError if the file cannot be read, has other columns, or the part cannot be written.
        """
        table = self._reader.open(block)
        encoder, wanted = self._models(), self.job.columns
        with self.output.part(block.part) as path:
            if self.job.kind == "encode":
                column = pick_sentence(self._reader.table, next(iter(wanted), None))
                return encode_file(table, column, path, encoder, self.job.normalize, watch, all_columns=True).rows
            columns = pick_columns(self._reader.table, wanted or None)
            return score_file(table, [path], encoder, self._cross_encoder, columns, watch, is_block=True).rows

    def close(self) -> None:
        """Delete copies of remote files."""
        self._reader.close()

    def _models(self) -> VectorModel:
        if self._encoder is None:
            from training.models.model import VectorModel, open_model, required
            from training.sources.home import set_offline

            job = self.job
            if job.offline:
                set_offline(True)
            if job.cross_encoder:
                from training.models.cross_encoder import CrossEncoder

                self._cross_encoder = CrossEncoder.load(job.cross_encoder, job.dtype, job.device, job.home)
            model = open_model(job.model, job.pooling, job.dtype, job.device, job.home)
            self._encoder = required(model, VectorModel)
        return self._encoder
