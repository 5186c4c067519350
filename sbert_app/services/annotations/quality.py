"""The agreement of the raters of a project, the quality of a model on its pairs, and training on them.

For training, the judged pairs are split by sentence into train (60%), dev (20%, which selects the
checkpoint) and held-out (20%). No sentence is in two parts, and the held-out pairs are used only to
compare the model before and after. The data of the run are stored with the uploads, so that later
ratings do not change them.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

import numpy as np

from sbert_app.services.annotations.project import HIGHEST, LOWEST, Project
from sbert_app.services.annotations.selection import RANDOM, score_pairs
from sbert_app.services.files.uploads import keep_pairs
from sbert_app.services.files.writers import save_table
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.record import Run
from sbert_app.services.store.documents import read_document, write_document
from training.agreement import krippendorff_alpha
from training.data.tables.cells import rows_to_columns
from training.data.transforms import sentence_groups
from training.errors import InputError
from training.evaluation.bootstrap import (
    NORMAL_975,
    Difference,
    Estimate,
    correlation,
    dependence,
    sentence_keys,
    wilson_interval,
)
from training.evaluation.match_scores import BEST_F1, MatchScores
from training.evaluation.metrics import spearman
from training.evaluation.thresholds import Decision, decide
from training.names import ModelName
from training.trainer.config import RunConfig

# A correlation on fewer pairs says little.
FEWEST_JUDGED = 10
SHARES = {"train": 0.6, "dev": 0.2, "held-out": 0.2}
HELD_OUT = SHARES["held-out"]
# The fewest judged pairs for training, and the fewest in each of its parts.
FEWEST = 40
FEWEST_OF_A_PART = 6
EPOCHS = 4.0
TRAINING = "training.json"

# A pair and its rating.
Row = tuple[str, str, float]


@dataclass(frozen=True)
class Agreement:
    """The agreement of the raters on the pairs that several have judged.

    Attributes:
        judged: the number of pairs that each rater has judged.
        shared: the number of pairs with two ratings or more.
        alpha: Krippendorff's α for intervals, which for yes and no equals the nominal α; NaN if it
            is undefined.
        alpha_ordinal: Krippendorff's α for ordered scores.
        equal: for a yes/no project, how often in percent two raters give a pair the same answer;
            None for other projects, and without shared pairs.
        between: Spearman's ρ of each two raters, and the number of pairs that both have judged.
        confusion: int (6, 6), how often one rater gave a pair the score of the row, and another, who
            comes later in ``judged``, gave it the score of the column.
    """

    judged: dict[str, int]
    shared: int
    alpha: float
    alpha_ordinal: float
    equal: Estimate | None
    between: dict[tuple[str, str], tuple[float, int]]
    confusion: np.ndarray


@dataclass(frozen=True)
class Disagreement:
    """A pair to which raters gave different scores.

    Attributes:
        pair: the position of the pair in the project.
        scores: the scores by rater.
        agreed: the score that the raters agreed on afterwards; None if they have not yet.
    """

    pair: int
    first: str
    second: str
    scores: dict[str, int]
    agreed: int | None

    @property
    def difference(self) -> int:
        """The difference of the highest and the lowest score."""
        return max(self.scores.values()) - min(self.scores.values())


@dataclass(frozen=True)
class Quality:
    """Spearman ρ ×100 between a model's score and the mean rating of each judged pair.

    Attributes:
        pairs: the number of judged pairs.
        random: ρ on the judged pairs that were drawn at random; None if there are fewer than
            `FEWEST_JUDGED`.
        raters: `rater_correlations`, which show how good a person is.
        ceiling: the function `ceiling`, which shows how good a model can be.
    """

    model: str
    rho: Estimate
    pairs: int
    random: Estimate | None
    random_pairs: int
    raters: dict[str, float]
    ceiling: Estimate | None

    @property
    def more_pairs(self) -> int:
        """The number of further judged pairs that would halve the interval, whose width follows 1 / √(n − 3)."""
        return 3 * (self.pairs - 3)


def agreement(project: Project) -> Agreement:
    """The agreement of all raters of a project."""
    ratings = project.ratings()
    # (raters, pairs), NaN where a rater has not judged a pair
    table = np.full((len(ratings), len(project.pairs)), np.nan)
    for rater, scores in enumerate(ratings.values()):
        for pair, score in scores.items():
            table[rater, pair] = score
    is_judged = ~np.isnan(table)
    confusion = np.zeros((HIGHEST + 1, HIGHEST + 1), dtype=np.int64)
    between = {}
    # Each two raters, by their rows in the table and their names.
    for (i, a), (j, b) in combinations(enumerate(ratings), 2):
        both = is_judged[i] & is_judged[j]
        first = table[i, both].astype(int)
        second = table[j, both].astype(int)
        between[a, b] = (spearman(first, second), len(first))
        np.add.at(confusion, (first, second), 1)
    return Agreement(
        judged={rater: len(scores) for rater, scores in ratings.items()},
        shared=int((is_judged.sum(axis=0) >= 2).sum()),
        alpha=krippendorff_alpha(table, "interval"),
        alpha_ordinal=krippendorff_alpha(table, "ordinal"),
        equal=_equal_answers(project, table) if project.info.is_binary else None,
        between=between,
        confusion=confusion,
    )


def _equal_answers(project: Project, table: np.ndarray) -> Estimate | None:
    """The percentage of equal answers of two raters to a pair, with Wilson's interval over the pairs.

    ``table`` (raters, pairs) has NaN where a rater has not judged a pair. None if no pair was judged
    by two raters.
    """
    answers = (~np.isnan(table)).sum(axis=0)
    rows = np.flatnonzero(answers >= 2)
    if not len(rows):
        return None
    count = answers[rows]
    yes = (table[:, rows] == HIGHEST).sum(axis=0)
    # Of the count · (count − 1) / 2 pairs of raters, yes · (count − yes) answer differently.
    equal = 1 - 2 * yes * (count - yes) / (count * (count - 1))
    share = float(equal.mean())
    pairs = [(project.pairs[row].first, project.pairs[row].second) for row in rows]
    keys = sentence_keys(list(zip(*pairs, strict=True)))
    # Pairs that share sentences widen the standard error by the factor `dependence`, so that they
    # count as fewer independent ones.
    independent = len(rows) / dependence(equal - share, keys) ** 2
    interval = wilson_interval(share * independent, independent)
    return percent(Estimate(share, interval.low, interval.high))


def percent(share: Estimate) -> Estimate:
    """An estimate from 0 to 1 in percent."""
    return Estimate(100 * share.value, 100 * share.low, 100 * share.high)


def disagreements(project: Project, rater: str) -> list[Disagreement]:
    """The pairs that this rater has judged and on which raters differ, the largest difference first.

    Pairs that this rater has yet to judge are left out, so that nobody sees the ratings of others
    before judging.
    """
    ratings = project.ratings()
    agreed = project.agreed()
    pairs = []
    for i in project.judgements().get(rater, {}):
        scores = {name: by_pair[i] for name, by_pair in ratings.items() if i in by_pair}
        if len(set(scores.values())) > 1:
            pair = project.pairs[i]
            pairs.append(Disagreement(i, pair.first, pair.second, scores, agreed.get(i)))
    return sorted(pairs, key=lambda pair: (-pair.difference, pair.pair))


def ceiling(project: Project) -> Estimate | None:
    """ρ ×100 that a perfect model would have with the mean ratings: the root of their reliability.

    The reliability of the mean of k ratings with the correlation r of two raters is k r / (1 + (k −
    1) r) (Spearman and Brown 1910). k is the harmonic mean over the pairs, as the variance of a
    mean of k ratings is 1 / k of the variance of one. The interval follows from the interval of r.
    None if no two raters share ten pairs, or they do not agree.
    """
    ratings = project.ratings()
    correlations = []
    influence = np.zeros(len(project.pairs))
    for first, second in combinations(ratings.values(), 2):
        shared = [pair for pair in first if pair in second]
        if len(shared) < FEWEST_JUDGED:
            continue
        first_scores = np.array([first[pair] for pair in shared])
        second_scores = np.array([second[pair] for pair in shared])
        # Only the value and the influence are used, which do not need resamples.
        between = correlation(first_scores, second_scores, resamples=1)
        if np.isnan(between.value):
            continue
        correlations.append(between.value)
        influence[shared] += between.influence
    r = float(np.mean(correlations)) if correlations else 0.0
    if r <= 0:
        return None
    # The number of ratings of each pair.
    counts = Counter(chain.from_iterable(ratings.values()))
    k = harmonic_mean(counts.values())
    # The standard error of a mean of correlations is the norm of the mean influence.
    margin = NORMAL_975 * float(np.linalg.norm(influence)) / len(correlations)
    # The value and the bounds of its interval.
    figures = np.clip([r, r - margin, r + margin], 0, 1)
    reliability = k * figures / (1 + (k - 1) * figures)
    return Estimate(*(100 * np.sqrt(reliability)))


def rater_correlations(project: Project) -> dict[str, float]:
    """Spearman ρ ×100 of each rater with the mean of the others, on the pairs that both have judged.

    Raters for whom it is undefined, or who share fewer than ten pairs with others, are left out.
    """
    ratings = project.ratings()
    correlations = {}
    for rater, own in ratings.items():
        others = [scores for name, scores in ratings.items() if name != rater]
        # The scores of the rater, and the means of the others, for the pairs that both have judged.
        own_scores = []
        means = []
        for pair, score in own.items():
            other_scores = [scores[pair] for scores in others if pair in scores]
            if other_scores:
                own_scores.append(score)
                means.append(np.mean(other_scores))
        rho = spearman(np.array(own_scores), np.array(means))
        if len(own_scores) >= FEWEST_JUDGED and not np.isnan(rho):
            correlations[rater] = 100 * rho
    return correlations


def joint_ratings(project: Project) -> dict[int, float]:
    """The mean of the ratings of each judged pair, or the score that was agreed on, in the order of the pairs.

    For a yes/no project it is the answer of most raters; pairs with equally many yes and no are
    left out.
    """
    by_pair: dict[int, list[int]] = {}
    for scores in project.ratings().values():
        for pair, score in scores.items():
            by_pair.setdefault(pair, []).append(score)
    for pair, score in project.agreed().items():
        by_pair[pair] = [score]
    means = {pair: float(np.mean(by_pair[pair])) for pair in sorted(by_pair)}
    if not project.info.is_binary:
        return means
    half = HIGHEST / 2
    answers = {}
    for pair, mean in means.items():
        if mean != half:
            answers[pair] = float(HIGHEST if mean > half else LOWEST)
    return answers


def model_quality(project: Project, models: ModelCache, model: str) -> Quality:
    """Scores the judged pairs with a model and compares the scores with the ratings.

    InputError if fewer than ten pairs are judged, all have the same rating, or the model cannot be
    used.
    """
    scores, gold, keys, is_random = _scored(project, models, model)
    random = None
    random_pairs = int(is_random.sum())
    if random_pairs >= FEWEST_JUDGED:
        random = correlation(scores[is_random], gold[is_random], keys=keys[is_random]).estimate(
            scale=100
        )
    return Quality(
        model,
        rho=correlation(scores, gold, keys=keys).estimate(scale=100),
        pairs=len(gold),
        random=random,
        random_pairs=random_pairs,
        raters=rater_correlations(project),
        ceiling=ceiling(project),
    )


def answer_quality(project: Project, models: ModelCache, model: str) -> dict[str, Decision]:
    """Average precision and F1 for a yes/no project, on all judged pairs and on the random ones.

    There are no figures of the random pairs if fewer than ten are judged, or all have the same
    answer. InputError if fewer than ten pairs are judged at all, all have the same answer, or the
    model cannot be used.
    """
    scores, gold, keys, is_random = _scored(project, models, model)
    parts = {"all judged pairs": np.full(len(gold), True)}
    # `_scored` requires both answers only among all judged pairs, not among the random ones.
    if is_random.sum() >= FEWEST_JUDGED and np.ptp(gold[is_random]):
        parts["drawn at random"] = is_random
    decisions = {}
    for name, rows in parts.items():
        decisions[name] = decide(scores[rows], gold[rows] == HIGHEST, [BEST_F1], keys=keys[rows])
    return decisions


def _scored(
    project: Project, models: ModelCache, model: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The scores of the judged pairs, (N,), their ratings, (N,), `sentence_keys`, and which pairs were drawn at random.

    Raises InputError if fewer than ten pairs are judged, all have the same score, or the model
    cannot be used.
    """
    means = joint_ratings(project)
    if len(means) < FEWEST_JUDGED:
        raise InputError(
            f"{len(means)} pairs are judged; from {FEWEST_JUDGED} on a model can be compared with them"
        )
    gold = np.array(list(means.values()))
    if np.ptp(gold) == 0:
        raise InputError(
            "all judged pairs have the same rating; there is no order to compare a model with"
        )
    texts = []
    is_random = []
    for i in means:
        pair = project.pairs[i]
        texts.append((pair.first, pair.second))
        is_random.append(pair.reason == RANDOM)
    scores = score_pairs(models, model, texts)
    keys = sentence_keys(list(zip(*texts, strict=True)))
    return scores, gold, keys, np.array(is_random)


