"""A sharded job, its files, and their blocks of rows. Each block becomes one part of the output.

The part of block 12 of file 3 is always part-00003-00012.parquet, so the names of the finished
parts tell a resumed job what is missing.
"""

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from training.data.tables.columns import PairColumns
from training.data.tables.rows import OpenedTable, RowBatch
from training.data.tables.table import SUFFIXES, open_table
from training.errors import InputError, first_line

BLOCK_ROWS = 65_536
PART = "part-{:05d}-"
ID = "row_id"
# The id of row r of file n is n times this number, plus r. Rows count from 1, files from 0.
FILE_ROWS = 10**12


@dataclass(frozen=True)
class ShardJob:
    """The scoring of pairs or the encoding of sentences, as plain data for another machine.

    Attributes:
        kind: score or encode.
        output: the folder of the parts, a path or a URL.
        pooling: None is the model's own.
        columns: the two (or three) columns of pairs, or the column of sentences; by default they
            are inferred for each file.
        normalize: whether encoded vectors are scaled to length 1.
        home: the home folder; None for the one of the machine that computes.
        encoding: the encoding of text files; None detects it.
        keep_unknown: whether pairs are scored although the model knows no token of a sentence.
    """

    kind: str
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
    encoding: str | None = None
    keep_unknown: bool = False

    def description(self, files: list[str]) -> dict[str, Any]:
        """The input and the settings that determine the results. They must be equal when a job is resumed."""
        settings = asdict(self)
        for name in ("output", "home", "offline", "device"):
            del settings[name]
        return {**settings, "files": files}


@dataclass(frozen=True)
class BlockTable(OpenedTable):
    """The rows of a block, in the batches in which the file was read. They can be read only once."""

    schema: Sequence[Any]
    rows: Iterable[RowBatch]

    @property
    def description(self) -> str:
        return "A block of rows"

    def fields(self) -> list[Any]:
        return list(self.schema)

    def _read(self, size: int) -> Iterator[RowBatch]:
        yield from self.rows


@dataclass
class Block:
    """Consecutive rows of a file with their ids; or the ``error`` that ends the reading of the file.

    Attributes:
        part: the name of the part that the block becomes.
        columns: the columns of pairs, or the column of sentences.
        table: the rows; None for an error, and for a block that has been computed.
        row_estimate: the number of rows of the whole file.
        done: the number of rows that have been computed.
    """

    job: ShardJob
    file: str
    part: str = ""
    columns: PairColumns | str = ""
    table: BlockTable | None = None
    row_estimate: int = 0
    done: int = 0
    error: str = ""


def read_blocks(
    job: ShardJob,
    number: int,
    file: str,
    finished: Collection[str],
    collect: Callable[[Iterator[RowBatch]], Iterable[RowBatch]] = iter,
) -> Iterator[Block]:
    """Yields the blocks of a file in order, except those whose part is in ``finished``.

    ``number`` is the position of the file among the files of the job. If reading fails, a last
    block has the error. The rows of a block have to be used before the next block, unless
    ``collect=list`` reads them at once.
    """
    # pyarrow takes time to import, and the command line imports this module.
    import pyarrow as pa

    try:
        with _local_copy(file) as path:
            table = open_table(path, job.encoding)
            reading = table.reading.with_columns(job.columns)
            columns: PairColumns | str
            if job.kind == "encode":
                columns = reading.sentence()
            else:
                columns = reading.pair()
            names = table.columns
            schema = table.fields()
            # None adds no column of ids: a table that has ids keeps them.
            id_offset = None
            if not {ID, "id"}.intersection(names):
                names = (*names, ID)
                schema = [*schema, pa.field(ID, pa.int64())]
                # A file has fewer rows than `FILE_ROWS`, so the ids of two files differ.
                id_offset = number * FILE_ROWS
            estimate = table.row_estimate

            def block_number(batch: RowBatch) -> int:
                # Rows count from 1, blocks from 0.
                return (batch.first_row - 1) // job.block_rows

            batches = _cut(table, job.block_rows, id_offset)
            for at, rows in groupby(batches, key=block_number):
                part = f"{PART.format(number)}{at:05d}.parquet"
                if part not in finished:
                    # The remarks on how the file was read are left out.
                    block = BlockTable(Path(file), names, estimate, (), schema, collect(rows))
                    yield Block(job, file, part, columns, block, estimate)
    except InputError as error:
        yield Block(job, file, error=str(error))


def parts_of(number: int, names: Iterable[str]) -> list[str]:
    """The names of the parts of one file."""
    return [name for name in names if name.startswith(PART.format(number))]


def _cut(table: OpenedTable, block_rows: int, id_offset: int | None) -> Iterator[RowBatch]:
    """Yields the rows in batches that lie within a block, with a column of ids unless ``id_offset`` is None."""
    for batch in table.batches():
        if id_offset is not None:
            first_id = id_offset + batch.first_row
            ids = list(range(first_id, first_id + len(batch)))
            # Only the batches of a Parquet file have Arrow arrays.
            arrow = batch.arrow and batch.arrow.append_column(ID, ids)
            batch = replace(batch, rows={**batch.rows, ID: ids}, arrow=arrow)
        start = 0
        while start < len(batch):
            position_in_block = (batch.first_row - 1 + start) % block_rows
            stop = min(len(batch), start + block_rows - position_in_block)
            yield batch.part(start, stop)
            start = stop


def find_files(source: str) -> list[str]:
    """Lists the files of ``source``: a path, a folder, a glob, or a URL of one of these. Sorted by name.

    The files of a folder are the tables in it and its subfolders, except names that begin with . or
    _. InputError if there is none.
    """
    file_system, name, is_local = filesystem(source)
    try:
        if file_system.isdir(name):
            paths = [path for path in file_system.find(name) if path.lower().endswith(SUFFIXES)]
            hidden = {path for path in paths if re.search(r"/[._]", path.removeprefix(name))}
        else:
            paths = [path for path in file_system.glob(name) if not file_system.isdir(path)]
            # In a glob only the names of the files count, and a file that is named itself may begin
            # with . or _.
            hidden = {path for path in paths if path != name and re.search(r"/[._][^/]*$", path)}
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be listed: {first_line(error)}") from error
    paths = sorted(set(paths) - hidden)
    if not is_local:
        # The file system names its files without their protocol, such as s3://.
        paths = sorted(map(file_system.unstrip_protocol, paths))
    if not paths:
        raise InputError(
            f"{source} names no file; it takes a path, a folder or a glob of {', '.join(SUFFIXES)}"
        )
    return paths


@contextmanager
def _local_copy(file: str) -> Iterator[Path]:
    """Yields the path of a file on this machine. A remote file is downloaded, and removed afterwards."""
    file_system, name, is_local = filesystem(file)
    if is_local:
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
        path = Path(folder) / name.rpartition("/")[2]
        try:
            file_system.get_file(name, str(path))
        except OSError as error:
            raise InputError(f"{file} cannot be read: {first_line(error)}") from error
        yield path


def filesystem(url: str) -> tuple[Any, str, bool]:
    """The fsspec file system of a path or URL, the name of the file in it, and whether it is on this machine.

    InputError if no package that is installed can open it.
    """
    import fsspec

    try:
        file_system, name = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(f"{url} cannot be opened: {first_line(error)}") from error
    return file_system, name, "file" in file_system.protocol
