"""Limits on what a request may hold, enforced before anything parses it.

- **Bodies** of requests have at most ``MOST_BODY`` bytes (413) and arrive within ``BODY_SECONDS`` (408).
- **Uploads** have the size of ``--upload-limit-mb``, all files of a request together (413); an address may upload ten
  times as much in an hour (429), and the folder that holds uploads is bounded, as is the disk (507). An upload that
  is cut off leaves nothing behind.

`BodyLimits` stands inside of the login: who may not ask at all has been refused before. It reads each body but those of
uploads whole.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.formats import format_bytes
from sbert_app.services.access import Quota, visitor_of
from sbert_app.services.store.temp_folder import folder_size, is_full

MOST_BODY = 10 << 20  # bytes: 10,000 sentences of 1,000 characters
BODY_SECONDS = 60.0  # within which a body has to arrive
DRAIN_SECONDS = 10.0  # for which the rest of a refused body is read
MOST_DRAINED = 64 << 20  # bytes of a refused body that are read, so that the client reads the answer
ENVELOPE = 1 << 20  # bytes of an upload that are not its files: boundaries, headers
UPLOADS_IN_AN_HOUR = 10  # times the largest upload, from one address
HOUR = 3600.0
RESERVED = 1 << 20  # bytes of the disk that uploads leave free

UPLOAD = "/gradio_api/upload"


@dataclass(frozen=True)
class UploadLimits:
    """How much may be uploaded: bytes in one request, bytes in ``folder`` at any time."""

    folder: Path
    request: int
    folder_total: int


class Refused(Exception):  # noqa: N818 - not an error of the program
    """A request that is answered with ``status`` and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def openai_error(message: str, kind: str = "invalid_request_error") -> dict[str, object]:
    """The body of an error as OpenAI's clients read it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class BodyLimits:
    """ASGI middleware, see the module."""

    def __init__(self, app: ASGIApp, uploads: UploadLimits) -> None:
        self.app, self.uploads = app, uploads
        self.uploaded = Quota(UPLOADS_IN_AN_HOUR * uploads.request, HOUR)  # bytes of each address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self.app(scope, receive, send)
            return
        is_upload = scope["path"].rstrip("/") == UPLOAD
        most = self.uploads.request + ENVELOPE if is_upload else MOST_BODY
        length, incoming = _content_length(Headers(scope=scope)), _Incoming(receive)
        try:
            if length > most:
                raise _too_large(is_upload, most, length)
            if is_upload:
                self._check_room(scope, length or most)  # one that does not say its size counts as the largest
                await self.app(scope, _limited(incoming, most), send)
            else:
                body = await _read(incoming, most)
                if body is None:
                    return  # the client has gone
                await self.app(scope, replay(_with_whole_characters(body), receive), send)
        except Refused as refusal:
            await incoming.drain()
            is_openai = scope["path"].startswith("/v1/")
            content = openai_error(refusal.sentence) if is_openai else {"error": refusal.sentence}
            answer = JSONResponse(content, refusal.status, {"Connection": "close"})
            await answer(scope, receive, send)

    def _check_room(self, scope: Scope, size: int) -> None:
        """Refused if an upload of ``size`` bytes does not fit into the folder, on the disk, or the visitor's hour."""
        folder, most = self.uploads.folder, self.uploads.folder_total
        folder.mkdir(parents=True, exist_ok=True)
        if size + RESERVED > shutil.disk_usage(folder).free:
            raise Refused(507, f"the disk is full: there is no space for {format_bytes(size)}")
        if size + folder_size(folder) > most:
            raise Refused(507, is_full(most))
        wait = self.uploaded.take(visitor_of(HTTPConnection(scope)), size)
        if wait:
            minutes = max(1, round(wait / 60))
            raise Refused(429, f"too much was uploaded from your address within an hour; try again in {minutes} min")


class _Incoming:
    """``receive``, which knows whether the body has arrived completely."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._done = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._done |= message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Read on for a while and drop it: a client that is still sending would not see the answer."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._done and size < MOST_DRAINED:
                    size += len((await self()).get("body", b""))


def _content_length(headers: Headers) -> int:
    """What the request says of its size; 0 if it says nothing."""
    length = headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() else 0


def _too_large(is_upload: bool, most: int, length: int = 0) -> Refused:
    has = f"has {length:,} bytes" if length else "is too large"
    if is_upload:
        return Refused(413, f"the upload {has}; at most {format_bytes(most - ENVELOPE)} are taken, all files together")
    return Refused(413, f"the request {has}; at most {format_bytes(most)} are taken: for more, upload a file")


async def _read(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if the client goes away. Refused if it has more than ``most`` bytes or takes too long."""
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
                if size > most:
                    raise _too_large(False, most)
    except TimeoutError:
        raise Refused(408, f"the request did not arrive within {BODY_SECONDS:g} s") from None
    return b"".join(parts)


def _with_whole_characters(body: bytes) -> bytes:
    """JSON with "?" for halves of characters (lone surrogates), which no encoding holds; any other body as it is."""
    if b"\\ud" not in body.lower():
        return body
    try:
        return json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return body


def _limited(receive: Receive, most: int) -> Receive:
    """``receive`` for an upload: one that is too large or cut off ends as Gradio's parser removes its files."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MultiPartException("the upload was cut off")
        size += len(message.get("body", b""))
        if size > most:
            raise MultiPartException(f"the upload exceeds the maximum allowed size of {format_bytes(most)}")
        return message

    return limited


def replay(body: bytes, receive: Receive) -> Receive:
    """Delivers the body that has been read, then what ``receive`` says, such as that the client has gone."""
    delivered = False

    async def delivering() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return delivering
