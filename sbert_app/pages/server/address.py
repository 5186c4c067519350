"""Whom a request is from, for all that is counted for each visitor: the address that it came from.

Gradio's MCP server carries out a tool call by a request to the app itself, which comes from 127.0.0.1 whoever the agent
is. It repeats the headers of the call, so one is added to each call that names the address (`pages.server.mcp`), signed
with a secret of this process: nobody else can add it.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any

HEADER = "x-sbert-lab-visitor"
_SECRET = secrets.token_hex(16)


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
