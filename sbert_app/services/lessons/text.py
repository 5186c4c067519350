"""The text of a lesson: prose, values from the paper, a question with its answer, and a link to another page.

The texts ship in ``assets/lessons/<number>.json`` and contain some HTML (b, i, code). All values in them are the
paper's; measurements are made when the lesson is open.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from training.assets import asset

FOLDER = asset("lessons")


@dataclass(frozen=True)
class Lesson:
    """One idea, explained in five minutes."""

    number: int
    key: str  # of its demo
    short: str  # label of its button
    title: str
    idea: str  # in one sentence
    text: tuple[str, ...]  # paragraphs
    try_it: str
    section: str  # of the paper
    paper: tuple[tuple[str, str], ...]  # description, value
    paper_note: str
    question: str
    answer: str
    opens: str  # text of the link
    href: str  # the page, with its settings


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons in order."""
    contents = (json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.json"))
    lessons = (Lesson(**{**c, "text": tuple(c["text"]), "paper": tuple(map(tuple, c["paper"]))}) for c in contents)
    return tuple(sorted(lessons, key=lambda lesson: lesson.number))


def lesson_number(asked: str | None) -> int:
    """The lesson number in a link; 1 if there is no such lesson."""
    numbers = {str(lesson.number) for lesson in lessons()}
    return int(asked) if asked in numbers else 1