@dataclass(frozen=True)
class Training:
    """``training.json``: the run, its base, the sizes of its data, and the pairs that it was not trained on."""

    run: str
    base: str
    train: int
    dev: int
    held_out: list[Row]


@dataclass(frozen=True)
class BeforeAfter:
    """Spearman ρ ×100 on the held-out pairs, or for a yes/no project average precision in percent.

    ``difference`` is None if it is undefined. ``pairs`` is the number of held-out pairs.
    """

    before: Estimate
    after: Estimate
    difference: Difference | None
    pairs: int


def expected_margin(pairs: int) -> float:
    """Half the width of the 95% interval of a Spearman ρ ×100 of 80 on ``pairs`` pairs (Bonett and Wright 2000)."""
    rho = 0.8
    return 100 * 1.96 * (1 - rho**2) * ((1 + rho**2 / 2) / max(pairs - 3, 1)) ** 0.5


def agreement_margin(pairs: int) -> float:
    """Half the width of the 95% interval of an agreement of 80% on ``pairs`` pairs, in points."""
    interval = wilson_interval(0.8 * pairs, pairs)
    return 100 * (interval.high - interval.low) / 2


def split(rows: list[Row], seed: int) -> dict[str, list[Row]]:
    """Divides rows into the parts of `SHARES`. InputError if there are too few, or too many of them share sentences."""
    if len(rows) < FEWEST:
        raise InputError(f"{len(rows)} pairs are judged; training needs {FEWEST} at least")
    firsts, seconds, _ = zip(*rows, strict=True)
    # The number of the group of each row. Rows that share a sentence are in the same group.
    groups = sentence_groups([firsts, seconds])
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    # The largest groups come first, for even parts.
    order = order[np.argsort(-np.bincount(groups)[order], kind="stable")]
    parts: dict[str, list[Row]] = {name: [] for name in SHARES}
    for group in order:
        # The group goes to the part that lacks the most of its share.
        name = max(SHARES, key=lambda part: SHARES[part] - len(parts[part]) / len(rows))
        parts[name] += [rows[i] for i in np.flatnonzero(groups == group)]
    if any(len(part) < FEWEST_OF_A_PART for part in parts.values()):
        raise InputError(
            "too many of the judged pairs share sentences: they cannot be divided into train, dev and held-out pairs "
            "without a sentence on two sides; judge more pairs"
        )
    return parts


