"""Columns of cells to a `Dataset`: which form it has, which rows are usable, what scores and labels mean.

The columns have the names that `training.data.tables.columns.canonical_names` gives: sentence1, sentence2 and
perhaps score or label; or anchor, positive, negative; or sentence. Each decision is stated in a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training.data.dataset import TOP_SCORE, Dataset
from training.data.tables.columns import as_text, bad_number, canonical_names, listed, parse_number
from training.errors import InputError

NLI_LABELS = ("entailment", "neutral", "contradiction")  # the order of the sets on the Hub
MISSING = frozenset({"", "-", "-1", "nan", "none", "null"})
MOST_LABELS = 1_000  # more are no classes but something else, such as sentences

Columns = dict[str, list[Any]]
# The first whose columns are all present is taken.
FORMS = (("anchor", "positive", "negative"), ("sentence1", "sentence2"), ("sentence",))


def used_columns(name: str, columns: Sequence[str]) -> list[str]:
    """Those of a table's columns that `parse_dataset` reads. InputError if no form fits; it lists the columns."""
    names = canonical_names(columns)
    form = _form(name, list(names.values()))
    return [column for column in columns if names[column] in (*form, "score", "label")]


def parse_dataset(name: str, raw: Columns, source: str = "") -> Dataset:
    """Cells by canonical column name -> a clean Dataset.

    Rows with an empty sentence, an empty score or an unknown label (-1, "-", empty) are left out, and counted
    in the notes. InputError if no form fits, a score is no number, or nothing is left.
    """
    texts = [[(as_text(cell) or "").strip() for cell in raw[column]] for column in _form(name, list(raw))]
    score_cells, label_cells = (raw.get("score"), raw.get("label")) if len(texts) == 2 else (None, None)
    notes: list[str] = []
    if score_cells is None and label_cells is not None and _are_fractions(label_cells):
        score_cells, label_cells = label_cells, None
        notes.append("the column label holds fractions: read as scores")

    wrong = {"with an empty sentence": {i for column in texts for i, text in enumerate(column) if not text}}
    if score_cells is not None:
        wrong["without a score"] = {i for i, cell in enumerate(score_cells) if _is_missing(cell) and cell != -1}
    if label_cells is not None:
        wrong["without a gold label"] = {i for i, cell in enumerate(label_cells) if _is_missing(cell)}
    left_out: set[int] = set()
    for why, which in wrong.items():
        if new := which - left_out:
            notes.append(f"{len(new):,} rows {why} left out")
        left_out |= which
    keep = [i for i in range(len(texts[0])) if i not in left_out]
    if not keep:
        raise InputError(f"{name} holds no usable row" + "".join(f"; {note}" for note in notes))

    data = Dataset(
        name=name,
        columns=tuple([column[i] for i in keep] for column in texts),
        source=source,
        notes=tuple(notes),
        rows=[i + 1 for i in keep],
    )
    if score_cells is not None:
        data = _with_scores(data, [score_cells[i] for i in keep])
    if label_cells is not None:
        data = _with_labels(data, [label_cells[i] for i in keep])
    return data


def _form(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that hold the sentences of a row."""
    form = next((form for form in FORMS if set(form) <= set(columns)), None)
    if form is not None:
        return form
    if len(columns) == 2 and not set(columns) & {"score", "label", "sentence", "negative"}:
        return tuple(columns)  # two columns can only be the two sentences
    raise InputError(
        f"{name} has {listed(columns)}; it needs sentence1 and sentence2 (with score or label, if there "
        "are any), or anchor, positive and negative, or sentence"
    )


def _is_missing(cell: Any) -> bool:
    return cell is None or str(cell).strip().lower() in MISSING


def _with_scores(data: Dataset, cells: list[Any]) -> Dataset:
    numbers = [parse_number(cell) for cell in cells]
    for row, cell, number in zip(data.rows, cells, numbers, strict=True):
        if number is None:
            raise InputError(f"{data.name}, {bad_number('score', cell, row)}")
    scores, note = to_gold(data.name, [number for number in numbers if number is not None])
    return replace(data, scores=scores, notes=(*data.notes, note) if note else data.notes)


SCORE_SCALES = ((0.0, 1.0), (0.0, 5.0), (-1.0, 1.0), (0.0, 10.0), (0.0, 100.0))


def to_gold(name: str, scores: list[float]) -> tuple[list[float], str]:
    """Rescale scores to 0–5. Returns (gold scores, a note on it, "" if they were on that scale already).

    The scale is the first of `SCORE_SCALES` that holds every score: a file whose scores all lie in 0–1 is taken to
    be in 0–1. InputError if none does.
    """
    low, high = min(scores), max(scores)
    for bottom, top in SCORE_SCALES:
        if bottom <= low and high <= top:
            if (bottom, top) == (0.0, TOP_SCORE):
                return scores, ""
            gold = [(score - bottom) / (top - bottom) * TOP_SCORE for score in scores]
            return gold, f"scores from {bottom:g} to {top:g} stretched to 0–5"
    raise InputError(f"the scores of {name} run from {low:g} to {high:g}; give them in 0–5, 0–1, -1–1, 0–10 or 0–100")


def _are_fractions(cells: list[Any]) -> bool:
    """True for a "label" column of numbers that are not all whole: what other tools call a similarity label."""
    fractions = False
    for cell in cells:
        if _is_missing(cell):
            continue
        number = parse_number(cell)
        if number is None:
            return False
        fractions |= not number.is_integer()
    return fractions


def _with_labels(data: Dataset, cells: list[Any]) -> Dataset:
    """Labels numbered: those of natural language inference in the Hub's order, others sorted."""
    texts = [_label_text(cell) for cell in cells]
    found, notes = set(texts), data.notes
    if found == {"0", "1", "2"}:
        texts = [NLI_LABELS[int(text)] for text in texts]
        notes = (*notes, f"labels 0, 1, 2 read as {', '.join(NLI_LABELS)}")
    elif not found <= set(NLI_LABELS):
        names = tuple(sorted(found, key=lambda text: (len(text), text) if text.isdigit() else (99, text)))
        if len(names) > MOST_LABELS:
            raise InputError(
                f"{data.name} has {len(names):,} different labels, the first {names[0][:40]!r}; a label is one of "
                f"at most {MOST_LABELS}"
            )
        return replace(data, labels=[names.index(text) for text in texts], label_names=names)
    labels = [NLI_LABELS.index(text) for text in texts]
    return replace(data, labels=labels, label_names=NLI_LABELS, notes=notes)


def _label_text(cell: Any) -> str:
    """3, "3" and 3.0 are one label, and so are "Neutral" and "neutral"."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip().lower()
