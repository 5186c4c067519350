"""The names of columns: the usual ones of the field, the header of a table, and names as people type them.

Names are compared without case, spaces, dots, dashes and underscores: ``Sentence 1``, ``sentence_1`` and
``SENTENCE1`` are one name. A table of exactly two columns needs no usual names.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from training.catalogue import NEGATIVE_LABELS, POSITIVE_LABELS
from training.data.tables.cells import UNSEEN, parse_number, quoted
from training.errors import InputError

PAIR_COLUMN_NAMES = (
    *(("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("sent1", "sent2"), ("sent0", "sent1")),
    *(("sentence0", "sentence1"), ("text0", "text1"), ("question0", "question1"), ("questiona", "questionb")),
    *(("1string", "2string"), ("senta", "sentb"), ("text1", "text2"), ("texta", "textb"), ("s1", "s2")),
    *(("premise", "hypothesis"), ("question1", "question2"), ("q1", "q2"), ("anchor", "positive")),
    *(("anchor", "positives"), ("query", "positive"), ("query", "positives"), ("query", "pos")),
    *(("query", "positivepassages"), ("question", "positivectxs"), ("query", "passage"), ("query", "document")),
    *(("query", "text"), ("question", "answer"), ("question", "passage"), ("source", "target")),
    *(("query", "answer"), ("query", "response"), ("sentence", "paraphrase"), ("question", "sentence")),
    *(("query", "doc"), ("query", "content"), ("query", "context"), ("question", "context"), ("question", "document")),
    *(("question", "text"), ("claim", "evidence"), ("context", "hypothesis")),
    # The second of two columns of one name, as it is called here, and in pandas.
    *((name, f"{name}{number}") for name in ("sentence", "text", "question") for number in (2, 1)),
    ("a", "b"),
)
# Of numbered ones the first is read.
NEGATIVES = (
    *("negative", "hardnegative", "neg", "hardneg", "negatives", "hardnegatives", "negativepassages"),
    *("hardnegativectxs", "negative0", "negative1", "neg0", "neg1", "hardnegative1"),
)
SCORES = (
    *("score", "similarityscore", "similarity", "goldscore", "gold", "goldsimilarity", "relatednessscore"),
    *("relatedness", "rating", "relevance", "relevancescore", "grade", "sim", "humanscore", "avgscore", "averagescore"),
    *("meanscore", "goldstandard", "similarityrating"),
    *("ähnlichkeit", "bewertung", "similarité", "similitud", "puntuación", "somiglianza", "punteggio", "similaridade"),
    *("benzerlik", "podobieństwo", "сходство", "оценка", "相似度", "分数", "得分", "類似度", "スコア", "유사도"),
    "점수",
)
LABELS = (
    # The words of a label come before its number.
    *("labeltext", "labelname", "label", "goldlabel", "isduplicate", "labels", "duplicate", "ismatch", "isparaphrase"),
    *("quality", "class"),
    *("category", "entailment", "entailmentlabel", "entailmentjudgment", "issimilar", "isequivalent", "isrelevant"),
    *("etikett", "étiquette", "etiqueta", "etichetta", "etykieta", "метка", "标签", "標籤", "ラベル", "라벨", "레이블"),
)
GOLD = frozenset((*SCORES, *LABELS))
# Names of judgements that are read as such where the cells are numbers of a scale or judging words.
_JUDGEMENTS = (
    "match similar same related target matches matched issame samemeaning isrelated equal equivalent paraphrase "
    "paraphrases humanrating meanrating avgrating averagerating ratingmean humanscore humansimilarity similaritymean "
    "similarityavg simscore stsscore sts overall mean average avg medianrating median groundtruth truth gt y "
    "annotation annotations judgement judgment assessment verdict decision agreement answer response responses rate "
    "points value evaluation opinion relation closeness likeness semanticsimilarity semanticrelatedness "
    "goldlabelscore goldrating finalscore finallabel consensus majority majorityvote reallabel binarylabel "
    "gleich identique igual"
)
JUDGEMENTS = tuple(_JUDGEMENTS.split())
SENTENCES = ("sentence", "text", "sentences", "texts", "sentence1", "document", "passage", "query", "question")
USUAL_NAMES = frozenset(chain(*PAIR_COLUMN_NAMES, NEGATIVES, GOLD, SENTENCES))
# The labels 0, 1, 2 of this pair are classes, not a scale.
NLI_PAIR = ("premise", "hypothesis")
MOST_COLUMNS = 2_000
MOST_LISTED = 20
# The most characters of a name: a header does not hold whole sentences.
LONG_NAME = 80

# What stands for a letter in a web page.
_ENTITY = re.compile(r"&(?:amp|quot|lt|gt|nbsp|#\d{2,5});")
# Chinese, Japanese, Thai and the like.
_LETTERS = re.compile("[\u0e01-\u0e5b\u3041-\u30ff\u4e00-\u9fff]{3}")
# A number, a date or a time.
_NUMERIC = re.compile(r"(?=\D*\d)[\d\s.,:/+T-]{1,40}(?:[AP]M)?(?:\s?(?:GMT|UTC).{0,9}|Z)?")
# The cells of the ids that Qualtrics writes below names and questions.
_IMPORT_ID = '{"ImportId":'
# What SurveyMonkey writes below the questions of answers.
_SURVEY_CELLS = ("Response", "Open-Ended Response")
# A scale at the end of a name: "score (0-5)".
NAMED_SCALE = re.compile(r"[(\[]\s*([+-]?[\d.]+\s*(?:-|–|\.\.|to)\s*[+-]?[\d.]+)\s*[)\]]\s*$")
# A number or a code without a space, such as the id of a text.
_ID = re.compile(r"[!-~]*\d[!-~]*")
_NEGATED = re.compile(r"(?:not|non|no|un|dis)(..+)")


@dataclass(frozen=True)
class PairColumns:
    """The columns of pairs, by their names in the table; None where there is none."""

    sentence1: str
    sentence2: str
    score: str | None = None
    label: str | None = None
    negative: str | None = None
    # Those of several raters, in place of a score or a label.
    ratings: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns as a user would name them: the sentences and, last, the judgement or "-"."""
        third = self.score or self.label or self.negative or "-"
        return (self.sentence1, self.sentence2) if self.ratings else (self.sentence1, self.sentence2, third)


