"""Whom a request is from, for all that is counted for each visitor: the address that it came from.

Gradio's MCP server carries out a tool call by a request to the app itself, which comes from 127.0.0.1 whoever the agent
is. It repeats the headers of the call, so one is added to each call that names the address, signed with a secret of
this process: nobody else can add it. Behind a login the client that sends those requests shows a token of its own.
"""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Any

from gradio_client import Client
from gradio_client.utils import is_file_obj_with_meta
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sbert_app.services.quota import Quota

HEADER = "x-sbert-lab-visitor"
_SECRET = secrets.token_hex(16)
MCP = "/gradio_api/mcp"
MOST_CONNECTIONS = 32  # of one address: streams may be held


def visitor_of(request: Any) -> str:
    """The address of a request (of Starlette or Gradio), or that of the agent whose tool call it carries out.

    "" where there is none, as in a test.
    """
    return agent_address(request) or getattr(getattr(request, "client", None), "host", None) or ""


def agent_address(request: Any) -> str:
    """The address of the agent whose tool call a request carries out; "" if it carries out none."""
    headers = getattr(request, "headers", None) or {}
    secret, _, address = headers.get(HEADER, "").partition(" ")
    return address if hmac.compare_digest(secret.encode(), _SECRET.encode()) else ""


def signed(address: str) -> str:
    """The value of `HEADER` for an address."""
    return f"{_SECRET} {address}"


class McpCalls:
    """ASGI middleware: signs the address of each call. More connections of one address than ``most`` get 429."""

    def __init__(self, app: ASGIApp, most: int = MOST_CONNECTIONS) -> None:
        self.app, self.open = app, Quota(most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_mcp = scope["type"] == "http" and (scope["path"] == MCP or scope["path"].startswith(f"{MCP}/"))
        if not is_mcp:
            await self.app(scope, receive, send)
            return
        address = visitor_of(HTTPConnection(scope))
        if self.open.take(address):
            sentence = f"{self.open.most} connections to the MCP server are open from your address; wait until one"
            await JSONResponse({"error": f"{sentence} is closed"}, 429, {"Retry-After": "1"})(scope, receive, send)
            return
        header = (HEADER.encode(), signed(address).encode())
        others = [each for each in scope["headers"] if each[0] != header[0]]
        try:
            await self.app({**scope, "headers": [*others, header]}, receive, send)
        finally:
            self.open.give_back(address, 1)


def show_token(server: Any, token: str) -> None:
    """Let the client of a `gradio.mcp.GradioMCPServer` send this token; the headers of an agent come before it."""

    def client() -> Client:
        if server._client_instance is None:
            server._client_instance = Client(
                server.local_url,
                download_files=False,
                verbose=False,
                analytics_enabled=False,
                ssl_verify=False,
                _skip_components=False,
                headers={"x-gradio-user": "mcp", "authorization": f"Bearer {token}"},
            )
        return server._client_instance

    server._get_or_create_client = client


def answer_in_json(server: Any) -> None:
    """Let the tools of a `gradio.mcp.GradioMCPServer` answer with JSON, as text and as structured content.

    Gradio's text is Python's, with None and single quotes, and it has no structured content.
    """
    from mcp import types

    handlers, as_content = server.mcp_server.request_handlers, server.postprocess_output_data
    call = handlers[types.CallToolRequest]

    def to_content(data: Any, root_url: str) -> list[Any]:
        content: list[Any] = []
        for each in data:
            if isinstance(each, dict | list) and not is_file_obj_with_meta(each):
                content.append(types.TextContent(type="text", text=json.dumps(each, ensure_ascii=False)))
            else:
                content += as_content([each], root_url)
        return content

    async def answer(request: Any) -> Any:
        found = await call(request)
        texts = [each.text for each in found.root.content if each.type == "text" and each.text.startswith(("{", "["))]
        if texts and not found.root.isError:
            value = json.loads(texts[0])
            found.root.structuredContent = value if isinstance(value, dict) else {"result": value}
        return found

    server.postprocess_output_data, handlers[types.CallToolRequest] = to_content, answer
