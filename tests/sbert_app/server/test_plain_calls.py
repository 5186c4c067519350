"""Plain requests share a session, and may name their arguments or give the first of them: the rest have defaults."""

import json

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.server.calls import SESSION, PlainCalls, completed
from sbert_app.server.endpoint import Endpoint, endpoints
from training.errors import InputError


async def echo(request: Request) -> JSONResponse:
    kept = {"length": request.headers["content-length"], "type": request.headers.get("content-type")}
    return JSONResponse({"got": (await request.body()).decode(), **kept})


def behind(*paths: str) -> TestClient:
    return TestClient(PlainCalls(Starlette(routes=[Route(path, echo, methods=["POST"]) for path in paths])))


@pytest.fixture(scope="module")
def client():
    # What a server sends as it starts has no path.
    with behind("/gradio_api/run/compare", "/gradio_api/call/v2/compare", "/other") as client:
        yield client


def test_a_request_without_a_session_gets_the_shared_one_and_others_keep_theirs(client):
    answer = client.post("/gradio_api/run/compare", json={"data": ["é", 1]}).json()
    assert json.loads(answer["got"]) == {"data": ["é", 1], "session_hash": SESSION}
    assert int(answer["length"]) == len(answer["got"].encode())
    asked = {"data": [], "session_hash": "mine"}
    assert completed(asked) == asked


@pytest.mark.parametrize(
    "body",
    [b"x" * 1000, b"", b"null", b"{}", b'{"data": {"a": 1}}', b"\xff", b"9" * 5_000, b'{"data":' + b"[" * 200_000],
)
def test_what_is_no_call_is_one_sentence_and_never_an_internal_error(client, body):
    for way in ("run", "call", "api"):
        answer = client.post(f"/gradio_api/{way}/compare", content=body)
        assert answer.status_code == 400
        assert len(answer.json()["error"]) < 200


def test_calls_by_names_and_other_paths_are_left_alone_and_large_bodies_arrive_whole(client):
    assert client.post("/gradio_api/call/v2/compare", content=b'{"a": 1}').json()["got"] == '{"a": 1}'
    assert client.post("/other", content=b'{"data": []}').json()["got"] == '{"data": []}'
    data = ["x" * 3_000_000]
    assert json.loads(client.post("/gradio_api/run/compare", json={"data": data}).json()["got"])["data"] == data


@pytest.fixture
def _endpoints(monkeypatch):
    def score(file: str, encoding: str = "") -> None: ...
    def search(query: str, data: str = "stsb:dev", k: int = 10) -> None: ...

    for function in (score, search):
        monkeypatch.setitem(endpoints, function.__name__, Endpoint(function))


@pytest.mark.usefixtures("_endpoints")
def test_arguments_that_were_added_later_are_filled_in_for_everybody():
    for session in ({"session_hash": "mine"}, {}):
        asked = {"data": ["a.csv"], **session}
        assert completed(asked, "score") == {"data": ["a.csv", ""], "session_hash": SESSION, **session}
        assert completed(asked, "score", None) == {"data": ["a.csv", ""], **session}
    # curl says that it sends a form.
    form = {"content": '{"data": ["a.csv"]}', "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
    answer = behind("/gradio_api/call/{name}").post("/gradio_api/call/score", **form).json()
    assert (json.loads(answer["got"]), answer["type"]) == ({"data": ["a.csv", ""]}, "application/json")


@pytest.mark.usefixtures("_endpoints")
def test_named_and_listed_arguments_are_the_same_and_what_is_left_out_has_its_default():
    # An argument is called data.
    for body in ({"query": "cooking", "k": 3}, {"query": "cooking", "data": "stsb:dev", "k": 3}):
        assert completed(body, "search", None) == {"data": ["cooking", "stsb:dev", 3]}
    assert completed({"data": ["cooking"]}, "search", None) == {"data": ["cooking", "stsb:dev", 10]}
    body = {"data": ["cooking"], "event_data": None, "trigger_id": 4}
    assert completed(body, "search", None) == {**body, "data": ["cooking", "stsb:dev", 10]}
    assert completed({"data": [1]}, "not_ours", None) == {"data": [1]}
    with pytest.raises(InputError, match="the arguments as a list"):
        completed({"x": 1}, "not_ours", None)


@pytest.mark.usefixtures("_endpoints")
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "search needs query; it takes query, data, k"),
        ({"data": []}, "search needs query"),
        ({"query": "a", "top": 3}, "search has no argument 'top'"),
        ({"data": ["a", "b", 1, 2]}, "search takes at most 3 arguments"),
    ],
)
def test_wrong_arguments_are_said_in_a_sentence(body, sentence):
    with pytest.raises(InputError, match=sentence):
        completed(body, "search", None)
