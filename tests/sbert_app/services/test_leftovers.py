"""What an earlier start has left in the folder of uploads and results."""

import os
import time

from sbert_app.services.leftovers import remove_leftovers

DAY = 24 * 3600


def make(path, age=0.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_old_files_go_with_their_folders_and_new_ones_stay(tmp_path):
    old, new = make(tmp_path / "a" / "old.csv", 2 * DAY), make(tmp_path / "b" / "new.csv")
    os.utime(tmp_path / "a", (time.time() - 2 * DAY,) * 2)
    cut_off = make(tmp_path / "tmpx1y2", 2 * DAY)
    remove_leftovers(tmp_path)
    assert new.exists()
    assert not old.exists()
    assert not cut_off.exists()


def test_half_written_files_of_ended_processes_go(tmp_path):
    nobody = 2**22 - 3  # no process has this id
    dead = make(tmp_path / "scored" / "ab" / f".x-scored.csv.{nobody}.0123abcd.part", 600)
    alive = make(tmp_path / "scored" / "ab" / f".x-scored.csv.{os.getpid()}.0123abcd.part", 600)
    remove_leftovers(tmp_path)
    assert not dead.exists()
    assert alive.exists()


def test_links_are_removed_and_not_followed(tmp_path):
    outside = make(tmp_path / "outside" / "file.txt", 2 * DAY)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "link").symlink_to(outside.parent)
    remove_leftovers(tmp_path / "tmp")
    assert outside.exists()


def test_no_folder_is_no_fault(tmp_path):
    remove_leftovers(tmp_path / "none")
