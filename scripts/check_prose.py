"""Checks that names and docstrings are plain English: python -m scripts.check_prose [FOLDER …], a part of make lint.

A name is a noun for what it holds, so that none of `PARTICIPLES` names a variable, a parameter, a
field or an attribute. A docstring begins with a verb or a noun phrase, not with one of `FRAGMENTS`.
More than `ALLOWANCE` of both together are an error; each is printed with its place. The `TURNS` of
phrase in docstrings and comments are counted for information: documentation that is easy to read
has few of them.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKED = ("training", "sbert_app", "scripts", "benchmarks", "app.py")
PARTICIPLES = {
    "asked",
    "chosen",
    "drawn",
    "each",
    "found",
    "given",
    "kept",
    "known",
    "made",
    "said",
    "seen",
    "shown",
    "stated",
    "told",
    "wanted",
}
FRAGMENTS = re.compile(
    r"(What|Of|Those|These|As|Its|Their|That|Them|Ones|Such|It|Which|But|Also|Only)\b"
)
ALLOWANCE = 20
TURNS = {
    "is/are no": re.compile(r"\b(is|are) no\b(?! longer)", re.IGNORECASE),
    "those/that of": re.compile(r"\b(those|that) of\b", re.IGNORECASE),
    "so many/long": re.compile(r"\bso (many|long)\b", re.IGNORECASE),
    "of/by/in which": re.compile(r"\b(of|by|in) which\b", re.IGNORECASE),
    "meanwhile": re.compile(r"\bmeanwhile\b", re.IGNORECASE),
}


def bindings(node: ast.AST) -> Iterator[str]:
    """The name that a node binds, if it binds one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def findings(file: Path) -> Iterator[str]:
    """A line for each name that is a participle, and for each docstring that begins with a fragment."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for name in bindings(node):
            if name.strip("_") in PARTICIPLES:
                yield f"{file}:{getattr(node, 'lineno', 1)}: the name {name!r} says nothing; use a noun"
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            if FRAGMENTS.match(docstring):
                first_line = docstring.partition("\n")[0]
                yield f"{file}:{getattr(node, 'lineno', 1)}: the docstring {first_line!r} begins with a fragment"


def prose_of(code: str) -> str:
    """The docstrings and comments of a file."""
    texts = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            texts.append(ast.get_docstring(node) or "")
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            texts.append(token.string.lstrip("# "))
    # A phrase may go on in the next line.
    return " ".join(" ".join(texts).split())


def turns_of_phrase(files: list[Path]) -> str:
    """How often each of `TURNS` occurs per 10,000 words of the prose in all files."""
    words = 0
    turns: Counter[str] = Counter()
    for file in files:
        prose = prose_of(file.read_text(encoding="utf-8"))
        words += len(prose.split())
        for name, pattern in TURNS.items():
            turns[name] += len(pattern.findall(prose))
    rates = [f"{name} {10_000 * turns[name] / max(1, words):.1f}" for name in TURNS]
    return f"per 10,000 words of prose: {', '.join(rates)}"


def main() -> int:
    """The command: exit code 1 if there are more findings than allowed."""
    folders = sys.argv[1:] or [str(ROOT / name) for name in CHECKED]
    files: list[Path] = []
    for name in folders:
        if name.endswith(".py"):
            files.append(Path(name))
        else:
            files += Path(name).rglob("*.py")
    lines: list[str] = []
    for file in sorted(files):
        lines += findings(file)
    print("\n".join(lines))
    print(
        f"{len(lines)} names and docstrings of {len(files)} files; {ALLOWANCE} are allowed",
        file=sys.stderr,
    )
    print(turns_of_phrase(files), file=sys.stderr)
    return int(len(lines) > ALLOWANCE)


if __name__ == "__main__":
    sys.exit(main())
