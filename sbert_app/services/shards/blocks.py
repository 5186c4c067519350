"""The unit of work of a sharded job: a block of consecutive rows of one input file, and the table that reads it.

    files = find_files("corpus/*.parquet")
    plan_blocks(files, block_rows=65_536) -> [Block(file, 0, 0, 1, 65_536), …], unreadable files

A block has a name of its own (part-00003-00012.parquet: block 12 of file 3), which does not depend on who
computes it or when. That is what a job is resumed by.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.data.tables.rows import BATCH_ROWS, OpenedTable, RowBatch, file_version
from training.data.tables.table import SUFFIXES, open_table
from training.errors import InputError, first_line

BLOCK_ROWS = 65_536  # of a block, which is a file of the output
FILE_ROWS = 10**12  # the ids of a file's rows begin at this times its number
ID = "row_id"
VERSION_KEYS = ("size", "mtime", "LastModified", "last_modified", "updated", "created", "ETag")  # of file systems


@dataclass(frozen=True)
class Block:
    file: str  # a path or a URL
    file_number: int  # in the sorted list of the job's files
    number: int  # within the file
    first_row: int  # counted from 1, without the header
    rows: int | None  # None: to the end of the file

    @property
    def part(self) -> str:
        """The name of the output."""
        return f"part-{self.file_number:05d}-{self.number:05d}.parquet"


def find_files(source: str) -> list[str]:
    """The files that a path, a folder, a glob or a URL of any of these names, sorted by name.

    Of a folder, all tables in it and below it, hidden ones apart. InputError if there is none.
    """
    files, name = filesystem(source)
    try:
        if files.isdir(name):
            below = [each for each in files.find(name) if not _is_hidden(each.removeprefix(name))]
            found = [each for each in below if each.lower().endswith(SUFFIXES)]
        elif any(sign in name for sign in "*?["):
            matches = [each for each in files.glob(name) if not _is_hidden(each.rsplit("/", 1)[-1])]
            found = [each for each in matches if not files.isdir(each)]
        else:
            found = [name] if files.exists(name) else []
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be listed: {first_line(error)}") from error
    if not found:
        raise InputError(f"{source} names no file; it takes a path, a folder or a glob of {', '.join(SUFFIXES)}")
    return sorted(files.unstrip_protocol(each) if is_remote(files) else each for each in found)


def plan_blocks(
    files: Sequence[str], block_rows: int, encoding: str | None = None
) -> tuple[list[Block], dict[str, str]]:
    """The blocks of all files in order, and the files that cannot be read with the reason.

    The number of rows is exact for Parquet and JSON; for text it counts lines, so that a file with line ends within
    cells may have empty blocks at its end. The last block always reaches to the end.
    """
    blocks: list[Block] = []
    unreadable: dict[str, str] = {}
    for file_number, file in enumerate(files):
        try:
            with local_copy(file) as path:
                rows = open_table(path, encoding).row_estimate
        except InputError as error:
            unreadable[file] = str(error)
            continue
        starts = range(1, max(rows, 1) + 1, block_rows)
        blocks += [Block(file, file_number, number, start, block_rows) for number, start in enumerate(starts)]
        blocks[-1] = replace(blocks[-1], rows=None)
    return blocks, unreadable


class BlockReader:
    """Opens blocks as tables. Going on to the next block of a file continues reading where the last one ended."""

    def __init__(self, encoding: str | None = None) -> None:
        self.encoding = encoding  # of text files; None to find out
        self._block: Block | None = None  # the last one that was opened
        self._next_row = 1
        self._batches: Iterator[RowBatch] = iter(())
        self._rest: RowBatch | None = None
        self._copy: Any = None
        self._table: OpenedTable | None = None

    def open(self, block: Block) -> OpenedTable:
        """The rows of a block as a table, with their ids. Read it before the next call. InputError as `open_table`."""
        if self._table is None or self._block is None or self._block.file != block.file:
            self.close()
            self._copy = local_copy(block.file)
            self._table = open_table(self._copy.__enter__(), self.encoding)
            self._rewind()
        elif self._next_row > block.first_row:
            self._rewind()
        self._block = block
        return _Rows.of(self._table, block, self)

    @property
    def table(self) -> OpenedTable:
        """The file of the block that was opened last, without ids."""
        assert self._table is not None  # noqa: S101 - for use after `open`
        return self._table

    def close(self) -> None:
        """Delete the copy of a remote file."""
        if self._copy is not None:
            self._copy.__exit__(None, None, None)
        self._copy = self._table = self._block = None

    def take(self, block: Block) -> Iterator[RowBatch]:
        """The rows of the block that was opened last."""
        end = None if block.rows is None else block.first_row + block.rows
        while end is None or self._next_row < end:
            batch = self._rest or next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            skipped = min(max(block.first_row - batch.first_row, 0), len(batch))
            stop = len(batch) if end is None else min(len(batch), end - batch.first_row)
            if stop < len(batch):
                self._rest = batch.part(stop, len(batch))
            self._next_row = batch.first_row + stop
            if skipped < stop:
                yield batch.part(skipped, stop)

    def _rewind(self) -> None:
        assert self._table is not None  # noqa: S101 - `open` has just set it
        self._batches, self._rest, self._next_row = self._table.batches(BATCH_ROWS), None, 1


@dataclass(frozen=True)
class _Rows(OpenedTable):
    """The rows of one block, with a column of ids."""

    table: OpenedTable
    block: Block
    reader: BlockReader
    adds_id: bool

    @classmethod
    def of(cls, table: OpenedTable, block: Block, reader: BlockReader) -> _Rows:
        adds_id = ID not in table.columns and "id" not in table.columns
        columns = (*table.columns, ID) if adds_id else table.columns
        rows = block.rows or max(table.row_estimate - block.first_row + 1, 1)
        return cls(table.path, columns, rows, table.remarks, table, block, reader, adds_id)

    def fields(self) -> list[Any]:
        import pyarrow as pa

        return [*self.table.fields(), *([pa.field(ID, pa.int64())] if self.adds_id else [])]

    def _read(self, size: int) -> Iterator[RowBatch]:
        """The rows, as the file's own reader batches them."""
        for batch in self.reader.take(self.block):
            yield self._with_id(batch) if self.adds_id else batch

    def _with_id(self, batch: RowBatch) -> RowBatch:
        import pyarrow as pa

        first = self.block.file_number * FILE_ROWS + batch.first_row
        ids = list(range(first, first + len(batch)))
        arrow = None if batch.arrow is None else batch.arrow.append_column(ID, pa.array(ids, pa.int64()))
        return replace(batch, rows={**batch.rows, ID: ids}, arrow=arrow)


