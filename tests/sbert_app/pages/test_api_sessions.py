"""Plain requests share a session; those that name one keep it; what is no request is left alone."""

from __future__ import annotations

import json

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.pages.api import arguments
from sbert_app.pages.api.sessions import SESSION, OneSession, completed


async def echo(request: Request) -> JSONResponse:
    return JSONResponse({"got": (await request.body()).decode(), "length": request.headers["content-length"]})


@pytest.fixture(scope="module")
def client():
    routes = [Route("/gradio_api/run/compare", echo, methods=["POST"]), Route("/other", echo, methods=["POST"])]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(OneSession)]))


def test_a_request_without_a_session_gets_the_shared_one(client):
    answer = client.post("/gradio_api/run/compare", json={"data": ["é", 1]}).json()
    assert json.loads(answer["got"]) == {"data": ["é", 1], "session_hash": SESSION}
    assert int(answer["length"]) == len(answer["got"].encode())


@pytest.mark.parametrize(
    "body", [b'{"data": [], "session_hash": "mine"}', b"[1, 2]", b"no json", b"", b"\xff\xfe", b"null"]
)
def test_everything_else_is_as_it_came(body):
    assert completed(body) == body


def test_arguments_that_were_added_later_are_filled_in_for_everybody(monkeypatch):
    def score(file: str, encoding: str = "") -> None: ...

    monkeypatch.setattr(arguments, "_signatures", {})
    monkeypatch.setattr(arguments.gr, "api", lambda *_, **__: None)
    arguments.register(score)
    for session in ({"session_hash": "mine"}, {}):
        body = json.dumps({"data": ["a.csv"], **session}).encode()
        assert json.loads(completed(body, "score")) == {"data": ["a.csv", ""], "session_hash": SESSION, **session}
        assert json.loads(completed(body, "score", None)) == {"data": ["a.csv", ""], **session}
    routes = [Route("/gradio_api/call/{name}", echo, methods=["POST"])]
    with TestClient(Starlette(routes=routes, middleware=[Middleware(OneSession)])) as client:
        answer = client.post("/gradio_api/call/score", json={"data": ["a.csv"]}).json()
    assert json.loads(answer["got"]) == {"data": ["a.csv", ""]}


def test_other_paths_are_left_alone(client):
    assert client.post("/other", content=b'{"data": []}').json()["got"] == '{"data": []}'


def test_a_large_body_arrives_whole(client):
    data = ["x" * 3_000_000]
    assert json.loads(client.post("/gradio_api/run/compare", json={"data": data}).json()["got"])["data"] == data
