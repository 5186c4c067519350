"""Dataset: rows of one, two or three sentences, with gold scores or labels, as parallel lists.

    Dataset.from_pairs(["a cat", "a dog"], ["a kitten", "a car"], scores=[0.9, 0.1])

Every source and every transform produces this type, in the same units: gold scores run from 0 to 5,
labels are numbered from 0 and have names. Each decision on the way (a row left out, scores
rescaled) is a sentence in ``notes``, which the pages show.
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
from training.data.judgements import JOINED, Judged, judge, rejected_rows
from training.data.tables.cells import as_text, flat, rows_to_columns
from training.data.tables.columns import is_usual_name, listed
from training.data.tables.reading import (
    FORMS,
    LABEL,
    RATING,
    SCORE,
    SENTENCE1,
    SENTENCE2,
    SPLIT,
    SPLIT_NAMES,
    TableReading,
    requested_columns,
)
from training.data.tables.rows import HEAD_ROWS, OpenedTable
from training.data.tables.table import opened_file
from training.errors import InputError
from training.sources import hub_dataset

NOTEBOOK_ROWS = 5
LONGEST_NAME = 60
# The beginning of the note on columns that are not used.
NOT_READ = "not read"
# The number of first rows of a data set of the datasets library that show what its columns are.
FIRST_ROWS = 100
# The most characters of a placeholder, a short text in place of a sentence, and the least number of
# its occurrences.
LONGEST_PLACEHOLDER = 4
LEAST_REPEATED = 2

# The data that `as_dataset` takes. The libraries datasets and pandas may not be installed.
Data = Any


@dataclass(frozen=True)
class Dataset:
    """Rows of one, two or three sentences each; every list has the same length.

    ``columns`` holds one list per sentence of a row: (sentence,), (first, second) or (anchor,
    positive, negative). ``scores`` are gold scores in 0–5, ``labels`` indices into ``label_names``.
    ``rows`` are the 1-based row numbers in the source, so that a message can name a row that the
    user can find.

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
    # The question to answer before all pairs are used as positive pairs; "" without one.
    question: str = field(default="", repr=False)
    # The value of ``?labels=`` that makes unclear labels, such as "maybe", the opposite of a match;
    # "" if there are none.
    unclear_as_no: str = field(default="", repr=False)
    # Several rows may judge one pair. The first of them is in ``rows``; this maps its number to the
    # numbers of the others.
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
        columns: dict[str, Iterable[Any]] = {SENTENCE1: sentences1, SENTENCE2: sentences2}
        if scores is not None:
            columns[SCORE] = scores
        if labels is not None:
            columns[LABEL] = labels
        return cls.from_columns(columns, name)

    @classmethod
    def from_columns(
        cls, cells: Mapping[str, Iterable[Any]], name: str = "columns", columns: str | None = None
    ) -> Dataset:
        """Columns of cells by name: lists, arrays or series, which are read as the columns of a file.

        Names are recognised (text_a is sentence1, similarity is score), rows with an empty sentence
        or score are left out, scores are rescaled to 0–5 by the scale that they seem to have; the
        notes state all of this. ``columns`` says which column is which, such as "left,right,gold",
        in the form that `from_file` takes. InputError if no form of data has these columns, they
        differ in length, or a score is not a number; QuestionError if several columns may be the
        judgement.
        """
        lists, reading = read_cells(cells, name, columns)
        used = {column: lists[column] for column in reading.used}
        if len(set(map(len, used.values()))) > 1:
            lengths = ", ".join(f"{column} has {len(values):,}" for column, values in used.items())
            raise InputError(f"the columns of {name} differ in length: {lengths}")
        return parse_dataset(name, used, "memory", reading=reading)

    @classmethod
    def from_list(
        cls,
        rows: Iterable[Mapping[str, Any] | Sequence[Any] | str],
        name: str = "list",
        columns: str | None = None,
    ) -> Dataset:
        """Rows as dictionaries by column, or as tuples; rules and errors as `from_columns`.

        A tuple is (sentence1, sentence2), (sentence1, sentence2, gold score) or, of three texts,
        (anchor, positive, negative); a row that is a text is one sentence. ``columns`` says which
        column is which, in the form that `from_file` takes.
        """
        named = [_by_column(row, number) for number, row in enumerate(rows, start=1)]
        return cls.from_columns(rows_to_columns(named), name, columns)

    @classmethod
    def from_pandas(
        cls, frame: Any, name: str = "DataFrame", columns: str | None = None
    ) -> Dataset:
        """The rows of a pandas DataFrame; rules and errors as `from_columns`."""
        return cls.from_columns(
            {str(column): frame[column] for column in frame.columns}, name, columns
        )

    @classmethod
    def from_datasets(
        cls, rows: Any, name: str = "datasets", columns: str | None = None
    ) -> Dataset:
        """One split of a data set of the datasets library, with its class names; rules and errors as `from_columns`.

        At most 1,000,000 rows are read.
        """
        if isinstance(rows, dict):
            raise InputError(f"{name} has the splits {', '.join(rows)}; give one of them")
        head = rows_to_columns(list(rows.take(FIRST_ROWS)))
        reading = TableReading.of(name, flat_columns(head))
        reading = reading.with_columns(requested_columns(columns, reading))
        check_form(reading)
        # A column is read if it is used, or if it holds objects and one of their fields is used:
        # "labels" for "labels.label".
        used = []
        for column in head:
            if any(f"{part}.".startswith(f"{column}.") for part in reading.used):
                used.append(column)
        # The columns have been picked already, by the first rows.
        cells, has_more = hub_dataset.read_columns(rows, lambda _: used)
        data = parse_dataset(name, flat_columns(cells), "memory", reading=reading)
        if has_more:
            return data.with_note(f"only the first {hub_dataset.MOST_ROWS:,} rows are read")
        return data

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
            encoding: the encoding of its text, such as windows-1251; None to find out.
            columns: the names of the columns, separated by commas: one of sentences, two of pairs,
                or three, of triplets or of pairs and their judgement ("left,right,gold";
                "left,right,-" says that there is no judgement). None to go by the evidence.
            split: the split to read, of a file that has a column of splits; None for all rows.
            scale: the scores of the least and of the most similar pairs: "1-7"; None to find out.
            labels: the values of labels: "similar:1,different:0"; None to go by their names.
            raters: the raters that count, of a file with a column of raters or a column for each:
                "r1,r2"; None for all.
            sheet: the sheet of a workbook; None for the one whose rows have the most sentences.
        """
        path = Path(path).expanduser()
        with opened_file(path, encoding, sheet) as table:
            # The table of a .gz file has the path of a temporary file, so name and source are given
            # here.
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
        requested = requested_columns(columns, table.reading)
        reading = replace(table.reading.with_columns(requested), name=name)
        split_column = reading.first(SPLIT)
        if split and split_column is None:
            raise InputError(f"{name} has no column of splits; leave out ?split=")
        # `in_memory` adds a note for each malformed row, by the number of the row.
        faults: dict[int, str] = {}
        cells = table.in_memory(reading.used, faults)
        notes = list(table.remarks)
        if faults:
            first = min(faults)
            notes.append(
                f"marked rows: {len(faults):,}, the first is row {first:,}: {faults[first]}"
            )
        data = parse_dataset(name, cells, str(table.path), notes, reading, scale, labels, raters)
        if unread := _unread(reading, data):
            data = data.with_note(f"{NOT_READ}: {listed(unread)}; ?columns= says which columns are")
        if split_column is None:
            return data
        # The used columns include the one of splits. If ``split`` is None, all rows stay, and a note
        # lists the splits.
        return _of_split(data, split_column, cells[split_column], split)

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
        for row in zip(*cells.values(), strict=True):
            yield dict(zip(cells, row, strict=True))

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a column for each text, and ``score`` (0 to 5) or ``label`` (its name)."""
        # pyarrow takes time to import.
        import pyarrow

        return pyarrow.table(self._by_name()).to_pandas()

    def _by_name(self) -> dict[str, list[Any]]:
        """The columns by their names. A label is its name and not its number."""
        cells: dict[str, list[Any]] = dict(zip(FORMS[len(self.columns)], self.columns, strict=True))
        if self.scores is not None:
            cells[SCORE] = self.scores
        if self.labels is not None:
            cells[LABEL] = [self.label_names[label] for label in self.labels]
        return cells

    def __repr__(self) -> str:
        name = self.name
        if len(name) > LONGEST_NAME:
            name = name[: LONGEST_NAME - 1] + "…"
        return f"Dataset({name!r}, {len(self):,} {self.kind})"

    def _repr_html_(self) -> str:
        cells = self._by_name()
        if self.scores is not None:
            cells[SCORE] = [f"{score:g}" for score in self.scores[:NOTEBOOK_ROWS]]
        # Only the first scores are formatted, so the columns differ in length.
        rows = islice(zip(*cells.values(), strict=False), NOTEBOOK_ROWS)
        return html_table(tuple(cells), rows, "; ".join((repr(self), *self.notes)))

    @property
    def kind(self) -> str:
        """The form in words: sentences, pairs, scored pairs, labelled pairs or triplets."""
        if len(self.columns) == 1:
            return SENTENCES
        if len(self.columns) == 3:
            return TRIPLETS
        if self.scores is not None:
            return SCORED
        return LABELLED if self.labels is not None else PAIRS

    def select(self, keep: Iterable[int], *notes: str) -> Dataset:
        """The rows at these positions, in this order, with ``notes`` added."""
        places = list(keep)
        return replace(
            self,
            columns=tuple(_at(column, places) for column in self.columns),
            scores=None if self.scores is None else _at(self.scores, places),
            labels=None if self.labels is None else _at(self.labels, places),
            rows=_at(self.rows, places),
            notes=(*self.notes, *notes),
        )

    def with_note(self, *notes: str) -> Dataset:
        """The data with one more note, or several."""
        return replace(self, notes=(*self.notes, *notes))


