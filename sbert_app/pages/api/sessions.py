"""Plain requests to an endpoint (curl, a script): they share one session, and arguments may be left out or named.

Gradio makes a session for each request that names none: it describes every component of every page anew, 60 ms for
this app, and drops the lot. The endpoints keep nothing in a session, so all such requests may have the same one.
Browsers and gradio_client name their own.
"""

from __future__ import annotations

import json

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.pages.api.arguments import with_all_arguments
from training.errors import InputError

SESSION = "plain"
RUN = "/gradio_api/run/"


class OneSession:
    """ASGI middleware: adds ``session_hash`` to the JSON bodies that are posted to an endpoint without one.

    Such a body also gets the arguments that it leaves out (see `sbert_app.pages.api.arguments`).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_run = scope["type"] == "http" and scope["method"] == "POST" and RUN in scope["path"]
        if not is_run:
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        try:
            body = completed(body, scope["path"].rsplit("/", 1)[-1])
        except InputError as error:
            await JSONResponse({"error": str(error)}, status_code=400)(scope, receive, send)
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


def completed(body: bytes, endpoint: str = "") -> bytes:
    """The body with a session and all arguments; unchanged if it has a session, or is no JSON object.

    Raises:
        InputError: an argument is unknown, or one without a default is missing.
    """
    try:
        asked = json.loads(body)
    except ValueError:
        return body
    if not isinstance(asked, dict) or asked.get("session_hash") is not None:
        return body
    return json.dumps({**with_all_arguments(endpoint, asked), "session_hash": SESSION}).encode()
