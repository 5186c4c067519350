"""The ablations: what is varied, what is fixed, which variant is the default, and the results of the paper.

Each is an entry of ``assets/ablations.json``: `RunConfig`s that differ in one setting. The paper's figures are Spearman
ρ ×100 on STSb dev (Table 6): classification on SNLI and MultiNLI, or regression on STSb train, from bert-base-uncased,
the mean of ten seeds. A sweep (`sbert_app.services.experiments.experiment`) is such a grid times seeds.

Precomputed tables of them ship as ``assets/ablation/<name>.json``; `scripts/measure_ablation.py` writes the file after
each run, so that it can be interrupted. No run is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sbert_app.services.store.documents import read_document
from training.assets import asset
from training.catalogue import DEFAULT_CROSS_ENCODER
from training.errors import InputError
from training.objectives import OBJECTIVES
from training.objectives.base import LABELS, SCORES, TEACHER_MARGINS, TEACHER_OUTPUT, TEXTS, names
from training.trainer.config import RunConfig

AT_THE_END = 10_000_000  # eval_every beyond the last step of any run: evaluations at the start and the end only


@dataclass(frozen=True)
class Variant:
    """A variant. ``changes`` are fields of a `RunConfig`; ``paper`` is the paper's result, if it has one."""

    label: str
    changes: Mapping[str, Any]
    paper: float | None = None


@dataclass(frozen=True)
class Ablation:
    """An ablation. ``common`` are the fields of a `RunConfig` that all variants share."""

    title: str
    question: str
    lesson: str
    setting: str  # of the paper, if it has results
    default: str  # the variant that the others are tested against
    variants: Mapping[str, Variant]
    common: Mapping[str, Any] = field(default_factory=dict)

    def fields(self, variant: str, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of one run's config that are not the defaults. InputError if there is no such variant.

        ``changes`` (max_steps, train_data, base …) hold for all variants but those they vary.
        """
        if variant not in self.variants:
            raise InputError(f"{self.title} has no variant {variant!r}; choose {', '.join(self.variants)}")
        name = f"{self.title.lower()}: {self.variants[variant].label}, seed {seed}"
        shared = {"eval_every": AT_THE_END, **self.common, **changes}
        return {**shared, **self.variants[variant].changes, "seed": seed, "name": name}

    def config(self, variant: str, seed: int, **changes: Any) -> RunConfig:
        """The config of one run, see `fields`. Raises InputError as well if a value is out of range."""
        return RunConfig(**self.fields(variant, seed, changes))


def _of_objectives() -> dict[str, Variant]:
    """Those that see gold scores, then labels, then neither; then those that have a teacher."""
    order = (SCORES, LABELS, None, TEXTS, TEACHER_OUTPUT, TEACHER_MARGINS)
    chosen = names(lambda objective: objective.trains_vectors())
    variants = {}
    for name in sorted(chosen, key=lambda name: order.index(OBJECTIVES[name].target)):
        teacher = {"teacher": DEFAULT_CROSS_ENCODER} if OBJECTIVES[name].needs_teacher() else {}
        variants[name] = Variant(name, {"objective": name, **teacher})
    return variants


ABLATIONS = read_document(asset("ablations.json"), dict[str, Ablation])
ABLATIONS["objective"] = replace(ABLATIONS["objective"], variants=_of_objectives())


def ablation(name: str) -> Ablation:
    """The ablation of that name. Raises InputError if there is none."""
    if name not in ABLATIONS:
        raise InputError(f"there is no ablation {name!r}; choose {', '.join(ABLATIONS)}")
    return ABLATIONS[name]


# ---------------------------------------------------------------- precomputed tables

SHIPPED = asset("ablation")


@dataclass(frozen=True)
class PrecomputedRun:
    variant: str
    seed: int
    before: float  # Spearman ρ on the evaluation data, -1..1, of the base
    after: float  # after the last step
    random_cosine: float  # mean over random pairs of the training data, after the last step
    steps: int
    seconds: float


@dataclass(frozen=True)
class PrecomputedTable:
    """All runs of an ablation on one machine under one setting."""

    ablation: str
    settings: dict[str, Any]  # fields of a RunConfig that differ from the defaults, without the seed
    training_rows: int
    machine: dict[str, str]
    command: str
    measured: str  # the day of the last run, ISO 8601
    runs: Sequence[PrecomputedRun]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})


def precomputed(name: str, folder: Path = SHIPPED) -> PrecomputedTable | None:
    file = folder / f"{name}.json"
    return read_document(file, PrecomputedTable) if file.exists() else None
