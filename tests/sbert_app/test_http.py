"""The HTTP API of a running app, as curl uses it: the ten endpoints, and what visitors may ask of them."""

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from running_app import RUN as PATH
from running_app import RunningApp
from waiting import wait_until

Ask = Callable[..., tuple[int, str]]
RUN = ["regression", "stsb:train", "", "scratch:1x32", "", "uv+diff", 1, 1, 16, 2e-5, 0, "", None]
PROJECT = [[f"Sentence {i}." for i in range(12)], "scratch:1x32", "", 2, 5, 0.1, 0]


@pytest.fixture(scope="module")
def ask(shared_app: RunningApp) -> Ask:
    """ask("compare", "a", "b") -> (status, body)."""

    def send(path: str, body: bytes, content_type: str) -> tuple[int, str]:
        answer = shared_app.ask(path, body, {"Content-Type": content_type})
        return answer.status, answer.text

    def call(name: str, *arguments: object, body: bytes | None = None) -> tuple[int, str]:
        content = json.dumps({"data": list(arguments)}).encode() if body is None else body
        return send(f"{PATH}{name}", content, "application/json")

    head = "".join(f"{name}: {value}\r\n" for name, value in shared_app.headers.items())
    call.send, call.port, call.home, call.app, call.head = (  # type: ignore[attr-defined]
        send, shared_app.port, shared_app.home, shared_app, head,
    )  # fmt: skip
    return call


def changed(arguments: list[object], at: int, value: object) -> list[object]:
    return [*arguments[:at], value, *arguments[at + 1 :]]


BAD = {
    "k": ("search", ["x", "", ["a", "b"], "scratch:1x32", "", "x", "none"], "k is 'x'"),
    "neighbours": ("project", changed(PROJECT, 4, 10**9), "whole number from 2 to 200"),
    "seed": ("project", changed(PROJECT, 6, 2**64), "seed is"),
    "steps": ("start_run", changed(RUN, 7, 10**12), "from 0 to 10,000,000"),
    "batch": ("start_run", changed(RUN, 8, 10**9), "from 1 to 65,536"),
    "objective": ("start_run", changed(RUN, 0, 5), "objective is '5', but must be text"),
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


def test_an_upload_beyond_the_limit_is_refused_and_leaves_nothing(ask, tmp_path):
    parts = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="%d.csv"\r\n\r\n%b\r\n' % (n, b"a" * 900_000)
        for n in range(3)
    )
    status, body = ask.send("/gradio_api/upload", parts + b"--x--\r\n", "multipart/form-data; boundary=x")
    assert status == 413
    assert "all files together" in body