def start(project: Project, jobs: RunQueue, visitor: str = "") -> Run:
    """Splits the judged pairs, queues a run and saves ``training.json``.

    InputError if too few pairs are judged, too many of them share sentences, or the queue is full.
    """
    rows = []
    for i, mean in joint_ratings(project).items():
        pair = project.pairs[i]
        rows.append((pair.first, pair.second, mean))
    parts = split(rows, project.info.seed)
    train = parts["train"]
    dev = parts["dev"]
    home = jobs.store.home
    config = RunConfig(
        "regression",
        train_data=str(keep_pairs(f"{project.id}-train.csv", train, home)),
        eval_data=str(keep_pairs(f"{project.id}-dev.csv", dev, home)),
        base=project.info.model,
        epochs=EPOCHS,
        # A run's name has at most 80 characters.
        name=f"label: {project.info.name}"[:80],
    )
    run = jobs.start(config, visitor)
    training = Training(run.id, project.info.model, len(train), len(dev), parts["held-out"])
    write_document(project.folder / TRAINING, training)
    return run


def last_training(project: Project) -> Training | None:
    """The last training that was started from this project; None before the first."""
    try:
        return read_document(project.folder / TRAINING, Training)
    except FileNotFoundError:
        return None


def compare(training: Training, models: ModelCache, is_binary: bool = False) -> BeforeAfter:
    """Compares the base and the run on the held-out pairs. InputError if a model cannot be loaded."""
    firsts, seconds, ratings = zip(*training.held_out, strict=True)
    pairs = list(zip(firsts, seconds, strict=True))
    gold = np.array(ratings)
    keys = sentence_keys([firsts, seconds])
    base_scores = score_pairs(models, training.base, pairs)
    run_scores = score_pairs(models, ModelName.of_run(training.run), pairs)
    # All figures are multiplied by 100, which `Difference.of` does itself. Average precision is
    # undefined if all answers are equal. ρ is undefined then, too, and becomes NaN.
    if is_binary and np.ptp(gold):
        matches_before = MatchScores(base_scores, gold == HIGHEST, keys)
        matches_after = MatchScores(run_scores, gold == HIGHEST, keys)
        return BeforeAfter(
            percent(matches_before.estimate_average_precision()),
            percent(matches_after.estimate_average_precision()),
            Difference.of(matches_after.average_precision(), matches_before.average_precision()),
            len(gold),
        )
    before = correlation(base_scores, gold, keys=keys)
    after = correlation(run_scores, gold, keys=keys)
    return BeforeAfter(
        before.estimate(scale=100),
        after.estimate(scale=100),
        Difference.of(after, before),
        len(gold),
    )


