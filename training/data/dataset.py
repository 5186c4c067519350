"""Dataset: rows of one, two or three sentences, with gold scores or labels, as parallel lists.

    Dataset.from_pairs(["a cat", "a dog"], ["a kitten", "a car"], scores=[0.9, 0.1])

Every source and every transform produces this type, in the same units: gold scores run from 0 to 5, labels are
numbered from 0 and have names. Each decision on the way (a row left out, scores rescaled) is a sentence in
``notes``, which the pages show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import numpy as np

from training.catalogue import LABELLED, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.data.gold import NUMBER, label_text
from training.data.judgements import JOINED, judge, rejected_rows
from training.data.tables.cells import as_text
from training.data.tables.columns import is_usual_name, listed
from training.data.tables.reading import FORMS, RATING, SPLIT, SPLIT_NAMES, TableReading, requested_columns
from training.data.tables.rows import HEAD_ROWS, OpenedTable
from training.errors import InputError

NOTEBOOK_ROWS = 5
LONGEST_NAME = 60
# The beginning of the note on columns that are not used.
NOT_READ = "not read"
# The first rows of a data set of the datasets library, by which its columns are judged.
LOOKED_AT = 100

# The data that `as_dataset` takes. The libraries datasets and pandas may not be installed.
Data = Any


@dataclass(frozen=True)
class Dataset:
    """Rows of one, two or three sentences each; every list has the same length.

    ``columns`` holds one list per sentence of a row: (sentence,), (first, second) or (anchor, positive,
    negative). ``scores`` are gold scores in 0–5, ``labels`` indices into ``label_names``. ``rows`` are the
    1-based row numbers in the source, so that a message can name a row that the user can find.

    Example::

        from sbert_lab import Dataset

        data = Dataset.from_pairs(["A man is eating."], ["A man eats food."], scores=[4.2])
        print(len(data), data.columns, data.scores)
    """

    name: str
    columns: tuple[list[str], ...]
    scores: list[float] | None = None
    labels: list[int] | None = None
    label_names: tuple[str, ...] = ()
    source: str = ""
    notes: tuple[str, ...] = ()
    rows: Sequence[int] = field(default=(), repr=False)
    # The question that has to be answered before all pairs are taken for such that belong together; "" without one.
    question: str = field(default="", repr=False)
    # The value of ``?labels=`` that reads the labels without a meaning, such as "maybe", as no match; "" without them.
    unclear_as_no: str = field(default="", repr=False)
    # For each of the ``rows`` the further ones that judge the same pair.
    joined: Mapping[int, Sequence[int]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.rows:
            object.__setattr__(self, "rows", range(1, len(self) + 1))

    @classmethod
    def from_pairs(
        cls,
        sentences1: Iterable[str],
        sentences2: Iterable[str],
        scores: Iterable[float] | None = None,
        labels: Iterable[int | str] | None = None,
        name: str = "pairs",
    ) -> Dataset:
        """Pairs of sentences, with gold scores or labels if there are any. Rules and errors as `from_columns`."""
        if scores is not None and labels is not None:
            raise InputError(f"{name} have scores or labels, not both; leave one out")
        columns = {"sentence1": sentences1, "sentence2": sentences2, "score": scores, "label": labels}
        return cls.from_columns({column: cells for column, cells in columns.items() if cells is not None}, name)

    @classmethod
    def from_columns(
        cls, cells: Mapping[str, Iterable[Any]], name: str = "columns", columns: str | None = None
    ) -> Dataset:
        """Columns of cells by name: lists, arrays or series, which are read as the columns of a file.

        Names are recognised (text_a is sentence1, similarity is score), rows with an empty sentence or score are left
        out, scores are rescaled to 0–5 by the scale that they seem to have; the notes state all of this. ``columns``
        names the columns as in `from_file`.
        InputError if no form of data has these columns, they differ in length, or a score is no number; and with a
        question where several columns may be the judgement.
        """
        lists, reading = read_cells(cells, name, columns)
        used = {column: lists[column] for column in reading.used}
        if len({len(column) for column in used.values()}) > 1:
            lengths = ", ".join(f"{column} has {len(values):,}" for column, values in used.items())
            raise InputError(f"the columns of {name} differ in length: {lengths}")
        return parse_dataset(name, used, "memory", reading=reading)

    @classmethod
    def from_list(
        cls, rows: Iterable[Mapping[str, Any] | Sequence[Any] | str], name: str = "list", columns: str | None = None
    ) -> Dataset:
        """Rows as dictionaries by column, or as tuples; rules and errors as `from_columns`.

        A tuple is (sentence1, sentence2), (sentence1, sentence2, gold score) or, of three texts, (anchor, positive,
        negative); a text alone is a sentence.
        """
        named = [_by_column(row, number) for number, row in enumerate(rows, start=1)]
        names = dict.fromkeys(chain.from_iterable(named))
        return cls.from_columns({column: [row.get(column) for row in named] for column in names}, name, columns)

    @classmethod
    def from_pandas(cls, frame: Any, name: str = "DataFrame", columns: str | None = None) -> Dataset:
        """The rows of a pandas DataFrame; rules and errors as `from_columns`."""
        return cls.from_columns({str(column): frame[column] for column in frame.columns}, name, columns)

    @classmethod
    def from_datasets(cls, rows: Any, name: str = "datasets", columns: str | None = None) -> Dataset:
        """One split of a data set of the datasets library, with its class names; rules and errors as `from_columns`.

        At most 1,000,000 rows are read.
        """
        from training.sources.hub_dataset import MOST_ROWS, read_columns

        if isinstance(rows, dict):
            raise InputError(f"{name} has the splits {', '.join(rows)}; give one of them")
        head = list(rows.take(LOOKED_AT))
        first = {column: [row[column] for row in head] for column in (head[0] if head else {})}
        reading = TableReading.of(name, flat_columns(first))
        reading = reading.with_columns(requested_columns(columns, reading))
        check_form(reading)
        used = [column for column in first if any(f"{name}.".startswith(f"{column}.") for name in reading.used)]
        cells, more = read_columns(rows, lambda names: used)
        data = parse_dataset(name, flat_columns(cells), "memory", reading=reading)
        return data.with_note(f"only the first {MOST_ROWS:,} rows are read") if more else data

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        encoding: str | None = None,
        columns: str | None = None,
        split: str | None = None,
        scale: str | None = None,
        labels: str | None = None,
        raters: str | None = None,
        sheet: str | None = None,
    ) -> Dataset:
        """A file of CSV, TSV, JSON Lines or Parquet or a workbook, perhaps with .gz; InputError as `from_columns`.

        Args:
            encoding: that of its text, such as windows-1251; None to find out.
            columns: the column of sentences, the two of pairs, or the three of triplets and of scored or labelled
                pairs: "left,right,gold", "left,right,-" for pairs without a judgement; None to go by the evidence.
            split: the rows to take of a file that has a column of splits; None for all.
            scale: the lowest and the highest gold score: "1-7"; None to find out.
            labels: the values of labels: "similar:1,different:0"; None to go by their names.
            raters: those that count, of a file with a column of raters or a column for each: "r1,r2"; None for all.
            sheet: that of a workbook; None for the one with the most rows of sentences.
        """
        from training.data.tables.table import opened_file

        path = Path(path).expanduser()
        with opened_file(path, encoding, sheet) as table:
            data = cls.from_table(table, columns, path.name, split, scale, labels, raters)
            return replace(data, source=str(path))

    @classmethod
    def from_table(
        cls,
        table: OpenedTable,
        columns: str | None = None,
        name: str = "",
        split: str | None = None,
        scale: str | None = None,
        labels: str | None = None,
        raters: str | None = None,
    ) -> Dataset:
        """The rows of an opened file, as `from_file`; ``name`` replaces the file's name."""
        name = name or table.path.name
        reading = replace(table.reading.with_columns(requested_columns(columns, table.reading)), name=name)
        splits = reading.first(SPLIT)
        if split and splits is None:
            raise InputError(f"{name} has no column of splits; leave out ?split=")
        faults: dict[int, str] = {}
        cells = table.in_memory(reading.used, faults)
        first = min(faults, default=0)
        marked = [f"{len(faults):,} rows are marked, the first is row {first:,}: {faults[first]}"] if faults else []
        notes = (*table.remarks, *marked)
        data = parse_dataset(name, cells, str(table.path), notes, reading, scale, labels, raters)
        if unread := _unread(reading, data):
            data = data.with_note(f"{NOT_READ}: {listed(unread)}; ?columns= says which columns are")
        if splits is None:
            return data
        of_rows = [label_text(cells[splits][row - 1]) for row in data.rows]
        if split is None:
            counts = ", ".join(f"{count:,} {value}" for value, count in Counter(of_rows).items())
            return data.with_note(f"the column {splits} holds {counts}: all rows are read; ?split= takes one")
        rows = [at for at, value in enumerate(of_rows) if value in (split.lower(), *SPLIT_NAMES.get(split.lower(), ()))]
        if not rows:
            raise InputError(f"{name} has no rows of the split {split!r}; it has {', '.join(dict.fromkeys(of_rows))}")
        return data.select(rows, f"only the {len(rows):,} rows of the split {split} are read")

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Dataset: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | Dataset:
        """A row by the names of its columns, or the rows of a slice as a `Dataset`. IndexError past the last row."""
        if isinstance(at, slice):
            return self.select(range(len(self))[at])
        return {name: cells[at] for name, cells in self._by_name().items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows in order, each by the names of its columns."""
        cells = self._by_name()
        return (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a column for each text, and ``score`` (0 to 5) or ``label`` (its name)."""
        import pyarrow

        return pyarrow.table(self._by_name()).to_pandas()

    def _by_name(self) -> dict[str, list[Any]]:
        """The columns by their names."""
        cells: dict[str, list[Any]] = dict(zip(FORMS[3 - len(self.columns)], self.columns, strict=True))
        if self.scores is not None:
            cells["score"] = self.scores
        if self.labels is not None:
            cells["label"] = [self.label_names[label] for label in self.labels]
        return cells

    def __repr__(self) -> str:
        name = self.name if len(self.name) <= LONGEST_NAME else f"{self.name[: LONGEST_NAME - 1]}…"
        return f"Dataset({name!r}, {len(self):,} {self.kind})"

    def _repr_html_(self) -> str:
        cells: dict[str, Iterable[object]] = {**self._by_name()}
        if self.scores is not None:
            cells["score"] = (f"{score:g}" for score in self.scores)
        caption = f"{self!r}; {'; '.join(self.notes)}" if self.notes else repr(self)
        return html_table(tuple(cells), islice(zip(*cells.values(), strict=True), NOTEBOOK_ROWS), caption)

    @property
    def kind(self) -> str:
        """The form in words: sentences, pairs, scored pairs, labelled pairs or triplets."""
        if len(self.columns) != 2:
            return SENTENCES if len(self.columns) == 1 else TRIPLETS
        if self.scores is not None:
            return SCORED
        return LABELLED if self.labels is not None else PAIRS

    def select(self, keep: Iterable[int], *notes: str) -> Dataset:
        """The rows at these positions, in this order, with ``notes`` added."""
        keep = list(keep)
        return replace(
            self,
            columns=tuple([column[i] for i in keep] for column in self.columns),
            scores=None if self.scores is None else [self.scores[i] for i in keep],
            labels=None if self.labels is None else [self.labels[i] for i in keep],
            rows=[self.rows[i] for i in keep],
            notes=(*self.notes, *notes),
        )

    def with_note(self, note: str) -> Dataset:
        """The data with one more note."""
        return replace(self, notes=(*self.notes, note))


def read_cells(
    cells: Mapping[str, Iterable[Any]], name: str, columns: str | None
) -> tuple[dict[str, list[Any]], TableReading]:
    """The columns of cells as lists, and what they are; the arguments are those of `Dataset.from_columns`."""
    lists = {}
    for column, part in cells.items():
        values: Any = part
        # It would be taken for a list of its characters.
        if isinstance(values, str):
            raise InputError(f"{column} is one text; give a list of them")
        lists[column] = values.tolist() if hasattr(values, "tolist") else list(values)
    lists = flat_columns(lists)
    reading = TableReading.of(name, {column: values[:HEAD_ROWS] for column, values in lists.items()})
    return lists, reading.with_columns(requested_columns(columns, reading))


def as_dataset(data: Data, name: str) -> Dataset:
    """Makes a `Dataset` of rows, columns, a DataFrame or a set of the datasets library. InputError for other data."""
    if isinstance(data, Dataset):
        return data
    makers: dict[str, Callable[..., Dataset]] = {
        "datasets": Dataset.from_datasets,
        "DataFrame": Dataset.from_pandas,
        "list": Dataset.from_list,
        "tuple": Dataset.from_list,
        "dict": Dataset.from_columns,
    }
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    make = makers.get(library if library == "datasets" else kind)
    if make is None:
        raise InputError(
            f"{name} is a {kind}; give a Dataset, one of the datasets library, a DataFrame or a list of tuples"
        )
    return make(data, name)


def join(parts: Sequence[Dataset]) -> Dataset:
    """Data sets of one form, concatenated. InputError if their forms or their labels differ."""
    first, *rest = parts
    if not rest:
        return first
    for other in rest:
        if other.kind != first.kind:
            raise InputError(
                f"{first.name} holds {first.kind} and {other.name} {other.kind}; join sets of the same form"
            )
        if other.label_names != first.label_names:
            one, two = ", ".join(first.label_names), ", ".join(other.label_names)
            raise InputError(f"the labels of {first.name} are {one}, those of {other.name} {two}")
    return Dataset(
        name="+".join(part.name for part in parts),
        columns=tuple([s for part in parts for s in part.columns[i]] for i in range(len(first.columns))),
        scores=list(chain.from_iterable(part.scores or () for part in parts)) if first.scores is not None else None,
        labels=list(chain.from_iterable(part.labels or () for part in parts)) if first.labels is not None else None,
        label_names=first.label_names,
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        notes=tuple(f"{part.name}: {note}" for part in parts for note in (*part.notes, f"{len(part):,} rows")),
        rows=[row for part in parts for row in part.rows],
        question=next((part.question for part in parts if part.question), ""),
    )


def folded(text: str) -> str:
    """The text without differences of case and white space, by which texts count as equal."""
    return " ".join(text.casefold().split())


# ---------------------------------------------------------------- columns to a data set

# A text that stands in place of sentences is at most so long, and occurs as often.
LONGEST_PLACEHOLDER, LEAST_REPEATED = 4, 2


def parse_dataset(
    name: str,
    cells: Mapping[str, list[Any]],
    source: str = "",
    notes: Sequence[str] = (),
    reading: TableReading | None = None,
    scale: str | None = None,
    labels: str | None = None,
    raters: str | None = None,
) -> Dataset:
    """The clean `Dataset` of cells by column, as the ``reading`` says, which is made of the names and cells if None.

    Rows with an empty sentence, an empty score or an unknown label (-1, "-", empty) are left out, and counted
    in the notes, after those of the source. ``scale``, ``labels`` and ``raters`` as in `Dataset.from_file`. InputError
    if no form fits, a score is no number, or nothing is left; and with a question where the reading is in doubt.
    """
    reading = reading or TableReading.of(name, {column: values[:HEAD_ROWS] for column, values in cells.items()})
    check_form(reading)
    header = reading.sentences
    notes = [*notes, *reading.notes]
    texts = [[(as_text(cell) or "").strip() for cell in cells[column]] for column in header]
    pairs = list(zip(*texts, strict=True))
    headers = {i for i, row in enumerate(pairs) if row == header and len(row) > 1}
    wrong = {
        "equal to the header": headers,
        "with an empty sentence": {i for column in texts for i, text in enumerate(column) if not text},
        "rejected, discarded or cancelled": rejected_rows(reading, cells),
    }
    left_out = set[int]().union(*wrong.values())
    judged = judge(reading, cells, pairs, left_out, scale, labels, raters) if len(texts) == 2 else None
    if judged is None and (scale or labels):
        raise InputError(f"{name} has no column of scores or labels; leave out ?scale= and ?labels=")
    remarks: list[str] = []
    left_out = set()
    for why, which in (wrong | (judged.left_out if judged else {})).items():
        if (new := which - left_out) and why != JOINED:
            remarks.append(f"{len(new):,} row{'s' * (len(new) > 1)} {why} left out")
        left_out |= which
    keep = [i for i in range(len(pairs)) if i not in left_out]
    if not keep:
        nested = [column for column in cells if any(isinstance(cell, dict | list) for cell in cells[column])]
        if nested:
            remarks.append(f"objects or lists are in {listed(nested)}: write one text or number into each cell")
        raise InputError(f"{name} holds no usable row" + "".join(f"; {remark}" for remark in (*remarks, *notes)))
    remarks += _placeholders(texts, keep)
    question = next((reading.question(doubt) for doubt in reading.doubts), "")
    data = Dataset(name, tuple(texts), source=source, question=question)
    if judged is None:
        return data.select(keep, *notes, *remarks)
    gold = judged.gold
    if judged.bad:
        row, problem = next(iter(judged.bad.items()))
        raise InputError(
            f"{name}, row {row + 1:,}, {problem}; write a number, or leave the cell empty; ?labels= gives words their "
            "values"
        )
    if not gold.is_sure:
        remarks.append(f"read as: {gold.read_as}")
    values = [judged.values[i] for i in keep]
    if len(values) > 1 and len(set(values)) == 1:
        remarks.append(f"the judgement of all {len(values):,} rows is {values[0]}: is it the right column?")
    joined = {row + 1: [other + 1 for other in others] for row, others in judged.joined.items()}
    data = replace(data.select(keep, *notes, *remarks, *judged.notes), joined=joined)
    if gold.kind == NUMBER:
        return replace(data, scores=gold.gold(np.array(values)).tolist())
    data = replace(data, unclear_as_no=gold.with_others_as_no(judged.unclear))
    label_names = gold.label_names(values)
    number = {label: at for at, label in enumerate(label_names)}
    return replace(data, labels=[number[label] for label in values], label_names=label_names)


def check_form(reading: TableReading) -> None:
    """Raises InputError, with the columns, if a table holds no sentences, and with the question if it is in doubt."""
    reading.check()
    if not reading.form:
        columns = listed([column.name for column in reading.columns])
        raise InputError(
            f"{reading.name} has {columns}; it needs sentence1 and sentence2 (with score or label, if there are any), "
            'or anchor, positive and negative, or sentence; columns="A,B" says which they are, or ?columns=A,B after a '
            "file's name"
        )


def flat_columns(cells: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns with those of objects taken apart: labels becomes labels.label and labels.real-label."""
    flat: dict[str, list[Any]] = {}
    for column, values in cells.items():
        keys = dict.fromkeys(key for value in values if isinstance(value, dict) for key in value)
        if not keys:
            flat[column] = values
            continue
        parts = {f"{column}.{key}": [value and value.get(key) for value in values] for key in keys}
        flat |= flat_columns(parts)
    return flat


def _unread(reading: TableReading, data: Dataset) -> list[str]:
    """The columns that a user may miss: any without a gold score, beside one those of usual names."""
    has_gold = data.scores is not None or data.labels is not None
    read = {*reading.sentences, *reading.all(SPLIT, RATING)} | ({reading.judgement} if has_gold else set())
    others = [column for column in reading.columns if column.name not in read]
    if has_gold:
        return [column.name for column in others if is_usual_name(column.name)]
    return [column.name for column in others]


def _placeholders(texts: Sequence[Sequence[str]], keep: Sequence[int]) -> list[str]:
    """A remark on short texts that repeat where sentences should be, such as NS for a translation that is missing."""
    counts = Counter(column[i] for column in texts for i in keep if len(column[i]) <= LONGEST_PLACEHOLDER)
    repeated = {text: count for text, count in counts.items() if count >= LEAST_REPEATED and text.upper() == text}
    long = sum(len(column[i]) > 4 * LONGEST_PLACEHOLDER for column in texts for i in keep)
    if not repeated or 2 * long < len(keep) * len(texts):
        return []
    words = ", ".join(f"{text} ({count:,} times)" for text, count in list(repeated.items())[:3])
    return [f"a placeholder seems to stand for sentences: {words}; leave these rows out"]


def _by_column(row: Mapping[str, Any] | Sequence[Any] | str, number: int) -> dict[str, Any]:
    """The cells of a row by column. InputError if the row has none of the forms that `Dataset.from_list` lists."""
    if isinstance(row, Mapping):
        return {str(column): cell for column, cell in row.items()}
    cells = (row,) if isinstance(row, str) else tuple(row) if isinstance(row, Iterable) else ()
    names: dict[int, tuple[str, ...]] = {1: FORMS[2], 2: FORMS[1]}
    names[3] = FORMS[0] if isinstance([None, *cells][-1], str) else (*FORMS[1], "score")
    if len(cells) not in names:
        raise InputError(f"row {number} has {len(cells)} cells; a row is a dictionary, a pair, or a pair and its score")
    return dict(zip(names[len(cells)], cells, strict=True))


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table with a caption above it."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
