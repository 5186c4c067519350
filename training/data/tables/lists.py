"""Lists in cells of JSON as rows: {"query": "…", "pos": ["…"], "neg": ["…", "…"]} is two triplets.

A list of positives, of negatives or of sentences becomes a row for each of its texts, with the
other cells of its row. Two lists become a row for each combination of their texts. Lists of two or
three texts under the name of sentences, as in {"texts": ["…", "…"]}, are pairs or triplets. If both
sentences and the scores or labels are lists of one length, as in older files of mteb, their items
with the same index are a pair.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from training.data.tables.columns import (
    LABELS,
    NEGATIVES,
    PAIR_COLUMN_NAMES,
    SCORES,
    SENTENCES,
    normalize_name,
)
from training.data.tables.reading import FORMS, LABEL, SCORE, SENTENCE1, SENTENCE2, TableReading
from training.data.tables.rows import OpenedTable, RowBatch
from training.errors import InputError

# A list with one of these names may be a whole row; sentence1 is only a part of one.
WHOLE_ROWS = frozenset((*SENTENCES, "set", "pair", "triplet")) - {SENTENCE1}
POSITIVES = frozenset(second for _, second in PAIR_COLUMN_NAMES if second.startswith("pos"))
OF_LISTS = WHOLE_ROWS.union(NEGATIVES, POSITIVES)


@dataclass(frozen=True)
class ListsTable(OpenedTable):
    """A table in which the lists of another one, ``inner``, are rows."""

    inner: OpenedTable
    # For each column of lists the columns that it becomes.
    lists: Mapping[str, tuple[str, ...]]
    # The columns of lists whose items with the same index form a row.
    parallel: tuple[str, ...] = ()
    # Whether the "lists" are texts that hold two sentences, separated by a line end or a tab.
    are_texts: bool = False

    @classmethod
    def of(
        cls,
        table: OpenedTable,
        lists: Mapping[str, tuple[str, ...]],
        remark: str,
        parallel: tuple[str, ...] = (),
        are_texts: bool = False,
    ) -> OpenedTable:
        """A table with other columns in place of ``lists``; the table itself if two columns would have one name.

        ``lists``, ``parallel`` and ``are_texts`` are the attributes of the class, ``remark`` a
        sentence for the user.
        """
        columns: list[str] = []
        for name in table.columns:
            columns += lists.get(name, (name,))
        if len(set(columns)) < len(columns):
            return table
        return cls(
            table.path,
            tuple(columns),
            table.row_estimate,
            (*table.remarks, remark),
            table,
            lists,
            parallel,
            are_texts,
            sheet=table.sheet,
            sheets=table.sheets,
            is_default_sheet=table.is_default_sheet,
            version=table.version,
        )

    @property
    def description(self) -> str:
        layout = "two sentences in a cell" if self.are_texts else "lists as rows"
        return f"{self.inner.description}, {layout}"

    @property
    def is_plain(self) -> bool:
        return self.inner.is_plain

    def fields(self) -> list[Any]:
        # pyarrow takes time to import, and only writers need the fields.
        import pyarrow as pa

        fields = {field.name: field for field in self.inner.fields()}
        for name in chain.from_iterable(self.lists.values()):
            fields[name] = pa.field(name, pa.string())
        return [fields[name] for name in self.columns]

    def _read(self, size: int) -> Iterator[RowBatch]:
        first_row = 1
        for batch in self.inner.batches(size):
            rows: list[tuple[Any, ...]] = []
            notes: dict[int, str] = {}
            for at, cells in enumerate(zip(*batch.rows.values(), strict=True)):
                first = len(rows)
                row = dict(zip(batch.rows, cells, strict=True))
                for single in self._side_by_side(row, first_row + len(rows)):
                    # For each column of ``inner`` the alternatives that its cell becomes. Each new
                    # row has one alternative of every column.
                    parts = [self._parts(name, cell) for name, cell in single.items()]
                    for combination in product(*parts):
                        rows.append(tuple(chain.from_iterable(combination)))
                # The note stays with the first of the rows that this row becomes, if there is one.
                if at in batch.notes and len(rows) > first:
                    notes[first] = batch.notes[at]
            # A row with empty ``parallel`` lists becomes no row, so there may be none.
            if rows:
                columns = map(list, zip(*rows, strict=True))
                yield RowBatch(first_row, dict(zip(self.columns, columns, strict=True)), notes)
                first_row += len(rows)

    def _side_by_side(self, cells: dict[str, Any], number: int) -> list[dict[str, Any]]:
        """The rows of the items with the same index in the ``parallel`` lists; the row itself without such lists.

        InputError if the lists have different lengths.
        """
        if not self.parallel:
            return [cells]
        lists = {name: _items(cells[name]) for name in self.parallel}
        if len(set(map(len, lists.values()))) > 1:
            counts = ", ".join(f"{len(items):,} in {name}" for name, items in lists.items())
            raise InputError(
                f"{self.path.name}, row {number:,}: its lists have different lengths: {counts}."
            )
        rows = []
        for items in zip(*lists.values(), strict=True):
            rows.append(cells | dict(zip(lists, items, strict=True)))
        return rows

    def _parts(self, name: str, cell: Any) -> list[tuple[Any, ...]]:
        """The alternatives that a cell becomes, each as the cells of the columns in its place."""
        if name not in self.lists:
            return [(cell,)]
        width = len(self.lists[name])
        # With ``are_texts`` a cell is not a list, but a text that holds two sentences.
        items = _lines(cell) if self.are_texts else list(map(_text, _items(cell)))
        if width == 1:
            # A row with an empty list stays a row, without a text.
            return [(item,) for item in items] or [(None,)]
        # The list is a whole row, which is filled or cut.
        return [(*items, *[None] * width)[:width]]


def with_rows_of_lists(table: OpenedTable) -> OpenedTable:
    """The table, or one in which its lists are rows if the names of its columns say what they hold."""
    parallel = _parallel(table)
    lists: dict[str, tuple[str, ...]] = {name: (name,) for name in parallel}
    for name, sample in table.sample.items():
        key = normalize_name(name)
        cells = [cell for cell in sample if cell is not None]
        has_lists = any(isinstance(cell, list) for cell in cells)
        if name in parallel or key not in OF_LISTS or not has_lists:
            continue
        lists[name] = (name,)
        sizes = {len(_items(cell)) for cell in cells}
        # Two texts are a pair, and three a triplet.
        if key in WHOLE_ROWS and sizes in ({2}, {3}):
            lists[name] = FORMS[sizes.pop()]
    if not lists:
        return table
    names = [name for name in lists if normalize_name(name) not in (*SCORES, *LABELS)]
    remark = f"The lists of {' and '.join(names)} are read as rows of their own."
    return ListsTable.of(table, lists, remark, parallel)


def with_two_sentences(table: OpenedTable) -> OpenedTable:
    """Splits a column of texts with two sentences in each cell into two columns, if the table has judgements.

    A line end or a tab separates the sentences. Any other table is returned as it is.
    """
    is_judged = any(normalize_name(name) in (*SCORES, *LABELS) for name in table.columns)
    texts = []
    for name, cells in table.sample.items():
        if cells and all(len(_lines(cell)) == 2 for cell in cells):
            texts.append(name)
    has_names_of_pairs = not set(FORMS[2]).isdisjoint(table.columns)
    if len(texts) != 1 or not is_judged or has_names_of_pairs:
        return table
    return ListsTable.of(
        table,
        {texts[0]: FORMS[2]},
        f"{texts[0]} holds both sentences in each cell.",
        # The cells are texts to split, and not lists.
        are_texts=True,
    )


def _lines(cell: Any) -> list[str]:
    """The parts of a text at its line ends and tabs."""
    if not isinstance(cell, str):
        return []
    return list(filter(None, re.split(r"\s*[\n\t]\s*", cell.strip())))


def _parallel(table: OpenedTable) -> tuple[str, ...]:
    """The columns of both sentences and of their scores and labels, if all their cells are lists of one length.

    Only the lengths in the first row are compared here; the other rows are checked when they are
    read.
    """
    # The reading by the names alone, without any cells.
    reading = TableReading.of(table.path.name, dict.fromkeys(table.columns, ()))
    names = reading.all(SENTENCE1, SENTENCE2, SCORE, LABEL)
    # (columns, rows). A cell that is not a list has the size 1, as a list of one item has, so only
    # longer lists are certain to be lists.
    sizes = [[len(_items(cell)) for cell in table.sample[name]] for name in names]
    if len(reading.sentences) != 2 or not sizes[0]:
        return ()
    are_lists = min(map(min, sizes)) > 1
    sizes_of_first_row = {column_sizes[0] for column_sizes in sizes}
    return names if are_lists and len(sizes_of_first_row) == 1 else ()


def _items(cell: Any) -> list[Any]:
    """The items of a list; any other cell is its only item."""
    return cell if isinstance(cell, list) else [cell]


def _text(item: Any) -> Any:
    """The text of an item, which may be a document with a title and a text."""
    if not isinstance(item, dict):
        return item
    parts = [str(item[key]) for key in ("title", "text", "content") if item.get(key)]
    return " ".join(parts) or None
