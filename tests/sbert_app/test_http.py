"""The HTTP API of a running app, as curl uses it: the ten endpoints, and what visitors may ask of them."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paths import ROOT

Ask = Callable[..., tuple[int, str]]
RUN = ["regression", "stsb:train", "", "scratch:1x32", "", "uv+diff", 1, 1, 16, 2e-5, 0, "", None]
PROJECT = [[f"Sentence {i}." for i in range(12)], "scratch:1x32", "", 2, 5, 0.1, 0]


@pytest.fixture(scope="module")
def ask(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """ask("compare", "a", "b") -> (status, body). The app has a home folder of its own."""
    own = tmp_path_factory.mktemp("http")
    for kind in ("models", "data", "numba"):
        (own / kind).symlink_to(home / kind)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "--port", str(port), "--home", str(own), "--upload-limit-mb", "1"]
    app = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "SBERT_WARM_MAPS": "0"}, stdout=subprocess.DEVNULL)

    def send(path: str, body: bytes, content_type: str) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": content_type})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def call(name: str, *arguments: object, body: bytes | None = None) -> tuple[int, str]:
        content = json.dumps({"data": list(arguments)}).encode() if body is None else body
        return send(f"/gradio_api/run/{name}", content, "application/json")

    call.send = send  # type: ignore[attr-defined]
    try:
        _wait(call, app)
        yield call
    finally:
        app.terminate()
        app.wait(30)
        _end_workers(own)


def _wait(call: Ask, app: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert app.poll() is None, "the app ended"
        try:
            if call("list_runs")[0] == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the app did not start")


def _end_workers(home: Path) -> None:
    import psutil

    for process in psutil.process_iter(["cmdline"]):
        if str(home) in (process.info["cmdline"] or ()):
            process.kill()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("compare", ["A cat.", "A dog.", "scratch:1x32", "", "none"]),
        ("compare", ["\ud800 half", "\x00\x01\x1b", "scratch:1x32", "", "none"]),
        ("encode", [["A cat."], "scratch:1x32", "", True]),
        ("search", ["cat", "", ["A cat.", "A dog."], "scratch:1x32", "", 1, "none"]),
        ("list_runs", []),
    ],
)
def test_what_an_endpoint_takes_is_answered(ask, name, arguments):
    status, body = ask(name, *arguments)
    assert status == 200, body
    assert json.loads(body)["data"]


def test_a_run_is_queued_reported_and_stopped(ask):
    status, body = ask("start_run", *RUN)
    assert status == 200, body
    run = json.loads(body)["data"][0]
    assert run["state"] == "queued"
    assert ask("run_status", run["id"], 0)[0] == 200
    ask("stop_run", run["id"])


def changed(arguments: list[object], at: int, value: object) -> list[object]:
    return [*arguments[:at], value, *arguments[at + 1 :]]


BAD = {
    "k": ("search", ["x", "", ["a", "b"], "scratch:1x32", "", None, "none"], "k is 'None'"),
    "neighbours": ("project", changed(PROJECT, 4, 10**9), "whole number from 2 to 200"),
    "seed": ("project", changed(PROJECT, 6, 2**64), "seed is"),
    "steps": ("start_run", changed(RUN, 7, 10**12), "from 0 to 10,000,000"),
    "batch": ("start_run", changed(RUN, 8, 10**9), "from 1 to 65,536"),
    "objective": ("start_run", changed(RUN, 0, None), "objective is 'None', but must be text"),
    "options": ("start_run", changed(RUN, 12, {"x" * 100_000: 1}), "a run has no field"),
    "scratch": ("compare", ["a", "b", "scratch:24x1024", "", "none"], "larger than scratch:12x768"),
    "a name of 1 MB": ("compare", ["a", "b", "x" * 1_000_000, "", "none"], "at most 4,096"),
    "a sentence of 1 MB": ("compare", ["x" * 1_000_000, "b", "", "", "none"], "at most 100,000"),
    "300 sets": ("evaluate", ["+".join(["stsb:train"] * 300), "tfidf", ""], "at most 20"),
    "a path": ("search", ["x", "stsb:dev+/etc/passwd", None, "scratch:1x32", "", 3, "none"], "cannot be used here"),
    "a file": ("score_file", ["x", "", "scratch:1x32", "", "none", "csv"], "an uploaded file"),
    "no upload": (
        "score_file",
        [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, "", "scratch:1x32", "", "none", "csv"],
        "",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_it_does_not_take_is_one_sentence_that_says_why(ask, name):
    endpoint, arguments, says = BAD[name]
    status, body = ask(endpoint, *arguments)
    assert status >= 400
    assert says in body
    assert len(body) < 2_500
    assert not any(word in body for word in ("Traceback", "NoneType", "Errno", "Internal Server Error"))


@pytest.mark.parametrize("body", [b"no json", b"{}", b"[1]", b'{"data": {"a": 1}}', b'{"data":' + b"[" * 100_000])
def test_what_is_no_call_at_all_is_refused(ask, body):
    status, text = ask("compare", body=body)
    assert status == 400
    assert set(json.loads(text)) == {"error"}
    assert len(text) < 300


def test_an_upload_beyond_the_limit_is_refused_and_leaves_nothing(ask, tmp_path):
    parts = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="%d.csv"\r\n\r\n%b\r\n' % (n, b"a" * 900_000)
        for n in range(3)
    )
    status, body = ask.send("/gradio_api/upload", parts + b"--x--\r\n", "multipart/form-data; boundary=x")
    assert status == 413
    assert "all files together" in body
