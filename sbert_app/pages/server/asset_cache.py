"""Gradio's scripts and styles are compressed once, not once for each visitor.

Gradio compresses every answer as it is sent, on the thread on which all requests are answered. Plotly alone has 4.6 MB,
a quarter of a second of a core: a class that opens a page with a chart together would wait for each other. The names of
these files contain a hash of their content, so that a copy never becomes stale.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = "/assets/"
# The headers that belong to a file; others, such as cookies, to the visitor who asked for it first.
OF_A_FILE = frozenset({b"content-type", b"content-encoding", b"content-length", b"etag", b"last-modified", b"vary"})
ENCODINGS = ("br", "gzip")  # those that Gradio compresses with
MOST_BYTES = 32 * 2**20  # all files of Gradio 6.31 have 18 MB as they are, 6 MB in Brotli

Key = tuple[str, frozenset[str]]  # the path, and which of `ENCODINGS` are accepted
Answer = tuple[Message, bytes]  # its start, and the whole body


class AssetCache:
    """ASGI middleware.

    Args:
        app: what compresses its answers.
        most_bytes: the size of what is kept; beyond that, answers come from ``app``.
    """

    def __init__(self, app: ASGIApp, most_bytes: int = MOST_BYTES) -> None:
        self.app, self._room = app, most_bytes
        self._kept: dict[Key, Answer] = {}
        self._asking: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" and scope["path"].startswith(PREFIX) else None
        if headers is None or scope["method"] != "GET" or "range" in headers:
            await self.app(scope, receive, send)
            return
        accepted = headers.get("accept-encoding", "")
        key = scope["path"], frozenset(each for each in ENCODINGS if each in accepted)
        asking = self._asking.setdefault(key, asyncio.Lock())
        async with asking:  # simultaneous requests for a file share one answer; a slow reader does not hold this lock
            start, body = self._kept.get(key) or await self._ask(key, scope, receive)
        await send({**start, "headers": [*start["headers"]]})  # layers outside of this one add theirs
        await send({"type": "http.response.body", "body": body})

    async def _ask(self, key: Key, scope: Scope, receive: Receive) -> Answer:
        """The answer of ``app``, which is kept if it is a whole file for which there is room."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self.app(scope, receive, collect)
        start, *parts = messages
        body = b"".join(part.get("body", b"") for part in parts)
        is_whole = start["status"] == 200 and bool(parts) and not parts[-1].get("more_body", False)
        if is_whole and len(body) <= self._room:
            file_headers = [each for each in start["headers"] if each[0].lower() in OF_A_FILE]
            self._kept[key] = {**start, "headers": file_headers}, body
            self._room -= len(body)
        return start, body
