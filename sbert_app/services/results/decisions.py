"""Data with labels: thresholds of several models for pairs that match, and scores of triplets and labelled pairs.

Models are compared by average precision, which needs no threshold, in a paired bootstrap: resample
r draws the same pairs for every model. The model to take is the best one, or a faster one that is
shown to be as good: the 95% interval of its difference to the best lies above a margin
(non-inferiority). An interval that contains 0 does not show that two models are equally good. Pairs
that a model was trained on are left out for all models.

Triplets (the paper's section 4.4) are scored by accuracy: how often the anchor is nearer to the
positive than to the negative. NLI labels are taken as ordered (entailment 1, neutral 0,
contradiction −1), and ρ measures whether the cosine preserves that order. The mean cosine of each
label says more: cosine separates related from unrelated sentences, but hardly a statement from its
contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from sbert_app.formats import format_count
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import evaluate_one, overlap_with, with_scores
from sbert_app.services.results.results import EvalResult, Metric
from training.catalogue import LABELLED
from training.data.dataset import Dataset
from training.data.gold import NLI_VALUES
from training.data.overlap import Overlap
from training.data.transforms import POSITIVE_FROM, match_labels, positive_and_negative
from training.errors import InputError, summary_of
from training.evaluation.bootstrap import (
    Difference,
    Estimate,
    Interval,
    Statistic,
    bootstrap_interval,
    sentence_keys,
)
from training.evaluation.match_scores import PRECISION, Criterion, MatchScores
from training.evaluation.metrics import spearman
from training.evaluation.scoring import row_scores, without_score
from training.evaluation.thresholds import CRITERIA, Choice, DataDecision, decide, parse_criteria
from training.models.model import Model
from training.names import ModelName

MOST_MODELS = 12
# The points of average precision that a faster model may be worse than the best.
MARGIN = 2.0


@dataclass(frozen=True, eq=False)
class ModelDecision:
    """The thresholds of one model.

    Attributes:
        on_data: the thresholds that `decide` has chosen, and what counts as a match.
        rho: Spearman's ρ ×100 with the gold scores, or with the labels as 5 and 0.
        speed: distinct sentences a second.
        average_precision: from 0 to 1.
    """

    model: ModelName
    on_data: DataDecision
    rho: Estimate
    speed: float
    average_precision: Statistic

    @property
    def label(self) -> str:
        return self.model.label

    @property
    def safest(self) -> Choice:
        """The choice to recommend (the function `safest`)."""
        return safest(self.on_data.decision.choices)

    def difference(self, other: ModelDecision) -> Difference | None:
        """The difference in average precision, positive where this model is better."""
        return Difference.of(self.average_precision, other.average_precision)

    def is_weaker_at_threshold(self, other: ModelDecision) -> bool:
        """Whether the F1 at the recommended threshold is lower, with intervals that do not overlap."""
        return self.safest.f1.high < other.safest.f1.low


@dataclass(frozen=True, eq=False)
class Decisions:
    """Models on the same pairs, by decreasing average precision.

    Attributes:
        failures: the reasons why models could not be measured, by the labels of the models.
        overlaps: the pairs that models were trained on, by the labels of the models.
        is_unread: whether all figures are measured on pairs that no model was trained on. If too
            few such pairs are left, it is False, and the figures are measured on all pairs.
    """

    models: list[ModelDecision]
    failures: dict[str, str]
    overlaps: Mapping[str, Overlap]
    is_unread: bool = True
    # A sentence on each model that cannot score some pairs, which are left out for all models.
    left_out: Sequence[str] = ()

    @cached_property
    def best(self) -> ModelDecision:
        """The model with the highest ρ, of the first model and those that are not significantly worse than it.

        The first model has the highest average precision, by which they are compared. Few matches
        decide the average precision, but all pairs decide ρ, so ρ is the surer of the two.
        """
        first, *others = self.models
        candidates = [first]
        for model in others:
            difference = first.difference(model)
            if difference is None or difference.low <= 0:
                candidates.append(model)
        return max(candidates, key=lambda model: np.nan_to_num(model.rho.value, nan=-np.inf))

    @cached_property
    def to_take(self) -> ModelDecision | None:
        """The fastest among the best model and the models that are shown to be as good.

        None if the figures are measured on pairs that a model was trained on.
        """
        if not self.is_unread:
            return None
        candidates = [self.best]
        for model in self.models:
            if model is self.best:
                continue
            difference = model.difference(self.best)
            is_as_good = difference and difference.low > -MARGIN
            # The average precision says little about a single threshold.
            if is_as_good and not model.is_weaker_at_threshold(self.best):
                candidates.append(model)
        return max(candidates, key=lambda model: model.speed)

    @property
    def reason(self) -> str:
        """The reason for `to_take` in a sentence; "" if there is none, or no other model."""
        taken = self.to_take
        others = [model for model in self.models if model is not taken]
        if taken is None or not others:
            return ""
        other = self.best
        if taken is self.best:
            # The fastest of the faster models, which would have been taken if it were shown to be as
            # good. If none is faster, the next best by average precision.
            faster = [model for model in others if model.speed > taken.speed]
            other = max(faster, key=lambda model: model.speed, default=others[0])
        difference = taken.difference(other)
        if difference is None:
            return ""
        sentence = difference.describe(taken.label, other.label, "in average precision")
        if taken is not self.best:
            sentence += f"; {taken.label} is as good: it is at most {max(0.0, -difference.low):.1f} points worse"
        elif other.is_weaker_at_threshold(taken):
            f1 = [100 * model.safest.f1.value for model in (taken, other)]
            sentence += f"; F1 ×100 at the threshold is {f1[0]:.1f} against {f1[1]:.1f}"
        # The interval reaches 0, so the average precision does not separate the two. `best` is the one
        # with the higher ρ.
        elif difference.low <= 0:
            sentence += f"; ρ ×100 is {taken.rho.value:.1f} against {other.rho.value:.1f}"
            # The condition of `to_take`. The other model was not taken, as it is not faster.
            if difference.high < MARGIN:
                sentence += f"; {other.label} is as good, but not faster"
            else:
                sentence += (
                    f"; these pairs cannot show that {other.label} is as good: it may be up to "
                    f"{difference.high:.1f} points worse"
                )
        return f"{sentence}; {taken.label} reads {taken.speed:,.0f} sentences/s, {other.label} {other.speed:,.0f}"

    @property
    def leaks(self) -> list[str]:
        """A sentence on each model that was trained on some of the pairs, and one on the consequence."""
        leaks = []
        for model, overlap in self.overlaps.items():
            leaks.append(f"{model} was trained on these pairs: {overlap}")
        if leaks and self.is_unread:
            leaks.append("all figures here are those of the other pairs")
        elif leaks:
            leaks.append(
                "no pairs are left to judge by, so no model is recommended; measure on other pairs"
            )
        return leaks


def safest(choices: Sequence[Choice]) -> Choice:
    """The choice to recommend: the first for a precision, which is safe for removing duplicates, or else the first.

    Choices without a threshold come last, and choices without a test do not count.
    """

    def place(choice: Choice) -> tuple[bool, bool]:
        # False is sorted before True.
        return not choice.exists, Criterion.parse(choice.criterion).kind != PRECISION

    return min((choice for choice in choices if choice.is_tested), key=place)


def has_both_kinds(matches: np.ndarray) -> bool:
    """Whether some pairs are matches, and some are not."""
    return bool(0 < matches.sum() < len(matches))


def decide_models(
    models: Sequence[ModelName],
    data: Dataset,
    cache: ModelCache,
    home: Path,
    criteria: Sequence[str] = CRITERIA,
    match_from: float = POSITIVE_FROM,
    watch: Watch = UNWATCHED,
) -> Decisions:
    """Scores the pairs with each model, and finds the score from which on pairs match, by their labels or gold scores.

    Raises InputError if the data has neither labels nor gold scores, a criterion cannot be read, there
    are no models or too many, or none of them can be measured.
    """
    if not 0 < len(models) <= MOST_MODELS:
        raise InputError(f"{len(models)} models are chosen; choose 1 to {MOST_MODELS}")
    # Errors of the input come before anything is scored.
    parse_criteria(criteria)
    match_labels(data, match_from)
    # `evaluate_one` needs scores. The thresholds are chosen by the labels themselves.
    scored = with_scores(data)
    results = dict[ModelName, EvalResult]()
    failures = dict[str, str]()
    overlaps: dict[str, Overlap] = {}
    for number, model in enumerate(models, start=1):
        step = watch.stage(f"{number} of {len(models)}: {model.label}")
        try:
            results[model] = evaluate_one(model, scored, cache, step)
        except InputError as error:
            failures[model.label] = summary_of(error)
            continue
        overlap = overlap_with(model, data, home)
        if overlap is not None and overlap.read:
            overlaps[model.label] = overlap
    if not results:
        raise InputError("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
    watch.report(1, "Choosing thresholds")
    return replace(decide_results(results, data, criteria, match_from, overlaps), failures=failures)


def decide_results(
    results: Mapping[ModelName, EvalResult],
    data: Dataset,
    criteria: Sequence[str],
    match_from: float = POSITIVE_FROM,
    overlaps: Mapping[str, Overlap] | None = None,
) -> Decisions:
    """The decisions on pairs that have been scored already.

    ``overlaps`` has the pairs that models were trained on, by the labels of the models. These pairs
    are left out, unless the others are of one kind. Raises InputError if the data does not say which
    pairs match, a criterion cannot be read, or the pairs that all models can score are of one kind.
    """
    matches, meaning = match_labels(data, match_from)
    overlaps = overlaps or {}
    # The pairs that some model was trained on.
    trained_on = set[int]()
    for overlap in overlaps.values():
        trained_on.update(overlap.read)
    # The pairs that a model cannot score, by its label.
    unscored = {model.label: result.left_out for model, result in results.items()}
    rows = sorted(set(range(len(data))).difference(*unscored.values()))
    unread = [row for row in rows if row not in trained_on]
    is_unread = has_both_kinds(matches[unread])
    if is_unread:
        rows = unread
    left_out = []
    for label, pairs in unscored.items():
        if pairs:
            left_out.append(
                f"{format_count(len(pairs), 'pair')} left out for all models: {label} knows no token of a text or "
                "gives no finite score"
            )
    # Without pairs that are left out, there are both kinds: `match_labels` has checked all pairs.
    if left_out and not has_both_kinds(matches[rows]):
        raise InputError(f"{'; '.join(left_out)}; the others are of one kind")
    if len(rows) < len(data):
        data = data.select(rows)
        matches = matches[rows]
        results = {model: result.select(rows) for model, result in results.items()}
    keys = sentence_keys(data.columns)
    decisions = []
    for model, result in results.items():
        # The cosines, or the only scores of a cross-encoder.
        similarity, scores = next(iter(result.scores.items()))
        decision = DataDecision(similarity, meaning, decide(scores, matches, criteria, keys=keys))
        rho = result.estimate(Metric(similarity))
        speed = result.num_sentences / result.seconds
        average = MatchScores(scores, matches, keys).average_precision()
        decisions.append(ModelDecision(model, decision, rho, speed, average))
    decisions.sort(key=lambda model: -model.average_precision.value)
    # All of these models could be measured; `decide_models` adds the failures of others.
    return Decisions(decisions, {}, overlaps, is_unread, left_out=left_out)


def unread_pairs(
    model: ModelName, data: Dataset, home: Path, match_from: float
) -> tuple[Dataset, list[str]]:
    """The pairs that a model was not trained on, and notes on the others: [] if there are none.

    Raises InputError if only matches are left, or no match.
    """
    overlap = overlap_with(model, data, home)
    if overlap is None or not overlap.read:
        return data, []
    rows = overlap.unread
    note = f"{model.label} was trained on these pairs: {overlap}"
    matches, _ = match_labels(data, match_from)
    if not has_both_kinds(matches[rows]):
        raise InputError(f"{note}; no pairs are left to judge by")
    return data.select(rows), [f"{note}; all figures are those of the other {len(rows):,}"]


@dataclass(frozen=True)
class LabelScore:
    """The agreement of a model's scores with labels.

    Attributes:
        n: the number of pairs.
        rho: Spearman's ρ, from −1 to 1, of the scores and the labels as ordered values.
        by_label: the cosines of the pairs with each label, or their scores by a cross-encoder.
        notes: a sentence on rows that are left out.
    """

    n: int
    rho: float
    interval: Interval
    by_label: dict[str, np.ndarray]
    notes: Sequence[str] = ()


def score_labels(scorer: Model, data: Dataset, watch: Watch = UNWATCHED) -> LabelScore:
    """Scores pairs with labels that say what belongs together. Raises InputError for other data."""
    if data.kind != LABELLED:
        raise InputError(
            f"{data.name} holds {data.kind}; this needs triplets, or pairs with labels of inference"
        )
    # The value of each label, which is higher the more the sentences of a pair belong together.
    order = NLI_VALUES
    if not set(data.label_names) <= set(NLI_VALUES):
        positive, negative = positive_and_negative(data)
        if len(data.label_names) > 2:
            raise InputError(
                f"the labels of {data.name} are {', '.join(data.label_names[:5])}; this needs "
                f"{', '.join(NLI_VALUES)}, or two labels such as 1 and 0"
            )
        order = {data.label_names[positive]: 1.0, data.label_names[negative]: -1.0}
    # The rows are pairs, so that one pair of columns has scores.
    [by_similarity] = row_scores(
        scorer, data.columns, on_progress=watch.on_progress, should_stop=watch.should_stop
    )
    is_left_out, note = without_score(scorer, data.columns, [by_similarity])
    is_scored = ~is_left_out
    scores = next(iter(by_similarity.values()))[is_scored]
    label_values = [order[data.label_names[label]] for label in data.labels or ()]
    values = np.array(label_values)[is_scored]
    by_label = {}
    for label, value in order.items():
        has_label = values == value
        if has_label.any():
            by_label[label] = scores[has_label]
    keys = sentence_keys(data.columns)[is_scored]
    interval = bootstrap_interval(scores, values, keys=keys)
    notes = [note] if note else []
    return LabelScore(len(values), spearman(scores, values), interval, by_label, notes)
