"""The ablations: their variants, the results of the paper, the tables that ship, and the statistics of a sweep.

An ablation is an entry of ``assets/ablations.json``: `RunConfig`s that differ in one setting. The
results of the paper are Spearman ρ ×100 on STSb dev (Table 6): classification on SNLI and MultiNLI,
or regression on STSb train, from bert-base-uncased, averaged over ten seeds. A sweep
(`experiments.experiment`) is such a grid times seeds.

The tables that ship are ``assets/ablation/<name>.json``. `scripts/measure_ablation.py` writes them,
with every run that it makes.

The statistics are computed from the Spearman ρ ×100 of each run after its last step. Runs with the
same seed see the same data in the same order in every variant, so Student's t-test of the
differences pairs runs by seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

import scipy

from sbert_app.services.results.results import Ranking, rank
from sbert_app.services.store.documents import read_document
from training.catalogue import DEFAULT_CROSS_ENCODER, asset
from training.errors import InputError
from training.objectives import OBJECTIVES
from training.objectives.base import LABELS, SCORES, TEACHER_MARGINS, TEACHER_OUTPUT, TEXTS, names
from training.trainer.config import RunConfig

# A value of eval_every beyond the last step, so that only the start and the end are evaluated.
AT_THE_END = 10_000_000


@dataclass(frozen=True)
class Variant:
    """A variant: fields of a `RunConfig`, and the result of the paper if there is one."""

    label: str
    changes: Mapping[str, Any]
    paper: float | None = None


@dataclass(frozen=True)
class Ablation:
    """An ablation: variants that are tested against the ``default``, and the fields of a `RunConfig` that they share.

    ``lesson`` holds for every base; ``of_base`` adds what the results of some bases show.
    """

    title: str
    question: str
    lesson: str
    setting: str
    default: str
    variants: Mapping[str, Variant]
    common: Mapping[str, Any] = field(default_factory=dict)
    of_base: Mapping[str, str] = field(default_factory=dict)

    @property
    def varies_base(self) -> bool:
        return "base" in self.variants[self.default].changes

    @property
    def needs_labels(self) -> bool:
        """Whether all variants are trained on NLI labels."""
        return self.common.get("objective") == "classification"

    def fields(self, variant: str, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a run's config that differ from the defaults. Raises InputError for an unknown variant.

        ``changes`` (max_steps, train_data, base …) apply to all variants, unless they are what
        varies.
        """
        if variant not in self.variants:
            raise InputError(
                f"{self.title} has no variant {variant!r}; choose {', '.join(self.variants)}"
            )
        name = f"{self.title.lower()}: {self.variants[variant].label}, seed {seed}"
        shared = {"eval_every": AT_THE_END, **self.common, **changes}
        return {**shared, **self.variants[variant].changes, "seed": seed, "name": name}

    def config(self, variant: str, seed: int, **changes: Any) -> RunConfig:
        """The config of a run with these `fields`. Raises InputError also if a value is out of range."""
        return RunConfig(**self.fields(variant, seed, changes))


def _objective_variants() -> dict[str, Variant]:
    """A variant for each objective. Objectives that learn from scores come first, objectives with a teacher last."""
    # What objectives learn from (``target``). It is None for objectives that only compare the
    # sentences of a row with each other.
    order = (SCORES, LABELS, None, TEXTS, TEACHER_OUTPUT, TEACHER_MARGINS)
    objectives = names(lambda objective: objective.trains_vectors())
    variants = {}
    for name in sorted(objectives, key=lambda name: order.index(OBJECTIVES[name].target)):
        changes = {"objective": name}
        if OBJECTIVES[name].needs_teacher():
            changes["teacher"] = DEFAULT_CROSS_ENCODER
        variants[name] = Variant(name, changes)
    return variants


ABLATIONS = read_document(asset("ablations.json"), dict[str, Ablation])
# The file leaves out the variants of this ablation, which are the objectives of the installed code.
ABLATIONS["objective"] = replace(ABLATIONS["objective"], variants=_objective_variants())


def ablation(name: str) -> Ablation:
    """The ablation of that name. Raises InputError if it does not exist."""
    if name not in ABLATIONS:
        raise InputError(f"there is no ablation {name!r}; choose {', '.join(ABLATIONS)}")
    return ABLATIONS[name]


SHIPPED = asset("ablation")


@dataclass(frozen=True)
class PrecomputedRun:
    """A run of a table: Spearman ρ from -1 to 1, and the mean cosine of random training pairs after the last step."""

    variant: str
    seed: int
    before: float
    after: float
    random_cosine: float
    steps: int
    seconds: float


