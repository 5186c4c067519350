"""Measures how often a threshold for a precision is offered, and how often it falls short, by simulation.

Scores are normal, those of matches higher than those of others, so that the true precision of every
threshold is known. In "flat" settings a pair is a match with the same probability whatever its
score, just too low for the precision: the hardest case, in which every threshold that is offered
falls short. `benchmarks/README.md` has the figures.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from training.evaluation.bootstrap import Keys, sentence_keys
from training.evaluation.match_scores import PRECISION, Criterion, MatchScores

# Where pairs share sentences: the share of a score's variance that comes from its two sentences, and
# the number of pairs for each sentence.
SENTENCE_SHARE = 0.5
PAIRS_EACH = 5
# The pairs on which the true precision of a threshold is measured.
POPULATION = 2_000_000


class Kind(NamedTuple):
    """The mean and the standard deviation of the scores of matches and of others, and the share of matches."""

    matches: tuple[float, float] = (0.75, 0.12)
    others: tuple[float, float] = (0.45, 0.15)
    share: float = 0.3
    # The probability of a match, if it does not depend on the score.
    flat: float | None = None

    def draw(self, n: int, random: np.random.Generator, has_shared: bool = False) -> MatchScores:
        """``n`` pairs of this kind."""
        noise = random.normal(size=n)
        keys: Keys = None
        if has_shared:
            sentences = n // PAIRS_EACH
            effects = random.normal(size=sentences)
            columns = random.integers(sentences, size=(2, n))
            keys = sentence_keys(columns.tolist())
            # Both parts have a variance of 1.
            sentence_noise = effects[columns].sum(axis=0) / np.sqrt(2)
            noise = np.sqrt(SENTENCE_SHARE) * sentence_noise + np.sqrt(1 - SENTENCE_SHARE) * noise
        if self.flat is not None:
            return MatchScores(noise, random.random(n) < self.flat, keys)
        is_match = random.random(n) < self.share
        mean, deviation = np.where(is_match[:, None], self.matches, self.others).T
        return MatchScores(mean + deviation * noise, is_match, keys)

    def precision_at(self) -> Callable[[float], float]:
        """A function that returns the true precision of a threshold."""
        if self.flat is not None:
            flat = self.flat
            return lambda threshold: flat
        pairs = self.draw(POPULATION, np.random.default_rng(1))
        return lambda threshold: float(pairs.matches[pairs.scores >= threshold].mean())


EASY = Kind((0.72, 0.12), (0.45, 0.16))
WIDE = Kind((0.75, 0.12), (0.45, 0.2))
# The name of the setting, the scores, the precision, and whether pairs share sentences.
OFFERS = [
    ("scores of the docs", Kind(), 0.95, False),
    ("… with shared sentences", Kind(), 0.95, True),
    ("flat, 0.949", Kind(flat=0.949), 0.95, False),
    ("flat, 0.94", Kind(flat=0.94), 0.95, False),
    ("flat, 0.93", Kind(flat=0.93), 0.95, False),
]
# The name of the setting, the scores, and the precision.
FORECASTS = [
    ("well within reach", EASY, 0.8),
    ("well within reach", WIDE, 0.7),
    ("hardly within reach", EASY, 0.9),
    ("out of reach", WIDE, 0.9),
    ("hardly within reach", Kind(), 0.95),
]


def most_offered(
    kind: Kind, n: int, precision: float, error: float, random: np.random.Generator
) -> float:
    """The share of samples in which the most powerful test finds that some threshold has a precision.

    The test knows the distributions. It errs in a share of ``error`` of the samples in which every
    pair matches with the probability ``precision``. By Neyman and Pearson, no other test with this
    error that looks at scores and matches offers a threshold more often.
    """
    scores = kind.draw(n, random).scores
    match_density = kind.share * norm.pdf(scores, *kind.matches)
    other_density = (1 - kind.share) * norm.pdf(scores, *kind.others)
    # The probability that a pair with this score matches.
    chances = match_density / (match_density + other_density)
    chances = chances[chances > precision]
    uniform = random.random((4_000, len(chances)))  # (samples, pairs)
    # The log-likelihood ratio of a match and of another pair.
    match_ratio = np.log(chances / precision)
    other_ratio = np.log((1 - chances) / (1 - precision))
    ratios_if_flat = np.where(uniform < precision, match_ratio, other_ratio).sum(axis=1)
    ratios = np.where(uniform < chances, match_ratio, other_ratio).sum(axis=1)
    return float((ratios > np.quantile(ratios_if_flat, 1 - error)).mean())


def join(pairs: MatchScores, others: MatchScores) -> MatchScores:
    """The pairs of both, as independent pairs."""
    scores = np.concatenate([pairs.scores, others.scores])
    return MatchScores(scores, np.concatenate([pairs.matches, others.matches]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=60)
    samples = range(parser.parse_args().samples)
    for name, kind, precision, has_shared in OFFERS:
        criterion = Criterion(PRECISION, precision)
        precision_at = kind.precision_at()
        for n in (1_000, 4_000, 16_000):
            thresholds = []
            num_covered = 0
            for seed in samples:
                pairs = kind.draw(n, np.random.default_rng(seed), has_shared)
                threshold = pairs.choose(criterion)
                if np.isnan(threshold.value):
                    continue
                thresholds.append(threshold.value)
                estimate = pairs.measure(threshold)[0]
                num_covered += estimate.low <= precision_at(threshold.value) <= estimate.high
            num_short = sum(precision_at(threshold) < precision for threshold in thresholds)
            print(
                f"{name}, {n:,} pairs: offered in {len(thresholds)} of {len(samples)}, falls short in {num_short}; its "
                f"precision is in its interval in {num_covered}",
                flush=True,
            )
    for n in (4_000, 16_000):
        share = most_offered(Kind(), n, 0.95, 0.1, np.random.default_rng(1))
        print(
            f"{n:,} pairs: a test that errs in 10% of flat samples offers one in {share:.2f} of samples at most"
        )
    for name, kind, precision in FORECASTS:
        criterion = Criterion(PRECISION, precision)
        for n in (100, 300, 1_000):
            # The numbers of missing pairs, and how often they suffice or are out of reach.
            numbers = []
            num_enough = 0
            num_none = 0
            for seed in samples:
                random = np.random.default_rng(seed)
                pairs = kind.draw(n, random)
                if not np.isnan(pairs.choose(criterion).value):
                    continue
                num_more = pairs.more_pairs(precision)
                if not num_more:
                    num_none += 1
                    continue
                numbers.append(num_more)
                all_pairs = join(pairs, kind.draw(num_more, random))
                if not np.isnan(all_pairs.choose(criterion).value):
                    num_enough += 1
            print(
                f"{precision:g}, {name}, {n} pairs: missing pairs are named in {len(numbers)} (median "
                f"{np.median(numbers or [0]):,.0f}), which suffice in {num_enough}; called out of reach in {num_none}",
                flush=True,
            )


if __name__ == "__main__":
    main()
