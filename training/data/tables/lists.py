"""Lists in cells of JSON as rows: {"query": "…", "pos": ["…"], "neg": ["…", "…"]} is two triplets.

A list of positives, of negatives or of sentences gives a row for each of its texts, with the other cells of its row;
two lists give a row for each two of their texts. Lists of two or three texts under the name of sentences, as in
{"texts": ["…", "…"]}, are pairs or triplets. Both sentences as lists of one length, as in the older files of mteb, with
the scores or labels in a third, are as many pairs. A list of one score or label, as tools for annotation write it, is
that score or label.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from training.data.tables.columns import GOLD, NEGATIVES, PAIR_COLUMN_NAMES, SENTENCES, normalize_name, roles_of
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

    @property
    def description(self) -> str:
        return f"{self.inner.description}, lists as rows"

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
        is_gold = normalize_name(name) in GOLD
        items = _items(cell) if name in self.lists else []
        if name not in self.lists or (is_gold and len(items) > 1):
            return [(cell,)]
        texts, width = list(map(_judgement if is_gold else _text, items)), len(self.lists[name])
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
        is_list = key in OF_LISTS or (key in GOLD and 1 in sizes)
        if not is_list or all(part == [cell] for part, cell in items):
            continue
        is_whole = key in WHOLE_ROWS and len(sizes) == 1
        lists[name] = PARTS.get(sizes.pop(), (name,)) if is_whole else (name,)
    columns = tuple(part for name in table.columns for part in lists.get(name, (name,)))
    if not lists or len(set(columns)) < len(columns):
        return table
    remarks, names = table.remarks, [name for name in lists if normalize_name(name) not in GOLD]
    if names:
        remarks = (*remarks, f"The lists of {' and '.join(names)} are read as rows of their own.")
    return ListsTable(table.path, columns, table.row_estimate, remarks, table, lists, parallel, version=table.version)


def _parallel(table: OpenedTable) -> tuple[str, ...]:
    """The columns of both sentences and of their scores and labels, if all their cells are lists of one length.

    The lengths are compared in the first row here, and in all of them when they are read.
    """
    roles = roles_of(table.columns)
    names = tuple(roles[role] for role in ("sentence1", "sentence2", "score", "label") if role in roles)
    rows = [[len(_items(cell)) for cell in row] for row in zip(*map(table.sample.get, names), strict=True)]
    is_parallel = {"sentence1", "sentence2"} <= roles.keys() and rows and len(set(rows[0])) == 1
    return names if is_parallel and min(map(min, rows)) > 1 else ()


def _items(cell: Any) -> list[Any]:
    """The items of a list; a cell that is none is its only item."""
    return cell if isinstance(cell, list) else [cell]


def _text(item: Any) -> Any:
    """The text of an item, which may be a document with a title and a text."""
    if not isinstance(item, dict):
        return item
    return " ".join(str(item[key]) for key in ("title", "text", "content") if item.get(key)) or None


def _judgement(item: Any) -> str | None:
    """The text of a score or a label, which may be in an object, such as {"rating": 4} or {"choices": ["similar"]}."""
    while isinstance(item, dict | list) and len(item) == 1:
        [item] = item.values() if isinstance(item, dict) else item
    return None if item is None else str(item)
