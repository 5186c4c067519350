"""`results/grid.py`: what a model was trained on, by its run, the runs before it, and the cross-encoders."""

from pathlib import Path

import pytest

from sbert_app.services.results.grid import overlap_with, trained_on
from sbert_app.services.runs.store import RunStore
from training.data.dataset import Dataset
from training.data.load import load_data
from training.names import ModelName
from training.trainer.config import RunConfig


@pytest.fixture
def store(home: Path, tmp_path: Path) -> RunStore:
    (tmp_path / "data").symlink_to(home / "data")
    return RunStore(tmp_path)


def pairs(folder: Path, name: str, first: str) -> str:
    (folder / name).write_text(f"sentence1,sentence2,score\n{first},A dog barks.,1.5\n")
    return str(folder / name)


def test_a_run_has_read_what_the_run_before_it_had(store, tmp_path):
    first = store.create(
        RunConfig("regression", train_data=pairs(tmp_path, "one.csv", "A cat sleeps.")), queue=False
    )
    config = RunConfig(
        "mse",
        base=f"run:{first.id}",
        teacher="minilm-stsb",
        train_data=pairs(tmp_path, "two.csv", "B"),
    )
    second = ModelName.of_run(store.create(config, queue=False).id)
    assert [data.name for data in trained_on(second, store.home)] == ["one.csv", "two.csv"]
    found = overlap_with(
        second, Dataset("dev", (["A DOG barks.", "x"], ["a cat sleeps.", "y"])), store.home
    )
    assert (found.rows, found.equal, found.shared) == (2, 1, 1)
    (tmp_path / "one.csv").unlink()
    assert [data.name for data in trained_on(second, store.home)] == ["two.csv"]


def test_the_built_in_cross_encoders_were_trained_on_stsb(store):
    found = overlap_with(
        ModelName.parse("minilm-stsb"), load_data("stsb:test", store.home), store.home
    )
    assert (found.equal, found.shared) == (12, 249)
    assert (
        overlap_with(
            ModelName.parse("all-MiniLM-L6-v2"), Dataset("dev", (["a"], ["b"])), store.home
        )
        is None
    )