def read_cells(
    cells: Mapping[str, Iterable[Any]], name: str, columns: str | None
) -> tuple[dict[str, list[Any]], TableReading]:
    """The columns of cells as lists, and what they are; for the arguments see `Dataset.from_columns`."""
    lists = {}
    for column, part in cells.items():
        values: Any = part
        # A text would be taken for a list of its characters.
        if isinstance(values, str):
            raise InputError(f"{column} is one text; give a list of them")
        lists[column] = values.tolist() if hasattr(values, "tolist") else list(values)
    lists = flat_columns(lists)
    reading = _reading_of(name, lists)
    return lists, reading.with_columns(requested_columns(columns, reading))


def as_dataset(data: Data, name: str) -> Dataset:
    """Makes a `Dataset` of rows, columns, a DataFrame or a set of the datasets library. InputError for other data."""
    if isinstance(data, Dataset):
        return data
    # Types are told by their names, as pandas need not be installed.
    makers: dict[str, Callable[..., Dataset]] = {
        "DataFrame": Dataset.from_pandas,
        "list": Dataset.from_list,
        "tuple": Dataset.from_list,
        "dict": Dataset.from_columns,
    }
    kind = type(data).__name__
    is_of_datasets = type(data).__module__.startswith("datasets.")
    make = Dataset.from_datasets if is_of_datasets else makers.get(kind)
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
            raise InputError(
                f"the labels of {first.name} are {', '.join(first.label_names)}, those of {other.name} "
                f"{', '.join(other.label_names)}"
            )
    columns = zip(*(part.columns for part in parts), strict=True)
    # The question that the columns of a part leave open is asked for all parts.
    question = next((part.question for part in parts if part.question), "")
    scores: list[float] = []
    labels: list[int] = []
    rows: list[int] = []
    notes = []
    for part in parts:
        scores += part.scores or ()
        labels += part.labels or ()
        rows += part.rows
        notes += [f"{part.name}: {note}" for note in (*part.notes, f"{len(part):,} rows")]
    # ``joined`` and ``unclear_as_no`` are about the rows and the labels of a single file, and are
    # left out.
    return Dataset(
        name="+".join(part.name for part in parts),
        columns=tuple(list(chain.from_iterable(column)) for column in columns),
        scores=None if first.scores is None else scores,
        labels=None if first.labels is None else labels,
        label_names=first.label_names,
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        notes=tuple(notes),
        rows=rows,
        question=question,
    )


