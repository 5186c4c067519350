"""The columns that the first rows suggest where names say nothing.

Sentences are mostly letters, in more than one word, and seldom the same. Judgements are 0 and 1, words such as yes and
no, or numbers of a small range. What several columns may equally well be is left open.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any
from unicodedata import category

from training.catalogue import NLI_LABELS
from training.data.tables.cells import as_text, parse_number
from training.data.tables.columns import Cells, normalize_name, side_of
from training.data.tables.rows import HEAD_ROWS

# The least share of letters in the characters of a sentence.
LETTERS = 0.6
# From here on lie the scripts that do not put spaces between words.
UNSPACED = "\u0e00"
# A column in which each text occurs so often, on average, holds no sentences.
REPEATS = 20
# Two columns are no pair, such as a name and a comment, if one is so many times as long as the other.
UNLIKE = 4


def sentence_columns(rows: Cells) -> list[str]:
    """The columns that hold sentences, in the order of the table."""
    return [name for name, cells in rows.items() if _are_sentences(_texts(cells))]


def guess_sentences(rows: Cells) -> tuple[str, ...]:
    """The two columns of a pair; or the one with the longest sentences; or none.

    Two are a pair if there are no others, or their names differ in the last character alone.
    """
    names = sentence_columns(rows)
    length = {name: fmean(map(len, _texts(rows[name]))) for name in names}
    alike = [pair for pair in combinations(names, 2) if len({normalize_name(name)[:-1] for name in pair}) == 1]
    for pair in [names] if len(names) == 2 else alike[:1]:
        if max(length[name] for name in pair) < UNLIKE * min(length[name] for name in pair):
            return tuple(pair)
    return (max(names, key=length.__getitem__),) if names else ()


def guess_target(rows: Cells, of_pairs: bool) -> str | None:
    """The column of judgements: labels, else scores, else classes of single sentences; None where two are as likely."""
    texts = {name: _texts(cells) for name, cells in rows.items()}
    checks = [_are_labels, _are_scores, *([] if of_pairs else [_are_classes])]
    likely = ([name for name in texts if check(texts[name])] for check in checks)
    best = next(filter(None, likely), [])
    return best[0] if len(best) == 1 else None


def _texts(cells: Sequence[Any]) -> list[str]:
    return [text.strip() for cell in cells[:HEAD_ROWS] if (text := as_text(cell)) is not None]


def _are_sentences(texts: list[str]) -> bool:
    if not texts or len(set(texts)) < max(min(len(texts), 2), len(texts) / REPEATS):
        return False
    in_words = fmean(" " in text or max(text) >= UNSPACED for text in texts)
    characters = ("".join(text[:200].split()) for text in texts)
    letters = fmean(fmean(category(character)[0] in "LM" for character in text) for text in characters)
    return in_words >= 0.5 and letters >= LETTERS


def _are_labels(texts: list[str]) -> bool:
    numbers = set(map(parse_number, texts))
    words = {text.lower() for text in texts}
    return len(words) > 1 and (
        numbers == {0.0, 1.0} or all(word in NLI_LABELS or side_of(word) is not None for word in words)
    )


def _are_scores(texts: list[str]) -> bool:
    numbers = [number for text in texts if (number := parse_number(text)) is not None]
    if len(numbers) < len(texts) or len(set(numbers)) < 2:
        return False
    # Consecutive numbers are those of the rows.
    are_consecutive = all(b - a == 1 for a, b in pairwise(numbers))
    low, high = min(numbers), max(numbers)
    return not are_consecutive and ((low >= 0 and high <= 10) or (low >= -1 and high <= 1))


def _are_classes(texts: list[str]) -> bool:
    return 2 <= len(set(texts)) <= len(texts) / 3 and None in map(parse_number, texts)
