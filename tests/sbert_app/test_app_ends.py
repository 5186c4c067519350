"""An app that is ended while it works for somebody: nothing stays half-written, and it is known what happened."""

import contextlib
import http.client
import json
import signal
import threading
from pathlib import Path

import pytest
from running_app import RunningApp, running_app
from waiting import wait_until

from sbert_app.services.background.state import State
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.services.models.cache import ModelCache

ROWS = 60_000


def half_written(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


def score(app: RunningApp, path: str) -> None:
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    with contextlib.suppress(OSError, http.client.HTTPException):  # the app ends before it answers
        app.call("score_file", file)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT])
def test_a_file_that_is_being_scored_is_interrupted_and_can_be_scored_again(home: Path, tmp_path: Path, number: int):
    rows = "".join(f"A man plays the guitar for {i} people.,Somebody makes music number {i}.\n" for i in range(ROWS))
    jobs = ScoreJobs(ModelCache(home), tmp_path / "tmp")
    with running_app(home, tmp_path) as app:
        [path] = json.loads(app.upload("pairs.csv", f"sentence1,sentence2\n{rows}".encode()).text)
        threading.Thread(target=score, args=(app, path), daemon=True).start()
        wait_until(lambda: half_written(tmp_path / "tmp"))
        assert app.end(number) == 0
    assert not half_written(tmp_path / "tmp")
    [folder] = (tmp_path / "tmp" / "scored").iterdir()
    assert jobs.get(folder.name).state == State.INTERRUPTED
    assert jobs.get(folder.name).path.read_text(encoding="utf-8").count("\n") == ROWS + 1


@pytest.mark.slow
def test_a_scored_file_is_there_after_a_restart(home: Path, tmp_path: Path):
    jobs = ScoreJobs(ModelCache(home), tmp_path / "tmp")
    with running_app(home, tmp_path) as app:
        [path] = json.loads(app.upload("pairs.csv", b"sentence1,sentence2\nA cat.,A dog.\n").text)
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        _, scored = json.loads(app.call("score_file", file, "", "scratch:1x32").text)["data"]
        assert Path(scored["path"]).is_file()
        assert app.end(signal.SIGTERM) == 0
    [folder] = (tmp_path / "tmp" / "scored").iterdir()
    assert jobs.get(folder.name).state == State.FINISHED
    assert Path(scored["path"]).read_text().startswith("sentence1,sentence2,cosine")