def folded(text: str) -> str:
    """The text in lower case and with single spaces, for comparisons that ignore case and white space."""
    return " ".join(text.casefold().split())


def folded_rows(data: Dataset) -> list[tuple[str, ...]]:
    """The sentences of each row, `folded`."""
    return [tuple(map(folded, row)) for row in zip(*data.columns, strict=True)]


# ---------------------------------------------------------------- columns to a data set


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
    """Makes a clean `Dataset` of cells by column. A ``reading`` of None is made from the names and the cells.

    Rows with an empty sentence, an empty score or an unknown label (-1, "-", empty) are left out,
    and counted in the notes, after the notes on the source. ``scale``, ``labels`` and ``raters`` as
    in `Dataset.from_file`. InputError if no form fits, a score is not a number, or nothing is left;
    QuestionError if the reading is in doubt.
    """
    reading = reading or _reading_of(name, cells)
    check_form(reading)
    names = reading.sentences
    texts = []
    for column in names:
        texts.append([(as_text(cell) or "").strip() for cell in cells[column]])
    rows = list(zip(*texts, strict=True))
    repeated_headers = set()
    empty = set()
    for at, row in enumerate(rows):
        if "" in row:
            empty.add(at)
        # The header may be repeated further down. A single sentence may equal its column's name.
        if len(row) > 1 and row == names:
            repeated_headers.add(at)
    rejected = rejected_rows(reading, cells)
    left_out = {
        "equal to the header": repeated_headers,
        "with an empty sentence": empty,
        "rejected, discarded or cancelled": rejected,
    }
    judged = None
    # Only pairs have judgements. A score or label of triplets or single sentences is not read.
    if len(texts) == 2:
        unusable = repeated_headers | empty | rejected
        judged = judge(reading, cells, rows, unusable, scale, labels, raters)
    if judged is not None:
        left_out |= judged.left_out
    elif scale or labels or raters:
        raise InputError(
            f"{name} has no column of scores or labels; leave out ?scale=, ?labels= and ?raters="
        )

    notes = [*notes, *reading.notes]
    remarks = []
    keep = set(range(len(rows)))
    for reason, positions in left_out.items():
        # A row is counted under the first of its reasons only.
        count = len(keep & positions)
        # Nothing is lost with a joined row: its judgement counts for the earlier one.
        if count and reason != JOINED:
            remarks.append(f"{count:,} row{'s' * (count > 1)} {reason} left out")
        keep -= positions
    if not keep:
        nested = [column for column, values in cells.items() if _has_nested(values)]
        if nested:
            remarks.append(
                f"objects or lists are in {listed(nested)}: write one text or number into each cell"
            )
        raise InputError("; ".join((f"{name} holds no usable row", *remarks, *notes)))

    # `check_form` has raised an error for all doubts except one about the use as positive pairs.
    question = next((reading.question(doubt) for doubt in reading.doubts), "")
    data = Dataset(name, tuple(texts), source=source, question=question)
    data = data.select(sorted(keep), *notes, *remarks)
    data = data.with_note(*_placeholder_notes(data.columns))
    if judged is None:
        return data
    return _with_judgements(data, judged)


