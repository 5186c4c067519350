"""The metrics of a run, in one table: their words, their scale, and whether they can select the best model.

To add a metric, add an entry to `RUN_METRICS`, which log, curves, reports, model card and commands
read. `warnings` tells from a run's own figures whether it learns nothing.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

# The figures of an evaluation by name, None for non-finite ones.
Figures = dict[str, Any]


class RunMetric(NamedTuple):
    """The label of a metric, with its unit, the factor that it is printed with, and its direction."""

    label: str
    factor: int = 1
    # None for a metric that does not select the best model.
    higher_is_better: bool | None = None

    @property
    def arrow(self) -> str:
        """An arrow in the direction of better values."""
        return "↑" if self.higher_is_better else "↓"

    def format(self, value: float) -> str:
        """Formats a value in the unit of the label."""
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
# The metrics that can select the best model of a run. The first one that was measured does.
MAIN_METRICS = {
    name: metric for name, metric in RUN_METRICS.items() if metric.higher_is_better is not None
}
# Fields of an eval event that the caller's evaluators may not return: all but the figures of
# retrieval.
RESERVED = {
    "t",
    "step",
    "kind",
    "best",
    "seconds",
    "seconds_left",
    "collapsed",
    "undefined",
    "by_dimension",
    "queries",
    "cosines",
    "changed",
    "random_cosine_std",
    "plain_cosine_std",
}
# The names of figures of retrieval contain the cutoff, as in ndcg@10.
RESERVED |= {name for name in RUN_METRICS if "@" not in name}
# The least number of steps before a warning.
MIN_STEPS = 20
# Smaller differences between losses or correlations do not count.
TOLERANCE = 0.005
# Vectors count as alike from this mean cosine of random pairs on. For comparison, raw-bert-mini has
# 0.70.
ALIKE = 0.8


def main_metric(figures: Mapping[str, Any], first: str | None = None) -> str | None:
    """Returns the first metric that was measured: ``first``, then `MAIN_METRICS`. None if none was."""
    for name in (first, *MAIN_METRICS):
        if name and figures.get(name) is not None:
            return name
    return None


def selection_metric(
    figures: Mapping[str, Any], first: str | None = None
) -> tuple[str, float] | None:
    """Returns the main metric and its value, negated if lower is better; None if none was measured."""
    name = main_metric(figures, first)
    if name is None:
        return None
    if RUN_METRICS[name].higher_is_better:
        return name, figures[name]
    return name, -figures[name]


def line_of_figures(event: Mapping[str, Any]) -> dict[str, float]:
    """Selects the figures of an eval event for one line: main metrics, retrieval, the caller's, collapse."""
    # All figures outside of `RESERVED` come from retrieval or from the caller's evaluators. A main
    # metric among them, such as ndcg@10, is in the dictionary once.
    others = [name for name in event if name not in RESERVED]
    names = (
        *MAIN_METRICS,
        *others,
        "perplexity",
        "masked_accuracy",
        "random_cosine",
        "effective_rank",
    )
    return {name: event[name] for name in names if event.get(name) is not None}


def warnings(events: Sequence[dict[str, Any]]) -> list[str]:
    """Warns about a run that does not learn, judged by its events so far. Each sentence says what to look at next.

    Warnings about the loss, the learning rate and the gradients use the second half of the steps,
    so a slow start causes none. The loss of guessing comes from the objective
    (`training.objectives.base.Objective.guess`).
    """
    # The event of the first step says nothing, as a warm-up begins with the learning rate 0.
    steps = [event for event in events if event["kind"] == "train" and event["step"] > 1]
    if not steps or steps[-1]["step"] < MIN_STEPS:
        return []
    second_half = [event for event in steps if 2 * event["step"] > steps[-1]["step"]]
    guess = next((event.get("guess") for event in events if event.get("state") == "running"), None)
    loss = fmean(event["loss"] for event in second_half)
    sentences = []
    if all(event["lr"] == 0 for event in second_half):
        sentences.append(
            "The learning rate is 0, so that nothing is learned: look at the schedule, and at the number of steps that "
            "it was made for"
        )
    elif all(event.get("gradient_norm") == 0 for event in second_half):
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
    """Warns about vectors that were alike before the first step, and about a correlation that has not risen."""
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
