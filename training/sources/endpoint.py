"""Requests vectors from an OpenAI-compatible server: OpenAI, Ollama, llama.cpp, TEI, vLLM, and this app's own /v1.

    POST <url>/embeddings {"model", "input": [texts], "encoding_format": "base64"} -> a vector a text, base64 or numbers

A server may be slow, unavailable or wrong. So the size of its answer is limited, the answer is
checked, and every error is one sentence. Redirects are not followed: texts are sent only to the
host that the user named. One timeout applies to a whole request, including retries. Requests run in
their own threads, a few for each server, and end as soon as nobody waits for them.
SBERT_ENDPOINT_KEY in the environment is the key, if the server needs one. OPENAI_API_KEY is not
used, because it is meant for OpenAI's host only.
"""

import asyncio
import base64
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

import httpx2
import numpy as np

from training.errors import InputError, StoppedError, first_line
from training.names import Endpoint
from training.progress import ShouldStop

KEY = "SBERT_ENDPOINT_KEY"
# The limit for a request, until its answer is read.
SECONDS = 60.0
# The limit for each server.
REQUESTS_AT_ONCE = 4
# Seconds before each new attempt, unless the server asks for more.
DELAYS = (0.5, 1.0, 2.0, 4.0)
LONGEST_DELAY = 30.0
POLL_SECONDS = 0.1
BUSY = (429, 500, 502, 503, 504)
# The server does not accept a text of the request, or there are too many.
REFUSED = (400, 413, 422)
# The limits for the bodies of an answer and of a refusal.
MOST_BYTES = 64 << 20
MOST_ERROR_BYTES = 64 << 10
MOST_DIMENSIONS = 16_384

# By the address of a server.
_threads: dict[str, ThreadPoolExecutor] = {}


