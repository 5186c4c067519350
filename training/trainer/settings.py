"""The settings of a run: their types, and the facts that form, command, endpoint and docs/train.md show."""

import math
from collections.abc import Collection
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np
from pydantic import BeforeValidator, Field, StringConstraints
from pydantic.fields import FieldInfo

from training.objectives.base import names


def whole_number(value: Any) -> Any:
    """Converts a whole number to int. A browser's JSON sends 8 as 8.0, and NumPy's integers are not int."""
    is_whole = isinstance(value, float | np.integer) and value.is_integer()
    return int(value) if is_whole else value


def listed(value: Any) -> Any:
    """Converts a list, or a text with commas, to a tuple. None becomes an empty tuple."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value,)


def joined(value: Any) -> Any:
    """Joins a list of names of data into one text."""
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return "+".join(value)
    return value


def dimensions(value: Any) -> Any:
    """Converts dimensions to a tuple, largest first, without repetition."""
    numbers = set[int]()
    for item in listed(value):
        # What is not a whole number stays as it is.
        number = whole_number(item)
        if isinstance(item, str) and item.isdigit():
            number = int(item)
        # bool is a subclass of int.
        if type(number) is not int or not 1 <= number <= 65_536:
            raise ValueError(
                f"matryoshka_dims is {value!r}, but must be whole numbers from 1, such as 256,128,64"
            )
        numbers.add(number)
    return tuple(sorted(numbers, reverse=True))


def reporters(value: Any) -> Any:
    """Converts names of experiment trackers to a tuple, without repetition."""
    trackers = listed(value)
    for name in trackers:
        if name not in REPORTERS:
            raise ValueError(
                f"report_to {name!r} is unknown; choose {', '.join(REPORTERS)}, or several with commas"
            )
    return tuple(dict.fromkeys(trackers))


# The experiment trackers that figures can be written to.
REPORTERS = ("tensorboard", "trackio")

Whole = Annotated[int, BeforeValidator(whole_number)]
OptionalText = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]
OptionalData = Annotated[
    str | None, BeforeValidator(lambda value: None if value in ("", "none") else value)
]
# A text that is not empty.
Text = Annotated[str, StringConstraints(pattern=r"\S")]
JoinedData = Annotated[Text, BeforeValidator(joined)]
Dimensions = Annotated[tuple[int, ...], BeforeValidator(dimensions)]
Reporters = Annotated[tuple[str, ...], BeforeValidator(reporters)]


class Range(NamedTuple):
    """The numbers that a field can have."""

    low: float
    high: float  # infinity for no limit
    includes_low: bool
    is_whole: bool
    includes_high: bool = True

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        lower = "from" if self.includes_low else "above"
        text = f"{kind} {lower} {self.low}"
        if math.isfinite(self.high):
            upper = "to" if self.includes_high else "and below"
            text += f" {upper} {self.high}"
        return text


class Setting(NamedTuple):
    """The facts about a field of `RunConfig`."""

    name: str
    label: str
    help: str
    # bool, int, float or str; also str for several words with commas.
    type: type
    default: Any
    # The default in words; empty for a flag and for a setting without a default.
    words: str
    option: str
    metavar: str | None
    # The separator of several values in one text; empty if there is only one value.
    joint: str
    # The allowed values besides None; empty if all are allowed.
    allowed: Collection[str]
    range: Range | None
    is_optional: bool

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values, with None first if the field is optional; empty if all are allowed."""
        if self.is_optional and self.allowed:
            return (None, *self.allowed)
        return tuple(self.allowed)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives that use the field; empty if all of them do."""
        return names(lambda objective: self.name in objective.own_fields())

    def sentence(self) -> str:
        """Returns the help as a sentence. It begins with the objectives that use the field, unless all of them do."""
        text = self.help
        if self.objectives:
            *others, last = self.objectives
            users = f"{', '.join(others)} and {last}" if others else last
            text = f"for {users}: {text}"
        # Some helps end with a comma, because the error for a number out of range continues them.
        return text[:1].upper() + text[1:].rstrip(",")


def setting(default: Any, label: str, help: str, **facts: Any) -> Any:
    """Makes a field of `RunConfig` with its facts.

    Args:
        default: ``...`` for a field without default.
        label: the name in a form.
        help: a noun phrase such as "passes over the training data".
        facts: the bounds of a number (gt, ge, lt, le); and words, option, metavar, choices, joint
            as in `Setting`.
    """
    bounds = {name: facts[name] for name in ("gt", "ge", "lt", "le") if name in facts}
    return Field(default, title=label, description=help, json_schema_extra=facts, **bounds)


def describe(name: str, field: FieldInfo) -> Setting:
    """Reads the facts of a field that `setting` has made."""
    facts: Any = field.json_schema_extra
    arguments = get_args(field.annotation)
    is_optional = type(None) in arguments
    annotation: Any = arguments[0] if is_optional else field.annotation
    # Pydantic itself unwraps the annotation of ``Whole``, but not the one inside ``Whole | None``.
    kind = {bool: bool, int: int, Whole: int, float: float}.get(annotation, str)
    low = facts.get("ge", facts.get("gt"))
    high = facts.get("le", facts.get("lt", math.inf))
    # The default in words.
    words = facts.get("words", "")
    if not words and isinstance(field.default, str):
        words = field.default
    elif not words and kind in (int, float) and field.default is not None:
        words = f"{field.default:g}"
    # Every number has a lower bound, and no other field has one.
    limits = None
    if low is not None:
        limits = Range(
            low,
            high,
            includes_low="ge" in facts,
            is_whole=kind is int,
            includes_high="lt" not in facts,
        )
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
        range=limits,
        is_optional=is_optional,
    )
