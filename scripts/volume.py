"""The volume of the product in tokens of Python: python -m scripts.volume [folder ...], a part of make lint.

Comments, docstrings, blank lines and indentation are not counted. A token is a name, a number, a
string or an operator: breaks between lines change nothing. The tokens of a code line say how
densely the code is written. The other columns count what packs several thoughts into one line, per
1,000 code lines:

- comprehensions of any kind,
- ternaries, and in brackets the number of ternaries that contain another one,
- `a, b = x, y`,
- imports inside of functions,

and the share of functions of five lines or fewer, with their signature and docstring.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

ROOT = Path(__file__).parents[1]
FOLDERS = ("training", "sbert_app")
UNCOUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
# The longest function that counts as short.
SHORT = 5


class Volume(NamedTuple):
    """The number of tokens of some code, and the number of lines that have a token."""

    tokens: int
    lines: int

    @property
    def density(self) -> float:
        """Tokens a code line."""
        return self.tokens / max(1, self.lines)


def volume_of(code: str) -> Volume:
    docstrings = set(docstring_lines(ast.parse(code)))
    num_tokens = 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        first_line = token.start[0]
        if token.type not in UNCOUNTED and first_line not in docstrings:
            num_tokens += 1
            # A string may have several lines.
            lines.update(range(first_line, token.end[0] + 1))
    return Volume(num_tokens, len(lines))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """The numbers of the lines of docstrings."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def total(files: list[Path]) -> Volume:
    tokens = 0
    lines = 0
    for file in files:
        volume = volume_of(file.read_text("utf-8"))
        tokens += volume.tokens
        lines += volume.lines
    return Volume(tokens, lines)


def forms_of(tree: ast.Module) -> Counter[str]:
    """The numbers of the forms that pack code, and of functions."""
    forms: Counter[str] = Counter()
    # A set, because an import in a function within a function is met twice.
    local_imports: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            forms["comprehensions"] += 1
        elif isinstance(node, ast.IfExp):
            forms["ternaries"] += 1
            # The first node is the ternary itself.
            _, *parts = ast.walk(node)
            forms["nested ternaries"] += any(isinstance(part, ast.IfExp) for part in parts)
        elif isinstance(node, ast.Assign):
            targets = node.targets[0]
            if isinstance(targets, ast.Tuple) and isinstance(node.value, ast.Tuple):
                forms["a, b = x, y"] += 1
        elif isinstance(node, Function):
            forms["functions"] += 1
            # The first line is not in the difference.
            is_short = (node.end_lineno or node.lineno) - node.lineno < SHORT
            forms["short functions"] += is_short
            for part in ast.walk(node):
                if isinstance(part, ast.Import | ast.ImportFrom):
                    local_imports.add(part)
    forms["local imports"] = len(local_imports)
    return forms


def row(name: str, files: list[Path]) -> str:
    """The line that is printed for the files of a folder."""
    volume = total(files)
    forms: Counter[str] = Counter()
    for file in files:
        forms += forms_of(ast.parse(file.read_text("utf-8")))

    def per_thousand_lines(form: str) -> float:
        return 1000 * forms[form] / max(1, volume.lines)

    ternaries = f"{per_thousand_lines('ternaries'):.0f} ({forms['nested ternaries']})"
    short = forms["short functions"] / max(1, forms["functions"])
    return (
        f"{name:24}{volume.tokens:>9,}{volume.lines:>9,}{volume.density:>9.1f}"
        f"{per_thousand_lines('comprehensions'):>9.0f}{ternaries:>10}{per_thousand_lines('a, b = x, y'):>11.1f}"
        f"{per_thousand_lines('local imports'):>9.1f}{short:>9.0%}"
    )


def folders_in(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, list[Path]]]:
    """The name and the Python files of each folder and of the folders in it, then of all folders together."""
    everything = []
    for folder in folders:
        files = sorted((root / folder).rglob("*.py"))
        everything += files
        yield folder, files
        for part in sorted((root / folder).iterdir()):
            files = sorted(part.rglob("*.py"))
            if files:
                yield f"  {folder}/{part.name}", files
    yield "all", everything


def main(folders: tuple[str, ...]) -> None:
    """Prints a line for each folder."""
    print(
        f"{'':24}{'tokens':>9}{'lines':>9}{'a line':>9}{'compreh.':>9}{'ternaries':>10}{'a, b = x, y':>11}"
        f"{'imports':>9}{'short f.':>9}"
    )
    for name, files in folders_in(ROOT, folders or FOLDERS):
        print(row(name, files))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
