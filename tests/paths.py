"""Where tests find the project, and home folders of their own."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def linked_home(home: Path, folder: Path) -> Path:
    """``folder`` as an empty home folder with the models and data of ``home``."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("models", "data"):
        (folder / kind).symlink_to(home / kind)
    return folder
