"""Who a request is from, for the limits that hold for each visitor: the address it came from.

Gradio's MCP server carries out a tool call by a request to the app itself, which comes from 127.0.0.1 whoever the agent
is. It repeats the headers of the call, so `McpCalls` adds one that names the address, signed with a secret of this
process: nobody else can add it. It also bounds how many connections of one address are open, as streams may be held.
"""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

MCP = "/gradio_api/mcp"
MOST_CONNECTIONS = 32  # to the MCP server, of one address
HEADER = "x-sbert-lab-visitor"

_SECRET = secrets.token_hex(16)


def signed(address: str) -> str:
    """The value of `HEADER` for an address."""
    return f"{_SECRET} {address}"


def visitor_address(address: str, headers: Mapping[str, str]) -> str:
    """The address a request came from, or that of the agent whose tool call it carries out."""
    return agent_address(headers) or address


def agent_address(headers: Mapping[str, str]) -> str:
    """The address of the agent whose tool call a request carries out; "" if it carries out none."""
    secret, _, address = headers.get(HEADER, "").partition(" ")
    return address if hmac.compare_digest(secret.encode(), _SECRET.encode()) else ""


class McpCalls:
    """ASGI middleware, see the module. What is too much is answered 429."""

    def __init__(self, app: ASGIApp, most: int = MOST_CONNECTIONS) -> None:
        self.app, self.most = app, most
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_mcp = scope["type"] == "http" and (scope["path"] == MCP or scope["path"].startswith(f"{MCP}/"))
        if not is_mcp:
            await self.app(scope, receive, send)
            return
        address = visitor_address((scope.get("client") or ("unknown", 0))[0], Headers(scope=scope))
        if self._running[address] >= self.most:
            sentence = f"{self.most} connections to the MCP server are open from your address; wait until one is closed"
            await JSONResponse({"error": sentence}, 429, {"Retry-After": "1"})(scope, receive, send)
            return
        header = (HEADER.encode(), signed(address).encode())
        others = [each for each in scope["headers"] if each[0] != header[0]]
        self._running[address] += 1
        try:
            await self.app({**scope, "headers": [*others, header]}, receive, send)
        finally:
            self._running[address] -= 1
            self._running += Counter()  # drops those that have none
