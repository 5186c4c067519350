"""What the lessons measure with: model, data and seed. A teacher fixes them for a class in a link.

    /learn?class=NLP+101&model=all-mpnet-base-v2&data=sickr&seed=7&lessons=4,8,9

Everything is in the link: nothing is stored, and it means the same on every machine. Without it the lessons use the
default model and STSb dev.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from sbert_app.services.access import AccessPolicy
from sbert_app.services.lessons.text import lessons
from training.errors import InputError
from training.registry import DEFAULT_MODEL

DEFAULT_DATA = "stsb:dev"
LONGEST_TITLE = 80
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Setup:
    """``seed`` 0 takes pairs at equal distances from the data; any other draws them at random."""

    model: str = DEFAULT_MODEL
    data: str = DEFAULT_DATA
    seed: int = 0


STANDARD = Setup()


@dataclass(frozen=True)
class SchoolClass:
    """A setup with a title and the lessons that are shown; none named: all."""

    title: str = ""
    setup: Setup = STANDARD
    chosen: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The lessons that are shown, in order."""
        return self.chosen or tuple(lesson.number for lesson in lessons())

    @property
    def query(self) -> str:
        """What follows ? in its link; "" for no class."""
        if not self.title:
            return ""
        values = {"class": self.title, "model": self.setup.model, "data": self.setup.data, "seed": self.setup.seed}
        numbers = {"lessons": ",".join(map(str, self.chosen))} if self.chosen else {}
        return urlencode({**values, **numbers}, safe=":,/")


def read_class(values: Mapping[str, str], access: AccessPolicy) -> SchoolClass:
    """The class of a link's parameters; without ``class`` among them, no class: the lessons as they are.

    Raises:
        InputError: a value cannot be used; the message names it.
    """
    title = " ".join(values.get("class", "").split())
    if not title:
        return SchoolClass()
    if len(title) > LONGEST_TITLE:
        raise InputError(f"the title of a class has at most {LONGEST_TITLE} characters")
    seed = values.get("seed", "").strip() or "0"
    if not (seed.isascii() and seed.isdecimal()) or int(seed) > LARGEST_SEED:
        raise InputError(f"seed is {seed[:40]!r}, but must be a whole number from 0 to {LARGEST_SEED:,}")
    model = access.check_model(values.get("model", "").strip() or DEFAULT_MODEL)
    data = access.check_data(values.get("data", "").strip() or DEFAULT_DATA)
    return SchoolClass(title, Setup(model, data, int(seed)), _numbers(values.get("lessons", "")))


def _numbers(text: str) -> tuple[int, ...]:
    """Lesson numbers from "4,8,9", in order, without repetition."""
    known = {str(lesson.number) for lesson in lessons()}
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for part in asked:
        if part not in known:
            raise InputError(f"there is no lesson {part[:40]!r}; they are numbered from 1 to {len(known)}")
    return tuple(sorted({int(part) for part in asked}))
