"""The volume of the product in tokens of Python: python -m scripts.volume [folder ...], a part of make lint.

Comments, docstrings, blank lines and indentation are not counted. A token is a name, a number, a string or an operator:
breaks between lines change nothing. The tokens of a code line say how densely the code is written.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("training", "sbert_app")
UNCOUNTED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


class Volume(NamedTuple):
    """The tokens of some code, and the number of lines that have one."""

    tokens: int
    lines: int

    @property
    def density(self) -> float:
        """Tokens a code line."""
        return self.tokens / max(1, self.lines)


def volume_of(code: str) -> Volume:
    docstrings = {*docstring_lines(ast.parse(code))}
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type not in UNCOUNTED and token.start[0] not in docstrings
    ]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return Volume(len(tokens), len(lines))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """The numbers of the lines of docstrings."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def total(files: list[Path]) -> Volume:
    volumes = [volume_of(file.read_text("utf-8")) for file in files]
    return Volume(sum(volume.tokens for volume in volumes), sum(volume.lines for volume in volumes))


def rows(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, Volume]]:
    """The name and the volume of each folder and of the folders in it, then of all folders together."""
    everything = []
    for folder in folders:
        files = sorted((root / folder).rglob("*.py"))
        everything += files
        yield folder, total(files)
        parts = sorted(part for part in (root / folder).iterdir() if part.is_dir() and any(part.rglob("*.py")))
        for part in parts:
            yield f"  {folder}/{part.name}", total(sorted(part.rglob("*.py")))
    yield "all", total(everything)


def main(folders: tuple[str, ...]) -> None:
    """Prints a line for each folder."""
    print(f"{'':30}{'tokens':>10}{'code lines':>12}{'tokens a line':>15}")
    for name, volume in rows(ROOT, folders or FOLDERS):
        print(f"{name:30}{volume.tokens:>10,}{volume.lines:>12,}{volume.density:>15.1f}")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
