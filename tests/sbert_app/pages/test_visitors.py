"""Whom limits are counted for: addresses; of a tool call, that of the agent and not of the app, which calls itself."""

import http.client
import json
from collections.abc import Iterator
from types import SimpleNamespace

import anyio
import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.pages.api import endpoint as endpoints
from sbert_app.pages.api.endpoint import endpoint
from sbert_app.pages.server.address import HEADER, agent_address, signed, visitor_of
from sbert_app.pages.server.mcp import MCP, McpCalls
from sbert_app.services.quota import Quota


async def headers(request):
    return JSONResponse({"agent": agent_address(request), "visitor": visitor_of(request)})


BEHIND = Starlette(routes=[Route("/{path:path}", headers, methods=["GET", "POST"])])


def test_a_tool_call_names_its_agent_and_nothing_else_can():
    client = TestClient(McpCalls(BEHIND), client=("10.0.0.7", 1))
    assert client.post(f"{MCP}/").json() == {"agent": "10.0.0.7", "visitor": "10.0.0.7"}
    for forged in ("10.0.0.8", "secret 10.0.0.8", " 10.0.0.8", ""):
        for path in (f"{MCP}/", "/gradio_api/run/compare"):
            assert client.post(path, headers={HEADER: forged}).json()["visitor"] == "10.0.0.7"
    for headers, visitor in (({HEADER: signed("10.0.0.9")}, "10.0.0.9"), ({}, "127.0.0.1")):
        assert visitor_of(SimpleNamespace(headers=headers, client=SimpleNamespace(host="127.0.0.1"))) == visitor


def test_so_many_connections_to_the_mcp_server_are_open_from_one_address():
    app, held = McpCalls(BEHIND, most=2), []

    async def hold(address: str) -> int:
        """The status of a request whose answer is not taken until all have been asked."""
        statuses = []

        async def send(message):
            statuses.append(message.get("status"))
            if message["type"] == "http.response.start" and message["status"] == 200:
                held.append(address)
                with anyio.move_on_after(0.2):
                    await anyio.sleep_forever()

        scope = {"type": "http", "method": "POST", "path": f"{MCP}/", "headers": [], "client": (address, 1)}
        scope |= {"query_string": b"", "root_path": "", "http_version": "1.1", "server": ("testserver", 80)}

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        await app(scope, receive, send)
        return statuses[0]

    async def ask(addresses):
        found = []

        async def one(address):
            found.append((address, await hold(address)))

        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tasks.start_soon(one, address)
        return sorted(found)

    found = anyio.run(ask, ["10.0.0.1"] * 3 + ["10.0.0.2"])
    assert found == [("10.0.0.1", 200), ("10.0.0.1", 200), ("10.0.0.1", 429), ("10.0.0.2", 200)]
    assert anyio.run(ask, ["10.0.0.1"]) == [("10.0.0.1", 200)], "what was closed is not counted"


@pytest.fixture(scope="module")
def tools() -> Iterator[int]:
    """The port of an MCP server with a tool that says for whom its call is counted."""

    def who(request: gr.Request = None) -> str:
        """The visitor."""
        return visitor_of(request)

    with gr.Blocks(analytics_enabled=False) as app:
        gr.api(who, api_name="who")
    options = {"app_kwargs": {"middleware": [Middleware(McpCalls)]}, "mcp_server": True}
    app.launch(**options, quiet=True, ssr_mode=False, prevent_thread_lock=True, server_name="127.0.0.1")
    yield app.server_port
    app.close()


def test_the_app_s_request_to_itself_is_counted_for_the_agent(tools):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}
    said = {}
    for address in ("127.0.0.2", "127.0.0.3"):
        connection = http.client.HTTPConnection("127.0.0.1", tools, timeout=60, source_address=(address, 0))
        accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request("POST", f"{MCP}/", json.dumps(body), accepted)
        said[address] = connection.getresponse().read().decode()
        connection.close()
    for address, answer in said.items():
        assert address in answer, said


def test_an_agent_has_so_many_calls_at_once_of_all_tools_together(monkeypatch):
    monkeypatch.setattr(endpoints, "_tool_calls", Quota(1))
    asked = SimpleNamespace(headers={HEADER: signed("10.0.0.7")}, client=SimpleNamespace(host="127.0.0.1"))

    @endpoint()
    def inner() -> str:
        return "done"

    @endpoint()
    def outer() -> str:
        return inner(request=asked)

    assert inner(request=asked) == "done"
    with pytest.raises(gr.Error, match="1 such requests from your address"):
        outer(request=asked)
    assert outer(request=None) == "done", "who is no agent has the limits of the endpoint"
