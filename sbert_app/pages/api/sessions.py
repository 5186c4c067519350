"""Plain requests to an endpoint (curl, a script): they share one session, and arguments may be left out or named.

Gradio makes a session for each request that names none: it describes every component of every page anew, 60 ms for
this app, and drops the lot. The endpoints keep nothing in a session, so all such requests may have the same one.
Browsers and gradio_client name their own.

Gradio's own clients fill in defaults before they post; curl does not. A body that is posted to an endpoint may
therefore be any of ``{"data": [all arguments]}``, ``{"data": [the first arguments]}`` and ``{"name": value, …}``.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.pages.api.endpoint import STATUS, signatures
from sbert_app.pages.server.limits import CALL, CALL_BY_NAMES, JSON, RUN, replay
from training.errors import InputError

SESSION = "plain"


class OneSession:
    """ASGI middleware: adds ``session_hash`` to the JSON objects that are posted to an endpoint without one.

    A user's mistake, which Gradio answers with status 500, gets one of its own.

    They also get the arguments that they leave out, so that clients that were written before an argument was added
    keep working. It stands inside of `BodyLimits`, which has parsed them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        asked, is_run = scope.get(JSON), posted.startswith(RUN)
        is_call = posted.startswith(CALL) and not posted.startswith(CALL_BY_NAMES)  # its event has a session of its own
        if not isinstance(asked, dict) or not (is_run or is_call):
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
        found: dict[str, int] = {}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 500:  # Gradio knows no other
                message = {**message, "status": found.get("status", 500)}
            await send(message)

        await self.app({**scope, "headers": headers, JSON: asked, STATUS: found}, replay(body, receive), sending)


def completed(asked: dict[str, Any], name: str = "", session: str | None = SESSION) -> dict[str, Any]:
    """What is asked of the endpoint ``name``: every argument in ``data``, and ``session`` if it has none.

    Raises:
        InputError: an argument is unknown, or one without a default is missing.
    """
    if session is not None and asked.get("session_hash") is None:
        asked = {**asked, "session_hash": session}
    given, signature = asked.get("data"), signatures.get(name)
    if signature is None:
        if not isinstance(given, list):
            raise InputError('the request must be a JSON object with the arguments as a list: {"data": […]}')
        return asked
    parameters = signature.parameters
    takes = ", ".join(parameters)
    if isinstance(given, list):
        if len(given) > len(parameters):
            raise InputError(f"{name} takes at most {len(parameters)} arguments: {takes}")
        rest, named = {**asked}, dict(zip(parameters, given, strict=False))
    else:  # an argument may be called data, too
        rest = {key: asked[key] for key in ("session_hash", "event_data") if key in asked}
        named = {key: value for key, value in asked.items() if key not in rest}
    if unknown := [key for key in named if key not in parameters]:
        raise InputError(f"{name} has no argument {unknown[0][:80]!r}; it takes {takes}")
    filled = {key: named.get(key, each.default) for key, each in parameters.items()}
    if missing := [key for key, value in filled.items() if value is inspect.Parameter.empty]:
        raise InputError(f"{name} needs {' and '.join(missing)}; it takes {takes}")
    return {**rest, "data": list(filled.values())}
