"""What the ratings of a project say: do the raters agree, how good is a model on these pairs, and after training.

To fine-tune the project's model, the judged pairs are split by sentence into train (60%), dev (20%, which chooses the
checkpoint) and held-out (20%): no sentence is in two of them, and the held-out pairs are used once, to compare before
and after. The run is an ordinary one in the queue; its data are kept with the uploads, so that later ratings do not
change what it was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.annotations.project import HIGHEST, Project
from sbert_app.services.annotations.selection import RANDOM, score_pairs
from sbert_app.services.files.uploads import keep_pairs
from sbert_app.services.files.writers import save_table
from sbert_app.services.results.results import Difference, Estimate
from sbert_app.services.store.documents import read_document, write_document
from training.data.dataset import sentence_groups
from training.errors import InputError
from training.names import ModelName
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from sbert_app.services.jobs.queue import RunQueue
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.services.runs.record import Run

FEWEST_JUDGED = 10  # pairs from which a correlation is worth a look
SHARES = {"train": 0.6, "dev": 0.2, "held-out": 0.2}
HELD_OUT = SHARES["held-out"]
FEWEST = 40  # judged pairs to train on
FEWEST_OF_A_PART = 6
EPOCHS = 4.0
TRAINING = "training.json"

Row = tuple[str, str, float]  # first, second, mean rating


@dataclass(frozen=True)
class Agreement:
    """How far the raters agree on the pairs that several have judged."""

    judged: dict[str, int]  # rater -> pairs
    shared: int  # pairs with two ratings or more
    alpha: float  # Krippendorff's, interval; NaN where it is undefined
    alpha_ordinal: float
    between: dict[tuple[str, str], tuple[float, int]]  # two raters -> (Spearman, pairs of both)
    confusion: np.ndarray  # (6, 6): pairs to which a rater gave the row's score and a later one the column's


@dataclass(frozen=True)
class Disagreement:
    """A pair to which raters gave different scores."""

    pair: int
    first: str
    second: str
    scores: dict[str, int]  # rater -> score
    agreed: int | None

    @property
    def difference(self) -> int:
        return max(self.scores.values()) - min(self.scores.values())


@dataclass(frozen=True)
class Quality:
    """Spearman ρ ×100 between a model's score and the mean rating of each judged pair."""

    model: str
    rho: Estimate
    pairs: int
    random: Estimate | None  # on the pairs that were drawn at random; None for fewer than `FEWEST_JUDGED`
    random_pairs: int
    ceiling: dict[str, float]  # rater -> ρ ×100 with the mean of the others: as good as a person is

    @property
    def more_pairs(self) -> int:
        """How many more judged pairs would halve the interval, whose width falls with the root of their number."""
        return 3 * (self.pairs - 3)  # of Fisher's interval: 1 / √(n − 3)


def agreement(project: Project) -> Agreement:
    from training.evaluation.agreement import krippendorff_alpha
    from training.evaluation.metrics import spearman

    ratings = project.ratings()
    table = np.full((len(ratings), len(project.pairs)), np.nan)
    for row, scores in zip(table, ratings.values(), strict=True):
        row[list(scores)] = list(scores.values())
    between, confusion = {}, np.zeros((HIGHEST + 1, HIGHEST + 1), dtype=np.int64)
    for (a, first), (b, second) in combinations(ratings.items(), 2):
        both = sorted(first.keys() & second.keys())
        rho = spearman(np.array([first[i] for i in both]), np.array([second[i] for i in both]))
        between[a, b] = (rho, len(both))
        for i in both:
            confusion[first[i], second[i]] += 1
    return Agreement(
        {rater: len(scores) for rater, scores in ratings.items()},
        int(((~np.isnan(table)).sum(axis=0) >= 2).sum()),
        krippendorff_alpha(table),
        krippendorff_alpha(table, "ordinal"),
        between,
        confusion,
    )


