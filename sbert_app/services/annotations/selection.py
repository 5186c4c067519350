"""The selection of pairs that are worth judging: where two models disagree, near a threshold, and a random third.

The random pairs yield an unbiased estimate of quality; judgements of the other pairs are the most
informative. Single sentences are paired first: each with its nearest ones, and as many pairs at
random.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # loads its submodules on first use

from sbert_app.services.annotations.project import ChosenPair, ProjectInfo
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.models.cache import ModelCache
from training.catalogue import SENTENCES, TRIPLETS
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.tables.cells import UNSURE
from training.data.tables.columns import side_of
from training.data.tables.reading import LABEL, Cells, TableReading
from training.errors import InputError
from training.models.model import Model, VectorModel
from training.names import ModelName

# The most pairs that both models score. A larger file is sampled.
MOST_CANDIDATES = 2_000
MOST_PAIRS = 1_000
FEWEST_PAIRS = 3
# Each sentence is paired with this number of nearest ones.
NEIGHBOURS = 2
# Longer sentences are cut to this number of characters.
LONGEST = 2_000

DISAGREE = "disagree"
THRESHOLD = "threshold"
RANDOM = "random"
REASONS = {
    DISAGREE: "the two models rank it differently",
    THRESHOLD: "its score is near the threshold",
    RANDOM: "it was drawn at random, and so stands for the other pairs",
}


def says_yes_or_no(reading: TableReading) -> bool:
    """Whether the pairs of a table are judged by yes and no, in words or numbers, or by at most two other labels."""
    target = reading.target
    if target is None or len(reading.sentences) != 2:
        return False
    # Without cells such as "?" and "unsure".
    words = Cells.of(reading.rows[target]).texts - UNSURE
    # `side_of` is True for a word such as yes, False for its opposite, and None for any other word.
    if set(map(side_of, words)) == {True, False}:
        return True
    return target in reading.all(LABEL) and len(words) <= 2


@dataclass(frozen=True)
class ProjectRequest:
    """The settings of a new project."""

    name: str
    data: str
    # A bi-encoder, which can be trained later.
    model: str
    # A cross-encoder or another bi-encoder.
    second_model: str
    threshold: float = 0.5
    count: int = 60
    seed: int = 0

    def check(self) -> None:
        """Raises InputError if a value cannot be used."""
        if not FEWEST_PAIRS <= self.count <= MOST_PAIRS:
            raise InputError(
                f"a project has {FEWEST_PAIRS} to {MOST_PAIRS:,} pairs, not {self.count}"
            )
        if not -1 <= self.threshold <= 1:
            raise InputError(f"the threshold is a cosine from -1 to 1, not {self.threshold:g}")


def choose_pairs(
    request: ProjectRequest, models: ModelCache, home: Path, watch: Watch = UNWATCHED
) -> tuple[ProjectInfo, list[ChosenPair]]:
    """Reads the data, scores it with both models, and selects pairs.

    Raises InputError if the data or a model cannot be used, or there are fewer than three pairs.
    """
    # Imported here because it imports torch, which takes seconds.
    from training.models.encoder import Encoder

    request.check()
    if not isinstance(models.get(request.model, Model), Encoder):
        raise InputError(
            f"{request.model} cannot be trained later; choose a bi-encoder as the model"
        )
    watch.report(0, "Reading the data")
    data = load_data(request.data, home)
    random = np.random.default_rng(request.seed)
    pairs = _candidates(data, request, models, random, watch)
    watch.report(0, f"Scoring {len(pairs):,} pairs with {request.model}")
    first = score_pairs(models, request.model, pairs, watch)
    watch.report(0.4, f"Scoring {len(pairs):,} pairs with {request.second_model}")
    second = score_pairs(models, request.second_model, pairs, watch)
    selection = []
    for row, reason in pick(first, second, request.threshold, request.count, random):
        selection.append(ChosenPair(*pairs[row], reason, float(first[row]), float(second[row])))
    info = ProjectInfo(
        request.name,
        data.name,
        request.model,
        request.second_model,
        request.threshold,
        request.seed,
        time.time(),
    )
    return info, selection


def pick(
    first: np.ndarray, second: np.ndarray, threshold: float, count: int, random: np.random.Generator
) -> list[tuple[int, str]]:
    """The rows and reasons of ``count`` pairs in random order, a third for each reason and no pair twice.

    The random third is drawn first and from all pairs, so that it is a sample of them. The scores
    of the models, (N,) each, are compared by their ranks, as the scales differ. ``threshold`` is on
    the scale of ``first``.
    """
    count = min(count, len(first))
    third = count // 3
    # The random pairs have the remainder of the division too.
    sample = random.permutation(len(first))[: count - 2 * third]
    # The reason of each row that is selected.
    reasons = dict.fromkeys(sample.tolist(), RANDOM)
    differences = np.abs(scipy.stats.rankdata(first) - scipy.stats.rankdata(second))
    orders = {
        DISAGREE: np.argsort(-differences, kind="stable"),
        THRESHOLD: np.argsort(np.abs(first - threshold), kind="stable"),
    }
    # A row that was already selected is left out of the later thirds, and keeps its reason.
    for reason, order in orders.items():
        rest = [row for row in order.tolist() if row not in reasons]
        reasons |= dict.fromkeys(rest[:third], reason)
    rows = list(reasons.items())
    return [rows[i] for i in random.permutation(len(rows))]


def _candidates(
    data: Dataset,
    request: ProjectRequest,
    models: ModelCache,
    random: np.random.Generator,
    watch: Watch,
) -> list[tuple[str, str]]:
    """The distinct pairs of a data set, a sample if there are too many.

    InputError for triplets, or if there are fewer than three pairs.
    """
    if data.kind == TRIPLETS:
        raise InputError(
            f"{data.name} holds triplets; give pairs of sentences, or single sentences"
        )
    if data.kind == SENTENCES:
        pairs = _pairs_of_sentences(data.columns[0], request.model, models, random, watch)
    else:
        pairs = list(zip(data.columns[0], data.columns[1], strict=True))
    distinct: dict[tuple[str, str], None] = {}
    for first, second in pairs:
        first = first[:LONGEST]
        second = second[:LONGEST]
        if first.strip() and second.strip() and first != second:
            distinct[first, second] = None
    pairs = list(distinct)
    if len(pairs) < FEWEST_PAIRS:
        raise InputError(
            f"{data.name} has {len(pairs)} different pairs; at least {FEWEST_PAIRS} are needed"
        )
    if len(pairs) > MOST_CANDIDATES:
        sample = np.sort(random.permutation(len(pairs))[:MOST_CANDIDATES])
        pairs = [pairs[row] for row in sample]
    return pairs


def _pairs_of_sentences(
    sentences: list[str], model: str, models: ModelCache, random: np.random.Generator, watch: Watch
) -> list[tuple[str, str]]:
    """Pairs of each sentence with its nearest ones, and as many at random."""
    distinct = list(dict.fromkeys(filter(str.strip, sentences)))
    # Each sentence gives NEIGHBOURS pairs with its nearest ones, and as many at random.
    most = MOST_CANDIDATES // (2 * NEIGHBOURS)
    if len(distinct) > most:
        sample = np.sort(random.permutation(len(distinct))[:most])
        distinct = [distinct[row] for row in sample]
    if len(distinct) < 2:
        return []
    vectors = models.get(model, VectorModel).encode(distinct, should_stop=watch.should_stop)
    # The vectors have length 1, as `encode` scales them.
    cosines = vectors @ vectors.T
    # Below every cosine, as a sentence is not its own neighbour.
    np.fill_diagonal(cosines, -2)
    nearest = np.argsort(-cosines, axis=1)[:, :NEIGHBOURS]
    pairs = []
    for i, row in enumerate(nearest.tolist()):
        pairs += [[i, j] for j in row]
    for _ in range(len(pairs)):
        pairs.append(random.choice(len(distinct), 2, replace=False).tolist())
    # A pair may have been drawn twice, in any order.
    unique = dict.fromkeys((min(pair), max(pair)) for pair in pairs)
    # Of only two sentences, each has itself as its second neighbour.
    return [(distinct[i], distinct[j]) for i, j in unique if i != j]


def score_pairs(
    models: ModelCache,
    name: ModelName | str,
    pairs: list[tuple[str, str]],
    watch: Watch = UNWATCHED,
) -> np.ndarray:
    """The score of each pair by a model, (N,). InputError if the model cannot be loaded."""
    return models.get(name, Model).score(pairs, should_stop=watch.should_stop)
