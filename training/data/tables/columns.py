"""The names of columns: the usual ones of the field, the header of a table, and names as people type them.

Names are compared without case, spaces, dots, dashes and underscores: ``Sentence 1``,
``sentence_1`` and ``SENTENCE1`` are one name. A table of exactly two columns needs no usual names.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from training.catalogue import NEGATIVE_LABELS, POSITIVE_LABELS
from training.data.tables.cells import UNSEEN, parse_number, quoted
from training.errors import InputError

# The names of two columns of sentences, the usual ones first.
_PAIRS = """
    sentence1 sentence2, sentencea sentenceb, sent1 sent2, sent0 sent1, sentence0 sentence1, text0 text1,
    question0 question1, questiona questionb, 1string 2string, senta sentb, text1 text2, texta textb, s1 s2,
    premise hypothesis, question1 question2, q1 q2, anchor positive, anchor positives,
    query positive, query positives, query pos, query positivepassages, question positivectxs,
    query passage, query document, query text, question answer, question passage, source target,
    query answer, query response, sentence paraphrase, question sentence,
    query doc, query content, query context, question context, question document, question text,
    claim evidence, context hypothesis,
    sentence sentence2, sentence sentence1, text text2, text text1, question question2, question question1, a b
"""
PAIR_COLUMN_NAMES = tuple(tuple(pair.split()) for pair in _PAIRS.split(","))
# If negatives are numbered, the first is read.
_NEGATIVES = """
    negative hardnegative neg hardneg negatives hardnegatives negativepassages
    hardnegativectxs negative0 negative1 neg0 neg1 hardnegative1
"""
NEGATIVES = tuple(_NEGATIVES.split())
_SCORES = """
    score similarityscore similarity goldscore gold goldsimilarity relatednessscore
    relatedness rating relevance relevancescore grade sim humanscore avgscore averagescore
    meanscore goldstandard similarityrating
    ähnlichkeit bewertung similarité similitud puntuación somiglianza punteggio similaridade
    benzerlik podobieństwo сходство оценка 相似度 分数 得分 類似度 スコア 유사도 점수
"""
SCORES = tuple(_SCORES.split())
# The words of a label come before its number.
_LABELS = """
    labeltext labelname label goldlabel isduplicate labels duplicate ismatch isparaphrase quality class
    category entailment entailmentlabel entailmentjudgment issimilar isequivalent isrelevant
    etikett étiquette etiqueta etichetta etykieta метка 标签 標籤 ラベル 라벨 레이블
"""
LABELS = tuple(_LABELS.split())
# Columns with these names are judgements if their cells are numbers of a scale or judging words.
_JUDGEMENTS = """
    match similar same related target matches matched issame samemeaning isrelated equal equivalent paraphrase
    paraphrases humanrating meanrating avgrating averagerating ratingmean humanscore humansimilarity similaritymean
    similarityavg simscore stsscore sts overall mean average avg medianrating median groundtruth truth gt y
    annotation annotations judgement judgment assessment verdict decision agreement answer response responses rate
    points value evaluation opinion relation closeness likeness semanticsimilarity semanticrelatedness
    goldlabelscore goldrating finalscore finallabel consensus majority majorityvote reallabel binarylabel
    gleich identique igual
"""
JUDGEMENTS = tuple(_JUDGEMENTS.split())
SENTENCES = (
    "sentence",
    "text",
    "sentences",
    "texts",
    "sentence1",
    "document",
    "passage",
    "query",
    "question",
)
USUAL_NAMES = frozenset(chain(*PAIR_COLUMN_NAMES, NEGATIVES, SCORES, LABELS, SENTENCES))
# The labels 0, 1, 2 of this pair are classes, not a scale.
NLI_PAIR = ("premise", "hypothesis")
MOST_COLUMNS = 2_000
MOST_LISTED = 20
# The most characters of a name: a header does not hold whole sentences.
LONG_NAME = 80

# A number, a date or a time.
_NUMERIC = re.compile(r"(?=\D*\d)[\d\s.,:/+T-]{1,40}(?:[AP]M)?(?:\s?(?:GMT|UTC).{0,9}|Z)?")
# The cells of the ids that Qualtrics writes below names and questions.
_IMPORT_ID = '{"ImportId":'
# Cells that SurveyMonkey writes below the questions.
_SURVEY_CELLS = frozenset(("Response", "Open-Ended Response"))
# A scale at the end of a name: "score (0-5)".
NAMED_SCALE = re.compile(r"[(\[]\s*([+-]?[\d.]+\s*(?:-|–|\.\.|to)\s*[+-]?[\d.]+)\s*[)\]]\s*$")
_NEGATED = re.compile(r"(?:not|non|no|un|dis)(..+)")


@dataclass(frozen=True)
class PairColumns:
    """The columns of pairs, by their names in the table; None where there is none."""

    sentence1: str
    sentence2: str
    score: str | None = None
    label: str | None = None
    negative: str | None = None
    # The columns of several raters, in place of a score or a label.
    ratings: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names to request so that the table is read with these columns again.

        The sentences, and last the judgement, the negative, or "-" for no judgement.
        """
        sentences = (self.sentence1, self.sentence2)
        # Several columns of raters cannot be requested by name, as a third name would be the only
        # judgement. If only the sentences are requested, `read` finds the raters itself.
        if self.ratings:
            return sentences
        return (*sentences, self.score or self.label or self.negative or "-")


