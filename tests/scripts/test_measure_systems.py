"""The rows of systems made here: every seed is measured once, and a call with more models goes on from the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import measure_systems
from training.models.encoder import Encoder


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """measure(models) -> the exit code; on two small files, with a small model in the place of the default one."""
    monkeypatch.setattr(measure_systems, "DATA", ())
    monkeypatch.setattr(measure_systems, "DEFAULT_MODEL", "scratch:1x32")
    monkeypatch.setattr(measure_systems, "STATIC_DIMENSION", 16)
    files = []
    for name, step in (("one", 3), ("two", 5)):
        rows = [f"A man plays guitar {i}.,A dog runs {i * step}.,{i % 6}" for i in range(20)]
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text("\n".join(["sentence1,sentence2,score", *rows]))
    return lambda models: measure_systems.main(
        [str(models), "--sts", *map(str, files), "--out", str(tmp_path / "systems.json")]
    )


def keep(models: Path, *names: str) -> None:
    for name in names:
        Encoder.load("scratch:1x32", seed=int(name[-1])).save(models / name)


def figures(folder: Path) -> dict[str, dict[str, list[float]]]:
    return {each["label"]: each["figures"] for each in json.loads((folder / "systems.json").read_text())["systems"]}


def test_a_seed_is_measured_once_and_more_seeds_are_added(measure, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    keep(first, "bilstm-0", "dan-0")
    keep(second, "bilstm-1", "bilstm-2", "dan-1")
    assert measure(first) == 0
    before = figures(tmp_path)
    assert measure(second) == 0
    after = figures(tmp_path)
    labels = [label for label, _ in measure_systems.TRAINED.values()]
    assert [len(after[label]["one"]) for label in labels] == [3, 2]
    assert [after[label][name][:1] for label in labels for name in ("one", "two")] == [
        before[label][name] for label in labels for name in ("one", "two")
    ]
    static = next(label for label in after if label.startswith("static"))
    assert (after[static], len(after[static]["two"])) == (before[static], 1)


def test_seeds_come_in_order(measure, tmp_path, capsys):
    keep(tmp_path / "models", "bilstm-1", "dan-0")
    assert measure(tmp_path / "models") == 2
    assert "has no model bilstm-0; train the seeds in order" in capsys.readouterr().err
    assert not (tmp_path / "systems.json").exists()
