"""Faults of a readable data set: conflicts, repetitions, leakage, and text that a model cannot read.

    dataset = load_data("pairs.csv")
    findings = examine(dataset, encoder, {"stsb:test": load_data("stsb:test")})
    clean(open_table(Path("pairs.csv")), Path("clean.csv"), dataset, findings)

Texts are equal if they differ only in case and white space, as in mteb's cleaning. Pairs are equal
in either order, unless their labels are labels of inference.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain, combinations, compress
from pathlib import Path

from sbert_app.formats import format_count
from sbert_app.services.files.layout import Layout
from sbert_app.services.files.writers import open_writers
from sbert_app.services.models.function_words import other_language
from training.catalogue import LABELLED, NLI_LABELS, SCORED, SENTENCES, TRIPLETS
from training.data.dataset import Dataset, folded_rows
from training.data.gold import TOP_SCORE
from training.data.tables.rows import OpenedTable
from training.models.model import Model

# Gold scores of equal pairs that are further apart are in conflict.
MOST_APART = TOP_SCORE / 5
# Classes are out of balance if the largest has at least this share.
IMBALANCE = 0.9
EXAMPLES = 5
MARKUP = re.compile(r"&(?:[a-z]+|#\d+);|</?[a-z]+[ >]", re.I)
# The texts that show the language.
LANGUAGE_TEXTS = 1_000


@dataclass(frozen=True)
class Finding:
    """A fault, in words, and the numbers of the rows that have it.

    Attributes:
        rows: the numbers in the file; [] for a fault of the whole data set.
        is_left_out: whether `clean` leaves these rows out.
        noun: the word for a row.
    """

    what: str
    rows: list[int]
    is_left_out: bool = True
    noun: str = "row"

    @property
    def summary(self) -> str:
        return f"{format_count(len(self.rows), self.noun)}: {self.what}" if self.rows else self.what

    def __str__(self) -> str:
        """The fault, and if rows have it, their number and the first of them."""
        if not self.rows:
            return self.what
        some = ", ".join(f"{row:,}" for row in self.rows[:EXAMPLES])
        more = " …" if len(self.rows) > EXAMPLES else ""
        return f"{self.summary} (row {some}{more})"


def examine(
    data: Dataset, model: Model | None = None, others: Mapping[str, Dataset] | None = None
) -> list[Finding]:
    """The faults of a data set.

    Args:
        model: finds texts that it does not know or would cut; None to look for neither.
        others: evaluation data by name, whose rows should not be in the data.
    """
    # The texts of each row, in which case and white space do not matter any more.
    rows = folded_rows(data)
    # By fault, the positions of the rows that have it.
    faults = _repetitions(data, rows)
    for name, other in (others or {}).items():
        evaluated = set(map(frozenset, folded_rows(other)))
        places = []
        for at, row in enumerate(rows):
            # Two sentences of a triplet may be an evaluated pair.
            parts = map(frozenset, combinations(row, len(other.columns)))
            if not evaluated.isdisjoint(parts):
                places.append(at)
        faults[f"also in {name}"] = places
    texts = list(dict.fromkeys(chain.from_iterable(data.columns)))
    if model is not None:
        unknown = set(compress(texts, model.is_unknown(texts)))
        faults[f"text of which {model.name} knows no token"] = _places_with(data, unknown)
    noun = "sentence" if data.kind == SENTENCES else "row"
    findings = []
    for what, places in faults.items():
        if places:
            findings.append(Finding(what, [data.rows[at] for at in sorted(places)], noun=noun))
    without_letters = {text for text in texts if not any(map(str.isalnum, text))}
    # Texts whose rows are reported, but can be used all the same.
    remarks = {
        "text without a letter or digit": without_letters,
        "tags or entities": set(filter(MARKUP.search, texts)),
    }
    # A model without a known vocabulary does not give its tokens.
    if model is not None and model.vocabulary_size:
        if model.max_length:
            # The positions of the texts that the model reads only in part.
            _, cut = model.read_tokens(texts)
            what = f"longer than {model.name} reads ({model.max_length:,} tokens)"
            remarks[what] = {texts[at] for at in cut}
        if language := language_of(texts[:LANGUAGE_TEXTS], model):
            what = f"the texts look like {language}; {model.name} was trained on English"
            findings.append(Finding(what, [], is_left_out=False))
    for what, cells in remarks.items():
        if numbers := [data.rows[at] for at in _places_with(data, cells)]:
            findings.append(Finding(what, numbers, is_left_out=False, noun=noun))
    if data.kind == LABELLED and data.labels:
        label, count = Counter(data.labels).most_common(1)[0]
        if count >= IMBALANCE * len(data):
            what = f"{count:,} of {len(data):,} labels are {data.label_names[label]}"
            findings.append(Finding(what, [], is_left_out=False))
    return findings


def language_of(texts: list[str], model: Model) -> str:
    """The language of texts, if the model was not trained on it; "" if it was, or if the language is unknown."""
    # The vocabulary of some models, such as endpoints, is not known.
    if not texts or not model.vocabulary_size:
        return ""
    tokens, _ = model.read_tokens(texts)
    # The tokens include the special ones at both ends of each text.
    subwords = tokens - 2 * len(texts)
    return other_language(" ".join(texts), subwords, model.vocabulary_size)


def _repetitions(data: Dataset, rows: list[tuple[str, ...]]) -> dict[str, list[int]]:
    """The positions of rows that contradict or repeat another row, or have the same sentence twice, by fault.

    ``rows`` are the `folded_rows` of the data, in which equal texts are equal.
    """
    # The sentences of a triplet, and the premise and the hypothesis of a pair with a label of
    # inference, cannot change places.
    is_ordered = data.kind == TRIPLETS or data.label_names == NLI_LABELS
    places: dict[Collection[str], list[int]] = defaultdict(list)
    same_twice = []
    for at, row in enumerate(rows):
        places[row if is_ordered else frozenset(row)].append(at)
        if len(set(row)) < len(row):
            same_twice.append(at)
    targets = data.scores if data.scores is not None else data.labels
    most_apart = MOST_APART if data.kind == SCORED else 0
    conflicts = []
    repeated = []
    for same in places.values():
        # Without targets there is nothing to contradict.
        values = [targets[at] for at in same] if targets else [0]
        if max(values) - min(values) > most_apart:
            conflicts += same
        else:
            repeated += same[1:]
    target = "score" if data.kind == SCORED else "label"
    return {
        f"equal to others that have another {target}": conflicts,
        "equal to an earlier one, ignoring case and spaces": repeated,
        "a sentence and itself": same_twice,
    }


def clean(table: OpenedTable, output: Path, data: Dataset, findings: list[Finding]) -> int:
    """Writes the usable rows of a table that have none of the findings. Returns their number.

    InputError if the file cannot be written.
    """
    keep = set(data.rows)
    for finding in findings:
        if finding.is_left_out:
            keep.difference_update(finding.rows)
    # Of rows that judge the same pair, `data.rows` has only the first. `data.joined` has the others by
    # the number of the first, and they are kept together with it.
    for row in list(keep):
        keep.update(data.joined.get(row, ()))
    layout = Layout.of(table)
    with open_writers([output], table.path, table.fields(), {}, layout=layout) as (writer,):
        for batch in table.batches():
            for at in range(len(batch)):
                if batch.first_row + at in keep:
                    writer.write(batch.part(at, at + 1), {})
    return len(keep)


def _places_with(data: Dataset, texts: set[str]) -> list[int]:
    """The positions of rows that have one of these texts."""
    rows = zip(*data.columns, strict=True)
    return [at for at, row in enumerate(rows) if not texts.isdisjoint(row)]
