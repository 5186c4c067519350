"""Users' files that runs read later: copies in the home folder, by the hash of their content."""

import csv
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from training.atomic import replace_file


def keep_upload(file: str | Path, home: Path) -> Path:
    """Copies a file into the home folder, where runs find it. Returns the path of the copy."""
    source = Path(file)
    with source.open("rb") as content:
        key = hashlib.file_digest(content, "sha256").hexdigest()[:12]
    # A long name keeps its end, which has the suffix.
    name = re.sub(r"[^\w.-]+", "-", source.name)[-80:]
    copy = home / "data/uploads" / key / name
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(copy) as fresh:
            shutil.copyfile(source, fresh)
    return copy


def keep_pairs(name: str, rows: Iterable[tuple[str, str, float]], home: Path) -> Path:
    """Stores scored pairs in the home folder, as a CSV file called ``name``. Returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([("sentence1", "sentence2", "score"), *rows])
        return keep_upload(file, home)
