"""RunConfig: the settings of a run, as one frozen pydantic model.

A config is validated when it is made. A mistake raises one `InputError` that names the field, the
value and the remedy. A config is stored as JSON (``config.json`` in the run's folder, the job
queue, the HTTP API) and is equal when read back. Together with the data, the versions of the
libraries and the number of cores (each gets a micro-batch with its own dropout) it determines the
whole curve: in float32 on a CPU, bit for bit.

The defaults are the paper's (section 3.1): batches of 16, Adam, learning rate 2e-5, linear warm-up
over 10% of the steps. Networks over word vectors have another learning rate
(`default_learning_rate`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from training.catalogue import AUTO, DEFAULT_MODEL, DTYPES, WORD_ENCODERS
from training.errors import InputError
from training.names import ENDPOINT, SCRATCH, DataName
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

# Plug-ins may add objectives.
load_plugins()

# Defaults for how often a run is evaluated. An evaluation costs as much as 20 steps, and a curve
# needs enough points.
STEPS_PER_EVALUATION = 100
# The evaluation of the base is not counted in these limits.
MIN_EVALUATIONS = 4
MAX_EVALUATIONS = 20

LEARNING_RATE = 2e-5
# For masked language modelling, by whether it starts from random weights.
LANGUAGE_MODEL_LEARNING_RATES = {True: 1e-3, False: 1e-4}
# Adam's own default, as 2e-5 hardly moves the random weights of an LSTM in an epoch.
WORD_ENCODER_LEARNING_RATE = 1e-3
DEFAULT_LEARNING_RATES = (
    LEARNING_RATE,
    WORD_ENCODER_LEARNING_RATE,
    *LANGUAGE_MODEL_LEARNING_RATES.values(),
)

# The heads of a cross-encoder, see `training.trainer.cross_encoder`.
JOINT = "joint"
CLASSIFIER = "classifier"
# The names are the same as in sentence-transformers.
PROPORTIONAL = "proportional"
ROUND_ROBIN = "round-robin"


def default_learning_rate(base: str, objective: str | None = None) -> float:
    """Returns the learning rate of a run whose config does not set it."""
    # The name without settings such as ?dtype=float32.
    name = base.partition("?")[0].strip()
    # A function that was passed to `train` is not in the table.
    if objective in OBJECTIVES and OBJECTIVES[objective].predicts_tokens:
        has_random_weights = name.startswith(SCRATCH)
        return LANGUAGE_MODEL_LEARNING_RATES[has_random_weights]
    return WORD_ENCODER_LEARNING_RATE if name in WORD_ENCODERS else LEARNING_RATE


def names_of(data: str) -> tuple[DataName, ...]:
    """Splits the name of training data into the names of its sets. Data in memory is one set."""
    return (DataName(data),) if is_own(data) else DataName.parse_joined(data)


class Part(NamedTuple):
    """Training data with one objective. Each batch has rows of a single part."""

    data: str
    objective: str

    @property
    def facts(self) -> type[Objective]:
        """The class of the objective, which holds all facts about it."""
        return objective_class(self.objective)


class RunConfig(BaseModel):
    """The settings of one run. docs/train.md describes every field, with its default.

    Args:
        objective: the name of an objective, such as regression, mnrl or softmax.
        train_data: a name for `training.data.load.load_data`, converted to the form that the
            objective needs. Several sets are joined by "+", or given as a list. If one of them
            names its objective, as in "stsb:train=cosent+pairs.csv=mnrl", they become `parts`, each
            with its own batches, in the order of ``mix``.
        eval_data: a name too. The default is STSb dev, or a tenth of your own training data
            (`HELD_OUT`). None evaluates on random pairs of the training data only.
        pooling: None keeps the base's.
        learning_rate: the default depends on the base (`default_learning_rate`).
        eval_every: None evaluates about every 100 steps, but 4 to 20 times a run.

    Raises:
        InputError: a field is unknown, or its value cannot be used.

    Example::

        from sbert_lab import RunConfig

        config = RunConfig("mnrl", base="all-MiniLM-L6-v2", train_data="all-nli", batch_size=64)
        print(config)  # the fields that differ from the defaults
        print(config.replace(seed=1).to_json())
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
        PROPORTIONAL,
        "Mixing",
        "with several data sets: batches in proportion to their size, or in turn",
        choices=(PROPORTIONAL, ROUND_ROBIN),
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
        None,
        "Maximum steps",
        "optimiser steps",
        words="as many as the epochs take",
        ge=1,
        le=10_000_000,
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
    max_grad_norm: float = setting(
        1.0, "Gradient clipping", "the norm that gradients are clipped to", gt=0
    )
    seed: Whole = setting(0, "Seed", "the seed of everything random", ge=0, le=2**32 - 1)
    eval_every: Whole | None = setting(
        None,
        "Evaluate every",
        "steps between two evaluations",
        words="about 100",
        ge=1,
        le=10_000_000,
    )
    patience: Whole | None = setting(
        None,
        "Patience",
        "evaluations without improvement after which the run stops",
        words="all steps are done",
        ge=1,
        le=10_000,
    )
    max_length: Whole | None = setting(
        None, "Maximum length", "tokens per sentence", words="the base's", ge=4, le=8192
    )
    dtype: str = setting(
        AUTO,
        "Precision",
        "precision of the transformer",
        choices=[name for name in DTYPES if name != "int8"],
    )
    lora_rank: Whole = setting(
        0, "LoRA rank", "the rank of LoRA, 0 for full fine-tuning", ge=0, le=512
    )
    triplet_metric: str = setting(
        "euclidean", "Triplet distance", "the distance", choices=DISTANCES
    )
    triplet_margin: float = setting(1.0, "Triplet margin ε", "the margin ε", gt=0, le=1_000)
    mnrl_scale: float = setting(20.0, "mnrl scale", "the factor on the cosine", gt=0, le=1_000)
    mnrl_symmetric: bool = setting(False, "mnrl symmetric", "also from the positive to the anchor")
    cosent_scale: float = setting(
        20.0, "cosent, angle scale", "the factor on the similarity", gt=0, le=1_000
    )
    contrastive_margin: float = setting(
        0.5, "Contrastive margin", "the margin, as 1 - cosine,", gt=0, le=2
    )
    head: str = setting(
        AUTO,
        "Head",
        "joint starts as the bi-encoder; classifier is new, and sentence-transformers opens it; auto prefers joint",
        choices=(AUTO, JOINT, CLASSIFIER),
    )
    teacher: Text | None = setting(
        None,
        "Teacher",
        "the model to learn from: a cross-encoder, a bi-encoder, a Hub id or run:<id>",
        metavar="NAME",
    )
    margin_similarity: str = setting(
        "dot", "margin-mse score", "the score of two vectors", choices=SIMILARITIES
    )
    matryoshka_dims: Dimensions = setting(
        (),
        "Matryoshka dimensions",
        "the first dimensions that are trained too, as 256,128,64",
        metavar="D,D,…",
    )
    mini_batch_size: Whole | None = setting(
        None,
        "Mini-batch size",
        "rows per forward pass (gradient caching)",
        words="the whole batch",
        ge=1,
        le=65_536,
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
        None,
        "Query prompt",
        "the text before each sentence of the first column: query, anchor",
        words="the base's",
    )
    document_prompt: OptionalText = setting(
        None,
        "Document prompt",
        "the text before each sentence of the other columns",
        words="the base's",
    )
    mine_negatives: bool = setting(
        False, "Mine hard negatives", "the base finds a similar but wrong sentence for each anchor"
    )
    negative_margin: float = setting(
        0.05,
        "Margin",
        "the fraction by which a mined negative is less similar than the positive",
        ge=0,
        lt=1,
    )
    report_to: Reporters = setting(
        (),
        "Also write to",
        "experiment trackers, where they are installed",
        metavar=",".join(REPORTERS),
    )
    name: str = setting("", "Name", "what to call the run", words="named after its settings")

    def __init__(self, objective: str | None = None, /, **values: Any) -> None:
        for name, value in values.items():
            if isinstance(value, Path):
                values[name] = str(value)
        if objective is not None:
            values["objective"] = objective
        data = joined(values.get("train_data"))
        # The validation refuses values of other types.
        if isinstance(data, str):
            data_names = names_of(data)
            objectives = [name.objective for name in data_names]
            # If every set names an objective, the run needs none. The field has the first of them.
            if all(objectives):
                values["objective"] = objectives[0]
            # A tenth of the first set is held out, if it is the user's own data: in memory
            # (`is_own`), or a file.
            if "eval_data" not in values and (is_own(data) or data_names[0].exists):
                values["eval_data"] = HELD_OUT
        base = values.get("base", DEFAULT_MODEL)
        if "learning_rate" not in values and isinstance(base, str):
            values["learning_rate"] = default_learning_rate(base, values.get("objective"))
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_describe(error.errors()[0])) from None

    def __repr__(self) -> str:
        """Shows the fields that differ from the defaults."""
        changes = [f"{name}={value!r}" for name, value in self if value != SETTINGS[name].default]
        return f"{type(self).__name__}({', '.join(changes)})"

    @field_validator("*")
    @classmethod
    def _is_a_choice(cls, value: Any, info: ValidationInfo) -> Any:
        """Raises ValueError if a field has choices and the value is none of them."""
        choices = SETTINGS[str(info.field_name)].choices
        if not choices or value in choices:
            return value
        # A function or module that was passed to `train`.
        if info.field_name == "objective" and is_own(value):
            return value
        raise ValueError(
            f"{info.field_name} {value!r} is unknown; choose {', '.join(filter(None, choices))}"
        )

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        """Raises ValueError if fields contradict one another."""
        objective = self.objective
        parts = self.parts
        base = self.base.strip()
        if base.startswith(ENDPOINT):
            raise ValueError(
                f"base {self.base!r} is an endpoint, which gives vectors only and cannot be trained"
            )
        self._check_objectives()
        if self.patience is not None and self.eval_data is None:
            raise ValueError(
                "patience waits for a better figure on dev data; name some, or leave patience out"
            )
        learner = self.objective_class
        # The first column has a role only if the config sets a prompt.
        sets_vectors = self.pooling or self.matryoshka_dims or self.role(0)
        if sets_vectors and not learner.trains_vectors():
            raise ValueError(
                f"{objective} trains no sentence vectors; leave out pooling, matryoshka_dims and prompts"
            )
        trains_vocabulary = learner.predicts_tokens and base.startswith(SCRATCH)
        if self.vocabulary_size and not trains_vocabulary:
            raise ValueError(
                "vocabulary_size is for mlm from random weights (scratch:…); any other base has a vocabulary"
            )
        if learner.scores_pairs and DataName.parse(self.eval_data or "").is_retrieval:
            raise ValueError(
                f"{objective} is evaluated on pairs; choose dev data of pairs, not {self.eval_data}"
            )
        if self.max_tokens and self.mini_batch_size:
            raise ValueError(
                "max_tokens and mini_batch_size both say what is computed at a time; give one of them"
            )
        students = [part.objective for part in parts if part.facts.needs_teacher()]
        if students and self.teacher is None:
            raise ValueError(
                f"{students[0]} needs a teacher to learn from: "
                "name a cross-encoder such as minilm-stsb, or a bi-encoder"
            )
        if not students and self.teacher is not None:
            others = " or ".join(names(lambda objective: objective.needs_teacher()))
            raise ValueError(f"{objective} has no teacher; leave it out, or choose {others}")
        if self.mine_negatives and not learner.can_mine_negatives:
            others = ", ".join(names(lambda objective: objective.can_mine_negatives))
            raise ValueError(f"mine_negatives is for {others}; {objective} takes no negatives")
        if self.mine_negatives and len(parts) > 1:
            raise ValueError("mine_negatives is for one data set; leave it out, or train on one")
        return self

    def _check_objectives(self) -> None:
        """Raises ValueError if the objective of a part is unknown, or does not fit the batches or the others."""
        for part in self.parts:
            if part.objective not in OBJECTIVES and not is_own(part.objective):
                raise ValueError(
                    f"objective {part.objective!r} is unknown; choose {', '.join(OBJECTIVES)}"
                )
            if part.facts.uses_batch and self.batch_size < 2:
                raise ValueError(
                    f"batch_size must be at least 2 for {part.objective}: its negatives are the batch's other rows"
                )
        kinds = {(part.facts.scores_pairs, part.facts.predicts_tokens) for part in self.parts}
        if len(kinds) > 1:
            # Only one of the kinds can be an encoder of sentence vectors, so at least one part
            # trains another kind.
            odd = next(part.objective for part in self.parts if not part.facts.trains_vectors())
            raise ValueError(
                f"{odd} trains another kind of model than the other objectives; train them apart"
            )

    @property
    def objective_class(self) -> type[Objective]:
        """The class of the objective, which holds all facts about it. With several parts it is the first part's."""
        return self.parts[0].facts

    @property
    def length(self) -> str:
        """The length of a run in words: "300 steps", "1 epoch"."""
        if self.max_steps:
            return f"{self.max_steps:,} steps"
        if self.epochs == 1:
            return "1 epoch"
        return f"{self.epochs:g} epochs"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the training data. Joined data is one part, unless one of its sets names an objective."""
        data = names_of(self.train_data)
        if not any(name.objective for name in data):
            return (Part(self.train_data, self.objective),)
        parts = []
        for name in data:
            data_name = str(replace(name, objective=None))
            parts.append(Part(data_name, name.objective or self.objective))
        return tuple(parts)

    def steps_of_parts(self, batches: Sequence[int]) -> list[int]:
        """Returns the batches of each part in an epoch: all, or as many as the smallest part has if they take turns."""
        if self.mix == ROUND_ROBIN:
            return [min(batches)] * len(batches)
        return list(batches)

    def role(self, column: int) -> str | None:
        """Returns the role of a column, query or document, which decides its prompt. None if the base decides it."""
        if self.query_prompt is None and self.document_prompt is None:
            return None
        return "query" if column == 0 else "document"

    def total_steps(self, batches: int) -> int:
        """Returns the optimiser steps of a run, from the number of batches in an epoch."""
        if self.max_steps:
            return self.max_steps
        return max(1, math.ceil(self.epochs * batches / self.gradient_accumulation_steps))

    def evaluate_every(self, steps: int) -> int:
        """Returns the number of steps between two evaluations in a run of ``steps`` steps."""
        if self.eval_every:
            return self.eval_every
        evaluations = max(round(steps / STEPS_PER_EVALUATION), MIN_EVALUATIONS)
        evaluations = min(evaluations, MAX_EVALUATIONS)
        return max(1, steps // evaluations)

    def replace(self, **changes: Any) -> RunConfig:
        """Returns a validated copy with some fields changed.

        Fields that were never set take their defaults anew, such as held-out dev data for your own
        training data. Values that the constructor has chosen, such as a learning rate by the base,
        stay.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return RunConfig(**values | changes)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        values = self.model_dump()
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = list(value)
        return values

    def to_json(self) -> str:
        """Returns indented JSON, which ``model_validate_json`` reads back as an equal config."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


SETTINGS = {name: describe(name, field) for name, field in RunConfig.model_fields.items()}
CHOICES = {name: setting.choices for name, setting in SETTINGS.items() if setting.choices}


def _describe(error: Mapping[str, Any]) -> str:
    """Describes a validation error in a sentence, with the field, the value and the remedy."""
    # An error of `_fits_together` has no field.
    field = str(error["loc"][0]) if error["loc"] else ""
    value = error["input"]
    # The validators of this config raise ValueError with a whole sentence.
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden":
        return f"a run has no field {field}; the fields are {', '.join(SETTINGS)}"
    facts = SETTINGS[field]
    # Only the objective has no default.
    if error["type"] == "missing":
        return f"a run needs an {field}: {', '.join(facts.choices)}"
    # A field with a range is a number.
    if facts.range:
        return f"{field} is {value!r}, but {facts.help} must be {facts.range}"
    # The only pattern is the one of `Text`, a text that is not empty.
    if error["type"] == "string_pattern_mismatch":
        return f"{field} is empty; give a name or a path"
    values = "true or false" if error["type"] == "bool_type" else "text"
    return f"{field} is {value!r}, but must be {values}"