def split_names(text: str | None, existing: Collection[str] = ()) -> tuple[str, ...]:
    """The names in "a,b". A name may hold a comma if it is written \\, or if the whole text is an existing name."""
    if text is None:
        return ()
    if text in existing:
        return (text,)
    return tuple(name.strip().replace("\0", ",") for name in text.replace("\\,", "\0").split(","))


def normalize_name(name: str) -> str:
    """A name in lower case without spaces, dots, dashes, underscores and the like, and without a scale at its end."""
    return re.sub(r"[\s_.\-\ufe0f?:*#]+", "", NAMED_SCALE.sub("", name)).casefold()


def side_of(label: str) -> bool | None:
    """Whether the name of a label says that two sentences are a match or not; None where it says neither."""
    key = normalize_name(label) if label != "-1" else label
    if key in POSITIVE_LABELS or key in NEGATIVE_LABELS:
        return key in POSITIVE_LABELS
    negated = _NEGATED.fullmatch(key)
    return False if negated and negated[1] in POSITIVE_LABELS else None


def is_usual_name(name: str) -> bool:
    """Whether this is one of the usual names of columns."""
    return normalize_name(name) in USUAL_NAMES


def looks_like_data(first: Sequence[str]) -> bool:
    """Whether a table's first line is a row and no header: it has a number or a whole sentence, and no usual name.

    More sentences than such names are a row, and 0, 1, 2 are names, as pandas writes them.
    """
    cells = [cell for cell in first if cell]
    names, are_numbered = sum(map(is_usual_name, cells)), cells[1:] and cells == [str(at) for at in range(len(cells))]
    if (names and names >= sum(map(_is_sentence, cells))) or are_numbered:
        return False
    return any(parse_number(cell) is not None or _is_sentence(cell) for cell in first)


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Names that differ and are not empty, and a remark on each that had to change."""
    unique: list[str] = []
    remarks = []
    stripped = [re.sub(rf"^[{UNSEEN}]+|[{UNSEEN}]+$", "", name) for name in names]
    for position, name in enumerate(stripped, start=1):
        if name and name not in unique:
            unique.append(name)
            continue
        unique.append(free_name(name or f"column_{position}", [*unique, *stripped]))
        problem = f"has the same name as another, {quoted(name)}" if name else "has no name"
        remarks.append(f"Column {position} {problem}: it is called {unique[-1]} here.")
    return tuple(unique), remarks


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """The position of the header among the first rows: 0, unless titles of fewer cells stand above it.

    The header is the first row of several cells, or one below it with more cells and usual names.
    """
    widths = [sum(bool(cell.strip()) for cell in row) for row in rows]
    at = next((at for at, width in enumerate(widths) if width > 1), 0)
    names = [sum(map(is_usual_name, row)) for row in rows]
    wider = (at for at, count in enumerate(names) if count > 1 and widths[at] > max(widths[:at], default=0))
    # Titles of groups of columns may be usual names too.
    at = max(wider, key=names.__getitem__, default=at)
    is_title = not any(names[:at]) or names[at] > max(names[:at])
    return at if is_title and not looks_like_data(rows[at]) else 0


def header_of(path: Path, rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], int, list[str]]:
    """The columns by a table's first rows, the number of rows up to the header, 0 without one, and remarks on both.

    InputError if it has more columns than a table of sentences can have.
    """
    above = header_row(rows)
    first = rows[above]
    below = [row for row in rows[above + 1 :] if row]
    has_row_names = all(len(row) == len(first) + 1 and parse_number(row[0]) is not None for row in below)
    if below and has_row_names and any(row[-1].strip() for row in below):
        # R writes no name above the numbers of the rows.
        first = ["", *first]
    if len(first) > MOST_COLUMNS:
        raise InputError(f"{path.name} has {len(first):,} columns in its first line: this is no table of sentences.")
    ids = next((at for at, row in enumerate(rows) if row and all(cell.startswith(_IMPORT_ID) for cell in row)), None)
    if ids is not None:
        columns, remarks = unique_names(rows[0])
        return columns, ids + 1, [*remarks, f"Rows 2 to {ids + 1} are questions and ids of Qualtrics and left out."]
    second = below[0] if below else []
    if second and not second[0] and any(cell in _SURVEY_CELLS for cell in second):
        columns, remarks = unique_names(first)
        return columns, above + 2, [*remarks, f"Row {above + 2} is a second header of SurveyMonkey and left out."]
    if not looks_like_data(first) or _is_unlike(first, below):
        columns, remarks = unique_names(first)
        if not any(map(is_usual_name, first)) and not any(map(looks_like_data, below)):
            remarks.append(f"The first row is read as the header: {listed(columns)}; if it is data, add one above.")
        if above:
            remarks.insert(0, f"The header seems to be in row {above + 1}; the rows above it are left out.")
        return columns, above + 1, remarks
    # A first row may be longer or shorter than the others.
    width, _ = Counter(map(len, filter(None, rows))).most_common(1)[0]
    columns, _ = unique_names([""] * width)
    called = f"columns are called {columns[0]} to {columns[-1]}" if columns[1:] else f"column is called {columns[0]}"
    return columns, 0, [f"The first line is data, not a header, so the {called}."]


def free_name(name: str, taken: Sequence[str]) -> str:
    """The first of ``name``, name_2, name_3, … that no column has, in any case of its letters."""
    used = {other.casefold() for other in taken}
    candidates = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate.casefold() not in used)


def listed(columns: Sequence[str], noun: str = "column") -> str:
    """The names of columns as an error lists them, on one line, cut and limited."""
    names = [" ".join(name.split()) for name in columns[:MOST_LISTED]]
    names = [name if len(name) <= LONG_NAME else name[:LONG_NAME] + "…" for name in names]
    more = f" and {len(columns) - MOST_LISTED} more" if len(columns) > MOST_LISTED else ""
    return f"the {noun}{'s' * (len(columns) > 1)} {', '.join(names)}{more}"


def _is_unlike(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a first row of sentences are the questions of a form: no other row has any, or one is above numbers."""
    if len(below) < 2 or len(first) < 2 or any(map(_NUMERIC.fullmatch, first)):
        return False
    columns = [(name, [row[at] for row in below if row[at:] and row[at]]) for at, name in enumerate(first) if name]
    if all(name.rstrip().endswith("?") and "?" not in "".join(cells) for name, cells in columns):
        return True
    return any(len(cells) > 1 and all(map(_NUMERIC.fullmatch, cells)) for _, cells in columns)


def _is_sentence(cell: str) -> bool:
    words = len(cell.split())
    return len(cell) > LONG_NAME or words >= 6 or (words >= 3 and cell.rstrip().endswith((".", "?", "!")))
