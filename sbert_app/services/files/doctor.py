"""The faults of a data set that no reader refuses: conflicts, repetitions, leakage, text that a model cannot read.

    findings = examine(load_data("pairs.csv"), encoder, {"stsb:test": load_data("stsb:test")})
    clean(open_table(Path("pairs.csv")), Path("clean.csv"), findings, dataset)

Texts are equal if they differ in case and white space alone, as mteb's cleaning has it. Pairs are so in either order,
unless their labels are those of inference.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from sbert_app.formats import format_count
from sbert_app.services.files.layout import Layout
from sbert_app.services.files.writers import open_writers
from sbert_app.services.models.function_words import other_language
from training.catalogue import LABELLED, NLI_LABELS, SCORED, SENTENCES, TRIPLETS
from training.data.dataset import Dataset, folded
from training.data.gold import TOP_SCORE
from training.data.tables.rows import OpenedTable
from training.models.model import Model

# Gold scores of equal pairs that are further apart are in conflict.
MOST_APART = TOP_SCORE / 5
# The share of the largest class from which on classes are out of balance.
IMBALANCE = 0.9
EXAMPLES = 5
MARKUP = re.compile(r"&(?:[a-z]+|#\d+);|</?[a-z]+[ >]", re.I)
# The texts that show the language.
LANGUAGE_TEXTS = 1_000


@dataclass(frozen=True)
class Finding:
    """A fault, and the numbers of its rows in the file; whether a clean file is without them, and what a row is."""

    what: str
    rows: list[int]
    is_left_out: bool = True
    noun: str = "row"

    @property
    def summary(self) -> str:
        return f"{format_count(len(self.rows), self.noun)}: {self.what}" if self.rows else self.what

    def __str__(self) -> str:
        some = ", ".join(f"{row:,}" for row in self.rows[:EXAMPLES])
        more = " …" if len(self.rows) > EXAMPLES else ""
        return f"{self.summary} (row {some}{more})" if self.rows else self.what


def examine(data: Dataset, model: Model | None = None, others: Mapping[str, Dataset] | None = None) -> list[Finding]:
    """The faults of a data set.

    Args:
        model: by which text is unknown or cut; None leaves both out.
        others: data to evaluate on, of which the data should have no row, by its name.
    """
    # It brings torch, which takes seconds, and the pages are built without it.

    rows = [tuple(map(folded, row)) for row in zip(*data.columns, strict=True)]
    targets = data.scores if data.scores is not None else data.labels
    places: dict[Collection[str], list[int]] = defaultdict(list)
    is_ordered = data.kind == TRIPLETS or data.label_names == NLI_LABELS
    for at, row in enumerate(rows):
        places[row if is_ordered else frozenset(row)].append(at)
    conflicts: list[int] = []
    repeated: list[int] = []
    for same in places.values():
        values = [targets[at] for at in same] if targets else [0]
        if max(values) - min(values) > (MOST_APART if data.kind == SCORED else 0):
            conflicts += same
        else:
            repeated += same[1:]
    noun = "sentence" if data.kind == SENTENCES else "row"
    target = "score" if data.kind == SCORED else "label"
    faults = {
        f"equal to others that have another {target}": conflicts,
        "equal to an earlier one": repeated,
        "a sentence and itself": [at for at, row in enumerate(rows) if len(set(row)) < len(row)],
    }
    for name, other in (others or {}).items():
        evaluated = {frozenset(map(folded, row)) for row in zip(*other.columns, strict=True)}
        # Two sentences of a triplet are a pair.
        parts = (map(frozenset, combinations(row, len(other.columns))) for row in rows)
        faults[f"also in {name}"] = [at for at, part in enumerate(parts) if not evaluated.isdisjoint(part)]
    if model is not None:
        texts = list(dict.fromkeys(text for column in data.columns for text in column))
        unknown = {text for text, is_unknown in zip(texts, model.is_unknown(texts), strict=True) if is_unknown}
        faults[f"text of which {model.name} knows no token"] = _rows_with(data, unknown)
    findings = [
        Finding(what, [data.rows[at] for at in sorted(places)], noun=noun) for what, places in faults.items() if places
    ]
    symbols = {text for column in data.columns for text in column if not any(map(str.isalnum, text))}
    markup = {text for column in data.columns for text in column if MARKUP.search(text)}
    remarks = {"text without a letter or digit": symbols, "tags or entities": markup}
    if model is not None and model.vocabulary_size:
        _, cut = model.read_tokens(texts)
        if model.max_length:
            remarks[f"longer than {model.name} reads ({model.max_length:,} tokens)"] = {texts[at] for at in cut}
        some = texts[:LANGUAGE_TEXTS]
        # A special token stands at each end.
        subwords = model.read_tokens(some)[0] - 2 * len(some)
        if language := other_language(" ".join(some), subwords, model.vocabulary_size):
            findings.append(Finding(f"the texts look like {language}; {model.name} was trained on English", [], False))
    for what, cells in remarks.items():
        if numbers := [data.rows[at] for at in _rows_with(data, cells)]:
            findings.append(Finding(what, numbers, False, noun))
    if data.kind == LABELLED and data.labels:
        label, count = Counter(data.labels).most_common(1)[0]
        if count >= IMBALANCE * len(data):
            findings.append(Finding(f"{count:,} of {len(data):,} labels are {data.label_names[label]}", [], False))
    return findings


def clean(table: OpenedTable, output: Path, data: Dataset, findings: list[Finding]) -> int:
    """Writes the rows of a table without those of the findings, and without unusable ones. Returns their number.

    InputError if the file cannot be written.
    """
    left_out = {row for finding in findings if finding.is_left_out for row in finding.rows}
    keep = set(data.rows) - left_out
    keep = keep.union(*(data.joined.get(row, ()) for row in keep))
    with open_writers([output], table.path, table.fields(), {}, layout=Layout.of(table)) as [writer]:
        for batch in table.batches():
            for at in range(len(batch)):
                if batch.first_row + at in keep:
                    writer.write(batch.part(at, at + 1), {})
    return len(keep)


def _rows_with(data: Dataset, texts: set[str]) -> list[int]:
    return [at for at, row in enumerate(zip(*data.columns, strict=True)) if not texts.isdisjoint(row)]