@contextmanager
def local_copy(file: str) -> Iterator[Path]:
    """A path under which a file can be read; a remote one is downloaded for as long as the block lasts."""
    files, name = filesystem(file)
    if not is_remote(files):
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
        path = Path(folder) / name.rsplit("/", 1)[-1]
        try:
            files.get_file(name, str(path))
        except OSError as error:
            raise InputError(f"{file} cannot be read: {first_line(error)}") from error
        yield path


def input_version(file: str) -> tuple[Any, ...] | None:
    """What differs after a file was changed: its size, and the time of the change or a checksum where known."""
    files, name = filesystem(file)
    if not is_remote(files):
        return file_version(Path(name))
    files.invalidate_cache()
    try:
        info = files.info(name)
    except OSError:
        return None
    return tuple(info.get(key) for key in VERSION_KEYS)


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the name in it. InputError if nothing installed can open it."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(f"{url} cannot be opened: {first_line(error)}") from error


def is_remote(files: Any) -> bool:
    """Whether a file system is not that of this machine."""
    from fsspec.implementations.local import LocalFileSystem

    return not isinstance(files, LocalFileSystem)


def _is_hidden(name: str) -> bool:
    """Whether a file, or a folder above it, is none of the user's data by its name, such as _SUCCESS or .git."""
    return any(part.startswith((".", "_")) for part in name.split("/") if part not in (".", ".."))
