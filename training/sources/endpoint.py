"""Vectors of texts by an OpenAI-compatible server: OpenAI, Ollama, llama.cpp, TEI, vLLM, and this app's own /v1.

    POST <url>/embeddings {"model", "input": [texts], "encoding_format": "base64"} -> a vector a text, base64 or numbers

A server may be slow, away or wrong, so its answer is bounded and checked, and an error is a sentence.
Redirects are not followed: texts go to the host that the user named and to no other. The key, if the server needs one,
is SBERT_ENDPOINT_KEY in the environment. OPENAI_API_KEY is not read, because it is meant for OpenAI's host alone.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from training.errors import InputError, Stopped, first_line
from training.names import Endpoint
from training.progress import ShouldStop

KEY = "SBERT_ENDPOINT_KEY"
# The limit for one answer.
SECONDS = 120.0
# Seconds before each new attempt, unless the server asks for more.
DELAYS = (0.5, 1.0, 2.0, 4.0)
LONGEST_DELAY, POLL_SECONDS = 30.0, 0.1
BUSY = (429, 500, 502, 503, 504)
# The limits for the bodies of an answer and of a refusal.
MOST_BYTES, MOST_ERROR_BYTES = 64 << 20, 64 << 10
MOST_DIMENSIONS = 16_384


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Returns None, by which a redirect becomes an HTTPError."""


def fetch_vectors(endpoint: Endpoint, texts: Sequence[str], should_stop: ShouldStop | None = None) -> np.ndarray:
    """The vectors of one request, float32 (n, D), as the server gives them.

    Raises:
        InputError: the server is away, stays busy, refuses, or does not answer with n vectors of finite numbers.
        Stopped: ``should_stop`` returned True during a wait for a busy server.
    """
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        # The error of http.client would quote it.
        raise InputError(f"{KEY} holds signs that no key has; set it again")
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "sbert-lab"}
    body = json.dumps({"model": endpoint.model, "input": list(texts), "encoding_format": "base64"}).encode()
    request = Request(f"{endpoint.url}/embeddings", body, headers | ({"Authorization": f"Bearer {key}"} if key else {}))
    for delay in (*DELAYS, None):
        try:
            with build_opener(_NoRedirects).open(request, timeout=SECONDS) as response:
                return _vectors(_read(response, MOST_BYTES), len(texts), endpoint.address)
        except HTTPError as error:
            with error:
                if error.code not in BUSY or delay is None:
                    raise InputError(f"{endpoint.address} {_refusal(endpoint.model, error, key)}") from None
                # Retry-After is a number of seconds, or a date, which is ignored.
                retry_after = error.headers.get("Retry-After") or ""
                least = min(float(retry_after), LONGEST_DELAY) if retry_after.isdecimal() else 0
                until = time.monotonic() + max(delay, least)
                while time.monotonic() < until:
                    if should_stop is not None and should_stop():
                        raise Stopped from None
                    time.sleep(POLL_SECONDS)
        except (OSError, HTTPException, UnicodeError, OverflowError) as error:
            reason = first_line(getattr(error, "reason", None) or error)
            raise InputError(
                f"{endpoint.address} does not answer ({reason}); start its server, or correct the address"
            ) from error
    raise AssertionError("unreachable")


def _read(response: Any, most: int) -> bytes:
    """The body, cut off a little beyond ``most`` bytes."""
    data, until = bytearray(), time.monotonic() + SECONDS
    while len(data) <= most and (part := response.read1(1 << 16)):
        data += part
        if time.monotonic() > until:
            raise TimeoutError(f"its answer is not complete after {SECONDS:.0f} s")
    return bytes(data)


def _refusal(model: str, error: HTTPError, key: str) -> str:
    """The meaning of a status other than 200, with the server's own words, in which the key is not repeated."""
    if 300 <= error.code < 400:
        return "redirects to another address, which is not followed; name that one"
    try:
        words = _read(error, MOST_ERROR_BYTES).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        words = ""
    # A body that is no JSON, or has another shape, is repeated as it is.
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        reason = json.loads(words)["error"]
        words = str(reason["message"] if isinstance(reason, dict) else reason)
    words = first_line(Exception(words.replace(key, "…") if key else words)) if words else str(error.reason)
    attempts = f" after {len(DELAYS) + 1} attempts" if error.code in BUSY else ""
    advice = f"; put its key into {KEY}" if error.code in (401, 403) else ""
    return f"refuses {model} with status {error.code}{attempts}: {words}{advice}"


def _vectors(answer: bytes, count: int, address: str) -> np.ndarray:
    """The vectors of an answer in the order of the texts. InputError unless each text has one, of finite numbers."""
    wrong = f"{address} does not answer with embeddings as OpenAI's API does"
    if len(answer) > MOST_BYTES:
        raise InputError(f"{wrong}, but with more than {MOST_BYTES >> 20} MB")
    try:
        items = json.loads(answer)["data"]
        order = [int(item.get("index", place)) for place, item in enumerate(items)]
        with np.errstate(over="ignore"):
            # An embedding is a list of numbers, or little-endian float32 in base64.
            rows = [
                np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").astype(np.float32)
                if isinstance(embedding, str)
                else np.asarray(embedding, dtype=np.float32)
                for embedding in (item["embedding"] for item in items)
            ]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{wrong}: {first_line(error)}") from error
    if sorted(order) != list(range(count)):
        raise InputError(f"{wrong}: it gives {len(rows)} vectors for {count} texts, or numbers them wrongly")
    shapes = {row.shape for row in rows}
    if len(shapes) > 1 or not all(len(shape) == 1 and 1 <= shape[0] <= MOST_DIMENSIONS for shape in shapes):
        raise InputError(f"{wrong}: its vectors have the shapes {', '.join(map(str, sorted(shapes)[:3]))}")
    vectors = np.stack(rows)[np.argsort(order)]
    if not np.isfinite(vectors).all():
        raise InputError(f"{wrong}: some of its numbers are not finite")
    return vectors
