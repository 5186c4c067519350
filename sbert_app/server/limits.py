"""Limits on what a request may hold, enforced before anything parses it.

- **Bodies** of requests have at most ``MOST_BODY`` bytes, or fewer for pages and logins (413), and
  arrive within ``BODY_SECONDS`` (408).
- **Files** in requests must have been uploaded: an address in place of a file is refused (400).
- **Uploads** have at most ``MOST_FILES`` files, and ``--upload-limit-mb`` in all (413). An address
  may upload ten times as much in an hour (429), and the folder of uploads and the disk must have
  space for it (507). An upload that is cut off leaves nothing behind.

`BodyLimits` comes after the login, which has refused everybody else. It reads each body as a whole,
except uploads.
"""

import asyncio
import json
import math
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
from sbert_app.services.store.temp_folder import full_message
from training.atomic import folder_size

# The maximum size of a body in bytes: 10,000 sentences of 1,000 characters.
MOST_BODY = 10 << 20
# The maximum size of a request of a page, gradio_client or an agent. Anything larger should be an
# upload.
MOST_EVENT = 1 << 20
# The maximum size of a login: a name, a password and the address of a page.
MOST_LOGIN = 10_000
# A body has to arrive within this time.
BODY_SECONDS = 60.0
# After refusing a request, at most this much of its body is drained, so that the client sees the
# answer, not a reset.
DRAIN_SECONDS = 10.0
MOST_DRAINED = 64 << 20
# The maximum size of the boundaries and headers of an upload, which are sent beside its files.
ENVELOPE = 1 << 20
# The maximum number of files of an upload. Even an empty file takes a block of the disk.
MOST_FILES = 10
BLOCK = 4096
# The size of the folder is measured again after this time.
MEASURE_SECONDS = 60.0
# An address may upload this multiple of the largest upload within an hour.
UPLOADS_IN_AN_HOUR = 10
HOUR = 3600.0
# The bytes of the disk that uploads leave free.
RESERVED = 1 << 20

UPLOAD = "/gradio_api/upload"


class RefusedRequestError(Exception):
    """A request is refused, and answered with ``status`` and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class BodyLimits:
    """ASGI middleware that enforces the limits of this module.

    Args:
        folder: the folder of uploads and results.
        max_upload: the maximum size of an upload in bytes.
        max_folder: the maximum size of ``folder`` in bytes.
    """

    def __init__(self, app: ASGIApp, folder: Path, max_upload: int, max_folder: int) -> None:
        self.app = app
        self.folder = folder
        self.max_upload = max_upload
        self.max_folder = max_folder
        # The bytes that each address has uploaded.
        self.uploaded = Quota(UPLOADS_IN_AN_HOUR * max_upload, HOUR)
        # The size of the folder in bytes, and the time of its last measurement.
        self._size = 0
        self._measured_at = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self.app(scope, receive, send)
            return
        incoming = _Incoming(receive)
        try:
            await self._pass_on(scope, incoming, send)
        except RefusedRequestError as refusal:
            await incoming.drain()
            # A part of the body may still be unread, so no further request can follow it.
            headers = {"Connection": "close"}
            answer = error_answer(scope["path"], refusal.status, str(refusal), headers)
            await answer(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on to the app. Raises RefusedRequestError if it breaks a limit."""
        path = scope["path"]
        # Each page has its own address for uploads.
        is_upload = path.rstrip("/").endswith(UPLOAD)
        most = MOST_BODY
        if is_upload:
            # Boundaries and headers are sent beside the files.
            most = self.max_upload + ENVELOPE
        elif path == "/login":
            most = MOST_LOGIN
        elif "/gradio_api/" in path:
            most = MOST_EVENT
        headers = Headers(scope=scope)
        encoding = (headers.get("content-encoding") or "identity").lower()
        if encoding != "identity":
            raise RefusedRequestError(
                415, f"the request is packed by {encoding[:20]}; send it as it is"
            )
        # 0 stands for an unknown length.
        length = 0
        announced = headers.get("content-length", "")
        if announced.isascii() and announced.isdigit():
            length = int(announced)
        if length > most:
            raise _too_large(is_upload, most, length)
        if is_upload:
            # Without a content length, the upload counts as the largest one.
            await self._check_room(scope, length or most)
            _, _, boundary = headers.get("content-type", "").partition("boundary=")
            boundary = boundary.partition(";")[0].strip().strip('"')
            await self.app(scope, _limit_upload(receive, most, boundary), send)
            return
        body = await _read(receive, most)
        # None: the client has disconnected.
        if body is not None:
            body = _check_body(body, path)
            await self.app(scope, replay(body, receive), send)

    async def _check_room(self, scope: Scope, size: int) -> None:
        """Raises RefusedRequestError if the disk, the folder or the visitor's quota has no space for ``size`` bytes.

        Otherwise the bytes are counted in the size of the folder and in the quota.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Even the smallest upload may take a block for each of its files.
        size = max(size, MOST_FILES * BLOCK)
        if size + RESERVED > shutil.disk_usage(self.folder).free:
            raise RefusedRequestError(
                507, f"the disk is full: there is no space for {format_bytes(size)}"
            )
        # The folder is measured in a thread, and rarely, as it may have many files.
        if time.monotonic() - self._measured_at >= MEASURE_SECONDS:
            self._measured_at = time.monotonic()
            # Each file counts as one block of the disk at least.
            self._size = await to_thread.run_sync(folder_size, self.folder, BLOCK)
        if size + self._size > self.max_folder:
            # Files may be deleted, so the folder is measured again for the next upload.
            self._measured_at = -math.inf
            raise RefusedRequestError(507, full_message(self.max_folder))
        # The seconds until the visitor may upload as much; 0 if the bytes were counted.
        wait = self.uploaded.take(visitor_of(HTTPConnection(scope)), size)
        if wait:
            minutes = max(1, round(wait / 60))
            sentence = f"too much was uploaded from your address within an hour; try again in {minutes} min"
            raise RefusedRequestError(429, sentence)
        self._size += size


class _Incoming:
    """A ``receive`` that knows whether the whole body has arrived."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._done = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._done |= message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Reads the rest of a body for a while, because a client that is still sending does not read the answer."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._done and size < MOST_DRAINED:
                    message = await self()
                    size += len(message.get("body", b""))


