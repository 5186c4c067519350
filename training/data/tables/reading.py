"""TableReading: the role of each column of a table by evidence, and the questions that the evidence leaves open.

    reading = open_table(Path("pairs.csv")).reading
    reading.columns    Column("Satz", "sentence1", "reads like sentences"), …,
                       Column("Urteil", "label", "judging words: ja 9, nein 7")
    reading.doubts     () here; with another column that may be the judgement:
                       Doubt("which column says how alike the two sentences are?", ("Urteil", "Stufe"))

`OpenedTable.reading` makes it of the names and the first cells, once for each file; pages,
commands, HTTP and Python all use it. What the user has said comes first (`with_columns`), then
names of the field and of labelling tools, also dotted and numbered ones, then the cells (`Cells`).
If one column may be the judgement of a pair, it is used, and a note says so. If several may be, or
if one contradicts another, there is a doubt: `check` raises an error that says what to type. A
doubt with ``is_possible_only`` matters only to callers that use all pairs as positive pairs. No
cell is changed here: `training.data.gold` reads judgements, and `training.data.judgements` joins
several of one pair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    join_names,
    listed,
    normalize_name,
    side_of,
    split_names,
)
from training.errors import InputError, QuestionError, did_you_mean

# The roles of columns.
SENTENCE1 = "sentence1"
SENTENCE2 = "sentence2"
SENTENCE = "sentence"
ANCHOR = "anchor"
POSITIVE = "positive"
NEGATIVE = "negative"
SCORE = "score"
LABEL = "label"
RATER = "rater"
RATING = "rating"
STATUS = "status"
SPLIT = "split"
GROUP = "group"
ID = "id"
CATEGORY = "category"
UNUSED = "unused"
# The roles of the sentences of a row, by the number of sentences. A table has the first form whose
# columns it has.
FORMS: dict[int, tuple[str, ...]] = {
    3: (ANCHOR, POSITIVE, NEGATIVE),
    2: (SENTENCE1, SENTENCE2),
    1: (SENTENCE,),
}
TEXTS = tuple(chain.from_iterable(FORMS.values()))
# Stands in place of the name of a judgement if there is none.
NO_JUDGEMENT = "-"

SPLIT_NAMES = {
    "dev": ("dev", "validation", "valid", "val", "trial"),
    "train": ("train", "training"),
    "test": ("test", "testing"),
}
ALL_SPLITS = frozenset(chain(*SPLIT_NAMES.values()))
SPLIT_COLUMNS = ("split", "partition", "subset")
# The names of a rater's id.
_RATERS = "rater raterid annotator annotatorid worker workerid judge coder coderid user"
RATER_COLUMNS = tuple(_RATERS.split())
# The names of the columns of several raters, before their numbers.
RATING_STEMS = (
    *RATER_COLUMNS,
    "rating",
    "annotation",
    "vote",
    "judgement",
    "judgment",
    "score",
    "label",
)
STATUS_COLUMNS = ("status", "assignmentstatus", "responsestatus", "wascancelled", "state")
_IDS = "id pairid guid uid idx index hitid assignmentid rowid no nr number"
ID_COLUMNS = tuple(_IDS.split())
# Texts that describe a sentence: they are one of a pair only if no other column has sentences.
_BESIDE = "title headline subject summary author comment note remark topic url"
BESIDE_SENTENCES = tuple(_BESIDE.split())
_CATEGORIES = "genre topic domain source dataset language lang channel type file year"
CATEGORIES = tuple(_CATEGORIES.split())
# Columns whose names are these, or end like these, are not judgements.
OTHER_NAMES = frozenset(
    (*RATER_COLUMNS, *STATUS_COLUMNS, *ID_COLUMNS, *CATEGORIES, *SPLIT_COLUMNS, *BESIDE_SENTENCES)
)
OTHER_ENDS = ("id", "count", "length", "tokens", "time", "status", "suggestion", "agent")
# The answers of Prodigy.
ANSWERS = frozenset(("accept", "reject", "ignore"))

# The least share of letters in the characters of a sentence.
LETTERS = 0.6
# Scripts from this character on (Thai, Chinese, Japanese, …) have no spaces between words.
UNSPACED = "\u0e00"
# A column whose texts occur this often on average holds categories and not sentences.
REPEATS = 4
# The fewest rows in which repetitions are counted.
FEW_ROWS = 12
# Two columns, such as a name and a comment, are not a pair if one is this many times as long as the
# other.
UNLIKE = 4
# A column with more different values is not a judgement in unknown words.
FEW_VALUES = 7
# The cells that a question shows of each column.
EXAMPLES = 3

# A number or a code without a space, such as the id of a text.
_ID = re.compile(r"[!-~]*\d[!-~]*")
# A character reference of HTML.
_ENTITY = re.compile(r"&(?:amp|quot|lt|gt|nbsp|#\d{2,5});")


@dataclass(frozen=True)
class Cells:
    """The cells of a column.

    Attributes:
        kind: "empty", "split", "judging words", "scores", "ids", "numbers", "category", "sentences",
            "few values" (some repeat) or "texts" (all different); `_kind_of` decides.
        words: the reason for the kind.
        texts: the different texts, in lower case.
        length: the mean length of a text, in characters.
    """

    kind: str
    words: str = ""
    texts: frozenset[str] = frozenset()
    length: float = 0.0

    @classmethod
    def of(cls, cells: Sequence[Any]) -> Cells:
        texts = [text.strip() for text in _texts_of(cells)]
        if not texts:
            return cls("empty")
        counts = Counter(map(str.lower, texts))
        kind, words = _kind_of(texts, counts)
        return cls(kind, words, frozenset(counts), length=fmean(map(len, texts)))

    @property
    def are_numbers(self) -> bool:
        return bool(self.texts) and all(parse_number(text) is not None for text in self.texts)


# The evidence for a role that the user has named.
AS_YOU_SAY = "as you say"


@dataclass(frozen=True)
class Column:
    """A column, its role, and the evidence for the role in words; "" if the evidence is the name."""

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

    ``is_possible_only``: nothing speaks for the candidates, but they cannot be excluded either. The
    answer matters only if all pairs are to be positive pairs.
    """

    question: str
    candidates: tuple[str, ...]
    is_possible_only: bool = False