class RefusedTextsError(InputError):
    """A server has refused texts, with a status and a message. It may accept other texts, or fewer."""

    def __init__(self, sentence: str, status: int, words: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.words = words


def fetch_vectors(
    endpoint: Endpoint,
    texts: Sequence[str],
    should_stop: ShouldStop | None = None,
    seconds: float = SECONDS,
) -> np.ndarray:
    """Requests the vectors of n texts: float32 (n, D).

    RefusedTextsError if the server refuses the texts or their number; StoppedError if
    ``should_stop`` returned True; InputError if it is away, slow or busy, refuses, or does not
    answer with n vectors of finite numbers.
    """
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        # The HTTP client would raise an error that contains the key.
        raise InputError(f"{KEY} holds signs that no key has; set it again")
    # A new executor has no threads until it gets work, so one that is not needed costs nothing.
    new = ThreadPoolExecutor(REQUESTS_AT_ONCE, f"endpoint {endpoint.address}")
    threads = _threads.setdefault(endpoint.address, new)
    is_over = threading.Event()
    deadline = time.monotonic() + seconds
    request = threads.submit(lambda: asyncio.run(_ask(endpoint, list(texts), key, is_over)))
    try:
        while time.monotonic() < deadline:
            if wait([request], POLL_SECONDS).done:
                return _parse_vectors(request.result(), len(texts), endpoint.address)
            if should_stop is not None and should_stop():
                raise StoppedError
    finally:
        # The event ends a running request. One that still waits for a thread is cancelled.
        is_over.set()
        request.cancel()
    raise InputError(
        f"{endpoint.address} does not answer within {seconds:g} s; try later, or wait longer: ?timeout="
    )


async def _ask(endpoint: Endpoint, texts: list[str], key: str, is_over: threading.Event) -> bytes:
    """Returns the body of the answer; b"" if nobody waits for it any more."""
    request = asyncio.ensure_future(_post(endpoint, texts, key))
    while not is_over.is_set():
        done, _ = await asyncio.wait([request], timeout=POLL_SECONDS)
        if done:
            return request.result()
    request.cancel()
    return b""


async def _post(endpoint: Endpoint, texts: list[str], key: str) -> bytes:
    """Sends a request, again after a while if the server is busy, and returns the body of the answer."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "sbert-lab"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    url = f"{endpoint.url}/embeddings"
    body = {"model": endpoint.model, "input": texts, "encoding_format": "base64"}
    try:
        async with httpx2.AsyncClient(headers=headers, timeout=None) as client:
            # None marks the last attempt.
            for delay in (*DELAYS, None):
                async with client.stream("POST", url, json=body) as response:
                    if response.status_code == httpx2.codes.OK:
                        return await _read(response, MOST_BYTES)
                    if response.status_code not in BUSY or delay is None:
                        raise await _refusal(endpoint, response, key)
                    # Retry-After is a number of seconds, or a date, which is ignored.
                    retry_after = response.headers.get("Retry-After", "")
                if retry_after.isdecimal():
                    delay = max(delay, min(float(retry_after), LONGEST_DELAY))
                await asyncio.sleep(delay)
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        # Only the innermost error says why the connection failed.
        reason: BaseException = error
        while inner := reason.__cause__ or reason.__context__:
            reason = inner
        number = getattr(reason, "errno", None)
        words = first_line(reason)
        # Errors of name resolution have negative numbers, which `os.strerror` does not know.
        if isinstance(number, int) and number > 0:
            words = os.strerror(number)
        raise InputError(
            f"{endpoint.address} does not answer ({words}); start its server, or correct the address"
        ) from error
    raise AssertionError("unreachable")


async def _read(response: httpx2.Response, most: int) -> bytes:
    """Reads the body, and stops a little beyond ``most`` bytes."""
    data = bytearray()
    async for part in response.aiter_raw():
        data += part
        if len(data) > most:
            break
    return bytes(data)


async def _refusal(endpoint: Endpoint, response: httpx2.Response, key: str) -> InputError:
    """Explains a status other than 200 with the server's message, without the key."""
    status = response.status_code
    if 300 <= status < 400:
        return InputError(
            f"{endpoint.address} redirects to another address, which is not followed; name that one"
        )
    words = ""
    with suppress(httpx2.HTTPError):
        words = (await _read(response, MOST_ERROR_BYTES)).decode("utf-8", "replace").strip()
    # If the body is not JSON, or has another structure, it is quoted as it is.
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        body = json.loads(words)
        reason = body.get("error") or body.get("message") or body["detail"]
        if isinstance(reason, dict):
            reason = reason["message"]
        words = str(reason)
    if key:
        words = words.replace(key, "…")
    # `first_line` takes an error, whose message it shortens.
    words = first_line(Exception(words)) if words else response.reason_phrase
    attempts = f" after {len(DELAYS) + 1} attempts" if status in BUSY else ""
    advice = f"; put its key into {KEY}" if status in (401, 403) else ""
    sentence = f"{endpoint.address} refuses {endpoint.model} with status {status}{attempts}: {words}{advice}"
    if status in REFUSED:
        return RefusedTextsError(sentence, status, words)
    return InputError(sentence)


def _parse_vectors(answer: bytes, count: int, address: str) -> np.ndarray:
    """Reads the vectors of an answer in the order of the texts. InputError unless each text has a finite vector."""
    wrong = f"{address} does not answer with embeddings as OpenAI's API does"
    if len(answer) > MOST_BYTES:
        raise InputError(f"{wrong}, but with more than {MOST_BYTES >> 20} MB")
    try:
        items = json.loads(answer)["data"]
        order = [int(item.get("index", place)) for place, item in enumerate(items)]
        rows = [_embedding(item["embedding"]) for item in items]
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(f"{wrong}: {first_line(error)}") from error
    if len(rows) != count:
        raise InputError(f"{wrong}: it gives {len(rows)} vectors for {count} texts")
    indices = set[int]()
    for index in order:
        if index in indices or not 0 <= index < count:
            raise InputError(
                f"{wrong}: index {index} comes twice, or belongs to none of the {count} texts"
            )
        indices.add(index)
    for index, row in zip(order, rows, strict=True):
        is_vector = row.ndim == 1 and 1 <= len(row) <= MOST_DIMENSIONS
        if not is_vector or row.shape != rows[0].shape:
            raise InputError(
                f"{wrong}: its vectors have the shapes {rows[0].shape} and, at index {index}, {row.shape}"
            )
    vectors = np.stack(rows)[np.argsort(order)]  # (n, D)
    if not np.isfinite(vectors).all():
        raise InputError(f"{wrong}: some of its numbers are not finite")
    return vectors


def _embedding(value: str | list[float]) -> np.ndarray:
    """Converts an embedding, a list of numbers or little-endian float32 in base64, to an array."""
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
    # Numbers too large for float32 become infinite, which is reported later.
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype=np.float32)
