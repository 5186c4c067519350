"""TableReading: what each column of a table is, read once by evidence and asked where the evidence does not decide.

    reading = open_table(Path("pairs.csv")).reading
    reading.columns     Column("Frage A", "sentence1", "read like sentences"), Column("gleich?", "label", "yes 7, no 9")
    reading.doubts      Doubt("which column says how alike the two sentences are?", ("same", "rank"))

`OpenedTable.reading` makes it of the names and the first cells, once for each file; pages, commands, HTTP and Python
all use it. What the user has said comes first (`with_columns`, `with_roles`), then names of the field and of labelling
tools, with dotted and numbered ones, then the cells (`Cells`). One candidate for the judgement of a pair is taken and
said; several, or one that contradicts another, are a doubt: `check` refuses to go on and says what to type. A doubt
that is no more than possible stops only those who would take all pairs for positives. No cell is changed here: how
judgements are read is in `training.data.gold`, and how several of one pair are joined in `training.data.judgements`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, pairwise
from statistics import fmean
from typing import Any
from unicodedata import category

from training.catalogue import NLI_LABELS
from training.data.tables.cells import UNSURE, as_text, judgement_of, parse_number, quoted
from training.data.tables.columns import (
    JUDGEMENTS,
    LABELS,
    NEGATIVES,
    NLI_PAIR,
    PAIR_COLUMN_NAMES,
    SCORES,
    SENTENCES,
    PairColumns,
    is_usual_name,
    listed,
    normalize_name,
    side_of,
    split_names,
)
from training.errors import InputError, QuestionError, did_you_mean

SENTENCE1, SENTENCE2, SENTENCE = "sentence1", "sentence2", "sentence"
ANCHOR, POSITIVE, NEGATIVE = "anchor", "positive", "negative"
SCORE, LABEL, RATER, RATING, STATUS, SPLIT = "score", "label", "rater", "rating", "status", "split"
GROUP, ID, CATEGORY, UNUSED = "group", "id", "category", "unused"
TEXTS = (SENTENCE1, SENTENCE2, ANCHOR, POSITIVE, NEGATIVE, SENTENCE)
ROLES = (*TEXTS, SCORE, LABEL, RATING, RATER, STATUS, SPLIT, GROUP, ID, CATEGORY, UNUSED)
# The first form whose columns are all there is taken.
FORMS = ((ANCHOR, POSITIVE, NEGATIVE), (SENTENCE1, SENTENCE2), (SENTENCE,))
# In place of the judgement: there is none.
NO_JUDGEMENT = "-"

SPLIT_NAMES = {
    "dev": ("dev", "validation", "valid", "val", "trial"),
    "train": ("train", "training"),
    "test": ("test", "testing"),
}
ALL_SPLITS = frozenset(chain(*SPLIT_NAMES.values()))
SPLIT_COLUMNS = ("split", "partition", "subset")
# The names of a rater's id, and of the columns of several raters before their numbers.
RATER_COLUMNS = (
    "rater",
    "raterid",
    "annotator",
    "annotatorid",
    "worker",
    "workerid",
    "judge",
    "coder",
    "coderid",
    "user",
)
RATING_STEMS = (*RATER_COLUMNS, "rating", "annotation", "vote", "judgement", "judgment", "score", "label")
STATUS_COLUMNS = ("status", "assignmentstatus", "responsestatus", "wascancelled", "state")
ANSWERS = frozenset(("accept", "reject", "ignore"))
ID_COLUMNS = ("id", "pairid", "guid", "uid", "idx", "index", "hitid", "assignmentid", "rowid", "no", "nr", "number")
# Texts that belong to a sentence but are none of a pair, if the other text has a name of sentences.
BESIDE_SENTENCES = ("title", "headline", "subject", "summary", "author", "comment", "note", "remark", "topic", "url")
CATEGORIES = ("genre", "topic", "domain", "source", "dataset", "language", "lang", "channel", "type", "file", "year")

# The least share of letters in the characters of a sentence.
LETTERS = 0.6
# From here on lie the scripts that do not put spaces between words.
UNSPACED = "\u0e00"
# A column in which each text occurs so often, on average, holds no sentences but categories.
REPEATS = 4
# Fewer rows say nothing of repetitions.
FEW_ROWS = 12
# Two columns are no pair, such as a name and a comment, if one is so many times as long as the other.
UNLIKE = 4
# The different values of a column that may be a judgement in words that nobody knows.
FEW_VALUES = 7
# The cells that a question shows of each column.
EXAMPLES = 3

# A number or a code without a space, such as the id of a text.
_ID = re.compile(r"[!-~]*\d[!-~]*")
# What stands for a letter in a web page.
_ENTITY = re.compile(r"&(?:amp|quot|lt|gt|nbsp|#\d{2,5});")


@dataclass(frozen=True)
class Cells:
    """The look of the cells of a column: the ``kind``, and in words why."""

    kind: str
    words: str = ""
    values: int = 0
    length: float = 0.0

    @classmethod
    def of(cls, cells: Sequence[Any]) -> Cells:
        values = [value for cell in cells for value in judgement_of(cell)]
        texts = [text.strip() for value in values if (text := as_text(value)) is not None]
        if not texts:
            return cls("empty")
        kind, words = _kind_of(texts, Counter(text.lower() for text in texts))
        return cls(kind, words, len({text.lower() for text in texts}), fmean(map(len, texts)))


# The evidence for a role that the user has named.
AS_YOU_SAY = "as you say"


@dataclass(frozen=True)
class Column:
    """A column, its role, and the evidence for that in words, which is empty where the name says so."""

    name: str
    role: str = UNUSED
    evidence: str = ""

    @property
    def is_by_cells(self) -> bool:
        """Whether the cells have decided, and neither the name nor the user."""
        return self.evidence not in ("", AS_YOU_SAY)


@dataclass(frozen=True)
class Doubt:
    """A question that the table leaves open, and the columns that may be the answer.

    ``is_possible_only``: nothing speaks for any of them but that it cannot be excluded, so that only those who take
    all pairs for positives have to know.
    """

    question: str
    candidates: tuple[str, ...]
    is_possible_only: bool = False


@dataclass(frozen=True)
class TableReading:
    """The roles of the columns of a table, in its order, and what is doubtful about them."""

    name: str
    columns: tuple[Column, ...]
    doubts: tuple[Doubt, ...] = ()
    # The first cells by column, which the questions quote.
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict, repr=False, compare=False)
    # The format of the file in words, which an error about columns states: a wrong delimiter makes wrong columns.
    layout: str = ""

    @classmethod
    def of(
        cls, name: str, rows: Mapping[str, Sequence[Any]], requested: Sequence[str] = (), layout: str = ""
    ) -> TableReading:
        """The reading of a table by the first cells of its columns; they may be empty, where only names are known.

        ``requested`` names one column of sentences, the two of pairs, or these and a third: a judgement, a negative, or
        "-" for no judgement. With an empty second name the third is the class of single sentences. InputError if the
        table has no such column.
        """
        return _Reader(name, rows, layout).read(requested)

    def with_columns(self, requested: Sequence[str]) -> TableReading:
        """The reading with the columns that a user has named, as in `of`; the same without any."""
        return TableReading.of(self.name, self.rows, requested, self.layout) if requested else self

    def with_roles(self, roles: Mapping[str, str]) -> TableReading:
        """The reading with other roles of some columns, as a user has chosen them. Its doubts are settled then."""
        for name, role in roles.items():
            if name not in self.rows or role not in ROLES:
                raise InputError(f"{self.name} has no column {quoted(name)}, or there is no role {role!r}")
        columns = (
            replace(column, role=roles[column.name], evidence=AS_YOU_SAY) if column.name in roles else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns), doubts=())

    def all(self, *roles: str) -> tuple[str, ...]:
        """The columns with one of these roles."""
        return tuple(column.name for column in self.columns if column.role in roles)

    def first(self, *roles: str) -> str | None:
        """The first column with one of these roles; None without one."""
        return next(iter(self.all(*roles)), None)

    @property
    def form(self) -> tuple[str, ...]:
        """The roles of the sentences of a row; () without any."""
        there = {column.role for column in self.columns}
        return next((form for form in FORMS if there.issuperset(form)), ())

    @property
    def sentences(self) -> tuple[str, ...]:
        """The columns of the sentences of a row, in the order of `form`."""
        return tuple(self.first(role) or "" for role in self.form)

    @property
    def judgement(self) -> str | None:
        """The column of scores or labels of pairs; None without one."""
        return self.first(SCORE, LABEL)

    @property
    def target(self) -> str | None:
        """The column of scores or labels, of pairs or of single sentences; the first of several raters."""
        return self.first(SCORE, LABEL, RATING)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that make a data set."""
        return self.all(*self.form, SCORE, LABEL, RATING, RATER, STATUS, SPLIT)

    @property
    def notes(self) -> list[str]:
        """Remarks on what the cells and not the names have decided, and on odd sentences; a sentence each."""
        by_cells = [column for column in self.columns if column.is_by_cells]
        texts = [column.name for column in by_cells if column.role in TEXTS]
        notes = []
        if len(texts) == 2 and len(self.sentences) == 2:
            alone = ", the only columns," if len(self.columns) == 2 else ""
            notes.append(f"{self.sentences[0]} and {self.sentences[1]}{alone} are read as the two sentences.")
        elif texts and len(self.columns) > 1:
            notes += [f"{name} is read as a {self._role(name)}." for name in texts]
        notes += [
            f"{column.name} is read as the judgement: {column.evidence}."
            for column in by_cells
            if column.role in (SCORE, LABEL) and len(self.sentences) == 2
        ]
        if ratings := self.all(RATING):
            notes.append(f"The{listed(ratings)[3:]} are read as the judgements of {len(ratings)} raters.")
        return notes + _oddities(self.sentences, self.rows)

    def pair(self) -> PairColumns:
        """The columns of pairs. InputError, which lists the columns, if there are none, and as `check`."""
        self.check()
        first, second = self.first(SENTENCE1, ANCHOR), self.first(SENTENCE2, POSITIVE)
        if first is None or second is None:
            raise InputError(
                f"{self.name} has {self._listed()}, but two with sentences are needed: call them sentence1 "
                "and sentence2, or say which they are."
            )
        gold = self.first(SCORE), self.first(LABEL), self.first(NEGATIVE)
        return PairColumns(first, second, *gold, ratings=self.all(RATING))

    def sentence(self) -> str:
        """The one column of sentences, the second of a pair. InputError if there is none."""
        if (column := self.first(SENTENCE) or next(iter(self.sentences), None)) is not None:
            return column
        raise InputError(f"{self.name} has {self._listed()}: call the one to use sentence, or say which it is.")

    def check(self, for_positives: bool = False) -> None:
        """Raises QuestionError if there is a doubt that matters."""
        for doubt in self.doubts:
            if for_positives or not doubt.is_possible_only:
                raise QuestionError(self.question(doubt))

    def question(self, doubt: Doubt) -> str:
        """The question, with three cells of each column, and what to type."""
        columns = " or ".join(f"{name} ({self.examples(name)})" for name in doubt.candidates)
        sentences = ",".join(_typed(name) for name in self.sentences if self.form != FORMS[0])
        answer = ",".join(filter(None, (sentences, _typed(doubt.candidates[0]))))
        none = f", or {sentences},{NO_JUDGEMENT} for none" if sentences else ""
        how = f"Type --columns {answer}{none}; in Python columns=, or ?columns= after its name."
        return f"{self.name}: {doubt.question} {columns}? {how}"

    def named(self) -> str:
        """The sentences and the judgement as ``?columns=`` names them."""
        names = [*self.sentences, *([self.target or NO_JUDGEMENT] if len(self.sentences) == 2 else [])]
        return ",".join(map(_typed, names))

    def examples(self, name: str) -> str:
        """The first different cells of a column, which a question quotes."""
        values = (value for cell in self.rows[name] for value in judgement_of(cell))
        texts = dict.fromkeys(text[:40] for value in values if (text := as_text(value)) is not None)
        return ", ".join(list(texts)[:EXAMPLES])

    def _listed(self) -> str:
        return listed([column.name for column in self.columns])

    def _role(self, name: str) -> str:
        return next(column.role for column in self.columns if column.name == name)


