"""`sources/endpoint.py`: what a server answers is checked, what is wrong is one sentence, the key stays secret."""

import base64
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from embedding_server import embedding_server, vectors

from training.errors import InputError, StoppedError
from training.names import Endpoint, ModelName
from training.sources import endpoint as source
from training.sources.endpoint import KEY, fetch_vectors

TEXTS = ["A cat sleeps.", "It rains."]
SECRET = "sk-very-secret"
WRONG = "does not answer with embeddings"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(source, "DELAYS", (0.0, 0.0))
    monkeypatch.delenv(KEY, raising=False)


def named(url: str) -> Endpoint:
    endpoint = ModelName.parse(f"endpoint:{url}/v1#tiny").endpoint
    assert endpoint is not None
    return endpoint


def complaint(*answers, texts=TEXTS) -> str:
    """What is said of a server that gives these answers one after the other."""
    left = list(answers)
    with (
        embedding_server(lambda path, body: left.pop(0)) as server,
        pytest.raises(InputError) as error,
    ):
        fetch_vectors(named(server.url), texts)
    assert not left
    said = str(error.value)
    assert said.startswith(server.url.removeprefix("http://"))
    assert "\n" not in said
    return said


def test_numbers_and_base64_in_the_order_of_the_texts():
    encoded = base64.b64encode(np.array([3, 4.5], dtype="<f4").tobytes()).decode()
    data = [{"index": 1, "embedding": encoded}, {"index": 0, "embedding": [1, 2]}]
    with embedding_server(
        lambda path, body: (200, {}, json.dumps({"data": data}).encode())
    ) as server:
        found = fetch_vectors(named(server.url), TEXTS)
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 2], [3, 4.5]]
    [(path, _, body)] = server.requests
    assert (path, body) == (
        "/v1/embeddings",
        {"model": "tiny", "input": TEXTS, "encoding_format": "base64"},
    )


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(status):
    busy = (status, {"Retry-After": "0"}, b"")
    left = [busy, busy, vectors([1.0], [2.0])]
    with embedding_server(lambda path, body: left.pop(0)) as server:
        assert fetch_vectors(named(server.url), TEXTS).tolist() == [[1], [2]]
    assert f"with status {status} after 3 attempts" in complaint(busy, busy, busy)


def test_waiting_for_a_busy_server_can_be_stopped(monkeypatch):
    monkeypatch.setattr(source, "DELAYS", (60.0,))
    with embedding_server(lambda path, body: (503, {}, b"")) as server, pytest.raises(StoppedError):
        fetch_vectors(named(server.url), TEXTS, should_stop=lambda: True)


def test_a_server_that_is_away_is_one_sentence():
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(
            InputError,
            match=r"does not answer .*refused.*; start its server, or correct the address",
        ):
            fetch_vectors(named(f"http://127.0.0.1:{bound.getsockname()[1]}"), TEXTS)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        *(
            (body, WRONG)
            for body in (
                b"<html>log in</html>",
                b"\xff\xfe\x00",
                b"[" * 100_000,
                b'{"data": [5, 6]}',
            )
        ),
        (b'{"data": [{}, {}]}', "embedding"),
        (vectors([1.0])[2], "gives 1 vectors for 2 texts"),
        (vectors([1.0], [2.0, 3.0])[2], "shapes (1,) and, at index 1, (2,)"),
        (vectors([1.0], [2.0])[2].replace(b'"index": 1', b'"index": 0'), "index 0 comes twice"),
        (vectors([[1.0]], [[2.0]])[2], "shapes"),
        (vectors(1.0, 2.0)[2], "shapes"),
        *((vectors([1.0], [odd])[2], "not finite") for odd in (float("nan"), 1e300)),
        *((vectors([1.0], [odd])[2], WRONG) for odd in ("one", 10**400)),
        (vectors("not base64!", "AAAAAA==")[2], WRONG),
    ],
)
def test_nonsense_is_told_from_vectors(body, what):
    assert what in complaint((200, {}, body))


def test_an_answer_without_end_or_that_breaks_off_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(source, "MOST_BYTES", 1 << 20)
    assert "more than 1 MB" in complaint(vectors("A" * (3 << 20), "A"))
    monkeypatch.setattr(source, "MOST_DIMENSIONS", 3)
    assert "shapes (4,)" in complaint(vectors([1.0] * 4, [1.0] * 4))
    assert "does not answer" in complaint(
        (200, {"Content-Length": "40", "Connection": "close"}, b'{"data": ')
    )


def test_a_timeout_is_for_a_whole_request_and_few_wait_at_once():
    """A server that is silent, or says a letter at a time, is not waited for; a fifth request waits for its turn."""
    silence = threading.Event()
    with embedding_server(lambda path, body: silence.wait(60) and vectors([1.0])) as server:
        begun = time.monotonic()
        with ThreadPoolExecutor(6) as threads:
            asking = [
                threads.submit(fetch_vectors, named(server.url), ["a"], None, 0.5) for _ in range(6)
            ]
        for request in asking:
            with pytest.raises(InputError, match=r"does not answer within 0\.5 s"):
                request.result()
        assert time.monotonic() - begun < 5
        assert len(server.requests) <= source.REQUESTS_AT_ONCE
        silence.set()


def test_a_redirect_is_not_followed():
    with embedding_server(lambda path, body: vectors([1.0], [1.0])) as other:
        for status in (301, 307, 308):
            said = complaint((status, {"Location": f"{other.url}/v1/embeddings"}, b""))
            assert "redirects to another address, which is not followed" in said
    assert other.requests == []


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            404,
            {"error": {"message": "model 'tiny' not found"}},
            "status 404: model 'tiny' not found",
        ),
        (400, {"error": "input is too long"}, "status 400: input is too long"),
        (
            404,
            {"id": "1", "message": "model 'tiny' not found"},
            "status 404: model 'tiny' not found",
        ),
        (400, {"detail": "input is too long"}, "status 400: input is too long"),
        (
            401,
            {"error": {"message": f"Incorrect key: {SECRET}."}},
            f"Incorrect key: ….; put its key into {KEY}",
        ),
        (403, "not for you", f"not for you; put its key into {KEY}"),
        (413, "", "status 413: Request Entity Too Large"),
    ],
)
def test_what_a_server_says_is_repeated_without_the_key(monkeypatch, status, body, said):
    monkeypatch.setenv(KEY, SECRET)
    text = body if isinstance(body, str) else json.dumps(body)
    answer = complaint((status, {}, text.encode()))
    # Since Python 3.13.
    assert said in answer.replace("Content Too Large", "Request Entity Too Large")
    assert SECRET not in answer


def test_the_key_is_sent_and_that_of_openai_is_not(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    with embedding_server(lambda path, body: vectors([1.0], [1.0])) as server:
        fetch_vectors(named(server.url), TEXTS)
        monkeypatch.setenv(KEY, f" {SECRET}\n")
        fetch_vectors(named(server.url), TEXTS)
        monkeypatch.setenv(KEY, f"{SECRET}\r\nX-Other: 1")
        with pytest.raises(InputError, match=f"^{KEY} holds signs that no key has") as error:
            fetch_vectors(named(server.url), TEXTS)
    assert SECRET not in str(error.value)
    assert [headers.get("Authorization") for _, headers, _ in server.requests] == [
        None,
        f"Bearer {SECRET}",
    ]