@dataclass(frozen=True)
class PrecomputedTable:
    """All runs of an ablation on one machine. ``settings`` are the fields that differ from the defaults."""

    ablation: str
    settings: dict[str, Any]
    training_rows: int
    machine: dict[str, str]
    command: str
    measured: str
    runs: Sequence[PrecomputedRun]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    @property
    def base(self) -> str:
        """The base of all runs; "" if the base varies."""
        return self.settings.get("base", "")

    @property
    def steps(self) -> int:
        """The steps of each run; 0 for one epoch, whose length differs between variants."""
        steps = {run.steps for run in self.runs}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a `RunConfig` with which a sweep repeats these runs, without base and steps."""
        # The ablation's own settings, with which the settings of the table are compared. The first
        # run stands for all, as only fields that do not vary are compared.
        usual = ABLATIONS[self.ablation].config(self.runs[0].variant, seed=0)
        changes = {}
        for name in ("batch_size", "learning_rate"):
            # None if the field differs between the variants.
            value = self.settings.get(name)
            if value not in (None, getattr(usual, name)):
                changes[name] = value
        return changes

    @property
    def rows(self) -> list[VariantRow]:
        after = {}
        before = {}
        for run in self.runs:
            after[run.variant, run.seed] = 100 * run.after
            before[run.variant, run.seed] = 100 * run.before
        return variant_rows(ABLATIONS[self.ablation], after, before)


def precomputed(name: str, folder: Path = SHIPPED) -> PrecomputedTable | None:
    """The table that ships for an ablation of the default base; None if there is none."""
    file = folder / f"{name}.json"
    if not file.exists():
        return None
    return read_document(file, PrecomputedTable)


def precomputed_tables(name: str, folder: Path = SHIPPED) -> dict[str, PrecomputedTable]:
    """The tables that ship for an ablation, by their base, "" if the base varies. The default base comes last."""
    tables = {}
    for file in (*sorted(folder.glob(f"{name}-*.json")), *folder.glob(f"{name}.json")):
        table = read_document(file, PrecomputedTable)
        tables[table.base] = table
    return tables


LEVEL = 0.95
SIGNIFICANCE = 1 - LEVEL

# Spearman ρ ×100 by variant and seed.
Values = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Summary:
    """The mean, the standard deviation (with n - 1), and the bounds of the 95% interval by Student's t.

    Deviation and bounds are None for a single value.
    """

    n: int
    mean: float
    deviation: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary | None:
        """The summary of values; None without values."""
        if not values:
            return None
        mean = statistics.fmean(values)
        n = len(values)
        if n == 1:
            return cls(n, mean, None, None, None)
        quantile = scipy.stats.t.ppf((1 + LEVEL) / 2, n - 1)
        half_width = float(quantile * scipy.stats.sem(values))
        return cls(n, mean, statistics.stdev(values), mean - half_width, mean + half_width)


@dataclass(frozen=True)
class Paired:
    """The difference of a variant from the default over the seeds that both have.

    Attributes:
        better: the number of seeds in which the variant is better.
        p: the two-sided p-value; None for one seed, or if all differences are equal. In a
            `VariantRow` it is corrected for the comparisons of all variants, as in the ranking.
    """

    difference: Summary
    better: int
    p: float | None

    @classmethod
    def of(cls, variant: Mapping[int, float], default: Mapping[int, float]) -> Paired | None:
        """The comparison of values by seed; None if no seed has both."""
        seeds = sorted(variant.keys() & default.keys())
        differences = [variant[seed] - default[seed] for seed in seeds]
        summary = Summary.of(differences)
        if summary is None:
            return None
        # The deviation is None for one seed, and 0 if all differences are equal.
        p = None
        if summary.deviation:
            # The paired t-test.
            p = float(scipy.stats.ttest_1samp(differences, 0.0).pvalue)
        return cls(summary, sum(value > 0 for value in differences), p)

    @property
    def words(self) -> str:
        """The result of the test in words."""
        gap = self.difference.mean
        n = self.difference.n
        direction = "better" if gap > 0 else "worse"
        points = f"{abs(gap):.1f} points {direction}"
        if n == 1:
            return f"{points} in the one seed: nothing to test"
        if self.p is None and gap == 0:
            return "the same in every seed"
        if self.p is None:
            return f"{points} in every seed, without variation"
        if self.p >= SIGNIFICANCE:
            return f"not significantly different from the default with {n} seeds"
        ahead = self.better if gap > 0 else n - self.better
        seeds = f"{ahead} of {n} seeds"
        if ahead == n:
            seeds = "both seeds" if n == 2 else f"all {n} seeds"
        # Both bounds have the sign of the difference, as it is significant. They are None only for
        # one seed, which was answered above.
        low, high = sorted((abs(self.difference.low or 0), abs(self.difference.high or 0)))
        return f"{points} (95% {low:.1f} to {high:.1f}), in {seeds}"


@dataclass(frozen=True)
class VariantRow:
    """One variant of a table: values by seed, and the mean ``before`` training.

    ``against`` compares it with the default; it is None for the default itself, and if no seed has
    both. ``paper`` is the result of the paper, if there is one.
    """

    variant: str
    label: str
    is_default: bool
    values: Mapping[int, float]
    before: float | None
    summary: Summary | None
    against: Paired | None
    paper: float | None

    @property
    def name(self) -> str:
        """The label without its explanation, for sentences."""
        return self.label.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        """JSON values, with the result of the test in words."""
        values = asdict(self)
        if self.against is not None:
            values["against"]["words"] = self.against.words
        return values


def variant_rows(
    ablation: Ablation, values: Values, before: Values | None = None
) -> list[VariantRow]:
    """A row for each variant, in the ablation's order; the summary of a variant without runs is None."""
    by_variant = {name: dict[int, float]() for name in ablation.variants}
    for (name, seed), value in values.items():
        # A stored run may be of a variant that no longer exists.
        if name in by_variant:
            by_variant[name][seed] = value
    rows = []
    for name, variant in ablation.variants.items():
        # The values before training, over all seeds.
        starts = []
        for (variant_of_run, _), value in (before or {}).items():
            if variant_of_run == name:
                starts.append(value)
        is_default = name == ablation.default
        against = None
        if not is_default:
            against = Paired.of(by_variant[name], by_variant[ablation.default])
        row = VariantRow(
            variant=name,
            label=variant.label,
            is_default=is_default,
            values=by_variant[name],
            before=statistics.fmean(starts) if starts else None,
            summary=Summary.of(list(by_variant[name].values())),
            against=against,
            paper=variant.paper,
        )
        rows.append(row)
    # The corrected p-values of the ranking, by the two variants in any order.
    corrected = {frozenset(pair): p for pair, p in rank_variants(rows).p_values.items()}
    for number, row in enumerate(rows):
        p = corrected.get(frozenset({row.variant, ablation.default}))
        if row.against is not None and p is not None:
            rows[number] = replace(row, against=replace(row.against, p=p))
    return rows