class _Reader:
    """The reading of one table while it is made."""

    def __init__(self, name: str, rows: Mapping[str, Sequence[Any]], layout: str) -> None:
        self.name, self.rows, self.layout = name, rows, layout
        self.cells = {column: Cells.of(values) for column, values in rows.items()}
        self.roles: dict[str, tuple[str, str]] = {}
        self.doubts: list[Doubt] = []
        # Whole names come before the last parts of dotted ones, and the first of equal names before the others.
        self.by_key: dict[str, str] = {}
        for key in (normalize_name, lambda column: normalize_name(re.split(r"[./]", column)[-1])):
            for column in rows:
                # What a model suggests is no judgement.
                if not re.search("suggestion|prediction", column.lower()):
                    self.by_key.setdefault(key(column), column)

    def read(self, requested: Sequence[str]) -> TableReading:
        """Gives the columns their roles, those of the sentences first."""
        third = self._take_requested(requested) if requested else None
        if not requested:
            self._find_splits()
            self._find_sentences()
        self._find_splits()
        if third == NO_JUDGEMENT:
            pass
        elif third:
            self._take_third(third)
        else:
            self._find_judgement(sentences_are_named=bool(requested))
        self._find_the_rest()
        columns = tuple(Column(column, *self.roles.get(column, ())) for column in self.rows)
        return TableReading(self.name, columns, tuple(self.doubts), self.rows, self.layout)

    # ------------------------------------------------------------ what the user says

    def _take_requested(self, requested: Sequence[str]) -> str | None:
        names = [name for name in requested if name.strip()]
        if not 1 <= len(names) <= 3:
            raise InputError(f"Name one column, two, or three with the gold score last; {len(names)} are named.")
        texts = [self._existing(name) for name in names[:2]]
        if len(requested) == 3 and not requested[1].strip():
            # "text,,topic": a sentence and its class.
            self.roles[texts[0]] = SENTENCE, AS_YOU_SAY
            return names[-1] if len(names) > 1 else None
        if len(set(texts)) < len(texts):
            raise InputError(f"Both sentences are to come from the column {texts[0]}: name two different columns.")
        for column, role in zip(texts, FORMS[3 - len(texts)], strict=True):
            self.roles[column] = role, AS_YOU_SAY
        return names[2] if names[2:] else None

    def _take_third(self, name: str) -> None:
        column = self._existing(name)
        if any(role == SENTENCE for role, _ in self.roles.values()):
            self.roles[column] = LABEL, AS_YOU_SAY
        elif normalize_name(column) in NEGATIVES or self.cells[column].kind == "sentences":
            self.roles = dict(zip((*self.roles, column), ((role, AS_YOU_SAY) for role in FORMS[0]), strict=True))
        else:
            self.roles[column] = self._kind_of_judgement(column), AS_YOU_SAY

    def _existing(self, requested: str) -> str:
        """The column as the table spells it."""
        if requested in self.rows:
            return requested
        names = [name for name in self.rows if normalize_name(name) == normalize_name(requested)]
        if len(names) == 1:
            return names[0]
        columns = list(self.rows)
        meant = did_you_mean(requested, columns)
        layout = f" ({self.layout})" if self.layout else ""
        raise InputError(f"{self.name}{layout} has no column {quoted(requested)}; it has {listed(columns)}{meant}")

    # ------------------------------------------------------------ the sentences

    def _find_sentences(self) -> None:
        pair = self._pair_by_name() or self._pair_of_numbers()
        negative = self._named(NEGATIVES)
        if pair:
            roles = FORMS[0][:2] if negative else FORMS[1]
            self.roles |= {column: (role, "") for column, role in zip(pair, roles, strict=True)}
            if negative:
                self.roles[negative] = NEGATIVE, ""
            return
        if pair := self._pair_by_cells():
            self.roles |= {column: (role, "read like sentences") for column, role in zip(pair, FORMS[1], strict=True)}
            return
        texts = self._texts()
        if (named := self._named(SENTENCES)) and (not texts or named in texts):
            self.roles[named] = SENTENCE, ""
        elif len(texts) == 1 or (len(self.rows) == 1 and not self._are_numbers(next(iter(self.rows)))):
            self.roles[[*texts, *self.rows][0]] = SENTENCE, "reads like sentences"
        elif len(texts) > 1 and self._longest(texts):
            self.roles[self._longest(texts)] = SENTENCE, "has the longest sentences"
        elif texts:
            self.doubts.append(Doubt("which column holds the sentences, or which two hold pairs?", tuple(texts)))

    def _pair_by_name(self) -> tuple[str, str] | None:
        by_key = self.by_key
        pairs = (pair for pair in PAIR_COLUMN_NAMES if pair[0] in by_key and pair[1] in by_key)
        pair = next(pairs, None)
        # Letters alone are weak names: where their cells are numbers, they are those of measurements.
        is_weak = pair is not None and len(pair[0]) == 1 and self._are_numbers(by_key[pair[0]])
        if pair and not is_weak and by_key[pair[0]] != by_key[pair[1]]:
            return by_key[pair[0]], by_key[pair[1]]
        with_other = ((key, f"{key}pair") for key in by_key if f"{key}pair" in by_key)
        return next(((by_key[one], by_key[other]) for one, other in with_other), None)

    def _pair_of_numbers(self) -> tuple[str, str] | None:
        """Columns of sentences whose names differ by 0 and 1, or 1 and 2, alone, in any language."""
        pairs = []
        for first, second, third in (("1", "2", "3"), ("0", "1", "2"), ("a", "b", "c")):
            for key in self.by_key:
                stem = key.removesuffix(first)
                names = [self.by_key.get(stem + end) for end in (first, second)]
                is_pair = stem and stem != key and all(names) and stem + third not in self.by_key
                if is_pair and all(self.cells[str(name)].kind in ("sentences", "empty") for name in names):
                    pairs.append((str(names[0]), str(names[1])))
        distinct = list(dict.fromkeys(pairs))
        return distinct[0] if len(distinct) == 1 else None

    def _pair_by_cells(self) -> tuple[str, str] | None:
        columns = list(self.rows)
        may_be_texts = {"sentences", "texts", "few values"} if any(self.rows.values()) else {"empty"}
        are_named = any(is_usual_name(column) or self._has_other_name(column) for column in columns)
        are_texts = all(self.cells[column].kind in may_be_texts for column in columns)
        if len(columns) == 2 and not are_named and are_texts and self._are_alike(columns):
            return columns[0], columns[1]
        texts = [column for column in self._texts() if normalize_name(column) not in BESIDE_SENTENCES]
        alike = [pair for pair in combinations(texts, 2) if len({normalize_name(name)[:-1] for name in pair}) == 1]
        for pair in [texts] if len(texts) == 2 else alike if len(alike) == 1 else []:
            if self._are_alike(pair):
                return pair[0], pair[1]
        return None

    def _are_alike(self, columns: Sequence[str]) -> bool:
        lengths = [self.cells[column].length for column in columns]
        return max(lengths) <= UNLIKE * min(lengths)

    def _texts(self) -> list[str]:
        return [
            column for column, cells in self.cells.items() if cells.kind == "sentences" and column not in self.roles
        ]

    def _longest(self, texts: Sequence[str]) -> str:
        """The column of sentences that are far longer than all others, or the others stand beside it; "" without."""
        own = [name for name in texts if normalize_name(name) not in BESIDE_SENTENCES]
        first, second, *_ = sorted(texts, key=lambda name: -self.cells[name].length)
        if len(own) == 1:
            return own[0]
        return first if self.cells[first].length >= UNLIKE * self.cells[second].length else ""

    # ------------------------------------------------------------ the judgement

    def _find_judgement(self, sentences_are_named: bool) -> None:
        """The columns of judgements of pairs; of single sentences the column of their classes."""
        roles = {role for role, _ in self.roles.values()}
        if not {SENTENCE1, SENTENCE2, ANCHOR} & roles:
            self._find_classes()
            return
        rest = [column for column in self.rows if column not in self.roles]
        named = [column for column in self._all_named((*SCORES, *LABELS)) if column in rest]
        likely = [column for column in self._all_named(JUDGEMENTS) if column in rest and self._is_likely(column)]
        answer = self.by_key.get("answer")
        if answer in rest and self._values(answer) <= ANSWERS:
            # Prodigy's label is the question; where there were options, accept holds those that were taken.
            options = self.by_key.get("accept")
            self.roles[answer] = (STATUS, "") if options else (LABEL, "")
            if options:
                self.roles[options] = self._kind_of_judgement(options), ""
            return
        if not named and (ratings := self._ratings(rest)):
            self.roles |= dict.fromkeys(ratings, (RATING, ""))
            return
        named = self._without_constant(named, likely) or likely
        if named:
            self.roles[named[0]] = self._kind_of_judgement(named[0]), ""
            return
        by_cells = [column for column in rest if self._is_by_cells(column)]
        if len(by_cells) == 1:
            [column] = by_cells
            self.roles[column] = self._kind_of_judgement(column), self.cells[column].words
        elif by_cells:
            self.doubts.append(Doubt("which column says how alike the two sentences are?", tuple(by_cells)))
        elif not sentences_are_named and (possible := [column for column in rest if self._is_possible(column)]):
            question = "may one of these columns say which pairs belong together?"
            self.doubts.append(Doubt(question, tuple(possible), is_possible_only=True))

    def _find_classes(self) -> None:
        named = [column for column in self._all_named(LABELS) if column not in self.roles]
        rest = [column for column in self.rows if column not in self.roles]
        classes = [column for column in rest if self.cells[column].kind in ("category", "judging words", "few values")]
        if column := next(iter(named), None) or (classes[0] if len(classes) == 1 else None):
            self.roles[column] = LABEL, "" if named else self.cells[column].words

    def _without_constant(self, named: list[str], others: list[str]) -> list[str]:
        """The candidates by name; asks if the first has one value alone and another column has several."""
        if not named or self.cells[named[0]].values != 1 or len(self.rows[named[0]]) < 2:
            return named
        others = [name for name in (*named[1:], *others) if self.cells[name].values > 1 and self._is_likely(name)]
        if others:
            question = f"{named[0]} is the same in all rows: which column says how alike the two sentences are?"
            self.doubts.append(Doubt(question, (*others, named[0])))
        return named

    def _ratings(self, columns: Sequence[str]) -> list[str]:
        """The columns of several raters: names that differ by a number, with numbers or judging words."""
        groups: dict[str, list[str]] = {}
        for column in columns:
            stem = re.sub(r"(\d+|(?<=[_. -])[a-e])$", "", column.strip().lower())
            if stem != column.strip().lower() and normalize_name(stem) in RATING_STEMS and self._is_rating(column):
                groups.setdefault(stem, []).append(column)
        return next((group for group in groups.values() if len(group) > 1), [])

    def _is_rating(self, column: str) -> bool:
        return self.cells[column].kind in ("judging words", "scores", "numbers", "ids")

    def _is_likely(self, column: str) -> bool:
        cells = self.cells[column]
        is_unknown = cells.kind == "empty" and not any(self.rows.values())
        return cells.kind == "judging words" or (cells.kind == "scores" and cells.values > 1) or is_unknown

    def _is_by_cells(self, column: str) -> bool:
        return self.cells[column].kind != "empty" and self._is_likely(column) and not self._has_other_name(column)

    def _is_possible(self, column: str) -> bool:
        is_few = 2 <= self.cells[column].values <= FEW_VALUES
        return is_few and self.cells[column].kind in ("category", "few values") and not self._has_other_name(column)

    def _has_other_name(self, column: str) -> bool:
        names = (*RATER_COLUMNS, *STATUS_COLUMNS, *ID_COLUMNS, *CATEGORIES, *SPLIT_COLUMNS, *BESIDE_SENTENCES)
        key = normalize_name(column)
        return key in names or key.endswith(
            ("id", "count", "length", "tokens", "time", "status", "suggestion", "agent")
        )

    def _kind_of_judgement(self, column: str) -> str:
        key = normalize_name(re.split(r"[./]", column)[-1])
        is_nli = all(name in self.by_key for name in NLI_PAIR)
        is_number = self.cells[column].kind == "empty" or self._are_numbers(column)
        return SCORE if key in SCORES or (is_number and key not in LABELS) or (is_number and not is_nli) else LABEL

    def _are_numbers(self, column: str) -> bool:
        values = self._values(column)
        return bool(values) and all(parse_number(value) is not None for value in values)

    # ------------------------------------------------------------ the rest

    def _find_splits(self) -> None:
        for column, cells in self.cells.items():
            if cells.kind == "split" and (cells.values > 1 or normalize_name(column) in SPLIT_COLUMNS):
                self.roles.setdefault(column, (SPLIT, cells.words))

    def _find_the_rest(self) -> None:
        for column, cells in self.cells.items():
            key = normalize_name(column)
            if column in self.roles:
                continue
            if key in STATUS_COLUMNS or key.endswith("status"):
                self.roles[column] = STATUS, ""
            elif key in RATER_COLUMNS and cells.kind != "judging words":
                self.roles[column] = RATER, ""
            elif key in ID_COLUMNS or cells.kind == "ids":
                self.roles[column] = ID, cells.words
            elif key == "group":
                self.roles[column] = GROUP, ""
            elif cells.kind == "category" or key in CATEGORIES:
                self.roles[column] = CATEGORY, cells.words

    def _named(self, names: Sequence[str]) -> str | None:
        return next(iter(self._all_named(names)), None)

    def _all_named(self, names: Sequence[str]) -> list[str]:
        """The columns with one of these names, in their order; each once."""
        return list(dict.fromkeys(self.by_key[name] for name in names if name in self.by_key))

    def _values(self, column: str) -> set[str]:
        values = (value for cell in self.rows[column] for value in judgement_of(cell))
        return {text.strip().lower() for value in values if (text := as_text(value)) is not None}


