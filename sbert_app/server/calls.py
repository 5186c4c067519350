"""Middleware for calls of the documented endpoints: plain calls are completed, and all are counted for ``/metrics``.

Gradio makes a session for each request that names none: it describes every component of every page anew, a tenth of a
second for this app, and drops the lot. The endpoints keep nothing in a session, so all plain calls (curl, a script) may
have the same one. Browsers and gradio_client name their own.

Gradio's own clients fill in defaults before they post; curl does not. A body that is posted to an endpoint may
therefore be any of ``{"data": [all arguments]}``, ``{"data": [the first arguments]}`` and ``{"name": value, …}``.
"""

import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.server.endpoint import STATUS, endpoints
from sbert_app.server.limits import replay
from sbert_app.services.access import LATENCY, REQUESTS
from training.errors import InputError

SESSION = "plain"
RUN, CALL, API = "/gradio_api/run/", "/gradio_api/call/", "/gradio_api/api/"
# There the object itself holds the arguments, and Gradio fills in those that are left out.
CALL_BY_NAMES = f"{CALL}v2/"


class PlainCalls:
    """ASGI middleware: completes the calls that are posted to endpoints, and refuses other bodies.

    A user's mistake, which Gradio answers with status 500, gets one of its own. Arguments that are left out have their
    defaults, so that clients that were written before an argument was added keep working.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        if not path.startswith((RUN, CALL, API)) or path.startswith(CALL_BY_NAMES):
            await self.app(scope, receive, send)
            return
        try:
            # The event of a call has a session of its own.
            session = None if path.startswith(CALL) else SESSION
            body = completed(json.loads(await Request(scope, receive).body()), path.rsplit("/", 1)[-1], session)
        except InputError as error:
            await JSONResponse({"error": error.public}, 400)(scope, receive, send)
            return
        except (ValueError, RecursionError):
            await JSONResponse({"error": "the request is not valid JSON"}, 400)(scope, receive, send)
            return
        posted, mistake = json.dumps(body).encode(), dict[str, int]()
        # curl says that it sends a form.
        own = {b"content-length": str(len(posted)).encode(), b"content-type": b"application/json"}
        headers = [*(header for header in scope["headers"] if header[0] not in own), *own.items()]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 500:
                message = {**message, "status": mistake.get("status", 500)}
            await send(message)

        await self.app({**scope, "headers": headers, STATUS: mistake}, replay(posted, receive), sending)


NO_CALL = 'the request must be a JSON object with the arguments as a list: {"data": […]}'


def completed(body: Any, name: str = "", session: str | None = SESSION) -> dict[str, Any]:
    """The body for Gradio: every argument of the endpoint ``name`` in ``data``, and ``session`` if it has none.

    InputError if the body is no object, an argument is unknown, or one without a default is missing.
    """
    if not isinstance(body, dict):
        raise InputError(NO_CALL)
    if session is not None and body.get("session_hash") is None:
        body = {**body, "session_hash": session}
    data, called = body.get("data"), endpoints.get(name)
    if called is None:
        if not isinstance(data, list):
            raise InputError(NO_CALL)
        return body
    if isinstance(data, list):
        parameters = called.signature.parameters
        if len(data) > len(parameters):
            raise InputError(f"{name} takes at most {len(parameters)} arguments: {', '.join(parameters)}")
        rest, named = body, dict(zip(parameters, data, strict=False))
    else:
        # An argument may be called data, too.
        rest = {key: body[key] for key in ("session_hash", "event_data") if key in body}
        named = {key: value for key, value in body.items() if key not in rest}
    return {**rest, "data": list(called.complete(named).values())}


# The paths of the clients of other services (`sbert_app.server.v1`).
OPENAI = (
    *("/v1/embeddings", "/v1/embed", "/v1/rerank", "/v1/score", "/v1/models", "/v2/embed", "/v2/rerank"),
    *("/embeddings", "/embed", "/rerank", "/score", "/similarity", "/api/embed", "/api/embeddings"),
)


class CountRequests:
    """ASGI middleware: number, status and latency of requests, by endpoint. Only known names become labels."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        endpoint = path if path in OPENAI else path.removeprefix(RUN).removeprefix("/api/")
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
