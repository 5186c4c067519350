"""The metrics of a run, in one table: their words, their scale, and whether they can select the best model.

A new metric is an entry of `RUN_METRICS`, which log, curves, reports, model card and commands read. `warnings` are
about a run that learns nothing, by the figures that it writes itself.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

# The figures of an evaluation by name; None for one that is not finite.
Figures = dict[str, Any]


class RunMetric(NamedTuple):
    """The words for a metric, with the unit, the factor with which it is printed, and its direction."""

    label: str
    factor: int = 1
    # None for a metric that does not select the best model.
    higher_is_better: bool | None = None

    @property
    def arrow(self) -> str:
        """Points to the better side."""
        return "↑" if self.higher_is_better else "↓"

    def format(self, value: float) -> str:
        """The value in the unit of the label."""
        return f"{self.factor * value:.2f}" if self.factor > 1 else f"{value:.4f}"


RUN_METRICS = {
    "spearman": RunMetric("Spearman ρ ×100", 100, higher_is_better=True),
    "average_precision": RunMetric("average precision %", 100, higher_is_better=True),
    "accuracy": RunMetric("triplet accuracy %", 100, higher_is_better=True),
    "ndcg@10": RunMetric("nDCG@10 %", 100, higher_is_better=True),
    "mrr@10": RunMetric("MRR@10 %", 100, higher_is_better=True),
    "accuracy@1": RunMetric("finds the partner %", 100),
    "map@10": RunMetric("MAP@10 %", 100),
    "recall@10": RunMetric("recall@10 %", 100),
    "loss": RunMetric("loss", higher_is_better=False),
    "perplexity": RunMetric("perplexity"),
    "masked_accuracy": RunMetric("accuracy on masked tokens %", 100),
    "random_cosine": RunMetric("mean cosine of random pairs of the training data"),
    "plain_cosine": RunMetric("mean cosine of random pairs of plain sentences"),
    "alignment": RunMetric("alignment"),
    "uniformity": RunMetric("uniformity"),
    "effective_rank": RunMetric("effective rank"),
}
# The metric of a run is the first of these that its evaluations have; it chooses the best model.
MAIN_METRICS = {name: metric for name, metric in RUN_METRICS.items() if metric.higher_is_better is not None}
# The fields of an eval event that an evaluator of the caller's may not return: all but the figures of retrieval.
RESERVED = {"t", "step", "kind", "best", "seconds", "seconds_left", "collapsed", "undefined", "by_dimension"}
RESERVED |= {"queries", "cosines", "changed"}
RESERVED |= {"random_cosine_std", "plain_cosine_std", *(name for name in RUN_METRICS if "@" not in name)}
# Steps before the first warning, and a difference of losses or correlations that is no difference.
MIN_STEPS = 20
TOLERANCE = 0.005
# The mean cosine of random pairs from which on vectors count as alike before a run: that of raw-bert-mini is 0.70.
ALIKE = 0.8


def main_metric(figures: Mapping[str, Any], first: str | None = None) -> str | None:
    """``first``, which the objective names, or the first of `MAIN_METRICS` that was measured; None if none was."""
    return next((name for name in (first, *MAIN_METRICS) if name and figures.get(name) is not None), None)


def selection_metric(figures: Mapping[str, Any], first: str | None = None) -> tuple[str, float] | None:
    """The main metric and its value, negated if lower is better; None if there is none."""
    name = main_metric(figures, first)
    return None if name is None else (name, figures[name] if RUN_METRICS[name].higher_is_better else -figures[name])


def line_of_figures(event: Mapping[str, Any]) -> dict[str, float]:
    """The figures of an eval event that fit on a line: main metrics, those of retrieval and the caller's, collapse."""
    others = [name for name in event if name not in RESERVED]
    names = (*MAIN_METRICS, *others, "perplexity", "masked_accuracy", "random_cosine", "effective_rank")
    return {name: event[name] for name in names if event.get(name) is not None}


def warnings(events: Sequence[dict[str, Any]]) -> list[str]:
    """The warnings about a run so far, a sentence each with the next thing to look at, by its events.

    Those of the loss, the rate and the gradients are about the second half of its training steps, so that a slow
    beginning is none. The loss of guessing is that of the objective (`training.objectives.base.Objective.guess`).
    """
    steps = [event for event in events if event["kind"] == "train" and event["step"] > 1]
    if not steps or steps[-1]["step"] < MIN_STEPS:
        return []
    half = [event for event in steps if 2 * event["step"] > steps[-1]["step"]]
    running: dict[str, Any] = next((event for event in events if event.get("state") == "running"), {})
    guess = running.get("guess")
    loss = fmean(event["loss"] for event in half)
    sentences = []
    if all(event["lr"] == 0 for event in half):
        sentences.append(
            "The learning rate is 0, so that nothing is learned: look at the schedule, and at the number of steps that "
            "it was made for"
        )
    elif all(event.get("gradient_norm") == 0 for event in half):
        sentences.append(
            "The gradients are 0, so that nothing is learned: look at whether the loss depends on the vectors, and "
            "whether it has reached 0 already"
        )
    if guess is not None and loss > guess - TOLERANCE:
        sentences.append(
            f"The loss, {loss:.3f}, is not below {guess:.3f}, that of guessing: look at the learning rate, at the "
            "labels, and at whether the base knows the words"
        )
    evaluations = [event for event in events if event["kind"] == "eval"]
    if evaluations and evaluations[0]["step"] == 0:
        sentences += _since_the_start(evaluations)
    return sentences


def _since_the_start(evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    """The warnings about the vectors before the first step, and about a correlation that has not risen since."""
    first = evaluations[0]
    sentences = []
    if (first.get("random_cosine") or 0) > ALIKE:
        sentences.append(
            f"All vectors were much alike before the first step, with a mean cosine of {first['random_cosine']:.2f} of "
            "random pairs: look at whether the base was trained, and whether padding is masked"
        )
    later = [event["spearman"] for event in evaluations[1:] if event.get("spearman") is not None]
    before = first.get("spearman")
    if later and before is not None and max(later) < before + TOLERANCE:
        sentences.append(
            f"Spearman's ρ ×100 has not risen: it was {100 * before:.1f} before the first step, and "
            f"{100 * max(later):.1f} at best since: look at the learning rate, and at whether the objective fits the "
            "evaluation"
        )
    return sentences