def rank_variants(rows: Sequence[VariantRow]) -> Ranking:
    """The ranking of variants. The paired test compares every pair of them over their common seeds."""
    means = {}
    values = {}
    for row in rows:
        values[row.variant] = row.values
        # ρ is NaN if a run gives all pairs the same score.
        if row.summary and not isnan(row.summary.mean):
            means[row.variant] = row.summary.mean

    def compare(a: str, b: str) -> tuple[float, float] | None:
        """The mean difference and its p-value; None if there is nothing to test."""
        paired = Paired.of(values[a], values[b])
        if paired is None or paired.p is None:
            return None
        return paired.difference.mean, paired.p

    return rank(sorted(means, key=lambda name: -means[name]), compare)


# The least change of a mean, in points, that counts as an effect of training.
LEAST_CHANGE = 2.0


def outcome(rows: Sequence[VariantRow]) -> str:
    """Describes the result of an ablation in one or two sentences that agree with the test.

    Returns "" unless at least two variants were measured.
    """
    measured = [row for row in rows if row.summary]
    if len(measured) < 2:
        return ""
    ranking = rank_variants(rows)
    name_of = {row.variant: row.name for row in rows}
    if not ranking.is_known:
        return "There is one seed, so nothing can be tested."
    changes = []
    starts = []
    for row in measured:
        if row.summary and row.before is not None:
            changes.append(abs(row.summary.mean - row.before))
            starts.append(row.before)
    # Without values from before training, the first condition below is false, and the empty
    # ``starts`` are not evaluated.
    most = max(changes, default=LEAST_CHANGE)
    if most < LEAST_CHANGE and max(starts) - min(starts) >= LEAST_CHANGE:
        return (
            f"Training changed no variant by more than {most:.1f} points. They differ as they did before training, so "
            "nothing follows here."
        )
    # The best variant, and all that cannot be told apart from it.
    tied = [name_of[standing.name] for standing in ranking.standings if standing.tied]
    # ``tied`` has names for sentences, not the keys of the variants.
    others = [row for row in measured if row.name not in tied]
    if len(tied) == 1:
        best = next(row for row in measured if row.name == tied[0])
        return f"{best.name} stands out: {_behind(best, others)}."
    if len(tied) <= len(measured) / 2:
        return f"{_listed(tied)} cannot be told apart; the other {len(others)} are below them."
    count = f"{len(tied)} of {len(measured)}" if others else "all"
    sentence = f"Nothing stands out here: {count} cannot be told apart from the best"
    paper = [row.paper for row in measured if row.paper is not None]
    if not paper:
        return f"{sentence}."
    return f"{sentence}; in the paper the best is {max(paper) - min(paper):.1f} points above the worst."


def _behind(best: VariantRow, others: Sequence[VariantRow]) -> str:
    """The distances of the other variants from the best one, in words. There is at least one other."""
    gaps = {}
    for row in others:
        if best.summary and row.summary:
            gaps[row.name] = best.summary.mean - row.summary.mean
    nearest, *rest = sorted(gaps, key=lambda name: gaps[name])
    parts = [f"{nearest} is {gaps[nearest]:.1f} points lower"]
    for name in rest:
        parts.append(f"{name} {gaps[name]:.1f}")
    return _listed(parts)


def _listed(parts: Sequence[str]) -> str:
    """The parts as "a, b and c"."""
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