def disagreements(project: Project, rater: str) -> list[Disagreement]:
    """The pairs that this rater has judged and on which raters differ, the largest difference first.

    Pairs that are still to be judged are left out, so that nobody sees what others said before.
    """
    ratings, agreed = project.ratings(), project.agreed()
    found = []
    for i in project.judgements().get(rater, {}):
        scores = {name: each[i] for name, each in ratings.items() if i in each}
        if len(set(scores.values())) > 1:
            found.append(Disagreement(i, project.pairs[i].first, project.pairs[i].second, scores, agreed.get(i)))
    return sorted(found, key=lambda each: (-each.difference, each.pair))


def ceiling(project: Project) -> dict[str, float]:
    """Spearman ρ ×100 of each rater with the mean of the others, on the pairs that both have judged.

    Raters for whom it is undefined, or who share fewer than ten pairs with others, are left out.
    """
    from training.evaluation.metrics import spearman

    ratings, found = project.ratings(), {}
    for rater, own in ratings.items():
        rest = {i: [each[i] for name, each in ratings.items() if name != rater and i in each] for i in own}
        shared = [i for i, others in rest.items() if others]
        rho = spearman(np.array([own[i] for i in shared]), np.array([np.mean(rest[i]) for i in shared]))
        if len(shared) >= FEWEST_JUDGED and not np.isnan(rho):
            found[rater] = 100 * rho
    return found


def mean_ratings(project: Project) -> dict[int, float]:
    """Pair -> the mean of its ratings, or what was agreed on, of every judged pair, in the order of the pairs."""
    by_pair: dict[int, list[int]] = {}
    for scores in project.ratings().values():
        for pair, score in scores.items():
            by_pair.setdefault(pair, []).append(score)
    by_pair |= {pair: [score] for pair, score in project.agreed().items()}
    return {pair: float(np.mean(by_pair[pair])) for pair in sorted(by_pair)}


def model_quality(project: Project, models: ModelCache, model: str) -> Quality:
    """Score the judged pairs with a model and compare.

    Raises InputError if fewer than ten pairs are judged, all have the same score, or the model cannot be used.
    """
    means = mean_ratings(project)
    if len(means) < FEWEST_JUDGED:
        raise InputError(f"{len(means)} pairs are judged; from {FEWEST_JUDGED} on a model can be compared with them")
    gold = np.array(list(means.values()))
    if np.ptp(gold) == 0:
        raise InputError("all judged pairs have the same score; there is no order to compare a model with")
    pairs = [project.pairs[i] for i in means]
    scores = score_pairs(models, model, [(pair.first, pair.second) for pair in pairs])
    drawn = np.array([pair.reason == RANDOM for pair in pairs])
    random = _estimate(scores[drawn], gold[drawn]) if drawn.sum() >= FEWEST_JUDGED else None
    return Quality(model, _estimate(scores, gold), len(gold), random, int(drawn.sum()), ceiling(project))


def _estimate(scores: np.ndarray, gold: np.ndarray) -> Estimate:
    from training.evaluation.bootstrap import bootstrap_interval
    from training.evaluation.metrics import spearman

    low, high, _ = bootstrap_interval(scores, gold)
    return Estimate(100 * spearman(scores, gold), 100 * low, 100 * high)


# ---------------------------------------------------------------- training on the ratings


@dataclass(frozen=True)
class Training:
    """``training.json``: the run, and what it was not trained on."""

    run: str
    base: str
    train: int
    dev: int
    held_out: list[Row]


@dataclass(frozen=True)
class BeforeAfter:
    """Spearman ρ ×100 on the held-out pairs."""

    before: Estimate
    after: Estimate
    difference: Difference | None  # paired bootstrap; None where it is undefined
    pairs: int


def expected_margin(pairs: int, rho: float = 0.8) -> float:
    """Half the 95% interval of a Spearman ρ ×100 on so many pairs, by the formula of Bonett and Wright (2000)."""
    return 100 * 1.96 * (1 - rho**2) * ((1 + rho**2 / 2) / max(pairs - 3, 1)) ** 0.5


