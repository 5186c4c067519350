"""Runs docs/python_api.ipynb from top to bottom and stores what its cells show: `python -m scripts.run_notebook`.

It does not need Jupyter: cells are executed as a notebook executes them, and the value of a cell is
the value of its last expression.
"""

import ast
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs/python_api.ipynb"


def run_cells(cells: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Each cell of code, what it has printed, and its value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        expression = None
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            expression = last.value
            tree.body.pop()
        value = None
        with redirect_stdout(io.StringIO()) as stdout:
            exec(compile(tree, "cell", "exec"), names)  # noqa: S102
            if expression is not None:
                code = compile(ast.Expression(expression), "cell", "eval")
                value = eval(code, names)  # noqa: S307
        yield cell, stdout.getvalue(), value


def outputs(printed: str, value: Any, count: int) -> list[dict[str, Any]]:
    """The output of a cell as a notebook stores it."""
    stored: list[dict[str, Any]] = []
    if printed:
        stored.append(
            {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
        )
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        stored.append(
            {
                "data": data,
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return stored


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for count, (cell, printed, value) in enumerate(run_cells(notebook["cells"]), start=1):
            cell["execution_count"] = count
            cell["outputs"] = outputs(printed, value, count)
    NOTEBOOK.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
