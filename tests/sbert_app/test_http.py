"""`server/` in a running app, as curl uses it: the endpoints, and what visitors may ask of them."""

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from sbert_app.server.run import listen

MODEL = "all-MiniLM-L6-v2"
COMPARE = {"sentence_a": "a", "sentence_b": "b", "model": "scratch:1x32", "cross_encoder": "none"}
EVALUATE = {"data": "stsb:dev", "model": "tfidf"}
SEARCH = {"query": "x", "sentences": ["a", "b"], "model": "scratch:1x32"}
START = {"base": "scratch:1x32", "max_steps": 1}
PROJECT = {"sentences": [f"Sentence {i}." for i in range(12)], "model": "scratch:1x32"}


BAD = {
    "k": ("search", SEARCH | {"k": "x"}, "k is 'x'"),
    "steps": ("start_run", START | {"max_steps": 10**12}, "max_steps is '1000000000000'"),
    "batch": ("start_run", START | {"batch_size": 10**9}, "less than or equal to 65536"),
    "a setting": ("start_run", START | {"x" * 100_000: 1}, "is not known here"),
    "scratch": ("compare", COMPARE | {"model": "scratch:24x1024"}, "larger than scratch:12x768"),
    "a name of 1 MB": ("compare", COMPARE | {"model": "x" * 1_000_000}, "at most 4,096"),
    "a sentence of 1 MB": ("compare", COMPARE | {"sentence_a": "x" * 1_000_000}, "at most 100,000"),
    "a path": ("search", {"query": "x", "data": "stsb:dev+/etc/passwd"}, "cannot be used here"),
    "a file": ("score_file", {"file": "x"}, "file is 'x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_refused_in_one_sentence_that_says_why(shared_app, name):
    endpoint, arguments, says = BAD[name]
    answer = shared_app.call(endpoint, **arguments)
    assert answer.status == 400
    assert says in answer.text
    assert len(answer.text) < 2_500
    assert not any(
        word in answer.text for word in ("Traceback", "NoneType", "Errno", "Internal Server Error")
    )


def test_an_upload_beyond_the_limit_is_refused(shared_app):
    assert shared_app.upload("large.csv", b"a" * 1_100_000).status == 413


def test_clients_without_a_session_may_score_the_same_file_at_once(shared_app):
    rows = "sentence1,sentence2\n" + "A man sleeps.,A man is asleep.\n" * 200
    [path] = json.loads(shared_app.upload("same.csv", rows.encode()).text)
    arguments = {"file": {"path": path}, "model": "scratch:1x32"}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: shared_app.call("score_file", **arguments), range(4)))
    assert [answer.status for answer in answers] == [200] * 4, answers
    assert {answer.data["scored"] for answer in answers} == {200}


FILE = {"path": "@", "meta": {"_type": "gradio.FileData"}}
SECRET = "sentence1,sentence2,score\n" + "TOPSECRET a,TOPSECRET b,1\n" * 9
# The arguments that name data, a model, a file or a run; "@" stands for a path.
NAMING = {
    "data of evaluate": ("evaluate", EVALUATE | {"data": "@"}),
    "a part of the data of evaluate": ("evaluate", EVALUATE | {"data": "stsb:dev+@"}),
    "model of evaluate": ("evaluate", EVALUATE | {"model": "@"}),
    "retrieval data of evaluate": ("evaluate", {"data": "beir:@", "model": "bm25"}),
    "model of a retriever": ("evaluate", {"data": "beir:stsb:dev", "model": "@+bm25"}),
    "re-ranker of evaluate": ("evaluate", {"data": "beir:stsb:dev", "model": "bm25?rerank=@"}),
    "data of threshold": ("threshold", {"data": "@", "model": "tfidf"}),
    "model of threshold": ("threshold", {"data": "stsb:dev", "model": "@"}),
    "model before of threshold": (
        "threshold",
        {"data": "stsb:dev", "model": "tfidf", "was": "@@0.5"},
    ),
    "data of search": ("search", {"query": "x", "data": "@", "model": "scratch:1x32"}),
    "model of search": ("search", SEARCH | {"model": "@"}),
    "cross-encoder of search": ("search", SEARCH | {"cross_encoder": "@"}),
    "model of compare": ("compare", COMPARE | {"model": "@"}),
    "cross-encoder of compare": ("compare", COMPARE | {"cross_encoder": "@"}),
    "model of encode": ("encode", {"sentences": ["a"], "model": "@"}),
    "model of project": ("project", PROJECT | {"model": "@"}),
    "training data": ("start_run", START | {"train_data": "@"}),
    "data to measure on": ("start_run", START | {"eval_data": "@"}),
    "base": ("start_run", START | {"base": "@"}),
    "teacher": ("start_run", START | {"objective": "mse", "teacher": "@"}),
    "run to look at": ("run_status", {"run_id": "@"}),
    "run to stop": ("stop_run", {"run_id": "@"}),
    "file to score": ("score_file", {"file": FILE, "model": "scratch:1x32"}),
    "model that scores": ("score_file", {"file": FILE, "model": "@"}),
}


