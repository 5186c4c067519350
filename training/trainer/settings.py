"""The settings of a run: their types, and the facts of which form, command, endpoint and docs/train.md are made."""

import math
from collections.abc import Collection
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np
from pydantic import BeforeValidator, Field, StringConstraints
from pydantic.fields import FieldInfo

from training.objectives.base import names


def whole_number(value: Any) -> Any:
    """A whole number as an int: JSON from a browser has no integers, so that 8.0 is 8, and NumPy has its own."""
    return int(value) if isinstance(value, float | np.integer) and value.is_integer() else value


def listed(value: Any) -> Any:
    """A tuple of a list, as JSON has it, or of a text with commas; empty for None."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value or ()) if isinstance(value, list | tuple | None) else (value,)


def joined(value: Any) -> Any:
    """A list of names of data as one text."""
    is_list = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
    return "+".join(value) if is_list else value


def dimensions(value: Any) -> Any:
    """Dimensions, largest first, without repetition."""
    items = (float(item) if isinstance(item, str) and item.isdigit() else item for item in listed(value))
    numbers = list(map(whole_number, items))
    if not all(type(number) is int and 1 <= number <= 65_536 for number in numbers):
        raise ValueError(f"matryoshka_dims is {value!r}, but must be whole numbers from 1, such as 256,128,64")
    return tuple(sorted(set(numbers), reverse=True))


def reporters(value: Any) -> Any:
    """Names of experiment trackers, without repetition."""
    for name in (trackers := listed(value)):
        if name not in REPORTERS:
            raise ValueError(f"report_to {name!r} is unknown; choose {', '.join(REPORTERS)}, or several with commas")
    return tuple(dict.fromkeys(trackers))


# The experiment trackers that figures can be written to.
REPORTERS = ("tensorboard", "trackio")

Whole = Annotated[int, BeforeValidator(whole_number)]
OptionalText = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]
OptionalData = Annotated[str | None, BeforeValidator(lambda value: None if value in ("", "none") else value)]
# A text that is not empty.
Text = Annotated[str, StringConstraints(pattern=r"\S")]
JoinedData = Annotated[Text, BeforeValidator(joined)]
Dimensions = Annotated[tuple[int, ...], BeforeValidator(dimensions)]
Reporters = Annotated[tuple[str, ...], BeforeValidator(reporters)]


class Range(NamedTuple):
    """The numbers that a field can have."""

    low: float
    # Infinity if there is no limit.
    high: float
    includes_low: bool
    is_whole: bool
    includes_high: bool = True

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        low = f"{'from' if self.includes_low else 'above'} {self.low}"
        high = f" {'to' if self.includes_high else 'and below'} {self.high}" if math.isfinite(self.high) else ""
        return f"{kind} {low}{high}"


class Setting(NamedTuple):
    """The facts of a field of `RunConfig`."""

    name: str
    label: str
    help: str
    # bool, int, float or str; str too for several words with commas.
    type: type
    default: Any
    # The default in words; empty if there is none, and for a flag.
    words: str
    option: str
    metavar: str | None
    # Joins several values into one text; empty if there is only one value.
    joint: str
    # The values that it can have besides None; empty if any will do.
    allowed: Collection[str]
    range: Range | None
    is_optional: bool

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values that it can have, with None first if it is optional; empty if any will do."""
        return (None, *self.allowed) if self.is_optional and self.allowed else tuple(self.allowed)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives that the field is for; empty if it is for all."""
        return names(lambda objective: self.name in objective.own_fields())

    def sentence(self) -> str:
        """The help as a sentence, which begins with the objectives that the field is for, unless these are all."""
        *others, last = self.objectives or ("",)
        text = f"for {', '.join(others)}{' and ' if others else ''}{last}: {self.help}" if last else self.help
        return text[:1].upper() + text[1:].rstrip(",")


def setting(default: Any, label: str, help: str, **facts: Any) -> Any:
    """A field of `RunConfig` with its facts.

    ``default`` is ``...`` if there is none, ``label`` the name in a form, ``help`` a noun phrase such as "passes over
    the training data". ``facts`` are the bounds of a number (gt, ge, lt, le); and words, option, metavar, choices,
    joint as in `Setting`.
    """
    bounds = {name: facts[name] for name in ("gt", "ge", "lt", "le") if name in facts}
    return Field(default, title=label, description=help, json_schema_extra=facts, **bounds)


def describe(name: str, field: FieldInfo) -> Setting:
    """The facts of a field that `setting` made."""
    facts: Any = field.json_schema_extra
    arguments = get_args(field.annotation)
    is_optional = type(None) in arguments
    annotation: Any = arguments[0] if is_optional else field.annotation
    kind = {bool: bool, int: int, Whole: int, float: float}.get(annotation, str)
    low = facts.get("ge", facts.get("gt"))
    high = facts.get("le", facts.get("lt", math.inf))
    words = facts.get("words", "")
    if not words and isinstance(field.default, int | float | str) and not isinstance(field.default, bool):
        words = field.default if isinstance(field.default, str) else f"{field.default:g}"
    return Setting(
        name=name,
        label=field.title or name,
        help=field.description or "",
        type=kind,
        default=field.default,
        words=words,
        option=facts.get("option", f"--{name.replace('_', '-')}"),
        metavar=facts.get("metavar"),
        joint=facts.get("joint", ""),
        allowed=facts.get("choices", ()),
        range=None if low is None else Range(low, high, "ge" in facts, kind is int, "lt" not in facts),
        is_optional=is_optional,
    )
