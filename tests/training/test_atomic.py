"""Folders: whole or not at all, whatever becomes of the process that writes them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from remote import ROOT, visible, write

from training.atomic import create_atomic, recover, replace_atomic


def test_a_folder_whose_filling_fails_stays_as_it_was(tmp_path):
    target = write(tmp_path / "folder", "old")

    def fill(fresh: Path) -> None:
        write(fresh, "new")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        create_atomic(target, lambda folder: (folder / "new").exists(), fill)
    assert visible(tmp_path) == ["folder/old"]


def test_a_failed_save_leaves_the_old_folder_as_it_was(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("old")
    with pytest.raises(ZeroDivisionError), replace_atomic(folder) as fresh:
        (fresh / "config.json").write_text("half")
        _ = 1 / 0
    assert (folder / "config.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_save_replaces_the_whole_folder_and_leaves_nothing_behind(tmp_path: Path):
    folder = tmp_path / "deep" / "model"
    for name in ("first", "second"):
        with replace_atomic(folder) as fresh:
            (fresh / name).touch()
    assert [entry.name for entry in folder.iterdir()] == ["second"]
    assert list(folder.parent.iterdir()) == [folder]
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_save_that_cannot_take_its_place_brings_the_old_folder_back(tmp_path: Path, monkeypatch, error):
    folder = write(tmp_path / "model", "old")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(".fresh"):
            raise error("in between")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(error, match="in between"), replace_atomic(folder) as fresh:
        (fresh / "new").touch()
    assert list(tmp_path.iterdir()) == [folder]
    assert visible(tmp_path) == ["model/old"]


KILLED = """
import os, signal, shutil, sys
from pathlib import Path
from training import atomic as folders

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

moment, renames, rename = sys.argv[2], [], Path.rename

def renaming(self, target):
    renames.append(target)
    if moment == f"before rename {len(renames)}":
        die()
    return rename(self, target)

Path.rename = renaming
if moment == "before the old one is removed":
    shutil.rmtree = die
with folders.replace_atomic(Path(sys.argv[1])) as fresh:
    (fresh / "new").touch()
    if moment == "while writing":
        die()
"""


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("while writing", "old"),
        ("before rename 1", "old"),
        ("before rename 2", "old"),
        ("before the old one is removed", "new"),
    ],
)
def test_killed_at_any_moment_one_of_them_is_whole(tmp_path: Path, moment: str, left: str):
    folder = write(tmp_path / "model", "old")
    process = subprocess.run([sys.executable, "-c", KILLED, str(folder), moment], cwd=ROOT, check=False)
    assert process.returncode == -signal.SIGKILL
    recover(folder)
    assert visible(tmp_path) == [f"model/{left}"]
    assert list(tmp_path.iterdir()) == [folder]
