"""What a lesson says: prose, the paper's figures, a question and its answer, and the page that it opens.

The prose is ours and ships in ``assets/lessons/<number>.json``, with a little HTML (b, i, code) in it. It holds
figures of the paper alone; what is measured is measured when the lesson is open.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from training.assets import asset

FOLDER = asset("lessons")


@dataclass(frozen=True)
class Lesson:
    """One idea, five minutes."""

    number: int
    key: str  # of the bench that measures it
    short: str  # on its button
    title: str
    idea: str  # in one sentence
    text: tuple[str, ...]  # paragraphs
    try_it: str
    section: str  # of the paper
    paper: tuple[tuple[str, str], ...]  # what, and the paper's figure
    paper_note: str
    question: str
    answer: str
    opens: str  # the words of the link
    href: str  # the page, set up


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons, in their order."""
    read = (json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.json"))
    made = (Lesson(**{**of, "text": tuple(of["text"]), "paper": tuple(map(tuple, of["paper"]))}) for of in read)
    return tuple(sorted(made, key=lambda lesson: lesson.number))


def lesson_number(asked: str | None) -> int:
    """The lesson that a link asks for; the first for anything that is none."""
    known = {str(lesson.number) for lesson in lessons()}
    return int(asked) if asked in known else 1
