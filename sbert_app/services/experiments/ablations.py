"""The ablations: what is varied, what is fixed, which variant is the default, and the results of the paper.

Each is an entry of ``ABLATIONS``: `RunConfig`s that differ in one setting. The paper's figures are Spearman ρ ×100 on
STSb dev (Table 6): classification on SNLI and MultiNLI, or regression on STSb train, from bert-base-uncased, the mean
of ten seeds. A sweep (`sbert_app.services.experiments.experiment`) is such a grid times seeds.

Precomputed tables of them ship as ``assets/ablation/<name>.json``; `scripts/measure_ablation.py` writes the file after
each run, so that it can be interrupted. No run is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbert_app.services.store.documents import read_document
from training.assets import asset
from training.catalogue import BILSTM, DAN, DEFAULT_CROSS_ENCODER, DEFAULT_MODEL
from training.errors import InputError
from training.objectives import OBJECTIVES
from training.objectives.base import LABELS, SCORES, TEACHER_MARGINS, TEACHER_OUTPUT, TEXTS, names
from training.trainer.config import RunConfig, default_learning_rate

NLI = "snli:dev+snli:test"  # 19,666 labelled pairs
TABLE_6 = "Table 6 of the paper"
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


# Those that see gold scores, then labels, then neither; then those that have a teacher.
OBJECTIVE_ORDER = sorted(
    names(lambda objective: not objective.scores_pairs),
    key=lambda name: (SCORES, LABELS, None, TEXTS, TEACHER_OUTPUT, TEACHER_MARGINS).index(OBJECTIVES[name].target),
)


def _word_encoder(label: str, base: str) -> Variant:
    """A network over word vectors, trained as InferSent was: on NLI, by a softmax over (u, v, |u−v|, u∗v)."""
    changes = {
        "base": base,
        "pooling": None,
        "objective": "classification",
        "concatenation": "uv+diff+mul",
        "train_data": NLI,
        "batch_size": 64,
        "epochs": 2,
        "learning_rate": default_learning_rate(base),
    }
    return Variant(f"{label} on NLI: {base}", changes)


def _numbers(field: str, label: str, values: str) -> dict[str, Variant]:
    """A variant for each value of a field, with spaces between; ``label`` has a place for the value."""
    return {text: Variant(label.format(text), {field: json.loads(text)}) for text in values.split()}


_TEACHER = {name: {"teacher": DEFAULT_CROSS_ENCODER} for name in OBJECTIVES if OBJECTIVES[name].needs_teacher()}

ABLATIONS: dict[str, Ablation] = {
    "pooling": Ablation(
        "Pooling",
        "How should token vectors become one sentence vector?",
        "Max keeps the largest value of each dimension, whatever else the sentence says: unrelated sentences look "
        "related, and training on the cosine makes it worse. CLS is one token: BERT's pre-training asked it whether "
        "one passage follows another, MiniLM's tuning asked it for nothing. With the "
        "regression objective the paper finds mean first, CLS close, max far behind.",
        "regression on STSb train",
        "mean",
        {
            "mean": Variant("mean", {"pooling": "mean"}, 87.44),
            "max": Variant("max", {"pooling": "max"}, 69.92),
            "cls": Variant("CLS", {"pooling": "cls"}, 86.62),
        },
        {"objective": "regression", "train_data": "stsb:train"},
    ),
    "concat": Ablation(
        "Concatenation",
        "What should the softmax see of u and v?",
        "The classifier is thrown away after training; it only shapes the vectors. In the paper, from a raw BERT, the "
        "element-wise difference |u−v| matters most: it asks similar sentences to be near in every dimension. A base "
        "that is already tuned on sentence pairs has little to learn here, and some to lose.",
        "classification on SNLI and MultiNLI",
        "uv+diff",
        {
            "uv": Variant("(u, v)", {"concatenation": "uv"}, 66.04),
            "diff": Variant("(|u−v|)", {"concatenation": "diff"}, 69.78),
            "mul": Variant("(u∗v)", {"concatenation": "mul"}, 70.54),
            "diff+mul": Variant("(|u−v|, u∗v)", {"concatenation": "diff+mul"}, 78.37),
            "uv+mul": Variant("(u, v, u∗v)", {"concatenation": "uv+mul"}, 77.44),
            "uv+diff": Variant("(u, v, |u−v|)", {"concatenation": "uv+diff"}, 80.78),
            "uv+diff+mul": Variant("(u, v, |u−v|, u∗v)", {"concatenation": "uv+diff+mul"}, 80.44),
        },
        {"objective": "classification", "pooling": "mean", "train_data": NLI},
    ),
    "objective": Ablation(
        "Objective",
        "Which loss, on the same pairs?",
        "Each learns from STSb train, from the view of it that it can use. Gold scores: regression, and cosent and "
        "angle, which see their order alone. Their thirds as labels; pairs of score 4 and more, with those up to 1.5 "
        "(contrastive), one of them or else a drawn one (triplet) or the rest of the batch (mnrl) on the other side. "
        "margin-mse draws its triplets by gold score as well. simcse sees plain sentences. The teacher of mse and "
        "margin-mse, the cross-encoder minilm-stsb, was trained on the gold scores of STSb train and chosen on STSb "
        "dev, on which this table reports. Dev is scored on the scale of the gold scores.",
        "",
        "regression",
        {name: Variant(name, {"objective": name, **_TEACHER.get(name, {})}) for name in OBJECTIVE_ORDER},
        {"pooling": "mean", "train_data": "stsb:train"},
    ),
    "base": Ablation(
        "Base",
        "How much comes from pre-training?",
        "The same regression on STSb, from a model that has read a billion sentence pairs and from random weights of "
        "the same shape (6 layers, 384 dimensions). Five thousand pairs cannot teach a language. Two networks "
        "from before BERT stand beside them, trained here on labels of SNLI, without gold scores: InferSent's, smaller "
        "than published, and a Deep Averaging Network (DAN). The Universal Sentence Encoder of the paper is neither: "
        "it is a transformer, trained on other data. What these know of language is in their word vectors (GloVe).",
        "",
        "pretrained",
        {
            "pretrained": Variant(f"pretrained: {DEFAULT_MODEL}", {"base": DEFAULT_MODEL}),
            "scratch": Variant("random weights: scratch:6x384", {"base": "scratch:6x384"}),
            "bilstm": _word_encoder("InferSent", BILSTM),
            "dan": _word_encoder("DAN", DAN),
        },
        {"objective": "regression", "pooling": "mean", "train_data": "stsb:train"},
    ),
    "learning-rate": Ablation(
        "Learning rate",
        "How large a step?",
        "The peak of the schedule, which warms up over a tenth of the steps and falls to 0. The paper takes 2e-5 for "
        "all runs. A rate that is too small leaves the base where it was; one that is too large loses what it "
        "knew.",
        "",
        "2e-5",
        _numbers("learning_rate", "{}", "5e-6 1e-5 2e-5 5e-5 1e-4"),
        {"objective": "regression", "pooling": "mean", "train_data": "stsb:train"},
    ),
    "temperature": Ablation(
        "Temperature",
        "How sharp is the softmax over the batch?",
        "mnrl multiplies the cosine by a scale, the inverse of the temperature: 20 is a temperature of 0.05. With a "
        "small scale all negatives pull about equally; with a large one the gradient comes from the nearest alone.",
        "",
        "20",
        _numbers("mnrl_scale", "scale {}", "1 5 20 50 100"),
        {"objective": "mnrl", "pooling": "mean", "train_data": "stsb:train"},
    ),
    "batch-size": Ablation(
        "Batch size",
        "How many negatives?",
        "In mnrl the negatives of a pair are the rest of its batch. A larger batch has more of them, and an epoch of "
        "it has fewer steps; with a number of steps below, each sees more pairs instead.",
        "",
        "16",
        _numbers("batch_size", "{} pairs", "4 8 16 32 64"),
        {"objective": "mnrl", "pooling": "mean", "train_data": "stsb:train"},
    ),
}


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
