"""Limits on what a request may hold, enforced before anything parses it.

- **Bodies** of requests have at most ``MOST_BODY`` bytes, those of pages and logins fewer (413), and arrive within
  ``BODY_SECONDS`` (408).
- **Files** in requests are uploads: an address in the place of one is refused (400).
- **Uploads** have the size of ``--upload-limit-mb``, all files of a request together, of which there are ``MOST_FILES``
  (413); an address may upload ten times as much in an hour (429), and the folder that holds uploads is bounded, as is
  the disk (507). An upload that is cut off leaves nothing behind.

`BodyLimits` stands inside of the login: who may not ask at all has been refused before. It reads each body but those of
uploads whole.
"""

import asyncio
import json
import shutil
import time
from contextlib import suppress
from pathlib import Path

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.formats import format_bytes
from sbert_app.server.errors import error_answer
from sbert_app.services.access import Quota, visitor_of
from sbert_app.services.store.temp_folder import is_full
from training.atomic import folder_size

# Bytes of a body: 10,000 sentences of 1,000 characters.
MOST_BODY = 10 << 20
# Bytes of what a page sends, and gradio_client and agents do: more than that is an upload.
MOST_EVENT = 1 << 20
# Bytes of a name, a password and the address of a page.
MOST_LOGIN = 10_000
# A body has to arrive within this time.
BODY_SECONDS = 60.0
# The rest of a refused body is read for this time, and up to so many bytes, so that the client reads the answer.
DRAIN_SECONDS = 10.0
MOST_DRAINED = 64 << 20
# Bytes of an upload that are boundaries and headers, and not its files.
ENVELOPE = 1 << 20
# Files of an upload. Each takes a block of the disk, however small it is.
MOST_FILES = 10
BLOCK = 4096
# The size of the folder is measured again after this time.
MEASURE_SECONDS = 60.0
# An address may upload so many times the largest upload within an hour.
UPLOADS_IN_AN_HOUR = 10
HOUR = 3600.0
# Uploads leave so many bytes of the disk free.
RESERVED = 1 << 20

UPLOAD = "/gradio_api/upload"


class Refused(Exception):  # noqa: N818 - not an error of the program
    """A request that is answered with ``status`` and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class BodyLimits:
    """ASGI middleware that enforces the limits of this module.

    Args:
        folder: the folder of uploads and results.
        of_upload: the most bytes of one upload.
        of_folder: the most bytes of all files in ``folder`` at any time.
    """

    def __init__(self, app: ASGIApp, folder: Path, of_upload: int, of_folder: int) -> None:
        self.app, self.folder, self.of_upload, self.of_folder = app, folder, of_upload, of_folder
        # The bytes of each address are counted.
        self.uploaded = Quota(UPLOADS_IN_AN_HOUR * of_upload, HOUR)
        # The bytes in the folder, and when they were counted.
        self._size = 0
        self._measured = -MEASURE_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self.app(scope, receive, send)
            return
        # Each page has an address of its own for uploads.
        is_upload = scope["path"].rstrip("/").endswith(UPLOAD)
        most = self.of_upload + ENVELOPE if is_upload else _most_of(scope["path"])
        headers = Headers(scope=scope)
        announced = headers.get("content-length", "0")
        length = int(announced) if announced.isascii() and announced.isdigit() else 0
        packed = (headers.get("content-encoding") or "identity").lower()
        incoming = _Incoming(receive)
        try:
            if packed != "identity" or length > most:
                sentence = f"the request is packed by {packed[:20]}; send it as it is"
                raise _too_large(is_upload, most, length) if packed == "identity" else Refused(415, sentence)
            if is_upload:
                # An upload that does not state its size counts as the largest.
                await self._check_room(scope, length or most)
                await self.app(scope, _limited(incoming, most, _boundary_of(headers)), send)
            else:
                body = await _read(incoming, most)
                # Otherwise the client has gone.
                if body is None:
                    return
                await self.app(scope, replay(_checked(body, scope["path"]), receive), send)
        except Refused as refusal:
            await incoming.drain()
            answer = error_answer(scope["path"], refusal.status, refusal.sentence, {"Connection": "close"})
            await answer(scope, receive, send)

    async def _check_room(self, scope: Scope, size: int) -> None:
        """Raises Refused if ``size`` bytes are too many for the folder, the disk or the visitor's hour."""
        self.folder.mkdir(parents=True, exist_ok=True)
        size = max(size, MOST_FILES * BLOCK)
        if size + RESERVED > shutil.disk_usage(self.folder).free:
            raise Refused(507, f"the disk is full: there is no space for {format_bytes(size)}")
        # The folder is walked in a thread, and rarely, as it may have many files.
        if time.monotonic() - self._measured >= MEASURE_SECONDS:
            self._measured = time.monotonic()
            self._size = await to_thread.run_sync(folder_size, self.folder, BLOCK)
        if size + self._size > self.of_folder:
            self._measured = -MEASURE_SECONDS
            raise Refused(507, is_full(self.of_folder))
        if wait := self.uploaded.take(visitor_of(HTTPConnection(scope)), size):
            minutes = max(1, round(wait / 60))
            raise Refused(429, f"too much was uploaded from your address within an hour; try again in {minutes} min")
        self._size += size