def _has_nested(values: Sequence[Any]) -> bool:
    """Whether some of these cells are objects or lists."""
    return any(isinstance(value, dict | list) for value in values)


def _with_judgements(data: Dataset, judged: Judged) -> Dataset:
    """The data with its scores or labels. InputError if a judgement cannot be read."""
    gold = judged.gold
    if judged.bad:
        row, problem = next(iter(judged.bad.items()))
        raise InputError(
            f"{data.name}, row {row + 1:,}, {problem}; write a number, or leave the cell empty; ?labels= gives words "
            "their values"
        )
    # ``data`` counts rows from 1, ``judged`` from 0. Rows without a value are in
    # ``judged.left_out``, so ``data`` does not have them. A value is a number, or the name of a
    # label.
    values = [judged.values[row - 1] for row in data.rows]
    notes = [] if gold.is_sure else [f"read as: {gold.read_as}"]
    if len(values) > 1 and len(set(values)) == 1:
        notes.append(
            f"the judgement of all {len(values):,} rows is {values[0]}: is it the right column?"
        )
    # By the first row of a pair, the further rows that judge the same pair; rows count from 1.
    joined = {row + 1: [other + 1 for other in others] for row, others in judged.joined.items()}
    data = replace(data, joined=joined).with_note(*notes, *judged.notes)
    if gold.kind == NUMBER:
        # `gold.gold` stretches the scale of the column to 0–5.
        return replace(data, scores=gold.gold(np.array(values)).tolist())
    names = gold.label_names(values)
    index_of = {name: index for index, name in enumerate(names)}
    # ``unclear_as_no`` is offered to a user who wants to count words such as "maybe" as no match.
    return replace(
        data,
        labels=[index_of[value] for value in values],
        label_names=names,
        unclear_as_no=gold.with_others_as_no(judged.unclear),
    )


def _reading_of(name: str, cells: Mapping[str, Sequence[Any]]) -> TableReading:
    """The reading of a table by the first cells of its columns."""
    return TableReading.of(name, {column: values[:HEAD_ROWS] for column, values in cells.items()})


def check_form(reading: TableReading) -> None:
    """Raises InputError if a table has no columns of sentences, and QuestionError if its reading is in doubt."""
    reading.check()
    if not reading.form:
        columns = listed([column.name for column in reading.columns])
        raise InputError(
            f"{reading.name} has {columns}; it needs sentence1 and sentence2 (with score or label, if there are any), "
            'or anchor, positive and negative, or sentence; columns="A,B" says which they are, or ?columns=A,B after a '
            "file's name"
        )


