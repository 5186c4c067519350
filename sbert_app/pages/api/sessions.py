"""Plain requests to an endpoint (curl, a script): they share one session, and arguments may be left out or named.

Gradio makes a session for each request that names none: it describes every component of every page anew, 60 ms for
this app, and drops the lot. The endpoints keep nothing in a session, so all such requests may have the same one.
Browsers and gradio_client name their own.
"""

from __future__ import annotations

import json

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.pages.api.arguments import is_registered, with_all_arguments
from training.errors import InputError

SESSION = "plain"
RUN = "/gradio_api/run/"
CALL = "/gradio_api/call/"  # asks for an event, which belongs to a session of its own
CALL_BY_NAMES = "/gradio_api/call/v2/"


class OneSession:
    """ASGI middleware: adds ``session_hash`` to the JSON bodies that are posted to an endpoint without one.

    A body also gets the arguments that it leaves out (see `sbert_app.pages.api.arguments`), so that clients that were
    written before an argument was added keep working.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        is_run = RUN in posted
        if not is_run and (CALL not in posted or CALL_BY_NAMES in posted):
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        try:
            body = completed(body, posted.rsplit("/", 1)[-1], SESSION if is_run else None)
        except InputError as error:
            await JSONResponse({"error": error.public}, status_code=400)(scope, receive, send)
            return
        length = (b"content-length", str(len(body)).encode())
        headers = [*(header for header in scope["headers"] if header[0] != b"content-length"), length]
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()  # that the client has gone
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app({**scope, "headers": headers}, replay, send)


def completed(body: bytes, endpoint: str = "", session: str | None = SESSION) -> bytes:
    """The body with all arguments, and with ``session`` if it has none; unchanged if it is no JSON object.

    Raises:
        InputError: an argument is unknown, or one without a default is missing.
    """
    try:
        asked = json.loads(body)
    except ValueError:
        return body
    if not isinstance(asked, dict):
        return body
    has_session = asked.get("session_hash") is not None or session is None
    if has_session and not is_registered(endpoint):
        return body
    asked = with_all_arguments(endpoint, asked)
    return json.dumps(asked if has_session else {**asked, "session_hash": session}).encode()
