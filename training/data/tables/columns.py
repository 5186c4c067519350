"""The columns of a table that hold the sentences, the gold score and the label: by name, as requested, or by content.

Names are compared without case, spaces, dots, dashes and underscores: ``Sentence 1``, ``sentence_1`` and
``SENTENCE1`` are one name. A table of exactly two columns needs no usual names.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from training.catalogue import NEGATIVE_LABELS, POSITIVE_LABELS
from training.data.tables.cells import UNSEEN, as_text, parse_number, quoted
from training.data.tables.rows import OpenedTable
from training.errors import InputError, did_you_mean

PAIR_COLUMN_NAMES = (
    *(("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("sent1", "sent2"), ("sent0", "sent1")),
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
SPLIT = "split"
SPLIT_COLUMNS = (SPLIT, "partition", "subset")
SPLIT_NAMES = {
    "dev": ("dev", "validation", "valid", "val"),
    "train": ("train", "training"),
    "test": ("test", "testing"),
}
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
# A scale at the end of a name: "score (0-5)".
NAMED_SCALE = re.compile(r"[(\[]\s*([+-]?[\d.]+\s*(?:-|–|\.\.|to)\s*[+-]?[\d.]+)\s*[)\]]\s*$")
# A number or a code without a space, such as the id of a text.
_ID = re.compile(r"[!-~]*\d[!-~]*")
_NEGATED = re.compile(r"(?:not|non|no|un|dis)(..+)")

# The cells of each column.
Cells = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class PairColumns:
    """The columns of pairs, by their names in the table; None where there is none."""

    sentence1: str
    sentence2: str
    score: str | None = None
    label: str | None = None
    negative: str | None = None


def roles_of(columns: Sequence[str], rows: Cells | None = None) -> dict[str, str]:
    """The names of the columns by their roles, as far as the names tell.

    The roles are sentence1 and sentence2, or anchor, positive and negative, or sentence; beside them score and label.
    Columns of sentences whose names differ by 1 and 2 alone, in any language, are the two sentences.
    Two columns without a usual name can only be the two sentences, unless one holds numbers in the first ``rows``.
    """
    by_key = _by_normalized_name(columns)
    roles = {"negative": _first(NEGATIVES, by_key), "score": _first(SCORES, by_key), "label": _first(LABELS, by_key)}
    pair = next((pair for pair in PAIR_COLUMN_NAMES if pair[0] in by_key and pair[1] in by_key), None)
    if pair is None and rows is not None:
        stems = [key[:-1] for key in by_key if key[-1:] == "1" and key[:-1] + "2" in by_key]
        numbered = [(f"{stem}1", f"{stem}2") for stem in stems if stem and f"{stem}3" not in by_key]
        numbered = [keys for keys in numbered if all(_are_sentences(rows[by_key[key]]) for key in keys)]
        pair = numbered[0] if len(numbered) == 1 else None
    has_numbers = rows is not None and any(_are_numbers(rows[name]) for name in columns)
    if pair is None and len(columns) == 2 and not any(map(is_usual_name, columns)) and not has_numbers:
        roles |= {"sentence1": columns[0], "sentence2": columns[1]}
    elif pair is not None:
        sentences = ("anchor", "positive") if roles["negative"] else ("sentence1", "sentence2")
        roles |= {role: by_key[key] for role, key in zip(sentences, pair, strict=True)}
    else:
        roles["sentence"] = _first(SENTENCES, by_key)
    return {role: name for role, name in roles.items() if name}


def remarks_on(columns: Sequence[str], rows: Cells) -> list[str]:
    """Remarks on the columns of sentences, by their names and their first cells: no usual names, or ids in place."""
    texts = [name for role, name in roles_of(columns, rows).items() if role not in ("score", "label")]
    is_by_number = len(texts) == 2 and not any(map(is_usual_name, texts))
    alone = ", the only columns," if len(columns) == 2 else ""
    remarks = [f"{texts[0]} and {texts[1]}{alone} are read as the two sentences."] if is_by_number else []
    cells = {name: [text for cell in rows[name] if (text := as_text(cell)) is not None] for name in texts}
    if ids := [name for name in texts if cells[name] and all(_ID.fullmatch(text.strip()) for text in cells[name])]:
        remarks.append(f"Numbers or codes alone are in {listed(ids)}: if they are ids, name the columns of texts.")
    for name in texts:
        if odd := next((text for text in cells[name] if _is_misread(text) or _ENTITY.search(text)), None):
            what = "letters in a wrong encoding" if _is_misread(odd) else "codes of a web page for letters"
            remarks.append(f"{name} holds {what}, such as {quoted(odd)}: mend them where the file was written.")
    return remarks


def canonical_names(columns: Sequence[str], rows: Cells | None = None) -> dict[str, str]:
    """The canonical name of each column: text_a -> sentence1, similarity -> score. Others keep theirs, or have none."""
    roles = roles_of(columns, rows)
    canonical = dict.fromkeys(roles, "") | {name: role for role, name in roles.items()}
    return {name: canonical.get(name, name) for name in columns}


def pick_columns(table: OpenedTable, requested: Sequence[str] | None = None) -> PairColumns:
    """The pair's columns: two (or three, the gold score last) as ``requested``, else by name.

    InputError, which lists the columns, if a requested one does not exist, or no names are those of a pair.
    """
    if requested:
        return _as_requested(table, [name for name in requested if name.strip()])
    roles = roles_of(table.columns, table.sample)
    first, second = roles.get("sentence1") or roles.get("anchor"), roles.get("sentence2") or roles.get("positive")
    if first is None or second is None:
        raise InputError(
            f"{table.path.name} has {listed(table.columns)}, but two with sentences are needed: call them sentence1 "
            "and sentence2, or say which they are."
        )
    return _with_the_rest(table, first, second)


def has_pairs(table: OpenedTable) -> bool:
    """Whether the names of the columns show that each row is a pair of sentences."""
    return not {"sentence2", "positive"}.isdisjoint(roles_of(table.columns, table.sample))


def pick_sentence(table: OpenedTable, requested: str | None = None) -> str:
    """The one column of sentences: as ``requested``, else by name, else the only one. InputError if there is none."""
    if requested:
        return _existing(table, requested)
    if name := _first(SENTENCES, _by_normalized_name(table.columns)):
        return name
    if len(table.columns) == 1:
        return table.columns[0]
    raise InputError(
        f"{table.path.name} has {listed(table.columns)}: call the one to use sentence, or say which it is."
    )


def split_column(table: OpenedTable) -> str | None:
    """The column that says which rows are for training, development and tests, by its name and its first cells."""
    names = {value for values in SPLIT_NAMES.values() for value in values}
    for column in table.columns:
        cells = {str(cell).strip().lower() for cell in table.sample[column] if as_text(cell) is not None}
        if normalize_name(column) in SPLIT_COLUMNS and cells and cells <= names:
            return column
    return None


def split_names(text: str | None, existing: Collection[str] = ()) -> tuple[str, ...]:
    """The names in "a,b". A name may hold a comma if it is written \\, or if the whole text is an existing name."""
    if text is None:
        return ()
    if text in existing:
        return (text,)
    return tuple(name.strip().replace("\0", ",") for name in text.replace("\\,", "\0").split(","))


def requested_names(table: OpenedTable, requested: Sequence[str]) -> dict[str, str]:
    """The canonical names of the ``requested`` columns: one of sentences, the two of a pair, or these and a third.

    The third holds negatives, labels or scores, by its name or its first cells. InputError as `pick_columns`.
    """
    if len(requested) == 1:
        return {_existing(table, requested[0]): "sentence"}
    pair = _as_requested(table, requested)
    first, second, third = pair.sentence1, pair.sentence2, pair.score if requested[2:] else None
    if third is None:
        judgements = {pair.score: "score", pair.label: "label"}
        return {first: "sentence1", second: "sentence2"} | {name: role for name, role in judgements.items() if name}
    key, cells = normalize_name(third), table.preview(50).rows[third]
    if key in NEGATIVES or any(_is_sentence(cell) for cell in cells if isinstance(cell, str)):
        return {first: "anchor", second: "positive", third: "negative"}
    is_score = key not in LABELS and _are_numbers(cells)
    return {first: "sentence1", second: "sentence2", third: "score" if is_score else "label"}


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
    if not looks_like_data(first) or _is_unlike(first, below):
        columns, remarks = unique_names(first)
        if not any(map(is_usual_name, first)) and not any(map(looks_like_data, below)):
            remarks.append(f"The first row is read as the header: {listed(columns)}; if it is data, add one above.")
        if above:
            remarks.insert(0, f"The header seems to be in row {above + 1}; the rows above it are left out.")
        return columns, above + 1, remarks
    columns, _ = unique_names([""] * len(first))
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


def _by_normalized_name(columns: Sequence[str]) -> dict[str, str]:
    """The columns by their normalized names; of several with the same, the first."""
    return {normalize_name(name): name for name in reversed(columns)}


def _first(names: Sequence[str], by_key: dict[str, str]) -> str | None:
    return next((by_key[name] for name in names if name in by_key), None)


def _as_requested(table: OpenedTable, requested: Sequence[str]) -> PairColumns:
    if len(requested) not in (2, 3):
        raise InputError(f"Name two columns, or three with the gold score last; {len(requested)} are named.")
    first, second, *score = (_existing(table, name) for name in requested)
    if first == second:
        raise InputError(f"Both sentences are to come from the column {first}: name two different columns.")
    return PairColumns(first, second, score=score[0]) if score else _with_the_rest(table, first, second)


def _with_the_rest(table: OpenedTable, first: str, second: str) -> PairColumns:
    """A pair with its gold score, label and negative, by their names."""
    by_key = _by_normalized_name([name for name in table.columns if name not in (first, second)])
    score, label, negative = (_first(names, by_key) for names in (SCORES, LABELS, NEGATIVES))
    if score is None and label and normalize_name(first) not in NLI_PAIR and _are_numbers(table.sample[label]):
        score, label = label, None
    return PairColumns(first, second, score=score, label=label, negative=negative)


def _is_unlike(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a first row of sentences are the questions of a form: no other row has any, or one is above numbers."""
    if len(below) < 2 or len(first) < 2 or any(map(_NUMERIC.fullmatch, first)):
        return False
    columns = [(name, [row[at] for row in below if row[at:] and row[at]]) for at, name in enumerate(first) if name]
    if all(name.rstrip().endswith("?") and "?" not in "".join(cells) for name, cells in columns):
        return True
    return any(len(cells) > 1 and all(map(_NUMERIC.fullmatch, cells)) for _, cells in columns)


