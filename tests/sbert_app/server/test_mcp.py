"""MCP: agents list the endpoints as tools and call them; what is counted is counted for the agent's address."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sbert_app.server import mcp
from sbert_app.server.endpoint import Endpoint, endpoint, endpoints
from sbert_app.server.mcp import MCP, McpServer
from sbert_app.services.access import visitor_of

ACCEPTED = {"Accept": "application/json, text/event-stream"}
Registered = Callable[[Callable[..., Any]], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Registered:
    """Makes a function the only tools beside those that are registered by the same test."""
    for name in [*endpoints]:
        monkeypatch.delitem(endpoints, name)

    def add(function: Callable[..., Any]) -> None:
        function = endpoint()(function)
        monkeypatch.setitem(endpoints, function.__name__, Endpoint(function))

    return add


@pytest.fixture
def ask() -> Iterator[Callable[..., Any]]:
    """ask("tools/list") -> the result; of a tool call the whole of it."""
    server = McpServer()
    app = Starlette(routes=server.routes(), lifespan=lambda _: server.manager.run())
    with TestClient(app, client=("10.0.0.7", 1)) as client:

        def send(method: str, **parameters: object) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
            answer = client.post(f"{MCP}/", json=body, headers=ACCEPTED)
            return answer.json()["result"] if answer.status_code == 200 else answer

        yield send


def test_a_tool_is_described_by_the_docstring_and_the_types_of_its_function(register, ask):
    def nearest(query: str, k: int = 3) -> dict[str, Any]:
        """Find the nearest sentences.

        Args:
            query: a sentence,
                or a question.
            k: how many.
        """
        return {"query": query, "k": k}

    register(nearest)
    [tool] = ask("tools/list")["tools"]
    assert (tool["name"], tool["description"]) == ("nearest", "Find the nearest sentences.")
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "a sentence, or a question."},
            "k": {"type": "integer", "default": 3, "description": "how many."},
        },
        "required": ["query"],
    }


def test_an_answer_is_json_as_text_and_as_structured_content(register, ask):
    def who(shout: bool = False, request: gr.Request = None) -> dict[str, Any]:
        return {"visitor": visitor_of(request), "shout": shout, "nothing": None}

    def listed() -> list[int]:
        return [1, 2]

    register(who)
    register(listed)
    answer = ask("tools/call", name="who", arguments={"shout": True})
    assert answer["structuredContent"] == {"visitor": "10.0.0.7", "shout": True, "nothing": None}
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    assert ask("tools/call", name="listed", arguments={})["structuredContent"] == {"result": [1, 2]}


def test_a_file_in_an_answer_is_an_address(register, ask):
    def scored() -> tuple[dict[str, Any], gr.FileData]:
        return {"rows": 2}, gr.FileData(path="/home/tmp/scored/a.csv")

    register(scored)
    address = "http://testserver/gradio_api/file=/home/tmp/scored/a.csv"
    assert ask("tools/call", name="scored", arguments={})["structuredContent"] == {"rows": 2, "file": address}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("double", {}, "double needs number; it takes number"),
        ("double", {"number": 1, "other": 2}, "double has no argument 'other'"),
        ("double", {"number": "x"}, "number is 'x', but must be"),
        ("treble", {"number": 1}, "there is no tool 'treble'; there are double"),
    ],
)
def test_what_is_wrong_is_one_sentence(register, ask, name, arguments, sentence):
    def double(number: int) -> dict[str, Any]:
        return {"double": 2 * number}

    register(double)
    answer = ask("tools/call", name=name, arguments=arguments)
    assert answer["isError"]
    assert sentence in answer["content"][0]["text"]


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("MOST_AT_ONCE", "1 such requests from your address"),
        ("MOST_CONNECTIONS", "connections to the MCP server are open from your address"),
    ],
)
def test_an_address_has_so_many_calls_and_connections_at_once(monkeypatch, register, limit, sentence):
    release = threading.Event()

    def wait() -> dict[str, Any]:
        assert release.wait(30)
        return {}

    register(wait)
    monkeypatch.setattr(mcp, limit, 1)
    server = McpServer()
    app = Starlette(routes=server.routes(), lifespan=lambda _: server.manager.run())
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    with TestClient(app) as client, ThreadPoolExecutor(2) as threads:
        both = [threads.submit(client.post, MCP, json=body, headers=ACCEPTED) for _ in range(2)]
        first = next(as_completed(both))
        release.set()
        assert sum(answer.result().json().get("result", {}).get("isError") is False for answer in both) == 1
        assert sentence in first.result().text
