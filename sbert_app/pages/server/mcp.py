"""Calls of agents to Gradio's MCP server: whom they are from, how many connections are open, how they pass the login.

A call that waits in the queue is carried out by requests of a client to the app itself. Each names the agent's address
(`address`). Behind a login that client has to show who it is, as everybody has; Gradio's own has nothing to show.
"""

from __future__ import annotations

from typing import Any

from gradio_client import Client
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sbert_app.pages.server.address import HEADER, signed, visitor_of
from sbert_app.services.quota import Quota

MCP = "/gradio_api/mcp"
MOST_CONNECTIONS = 32  # of one address: streams may be held


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
