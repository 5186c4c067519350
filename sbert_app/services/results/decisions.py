"""Data with labels: thresholds of several models for pairs that match, and scores of triplets and labelled pairs.

Models are compared by average precision, which needs no threshold, in a paired bootstrap: resample r draws the same
pairs for every model. The fastest of the models that cannot be told apart from the best is the one to take.

Triplets (the paper's section 4.4) are scored by accuracy: how often the anchor is nearer to the positive than to the
negative. NLI labels are taken as ordered (entailment 1, neutral 0, contradiction −1), and ρ measures whether the cosine
preserves that order. The mean cosine of each label says more: cosine separates related from unrelated sentences, but
hardly a statement from its contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import EvalResultCache, evaluate_one, with_scores
from sbert_app.services.results.results import Difference, Estimate, EvalResult, Metric, Ranking, comparison_of, rank
from training.catalogue import LABELLED, NLI_LABELS, TRIPLETS
from training.data.dataset import Dataset
from training.data.transforms import POSITIVE_FROM, match_labels, positive_and_negative
from training.errors import InputError, summary_of
from training.evaluation.bootstrap import Interval, bootstrap_interval, wilson_interval
from training.evaluation.metrics import spearman
from training.evaluation.scoring import row_scores
from training.evaluation.thresholds import (
    CRITERIA,
    PRECISION,
    Choice,
    Criterion,
    DataDecision,
    average_precision_replicates,
    decide,
    parse_criteria,
)
from training.models.model import Model
from training.names import ModelName

MOST_MODELS = 12


@dataclass(frozen=True, eq=False)
class ModelDecision:
    """The thresholds of one model.

    Attributes:
        on_data: the result of `decide`.
        rho: Spearman's ρ ×100 with the gold scores, or with the labels as 5 and 0.
        speed: distinct sentences a second.
        replicates: average precision from 0 to 1 in each resample, (R,).
    """

    model: ModelName
    on_data: DataDecision
    rho: Estimate
    speed: float
    replicates: np.ndarray

    @property
    def label(self) -> str:
        return self.model.label

    @property
    def safest(self) -> Choice:
        """The choice for a precision if there is one, else that of the best F1."""
        return safest(self.on_data.decision.choices)

    def difference(self, other: ModelDecision) -> Difference | None:
        """The difference in average precision, positive where this model is better."""
        ours, theirs = (model.on_data.decision.average_precision.value for model in (self, other))
        return Difference.of(ours, theirs, self.replicates, other.replicates)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Models on the same pairs, best first; and the reasons why others could not be measured, by their names."""

    models: list[ModelDecision]
    failures: dict[str, str]

    @cached_property
    def ranking(self) -> Ranking:
        by_name = {str(decision.model): decision for decision in self.models}
        return rank(list(by_name), lambda a, b: comparison_of(by_name[a].difference(by_name[b])))

    @cached_property
    def tied(self) -> list[ModelDecision]:
        """The best model, and those that cannot be told apart from it."""
        return [model for model, standing in zip(self.models, self.ranking.standings, strict=True) if standing.tied]

    @property
    def to_take(self) -> ModelDecision:
        """The fastest of the models that cannot be told apart from the best."""
        return max(self.tied, key=lambda model: model.speed)

    @property
    def reason(self) -> str:
        """The reason for that model in a sentence; "" for a single model."""
        best, *others = self.models
        if not others:
            return ""
        taken = self.to_take
        other = others[0] if taken is best else best
        difference = taken.difference(other)
        if difference is None:
            return ""
        sentence = difference.describe(taken.label, other.label, "in average precision")
        speeds = f"; {taken.label} reads {taken.speed:,.0f} sentences/s, {other.label} {other.speed:,.0f}"
        return sentence + (speeds if self.tied[1:] else "")


def safest(choices: Sequence[Choice]) -> Choice:
    """The threshold for a precision where there is one, as it is safe for removing duplicates; else the first."""
    return min(choices, key=lambda choice: (not choice.exists, Criterion.parse(choice.criterion).kind != PRECISION))


