"""The notebook of the docs: it runs from top to bottom, and ships with what its cells show."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.run_notebook import NOTEBOOK, outputs, run_cells

CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
NUMBER = re.compile(r"-?\d+(?:,\d{3})*\.?\d*")


def texts(stored: list[dict[str, Any]]) -> str:
    """The text of a cell's outputs, as a reader without HTML sees it."""
    parts = [output.get("text") or output["data"]["text/plain"] for output in stored]
    return "\n".join("".join(part) for part in parts)


def assert_alike(text: str, other: str) -> None:
    """The same words, and numbers that differ as they do between bfloat16 and float32."""
    words, other_words = (re.sub(r"\s", "", NUMBER.sub("#", each)) for each in (text, other))
    assert words == other_words
    numbers, other_numbers = (
        [float(number.replace(",", "")) for number in NUMBER.findall(each)]
        for each in (text, other)
    )
    assert numbers == pytest.approx(other_numbers, rel=0.01, abs=0.01)


def before_training(text: str) -> str:
    """The lines up to the evaluation before the first step."""
    return text[: text.index("\n", text.index("step     0"))]


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(
        json.dumps(CELLS).replace("max_steps=200, eval_every=40", "max_steps=2, eval_every=1")
    )
    done = list(run_cells(cells))
    values = [value for _, _, value in done]
    similarities, shapes, word_map, scores, quality, data, trained, saved = values
    assert similarities.shape == (3, 3) and similarities[0, 1] > similarities[0, 2]
    assert shapes["first 64 dimensions"] == (3, 64)
    assert word_map.matrix.sum() == pytest.approx(similarities[0, 1], abs=0.01)
    assert scores[0] > scores[1]
    assert 80 < quality[0] < 95
    assert len(data) == 1600
    assert [figures["step"] for figures in trained.evaluations] == [0, 1, 2]
    assert saved == ("max", True)
    shown = [texts(outputs(printed, value, 0)) for _, printed, value in done]
    kept = [texts(cell["outputs"]) for cell in CELLS if cell["cell_type"] == "code"]
    for number, (text, other) in enumerate(zip(shown, kept, strict=True)):
        if values[number] is not trained:
            assert_alike(text, other)
            continue
        # Two steps are not 200: their lines are the same up to the first evaluation, and the result
        # has the same form.
        assert_alike(before_training(text), before_training(other))
        assert NUMBER.sub("#", repr(trained)) == NUMBER.sub("#", other.splitlines()[-1])


def test_the_notebook_ships_with_its_outputs():
    cells = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [
        "".join(each["data"].get("text/html", ""))
        for cell in cells
        for each in cell["outputs"]
        if "data" in each
    ]
    assert any("<table" in html and "spearman" in html for html in shown)
    assert any("guitar" in html and "background:rgba" in html for html in shown)
