"""The folder of uploads and results holds what the settings allow, and nothing for longer than a day."""

import os
import time

import pytest

from sbert_app.services.store.temp_folder import RESULTS, TempFolder
from training.atomic import folder_size
from training.errors import InputError

DAY = 24 * 3600


def make(path, size, age=0.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_results_are_refused_when_uploads_and_results_fill_it(tmp_path):
    temp = TempFolder(tmp_path, 2_000_000)
    make(tmp_path / "upload.csv", 1_000_000)
    assert temp.results("explore") == tmp_path / "explore"
    make(tmp_path / "scored" / "ab" / "x-scored.csv", 999_000)
    temp.check_room(1_000)
    for refused in (lambda: temp.check_room(1_001), lambda: temp.check_room(10**12)):
        with pytest.raises(
            InputError, match=r"is full \(1.9 MB\); files in it are removed after a day"
        ):
            refused()
    make(tmp_path / "label" / "p.csv", 2_000)
    with pytest.raises(InputError, match="is full"):
        temp.results("label")


def test_links_in_the_temporary_folder_have_no_size(tmp_path):
    (tmp_path / "tmp" / "empty").mkdir(parents=True)
    (tmp_path / "tmp" / "link").symlink_to(make(tmp_path / "outside", 500))
    make(tmp_path / "tmp" / "file", 7)
    assert folder_size(tmp_path / "tmp") == 7
    assert folder_size(tmp_path / "none") == 0
    TempFolder(tmp_path / "none").clean()


def test_links_are_removed_and_not_followed(tmp_path):
    link = tmp_path / "tmp" / "explore" / "link"
    link.parent.mkdir(parents=True)
    link.symlink_to(make(tmp_path / "elsewhere" / "file.txt", 1, 2 * DAY).parent)
    os.utime(link, (time.time() - 2 * DAY,) * 2, follow_symlinks=False)
    TempFolder(tmp_path / "tmp").clean()
    assert not link.is_symlink()
    assert (tmp_path / "elsewhere" / "file.txt").exists()


def test_results_of_every_kind_go_after_a_day_while_the_app_runs(tmp_path):
    old = [make(tmp_path / kind / "ab" / "old.csv", 1, 2 * DAY) for kind in RESULTS]
    for file in old:
        os.utime(file.parent, (time.time() - 2 * DAY,) * 2)
    old += [make(tmp_path / kind / "old.zip", 1, 2 * DAY) for kind in RESULTS]
    new = [make(tmp_path / kind / "cd" / "new.csv", 1) for kind in RESULTS]
    # A whole.
    new += [
        make(tmp_path / "scored/ef/input/up.csv", 1, 2 * DAY),
        make(tmp_path / "scored/ef/job.json", 1),
    ]
    of_gradio = make(tmp_path / "1f2e" / "icon.png", 1, 2 * DAY)
    TempFolder(tmp_path).clean()
    assert not any(file.exists() for file in old)
    assert not any((tmp_path / kind / "ab").exists() for kind in RESULTS)
    assert all(file.exists() for file in [*new, of_gradio])


def test_uploads_of_earlier_starts_go_with_their_folders_and_new_ones_stay(tmp_path):
    old = make(tmp_path / "a" / "old.csv", 1, 2 * DAY)
    new = make(tmp_path / "b" / "new.csv", 1)
    os.utime(tmp_path / "a", (time.time() - 2 * DAY,) * 2)
    cut_off = make(tmp_path / "tmpx1y2", 1, 2 * DAY)
    result = make(tmp_path / "explore" / "c" / "x.csv", 1)
    os.utime(tmp_path / "explore", (time.time() - 2 * DAY,) * 2)
    TempFolder(tmp_path).clean()
    assert new.exists()
    assert result.exists()
    assert not old.parent.exists()
    assert not cut_off.exists()


def test_half_written_files_of_ended_processes_go(tmp_path):
    nobody = 2**22 - 3  # no process has this id
    dead = make(tmp_path / "scored" / "ab" / f".x-scored.csv.{nobody}.0123abcd.part", 1, 600)
    alive = make(tmp_path / "scored" / "ab" / f".x-scored.csv.{os.getpid()}.0123abcd.part", 1, 600)
    TempFolder(tmp_path).clean()
    assert not dead.exists()
    assert alive.exists()