def _typed(name: str) -> str:
    return name.replace(",", "\\,")


def _kind_of(texts: Sequence[str], counts: Counter[str]) -> tuple[str, str]:
    """The kind of a column's cells, and in words why; ``counts`` are those of the texts in lower case."""
    some = ", ".join(f"{text[:40]} {count:,}" for text, count in counts.most_common(4))
    if ALL_SPLITS.issuperset(counts):
        return "split", some
    if _are_words_of_judgement(set(counts)):
        return "judging words", f"judging words: {some}"
    numbers = [number for text in texts if (number := parse_number(text)) is not None]
    if len(numbers) == len(texts):
        return _kind_of_numbers(numbers), f"numbers from {min(numbers):g} to {max(numbers):g}"
    if len(texts) >= FEW_ROWS and len(counts) * REPEATS <= len(texts):
        return "category", f"{len(counts):,} values in {len(texts):,} rows"
    if _are_sentences(texts):
        return "sentences", "read like sentences"
    if all(map(_ID.fullmatch, texts)):
        return "ids", "codes or numbers alone"
    return ("few values" if len(counts) < len(texts) else "texts"), some


def _are_words_of_judgement(words: set[str]) -> bool:
    """Whether words say which pairs are matches: yes and no, accept and reject, 0 and 1, entailment and the like."""
    sides = {side_of(word) for word in words.difference(UNSURE, NLI_LABELS)}
    if words & set(NLI_LABELS) - {"neutral"}:
        return None not in sides
    return sides == {True, False} or (len(sides) == 1 and None not in sides and not words & {"0", "1"})


