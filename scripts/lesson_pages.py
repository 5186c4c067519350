"""docs/lessons.md: the texts of the lessons, to be read without the app.

python -m scripts.lesson_pages     writes it; tests/test_docs.py compares
"""

from pathlib import Path

from sbert_app.pages.learn.lesson import Lesson, chapters

PAGE = Path(__file__).parents[1] / "docs" / "lessons.md"
INTRODUCTION = """# The lessons

The texts of the lessons on [Learn](learn.md), by `python -m scripts.lesson_pages`. In the app each of them has a
control to move and a figure that is measured while you read; the links open it there.
"""


def lesson_page(lesson: Lesson) -> str:
    # A bar would end the cell.
    cells = [(name.replace("|", "\\|"), value) for name, value in lesson.paper]
    rows = [f"| {name} | {value} |" for name, value in cells]
    parts = [
        f"### {lesson.number}. {lesson.title}",
        f"*{lesson.idea}*",
        *lesson.text,
        f"**Try it** [in a running app](http://127.0.0.1:7860/learn?lesson={lesson.number}). {lesson.try_it}",
        "\n".join([f"| {lesson.section} | |", "|---|---|", *rows]),
        lesson.paper_note,
        f"**A question.** {lesson.question}",
        f"<details><summary>The answer</summary>{lesson.answer}</details>",
    ]
    return "\n\n".join(parts)


def lesson_pages() -> str:
    """The text of docs/lessons.md."""
    parts = [INTRODUCTION.strip()]
    for chapter, lessons in chapters().items():
        parts.append(f"## {chapter}")
        parts += map(lesson_page, lessons)
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(lesson_pages(), encoding="utf-8")