@dataclass(frozen=True)
class TableReading:
    """The roles of the columns of a table, in the table's order, and what is doubtful about them."""

    name: str
    columns: tuple[Column, ...]
    doubts: tuple[Doubt, ...] = ()
    # The first cells by column, which the questions quote.
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict, repr=False, compare=False)
    # The format of the file in words, which an error about columns states: a wrong delimiter makes
    # wrong columns.
    layout: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        rows: Mapping[str, Sequence[Any]],
        requested: Sequence[str] = (),
        layout: str = "",
    ) -> TableReading:
        """Reads a table by the first cells of its columns; without any cells by the names alone.

        ``requested`` names one column of sentences, the two of pairs, or these and a third: a
        judgement, a negative, or "-" for no judgement. With an empty second name the third is the
        class of single sentences. ``layout`` is the format of the file in words, for errors.
        InputError if the table has no such column.
        """
        return _Reader(name, rows, layout).read(requested)

    def with_columns(self, requested: Sequence[str]) -> TableReading:
        """The reading with the columns that a user has named, as in `of`; the same without any."""
        if not requested:
            return self
        return TableReading.of(self.name, self.rows, requested, self.layout)

    def all(self, *roles: str) -> tuple[str, ...]:
        """The columns with one of these roles."""
        return tuple(column.name for column in self.columns if column.role in roles)

    def first(self, *roles: str) -> str | None:
        """The first column with one of these roles; None without one."""
        return next(iter(self.all(*roles)), None)

    @property
    def form(self) -> tuple[str, ...]:
        """The roles of the sentences of a row; () without any."""
        roles = {column.role for column in self.columns}
        return next((form for form in FORMS.values() if roles.issuperset(form)), ())

    @property
    def sentences(self) -> tuple[str, ...]:
        """The columns of the sentences of a row, in the order of `form`."""
        # A table has a column for each role of its form, so that "" never occurs.
        return tuple(self.first(role) or "" for role in self.form)

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
        notes = []
        by_cells = [column for column in self.columns if column.is_by_cells]
        texts = [column for column in by_cells if column.role in TEXTS]
        is_pair = len(self.sentences) == 2
        if is_pair and len(texts) == 2:
            alone = ", the only columns," if len(self.columns) == 2 else ""
            notes.append(f"{' and '.join(self.sentences)}{alone} are read as the two sentences.")
        elif len(self.columns) > 1:
            notes += [f"{column.name} is read as a {column.role}." for column in texts]
        if is_pair:
            for column in by_cells:
                if column.role in (SCORE, LABEL):
                    notes.append(f"{column.name} is read as the judgement: {column.evidence}.")
        if ratings := self.all(RATING):
            # A sentence begins with a capital letter: "The columns …".
            columns = listed(ratings).replace("the", "The", 1)
            notes.append(f"{columns} are read as the judgements of {len(ratings)} raters.")
        return notes + _oddities(self.sentences, self.rows)

    def pair(self) -> PairColumns:
        """The columns of pairs.

        InputError, which lists the columns, for a table without pairs. QuestionError if there is a
        doubt about the columns.
        """
        self.check()
        first = self.first(SENTENCE1, ANCHOR)
        second = self.first(SENTENCE2, POSITIVE)
        if first is None or second is None:
            raise InputError(
                f"{self.name} has {self._listed}, but two with sentences are needed: call them sentence1 "
                "and sentence2, or say which they are."
            )
        return PairColumns(
            first,
            second,
            score=self.first(SCORE),
            label=self.first(LABEL),
            negative=self.first(NEGATIVE),
            ratings=self.all(RATING),
        )

    def sentence(self) -> str:
        """The one column of sentences, or the first of a pair. InputError if there is none."""
        columns = self.all(SENTENCE) or self.sentences
        if not columns:
            raise InputError(
                f"{self.name} has {self._listed}: call the one to use sentence, or say which it is."
            )
        return columns[0]

    def check(self, for_positives: bool = False) -> None:
        """Raises QuestionError if there is a doubt.

        A doubt with ``is_possible_only`` matters only ``for_positives``: if all pairs are to be
        used as positive pairs.
        """
        for doubt in self.doubts:
            if for_positives or not doubt.is_possible_only:
                raise QuestionError(self.question(doubt))

    def question(self, doubt: Doubt) -> str:
        """The question, with three cells of each column, and what to type."""
        columns = " or ".join(f"{name} ({self.examples(name)})" for name in doubt.candidates)
        # The judgement is named after the sentences. Triplets have none.
        sentences = self.sentences if len(self.sentences) < 3 else ()
        answer = join_names([*sentences, doubt.candidates[0]])
        if sentences:
            answer += f", or {join_names([*sentences, NO_JUDGEMENT])} for none"
        how = f"Type --columns {answer}; in Python columns=, or ?columns= after its name."
        return f"{self.name}: {doubt.question} {columns}? {how}"

    def examples(self, name: str) -> str:
        """The first different cells of a column, which a question quotes."""
        texts = dict.fromkeys(text[:40] for text in _texts_of(self.rows[name]))
        return ", ".join(list(texts)[:EXAMPLES])

    @property
    def _listed(self) -> str:
        return listed([column.name for column in self.columns])


