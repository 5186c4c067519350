"""Files and folders appear complete or not at all, whatever happens to the process that writes them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from remote import ROOT, visible, write

from training.atomic import (
    create_folder,
    folder_size,
    open_atomic,
    recover,
    replace_file,
    replace_folder,
    sweep,
    write_bytes,
    write_text,
)

HOURS = 2 * 3600


def dead_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def leftover(folder: Path, name: str, process: int, age: float = HOURS) -> Path:
    """What a process killed ``age`` seconds ago left of a file ``name``."""
    file = folder / f".{name}.{process}.0123abcd.part"
    file.touch()
    os.utime(file, (time.time() - age,) * 2)
    return file


def names(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(entry.name for entry in folder.iterdir())


class TestFiles:
    def test_text_and_line_ends_are_written_as_given(self, tmp_path):
        write_text(tmp_path / "text", "naïve\n")
        write_bytes(tmp_path / "bytes", b"\xff\n")
        assert (tmp_path / "text").read_bytes() == "naïve\n".encode()
        assert (tmp_path / "bytes").read_bytes() == b"\xff\n"
        assert names(tmp_path) == ["bytes", "text"]
        with open_atomic(tmp_path / "file", newline="\r\n") as file:
            file.write("a\nb\n")
        assert (tmp_path / "file").read_bytes() == b"a\r\nb\r\n"

    def test_others_may_read_a_file_as_any_other(self, tmp_path):
        (tmp_path / "ordinary").touch()
        write_text(tmp_path / "file", "")
        assert (tmp_path / "file").stat().st_mode == (tmp_path / "ordinary").stat().st_mode

    def test_the_old_text_is_there_until_the_new_one_is_complete(self, tmp_path):
        path = tmp_path / "file"
        path.write_text("old")
        with open_atomic(path) as file:
            file.write("new")
            file.flush()
            assert path.read_text() == "old"
            assert all(name.startswith(".") for name in names(tmp_path) if name != "file")
        assert path.read_text() == "new"
        assert names(tmp_path) == ["file"]

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_an_error_and_ctrl_c_leave_everything_as_it_was(self, tmp_path, error):
        (tmp_path / "file").write_text("old")
        for path in (tmp_path / "file", tmp_path / "new"):
            with pytest.raises(error), open_atomic(path, "wb") as file:
                file.write(b"half")
                raise error
        assert names(tmp_path) == ["file"]
        assert (tmp_path / "file").read_text() == "old"

    def test_a_library_writes_to_a_path_and_has_to_write_something(self, tmp_path):
        with replace_file(tmp_path / "file") as temporary:
            temporary.write_text("new")
        assert names(tmp_path) == ["file"]
        with pytest.raises(ZeroDivisionError), replace_file(tmp_path / "file") as temporary:
            temporary.write_text("newer")
            _ = 1 / 0
        assert names(tmp_path) == ["file"]
        with pytest.raises(FileNotFoundError), replace_file(tmp_path / "file"):
            pass
        assert (tmp_path / "file").read_text() == "new"

    def test_two_writers_do_not_meet(self, tmp_path):
        with open_atomic(tmp_path / "file") as first, open_atomic(tmp_path / "file") as second:
            first.write("first")
            second.write("second")
        assert (tmp_path / "file").read_text() == "first", "the last to end wins"


class TestLeftovers:
    def test_a_sweep_removes_only_what_dead_processes_have_left(self, tmp_path):
        leftover(tmp_path, "a.csv", dead_process())
        spared = [
            leftover(tmp_path, "running", os.getpid()),
            # Perhaps of another machine on a shared disk.
            leftover(tmp_path, "recent", dead_process(), age=60),
            write(tmp_path / "folder", "file"),
        ]
        for name in (".download.part", ".a.12.part", "a.csv", f"a.{dead_process()}.0123abcd.part"):
            spared.append(tmp_path / name)
            spared[-1].touch()
            os.utime(spared[-1], (0, 0))
        sweep(tmp_path)
        assert names(tmp_path) == sorted(path.name for path in spared)

    def test_writing_a_file_removes_what_earlier_writes_of_it_left(self, tmp_path):
        leftover(tmp_path, "[a].csv", dead_process())
        other = leftover(tmp_path, "b.csv", dead_process())
        write_text(tmp_path / "[a].csv", "")
        assert names(tmp_path) == [other.name, "[a].csv"]
        sweep(tmp_path / "nowhere")


class TestFolders:
    def test_one_whose_filling_fails_stays_as_it_was(self, tmp_path):
        target = write(tmp_path / "folder", "old")

        def fill(fresh: Path) -> None:
            write(fresh, "new")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            create_folder(target, lambda folder: (folder / "new").exists(), fill)
        assert visible(tmp_path) == ["folder/old"]

    def test_a_save_replaces_all_of_it_and_leaves_nothing_behind(self, tmp_path):
        folder = tmp_path / "deep" / "model"
        for name in ("first", "second"):
            with replace_folder(folder) as fresh:
                (fresh / name).touch()
        assert names(folder) == ["second"]
        assert list(folder.parent.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o755

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_a_save_that_fails_or_cannot_be_renamed_leaves_the_old_one(
        self, tmp_path, monkeypatch, error
    ):
        folder = write(tmp_path / "model", "old")
        with pytest.raises(error), replace_folder(folder) as fresh:
            (fresh / "old").write_text("half")
            raise error
        assert (folder / "old").read_text() == "x old"
        assert list(tmp_path.iterdir()) == [folder]
        rename = Path.rename

        def refuse(self: Path, target: Path) -> Path:
            if target == folder and (self / "new").exists():
                raise error("in between")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(error, match="in between"), replace_folder(folder) as fresh:
            (fresh / "new").touch()
        assert list(tmp_path.iterdir()) == [folder]
        assert visible(tmp_path) == ["model/old"]


KILLED = """
import os, signal, shutil, sys
from pathlib import Path
from training.atomic import replace_folder

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
with replace_folder(Path(sys.argv[1])) as fresh:
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
def test_killed_at_any_moment_one_of_the_folders_is_complete(
    tmp_path: Path, moment: str, left: str
):
    folder = write(tmp_path / "model", "old")
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), moment], cwd=ROOT, check=False
    )
    assert process.returncode == -signal.SIGKILL
    recover(folder)
    assert visible(tmp_path) == [f"model/{left}"]
    assert list(tmp_path.iterdir()) == [folder]


def test_the_size_of_a_folder_leaves_out_what_is_removed_meanwhile(tmp_path, monkeypatch):
    """The client of the Hub creates one in its cache and removes it at once, while a download is watched."""
    (write(tmp_path, "kept", "probe/file") / "probe/file").unlink()
    scandir = os.scandir

    def remove_first(path):
        if Path(path).name == "probe":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove_first)
    assert folder_size(tmp_path) == len("x kept")
    assert not (tmp_path / "probe").exists()