@pytest.mark.parametrize("what", NAMING)
def test_no_argument_opens_a_file_or_tells_whether_there_is_one(shared_app, tmp_path, what):
    endpoint, arguments = NAMING[what]
    secret = tmp_path / "secret.csv"

    def refusal(name: str) -> str:
        answer = shared_app.call(endpoint, **json.loads(json.dumps(arguments).replace("@", name)))
        assert answer.status >= 400, answer.text
        assert not any(word in answer.text for word in ("TOPSECRET", "main-captions", "Traceback"))
        return answer.text

    absent = refusal(str(secret))
    secret.write_text(SECRET)
    assert refusal(str(secret)) == absent
    refusal(f"{shared_app.home}/data/../models/../data/stsb/sts-dev.csv")


@pytest.mark.parametrize(
    "way", ["file=", "file/", "stream/", "custom_component/x/y/z/", "proxy=file://"]
)
def test_no_path_is_served(shared_app, way):
    for path in (
        "/etc/passwd",
        f"{shared_app.home}/data/stsb/sts-dev.csv",
        "app.py",
        ".git/config",
        "..%2f..%2fetc%2fpasswd",
    ):
        for prefix in ("/gradio_api/", "/"):
            answer = shared_app.ask(f"{prefix}{way}{path}")
            assert answer.status >= 400 or "<!doctype html>" in answer.text.lower()
            assert not any(
                word in answer.text
                for word in ("root:x:", "main-captions", "[core]", "options of serve")
            )


@pytest.mark.parametrize("is_whole", [True, False], ids=["headers without a body", "half a header"])
def test_others_are_answered_while_hundreds_of_connections_say_nothing(shared_app, is_whole):
    """Of those that send half a header the oldest are closed for those that come."""
    sent = "".join(f"{name}: {value}\r\n" for name, value in shared_app.headers.items())
    rest = f"{sent}Content-Length: 1000000\r\n\r\n{{" if is_whole else "X-A: "
    head = f"POST /api/compare HTTP/1.1\r\nHost: 127.0.0.1\r\n{rest}".encode()
    with ExitStack() as silent:
        connections = []
        for _ in range(300 if is_whole else 600):
            connections.append(
                silent.enter_context(socket.create_connection(("127.0.0.1", shared_app.port), 5))
            )
            connections[-1].sendall(head)
        assert shared_app.call("compare", **COMPARE).status == 200
        if not is_whole:
            connections[0].settimeout(30)
            with suppress(ConnectionResetError):
                assert connections[0].recv(1) == b""


def test_a_thousand_requests_at_once_are_all_answered(shared_app):
    texts = [f"text {number}" for number in range(1_000)]
    together = threading.Barrier(1_000)
    with ThreadPoolExecutor(1_000) as pool:
        answers = pool.map(
            lambda text: (
                together.wait(),
                shared_app.ask("/v1/embeddings", {"model": MODEL, "input": text}),
            )[1],
            texts,
        )
        assert {answer.status for answer in answers} <= {200, 429}


def test_answers_are_sent_without_waiting_for_acknowledgements():
    async def sends_at_once() -> bool:
        options = asyncio.Queue[int]()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            options.put_nowait(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accept, sock=listen("127.0.0.1", 0)) as server:
            await asyncio.open_connection(*server.sockets[0].getsockname())
            return bool(await options.get())

    assert asyncio.run(sends_at_once()), (
        "else each answer on a connection that stays open takes 40 ms more"
    )


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/x.csv", " HTTPS://example.org/x.csv", "data:text/csv,a"]
)
def test_a_file_is_not_fetched_by_its_address(shared_app, address):
    file = {"path": address, "meta": {"_type": "gradio.FileData"}}
    for path in ("/gradio_api/run/score_file", "/bulk/gradio_api/queue/join"):
        answer = shared_app.ask(path, {"data": [[{"x": file}]], "file": file})
        assert (answer.status, "a file is given by its address" in answer.text) == (400, True)


def test_no_event_of_a_page_reads_a_file_that_was_not_uploaded(shared_app, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text(SECRET)
    count = 0
    for page in ("bulk", "train", "evaluate", "explore", "label"):
        config = json.loads(shared_app.ask(f"/{page}/config").text)
        files = {
            each["id"] for each in config["components"] if each["type"] in ("file", "uploadbutton")
        }
        events = [
            each
            for each in config["dependencies"]
            if each["backend_fn"] and files & {*each["inputs"]}
        ]
        count += len(events)
        for event in events:
            data = [
                {**FILE, "path": str(secret)} if each in files else None for each in event["inputs"]
            ]
            body = {"data": data, "fn_index": event["id"], "session_hash": "nobody"}
            answer = shared_app.ask(f"/{page}/gradio_api/run/predict", body)
            assert answer.status == 500, answer.text[:300]
            assert "TOPSECRET" not in answer.text
            assert json.loads(answer.text)["error"] is None, "refused before a handler sees it"
    assert count > 10