def split(rows: list[Row], seed: int) -> dict[str, list[Row]]:
    """Rows by part; no sentence is in two parts.

    Raises InputError if there are too few pairs, or too many of them share sentences.
    """
    if len(rows) < FEWEST:
        raise InputError(f"{len(rows)} pairs are judged; training needs {FEWEST} at least")
    groups = sentence_groups([[row[0] for row in rows], [row[1] for row in rows]])
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    order = order[np.argsort(-np.bincount(groups)[order], kind="stable")]  # the largest first, for even parts
    parts: dict[str, list[Row]] = {name: [] for name in SHARES}
    for group in order:
        # to the part that lacks the most of its share
        name = max(SHARES, key=lambda part: SHARES[part] - len(parts[part]) / len(rows))
        parts[name] += [rows[i] for i in np.flatnonzero(groups == group)]
    if any(len(part) < FEWEST_OF_A_PART for part in parts.values()):
        raise InputError(
            "the judged pairs share so many sentences that they cannot be divided into train, dev and held-out pairs "
            "without a sentence on two sides; judge more pairs"
        )
    return parts


def start(project: Project, jobs: RunQueue, visitor: str = "") -> Run:
    """Split the ratings, queue the run, and remember its held-out pairs. InputError as `split`, or a full queue."""
    rows = [(project.pairs[i].first, project.pairs[i].second, mean) for i, mean in mean_ratings(project).items()]
    parts = split(rows, project.info.seed)
    files = {name: keep_pairs(f"{project.id}-{name}.csv", parts[name], jobs.store.home) for name in ("train", "dev")}
    config = RunConfig(
        "regression",
        train_data=str(files["train"]),
        eval_data=str(files["dev"]),
        base=project.info.model,
        epochs=EPOCHS,
        name=f"label: {project.info.name}"[:80],
    )
    run = jobs.start(config, visitor)
    training = Training(run.id, project.info.model, len(parts["train"]), len(parts["dev"]), parts["held-out"])
    write_document(project.folder / TRAINING, training)
    return run


def last_training(project: Project) -> Training | None:
    """The last run that was started from this project, None before the first."""
    try:
        return read_document(project.folder / TRAINING, Training)
    except FileNotFoundError:
        return None


def compare(training: Training, models: ModelCache) -> BeforeAfter:
    """Base and run on the held-out pairs. InputError if a model cannot be loaded."""
    from training.evaluation.bootstrap import bootstrap_replicates

    pairs = [(first, second) for first, second, _ in training.held_out]
    gold = np.array([rating for *_, rating in training.held_out])
    names = (training.base, ModelName.of_run(training.run))
    scores = [score_pairs(models, name, pairs) for name in names]
    before, after = (_estimate(values, gold) for values in scores)
    difference = None
    if not np.isnan(before.value + after.value):
        of_before, of_after = (bootstrap_replicates(values, gold) for values in scores)
        difference = Difference.of(after.value / 100, before.value / 100, of_after, of_before)
    return BeforeAfter(before, after, difference, len(gold))


def export_csv(project: Project, file: Path) -> Path:
    """Every pair with its reason, scores and mean or agreed rating, and a column for each rater. Returns ``file``.

    Sentences and names that a spreadsheet would run as a formula get an apostrophe in front.
    """
    ratings, means, agreed, pairs = project.ratings(), mean_ratings(project), project.agreed(), project.pairs
    columns: dict[str, Any] = {
        "sentence1": [pair.first for pair in pairs],
        "sentence2": [pair.second for pair in pairs],
        "score": [f"{means[i]:g}" if i in means else "" for i in range(len(pairs))],
        "reason": [pair.reason for pair in pairs],
        "model": [f"{pair.score:.4f}" for pair in pairs],
        "second_model": [f"{pair.second_score:.4f}" for pair in pairs],
        "agreed": [agreed.get(i) for i in range(len(pairs))],
    }
    for name in sorted(ratings):
        columns[f"rater {name}" if name in columns else name] = [ratings[name].get(i) for i in range(len(pairs))]
    file.parent.mkdir(parents=True, exist_ok=True)
    return save_table(file, columns)