def requested_columns(text: str | None, reading: TableReading) -> tuple[str, ...]:
    """The names in ``?columns=``, separated by commas unless the whole text is the name of a column."""
    return split_names(text, [column.name for column in reading.columns])


class _Reader:
    """Finds the roles of the columns of a table, the evidence for each, and the doubts."""

    def __init__(self, name: str, rows: Mapping[str, Sequence[Any]], layout: str) -> None:
        self.name = name
        self.rows = rows
        self.layout = layout
        self.cells = {column: Cells.of(values) for column, values in rows.items()}
        self.has_only_names = not any(rows.values())
        # The role and the evidence of each column that has been found.
        self.roles: dict[str, tuple[str, str]] = {}
        self.doubts: list[Doubt] = []
        # The column of each normalized name. Whole names come before the last parts of dotted ones,
        # and the first of equal names before the others.
        self.by_key: dict[str, str] = {}
        for key in (normalize_name, _last_key):
            for column in rows:
                # The output of a model is not a judgement.
                if not re.search("suggestion|prediction", column.lower()):
                    self.by_key.setdefault(key(column), column)

    def read(self, requested: Sequence[str]) -> TableReading:
        """Gives the columns their roles, sentences first."""
        # The third name is a judgement, a negative, or "-". If there is one, no judgement is looked
        # for.
        has_third = False
        if requested:
            has_third = self._take_requested(requested)
        else:
            self._find_sentences()
        self._find_splits()
        if not has_third:
            self._find_judgement(sentences_are_named=bool(requested))
        self._find_the_rest()
        # A column without a role has the defaults of `Column`.
        columns = tuple(Column(column, *self.roles.get(column, ())) for column in self.rows)
        return TableReading(self.name, columns, tuple(self.doubts), self.rows, self.layout)

    # ------------------------------------------------------------ what the user says

    def _take_requested(self, requested: Sequence[str]) -> bool:
        """Takes the columns that the user has named. Returns whether a third one is named, or "-" for no judgement."""
        names = [name for name in requested if name.strip()]
        if not 1 <= len(names) <= 3:
            raise InputError(
                f"Name one column, two, or three with the gold score last; {len(names)} are named."
            )
        texts = [self._existing(name) for name in names[:2]]
        if len(requested) == 3 and not requested[1].strip():
            # "text,,topic" names a sentence and its class, which are in ``texts`` here.
            sentence, *classes = texts
            self._take([sentence], AS_YOU_SAY)
            self.roles |= dict.fromkeys(classes, (LABEL, AS_YOU_SAY))
            return bool(classes)
        if len(set(texts)) < len(texts):
            raise InputError(
                f"Both sentences are to come from the column {texts[0]}: name two different columns."
            )
        self._take(texts, AS_YOU_SAY)
        if len(names) < 3:
            return False
        if names[2] != NO_JUDGEMENT:
            third = self._existing(names[2])
            # By its name or its cells, the third may be a negative and not a judgement.
            if normalize_name(third) in NEGATIVES or self.cells[third].kind == "sentences":
                self._take([*texts, third], AS_YOU_SAY)
            else:
                self.roles[third] = (self._kind_of_judgement(third), AS_YOU_SAY)
        return True

    def _existing(self, requested: str) -> str:
        """The column as the table spells it. InputError if the table has no such column."""
        if requested in self.rows:
            return requested
        names = [name for name in self.rows if normalize_name(name) == normalize_name(requested)]
        if len(names) == 1:
            return names[0]
        columns = list(self.rows)
        meant = did_you_mean(requested, columns)
        layout = f" ({self.layout})" if self.layout else ""
        raise InputError(
            f"{self.name}{layout} has no column {quoted(requested)}; it has {listed(columns)}{meant}"
        )

    def _take(self, columns: Sequence[str], evidence: str = "") -> None:
        """Takes one column, two or three for the sentences of a row."""
        for column, role in zip(columns, FORMS[len(columns)], strict=True):
            self.roles[column] = (role, evidence)

    # ------------------------------------------------------------ the sentences

    def _find_sentences(self) -> None:
        """Finds two columns of sentences by their names or by their cells, else a single one. There may be a doubt."""
        if pair := self._pair_by_name() or self._pair_by_endings():
            # With a negative, the pair is the anchor and its positive.
            self._take([*pair, *self._unassigned(NEGATIVES)[:1]])
            return
        if pair := self._pair_by_cells():
            self._take(pair, "reads like sentences")
            return
        columns = list(self.rows)
        texts = self._texts()
        named = self._unassigned(SENTENCES)[:1]
        # A usual name does not count if other columns read like sentences and its own does not.
        if named and (not texts or named[0] in texts):
            self._take(named)
        elif len(texts) == 1:
            self._take(texts, "reads like sentences")
        elif len(columns) == 1 and not self.cells[columns[0]].are_numbers:
            self._take(columns, "reads like sentences")
        elif texts:
            if longest := self._longest(texts):
                self._take([longest], "has the longest sentences")
            else:
                question = "which column holds the sentences, or which two hold pairs?"
                self.doubts.append(Doubt(question, tuple(texts)))

    def _pair_by_name(self) -> tuple[str, str] | None:
        """The columns of a usual pair of names; or a column and the one of the same name with "pair" at its end."""
        by_key = self.by_key
        for first, second in PAIR_COLUMN_NAMES:
            if first in by_key and second in by_key:
                # Letters alone are weak names: where the cells are numbers, they are names of
                # measurements.
                is_weak = len(first) == 1 and self.cells[by_key[first]].are_numbers
                if not is_weak:
                    return by_key[first], by_key[second]
        for key, column in by_key.items():
            if other := by_key.get(f"{key}pair"):
                return column, other
        return None

    def _pair_by_endings(self) -> tuple[str, str] | None:
        """The columns of sentences whose names end with 1 and 2, 0 and 1, or a and b, in any language."""
        pairs = set()
        for first, second, third in ("123", "012", "abc"):
            for key, column in self.by_key.items():
                if not key.endswith(first) or key == first:
                    continue
                stem = key.removesuffix(first)
                other = self.by_key.get(stem + second)
                # With a further column of the same stem they are a series and not a pair.
                is_series = stem + third in self.by_key or (
                    first == "1" and stem + "0" in self.by_key
                )
                if other is None or is_series:
                    continue
                # In a table without cells all columns are empty.
                if {self.cells[column].kind, self.cells[other].kind} <= {"sentences", "empty"}:
                    pairs.add((column, other))
        return pairs.pop() if len(pairs) == 1 else None

    def _pair_by_cells(self) -> tuple[str, str] | None:
        """The only two columns of a table without usual names, or the only two that read like sentences.

        The texts of both must have similar lengths.
        """
        columns = tuple(self.rows)
        # Without cells, all columns are empty.
        kinds = {"empty"} if self.has_only_names else {"sentences", "texts", "few values"}
        are_texts = all(cells.kind in kinds for cells in self.cells.values())
        are_named = any(is_usual_name(name) or _is_named_otherwise(name) for name in columns)
        if len(columns) == 2 and are_texts and not are_named and self._are_alike(*columns):
            return columns[0], columns[1]
        texts = self._main_texts()
        pairs = list(combinations(texts, 2))
        if len(pairs) > 1:
            # The names of the two columns of a pair differ only in the last character.
            stems = {column: normalize_name(column)[:-1] for column in texts}
            pairs = [(first, second) for first, second in pairs if stems[first] == stems[second]]
        if len(pairs) == 1 and self._are_alike(*pairs[0]):
            return pairs[0]
        return None

    def _are_alike(self, first: str, second: str) -> bool:
        """Whether the texts of two columns have similar lengths, as the sentences of a pair have."""
        lengths = (self.cells[first].length, self.cells[second].length)
        return max(lengths) <= UNLIKE * min(lengths)

    def _texts(self) -> list[str]:
        """The columns whose cells read like sentences."""
        return [column for column, cells in self.cells.items() if cells.kind == "sentences"]

    def _main_texts(self) -> list[str]:
        """The columns of sentences, without titles, comments and the like."""
        return [name for name in self._texts() if normalize_name(name) not in BESIDE_SENTENCES]

    def _longest(self, texts: Sequence[str]) -> str:
        """The only column that is not a title or a comment, or else the one with by far the longest texts; or ""."""
        main_texts = self._main_texts()
        if len(main_texts) == 1:
            return main_texts[0]
        # `_find_sentences` takes a single column of ``texts`` before, so there are two or more
        # here.
        first, second, *_ = sorted(texts, key=lambda name: -self.cells[name].length)
        is_far_longer = self.cells[first].length >= UNLIKE * self.cells[second].length
        return first if is_far_longer else ""

    # ------------------------------------------------------------ the judgement

    def _find_judgement(self, sentences_are_named: bool) -> None:
        """Finds the columns of judgements of pairs, or the column of classes of single sentences."""
        roles = {role for role, _ in self.roles.values()}
        if roles.isdisjoint((SENTENCE1, SENTENCE2, ANCHOR)):
            # A judgement of single sentences is a class.
            self._find_classes()
            return
        rest = [column for column in self.rows if column not in self.roles]
        # Prodigy writes accept, reject or ignore into a column answer.
        answer = self.by_key.get("answer")
        if answer in rest and self.cells[answer].texts <= ANSWERS:
            self._take_answers(answer)
            return
        named = self._unassigned((*SCORES, *LABELS))
        if not named and (ratings := self._ratings(rest)):
            self.roles |= dict.fromkeys(ratings, (RATING, ""))
            return
        likely = list(filter(self._is_likely, self._unassigned(JUDGEMENTS)))
        # If the first named column is constant, another one may be the judgement.
        if named:
            self._doubt_constant(named, likely)
        if candidates := named or likely:
            self.roles[candidates[0]] = (self._kind_of_judgement(candidates[0]), "")
            return
        # The cells of some columns are judgements. The few values of others may be judgements in
        # unknown words.
        by_cells = list(filter(self._is_by_cells, rest))
        possible = list(filter(self._is_possible, rest))
        if len(by_cells) == 1:
            [column] = by_cells
            self.roles[column] = (self._kind_of_judgement(column), self.cells[column].words)
        elif by_cells:
            question = "which column says how alike the two sentences are?"
            self.doubts.append(Doubt(question, tuple(by_cells)))
        # A user who has named only the sentences is not asked about merely possible columns.
        elif possible and not sentences_are_named:
            question = "may one of these columns say which pairs belong together?"
            self.doubts.append(Doubt(question, tuple(possible), is_possible_only=True))

    def _find_classes(self) -> None:
        """Finds the column of classes: one with the name of a label, or the only one whose cells repeat."""
        kinds = ("category", "judging words", "few values")
        rest = [column for column in self.rows if column not in self.roles]
        classes = [column for column in rest if self.cells[column].kind in kinds]
        if named := self._unassigned(LABELS):
            self.roles[named[0]] = (LABEL, "")
        elif len(classes) == 1:
            self.roles[classes[0]] = (LABEL, self.cells[classes[0]].words)

    def _take_answers(self, answer: str) -> None:
        """Takes the column of the answers accept, reject and ignore of Prodigy."""
        options = self.by_key.get("accept")
        if options:
            # The task has options, and the column accept holds the selected ones.
            self.roles[answer] = (STATUS, "")
            self.roles[options] = (self._kind_of_judgement(options), "")
        else:
            # The task asks whether a label is right, so the answer is the judgement.
            self.roles[answer] = (LABEL, "")

    def _doubt_constant(self, named: Sequence[str], likely: Sequence[str]) -> None:
        """Adds a doubt if the first candidate by name has one value in all rows, and another column has several."""
        first = named[0]
        if len(self.cells[first].texts) != 1 or len(self.rows[first]) < 2:
            return
        others = []
        for column in (*named[1:], *likely):
            if self._is_likely(column) and len(self.cells[column].texts) > 1:
                others.append(column)
        if others:
            question = f"{first} is the same in all rows: which column says how alike the two sentences are?"
            self.doubts.append(Doubt(question, (*others, first)))

    def _ratings(self, columns: Sequence[str]) -> list[str]:
        """The columns of several raters, whose names differ only in a number or a letter at the end.

        Their cells are numbers or judging words.
        """
        groups: dict[str, list[str]] = {}
        for column in columns:
            name = column.strip().lower()
            # rater1, rater_1 or rater_a, but not ratera.
            stem = re.sub(r"(\d+|(?<=[_. -])[a-e])$", "", name)
            # In a few rows, whole numbers may all be different, as ids are.
            are_ratings = self.cells[column].kind in ("judging words", "scores", "numbers", "ids")
            if are_ratings and stem != name and normalize_name(stem) in RATING_STEMS:
                groups.setdefault(stem, []).append(column)
        return next((group for group in groups.values() if len(group) > 1), [])

    def _is_likely(self, column: str) -> bool:
        """Whether the cells of a column are judging words or different scores; True for a table without cells."""
        cells = self.cells[column]
        return (
            self.has_only_names
            or cells.kind == "judging words"
            or (cells.kind == "scores" and len(cells.texts) > 1)
        )

    def _is_by_cells(self, column: str) -> bool:
        """Whether the cells alone say that a column is a judgement, and its name does not deny it."""
        return (
            self._is_likely(column) and not self.has_only_names and not _is_named_otherwise(column)
        )

    def _is_possible(self, column: str) -> bool:
        """Whether a column may be a judgement in unknown words: it has a few values, and its name does not deny it."""
        cells = self.cells[column]
        is_few = 2 <= len(cells.texts) <= FEW_VALUES
        return (
            is_few and cells.kind in ("category", "few values") and not _is_named_otherwise(column)
        )

    def _kind_of_judgement(self, column: str) -> str:
        """SCORE or LABEL: by the name of a score, else by the cells."""
        key = _last_key(column)
        cells = self.cells[column]
        if key in SCORES:
            return SCORE
        # The labels of premise and hypothesis are classes, even as numbers.
        are_classes = key in LABELS and all(name in self.by_key for name in NLI_PAIR)
        are_numbers = cells.kind == "empty" or cells.are_numbers
        if are_numbers and not are_classes:
            return SCORE
        return LABEL

    # ------------------------------------------------------------ the rest

    def _find_splits(self) -> None:
        """Finds the columns of splits among those without a role."""
        for column, cells in self.cells.items():
            # A column of one word, such as "train", is one of splits only if its name says so.
            is_certain = len(cells.texts) > 1 or normalize_name(column) in SPLIT_COLUMNS
            if cells.kind == "split" and is_certain:
                self.roles.setdefault(column, (SPLIT, cells.words))

    def _find_the_rest(self) -> None:
        """Finds the columns of statuses, raters, ids, groups and categories."""
        for column, cells in self.cells.items():
            key = normalize_name(column)
            if column in self.roles:
                continue
            if key in STATUS_COLUMNS or key.endswith("status"):
                self.roles[column] = (STATUS, "")
            # Judging words are not the ids of raters.
            elif key in RATER_COLUMNS and cells.kind != "judging words":
                self.roles[column] = (RATER, "")
            elif key in ID_COLUMNS or cells.kind == "ids":
                self.roles[column] = (ID, cells.words)
            elif key == "group":
                self.roles[column] = (GROUP, "")
            elif cells.kind == "category" or key in CATEGORIES:
                self.roles[column] = (CATEGORY, cells.words)

    def _unassigned(self, names: Sequence[str]) -> list[str]:
        """The columns without a role that have one of these names, in the order of the names; each once."""
        columns = dict.fromkeys(map(self.by_key.get, names))
        return [column for column in columns if column and column not in self.roles]


