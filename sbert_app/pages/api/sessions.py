"""Plain requests to an endpoint (curl, a script): they share one session, and arguments may be left out or named.

Gradio makes a session for each request that names none: it describes every component of every page anew, 60 ms for
this app, and drops the lot. The endpoints keep nothing in a session, so all such requests may have the same one.
Browsers and gradio_client name their own.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sbert_app.pages.api.endpoint import is_registered, with_all_arguments
from sbert_app.pages.server.limits import JSON, replay
from training.errors import InputError

SESSION = "plain"
RUN = "/gradio_api/run/"
CALL = "/gradio_api/call/"  # asks for an event, which belongs to a session of its own
CALL_BY_NAMES = "/gradio_api/call/v2/"


class OneSession:
    """ASGI middleware: adds ``session_hash`` to the JSON objects that are posted to an endpoint without one.

    They also get the arguments that they leave out (`with_all_arguments`), so that clients that were written before an
    argument was added keep working. It stands inside of `BodyLimits`, which has parsed them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        asked, is_run = scope.get(JSON), RUN in posted
        if not isinstance(asked, dict) or not (is_run or (CALL in posted and CALL_BY_NAMES not in posted)):
            await self.app(scope, receive, send)
            return
        try:
            asked = completed(asked, posted.rsplit("/", 1)[-1], SESSION if is_run else None)
        except InputError as error:
            await JSONResponse({"error": error.public}, status_code=400)(scope, receive, send)
            return
        await receive()  # the body as it was posted
        body = json.dumps(asked).encode()
        length = (b"content-length", str(len(body)).encode())
        headers = [*(header for header in scope["headers"] if header[0] != b"content-length"), length]
        await self.app({**scope, "headers": headers, JSON: asked}, replay(body, receive), send)


def completed(asked: dict[str, Any], endpoint: str = "", session: str | None = SESSION) -> dict[str, Any]:
    """What is asked with all arguments, and with ``session`` if it has none.

    Raises:
        InputError: an argument is unknown, or one without a default is missing.
    """
    has_session = asked.get("session_hash") is not None or session is None
    if has_session and not is_registered(endpoint):
        return asked
    asked = with_all_arguments(endpoint, asked)
    return asked if has_session else {**asked, "session_hash": session}