def export_csv(project: Project, file: Path) -> Path:
    """Writes every pair with its reason, scores and rating, and a column for each rater. Returns ``file``.

    Sentences and names that a spreadsheet would run as a formula get an apostrophe in front.
    """
    target_column = "score"
    # The answers of a yes/no project have names, other scores are numbers.
    names: dict[Any, str] = {}
    if project.info.is_binary:
        target_column = "label"
        names = {HIGHEST: "yes", LOWEST: "no"}
    means = joint_ratings(project)
    agreed = project.agreed()
    by_rater = project.ratings()
    rows = []
    for i, pair in enumerate(project.pairs):
        target = ""
        if i in means:
            # A joint answer is the float 5.0 or 0.0, which finds the key 5 or 0.
            target = names.get(means[i], f"{means[i]:g}")
        row: dict[str, Any] = {
            "sentence1": pair.first,
            "sentence2": pair.second,
            target_column: target,
            "reason": pair.reason,
            "model": f"{pair.score:.4f}",
            "second_model": f"{pair.second_score:.4f}",
            "agreed": names.get(agreed.get(i), agreed.get(i)),
        }
        for rater in sorted(by_rater):
            score = by_rater[rater].get(i)
            # A rater may be called like another column.
            column = f"rater {rater}" if rater in row else rater
            row[column] = names.get(score, score)
        rows.append(row)
    file.parent.mkdir(parents=True, exist_ok=True)
    return save_table(file, rows_to_columns(rows))
