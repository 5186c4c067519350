"""What README and docs show exists: links, commands and their options, make targets, files, imports."""

import ast
import importlib
import inspect
import re
import shlex
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from paths import ROOT

import training
from benchmarks.__main__ import BENCHMARKS
from sbert_app import __version__, cli
from sbert_app.services.store import HOME
from sbert_app.settings import Settings
from scripts import api_reference
from training.sources.endpoint import KEY

OTHERS = [ROOT / "tests/README.md", ROOT / "benchmarks/README.md", *(ROOT / ".github").glob("*.md")]
PAGES = [*sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]), *OTHERS]
FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
OURS = ("sbert_lab", "training", "sbert_app")
COMMAND = re.compile(r"(?:\.venv/bin/)?(?:sbert-lab|python -m sbert_app) +(.+)")


def each_page(function: Any) -> Any:
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))(
        function
    )


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Fenced blocks: the language and the code, without the indentation that a tab of the site gives it."""
    return [
        (language, textwrap.dedent(code)) for language, code in FENCED.findall(page.read_text())
    ]


def shell_lines(page: Path) -> list[str]:
    """Lines of a page's shell blocks, and its inline code, without comments."""
    text = page.read_text()
    lines = [
        line for language, block in blocks(page) if language == "sh" for line in block.splitlines()
    ]
    return [
        *(line.split("  #")[0] for line in lines),
        *re.findall(r"`([^`\n]+)`", FENCED.sub("", text)),
    ]


def commands(page: Path) -> list[list[str]]:
    found = (COMMAND.match(line) for line in shell_lines(page))
    return [
        words
        for match in found
        if match and (words := shlex.split(match[1])) and words[0] != "COMMAND"
    ]


@each_page
def test_every_relative_link_leads_somewhere(page: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_lesson_page_and_command_is_in_its_table():
    learn, cli_page = ((ROOT / f"docs/{name}.md").read_text() for name in ("learn", "cli"))
    for lesson in (ROOT / "assets/lessons").glob("*.json"):
        assert f"(../assets/lessons/{lesson.name})" in learn
    pages = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= pages
    for name in typer.main.get_command(cli.app).commands:  # type: ignore[attr-defined]
        assert re.search(rf"^\| `{name}\b", cli_page, re.MULTILINE), name


@each_page
def test_every_command_and_option_shown_exists(page: Path):
    for words in commands(page):
        command: Any = typer.main.get_command(cli.app)
        for word in words:
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
            elif word.startswith("--"):
                known = {option for parameter in command.params for option in parameter.opts}
                assert word.partition("=")[0] in known | {"--help"}, " ".join(words)
            else:
                assert not hasattr(command, "commands"), f"there is no command {' '.join(words)}"


@each_page
def test_every_make_target_benchmark_script_and_file_shown_exists(page: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in shell_lines(page):
        assert targets.issuperset(re.findall(r"\bmake ([a-z-]+)", line)), line
        assert set(BENCHMARKS).issuperset(re.findall(r"python -m benchmarks ([a-z-]+)", line)), line
        assert all(map(find_spec, re.findall(r"python -m ((?:scripts|benchmarks)\.\w+)", line))), (
            line
        )
    for path in re.findall(
        r"`((?:training|sbert_app|tests|scripts|benchmarks|assets)/[\w./*-]+)`", page.read_text()
    ):
        assert list(ROOT.glob(path)), path


def calls_of(code: str) -> Iterator[tuple[Any, list[str]]]:
    """Each call of ``training`` in a line of code that does not run: the function, and the names of its arguments."""
    owners = {"encoder": training.Encoder, "": training}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            owner = owner.partition("(")[0].removesuffix(".load")
            found = getattr(owners.get(owner) or getattr(training, owner), name)
            yield found, [str(keyword.arg) for keyword in node.keywords]


def test_what_stands_beside_the_calls_of_sentence_transformers_exists():
    page = (ROOT / "docs/from-sentence-transformers.md").read_text()
    table = page.partition("| sentence-transformers |")[2].partition("\n\n")[0]
    rows = [line.split(" | ")[1] for line in table.splitlines()[2:]]
    assert len(rows) >= 20
    calls = [
        call
        for row in rows
        for code in re.findall(r"`(\w[^`]*\([^`]*)`", row)
        for call in calls_of(code)
    ]
    assert len(calls) > len(rows)
    for function, arguments in calls:
        known = inspect.signature(function).parameters
        taken = {
            *known,
            *(training.RunConfig.model_fields if function is training.RunConfig else ()),
        }
        # The constructor of a model takes what its `load` takes.
        taken |= (
            {*inspect.signature(function.load).parameters} if hasattr(function, "load") else set()
        )
        assert set(arguments) <= taken, (
            f"{function.__qualname__} does not take {set(arguments) - taken}"
        )


def test_the_reference_is_that_of_the_docstrings():
    message = "a docstring or signature has changed: run python -m scripts.api_reference"
    assert (ROOT / "docs/api.md").read_text() == api_reference.reference(), message


@each_page
def test_every_import_of_ours_in_a_python_block_works(page: Path):
    """Whole blocks are executed by tests/sbert_app/test_snippets.py, which is slow."""
    for language, block in blocks(page):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in OURS:
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


def test_the_table_of_settings_is_complete():
    """The variables that `Settings` reads, and those of the queue and of the command line."""
    read = {f"SBERT_{name.upper()}" for name in Settings.model_fields} | {
        "SBERT_AUTH_FILE",
        "SBERT_DEBUG",
        KEY,
    }
    table = (ROOT / "docs" / "settings.md").read_text().partition("\n\n`HF_ENDPOINT`")[0]
    assert set(re.findall(r"`(SBERT_\w+)`", table)) == read


def test_the_version_stands_in_one_place():
    """CITATION.cff repeats it, as the format wants; the changelog has its release."""
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__.partition('.dev')[0]}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_home_folder_is_listed_as_it_is_declared():
    text = (ROOT / "docs/settings.md").read_text()
    assert "".join(f"{kept.name:18}{kept.what}\n" for kept in HOME) in text
    work = [kept.is_work for kept in HOME]
    assert work == sorted(work, reverse=True), "the page says that people's work is above data/"
    assert HOME[work.index(False)].name == "data/"
