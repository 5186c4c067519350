"""An app that is ended while it works for somebody: nothing stays half-written, and it is known what happened."""

import contextlib
import http.client
import json
import signal
import threading
from pathlib import Path

import pytest
from running_app import Answer, RunningApp, running_app
from waiting import wait_until

from sbert_app.services.background.watch import State
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.services.models.cache import ModelCache

ROWS = 60_000
LONG = [f"{i} " + "word of many kinds " * 200 for i in range(2_000)]  # half a minute of two cores


def upload(app: RunningApp, rows: str) -> dict[str, object]:
    """The argument for an uploaded file of pairs."""
    [path] = json.loads(app.upload("pairs.csv", f"sentence1,sentence2\n{rows}".encode()).text)
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


def score(app: RunningApp, file: dict[str, object]) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):  # the app ends before it answers
        app.call("score_file", file=file)


@pytest.mark.slow
def test_ending_the_app_interrupts_scoring_and_keeps_scored_files(home, tmp_path):
    rows = "".join(
        f"A man plays the guitar for {i} people.,Somebody makes music number {i}.\n"
        for i in range(ROWS)
    )
    jobs = ScoreJobs(ModelCache(home), tmp_path / "tmp")
    scored_files = tmp_path / "tmp" / "scored"
    with running_app(home, tmp_path) as app:
        scored = app.call(
            "score_file", file=upload(app, "A cat.,A dog.\n"), model="scratch:1x32"
        ).data["file"]
        [finished] = scored_files.iterdir()
        threading.Thread(target=score, args=(app, upload(app, rows)), daemon=True).start()
        wait_until(lambda: list((tmp_path / "tmp").rglob(".pairs-scored*.part")))
        assert app.end(signal.SIGINT) == 0
    assert not list((tmp_path / "tmp").rglob("*.part"))
    [interrupted] = set(scored_files.iterdir()) - {finished}
    assert jobs.get(interrupted.name).state == State.INTERRUPTED
    assert jobs.get(interrupted.name).path.read_text(encoding="utf-8").count("\n") == ROWS + 1
    assert jobs.get(finished.name).state == State.FINISHED
    assert Path(scored["path"]).read_text().startswith("sentence1,sentence2,cosine")


@pytest.mark.slow
def test_what_is_computed_for_an_answer_ends_without_a_traceback(home: Path, tmp_path: Path, capfd):
    def ask(path: str, body: object) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answers.append(app.ask(path, body))

    answers: list[Answer] = []
    with running_app(home, tmp_path) as app:
        app.ask("/v1/embeddings", {"model": "all-MiniLM-L6-v2", "input": "the model is loaded"})
        bodies = {
            "/v1/embeddings": {"model": "all-MiniLM-L6-v2", "input": LONG},
            "/api/encode": {"sentences": LONG},
        }
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
