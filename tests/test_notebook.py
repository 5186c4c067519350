"""The notebook of the docs runs from top to bottom, cell by cell, and its last lines are what they show."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

NOTEBOOK = ROOT / "docs/python_api.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell as a notebook does: its value is that of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307


def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    values = [run_cell(source, names) for source in code_cells()]
    similarities, shapes, cosines, scores, quality, trained, saved = values
    assert similarities.shape == (3, 3) and similarities[0, 1] > similarities[0, 2]
    assert shapes["first 64 dimensions"] == (3, 64)
    assert cosines[0] == pytest.approx(cosines[1], abs=0.01)
    assert scores[0] > scores[1]
    assert 80 < quality[0] < 95
    assert [step for _, step in trained[0]] == [0, 4, 8] and trained[1] in (4, 8)
    assert saved == ("max", True)


def test_it_ships_without_outputs():
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs") and not cell.get("execution_count")
