"""Where tests find the project, and home folders of their own."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def linked_home(home: Path, folder: Path, stsb_rows: int | None = None) -> Path:
    """``folder`` as an empty home folder with the models and data of ``home``, or with a part of each split of STSb."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models").symlink_to(home / "models")
    if stsb_rows is None:
        (folder / "data").symlink_to(home / "data")
        return folder
    (folder / "data/stsb").mkdir(parents=True)
    for file in (home / "data/stsb").glob("*.csv"):
        rows = file.read_text(encoding="utf-8").split("\n")[:stsb_rows]
        (folder / "data/stsb" / file.name).write_text("\n".join(rows), encoding="utf-8")
    return folder