def decide_models(
    models: Sequence[ModelName],
    data: Dataset,
    cache: ModelCache,
    home: Path,
    criteria: Sequence[str] = CRITERIA,
    match_from: float = POSITIVE_FROM,
    watch: Watch = UNWATCHED,
) -> Decisions:
    """Score the pairs with each model, and `decide` from which score on they are matches (`match_labels`).

    InputError if the data has neither labels nor gold scores, a criterion is none, there is no model or too many, or
    none can be measured.
    """
    if not 0 < len(models) <= MOST_MODELS:
        raise InputError(f"{len(models)} models are chosen; choose 1 to {MOST_MODELS}")
    # Errors of the input come before anything is scored.
    parse_criteria(criteria)
    match_labels(data, match_from)
    scored, results, failures = with_scores(data), dict[ModelName, EvalResult](), dict[str, str]()
    for number, model in enumerate(models, start=1):
        step = watch.stage(f"{number} of {len(models)}: {model.label}")
        try:
            results[model] = evaluate_one(model, scored, cache, EvalResultCache(home), step)
        except InputError as error:
            failures[model.label] = summary_of(error)
    if not results:
        raise InputError("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
    watch.report(1, "Choosing thresholds")
    return replace(decide_results(results, data, criteria, match_from), failures=failures)


def decide_results(
    results: Mapping[ModelName, EvalResult], data: Dataset, criteria: Sequence[str], match_from: float = POSITIVE_FROM
) -> Decisions:
    """The decisions on pairs that have been scored already. InputError as `decide_models`."""
    matches, meaning = match_labels(data, match_from)
    decisions = []
    for model, result in results.items():
        similarity, scores = next(iter(result.scores.items()))
        decision = DataDecision(similarity, meaning, decide(scores, matches, criteria))
        rho, speed = result.estimate(Metric(similarity)), result.num_sentences / result.seconds
        decisions.append(ModelDecision(model, decision, rho, speed, average_precision_replicates(scores, matches)))
    return Decisions(sorted(decisions, key=lambda model: -model.on_data.decision.average_precision.value), {})


LABEL_VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))


@dataclass(frozen=True)
class TripletScore:
    """Accuracy in 0–1 under each similarity, and the Wilson interval of the first.

    Triplets with two equal similarities, ``ties``, count as wrong.
    """

    n: int
    accuracy: dict[str, float]
    interval: Interval
    ties: int


@dataclass(frozen=True)
class LabelScore:
    """Spearman's ρ in −1..1 with the labels as ordered values, and the scores of each label by the first similarity."""

    n: int
    rho: float
    interval: Interval
    by_label: dict[str, np.ndarray]


def score_labels(scorer: Model, data: Dataset, watch: Watch = UNWATCHED) -> TripletScore | LabelScore:
    """Score triplets, or pairs with labels that say what belongs together.

    Raises InputError if the data is of neither kind.
    """
    if data.kind == TRIPLETS:
        positive, negative = row_scores(scorer, data.columns, ((0, 1), (0, 2)), watch.on_progress, watch.should_stop)
        accuracy = {name: float((positive[name] > negative[name]).mean()) for name in positive}
        near, far = next(iter(positive.values())), next(iter(negative.values()))
        interval = wilson_interval(int((near > far).sum()), len(near))
        return TripletScore(len(near), accuracy, interval, int((near == far).sum()))
    if data.kind != LABELLED:
        raise InputError(f"{data.name} holds {data.kind}; this needs triplets, or pairs with labels of inference")
    order = LABEL_VALUES
    if not set(data.label_names) <= set(LABEL_VALUES):
        # A positive label and a negative one.
        together, apart = positive_and_negative(data)
        if len(data.label_names) > 2:
            raise InputError(
                f"the labels of {data.name} are {', '.join(data.label_names[:5])}; this needs "
                f"{', '.join(LABEL_VALUES)}, or two labels such as 1 and 0"
            )
        order = {data.label_names[together]: 1.0, data.label_names[apart]: -1.0}
    (by_similarity,) = row_scores(scorer, data.columns, ((0, 1),), watch.on_progress, watch.should_stop)
    scores = next(iter(by_similarity.values()))
    values = np.array([order[data.label_names[label]] for label in data.labels or ()])
    by_label = {label: scores[values == value] for label, value in order.items() if (values == value).any()}
    return LabelScore(len(values), spearman(scores, values), bootstrap_interval(scores, values), by_label)