def _last_key(column: str) -> str:
    """The normalized last part of a dotted name."""
    return normalize_name(re.split(r"[./]", column)[-1])


def _is_named_otherwise(column: str) -> bool:
    """Whether the name of a column says that it is not a judgement, such as an id or a topic."""
    key = normalize_name(column)
    return key in OTHER_NAMES or key.endswith(OTHER_ENDS)


def _texts_of(cells: Iterable[Any]) -> list[str]:
    """The texts of the judgements in some cells, without empty ones."""
    texts = []
    for cell in cells:
        for value in judgement_of(cell):
            text = as_text(value)
            if text is not None:
                texts.append(text)
    return texts


def _kind_of(texts: Sequence[str], counts: Counter[str]) -> tuple[str, str]:
    """The kind of a column's cells, and why in words; ``counts`` counts the texts in lower case."""
    some = ", ".join(f"{text[:40]} {count:,}" for text, count in counts.most_common(4))
    if ALL_SPLITS.issuperset(counts):
        return "split", some
    if _are_words_of_judgement(set(counts)):
        return "judging words", f"judging words: {some}"
    numbers = [number for number in map(parse_number, texts) if number is not None]
    if len(numbers) == len(texts):
        return _kind_of_numbers(numbers), f"numbers from {min(numbers):g} to {max(numbers):g}"
    if len(texts) >= FEW_ROWS and len(counts) * REPEATS <= len(texts):
        values = "value" if len(counts) == 1 else "values"
        return "category", f"{len(counts):,} {values} in {len(texts):,} rows"
    if _are_sentences(texts):
        return "sentences", "reads like sentences"
    if all(map(_ID.fullmatch, texts)):
        return "ids", "codes or numbers alone"
    if len(counts) < len(texts):
        return "few values", some
    return "texts", some


