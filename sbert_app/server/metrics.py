"""Counts requests for ``/metrics``."""

import time

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.services.access import LATENCY, REQUESTS


class CountRequests:
    """ASGI middleware that counts, by route, the requests to the API, their status and their latency."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            # The router has set the route. Its address is the label, which a visitor cannot choose.
            # The routes of the API have tags; the login, the pages and unknown addresses have none.
            route = scope.get("route")
            if isinstance(route, APIRoute) and route.tags:
                LATENCY.labels(route.path).observe(time.perf_counter() - started)
                REQUESTS.labels(route.path, str(status)).inc()
