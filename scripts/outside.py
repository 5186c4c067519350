"""Libraries are used from the outside: python -m scripts.outside, a part of make lint.

Reports where the product names a private module, object or attribute (one with a leading underscore) that is not its
own, or changes an attribute of an imported third-party module or class. A private attribute counts as its own where the
same file defines one of that name, unless it is reached through an import.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parents[1]
PRODUCT = ("training", "sbert_app")
OWN = {*PRODUCT, *sys.stdlib_module_names}
PRIVATE = re.compile(r"(?:.*\.)?_[a-zA-Z]\w*")
CHANGES = ("setattr", "delattr", "vars")
# These are private by name alone.
OF_NAMEDTUPLES = {"_replace", "_asdict", "_fields", "_make"}
# Faults that may stay, as "file: first words", and why; at most three.
ALLOWED = {
    "training/inference/layers.py: torch.ops.mkldnn.": "the operators of oneDNN on packed weights have no public names",
    "training/trainer/replica.py: torch._foreach_": "one call for all tensors, documented under these names only",
}


def faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the words of each fault."""
    nodes = [*ast.walk(tree)]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    # Whether a name is a library's, of those that the file imports and of its own objects.
    names = {(alias.asname or alias.name).split(".")[0]: is_foreign(node) for node in imports for alias in node.names}
    names |= dict.fromkeys(("self", "cls", "super"), False)
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    attributes = {node.attr for node in nodes if is_store(node) and root_of(node) in ("self", "cls")}
    defined = OF_NAMEDTUPLES | functions | variables | attributes
    for node in nodes:
        root = root_of(node)
        if isinstance(node, ast.Import | ast.ImportFrom) and is_foreign(node):
            parts = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if any(map(PRIVATE.fullmatch, parts)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Attribute):
            is_own = names.get(root) is False or (node.attr in defined and not names.get(root))
            if (PRIVATE.fullmatch(node.attr) and not is_own) or (names.get(root) and is_store(node)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and root in CHANGES and names.get(root_of(*node.args[:1])):
            yield node.lineno, ast.unparse(node)


def is_foreign(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether a statement imports from a third-party package."""
    name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    return not getattr(node, "level", 0) and (name or "").split(".")[0] not in OWN


def is_store(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether an attribute is set or deleted there."""
    return isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)


def root_of(node: ast.AST | None = None) -> str:
    """The name that a chain of attributes and calls begins with: ``gr`` for ``gr.context.Context.block``."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    files = [path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))]
    places = [
        (path.relative_to(ROOT), *fault) for path in files for fault in faults(ast.parse(path.read_text("utf-8")))
    ]
    places = [fault for fault in places if not f"{fault[0]}: {fault[2]}".startswith(tuple(ALLOWED))]
    sys.exit("\n".join(f"{path}:{line}: {words}" for path, line, words in places) or 0)