def _are_words_of_judgement(words: set[str]) -> bool:
    """Whether words are judgements, such as yes and no, accept and reject, 0 and 1, or entailment."""
    sides = {side_of(word) for word in words.difference(UNSURE, NLI_LABELS)}
    if None in sides:
        return False
    # "neutral" is also a word of other scales.
    if words & (set(NLI_LABELS) - {"neutral"}):
        return True
    # Zeros alone or ones alone may be anything, but "yes" alone is a judgement.
    return len(sides) == 2 or (len(sides) == 1 and words.isdisjoint(("0", "1")))


def _kind_of_numbers(numbers: Sequence[float]) -> str:
    """The kind of a column of numbers: "scores", "ids" or "numbers"."""
    low = min(numbers)
    high = max(numbers)
    # Consecutive numbers are the numbers of rows.
    are_consecutive = len(numbers) > 1 and all(b - a == 1 for a, b in pairwise(numbers))
    is_on_scale = (low >= 0 and high <= 10) or (low >= -1 and high <= 1)
    if is_on_scale and not are_consecutive:
        return "scores"
    are_whole = all(number.is_integer() for number in numbers)
    are_different = len(set(numbers)) == len(numbers)
    return "ids" if are_whole and are_different else "numbers"


def _are_sentences(texts: Sequence[str]) -> bool:
    """Whether texts are not all equal, half of them have several words, and most of their characters are letters."""
    if len(texts) > 1 and len(set(texts)) == 1:
        return False
    share_in_words = fmean(" " in text or max(text) >= UNSPACED for text in texts)
    return share_in_words >= 0.5 and fmean(map(_share_of_letters, texts)) >= LETTERS


def _share_of_letters(text: str) -> float:
    """The share of letters, with their marks, in the first characters of a text, spaces aside."""
    return fmean(category(character)[0] in "LM" for character in "".join(text[:200].split()))


def _oddities(names: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """Remarks on the first cells of columns of sentences: ids in place of texts, or letters that were misread."""
    remarks = []
    ids = []
    for name in names:
        texts = [text for text in map(as_text, rows[name]) if text is not None]
        if texts and all(_ID.fullmatch(text.strip()) for text in texts):
            ids.append(name)
        for text in texts:
            if _is_misread(text):
                what = "letters in a wrong encoding"
            elif _ENTITY.search(text):
                what = "codes of a web page for letters"
            else:
                continue
            example = f"{what}, such as {quoted(text)}"
            remarks.append(f"{name} holds {example}: mend them where the file was written.")
            break
    if ids:
        advice = "if they are ids, name the columns of texts"
        remarks.insert(0, f"Numbers or codes alone are in {listed(ids)}: {advice}.")
    return remarks


def _is_misread(text: str) -> bool:
    """Whether a text in UTF-8 was decoded as Windows-1252: "cafÃ©"."""
    try:
        return not text.isascii() and text.encode("cp1252").decode() != text
    except UnicodeError:
        return False
