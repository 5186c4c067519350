"""The config of a run: everything that determines it, as one frozen pydantic model.

A config is validated when it is made; a mistake is one `InputError` that names the field, the value and the remedy.
It travels as JSON (``config.json`` in the run's folder, the job queue, the HTTP API) and comes back equal. Together
with the data, the versions of the libraries and the number of cores (each gets a micro-batch with its own dropout) it
determines the whole curve: in float32 on a CPU, bit for bit. The defaults are the paper's (section 3.1): batches of
16, Adam, learning rate 2e-5, linear warm-up over 10% of the steps. Networks over word vectors have a learning rate of
their own (`default_learning_rate`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator

from training.catalogue import AUTO, DEFAULT_MODEL, DTYPES, WORD_ENCODERS
from training.errors import InputError
from training.names import ENDPOINT, DataName
from training.objectives import OBJECTIVES, Objective
from training.objectives.base import HELD_OUT, is_own, names, objective_class
from training.objectives.pairs import CONCATENATIONS
from training.plugins import load_plugins
from training.pooling import poolings
from training.similarities import DISTANCES, SIMILARITIES
from training.trainer.settings import (
    REPORTERS,
    Dimensions,
    JoinedData,
    OptionalData,
    OptionalText,
    Reporters,
    Text,
    Whole,
    describe,
    joined,
    setting,
)

# They may add objectives.
load_plugins()

# Defaults for how often a run is evaluated. An evaluation costs as much as 20 steps, and a curve needs its points.
STEPS_PER_EVALUATION = 100
# The evaluation of the base comes on top.
MIN_EVALUATIONS = 4
MAX_EVALUATIONS = 20

LEARNING_RATE = 2e-5
# For masked language modelling: from random weights, and from trained ones.
LANGUAGE_MODEL_LEARNING_RATES = {True: 1e-3, False: 1e-4}
# Adam's own default, as 2e-5 hardly moves the random weights of an LSTM in an epoch.
WORD_ENCODER_LEARNING_RATE = 1e-3


def default_learning_rate(base: str, objective: str | None = None) -> float:
    """The learning rate of a run from ``base`` that has none of its own."""
    if objective in OBJECTIVES and OBJECTIVES[objective].predicts_tokens:
        return LANGUAGE_MODEL_LEARNING_RATES[base.startswith("scratch:")]
    return WORD_ENCODER_LEARNING_RATE if base.partition("?")[0].strip() in WORD_ENCODERS else LEARNING_RATE


def names_of(data: str) -> tuple[DataName, ...]:
    """The parts of training data by their names; data in memory is one."""
    return (DataName(data),) if is_own(data) else DataName.parse_joined(data)


# The heads of a cross-encoder, see `training.trainer.cross_encoder`.
JOINT = "joint"
CLASSIFIER = "classifier"
# The names are those of sentence-transformers.
PROPORTIONAL, ROUND_ROBIN = MIXES = ("proportional", "round-robin")


class Part(NamedTuple):
    """Training data that a run learns from by one objective. A batch has rows of one part alone."""

    data: str
    objective: str

    @property
    def facts(self) -> type[Objective]:
        return objective_class(self.objective)


class RunConfig(BaseModel):
    """The settings of one run. Raises InputError for a field that is unknown or has a value that cannot be used.

    ``train_data`` and ``eval_data`` are names for `training.data.load.load_data`; the form that the objective needs is
    derived from them. Without ``eval_data`` a tenth of your own data is held out (`HELD_OUT`), and other runs are
    evaluated on STSb dev. Sets of which one states an objective ("stsb:train=cosent+pairs.csv=mnrl", or a list) are
    `parts`: each has batches of its own, in the order of ``mix``. ``eval_data`` None evaluates on random pairs of the
    training data alone. ``pooling`` None is the base's own. ``learning_rate``, if not given, is the base's
    `default_learning_rate`. ``eval_every`` None evaluates about every 100 steps, but 4 to 20 times a run.

    docs/train.md describes every field, with its default.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    objective: str = setting(..., "Objective", "what is learned", choices=OBJECTIVES)
    base: Text = setting(
        DEFAULT_MODEL,
        "Base",
        "what the run starts from: a model, a run, a Hub id, or scratch:6x384 for random weights",
        metavar="NAME",
    )
    pooling: str | None = setting(
        None,
        "Pooling",
        "from token vectors to a sentence vector",
        words="the base's",
        metavar="mean|max|cls|…",
        choices=poolings(),
    )
    concatenation: str = setting(
        "uv+diff",
        "Concatenation",
        "what the softmax sees of u and v (Table 6); the paper's is (u, v, |u−v|)",
        option="--concat",
        choices=CONCATENATIONS,
    )
    train_data: JoinedData = setting(
        "stsb:train",
        "Training data",
        "a named set (a + b joins two; a=cosent + b=mnrl gives each its objective), hf:<org>/<name>, or your own file",
        metavar="NAME_OR_FILE",
        joint="+",
    )
    mix: str = setting(
        PROPORTIONAL, "Mixing", "with several data sets: batches in proportion to their size, or in turn", choices=MIXES
    )
    eval_data: OptionalData = setting(
        "stsb:dev",
        "Dev data",
        "data that evaluates the run about every 100 steps, to keep the best model; held-out reserves a tenth of "
        "the training data, none only measures collapse on random pairs",
        words="stsb:dev; of your own data held-out",
        metavar="NAME_OR_FILE",
    )
    epochs: float = setting(1, "Epochs", "passes over the training data", gt=0, le=1_000)
    max_steps: Whole | None = setting(
        None, "Maximum steps", "optimiser steps", words="as many as the epochs take", ge=1, le=10_000_000
    )
    batch_size: Whole = setting(16, "Batch size", "rows per step", ge=1, le=65_536)
    learning_rate: float = setting(
        LEARNING_RATE,
        "Learning rate",
        "the peak learning rate of Adam",
        words=f"2e-5; of {' and '.join(WORD_ENCODERS)} 1e-3",
        option="--lr",
        gt=0,
        le=1,
    )
    warmup: float = setting(0.1, "Warm-up", "the fraction of the steps that warms up", ge=0, le=1)
    weight_decay: float = setting(0.0, "Weight decay", "decoupled weight decay", ge=0, le=1)
    max_grad_norm: float = setting(1.0, "Gradient clipping", "the norm that gradients are clipped to", gt=0)
    seed: Whole = setting(0, "Seed", "the seed of everything random", ge=0, le=2**32 - 1)
    eval_every: Whole | None = setting(
        None, "Evaluate every", "steps between two evaluations", words="about 100", ge=1, le=10_000_000
    )
    patience: Whole | None = setting(
        None,
        "Patience",
        "evaluations without improvement after which the run stops",
        words="all steps are done",
        ge=1,
        le=10_000,
    )
    max_length: Whole | None = setting(None, "Maximum length", "tokens per sentence", words="the base's", ge=4, le=8192)
    dtype: str = setting(
        AUTO, "Precision", "precision of the transformer", choices=[name for name in DTYPES if name != "int8"]
    )
    lora_rank: Whole = setting(0, "LoRA rank", "the rank of LoRA, 0 for full fine-tuning", ge=0, le=512)
    triplet_metric: str = setting("euclidean", "Triplet distance", "the distance", choices=DISTANCES)
    triplet_margin: float = setting(1.0, "Triplet margin ε", "the margin ε", gt=0, le=1_000)
    mnrl_scale: float = setting(20.0, "mnrl scale", "the factor on the cosine", gt=0, le=1_000)
    mnrl_symmetric: bool = setting(False, "mnrl symmetric", "also from the positive to the anchor")
    cosent_scale: float = setting(20.0, "cosent, angle scale", "the factor on the similarity", gt=0, le=1_000)
    contrastive_margin: float = setting(0.5, "Contrastive margin", "the margin, as 1 - cosine,", gt=0, le=2)
    head: str = setting(
        AUTO,
        "Head",
        "joint starts as the bi-encoder; classifier is new, and sentence-transformers opens it; auto prefers joint",
        choices=(AUTO, JOINT, CLASSIFIER),
    )
    teacher: Text | None = setting(
        None, "Teacher", "the model to learn from: a cross-encoder, a bi-encoder, a Hub id or run:<id>", metavar="NAME"
    )
    margin_similarity: str = setting("dot", "margin-mse score", "the score of two vectors", choices=SIMILARITIES)
    matryoshka_dims: Dimensions = setting(
        (), "Matryoshka dimensions", "the first dimensions that are trained too, as 256,128,64", metavar="D,D,…"
    )
    mini_batch_size: Whole | None = setting(
        None, "Mini-batch size", "rows per forward pass (gradient caching)", words="the whole batch", ge=1, le=65_536
    )
    max_tokens: Whole | None = setting(
        None,
        "Maximum tokens",
        "tokens per forward pass, padding included, instead of rows",
        words="the whole batch",
        ge=16,
        le=100_000_000,
    )
    gradient_accumulation_steps: Whole = setting(
        1, "Gradient accumulation", "batches whose gradients make one step", ge=1, le=10_000
    )
    vocabulary_size: Whole | None = setting(
        None,
        "Vocabulary",
        "word pieces in the vocabulary of a transformer with random weights, made from the training data",
        words="8,192",
        ge=100,
        le=200_000,
    )
    query_prompt: OptionalText = setting(
        None, "Query prompt", "the text before each sentence of the first column: query, anchor", words="the base's"
    )
    document_prompt: OptionalText = setting(
        None, "Document prompt", "the text before each sentence of the other columns", words="the base's"
    )
    mine_negatives: bool = setting(
        False, "Mine hard negatives", "the base finds a similar but wrong sentence for each anchor"
    )
    negative_margin: float = setting(
        0.05, "Margin", "the fraction by which a mined negative is less similar than the positive", ge=0, lt=1
    )
    report_to: Reporters = setting(
        (), "Also write to", "experiment trackers, where they are installed", metavar=",".join(REPORTERS)
    )
    name: str = setting("", "Name", "what to call the run", words="named after its settings")

    def __init__(self, objective: str | None = None, /, **values: Any) -> None:
        values = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        if objective is not None:
            values["objective"] = objective
        if isinstance(data := joined(values.get("train_data")), str):
            objectives = [name.objective for name in names_of(data)]
            # Sets that all have an objective need none of the run.
            if objectives[0] and all(objectives):
                values["objective"] = objectives[0]
            if "eval_data" not in values and (is_own(data) or names_of(data)[0].exists):
                values["eval_data"] = HELD_OUT
        if "learning_rate" not in values and isinstance(base := values.get("base", DEFAULT_MODEL), str):
            values["learning_rate"] = default_learning_rate(base, values.get("objective"))
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_describe(error.errors()[0])) from None

    def __repr__(self) -> str:
        """The fields that differ from the defaults."""
        changes = [f"{name}={value!r}" for name, value in self if value != SETTINGS[name].default]
        return f"{type(self).__name__}({', '.join(changes)})"

    @field_validator("*")
    @classmethod
    def _is_a_choice(cls, value: Any, info: ValidationInfo) -> Any:
        choices = SETTINGS[str(info.field_name)].choices
        if choices and value not in choices and not (info.field_name == "objective" and is_own(value)):
            raise ValueError(f"{info.field_name} {value!r} is unknown; choose {', '.join(filter(None, choices))}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        objective = self.objective
        parts = self.parts
        if self.base.strip().startswith(ENDPOINT):
            raise ValueError(f"base {self.base!r} is an endpoint, which gives vectors only and cannot be trained")
        for part in parts:
            if part.objective not in OBJECTIVES and not is_own(part.objective):
                raise ValueError(f"objective {part.objective!r} is unknown; choose {', '.join(OBJECTIVES)}")
            if part.facts.uses_batch and self.batch_size < 2:
                raise ValueError(
                    f"batch_size must be at least 2 for {part.objective}: its negatives are the batch's other rows"
                )
        if self.patience is not None and self.eval_data is None:
            raise ValueError("patience waits for a better figure on dev data; name some, or leave patience out")
        if len({(part.facts.scores_pairs, part.facts.predicts_tokens) for part in parts}) > 1:
            odd = next(part.objective for part in parts if part.facts.scores_pairs or part.facts.predicts_tokens)
            raise ValueError(f"{odd} trains another kind of model than the other objectives; train them apart")
        learner = self.objective_class
        if not learner.trains_vectors() and (self.pooling or self.matryoshka_dims or self.role(0)):
            raise ValueError(f"{objective} trains no sentence vectors; leave out pooling, matryoshka_dims and prompts")
        if self.vocabulary_size and not (learner.predicts_tokens and self.base.startswith("scratch:")):
            raise ValueError(
                "vocabulary_size is for mlm from random weights (scratch:…); any other base has a vocabulary"
            )
        if self.objective_class.scores_pairs and DataName.parse(self.eval_data or "").is_retrieval:
            raise ValueError(f"{objective} is evaluated on pairs; choose dev data of pairs, not {self.eval_data}")
        if self.max_tokens and self.mini_batch_size:
            raise ValueError("max_tokens and mini_batch_size both say what is computed at a time; give one of them")
        students = [part.objective for part in parts if part.facts.needs_teacher()]
        if students and self.teacher is None:
            raise ValueError(
                f"{students[0]} needs a teacher to learn from: "
                "name a cross-encoder such as minilm-stsb, or a bi-encoder"
            )
        if not students and self.teacher is not None:
            others = " or ".join(names(lambda objective: objective.needs_teacher()))
            raise ValueError(f"{objective} has no teacher; leave it out, or choose {others}")
        if self.mine_negatives and not self.objective_class.can_mine_negatives:
            others = ", ".join(names(lambda objective: objective.can_mine_negatives))
            raise ValueError(f"mine_negatives is for {others}; {objective} takes no negatives")
        if self.mine_negatives and len(parts) > 1:
            raise ValueError("mine_negatives is for one data set; leave it out, or train on one")
        return self

    @property
    def objective_class(self) -> type[Objective]:
        """The class of the objective, which has all facts about it; with several parts, that of the first."""
        return self.parts[0].facts

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the training data: joined data is one, unless one of its names has an objective."""
        data = names_of(self.train_data)
        if not any(name.objective for name in data):
            return (Part(self.train_data, self.objective),)
        return tuple(Part(str(replace(name, objective=None)), name.objective or self.objective) for name in data)

    def steps_of_parts(self, batches: Sequence[int]) -> list[int]:
        """The batches that an epoch takes of each part: all, or in turn until one part has no more."""
        return [min(batches)] * len(batches) if self.mix == ROUND_ROBIN else list(batches)

    def role(self, column: int) -> str | None:
        """The role that decides the prompt of a column, query or document; None if all have the base's."""
        has_roles = self.query_prompt is not None or self.document_prompt is not None
        return ("document" if column else "query") if has_roles else None

    def total_steps(self, batches: int) -> int:
        """The optimiser steps of a run whose epoch has so many batches."""
        return self.max_steps or max(1, math.ceil(self.epochs * batches / self.gradient_accumulation_steps))

    def evaluate_every(self, steps: int) -> int:
        """The number of steps between two evaluations in a run of ``steps`` steps."""
        evaluations = min(max(round(steps / STEPS_PER_EVALUATION), MIN_EVALUATIONS), MAX_EVALUATIONS)
        return self.eval_every or max(1, steps // evaluations)

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed, validated; fields that nobody has set follow the others."""
        return RunConfig(**{**{name: getattr(self, name) for name in self.model_fields_set}, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.model_dump().items()}

    def to_json(self) -> str:
        """Indented JSON, which ``model_validate_json`` reads back to an equal config."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


SETTINGS = {name: describe(name, field) for name, field in RunConfig.model_fields.items()}
CHOICES = {name: setting.choices for name, setting in SETTINGS.items() if setting.choices}


def _describe(error: Mapping[str, Any]) -> str:
    """A sentence on a validation error, with the field, the value and the remedy."""
    field = str(error["loc"][0]) if error["loc"] else ""
    value = error["input"]
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden":
        return f"a run has no field {field}; the fields are {', '.join(SETTINGS)}"
    facts = SETTINGS[field]
    if error["type"] == "missing":
        return f"a run needs an {field}: {', '.join(facts.choices)}"
    if facts.range:
        return f"{field} is {value!r}, but {facts.help} must be {facts.range}"
    if error["type"] == "string_pattern_mismatch":
        return f"{field} is empty; give a name or a path"
    return f"{field} is {value!r}, but must be {'true or false' if error['type'] == 'bool_type' else 'text'}"
