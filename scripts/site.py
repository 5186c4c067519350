"""The hook of mkdocs.yml: README, its neighbours and the lessons become pages, and links lead to their places there.

make docs     builds the site into .cache/site, and fails at a broken link
"""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BESIDE = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
LESSONS = ROOT / "assets/lessons"
LINK = re.compile(r"(\]\()([^)\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add what lies outside of docs/: the pages beside the README, and the pictures and files that pages link to."""
    pages = {ROOT / name: page for name, page in BESIDE.items()}
    for source, place in pages.items():
        files.append(File.generated(config, place, abs_src_path=str(source)))
    for lesson in LESSONS.glob("*.json"):
        content, inclusion = (
            lesson_page(json.loads(lesson.read_text(encoding="utf-8"))),
            InclusionLevel.NOT_IN_NAV,
        )
        files.append(
            File.generated(
                config, f"lessons/{lesson.stem}.md", content=content, inclusion=inclusion
            )
        )
    linked = {target for text in (*pages, *DOCS.glob("*.md")) for target in _linked(text)}
    for target in sorted(linked - pages.keys()):
        if not {DOCS, LESSONS} & {*target.parents}:
            place, inclusion = target.relative_to(ROOT).as_posix(), InclusionLevel.NOT_IN_NAV
            files.append(
                File.generated(config, place, abs_src_path=str(target), inclusion=inclusion)
            )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite a page's relative links from the layout of the repository to that of the site."""
    if not page.file.abs_src_path:
        # A lesson, which links to nothing.
        return markdown
    folder, place = Path(page.file.abs_src_path).parent, posixpath.dirname(page.file.src_uri)
    return LINK.sub(lambda match: match[1] + _on_the_site(match[2], folder, place), markdown)


def lesson_page(lesson: dict[str, Any]) -> str:
    """A lesson as Markdown: what the page Learn shows of it, without the demo, which needs the app."""
    # A bar would end the cell.
    cells = [(label.replace("|", "&#124;"), value) for label, value in lesson["paper"]]
    rows = [f"| {label} | {value} |" for label, value in cells]
    return "\n\n".join(
        [
            f"# {lesson['number']} {lesson['title']}",
            f"**{lesson['idea']}**",
            *lesson["text"],
            f"**Try it** in the app, on the page Learn. {lesson['try_it']}",
            "\n".join(["| Published | |", "|---|---|", *rows]),
            lesson["paper_note"],
            f"**Question.** {lesson['question']}",
            f"<details><summary>Answer</summary>{lesson['answer']}</details>",
            f"*{lesson['section']}*",
        ]
    )


def _linked(text: Path) -> Iterator[Path]:
    links = (
        link.partition("#")[0]
        for _, link in LINK.findall(text.read_text(encoding="utf-8"))
        if "://" not in link
    )
    return ((text.parent / link).resolve() for link in links if link)


def _on_the_site(link: str, folder: Path, place: str) -> str:
    path, sign, anchor = link.partition("#")
    if "://" in link or not path:
        return link
    file = (folder / path).resolve()
    target = file.relative_to(ROOT).as_posix()
    there = (
        f"lessons/{file.stem}.md"
        if file.parent == LESSONS
        else BESIDE.get(target, target.removeprefix("docs/"))
    )
    return posixpath.relpath(there, place or ".") + sign + anchor
