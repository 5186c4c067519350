"""An app that is ended while it works for somebody: nothing stays half-written, and it is known what happened."""

import contextlib
import http.client
import json
import signal
import threading
from pathlib import Path

import pytest
from running_app import RUN, Answer, RunningApp, running_app
from waiting import wait_until

from sbert_app.services.background.watch import State
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.services.models.cache import ModelCache

ROWS = 60_000
LONG = [f"{i} " + "word of many kinds " * 200 for i in range(2_000)]  # half a minute of two cores


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
        wait_until(lambda: list((tmp_path / "tmp").rglob(".pairs-scored*.part")))
        assert app.end(number) == 0
    assert not half_written(tmp_path / "tmp")
    [folder] = (tmp_path / "tmp" / "scored").iterdir()
    assert jobs.get(folder.name).state == State.INTERRUPTED
    assert jobs.get(folder.name).path.read_text(encoding="utf-8").count("\n") == ROWS + 1


@pytest.mark.slow
def test_what_is_computed_for_an_answer_ends_without_a_traceback(home: Path, tmp_path: Path, capfd):
    def ask(path: str, body: object) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answers.append(app.ask(path, body))

    answers: list[Answer] = []
    with running_app(home, tmp_path) as app:
        app.ask("/v1/embeddings", {"model": "all-MiniLM-L6-v2", "input": "the model is loaded"})
        bodies = {"/v1/embeddings": {"model": "all-MiniLM-L6-v2", "input": LONG}, f"{RUN}encode": {"data": [LONG]}}
        asking = [threading.Thread(target=ask, args=each, daemon=True) for each in bodies.items()]
        for each in asking:
            each.start()
        asking[0].join(2)
        assert all(each.is_alive() for each in asking), "both are computed"
        assert app.end(signal.SIGTERM) == 0
        for each in asking:
            each.join(10)
    assert all(answer.status >= 500 for answer in answers)
    assert "Traceback" not in capfd.readouterr().err


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
