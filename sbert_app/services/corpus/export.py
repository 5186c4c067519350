"""What was found in a corpus, as a CSV file: whole or not at all, and nothing in it that a spreadsheet would run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from sbert_app.services.files.writers import Column, DelimitedWriter, discarded_on_error
from training.data.tables.table import RowBatch

KEPT_SECONDS = 24 * 3600


def save_csv(folder: Path, name: str, columns: Mapping[str, Column]) -> Path:
    """Write columns of one length to a file of this name, in a folder of its own within ``folder``.

    Numbers in an array become six digits; a text that looks like a formula gets an apostrophe in front.

    Raises:
        InputError: the disk is full or may not be written to.
    """
    _sweep(folder)
    own = folder / token_hex(8)
    own.mkdir(parents=True)
    sink = DelimitedWriter(own / name, [], dict.fromkeys(columns, "string"), ",")
    with discarded_on_error([sink]):
        if any(map(len, columns.values())):
            sink.write(RowBatch(1, {}), dict(columns))
        sink.finish()
    return sink.path


def with_others(own: Mapping[str, Column], others: Mapping[str, Column]) -> dict[str, Column]:
    """Columns beside those of the user's file; one of theirs that has a name of ours is marked as the file's."""
    return {**own, **{f"{name} (file)" if name in own else name: values for name, values in others.items()}}


def _sweep(folder: Path) -> None:
    """Remove what was left here more than a day ago."""
    for old in folder.glob("*"):
        if old.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
