"""Data sets by name, and users' files, as parallel lists of sentences with scores or labels.

    load_data("stsb:dev")          the STS benchmark, 1,500 scored pairs
    load_data("snli+mnli")         two sets of one form, joined
    load_data("mine.csv")          a file with sentence1, sentence2 and perhaps score or label;
                                   or anchor, positive, negative; or sentence

Whatever the source, a `Dataset` says the same things in the same units: gold scores run from 0 to 5, labels
are numbered from 0 and have names, and every decision taken on the way (a row left out, a range of scores
stretched) is a sentence in ``notes`` that the pages show. Which objective can learn from which form, and the
views derived for that, are in `training.views`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from training.errors import InputError

TOP_SCORE = 5.0  # gold scores run from 0 (nothing in common) to 5 (the same meaning)

SENTENCES, PAIRS, SCORED, LABELLED, TRIPLETS = (
    "sentences",
    "pairs",
    "scored pairs",
    "labelled pairs",
    "triplets",
)

NLI_LABELS = ("entailment", "neutral", "contradiction")  # the order of the sets on the Hub
MISSING = frozenset({"", "-", "-1", "nan", "none", "null"})

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Dataset:
    """Rows of one, two or three sentences each; every list has the same length.

    ``columns`` holds one list per sentence of a row: (sentence,), (first, second) or (anchor, positive,
    negative). ``scores`` are gold scores in 0–5, ``labels`` indices into ``label_names``. ``rows`` are the
    1-based row numbers in the source, so that a message can name a row that its owner can find.
    """

    name: str
    columns: tuple[list[str], ...]
    scores: list[float] | None = None
    labels: list[int] | None = None
    label_names: tuple[str, ...] = ()
    origin: str = ""
    notes: tuple[str, ...] = ()
    rows: Sequence[int] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.rows:
            object.__setattr__(self, "rows", range(1, len(self) + 1))

    def __len__(self) -> int:
        return len(self.columns[0])

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


class HubSet(NamedTuple):
    """Where a named set lies on the Hub: file patterns per split, tried in order."""

    repo: str
    splits: dict[str, tuple[str, ...]]


def _sts(repo: str) -> HubSet:
    return HubSet(repo, {"test": ("*test*.parquet", "*test*.jsonl*", "*test*.json*")})


HUB_SETS: dict[str, HubSet] = {
    **{f"sts{year}": _sts(f"mteb/sts{year}-sts") for year in (12, 13, 14, 15, 16)},
    "sickr": _sts("mteb/sickr-sts"),
    "snli": HubSet(
        "stanfordnlp/snli",
        {
            "train": ("plain_text/train-*.parquet",),
            "dev": ("plain_text/validation-*.parquet",),
            "test": ("plain_text/test-*.parquet",),
        },
    ),
    "mnli": HubSet(
        "nyu-mll/multi_nli",
        {
            "train": ("data/train-*.parquet",),
            "dev": ("data/validation_matched-*.parquet",),
            "test": ("data/validation_mismatched-*.parquet",),
        },
    ),
    "all-nli": HubSet(
        "sentence-transformers/all-nli",
        {split: (f"pair-class/{split}-*.parquet",) for split in ("train", "dev", "test")},
    ),
    "wiki-sections": HubSet(
        "sentence-transformers/wikipedia-sections",
        {
            "train": ("triplet/train-*.parquet",),
            "dev": ("triplet/validation-*.parquet",),
            "test": ("triplet/test-*.parquet",),
        },
    ),
}
STSB_SPLITS = ("train", "dev", "test")
DATA_NAMES = ("stsb", *HUB_SETS)


def load_data(name: str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """Load a named set, a file, or several of one form joined by "+".

    ``split`` is the one taken where the name gives none ("stsb" against "stsb:dev") and the set has several.
    InputError if the name is unknown, the split does not exist, the file cannot be read or the forms differ.
    """
    return join([load_one(part, home, split) for part in split_names(name)])


def split_names(name: str) -> list[str]:
    """"snli+mnli" -> ["snli", "mnli"]. A path that exists may itself contain a plus."""
    if Path(name).exists():
        return [name]
    return [part.strip() for part in name.split("+") if part.strip()] or [name]


def load_one(name: str, home: str | Path | None = None, split: str = "train") -> Dataset:
    """One named set or one file, without joining. See `load_data`."""
    head, _, asked = name.partition(":")
    if head == "stsb":
        return _load_stsb(asked or split, home)
    if head in HUB_SETS:
        return _load_hub(head, asked, split, home)
    path = Path(name).expanduser()
    if not path.is_file():
        known = ", ".join(DATA_NAMES)
        raise InputError(f"data {name!r} is neither a file nor a known set; the sets are {known}")
    from training.tables import read_columns

    return from_columns(path.name, read_columns(path), origin=str(path))


def join(parts: Sequence[Dataset]) -> Dataset:
    """Data sets of one form one after the other. InputError if their forms or their labels differ."""
    first, *others = parts
    if not others:
        return first
    for other in others:
        if other.kind != first.kind:
            raise InputError(
                f"{first.name} holds {first.kind} and {other.name} {other.kind}; join sets of the same form"
            )
        if other.label_names != first.label_names:
            ours, theirs = ", ".join(first.label_names), ", ".join(other.label_names)
            raise InputError(f"the labels of {first.name} are {ours}, those of {other.name} {theirs}")
    scores = [part.scores or [] for part in parts]
    labels = [part.labels or [] for part in parts]
    return Dataset(
        name="+".join(part.name for part in parts),
        columns=tuple([s for part in parts for s in part.columns[i]] for i in range(len(first.columns))),
        scores=sum(scores, []) if first.scores is not None else None,
        labels=sum(labels, []) if first.labels is not None else None,
        label_names=first.label_names,
        origin="; ".join(dict.fromkeys(part.origin for part in parts)),
        notes=tuple(f"{part.name}: {note}" for part in parts for note in (*part.notes, f"{len(part):,} rows")),
        rows=[row for part in parts for row in part.rows],
    )


# ---------------------------------------------------------------- the sets

STSB_COLUMNS = {"score": 4, "sentence1": 5, "sentence2": 6}  # genre, file, year, id, score, s1, s2, licence…


def _load_stsb(split: str, home: str | Path | None) -> Dataset:
    from training.sources import stsb_folder

    if split not in STSB_SPLITS:
        raise InputError(f"stsb has no split {split!r}; choose {', '.join(STSB_SPLITS)}")
    folder = stsb_folder(home)
    # Tab separated and never quoted: a csv reader would swallow rows at a lone quotation mark.
    lines = (folder.path / f"sts-{split}.csv").read_text(encoding="utf-8").split("\n")
    cells = [line.split("\t") for line in lines if line.strip()]
    columns = {name: [row[at] for row in cells] for name, at in STSB_COLUMNS.items()}
    return from_columns(f"stsb:{split}", columns, folder.origin)


def _load_hub(head: str, asked: str, split: str, home: str | Path | None) -> Dataset:
    from training.sources import dataset_files
    from training.tables import read_columns

    source = HUB_SETS[head]
    chosen = asked or (split if split in source.splits else next(iter(source.splits)))
    if chosen not in source.splits:
        raise InputError(f"{head} has no split {chosen!r}; choose {', '.join(source.splits)}")
    located = dataset_files(source.repo, source.splits[chosen], home)
    tables = [read_columns(path) for path in located.paths]
    merged = {name: [cell for table in tables for cell in table[name]] for name in tables[0]}
    return from_columns(f"{head}:{chosen}", merged, located.origin)


# ---------------------------------------------------------------- from raw columns to a Dataset

FORMS: tuple[tuple[tuple[str, ...], ...], ...] = (  # the first whose columns are all there is taken
    (("anchor", "query"), ("positive",), ("negative",)),
    (("sentence1", "premise"), ("sentence2", "hypothesis")),
    (("anchor", "query"), ("positive",)),
    (("sentence", "text"),),
)


def from_columns(name: str, raw: Columns, origin: str = "") -> Dataset:
    """Raw cells by column name -> a clean Dataset.

    Rows with an empty sentence, an empty score or an unknown label (-1, "-", empty) are left out, and counted
    in the notes. InputError if no form fits, a score is no number, or nothing is left.
    """
    by_name = {key.strip().lower(): key for key in raw}
    sentences = [raw[by_name[alias]] for alias in _form(name, by_name)]
    score_cells = raw[by_name["score"]] if "score" in by_name else None
    label_cells = raw[by_name["label"]] if "label" in by_name else None
    notes: list[str] = []
    if score_cells is None and label_cells is not None and _are_fractions(label_cells):
        score_cells, label_cells = label_cells, None
        notes.append("the column label holds fractions: read as scores")
    if len(sentences) != 2:
        score_cells = label_cells = None

    dropped: dict[str, set[int]] = {"with an empty sentence": set()}
    texts = [["" if cell is None else str(cell).strip() for cell in column] for column in sentences]
    dropped["with an empty sentence"] = {i for column in texts for i, text in enumerate(column) if not text}
    if score_cells is not None:
        dropped["without a score"] = {i for i, cell in enumerate(score_cells) if _is_missing(cell, "-1")}
    if label_cells is not None:
        dropped["without a gold label"] = {i for i, cell in enumerate(label_cells) if _is_missing(cell)}
    out: set[int] = set()
    for why, which in dropped.items():
        if which - out:
            notes.append(f"{len(which - out):,} rows {why} left out")
        out |= which
    keep = [i for i in range(len(texts[0])) if i not in out]
    if not keep:
        raise InputError(f"{name} holds no usable row" + "".join(f"; {note}" for note in notes))

    scores = labels = None
    label_names: tuple[str, ...] = ()
    if score_cells is not None:
        numbers = [_number(name, i, score_cells[i]) for i in keep]
        scores, note = to_gold(name, numbers)
        notes += [note] if note else []
    if label_cells is not None:
        labels, label_names, note = _number_labels([label_cells[i] for i in keep])
        notes += [note] if note else []
    return Dataset(
        name=name,
        columns=tuple([column[i] for i in keep] for column in texts),
        scores=scores,
        labels=labels,
        label_names=label_names,
        origin=origin,
        notes=tuple(notes),
        rows=[i + 1 for i in keep],
    )


def _form(name: str, present: dict[str, str]) -> list[str]:
    for form in FORMS:
        found = [next((alias for alias in aliases if alias in present), None) for aliases in form]
        if None not in found:
            return [alias for alias in found if alias is not None]
    columns = ", ".join(present) or "no columns"
    raise InputError(
        f"{name} has {columns}; it needs sentence1 and sentence2 (with score or label, if there are any), "
        "or anchor, positive and negative, or sentence"
    )


def _is_missing(cell: Any, *allowed: str) -> bool:
    text = "" if cell is None else str(cell).strip().lower()
    return text in MISSING and text not in allowed


def _number(name: str, row: int, cell: Any) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name}, row {row + 1}, column score: {str(cell)[:40]!r} is no number")
    return number


RANGES = ((0.0, 1.0), (0.0, 5.0), (-1.0, 1.0), (0.0, 10.0), (0.0, 100.0))


def to_gold(name: str, scores: list[float]) -> tuple[list[float], str]:
    """Stretch scores to 0–5 -> (gold scores, the sentence that says so, "" if they were gold already).

    The range is the first of `RANGES` that holds every score: a file whose scores all lie in 0–1 is taken to
    be in 0–1. InputError if none does.
    """
    low, high = min(scores), max(scores)
    for bottom, top in RANGES:
        if bottom <= low and high <= top:
            if (bottom, top) == (0.0, TOP_SCORE):
                return scores, ""
            gold = [(score - bottom) / (top - bottom) * TOP_SCORE for score in scores]
            return gold, f"scores from {bottom:g} to {top:g} stretched to 0–5"
    raise InputError(
        f"the scores of {name} run from {low:g} to {high:g}; give them in 0–5, 0–1, -1–1, 0–10 or 0–100"
    )


def _are_fractions(cells: list[Any]) -> bool:
    """True for a "label" column of numbers that are not all whole: what other tools call a similarity label."""
    fractions = False
    for cell in cells:
        if _is_missing(cell):
            continue
        try:
            fractions |= not float(cell).is_integer()
        except (TypeError, ValueError):
            return False
    return fractions


def _number_labels(cells: list[Any]) -> tuple[list[int], tuple[str, ...], str]:
    """Label cells -> (indices, names, note). NLI labels keep the Hub's order; others are sorted."""
    texts = [_label_text(cell) for cell in cells]
    found = set(texts)
    if found <= set(NLI_LABELS):
        return [NLI_LABELS.index(text) for text in texts], NLI_LABELS, ""
    if found == {"0", "1", "2"}:
        note = f"labels 0, 1, 2 read as {', '.join(NLI_LABELS)}"
        return [int(text) for text in texts], NLI_LABELS, note
    names = tuple(sorted(found, key=lambda text: (not text.isdigit(), int(text) if text.isdigit() else 0, text)))
    index = {text: i for i, text in enumerate(names)}
    return [index[text] for text in texts], names, ""


def _label_text(cell: Any) -> str:
    """3, "3" and 3.0 are one label, and so are "Neutral" and "neutral"."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip().lower()