def _most_of(path: str) -> int:
    """The most bytes of a body that is no upload."""
    if path == "/login":
        return MOST_LOGIN
    return MOST_EVENT if "/gradio_api/" in path else MOST_BODY


class _Incoming:
    """A ``receive`` that knows whether the body has arrived completely."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._done = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._done |= message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Reads the rest of a body for a while, as a client that is still sending would not see the answer."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._done and size < MOST_DRAINED:
                    size += len((await self()).get("body", b""))


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


def _checked(body: bytes, path: str) -> bytes:
    """JSON with "?" for halves of characters (lone surrogates), which no encoding holds; any other body as it is.

    Refused if a file of an event has an address in place of a path, as Gradio would fetch it, whatever its size.
    """
    has_halves = b"\\ud" in body.lower()
    is_event = "/gradio_api/" in path
    if not has_halves and not is_event:
        return body
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return body
    # Looking through ten million bytes of other requests would take seconds in which nobody is answered.
    values = [content] if is_event else []
    while values:
        value = values.pop()
        if isinstance(value, dict):
            if str(value.get("path")).strip().lower().startswith(("http:", "https:", "data:")):
                raise Refused(400, "a file is given by its address; upload it first: POST it to /gradio_api/upload")
            values += value.values()
        elif isinstance(value, list):
            values += value
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace") if has_halves else body


def _boundary_of(headers: Headers) -> str:
    """The boundary of a form, "" if there is none."""
    _, _, value = headers.get("content-type", "").partition("boundary=")
    return value.partition(";")[0].strip().strip('"')


def _limited(receive: Receive, most: int, boundary: str) -> Receive:
    """A ``receive`` that ends an upload that is too large or cut off in a way that makes Gradio remove its files."""
    # A boundary stands before each file and after the last one.
    mark = f"--{boundary}".encode("latin-1", "replace")
    size = 0
    marks = 0
    end = b""

    async def limited() -> Message:
        nonlocal size, marks, end
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MultiPartException("the upload was cut off")
        body = message.get("body", b"")
        size += len(body)
        if size > most:
            raise MultiPartException(f"the upload exceeds the maximum allowed size of {format_bytes(most)}")
        # A boundary may be cut by the end of a message.
        piece = end + body
        marks += piece.count(mark)
        end = piece[len(piece) - len(mark) + 1 :] if len(mark) > 1 else b""
        if marks > MOST_FILES + 1:
            raise MultiPartException(f"the upload has more than {MOST_FILES} files; send them in several requests")
        return message

    return limited


def replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that delivers a body that has been read, and then the messages of ``receive``."""
    delivered = False

    async def delivering() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return delivering