def flat_columns(cells: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns, with a column of objects taken apart: labels becomes labels.label and labels.real-label."""
    parts: dict[str, list[Any]] = {}
    for column, values in cells.items():
        if not _has_nested(values):
            parts[column] = values
            continue
        rows = []
        for value in values:
            # An empty cell has no parts, and must not become a column of its own.
            row = {} if value is None else {column: value}
            rows.append(flat(row))
        parts |= rows_to_columns(rows)
    return parts


def _of_split(data: Dataset, column: str, cells: Sequence[Any], split: str | None) -> Dataset:
    """The rows of a split by the ``cells`` of the column of splits. InputError if it has no rows.

    If ``split`` is None, all rows with a note on the splits.
    """
    # Names of splits are compared in lower case, as names of labels are. ``data.rows`` counts from
    # 1, and ``cells`` from 0.
    split_of_rows = [label_text(cells[row - 1]) for row in data.rows]
    counts = Counter(split_of_rows)
    if split is None:
        some = ", ".join(f"{count:,} {value}" for value, count in counts.items())
        return data.with_note(
            f"the column {column} holds {some}: all rows are read; ?split= takes one"
        )
    # A split may be called otherwise in the file, as dev is called validation.
    names = (split.lower(), *SPLIT_NAMES.get(split.lower(), ()))
    places = [at for at, value in enumerate(split_of_rows) if value in names]
    if not places:
        raise InputError(
            f"{data.name} has no rows of the split {split!r}; it has {', '.join(counts)}"
        )
    return data.select(places, f"only the {len(places):,} rows of the split {split} are read")


def _unread(reading: TableReading, data: Dataset) -> list[str]:
    """The columns that are not read although a user may expect it.

    If the data has scores or labels, these are the unread columns with usual names, else all unread
    columns, as any of them may be the judgement.
    """
    has_gold = data.scores is not None or data.labels is not None
    # The roles of the columns that are read. Sentences and triplets may have a column with the role
    # of a score or label, which is not read, so these roles are added only for data with gold.
    roles = [*reading.form, SPLIT, RATING]
    if has_gold:
        roles += [SCORE, LABEL]
    used = reading.all(*roles)
    names = [column.name for column in reading.columns if column.name not in used]
    return [name for name in names if is_usual_name(name) or not has_gold]


def _placeholder_notes(columns: Sequence[Sequence[str]]) -> list[str]:
    """A remark on short texts that repeat where sentences should be, such as NS for a missing translation."""
    texts = list(chain.from_iterable(columns))
    long_texts = 0
    counts: Counter[str] = Counter()
    for text in texts:
        # This length is enough for a short sentence.
        if len(text) > 4 * LONGEST_PLACEHOLDER:
            long_texts += 1
        # A placeholder such as NS or -99 has no lower-case letters.
        if len(text) <= LONGEST_PLACEHOLDER and text.upper() == text:
            counts[text] += 1
    repeated = []
    for text, count in counts.items():
        if count >= LEAST_REPEATED:
            repeated.append(f"{text} ({count:,} times)")
    # Where most texts are short, such as single words, a repeated short text is nothing special.
    if not repeated or long_texts < len(texts) / 2:
        return []
    some = ", ".join(repeated[:3])
    return [f"a placeholder seems to stand for sentences: {some}; leave these rows out"]


def _at(values: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [values[place] for place in places]


def _by_column(row: Mapping[str, Any] | Sequence[Any] | str, number: int) -> dict[str, Any]:
    """The cells of a row by column. InputError if the row has none of the forms that `Dataset.from_list` lists."""
    if isinstance(row, Mapping):
        return {str(column): cell for column, cell in row.items()}
    if not isinstance(row, Iterable):
        raise InputError(
            f"row {number} is of type {type(row).__name__}; a row is a dictionary, a pair, or a pair and its score"
        )
    cells = (row,) if isinstance(row, str) else tuple(row)
    names = FORMS.get(len(cells), ())
    if not names:
        raise InputError(
            f"row {number} has {len(cells)} cells; a row is a dictionary, a pair, or a pair and its score"
        )
    if len(cells) == 3 and not isinstance(cells[2], str):
        names = (SENTENCE1, SENTENCE2, SCORE)
    return dict(zip(names, cells, strict=True))


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table with a caption above it."""
    body = "".join(_html_row("td", row) for row in rows)
    return f"<p>{escape(caption)}</p><table><thead>{_html_row('th', header)}</thead><tbody>{body}</tbody></table>"


def _html_row(tag: str, cells: Iterable[object]) -> str:
    parts = [f"<{tag} style='text-align:left'>{escape(str(cell))}</{tag}>" for cell in cells]
    return f"<tr>{''.join(parts)}</tr>"
