"""Open pages hold no connection.

Gradio's page holds one request open for good, and the app learns from its end that the page has gone. A browser allows
six connections to a host over HTTP/1.1, so a seventh tab would wait for ever. Here that request is answered at once,
and ``assets/app.js`` says by a POST to the same address when a page is left.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEARTBEAT = "/gradio_api/heartbeat/"


class ShortHeartbeats:
    """ASGI middleware: answers heartbeats itself, and turns the POST of a page that is left into the end of one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_heartbeat = scope["type"] == "http" and scope["path"].startswith(HEARTBEAT)
        if is_heartbeat and scope["method"] == "GET":
            await Response("data: ALIVE\n\n", media_type="text/event-stream")(scope, receive, send)
        elif is_heartbeat and scope["method"] == "POST":
            await self._end(scope)
            await Response(status_code=204)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _end(self, scope: Scope) -> None:
        """Let Gradio see a heartbeat that begins and breaks off: it stops what the session computes."""
        has_begun = asyncio.Event()

        async def receive() -> Message:
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                has_begun.set()

        await self.app({**scope, "method": "GET"}, receive, send)
