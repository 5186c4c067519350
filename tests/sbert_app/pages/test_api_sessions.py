"""Plain requests share a session, and may name their arguments or give the first of them: the rest have defaults."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.pages.api.endpoint import signatures
from sbert_app.pages.api.sessions import SESSION, OneSession, completed
from sbert_app.pages.server.limits import BodyLimits, UploadLimits
from training.errors import InputError


async def echo(request: Request) -> JSONResponse:
    return JSONResponse({"got": (await request.body()).decode(), "length": request.headers["content-length"]})


def behind(*paths: str) -> TestClient:
    routes = [Route(path, echo, methods=["POST"]) for path in paths]
    app = Starlette(routes=routes, middleware=[Middleware(OneSession)])
    return TestClient(BodyLimits(app, UploadLimits(Path("nothing is uploaded"), 0, 0)))


@pytest.fixture(scope="module")
def client():
    with behind("/gradio_api/run/compare", "/other") as client:  # what a server sends as it starts has no path
        yield client


def test_a_request_without_a_session_gets_the_shared_one(client):
    answer = client.post("/gradio_api/run/compare", json={"data": ["é", 1]}).json()
    assert json.loads(answer["got"]) == {"data": ["é", 1], "session_hash": SESSION}
    assert int(answer["length"]) == len(answer["got"].encode())


def test_a_request_that_names_its_session_keeps_it():
    asked = {"data": [], "session_hash": "mine"}
    assert completed(asked) == asked


@pytest.mark.parametrize("body", [b"[1, 2]", b"no json", b"\xff\xfe", b"null"])
def test_what_is_no_request_is_refused(client, body):
    assert client.post("/gradio_api/run/compare", content=body).status_code == 400


def test_an_empty_body_is_as_it_came(client):
    assert client.post("/gradio_api/run/compare", content=b"").json()["got"] == ""


@pytest.fixture
def _endpoints(monkeypatch):
    def score(file: str, encoding: str = "") -> None: ...
    def search(query: str, data: str = "stsb:dev", k: int = 10) -> None: ...

    for function in (score, search):
        monkeypatch.setitem(signatures, function.__name__, inspect.signature(function))


@pytest.mark.usefixtures("_endpoints")
def test_arguments_that_were_added_later_are_filled_in_for_everybody():
    for session in ({"session_hash": "mine"}, {}):
        asked = {"data": ["a.csv"], **session}
        assert completed(asked, "score") == {"data": ["a.csv", ""], "session_hash": SESSION, **session}
        assert completed(asked, "score", None) == {"data": ["a.csv", ""], **session}
    answer = behind("/gradio_api/call/{name}").post("/gradio_api/call/score", json={"data": ["a.csv"]}).json()
    assert json.loads(answer["got"]) == {"data": ["a.csv", ""]}


def test_other_paths_are_left_alone(client):
    assert client.post("/other", content=b'{"data": []}').json()["got"] == '{"data": []}'


def test_a_large_body_arrives_whole(client):
    data = ["x" * 3_000_000]
    assert json.loads(client.post("/gradio_api/run/compare", json={"data": data}).json()["got"])["data"] == data


@pytest.mark.usefixtures("_endpoints")
@pytest.mark.parametrize(
    "body",
    [
        {"query": "cooking", "k": 3},
        {"query": "cooking", "data": "stsb:dev", "k": 3},  # an argument that is called data
        {"data": ["cooking", "stsb:dev", 3]},
    ],
)
def test_named_and_listed_arguments_are_the_same(body):
    assert completed(body, "search", None) == {"data": ["cooking", "stsb:dev", 3]}


@pytest.mark.usefixtures("_endpoints")
def test_what_is_left_out_has_its_default_and_the_rest_of_the_body_stays():
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
