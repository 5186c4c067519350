"""Lists in cells of JSON as rows: {"query": "…", "pos": ["…"], "neg": ["…", "…"]} is two triplets.

A list of positives, of negatives or of sentences gives a row for each of its texts, with the other cells of its row;
two lists give a row for each two of their texts. Lists of two or three texts under the name of sentences, as in
{"texts": ["…", "…"]}, are pairs or triplets. Both sentences as lists of one length, as in the older files of mteb, with
the scores or labels in a third, are as many pairs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from training.data.tables.columns import LABELS, NEGATIVES, PAIR_COLUMN_NAMES, SCORES, SENTENCES, normalize_name
from training.data.tables.reading import LABEL, SCORE, SENTENCE1, SENTENCE2, TableReading
from training.data.tables.rows import OpenedTable, RowBatch
from training.errors import InputError

# The names of lists that hold a whole row, and the columns that two or three texts become.
WHOLE_ROWS = (*(name for name in SENTENCES if name != "sentence1"), "set", "pair", "triplet")
PARTS = {2: ("sentence1", "sentence2"), 3: ("anchor", "positive", "negative")}
OF_LISTS = {*NEGATIVES, *WHOLE_ROWS, *(name for _, name in PAIR_COLUMN_NAMES if name.startswith("pos"))}


@dataclass(frozen=True)
class ListsTable(OpenedTable):
    """A table in which the lists of another one are rows."""

    inner: OpenedTable
    # The columns that each column of lists becomes.
    lists: Mapping[str, tuple[str, ...]]
    # Those of them whose lists have one length, and go side by side.
    parallel: tuple[str, ...] = ()
    # Whether the columns hold two sentences in each cell, on lines of their own or with a tab between.
    are_texts: bool = False

    @property
    def description(self) -> str:
        return f"{self.inner.description}, {'two sentences in a cell' if self.are_texts else 'lists as rows'}"

    @property
    def is_plain(self) -> bool:
        return self.inner.is_plain

    def fields(self) -> list[Any]:
        import pyarrow as pa

        fields = {field.name: field for field in self.inner.fields()}
        texts = set(chain.from_iterable(self.lists.values()))
        return [pa.field(name, pa.string()) if name in texts else fields[name] for name in self.columns]

    def _read(self, size: int) -> Iterator[RowBatch]:
        first_row = 1
        for batch in self.inner.batches(size):
            rows: list[tuple[Any, ...]] = []
            notes: dict[int, str] = {}
            for at, cells in enumerate(zip(*batch.rows.values(), strict=True)):
                if note := batch.notes.get(at):
                    notes[len(rows)] = note
                for row in self._side_by_side(dict(zip(batch.rows, cells, strict=True)), first_row + len(rows)):
                    parts = [self._parts(name, cell) for name, cell in row.items()]
                    rows += (tuple(chain.from_iterable(row)) for row in product(*parts))
            columns = map(list, zip(*rows, strict=True))
            yield RowBatch(first_row, dict(zip(self.columns, columns, strict=True)), notes)
            first_row += len(rows)

    def _side_by_side(self, cells: dict[str, Any], number: int) -> list[dict[str, Any]]:
        """The cells of each pair of a row. InputError if its lists have different lengths."""
        lists = [_items(cells[name]) for name in self.parallel]
        if len(set(map(len, lists))) > 1:
            counts = ", ".join(f"{len(part):,} in {name}" for name, part in zip(self.parallel, lists, strict=True))
            raise InputError(f"{self.path.name}, row {number:,}: its lists have different lengths: {counts}.")
        rows = [dict(zip(self.parallel, items, strict=True)) for items in zip(*lists, strict=True)]
        return [{**cells, **row} for row in rows] if self.parallel else [cells]

    def _parts(self, name: str, cell: Any) -> list[tuple[Any, ...]]:
        """The cells of each row that a cell gives."""
        if name not in self.lists:
            return [(cell,)]
        items = _two(cell) if self.are_texts else _items(cell)
        texts, width = list(map(_text, items)), len(self.lists[name])
        if width == 1:
            return [(text,) for text in texts] or [(None,)]
        return [(*texts, *[None] * width)[:width]]


def with_rows_of_lists(table: OpenedTable) -> OpenedTable:
    """The table, or one in which its lists are rows if the names of its columns say what they hold."""
    parallel = _parallel(table)
    lists: dict[str, tuple[str, ...]] = {name: (name,) for name in parallel}
    for name, cells in table.sample.items():
        if name in parallel:
            continue
        key = normalize_name(name)
        items = [(_items(cell), cell) for cell in cells if cell is not None]
        sizes = {len(part) for part, _ in items}
        if key not in OF_LISTS or all(part == [cell] for part, cell in items):
            continue
        is_whole = key in WHOLE_ROWS and len(sizes) == 1
        lists[name] = PARTS.get(sizes.pop(), (name,)) if is_whole else (name,)
    columns = tuple(part for name in table.columns for part in lists.get(name, (name,)))
    if not lists or len(set(columns)) < len(columns):
        return table
    names = [name for name in lists if normalize_name(name) not in (*SCORES, *LABELS)]
    remarks = (*table.remarks, f"The lists of {' and '.join(names)} are read as rows of their own.")
    return ListsTable(table.path, columns, table.row_estimate, remarks, table, lists, parallel, version=table.version)


def with_two_sentences(table: OpenedTable) -> OpenedTable:
    """The table, or one with two columns in place of one whose cells all hold two sentences, if they are judged."""
    texts = [
        name for name in table.columns if (cells := table.sample[name]) and all(len(_two(cell)) == 2 for cell in cells)
    ]
    is_judged = any(normalize_name(name) in (*SCORES, *LABELS) for name in table.columns)
    if len(texts) != 1 or not is_judged or set(PARTS[2]).intersection(table.columns):
        return table
    lists = {texts[0]: PARTS[2]}
    columns = tuple(part for name in table.columns for part in lists.get(name, (name,)))
    remarks = (*table.remarks, f"{texts[0]} holds both sentences in each cell.")
    return ListsTable(table.path, columns, table.row_estimate, remarks, table, lists, are_texts=True)


def _two(cell: Any) -> list[str]:
    """The parts of a text at its line ends and tabs."""
    return [part for part in re.split(r"\s*[\n\t]\s*", cell.strip()) if part] if isinstance(cell, str) else []


def _parallel(table: OpenedTable) -> tuple[str, ...]:
    """The columns of both sentences and of their scores and labels, if all their cells are lists of one length.

    The lengths are compared in the first row here, and in all of them when they are read.
    """
    reading = TableReading.of(table.path.name, dict.fromkeys(table.columns, ()))
    names = reading.all(SENTENCE1, SENTENCE2, SCORE, LABEL)
    rows = [[len(_items(cell)) for cell in row] for row in zip(*map(table.sample.get, names), strict=True)]
    is_parallel = len(reading.sentences) == 2 and rows and len(set(rows[0])) == 1
    return names if is_parallel and min(map(min, rows)) > 1 else ()


def _items(cell: Any) -> list[Any]:
    """The items of a list; a cell that is none is its only item."""
    return cell if isinstance(cell, list) else [cell]


def _text(item: Any) -> Any:
    """The text of an item, which may be a document with a title and a text."""
    if not isinstance(item, dict):
        return item
    return " ".join(str(item[key]) for key in ("title", "text", "content") if item.get(key)) or None
