"""Files that runs read later: kept in the home folder under the hash of their content."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from training.atomic import replace_file


def keep_upload(file: str | Path, home: Path) -> Path:
    """Copy a file into the home folder, where runs find it. Returns the path of the copy."""
    source = Path(file)
    with source.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", source.name)[-80:]
    kept = home / "data/uploads" / digest / name
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(kept) as fresh:
            shutil.copyfile(source, fresh)
    return kept