def split_names(text: str | None, existing: Collection[str] = ()) -> tuple[str, ...]:
    r"""Splits "a,b" into names. A comma inside a name is written "\,". The name of an existing column is not split."""
    if text is None:
        return ()
    if text in existing:
        return (text,)
    names = text.replace("\\,", "\0").split(",")
    return tuple(name.strip().replace("\0", ",") for name in names)


def join_names(names: Iterable[str]) -> str:
    """The names as a user types them, which `split_names` splits again."""
    return ",".join(name.replace(",", "\\,") for name in names)


def normalize_name(name: str) -> str:
    """A name in lower case without spaces, dots, dashes, underscores and the like, and without a scale at its end."""
    return re.sub(r"[\s_.\-\ufe0f?:*#]+", "", NAMED_SCALE.sub("", name)).casefold()


def side_of(label: str) -> bool | None:
    """Whether a label with this name is a match (True) or the opposite (False); None if the name does not say."""
    # `normalize_name` would remove the minus sign.
    key = normalize_name(label) if label != "-1" else label
    if key in POSITIVE_LABELS:
        return True
    negated = _NEGATED.fullmatch(key)
    if key in NEGATIVE_LABELS or (negated and negated[1] in POSITIVE_LABELS):
        return False
    return None


def is_usual_name(name: str) -> bool:
    """Whether this is one of the usual names of columns."""
    return normalize_name(name) in USUAL_NAMES


