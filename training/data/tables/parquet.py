"""Parquet as a table, in batches that keep their Arrow types, so that rows can be written as they were read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from training.data.tables.columns import MOST_COLUMNS, unique_names
from training.data.tables.rows import BATCH_CHARACTERS, BATCH_ROWS, OpenedTable, RowBatch
from training.errors import InputError, first_line

LONGEST_CELL_BYTES = 2_000_000


@dataclass(frozen=True)
class ParquetTable(OpenedTable):
    """A Parquet file whose footer has been read."""

    # The Arrow schema, in which columns of objects are taken apart.
    schema: Any
    # Fewer than `BATCH_ROWS` where the cells are long.
    rows_at_once: int
    # The names of 0, 1, … in columns of class labels, as the library datasets writes them.
    class_names: Mapping[str, Sequence[str]]
    description = "Parquet"

    def fields(self) -> list[Any]:
        fields = []
        for at, name in enumerate(self.columns):
            field = self.schema.field(at).with_name(name)
            fields.append(field.with_type(pa.string()) if name in self.class_names else field)
        return fields

    def _read(self, size: int) -> Iterator[RowBatch]:
        """All rows in order; ``arrow`` holds each batch with its types. InputError if a page of the file is broken."""
        first_row = 1
        try:
            for batch in _open(self.path).iter_batches(batch_size=min(size, self.rows_at_once)):
                arrow = _flat(batch).rename_columns(list(self.columns))
                for name, labels in self.class_names.items():
                    # -1 and every other number without a name becomes null.
                    names = dict(enumerate(labels))
                    cells = [names.get(number) for number in arrow.column(name).to_pylist()]
                    labelled = pa.array(cells, pa.string())
                    arrow = arrow.set_column(self.columns.index(name), name, labelled)
                rows = {}
                notes = {}
                for name, column in zip(self.columns, arrow.columns, strict=True):
                    rows[name], broken = _values(column)
                    for at in broken:
                        notes[at] = f"column {name} holds bytes that are not UTF-8, shown as �"
                yield RowBatch(first_row, rows, notes, arrow)
                first_row += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.path.name}, row {first_row:,} or later: the Parquet file is broken here ({first_line(error)})."
            ) from error


def open_parquet(path: Path, encoding: str | None = None, sheet: str | None = None) -> ParquetTable:
    """Reads the footer, and measures the texts. InputError if the file is not Parquet, is incomplete, or has no rows.

    ``encoding`` and ``sheet`` are ignored, as the file has none; see
    `training.data.tables.table.Opener`.
    """
    try:
        file = _open(path)
        # An empty batch shows the columns after objects are taken apart.
        schema = _flat(pa.RecordBatch.from_pylist([], file.schema_arrow)).schema
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path.name} is no complete Parquet file ({first_line(error)})."
        ) from error
    if len(schema.names) > MOST_COLUMNS:
        raise InputError(
            f"{path.name} has {len(schema.names):,} columns: this is no table of sentences."
        )
    if not file.metadata.num_rows or not schema.names:
        raise InputError(f"{path.name} holds no rows.")
    columns, remarks = unique_names(schema.names)
    try:
        rows_at_once = _rows_at_once(path, schema)
    except (pa.ArrowException, OSError):
        # The file is broken further down; the error when it is read says where.
        rows_at_once = BATCH_ROWS
    class_names = _class_names(schema, columns)
    for name, labels in class_names.items():
        remarks.append(f"The labels of {name} are {', '.join(labels[:10])}.")
    return ParquetTable(
        path, columns, file.metadata.num_rows, tuple(remarks), schema, rows_at_once, class_names
    )


def _flat(batch: Any) -> Any:
    """A batch whose columns of objects are taken apart, as in a file of JSON."""
    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _class_names(schema: Any, columns: Sequence[str]) -> dict[str, list[str]]:
    """The names of class labels by column, from the metadata that the datasets library writes."""
    try:
        metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata["info"]["features"]
        names = [features.get(field.name, {}).get("names") for field in schema]
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    class_names = {}
    for column, field, labels in zip(columns, schema, names, strict=True):
        if labels and pa.types.is_integer(field.type):
            class_names[column] = list(map(str, labels))
    return class_names


def _rows_at_once(path: Path, schema: Any) -> int:
    """The number of rows that fit into `BATCH_CHARACTERS` even if each has the longest text of the file.

    InputError for a text above `LONGEST_CELL_BYTES`. A file of a few kilobytes can hold the same
    text of a megabyte a million times, as Parquet stores it once, in a dictionary. The texts are
    measured in the dictionary, where they take as little memory as in the file.
    """
    kinds = (pa.string(), pa.binary())
    texts = [field.name for field in schema if field.type in kinds]
    if not texts:
        return BATCH_ROWS
    longest = 1
    file = _open(path, read_dictionary=texts)
    for group in range(file.num_row_groups):
        for column in file.read_row_group(group, columns=texts).columns:
            for chunk in column.chunks:
                values = chunk.dictionary if isinstance(chunk, pa.DictionaryArray) else chunk
                lengths = pc.binary_length(values)
                # The maximum of an empty chunk, or of nulls alone, is None.
                longest = max(longest, pc.max(lengths).as_py() or 0)
        if longest > LONGEST_CELL_BYTES:
            raise InputError(
                f"{path.name} has a cell of {longest / 1e6:,.0f} MB: this is no sentence."
            )
    return max(1, min(BATCH_ROWS, BATCH_CHARACTERS // longest))


def _open(path: Path, **options: Any) -> Any:
    # A buffered stream does not hold whole row groups, so that a row group of a million rows needs
    # no more memory than ten small ones.
    return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, **options)


def _values(column: Any) -> tuple[list[Any], list[int]]:
    """A column as Python values, and the positions whose text is not UTF-8."""
    try:
        return column.to_pylist(), []
    except UnicodeDecodeError:
        values = []
        broken = []
        for at, value in enumerate(column.cast(pa.binary()).to_pylist()):
            text = None if value is None else value.decode("utf-8", errors="replace")
            if text and "\ufffd" in text:
                broken.append(at)
            values.append(text)
        return values, broken
    except (ValueError, OverflowError, LookupError):
        # A date is beyond Python's calendar, or its time zone is unknown.
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp(column.type.unit))
        return column.cast(pa.string()).to_pylist(), []
