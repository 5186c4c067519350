"""The notebook of the docs: it runs from top to bottom, and ships with what its cells show."""

import json
from pathlib import Path

import pytest

from scripts.run_notebook import NOTEBOOK, run_cells

CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(json.dumps(CELLS).replace("max_steps=200, eval_every=40", "max_steps=2, eval_every=1"))
    values = [value for _, _, value in run_cells(cells)]
    similarities, shapes, word_map, scores, quality, data, trained, saved = values
    assert similarities.shape == (3, 3) and similarities[0, 1] > similarities[0, 2]
    assert shapes["first 64 dimensions"] == (3, 64)
    assert word_map.matrix.sum() == pytest.approx(similarities[0, 1], abs=0.01)
    assert scores[0] > scores[1]
    assert 80 < quality[0] < 95
    assert len(data) == 1600
    assert [figures["step"] for figures in trained.evaluations] == [0, 1, 2]
    assert saved == ("max", True)


def test_it_ships_with_its_outputs_a_curve_and_a_word_map_among_them():
    cells = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = ["".join(each["data"].get("text/html", "")) for cell in cells for each in cell["outputs"] if "data" in each]
    assert any("<polyline" in html and "spearman" in html for html in shown)
    assert any("guitar" in html and "background:rgba" in html for html in shown)
