"""RunConfig: everything that decides a run, in one frozen dataclass.

It is checked once, when it is made; a mistake is one `InputError` that names the field, the value and what would
do. It travels as JSON (``config.json`` in the run's folder, the queue, the HTTP API) and comes back equal.
Together with the data, the versions of the libraries and the number of cores (a batch is cut into a share for each,
with its own dropout) it determines the whole curve: on a CPU in float32, bit for bit. The defaults are the paper's
(section 3.1): batch 16, Adam, learning rate 2e-5, linear warm-up over 10%.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from training.errors import InputError
from training.registry import DEFAULT_MODEL

# Where the config does not say how often: an evaluation costs as much as 20 steps, and a curve needs its points.
STEPS_APART = 100
FEWEST_EVALUATIONS, MOST_EVALUATIONS = 4, 20  # besides that of the base

CHOICES: dict[str, tuple[Any, ...]] = {
    "objective": ("classification", "regression", "triplet", "mnrl"),
    "pooling": (None, "mean", "max", "cls"),
    "concatenation": ("uv", "diff", "mul", "diff+mul", "uv+mul", "uv+diff", "uv+diff+mul"),
    "dtype": ("auto", "float32", "bfloat16"),
    "triplet_metric": ("euclidean", "cosine", "manhattan"),
}

# field: (lowest, highest, is the lowest itself allowed, what the field is)
RANGES: dict[str, tuple[float, float, bool, str]] = {
    "epochs": (0, 1_000, False, "passes over the training data"),
    "max_steps": (1, 10_000_000, True, "optimiser steps"),
    "batch_size": (1, 65_536, True, "rows a step"),
    "learning_rate": (0, 1, False, "the highest rate of Adam"),
    "warmup": (0, 1, True, "the share of the steps that warms up"),
    "weight_decay": (0, 1, True, "decoupled weight decay"),
    "max_grad_norm": (0, math.inf, False, "the norm that gradients are clipped to"),
    "seed": (0, 2**32 - 1, True, "the seed of everything random"),
    "eval_every": (1, 10_000_000, True, "steps between two evaluations"),
    "max_length": (4, 8_192, True, "tokens a sentence"),
    "triplet_margin": (0, 1_000, False, "the margin ε"),
    "mnrl_scale": (0, 1_000, False, "the factor on the cosine"),
    "lora_rank": (0, 512, True, "the rank of LoRA, 0 for full fine-tuning"),
}


@dataclass(frozen=True)
class RunConfig:
    """One run. Raises InputError when a field is out of range.

    ``pooling`` None takes the base's own. ``max_steps`` ends the run before ``epochs`` does, or extends it: it
    is the number of optimiser steps, whatever the data. ``eval_every`` None evaluates about every 100 steps, but
    4 to 20 times a run.
    ``eval_data`` None measures only the random pairs. ``train_data`` and ``eval_data`` are names for
    `training.data.load.load_data`, which derives the form that the objective needs.
    """

    objective: str
    train_data: str = "stsb:train"
    eval_data: str | None = "stsb:dev"
    base: str = DEFAULT_MODEL
    pooling: str | None = None
    concatenation: str = "uv+diff"
    epochs: float = 1
    max_steps: int | None = None
    batch_size: int = 16
    learning_rate: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    seed: int = 0
    eval_every: int | None = None
    dtype: str = "auto"
    max_length: int | None = None
    triplet_metric: str = "euclidean"
    triplet_margin: float = 1.0
    mnrl_scale: float = 20.0
    mnrl_symmetric: bool = False
    lora_rank: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for field, choices in CHOICES.items():
            if getattr(self, field) not in choices:
                known = ", ".join(str(choice) for choice in choices if choice is not None)
                raise InputError(f"{field} {getattr(self, field)!r} is unknown; choose {known}")
        for field, limits in RANGES.items():
            self._check_range(field, *limits)
        for field in ("train_data", "base"):
            if not isinstance(getattr(self, field), str) or not getattr(self, field).strip():
                raise InputError(f"{field} is empty; give a name or a path")
        if self.objective == "mnrl" and self.batch_size < 2:
            raise InputError("batch_size must be at least 2 for mnrl: its negatives are the batch's other rows")

    def _check_range(self, field: str, low: float, high: float, closed: bool, meaning: str) -> None:
        value = getattr(self, field)
        optional = field in OPTIONAL
        if value is None and optional:
            return
        whole = field in WHOLE
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if number and (not whole or float(value).is_integer()) and low <= value <= high and (closed or value > low):
            if whole and not isinstance(value, int):
                object.__setattr__(self, field, int(value))
            return
        kind = "a whole number" if whole else "a number"
        bound = f"from {low:g}" if closed else f"above {low:g}"
        upper = f" to {high:g}" if math.isfinite(high) else ""
        raise InputError(f"{field} is {value!r}, but {meaning} must be {kind} {bound}{upper}")

    def evaluate_every(self, steps: int) -> int:
        """Steps between two evaluations in a run of so many steps."""
        times = min(max(round(steps / STEPS_APART), FEWEST_EVALUATIONS), MOST_EVALUATIONS)
        return self.eval_every or max(1, steps // times)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """Indented JSON that `from_json` reads back to an equal config."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """InputError for fields that do not exist, with those that do."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise InputError(f"a run has no field {', '.join(unknown)}; the fields are {', '.join(known)}")
        if "objective" not in values:
            raise InputError(f"a run needs an objective: {', '.join(CHOICES['objective'])}")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """InputError if the text is not the JSON of a config."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"the run's config is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InputError("the run's config is not a JSON object")
        return cls.from_dict(values)


OPTIONAL = frozenset({"max_steps", "eval_every", "max_length"})
WHOLE = OPTIONAL | {"batch_size", "seed", "lora_rank"}