def _existing(table: OpenedTable, requested: str) -> str:
    """The column as the table spells it."""
    if requested in table.columns:
        return requested
    names = [name for name in table.columns if normalize_name(name) == normalize_name(requested)]
    if len(names) == 1:
        return names[0]
    meant = did_you_mean(requested, table.columns)
    raise InputError(f"{table.path.name} has no column {quoted(requested)}; it has {listed(table.columns)}{meant}.")


def _are_numbers(cells: Sequence[Any]) -> bool:
    texts = [text for cell in cells if (text := as_text(cell)) is not None]
    return bool(texts) and None not in map(parse_number, texts)


def _are_sentences(cells: Sequence[Any]) -> bool:
    """Whether cells are texts of several words, or of letters that are written without spaces."""
    texts = [text for cell in cells if (text := as_text(cell)) is not None]
    return bool(texts) and sum(" " in text.strip() or bool(_LETTERS.search(text)) for text in texts) > len(texts) / 2


def _is_misread(text: str) -> bool:
    """Whether a text of UTF-8 was once read as Windows-1252: "cafÃ©"."""
    try:
        return not text.isascii() and text.encode("cp1252").decode() != text
    except UnicodeError:
        return False


def _is_sentence(cell: str) -> bool:
    words = len(cell.split())
    return len(cell) > LONG_NAME or words >= 6 or (words >= 3 and cell.rstrip().endswith((".", "?", "!")))
