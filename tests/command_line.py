"""What a command said, and the files that the tests of commands give it; the fixtures are in sbert_app/conftest.py."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert_app import cli

PAIRS = "sentence1,sentence2,score\nthe man,a man,4.5\nthe cat,a dog,2\nthe cat is in the food,on a guitar,0.5\n"
SENTENCES = ["the man is playing", "a dog", "", "ein Hörgerät 北京 😀", "the cat " * 2_000]


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Stdout, which must be one JSON object and nothing else."""
        assert self.code == cli.GOOD, self.err
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def complaint(self) -> str:
        """The one line on stderr; stdout is empty."""
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        return self.err.strip()


Run = Callable[..., Answer]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
