"""The hook of mkdocs.yml: makes pages of README, its neighbours and the lessons, and rewrites links between them.

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
# The pages of files outside of docs/.
BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
}
LESSONS = ROOT / "assets/lessons"
LINK = re.compile(r"(\]\()([^)\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds files outside of docs/: the README and its neighbours, and the pictures and files that pages link to."""
    pages = {ROOT / name: page for name, page in BESIDE.items()}
    for source, page in pages.items():
        files.append(File.generated(config, page, abs_src_path=str(source)))
    hidden = InclusionLevel.NOT_IN_NAV
    for lesson in LESSONS.glob("*.json"):
        text = lesson_page(json.loads(lesson.read_text(encoding="utf-8")))
        page = f"lessons/{lesson.stem}.md"
        files.append(File.generated(config, page, content=text, inclusion=hidden))
    targets: set[Path] = set()
    for source in (*pages, *DOCS.glob("*.md")):
        targets.update(_link_targets(source))
    for target in sorted(targets - pages.keys()):
        is_page = DOCS in target.parents or LESSONS in target.parents
        if not is_page:
            place = target.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(target), inclusion=hidden))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites a page's relative links from the layout of the repository to the layout of the site."""
    if not page.file.abs_src_path:
        # A lesson, which links to nothing.
        return markdown
    source_folder = Path(page.file.abs_src_path).parent
    page_folder = posixpath.dirname(page.file.src_uri)
    return LINK.sub(
        lambda match: match[1] + _link_on_site(match[2], source_folder, page_folder), markdown
    )


def lesson_page(lesson: dict[str, Any]) -> str:
    """A lesson as Markdown, as the page Learn shows it, without the demo, which needs the app."""
    rows = []
    for label, value in lesson["paper"]:
        # A bar would end the cell.
        cell = label.replace("|", "&#124;")
        rows.append(f"| {cell} | {value} |")
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


def _link_targets(source: Path) -> Iterator[Path]:
    """The files that a page links to."""
    for _, link in LINK.findall(source.read_text(encoding="utf-8")):
        path = link.partition("#")[0]
        if path and "://" not in link:
            yield (source.parent / path).resolve()


def _link_on_site(link: str, source_folder: Path, page_folder: str) -> str:
    """A link of a page as it is on the site.

    Args:
        source_folder: the folder of the page's source, to which the link is relative.
        page_folder: the folder of the page on the site; "" for the root.
    """
    path, sign, anchor = link.partition("#")
    if "://" in link or not path:
        return link
    file = (source_folder / path).resolve()
    if file.parent == LESSONS:
        target = f"lessons/{file.stem}.md"
    else:
        name = file.relative_to(ROOT).as_posix()
        target = BESIDE.get(name, name.removeprefix("docs/"))
    return posixpath.relpath(target, page_folder or ".") + sign + anchor
