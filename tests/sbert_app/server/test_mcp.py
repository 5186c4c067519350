"""MCP: agents list the endpoints as tools and call them; what is counted is counted for the agent's address."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sbert_app.server import mcp
from sbert_app.server.api import endpoint_router
from sbert_app.server.endpoint import Body, Call, Endpoint
from sbert_app.server.mcp import MCP, McpServer
from sbert_app.services.access import AccessPolicy
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore

ACCEPTED = {"Accept": "application/json, text/event-stream"}
SERVICES: Any = SimpleNamespace(settings=SimpleNamespace(root_path="/lab"))


class NumberBody(Body):
    number: int = Field(description="A number.")
    shout: bool = False


class Answer(BaseModel):
    visitor: str
    double: int
    nothing: None = None


def double(call: Call, body: NumberBody) -> Answer:
    """Double a number."""
    return Answer(visitor=call.visitor, double=2 * body.number)


def register(monkeypatch: pytest.MonkeyPatch, *functions: Callable[..., Any]) -> None:
    """Makes these functions the only tools."""
    monkeypatch.setattr(
        mcp, "ENDPOINTS", {function.__name__: Endpoint(function) for function in functions}
    )


@pytest.fixture
def ask() -> Iterator[Callable[..., Any]]:
    """ask("tools/list") -> the result; of a tool call the whole of it."""
    server = McpServer(SERVICES)
    app = Starlette(routes=server.routes(), lifespan=lambda _: server.manager.run())
    with TestClient(app, client=("10.0.0.7", 1)) as client:

        def send(method: str, **parameters: object) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
            answer = client.post(f"{MCP}/", json=body, headers=ACCEPTED)
            return answer.json()["result"] if answer.status_code == 200 else answer

        yield send


def test_a_tool_is_described_by_the_docstring_and_the_body_of_its_function(monkeypatch, ask):
    register(monkeypatch, double)
    [tool] = ask("tools/list")["tools"]
    assert (tool["name"], tool["description"]) == ("double", "Double a number.")
    assert tool["annotations"] == {"readOnlyHint": True, "destructiveHint": False}
    schema = tool["inputSchema"]
    assert schema["required"] == ["number"]
    assert schema["properties"]["number"] == {
        "description": "A number.",
        "title": "Number",
        "type": "integer",
    }
    assert schema["properties"]["shout"]["default"] is False


def test_an_answer_is_json_as_text_and_as_structured_content(monkeypatch, ask):
    def listed(call: Call, body: Body) -> list[int]:
        return [1, 2]

    register(monkeypatch, double, listed)
    answer = ask("tools/call", name="double", arguments={"number": 2})
    assert answer["structuredContent"] == {"visitor": "10.0.0.7", "double": 4, "nothing": None}
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    assert ask("tools/call", name="listed", arguments={})["structuredContent"] == {"result": [1, 2]}


def test_a_file_in_an_answer_has_an_address(monkeypatch, ask):
    class Scored(BaseModel):
        file: gr.FileData

    def scored(call: Call, body: Body) -> Scored:
        path = "/home/tmp/scored/a.csv"
        return Scored(file=gr.FileData(path=path, url=f"{call.files}{path}"))

    register(monkeypatch, scored)
    file = ask("tools/call", name="scored", arguments={})["structuredContent"]["file"]
    assert file["url"] == "http://testserver/lab/gradio_api/file=/home/tmp/scored/a.csv"


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("double", {}, "number is missing"),
        ("double", {"number": 1, "other": 2}, "'other' is not known here"),
        ("double", {"number": "x"}, "number is 'x': input should be a valid integer"),
        ("treble", {"number": 1}, "there is no tool 'treble'; there are double"),
    ],
)
def test_a_wrong_call_of_a_tool_is_refused_in_one_sentence(
    monkeypatch, ask, name, arguments, sentence
):
    register(monkeypatch, double)
    answer = ask("tools/call", name=name, arguments=arguments)
    assert answer["isError"]
    assert sentence in answer["content"][0]["text"]


def test_a_fault_of_the_app_is_logged_and_not_told(monkeypatch, ask, caplog):
    def broken(call: Call, body: Body) -> Answer:
        raise RuntimeError("the password is 1234")

    register(monkeypatch, broken)
    answer = ask("tools/call", name="broken", arguments={})
    assert answer["isError"]
    assert "1234" not in answer["content"][0]["text"]
    assert "1234" in caplog.text


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("MOST_AT_ONCE", "1 such requests from your address"),
        ("MOST_CONNECTIONS", "connections to the MCP server are open from your address"),
    ],
)
def test_an_address_has_so_many_calls_and_connections_at_once(monkeypatch, limit, sentence):
    release = threading.Event()

    def wait(call: Call, body: Body) -> dict[str, Any]:
        assert release.wait(30)
        return {}

    register(monkeypatch, wait)
    monkeypatch.setattr(mcp, limit, 1)
    server = McpServer(SERVICES)
    app = Starlette(routes=server.routes(), lifespan=lambda _: server.manager.run())
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "wait", "arguments": {}},
    }
    with TestClient(app) as client, ThreadPoolExecutor(2) as threads:
        both = [threads.submit(client.post, MCP, json=body, headers=ACCEPTED) for _ in range(2)]
        first = next(as_completed(both))
        release.set()
        assert (
            sum(answer.result().json().get("result", {}).get("isError") is False for answer in both)
            == 1
        )
        assert sentence in first.result().text


def test_a_run_on_an_uploaded_file_holds_out_a_tenth_over_http_and_mcp(tmp_path):
    upload = tmp_path / "pairs.csv"
    upload.write_text(
        "question,paraphrase\n" + "".join(f"Question {i}?,Answer {i}.\n" for i in range(200))
    )
    jobs = RunQueue(RunStore(tmp_path / "home"))
    jobs.starts_workers = False
    services: Any = SimpleNamespace(
        settings=SERVICES.settings, jobs=jobs, access=AccessPolicy([tmp_path])
    )
    server = McpServer(services)
    app = FastAPI(lifespan=lambda _: server.manager.run())
    app.include_router(endpoint_router(services))
    app.router.routes.extend(server.routes())
    arguments = {"objective": "mnrl", "base": "scratch:1x32", "train_data": str(upload)}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "start_run", "arguments": arguments},
    }
    with TestClient(app) as client:
        http = client.post("/api/start_run", json=arguments).json()
        tool = client.post(f"{MCP}/", json=call, headers=ACCEPTED).json()["result"][
            "structuredContent"
        ]
        named = client.post("/api/start_run", json=arguments | {"eval_data": "stsb:dev"}).json()
    assert [run["config"]["eval_data"] for run in (http, tool, named)] == [
        "held-out",
        "held-out",
        "stsb:dev",
    ]
