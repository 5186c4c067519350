"""CSV files of results about a corpus: written atomically, without cells that a spreadsheet would execute."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from sbert_app.services.files.writers import Column, DelimitedWriter, discarded_on_error
from training.data.tables.table import RowBatch

MAX_AGE_SECONDS = 24 * 3600


def save_csv(folder: Path, name: str, columns: Mapping[str, Column]) -> Path:
    """Write columns of equal length to a file of this name, in a new folder within ``folder``.

    Floating-point arrays are written with six digits. A text that looks like a formula gets a leading apostrophe.
    Files older than a day are removed.

    Raises:
        InputError: the disk is full or not writable.
    """
    remove_old(folder)
    new = folder / token_hex(8)
    new.mkdir(parents=True)
    writer = DelimitedWriter(new / name, [], dict.fromkeys(columns, "string"), ",")
    with discarded_on_error([writer]):
        if any(map(len, columns.values())):
            writer.write(RowBatch(1, {}), dict(columns))
        writer.finish()
    return writer.path


def with_file_columns(columns: Mapping[str, Column], from_file: Mapping[str, Column]) -> dict[str, Column]:
    """Add the columns of the user's file; one whose name is taken is renamed to "NAME (file)"."""
    renamed = {f"{name} (file)" if name in columns else name: values for name, values in from_file.items()}
    return {**columns, **renamed}


def remove_old(folder: Path) -> None:
    """Remove the files and folders of a folder that are older than a day."""
    for old in folder.glob("*"):
        if old.stat().st_mtime < time.time() - MAX_AGE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