def _too_large(is_upload: bool, most: int, length: int = 0) -> RefusedRequestError:
    """Returns the error for a body of more than ``most`` bytes. A length of 0 is unknown."""
    size = f"has {length:,} bytes" if length else "is too large"
    if is_upload:
        sentence = f"the upload {size}; at most {format_bytes(most - ENVELOPE)} are taken, all files together"
    else:
        sentence = (
            f"the request {size}; at most {format_bytes(most)} are taken: for more, upload a file"
        )
    return RefusedRequestError(413, sentence)


async def _read(receive: Receive, most: int) -> bytes | None:
    """Returns the whole body, or None if the client disconnects.

    Raises RefusedRequestError if the body has more than ``most`` bytes or takes too long.
    """
    parts: list[bytes] = []
    size = 0
    has_more = True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                has_more = message.get("more_body", False)
                if size > most:
                    raise _too_large(is_upload=False, most=most)
    except TimeoutError:
        raise RefusedRequestError(
            408, f"the request did not arrive within {BODY_SECONDS:g} s"
        ) from None
    return b"".join(parts)


def _check_body(body: bytes, path: str) -> bytes:
    """Returns the body, in which "?" replaces lone surrogates of JSON, because they cannot be encoded.

    Raises RefusedRequestError if a file of an event has an address in place of a path, because
    Gradio would fetch it.
    """
    has_surrogates = b"\\ud" in body.lower()
    is_event = "/gradio_api/" in path
    if not has_surrogates and not is_event:
        return body
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return body
    # Only events have files. Other requests may have ten million bytes, and to look through them would
    # block the event loop for seconds.
    values = [content] if is_event else []
    while values:
        value = values.pop()
        if isinstance(value, dict):
            path_of_file = str(value.get("path")).strip().lower()
            if path_of_file.startswith(("http:", "https:", "data:")):
                sentence = (
                    "a file is given by its address; upload it first: POST it to /gradio_api/upload"
                )
                raise RefusedRequestError(400, sentence)
            values += value.values()
        elif isinstance(value, list):
            values += value
    if has_surrogates:
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return body


def _limit_upload(receive: Receive, most: int, boundary: str) -> Receive:
    """Returns a ``receive`` that fails if an upload is too large or cut off, so that Gradio removes its files."""
    # A boundary comes before each file and after the last one.
    mark = f"--{boundary}".encode("latin-1", "replace")
    size = 0
    num_marks = 0
    # The end of the messages before, one byte shorter than a boundary, so that it holds none.
    end = b""

    async def receive_limited() -> Message:
        nonlocal size, num_marks, end
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MultiPartException("the upload was cut off")
        body = message.get("body", b"")
        size += len(body)
        if size > most:
            # Gradio answers a message with "maximum allowed size" by 413, and others by 400.
            raise MultiPartException(
                f"the upload exceeds the maximum allowed size of {format_bytes(most)}"
            )
        # A boundary may be split between two messages.
        piece = end + body
        num_marks += piece.count(mark)
        end = piece[-(len(mark) - 1) :]
        if num_marks > MOST_FILES + 1:
            raise MultiPartException(
                f"the upload has more than {MOST_FILES} files; send them in several requests"
            )
        return message

    return receive_limited


def replay(body: bytes, receive: Receive) -> Receive:
    """Returns a ``receive`` that delivers a body that has been read, and then the messages of ``receive``."""
    delivered = False

    async def receive_replay() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_replay
