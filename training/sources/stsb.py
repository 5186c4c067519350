"""The Hub's copy of the STS benchmark, written back as the published files.

On the Hub the benchmark is three Parquet files, with the scores divided by 5 and without genre, file and year. The
rest of the code reads one format only, the published one: tab separated, never quoted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from training.sources import hub

REPO = hub.Repo("sentence-transformers/stsb", "dataset")
_SPLITS = {"train": "sts-train.csv", "validation": "sts-dev.csv", "test": "sts-test.csv"}


def pick(listing: list[str]) -> list[str]:
    """The Parquet files of the three splits. InputError if one has none."""
    return [name for split in _SPLITS for name in _files_of(split, listing)]


def _files_of(split: str, listing: list[str]) -> list[str]:
    return hub.pick_data(REPO.id, [f"*{split}-*.parquet"], listing)


def write(snapshot: Path, fresh: Path) -> None:
    """sts-train.csv, sts-dev.csv and sts-test.csv in ``fresh`` from the Parquet files in ``snapshot``."""
    import pyarrow.parquet as pq

    listing = hub.names_in(snapshot)
    for split, name in _SPLITS.items():
        rows = [row for file in _files_of(split, listing) for row in pq.read_table(snapshot / file).to_pylist()]
        lines = [_line(number, row) for number, row in enumerate(rows)]
        (fresh / name).write_text("".join(lines), encoding="utf-8")


def _line(number: int, row: dict[str, Any]) -> str:
    """A line: genre, file and year, which are unknown; id, gold score 0–5, the two sentences."""
    sentences = (re.sub(r"[\t\r\n]+", " ", row[column]) for column in ("sentence1", "sentence2"))
    return "\t".join(["", "", "", f"{number:04}", f"{row['score'] * 5:.9g}", *sentences]) + "\n"