def _kind_of_numbers(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    # Consecutive numbers are those of the rows.
    are_consecutive = len(numbers) > 1 and all(b - a == 1 for a, b in pairwise(numbers))
    is_small = (low >= 0 and high <= 10) or (low >= -1 and high <= 1)
    if is_small and not are_consecutive:
        return "scores"
    are_whole = all(number.is_integer() for number in numbers)
    return "ids" if are_whole and len(set(numbers)) == len(numbers) else "numbers"


def _are_sentences(texts: Sequence[str]) -> bool:
    if len(set(texts)) < min(len(texts), 2):
        return False
    in_words = fmean(" " in text or max(text) >= UNSPACED for text in texts)
    characters = ("".join(text[:200].split()) for text in texts)
    letters = fmean(fmean(category(character)[0] in "LM" for character in text) for text in characters)
    return in_words >= 0.5 and letters >= LETTERS


def _oddities(names: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """Remarks on columns of sentences by their first cells: ids in place of texts, letters that were misread."""
    cells = {name: [text for cell in rows[name] if (text := as_text(cell)) is not None] for name in names}
    remarks = []
    if ids := [name for name in names if cells[name] and all(_ID.fullmatch(text.strip()) for text in cells[name])]:
        remarks.append(f"Numbers or codes alone are in {listed(ids)}: if they are ids, name the columns of texts.")
    for name in names:
        if odd := next((text for text in cells[name] if _is_misread(text) or _ENTITY.search(text)), None):
            what = "letters in a wrong encoding" if _is_misread(odd) else "codes of a web page for letters"
            remarks.append(f"{name} holds {what}, such as {quoted(odd)}: mend them where the file was written.")
    return remarks


def _is_misread(text: str) -> bool:
    """Whether a text of UTF-8 was once read as Windows-1252: "cafÃ©"."""
    try:
        return not text.isascii() and text.encode("cp1252").decode() != text
    except UnicodeError:
        return False


def requested_columns(text: str | None, reading: TableReading) -> tuple[str, ...]:
    """The names in ``?columns=``; a whole text that is the name of a column is one."""
    return split_names(text, tuple(column.name for column in reading.columns))
