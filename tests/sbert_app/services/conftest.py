"""A run that is over in a second."""

from collections.abc import Callable
from pathlib import Path

import pytest

from training.trainer.config import RunConfig

WORDS = (
    "a",
    "man",
    "plays",
    "the",
    "guitar",
    "while",
    "two",
    "dogs",
    "run",
    "over",
    "green",
    "grass",
)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunConfig]:
    """tiny(max_steps=20, **settings) -> a run on pairs.csv; with many steps it is over in an hour, or never."""
    rows = [
        f"{' '.join(WORDS[i % 7 : i % 7 + 5])},{' '.join(WORDS[i % 5 : i % 5 + 6])},{i % 6}"
        for i in range(64)
    ]
    file = tmp_path / "pairs.csv"
    file.write_text("\n".join(["sentence1,sentence2,score", *rows]))

    def config(max_steps: int = 20, **more: object) -> RunConfig:
        settings = {
            "train_data": str(file),
            "eval_data": str(file),
            "base": "scratch:1x32",
            "dtype": "float32",
        }
        return RunConfig("regression", max_steps=max_steps, **{**settings, **more})

    return config
