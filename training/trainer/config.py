"""RunConfig: everything that determines a run, as one frozen pydantic model.

A config is validated when it is made; a mistake is one `InputError` that names the field, the value and what would do.
It travels as JSON (``config.json`` in the run's folder, the job queue, the HTTP API) and comes back equal. Together
with the data, the versions of the libraries and the number of cores (each gets a micro-batch with its own dropout) it
determines the whole curve: in float32 on a CPU, bit for bit. The defaults are the paper's (section 3.1): batches of
16, Adam, learning rate 2e-5, linear warm-up over 10% of the steps. Networks over word vectors have a learning rate of
their own (`default_learning_rate`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from training.errors import InputError
from training.registry import DEFAULT_MODEL, WORD_ENCODERS

# Defaults for how often a run is evaluated. An evaluation costs as much as 20 steps, and a curve needs its points.
STEPS_PER_EVALUATION = 100
MIN_EVALUATIONS, MAX_EVALUATIONS = 4, 20  # besides that of the base

LEARNING_RATE = 2e-5
WORD_ENCODER_LEARNING_RATE = 1e-3  # Adam's own default: 2e-5 moves random weights of an LSTM nowhere in an epoch


def default_learning_rate(base: str) -> float:
    """The learning rate of a run from ``base`` that states none."""
    return WORD_ENCODER_LEARNING_RATE if base.partition("?")[0].strip() in WORD_ENCODERS else LEARNING_RATE


def _whole_number(value: Any) -> Any:
    """JSON from a browser has no integers: 8.0 is 8."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _listed(value: Any) -> Any:
    """A list, as JSON has it, or a text with commas -> a tuple of what it holds."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _dimensions(value: Any) -> Any:
    """Dimensions, largest first, without repetition."""
    value = () if value is None else _listed(value)
    numbers = [_whole_number(float(each) if isinstance(each, str) and each.isdigit() else each) for each in value]
    if not all(type(number) is int and 1 <= number <= 65_536 for number in numbers):
        raise ValueError(f"matryoshka_dims is {value!r}, but must be whole numbers from 1, such as 256,128,64")
    return tuple(sorted(set(numbers), reverse=True))


def _reporters(value: Any) -> Any:
    """Names of experiment trackers, without repetition."""
    names = tuple(dict.fromkeys(() if value is None else _listed(value)))
    for name in names:
        if name not in REPORTERS:
            raise ValueError(f"report_to {name!r} is unknown; choose {', '.join(REPORTERS)}, or several with commas")
    return names


REPORTERS = ("tensorboard", "trackio")  # where events can be written besides events.jsonl
NEEDS_TEACHER = ("mse", "margin-mse")
USES_NEGATIVES = ("triplet", "mnrl", "margin-mse")  # for which hard negatives can be mined
USES_BATCH = ("mnrl", "simcse")  # whose negatives are the other rows of a batch

Whole = Annotated[int, BeforeValidator(_whole_number)]


class RunConfig(BaseModel):
    """The settings of one run. Raises InputError for a field that is unknown or has a value that cannot be used.

    ``train_data`` and ``eval_data`` are names for `training.data.load.load_data`; the form that the objective needs is
    derived from them. ``eval_data`` None evaluates on random pairs of the training data alone. ``pooling`` None is
    the base's own. ``learning_rate``, if not given, is the base's `default_learning_rate`. ``max_steps``, if given, is
    the number of optimiser steps, in place of ``epochs``. ``eval_every`` None evaluates about every 100 steps, but 4 to
    20 times a run.

    ``teacher`` is the model that mse and margin-mse learn from: a bi-encoder or a cross-encoder. ``matryoshka_dims``
    trains the first so many dimensions too, beside all of them. ``mini_batch_size`` computes so many rows of a batch
    at a time, in the memory of as many (gradient caching); the gradient is the whole batch's. ``mine_negatives``
    takes as the negative of each pair the nearest sentence by the base that is less similar to the anchor than
    (1 - ``negative_margin``) times the positive; a nearer one may be a positive that nobody has labelled.
    ``report_to`` names experiment trackers that get the run's figures too.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    objective: Literal[
        "classification",
        "regression",
        "cosent",
        "angle",
        "contrastive",
        "triplet",
        "mnrl",
        "simcse",
        "mse",
        "margin-mse",
    ]
    train_data: str = Field("stsb:train", pattern=r"\S")
    eval_data: str | None = "stsb:dev"
    base: str = Field(DEFAULT_MODEL, pattern=r"\S")
    pooling: Literal["mean", "max", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"] | None = None
    concatenation: Literal["uv", "diff", "mul", "diff+mul", "uv+mul", "uv+diff", "uv+diff+mul"] = "uv+diff"
    epochs: float = Field(1, gt=0, le=1_000, description="passes over the training data")
    max_steps: Whole | None = Field(None, ge=1, le=10_000_000, description="optimiser steps")
    batch_size: Whole = Field(16, ge=1, le=65_536, description="rows per step")
    learning_rate: float = Field(LEARNING_RATE, gt=0, le=1, description="the peak learning rate of Adam")
    warmup: float = Field(0.1, ge=0, le=1, description="the fraction of the steps that warms up")
    weight_decay: float = Field(0.0, ge=0, le=1, description="decoupled weight decay")
    max_grad_norm: float = Field(1.0, gt=0, description="the norm that gradients are clipped to")
    seed: Whole = Field(0, ge=0, le=2**32 - 1, description="the seed of everything random")
    eval_every: Whole | None = Field(None, ge=1, le=10_000_000, description="steps between two evaluations")
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_length: Whole | None = Field(None, ge=4, le=8_192, description="tokens per sentence")
    triplet_metric: Literal["euclidean", "cosine", "manhattan"] = "euclidean"
    triplet_margin: float = Field(1.0, gt=0, le=1_000, description="the margin ε")
    mnrl_scale: float = Field(20.0, gt=0, le=1_000, description="the factor on the cosine")
    mnrl_symmetric: bool = False
    cosent_scale: float = Field(20.0, gt=0, le=1_000, description="the factor on the similarity")
    contrastive_margin: float = Field(0.5, gt=0, le=2, description="the margin, as 1 - cosine,")
    teacher: str | None = Field(None, pattern=r"\S")
    margin_similarity: Literal["dot", "cosine"] = "dot"
    matryoshka_dims: Annotated[tuple[int, ...], BeforeValidator(_dimensions)] = ()
    mini_batch_size: Whole | None = Field(None, ge=1, le=65_536, description="rows that are computed at a time")
    mine_negatives: bool = False
    negative_margin: float = Field(
        0.05, ge=0, lt=1, description="the fraction by which a mined negative is less similar than the positive"
    )
    report_to: Annotated[tuple[str, ...], BeforeValidator(_reporters)] = ()
    lora_rank: Whole = Field(0, ge=0, le=512, description="the rank of LoRA, 0 for full fine-tuning")
    name: str = ""

    def __init__(self, objective: str | None = None, /, **values: Any) -> None:
        if objective is not None:
            values["objective"] = objective
        if "learning_rate" not in values and isinstance(values.get("base"), str):
            values["learning_rate"] = default_learning_rate(values["base"])
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_describe(error.errors()[0])) from None

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        objective = self.objective
        if objective in USES_BATCH and self.batch_size < 2:
            raise ValueError(f"batch_size must be at least 2 for {objective}: its negatives are the batch's other rows")
        if objective in NEEDS_TEACHER and self.teacher is None:
            raise ValueError(
                f"{objective} needs a teacher to learn from: name a cross-encoder such as minilm-stsb, or a bi-encoder"
            )
        if objective not in NEEDS_TEACHER and self.teacher is not None:
            raise ValueError(f"{objective} has no teacher; leave it out, or choose {' or '.join(NEEDS_TEACHER)}")
        if self.mine_negatives and objective not in USES_NEGATIVES:
            raise ValueError(f"mine_negatives is for {', '.join(USES_NEGATIVES)}; {objective} takes no negatives")
        return self

    def evaluate_every(self, steps: int) -> int:
        """The number of steps between two evaluations in a run of ``steps`` steps."""
        evaluations = min(max(round(steps / STEPS_PER_EVALUATION), MIN_EVALUATIONS), MAX_EVALUATIONS)
        return self.eval_every or max(1, steps // evaluations)

    def replace(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed, validated."""
        return RunConfig(**{**dict(self), **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> RunConfig:
        """As in pydantic, but the update is validated. All fields are immutable, so ``deep`` makes no difference."""
        return self.replace(**(update or {}))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.model_dump().items()}

    def to_json(self) -> str:
        """Indented JSON, which `from_json` reads back to an equal config."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """A config of the fields given. Raises InputError as the constructor does."""
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Read what `to_json` wrote. Raises InputError if the text is not the JSON of a config."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"the run's config is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InputError("the run's config is not a JSON object")
        return cls.from_dict(values)


class Range(NamedTuple):
    """The numbers that a field can have."""

    low: float
    high: float  # infinity if there is no limit
    includes_low: bool
    is_whole: bool
    description: str  # what the field is
    includes_high: bool = True

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        low = f"{'from' if self.includes_low else 'above'} {self.low}"
        high = f" {'to' if self.includes_high else 'and below'} {self.high}" if math.isfinite(self.high) else ""
        return f"{kind} {low}{high}"


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal, with None first if it is optional; empty for other types."""
    is_optional = type(None) in get_args(annotation)
    literal = get_args(annotation)[0] if is_optional else annotation
    return (None,) * is_optional + get_args(literal) if get_origin(literal) is Literal else ()


def _range(field: FieldInfo) -> Range:
    bounds = {
        name: getattr(each, name) for each in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(each, name)
    }
    is_whole = int in (field.annotation, *get_args(field.annotation)) or Whole in get_args(field.annotation)
    low = bounds["ge"] if "ge" in bounds else bounds["gt"]
    high = bounds.get("le", bounds.get("lt", math.inf))
    return Range(low, high, "ge" in bounds, is_whole, field.description or "", "lt" not in bounds)


_FIELDS = RunConfig.model_fields
CHOICES = {name: choices for name, field in _FIELDS.items() if (choices := _choices(field.annotation))}
RANGES = {name: _range(field) for name, field in _FIELDS.items() if field.description}
OPTIONAL = frozenset(name for name in RANGES if type(None) in get_args(_FIELDS[name].annotation))


def _describe(error: Mapping[str, Any]) -> str:
    """One sentence on a validation error: the field, the value, what would do."""
    field, value = (str(error["loc"][0]) if error["loc"] else ""), error["input"]
    if error["type"] == "value_error":  # raised by a validator above
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden":
        return f"a run has no field {field}; the fields are {', '.join(_FIELDS)}"
    if error["type"] == "missing":
        return f"a run needs an {field}: {', '.join(CHOICES[field])}"
    if field in CHOICES:
        return f"{field} {value!r} is unknown; choose {', '.join(choice for choice in CHOICES[field] if choice)}"
    if field in RANGES:
        return f"{field} is {value!r}, but {RANGES[field].description} must be {RANGES[field]}"
    if error["type"] == "string_pattern_mismatch":
        return f"{field} is empty; give a name or a path"
    return f"{field} is {value!r}, but must be {'true or false' if error['type'] == 'bool_type' else 'text'}"