def test_an_upload_that_is_cut_off_leaves_nothing(ask):
    before = files_below(ask.home / "tmp")  # of the tests that came first
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="cut.csv"\r\n\r\n'
    request = (
        f"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\n{ask.head}Content-Length: 900000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    for sent in (0, 100_000, 800_000):
        with socket.create_connection(("127.0.0.1", ask.port)) as connection:
            connection.sendall(request.encode() + head + b"a" * sent)
            time.sleep(0.3)  # until it has been written
    wait_until(lambda: files_below(ask.home / "tmp") <= before)


def files_below(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


def test_two_clients_without_a_session_may_score_the_same_file_at_once(ask):
    rows = "sentence1,sentence2\n" + "A man sleeps.,A man is asleep.\n" * 200
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="same.csv"\r\n\r\n%b\r\n--x--\r\n'
    status, body = ask.send("/gradio_api/upload", part % rows.encode(), "multipart/form-data; boundary=x")
    assert status == 200, body
    file = {"path": json.loads(body)[0], "meta": {"_type": "gradio.FileData"}}
    with ThreadPoolExecutor(4) as threads:
        asked = [
            threads.submit(ask, "score_file", file, "", "scratch:1x32", "", "none", "csv", "utf-8") for _ in range(4)
        ]
    answers = [one.result() for one in asked]
    assert [status for status, _ in answers] == [200] * 4, answers
    assert {json.loads(body)["data"][0]["scored"] for _, body in answers} == {200}
    status, body = ask("score_file", file, "", "scratch:1x32", "", "none", "csv", "klingon")
    assert "there is no text encoding" in body


FILE = {"path": "@", "meta": {"_type": "gradio.FileData"}}
# The arguments that name data, a model, a file or a run; "@" stands for a path.
NAMING = {
    "data of evaluate": ("evaluate", ["@", "tfidf", ""]),
    "a part of the data of evaluate": ("evaluate", ["stsb:dev+@", "tfidf", ""]),
    "model of evaluate": ("evaluate", ["stsb:dev", "@", ""]),
    "retrieval data of evaluate": ("evaluate", ["beir:@", "bm25", ""]),
    "model of a retriever": ("evaluate", ["beir:stsb:dev", "@+bm25", ""]),
    "re-ranker of evaluate": ("evaluate", ["beir:stsb:dev", "bm25?rerank=@", ""]),
    "data of search": ("search", ["x", "@", None, "scratch:1x32", "", 3, "none"]),
    "model of search": ("search", ["x", "", ["a", "b"], "@", "", 3, "none"]),
    "cross-encoder of search": ("search", ["x", "", ["a", "b"], "scratch:1x32", "", 3, "@"]),
    "model of compare": ("compare", ["a", "b", "@", "", "none"]),
    "cross-encoder of compare": ("compare", ["a", "b", "scratch:1x32", "", "@"]),
    "model of encode": ("encode", [["a"], "@", "", True]),
    "model of project": ("project", changed(PROJECT, 1, "@")),
    "model of distill": ("distill", ["@", 16, ""]),
    "data of distill": ("distill", ["scratch:1x32", 16, "@"]),
    "training data": ("start_run", changed(RUN, 1, "@")),
    "data to measure on": ("start_run", changed(RUN, 2, "@")),
    "base": ("start_run", changed(RUN, 3, "@")),
    "options": ("start_run", changed(RUN, 12, {"train_data": "@"})),
    "teacher": ("start_run", changed(RUN, 12, {"teacher": "@"})),
    "run to look at": ("run_status", ["@", 0]),
    "run to stop": ("stop_run", ["@"]),
    "file to score": ("score_file", [FILE, "", "scratch:1x32", "", "none", "csv"]),
    "model that scores": ("score_file", [FILE, "", "@", "", "none", "csv"]),
}


@pytest.mark.parametrize("what", NAMING)
def test_no_argument_opens_a_file_or_tells_whether_there_is_one(ask, tmp_path, what):
    endpoint, arguments = NAMING[what]
    secret = tmp_path / "secret.csv"

    def refused(name: str) -> str:
        status, body = ask(endpoint, *json.loads(json.dumps(arguments).replace("@", name)))
        assert status >= 400, body
        assert not any(word in body for word in ("TOPSECRET", "SQLite", "Traceback"))
        return body

    absent = refused(str(secret))
    secret.write_text("sentence1,sentence2,score\n" + "TOPSECRET a,TOPSECRET b,1\n" * 9)
    assert refused(str(secret)) == absent
    refused(f"{ask.home}/data/../jobs.sqlite")


@pytest.mark.parametrize("way", ["file=", "file/", "stream/", "custom_component/x/y/z/", "proxy=file://"])
def test_no_path_is_served(ask, way):
    for path in ("/etc/passwd", f"{ask.home}/jobs.sqlite", "app.py", ".git/config", "..%2f..%2fetc%2fpasswd"):
        for prefix in ("/gradio_api/", "/"):
            answer = ask.app.ask(f"{prefix}{way}{path}")
            assert answer.status >= 400 or "<!doctype html>" in answer.text.lower()
            assert not any(word in answer.text for word in ("root:x:", "SQLite format", "[core]", "import annotations"))


def test_others_are_answered_while_hundreds_of_connections_say_nothing(ask):
    head = f"POST {PATH}compare HTTP/1.1\r\nHost: 127.0.0.1\r\n{ask.head}Content-Length: 1000000\r\n\r\n{{".encode()
    silent = []
    try:
        for _ in range(300):
            silent.append(socket.create_connection(("127.0.0.1", ask.port), 5))
            silent[-1].sendall(head)
        assert ask("compare", "A cat.", "A dog.", "scratch:1x32", "", "none")[0] == 200
    finally:
        for connection in silent:
            connection.close()


def test_headers_that_never_end_give_way_to_those_that_come(ask):
    """Of one address 600 connections send half a header: the oldest are closed, and the next request is answered."""
    halves = []
    try:
        for _ in range(600):
            halves.append(socket.create_connection(("127.0.0.1", ask.port), 5))
            halves[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
        assert ask("compare", "A cat.", "A dog.", "scratch:1x32", "", "none")[0] == 200
        halves[0].settimeout(30)
        with suppress(ConnectionResetError):
            assert halves[0].recv(1) == b""
    finally:
        for connection in halves:
            connection.close()


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/x.csv", " HTTPS://example.org/x.csv", "data:text/csv,a"])
def test_a_file_is_not_fetched_by_its_address(ask, address):
    file = {"path": address, "meta": {"_type": "gradio.FileData"}}
    for path in (f"{PATH}score_file", "/gradio_api/call/v2/score_file", "/gradio_api/queue/join"):
        status, text = ask.send(path, json.dumps({"data": [[{"x": file}]], "file": file}).encode(), "application/json")
        assert (status, "a file is given by its address" in text) == (400, True)


@pytest.mark.parametrize(("path", "status"), [("/v1/embeddings", 405), ("/v1/chat/completions", 404), ("/v1/", 404)])
def test_what_v1_does_not_answer_is_said_as_openai_does(ask, path, status):
    answer = ask.app.ask(path, headers={"Accept": "text/html"})
    assert (answer.status, json.loads(answer.text)["error"]["type"]) == (status, "invalid_request_error")


def test_a_name_of_a_model_that_is_not_there_shows_no_folder(ask):
    answer = ask.app.ask("/v1/embeddings", {"model": "minilm-stsb", "input": "x"})
    assert answer.status >= 400
    assert str(ask.home) not in answer.text


def test_no_event_of_a_page_reads_a_file_that_was_not_uploaded(ask, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("sentence1,sentence2,score\n" + "TOPSECRET a,TOPSECRET b,1\n" * 9)
    config = json.loads(ask.app.ask("/config").text)
    files = {each["id"] for each in config["components"] if each["type"] == "file"}
    events = [each for each in config["dependencies"] if each["backend_fn"] and files & {*each["inputs"]}]
    assert len(events) > 10
    for event in events:
        data = [{**FILE, "path": str(secret)} if each in files else None for each in event["inputs"]]
        body = {"data": data, "fn_index": event["id"], "session_hash": "nobody"}
        answer = ask.app.ask(f"{PATH}predict", body)
        assert answer.status == 500, answer.text[:300]
        assert "TOPSECRET" not in answer.text
        assert json.loads(answer.text)["error"] is None, "refused before a handler sees it"
