"""Transforms: from the form that a data set has to the rows that an objective needs.

    training_data("stsb:train", "classification", seed=0)

turns scored pairs into labelled ones (the thirds of the scale). The notes of the result state what was derived and
how many rows there are. A form from which an objective cannot learn raises `InputError`, which names the nearest
alternative. The table ``TRANSFORMS`` maps (objective, form) to the function.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from training.data.dataset import LABELLED, PAIRS, SCORED, SENTENCES, TOP_SCORE, TRIPLETS, Dataset, join
from training.data.load import load_one, split_names
from training.errors import InputError

THIRDS = ("low", "middle", "high")
POSITIVE_FROM = 4.0  # gold scores from here on make a positive pair
NEGATIVE_TO = 1.5  # gold scores up to here make a negative one
POSITIVE_LABELS = frozenset({"entailment", "1", "true", "yes", "duplicate", "equivalent", "paraphrase", "positive"})
NEGATIVE_LABELS = frozenset(
    {"contradiction", "0", "false", "no", "different", "not_duplicate", "not_equivalent", "not_entailment", "negative"}
)

Transform = Callable[[Dataset, random.Random], Dataset]


def training_data(name: str, objective: str, seed: int = 0, home: str | Path | None = None) -> Dataset:
    """Load ``name``, transform each of its parts as ``objective`` needs it, and join them.

    Two sets of different forms ("snli+stsb:train") join where the objective can learn from both.
    """
    return join([transform_for(load_one(part, home), objective, seed) for part in split_names(name)])


def transform_for(data: Dataset, objective: str, seed: int = 0) -> Dataset:
    """``data`` in the form that ``objective`` needs; ``seed`` fixes random draws. InputError if there is none."""
    transform = TRANSFORMS.get((objective, data.kind))
    if transform is None:
        raise InputError(
            f"{objective} needs {REQUIRED_FORMS[objective]}, but {data.name} holds {data.kind}; "
            f"{NEAREST_FORM[data.kind]}"
        )
    result = transform(data, random.Random(seed))
    if not len(result):
        raise InputError(f"{data.name} gives no rows for {objective}: {'; '.join(result.notes)}")
    return result


def as_it_is(data: Dataset, draw: random.Random) -> Dataset:
    """The data unchanged: it has the right form."""
    return data


def thirds(data: Dataset, draw: random.Random) -> Dataset:
    """Labels from scores: the thirds of 0–5."""
    labels = [min(2, int(score / TOP_SCORE * 3)) for score in data.scores or ()]
    counts = ", ".join(f"{labels.count(i):,} {name}" for i, name in enumerate(THIRDS))
    note = f"labels are the thirds of the gold scores 0–5: {counts}"
    return replace(data, scores=None, labels=labels, label_names=THIRDS, notes=(*data.notes, note))


def positives_from_scores(data: Dataset, draw: random.Random) -> Dataset:
    """The pairs with a score of at least 4."""
    keep = [i for i, score in enumerate(data.scores or ()) if score >= POSITIVE_FROM]
    note = f"positive pairs are the {len(keep):,} of {len(data):,} with a gold score of at least {POSITIVE_FROM:g}"
    return replace(data.select(keep, note), scores=None)


def triplets_from_scores(data: Dataset, draw: random.Random) -> Dataset:
    """Positives have a score of at least 4; negatives one of at most 1.5 with the same anchor, or are drawn."""
    firsts, seconds = data.columns
    negatives: dict[str, list[str]] = defaultdict(list)
    for first, second, score in zip(firsts, seconds, data.scores or (), strict=True):
        if score <= NEGATIVE_TO:
            negatives[first].append(second)
            negatives[second].append(first)
    return _triplets(positives_from_scores(data, draw), negatives, seconds, draw)


def triplets_from_pairs(data: Dataset, draw: random.Random) -> Dataset:
    """The pairs are positives; negatives are drawn from the other pairs."""
    return _triplets(data, {}, data.columns[1], draw)


def triplets_from_labels(data: Dataset, draw: random.Random) -> Dataset:
    """Entailment and contradiction of one premise; the contradictions of a premise are taken in turn."""
    positive, negative = _positive_and_negative(data)
    negatives: dict[str, list[str]] = defaultdict(list)
    for premise, hypothesis, label in _labelled_rows(data):
        if label == negative:
            negatives[premise].append(hypothesis)
    keep: list[int] = []
    chosen: list[str] = []
    taken: Counter[str] = Counter()
    for i, (premise, _, label) in enumerate(_labelled_rows(data)):
        if label == positive and premise in negatives:
            keep.append(i)
            chosen.append(negatives[premise][taken[premise] % len(negatives[premise])])
            taken[premise] += 1
    names = data.label_names
    roles = f"a sentence, its {names[positive]} and its {names[negative]}"
    note = f"{len(keep):,} triplets from {len(data):,} pairs: {roles}"
    kept = data.select(keep, note)
    return replace(kept, columns=(*kept.columns, chosen), labels=None, label_names=())


def positives_from_labels(data: Dataset, draw: random.Random) -> Dataset:
    """Triplets with a hard negative if the labels give any, else the positive pairs."""
    positive, _ = _positive_and_negative(data)
    triplets = triplets_from_labels(data, draw)
    if len(triplets):
        return triplets
    keep = [i for i, (_, _, label) in enumerate(_labelled_rows(data)) if label == positive]
    note = f"positive pairs are the {len(keep):,} of {len(data):,} labelled {data.label_names[positive]}"
    return replace(data.select(keep, note), labels=None, label_names=())


def _labelled_rows(data: Dataset) -> list[tuple[str, str, int]]:
    return list(zip(data.columns[0], data.columns[1], data.labels or (), strict=True))


def _positive_and_negative(data: Dataset) -> tuple[int, int]:
    """The indices of the positive and of the negative label. InputError if they are not both known by name."""
    positive = [i for i, name in enumerate(data.label_names) if name in POSITIVE_LABELS]
    negative = [i for i, name in enumerate(data.label_names) if name in NEGATIVE_LABELS]
    if len(positive) == 1 and len(negative) == 1:
        return positive[0], negative[0]
    raise InputError(
        f"the labels of {data.name} ({', '.join(data.label_names)}) do not say which pairs belong together; name "
        "them entailment and contradiction, or 1 and 0, or train with classification"
    )


def _triplets(positives: Dataset, negatives: dict[str, list[str]], pool: list[str], draw: random.Random) -> Dataset:
    """Positive pairs with a negative each: one of ``negatives`` of the anchor, else one drawn from ``pool``.

    The anchor and its positives are never drawn.
    """
    positives_of: dict[str, set[str]] = defaultdict(set)
    for anchor, positive in zip(*positives.columns, strict=True):
        positives_of[anchor].add(positive)
    chosen, hard = [], 0
    candidates = list(dict.fromkeys(pool))
    for anchor in positives.columns[0]:
        known = [text for text in negatives.get(anchor, ()) if text not in positives_of[anchor]]
        hard += bool(known)
        chosen.append(draw.choice(known) if known else _draw_other(candidates, positives_of[anchor] | {anchor}, draw))
    source = f"{hard:,} with a gold score of at most {NEGATIVE_TO:g}, " if negatives else ""
    note = f"{len(chosen):,} triplets; negatives: {source}{len(chosen) - hard:,} drawn at random"
    return replace(positives, columns=(*positives.columns, chosen), notes=(*positives.notes, note))


def _draw_other(candidates: list[str], forbidden: set[str], draw: random.Random) -> str:
    if len(candidates) <= len(forbidden) and set(candidates) <= forbidden:
        raise InputError("there are too few different sentences to draw a negative from; add more pairs")
    while (text := draw.choice(candidates)) in forbidden:
        pass
    return text


TRANSFORMS: dict[tuple[str, str], Transform] = {
    ("classification", LABELLED): as_it_is,
    ("classification", SCORED): thirds,
    ("regression", SCORED): as_it_is,
    ("triplet", TRIPLETS): as_it_is,
    ("triplet", LABELLED): triplets_from_labels,
    ("triplet", SCORED): triplets_from_scores,
    ("triplet", PAIRS): triplets_from_pairs,
    ("mnrl", TRIPLETS): as_it_is,
    ("mnrl", LABELLED): positives_from_labels,
    ("mnrl", SCORED): positives_from_scores,
    ("mnrl", PAIRS): as_it_is,
}

REQUIRED_FORMS = {
    "classification": "pairs with a label or a score",
    "regression": "pairs with a score",
    "triplet": "triplets, or pairs from which they can be made",
    "mnrl": "pairs that belong together, or triplets",
}

NEAREST_FORM = {
    LABELLED: "classification learns from labels as they are",
    PAIRS: "mnrl learns from pairs that belong together, without scores or labels",
    TRIPLETS: "triplet and mnrl learn from triplets",
    SENTENCES: "nothing here learns from single sentences; give pairs that belong together (sentence1, sentence2)",
    SCORED: "regression learns from scores as they are",
}
