"""Transforms from the form that a data set has to the rows that an objective needs.

    transform_for(load_data("stsb:train"), CLASS_ROWS, "classification")

turns scored pairs into labelled ones (the thirds of the scale). The notes of the result state what
was derived and how many rows there are. Data that cannot be transformed raises `InputError`, which
names the nearest alternative. The class of an objective says which rows it takes
(`training.objectives`).
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
import scipy  # loads its submodules on first use

from training.catalogue import LABELLED, NLI_LABELS, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.data.dataset import Dataset
from training.data.gold import NEGATIVE_TO, POSITIVE_FROM, TOP_SCORE, matching_labels
from training.data.tables.columns import side_of
from training.errors import InputError, QuestionError

FORMS = (SENTENCES, PAIRS, SCORED, LABELLED, TRIPLETS)
THIRDS = ("low", "middle", "high")

# Derives rows from a data set; draws at random, such as of negatives, come from the generator.
Transform = Callable[[Dataset, random.Random], Dataset]


@dataclass(frozen=True)
class Rows:
    """Rows that an objective can learn from."""

    # What the size of a batch counts.
    noun: str
    # The forms of data that give such rows, in words.
    needs: str
    # The transform of each form.
    of: Mapping[str, Transform]

    def example(self, kind: str) -> tuple[int, bool]:
        """The number of sentences in a row made from this form, and whether the number of rows stays the same."""
        data = EXAMPLES[kind]
        rows = self.of[kind](data, random.Random(0))
        return len(rows.columns), len(rows) == len(data)

    def check(self, name: str, kind: str, learner: str) -> None:
        """Raises InputError, with the nearest alternative, if data of the form ``kind`` cannot give these rows.

        ``name`` is the name of the data, ``learner`` the objective that needs the rows, in words.
        """
        if kind not in self.of:
            raise InputError(
                f"{learner} needs {self.needs}, but {name} holds {kind}; {NEAREST_FORM[kind]}"
            )


def transform_for(data: Dataset, rows: Rows, learner: str, seed: int = 0) -> Dataset:
    """Derives ``rows`` from the data; ``seed`` fixes random draws.

    InputError, which names the ``learner``, if the form of the data has no transform, or the result
    has no rows.
    """
    rows.check(data.name, data.kind, learner)
    # ``rows.of`` has the transform of each form of data.
    result = rows.of[data.kind](data, random.Random(seed))
    if not len(result):
        raise InputError(f"{data.name} gives no rows for {learner}: {'; '.join(result.notes)}")
    return result


def as_it_is(data: Dataset, draw: random.Random) -> Dataset:
    """The data unchanged: it has the right form."""
    return data


def together(data: Dataset, draw: random.Random) -> Dataset:
    """The pairs, all of them positive. QuestionError if an unread column may say that some are not."""
    if data.question:
        raise QuestionError(data.question)
    return data


def thirds(data: Dataset, draw: random.Random) -> Dataset:
    """Labels from scores: the thirds of 0–5."""
    # The highest third includes the score 5 itself.
    labels = [min(2, int(score / TOP_SCORE * 3)) for score in data.scores or ()]
    counts = ", ".join(f"{labels.count(i):,} {name}" for i, name in enumerate(THIRDS))
    labelled = replace(data, scores=None, labels=labels, label_names=THIRDS)
    return labelled.with_note(f"labels are the thirds of the gold scores 0–5: {counts}")


def positives_from_scores(data: Dataset, draw: random.Random) -> Dataset:
    """The pairs with a score of at least 4."""
    keep = [i for i, score in enumerate(data.scores or ()) if score >= POSITIVE_FROM]
    note = f"positive pairs are the {len(keep):,} of {len(data):,} with a gold score of at least {POSITIVE_FROM:g}"
    return replace(data.select(keep, note), scores=None)


def triplets_from_scores(data: Dataset, draw: random.Random) -> Dataset:
    """Triplets of the pairs with a score of at least 4, and a negative for each.

    The negative has a score of at most 1.5 with the same anchor. Without such a sentence it is
    drawn at random.
    """
    firsts, seconds = data.columns
    negatives: dict[str, list[str]] = defaultdict(list)
    for first, second, score in zip(firsts, seconds, data.scores or (), strict=True):
        if score <= NEGATIVE_TO:
            negatives[first].append(second)
            negatives[second].append(first)
    return _triplets(positives_from_scores(data, draw), negatives, seconds, draw)


def triplets_from_pairs(data: Dataset, draw: random.Random) -> Dataset:
    """Triplets of the pairs and negatives that are drawn from the other pairs."""
    return _triplets(together(data, draw), {}, data.columns[1], draw)


def triplets_from_labels(data: Dataset, draw: random.Random) -> Dataset:
    """Triplets of a premise, its entailment and its contradiction; the contradictions of a premise take turns."""
    positive, negative = positive_and_negative(data)
    premises, hypotheses = data.columns
    labels = data.labels or ()
    contradictions: dict[str, list[str]] = defaultdict(list)
    for premise, hypothesis, label in zip(premises, hypotheses, labels, strict=True):
        if label == negative:
            contradictions[premise].append(hypothesis)
    turns = {premise: cycle(texts) for premise, texts in contradictions.items()}
    keep = []
    negatives = []
    for i, (premise, label) in enumerate(zip(premises, labels, strict=True)):
        if label == positive and premise in turns:
            keep.append(i)
            negatives.append(next(turns[premise]))
    names = data.label_names
    roles = f"a sentence, its {names[positive]} and its {names[negative]}"
    pairs = data.select(keep, f"{len(keep):,} triplets from {len(data):,} pairs: {roles}")
    return replace(pairs, columns=(*pairs.columns, negatives), labels=None, label_names=())


def positives_from_labels(data: Dataset, draw: random.Random) -> Dataset:
    """Triplets with hard negatives if the labels yield any, else the positive pairs."""
    positive, _ = positive_and_negative(data)
    triplets = triplets_from_labels(data, draw)
    if len(triplets):
        return triplets
    keep = [i for i, label in enumerate(data.labels or ()) if label == positive]
    note = f"positive pairs are the {len(keep):,} of {len(data):,} labelled {data.label_names[positive]}"
    return replace(data.select(keep, note), labels=None, label_names=())


def scores_from_labels(data: Dataset, draw: random.Random) -> Dataset:
    """Scores in the order of the labels: 5 for the positive one, 2.5 for neutral, 0 for the negative one."""
    positive, negative = positive_and_negative(data)
    score_of = {positive: TOP_SCORE, negative: 0.0}
    if data.label_names == NLI_LABELS:
        score_of[NLI_LABELS.index("neutral")] = TOP_SCORE / 2
    keep = [i for i, label in enumerate(data.labels or ()) if label in score_of]
    names = data.label_names
    values = ", ".join(f"{names[label]} {score:g}" for label, score in sorted(score_of.items()))
    pairs = data.select(keep, f"scores are made of the labels: {values}")
    scores = [score_of[label] for label in pairs.labels or ()]
    return replace(pairs, scores=scores, labels=None, label_names=())


# The labels of contrastive pairs, as their indices 0 and 1.
APART_AND_TOGETHER = ("apart", "together")


def contrastive_from_labels(data: Dataset, draw: random.Random) -> Dataset:
    """Contrastive pairs of the labels that are matches and of the others; neutral ones are left out."""
    matches, _ = matching_labels(data.label_names)
    if not matches:
        raise _unclear(data)
    others = [name for name in data.label_names if name not in (*matches, "neutral")]
    is_match = dict.fromkeys(matches, True) | dict.fromkeys(others, False)
    # None for neutral pairs.
    are_matches = [is_match.get(data.label_names[label]) for label in data.labels or ()]
    return _contrastive(data, are_matches, " or ".join(sorted(matches)), " or ".join(others))


def contrastive_from_scores(data: Dataset, draw: random.Random) -> Dataset:
    """Contrastive pairs: matches have a score of at least 4, other pairs one of at most 1.5; the rest is left out."""
    are_matches = []
    for score in data.scores or ():
        is_between = NEGATIVE_TO < score < POSITIVE_FROM
        are_matches.append(None if is_between else score >= POSITIVE_FROM)
    positive = f"a gold score of at least {POSITIVE_FROM:g}"
    # Continues ``positive`` in the note.
    negative = f"of at most {NEGATIVE_TO:g}"
    return _contrastive(data, are_matches, positive, negative)


def contrastive_from_triplets(data: Dataset, draw: random.Random) -> Dataset:
    """Two pairs of each triplet: anchor and positive together, anchor and negative apart."""
    anchors, positives, negatives = data.columns
    note = f"each of the {len(data):,} triplets gives a pair that belongs together and one that does not"
    return Dataset(
        data.name,
        ([*anchors, *anchors], [*positives, *negatives]),
        labels=[1] * len(data) + [0] * len(data),
        label_names=APART_AND_TOGETHER,
        source=data.source,
        notes=(*data.notes, note),
        rows=[*data.rows, *data.rows],
    )


def sentences_twice(data: Dataset, draw: random.Random) -> Dataset:
    """Each different sentence with itself: its two vectors will differ by dropout."""
    row_of: dict[str, int] = {}
    for column in data.columns:
        for sentence, row in zip(column, data.rows, strict=True):
            row_of.setdefault(sentence, row)
    distinct = list(row_of)
    twice = Dataset(
        data.name,
        (distinct, distinct),
        source=data.source,
        notes=data.notes,
        rows=list(row_of.values()),
    )
    return twice.with_note(f"{len(distinct):,} different sentences, without scores or labels")


def distinct_sentences(data: Dataset, draw: random.Random) -> Dataset:
    """Every different sentence once."""
    if data.kind == SENTENCES and len(set(data.columns[0])) == len(data):
        return data
    twice = sentences_twice(data, draw)
    return replace(twice, columns=twice.columns[:1])


def without_target(data: Dataset, draw: random.Random) -> Dataset:
    """The sentences without scores and labels, as a teacher gives the target."""
    sentences = replace(data, scores=None, labels=None, label_names=())
    if data.scores is not None:
        return sentences.with_note("the gold scores are not used: the teacher gives the target")
    if data.labels is not None:
        return sentences.with_note("the labels are not used: the teacher gives the target")
    return sentences


def _contrastive(
    data: Dataset, are_matches: list[bool | None], positive: str, negative: str
) -> Dataset:
    """Labelled pairs of the rows that are matches or not; rows that are neither (None) are left out.

    ``positive`` and ``negative`` say in the note which rows are matches and which are not.
    """
    keep = []
    labels = []
    for i, is_match in enumerate(are_matches):
        if is_match is not None:
            keep.append(i)
            labels.append(int(is_match))
    note = (
        f"{labels.count(1):,} pairs belong together ({positive}), {labels.count(0):,} do not ({negative}); "
        f"{len(data) - len(keep):,} of {len(data):,} are left out"
    )
    return replace(
        data.select(keep, note), scores=None, labels=labels, label_names=APART_AND_TOGETHER
    )


def positive_and_negative(data: Dataset) -> tuple[int, int]:
    """The indices of the positive and of the negative label. InputError unless there is one name of each."""
    sides = [side_of(name) for name in data.label_names]
    if sides.count(True) == 1 and sides.count(False) == 1:
        return sides.index(True), sides.index(False)
    raise _unclear(data)


def _unclear(data: Dataset) -> InputError:
    """The error for labels whose names do not say which pairs are matches."""
    return InputError(
        f"the labels of {data.name} ({', '.join(data.label_names[:5])}) do not say which pairs are matches; name them "
        "entailment and contradiction, or 1 and 0, say it by ?labels=, or train with classification"
    )


def match_labels(data: Dataset, match_from: float = POSITIVE_FROM) -> tuple[np.ndarray, str]:
    """The pairs of a data set that are matches, bool (N,), and a sentence that defines a match.

    A labelled pair is a match by a label that says so (1, yes, duplicate, entailment, …), a scored
    pair by a gold score of at least ``match_from`` on the scale from 0 to 5.

    InputError if the data has another form, the names of the labels do not say which are matches,
    all pairs are matches, or no pair is one.
    """
    if data.kind == LABELLED:
        names, note = matching_labels(data.label_names)
        if not names:
            raise _unclear(data)
        matches = np.array([data.label_names[label] in names for label in data.labels or ()])
    elif data.kind == SCORED:
        if not 0 < match_from <= TOP_SCORE:
            raise InputError(
                f"a match is to begin at the gold score {match_from:g}; it must be above 0, up to 5"
            )
        matches = np.asarray(data.scores) >= match_from
        note = f"a gold score of at least {match_from:g} (of 5) is a match"
    elif data.question:
        # The rows are pairs, and a column that is not read may be their judgement.
        raise InputError(data.question)
    else:
        raise InputError(
            f"{data.name} holds {data.kind}; a threshold needs pairs with labels or gold scores"
        )
    if matches.all():
        raise InputError(f"{data.name} has only matches ({note}); a threshold needs both")
    if not matches.any():
        raise InputError(f"{data.name} has no matches ({note}); a threshold needs both")
    return matches, note


def _triplets(
    positives: Dataset, negatives: dict[str, list[str]], pool: list[str], draw: random.Random
) -> Dataset:
    """Adds a negative to positive pairs.

    It is one of the anchor's ``negatives``, the texts of its pairs with a low gold score, or else
    another text of ``pool``.
    """
    positives_of: dict[str, set[str]] = defaultdict(set)
    for anchor, positive in zip(*positives.columns, strict=True):
        positives_of[anchor].add(positive)
    third = []
    hard = 0
    candidates = list(dict.fromkeys(pool))
    for anchor in positives.columns[0]:
        own = [text for text in negatives.get(anchor, ()) if text not in positives_of[anchor]]
        if own:
            hard += 1
            third.append(draw.choice(own))
            continue
        forbidden = positives_of[anchor] | {anchor}
        # The lengths are compared first, as they are quick to compare.
        if len(candidates) <= len(forbidden) and forbidden.issuperset(candidates):
            raise InputError(
                "there are too few different sentences to draw a negative from; add more pairs"
            )
        negative = draw.choice(candidates)
        while negative in forbidden:
            negative = draw.choice(candidates)
        third.append(negative)
    low_scored = f"{hard:,} with a gold score of at most {NEGATIVE_TO:g}, " if negatives else ""
    triplets = replace(positives, columns=(*positives.columns, third))
    return triplets.with_note(
        f"{len(third):,} triplets; negatives: {low_scored}{len(third) - hard:,} drawn at random"
    )


CLASS_ROWS = Rows("Pairs", "pairs with a label or a score", {LABELLED: as_it_is, SCORED: thirds})
SCORED_ROWS = Rows("Pairs", "pairs with a score", {SCORED: as_it_is})
RANKED_ROWS = Rows(
    "Pairs",
    "pairs with a score, or labels that have an order",
    {SCORED: as_it_is, LABELLED: scores_from_labels},
)
TOGETHER_ROWS = Rows(
    "Pairs",
    "pairs with a label or a score, or triplets",
    {
        LABELLED: contrastive_from_labels,
        SCORED: contrastive_from_scores,
        TRIPLETS: contrastive_from_triplets,
    },
)
JUDGED_ROWS = Rows(
    "Pairs",
    "pairs, with or without a score or a label, or triplets",
    {
        SCORED: as_it_is,
        LABELLED: contrastive_from_labels,
        TRIPLETS: contrastive_from_triplets,
        # Each anchor also gets a sentence of another pair, which does not belong to it.
        PAIRS: lambda data, draw: contrastive_from_triplets(triplets_from_pairs(data, draw), draw),
    },
)
TRIPLET_ROWS = Rows(
    "Triplets",
    "triplets, or pairs from which they can be made",
    {
        TRIPLETS: as_it_is,
        LABELLED: triplets_from_labels,
        SCORED: triplets_from_scores,
        PAIRS: triplets_from_pairs,
    },
)
POSITIVE_ROWS = Rows(
    "Pairs",
    "pairs that belong together, or triplets",
    {
        TRIPLETS: as_it_is,
        LABELLED: positives_from_labels,
        SCORED: positives_from_scores,
        PAIRS: together,
    },
)
SAME_SENTENCE_ROWS = Rows("Sentences", "sentences", dict.fromkeys(FORMS, sentences_twice))
DISTINCT_ROWS = Rows("Sentences", "sentences", dict.fromkeys(FORMS, distinct_sentences))
ANY_ROWS = Rows("Rows", "sentences", dict.fromkeys(FORMS, without_target))

NEAREST_FORM = {
    LABELLED: "classification learns from labels as they are",
    PAIRS: "mnrl learns from pairs that belong together, without scores or labels",
    TRIPLETS: "triplet and mnrl learn from triplets",
    SENTENCES: "simcse and mlm learn from single sentences, and mse from single sentences and a teacher",
    SCORED: "regression learns from scores as they are",
}

# Three rows of each form: a positive pair, a neutral pair, and a negative pair with the anchor of
# the first.
_ONE = ["a", "e", "a"]
_OTHER = ["b", "c", "d"]
EXAMPLES = {
    SENTENCES: Dataset("example", (_OTHER,)),
    PAIRS: Dataset("example", (_ONE, _OTHER)),
    SCORED: Dataset("example", (_ONE, _OTHER), scores=[TOP_SCORE, TOP_SCORE / 2, 0.0]),
    LABELLED: Dataset("example", (_ONE, _OTHER), labels=[0, 1, 2], label_names=NLI_LABELS),
    TRIPLETS: Dataset("example", (_ONE, _OTHER, ["f", "g", "h"])),
}


def sentence_groups(
    columns: Sequence[Sequence[str]], related: Iterable[tuple[int, int]] = ()
) -> np.ndarray:
    """The group of each row, int (N,): rows that share a sentence, or are ``related``, are in the same group.

    ``columns`` are K lists of N sentences, ``related`` further pairs of rows that belong together.
    """
    n = len(columns[0])
    first_row: dict[str, int] = {}
    links = list(related)
    for column in columns:
        for row, text in enumerate(column):
            links.append((row, first_row.setdefault(text, row)))
    # Without links the array has to be told that it has two columns.
    rows, others = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = scipy.sparse.coo_array((np.ones(len(links)), (rows, others)), shape=(n, n))
    _, groups = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return groups


def sentence_folds(columns: Sequence[Sequence[str]], k: int, seed: int = 0) -> np.ndarray:
    """The fold of each row, int (N,), from 0 to k - 1: random folds of about equal size that share no sentence."""
    groups = sentence_groups(columns)
    sizes = np.bincount(groups)
    # Each group goes into the smallest fold, the largest groups first, groups of equal size in
    # random order.
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    fold_of = np.empty(len(sizes), dtype=np.int64)
    fold_sizes = np.zeros(k, dtype=np.int64)
    for group in order:
        smallest = fold_sizes.argmin()
        fold_of[group] = smallest
        fold_sizes[smallest] += sizes[group]
    return fold_of[groups]
