"""Counts names and docstrings that are no plain English: python -m scripts.check_prose [FOLDER …], a part of make lint.

A name is a noun for what it holds, so that none of `PARTICIPLES` names a variable, a parameter, a field or an
attribute. A docstring begins with a verb or a noun phrase, not with one of `FRAGMENTS`. More than `ALLOWANCE` of both
together are an error; each is printed with its place.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKED = ("training", "sbert_app", "scripts", "benchmarks", "app.py")
PARTICIPLES = {"asked", "chosen", "drawn", "each", "found", "given", "kept", "known", "made", "said", "seen", "shown"}
PARTICIPLES |= {"stated", "told", "wanted"}
FRAGMENTS = re.compile(r"(What|Of|Those|These|As|Its|Their|That|Them|Ones|Such|It|Which|But|Also|Only)\b")
ALLOWANCE = 20


def bindings(node: ast.AST) -> Iterator[str]:
    """The names that a node binds by itself."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def findings(file: Path) -> Iterator[str]:
    """A line for each name and docstring of a file that should be another."""
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


def main() -> int:
    """The command: exit code 1 if there are more findings than allowed."""
    folders = sys.argv[1:] or [str(ROOT / name) for name in CHECKED]
    files = [file for name in folders for file in ([Path(name)] if name.endswith(".py") else Path(name).rglob("*.py"))]
    lines = [line for file in sorted(files) for line in findings(file)]
    print("\n".join(lines))
    print(f"{len(lines)} names and docstrings of {len(files)} files; {ALLOWANCE} are allowed", file=sys.stderr)
    return int(len(lines) > ALLOWANCE)


if __name__ == "__main__":
    sys.exit(main())
