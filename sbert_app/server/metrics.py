"""The middleware that counts the requests of the documented endpoints, for ``/metrics``."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.server.endpoint import endpoints
from sbert_app.server.plain_calls import RUN
from sbert_app.services.access import LATENCY, REQUESTS

OPENAI = ("/v1/embeddings", "/v1/rerank", "/v1/models")


class CountRequests:
    """ASGI middleware: number, status and latency of requests, by endpoint. Only known names become labels."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        endpoint = path.removeprefix(RUN)
        if endpoint not in endpoints and endpoint not in OPENAI:
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            LATENCY.labels(endpoint).observe(time.perf_counter() - started)
            REQUESTS.labels(endpoint, str(status)).inc()