def looks_like_data(first: Sequence[str]) -> bool:
    """Whether the first line of a table is a row and not a header.

    A row has a number or a whole sentence. If some cells are usual names of columns, the line is a
    row only if more cells are sentences. The line 0, 1, 2 is a header, as pandas writes it.
    """
    cells = [cell for cell in first if cell]
    numbers = [str(at) for at in range(len(cells))]
    if len(cells) > 1 and cells == numbers:
        return False
    names = sum(map(is_usual_name, cells))
    sentences = sum(map(_is_sentence, cells))
    if names and names >= sentences:
        return False
    return sentences > 0 or any(parse_number(cell) is not None for cell in first)


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Names that differ and are not empty, and a remark on each that got a new name."""
    unique: list[str] = []
    remarks = []
    # White space and invisible characters are removed from both ends of a name.
    ends = re.compile(rf"^[{UNSEEN}]+|[{UNSEEN}]+$")
    stripped = [ends.sub("", name) for name in names]
    for position, name in enumerate(stripped, start=1):
        if name and name not in unique:
            unique.append(name)
            continue
        # The new name must also differ from the names that follow.
        unique.append(free_name(name or f"column_{position}", [*unique, *stripped]))
        problem = "has no name"
        if name:
            problem = f"has the same name as another, {quoted(name)}"
        remarks.append(f"Column {position} {problem}: it is called {unique[-1]} here.")
    return tuple(unique), remarks


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """The position of the header among the first rows: 0, unless titles with fewer cells are above it.

    The header is the first row of several cells, or a row below it with more cells and more usual
    names.
    """
    widths = []
    name_counts = []
    for row in rows:
        widths.append(sum(bool(cell.strip()) for cell in row))
        name_counts.append(sum(map(is_usual_name, row)))
    header = next((at for at, width in enumerate(widths) if width > 1), 0)
    # A single usual name may be a word in a title.
    most = 1
    for at, count in enumerate(name_counts):
        if count > most and widths[at] > max(widths[:at], default=0):
            header = at
            most = count
    # If a row above has at least as many usual names, the first row is the header. A row with fewer
    # may hold titles of groups of columns.
    most_above = max(name_counts[:header], default=0)
    are_titles_above = most_above == 0 or name_counts[header] > most_above
    if are_titles_above and not looks_like_data(rows[header]):
        return header
    return 0


def header_of(path: Path, rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], int, list[str]]:
    """The columns by the first rows of a table, the number of rows up to the header (0 without one), and remarks.

    InputError if it has more columns than a table of sentences can have.
    """
    # The number of rows above the header, or above the first row if there is no header.
    above = header_row(rows)
    first = rows[above]
    below = [row for row in rows[above + 1 :] if row]
    if _has_row_names(first, below):
        # The column of the numbers of rows has no name in the header.
        first = ["", *first]
    if len(first) > MOST_COLUMNS:
        raise InputError(
            f"{path.name} has {len(first):,} columns in its first line: this is no table of sentences."
        )

    # Qualtrics writes the names into the first row, then the questions and then the ids.
    for at, row in enumerate(rows):
        if row and all(cell.startswith(_IMPORT_ID) for cell in row):
            columns, remarks = unique_names(rows[0])
            remarks.append(f"Rows 2 to {at + 1} are questions and ids of Qualtrics and left out.")
            return columns, at + 1, remarks
    # The second header of SurveyMonkey begins with an empty cell.
    second_row = below[0] if below else [""]
    if not second_row[0] and not _SURVEY_CELLS.isdisjoint(second_row):
        columns, remarks = unique_names(first)
        remarks.append(f"Row {above + 2} is a second header of SurveyMonkey and left out.")
        return columns, above + 2, remarks

    if looks_like_data(first) and not _are_questions(first, below):
        # A first row may be longer or shorter than the others.
        [(width, _)] = Counter(map(len, filter(None, rows))).most_common(1)
        columns, _ = unique_names([""] * width)
        named = "column is called column_1"
        if width > 1:
            named = f"columns are called column_1 to {columns[-1]}"
        return columns, 0, [f"The first line is data, not a header, so the {named}."]
    columns, remarks = unique_names(first)
    # If no row below looks like data either, the first row may be data too.
    if not any(map(is_usual_name, first)) and not any(map(looks_like_data, below)):
        remarks.append(
            f"The first row is read as the header: {listed(columns)}; if it is data, add one above."
        )
    if above:
        remark = f"The header seems to be in row {above + 1}; the rows above it are left out."
        remarks.insert(0, remark)
    return columns, above + 1, remarks


def free_name(name: str, taken: Sequence[str]) -> str:
    """The first of ``name``, name_2, name_3, … that no column has, in any case of its letters."""
    used = {other.casefold() for other in taken}
    candidate = name
    number = 1
    while candidate.casefold() in used:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def listed(columns: Sequence[str], noun: str = "column") -> str:
    """The names of columns as an error lists them, on one line, cut and limited."""
    names = []
    for column in columns[:MOST_LISTED]:
        name = " ".join(column.split())
        if len(name) > LONG_NAME:
            name = name[:LONG_NAME] + "…"
        names.append(name)
    more = f" and {len(columns) - MOST_LISTED} more" if len(columns) > MOST_LISTED else ""
    return f"the {noun}{'s' * (len(columns) > 1)} {', '.join(names)}{more}"


def _has_row_names(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether all rows begin with a number that has no name in the header, as R writes the numbers of rows."""
    for row in below:
        if len(row) != len(first) + 1 or parse_number(row[0]) is None:
            return False
    # A delimiter at the end of each line adds an empty cell, and no row name.
    return any(row[-1].strip() for row in below)


def _are_questions(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a first row of sentences is a header of questions, as forms have.

    It is one if all of its cells are questions and no other row has any, or if one of its cells is
    above numbers.
    """
    if len(below) < 2 or len(first) < 2 or any(map(_NUMERIC.fullmatch, first)):
        return False
    are_all_questions = True
    for at, name in enumerate(first):
        cells = [row[at] for row in below if len(row) > at and row[at]]
        if not name:
            continue
        if len(cells) > 1 and all(map(_NUMERIC.fullmatch, cells)):
            return True
        if not name.rstrip().endswith("?") or "?" in "".join(cells):
            are_all_questions = False
    return are_all_questions


def _is_sentence(cell: str) -> bool:
    words = len(cell.split())
    ends_like_one = cell.rstrip().endswith((".", "?", "!"))
    return len(cell) > LONG_NAME or words >= 6 or (words >= 3 and ends_like_one)
