"""Vectors of texts by an OpenAI-compatible server: OpenAI, Ollama, llama.cpp, TEI, vLLM, and this app's own /v1.

    POST <url>/embeddings {"model", "input": [texts], "encoding_format": "base64"} -> a vector a text, base64 or numbers

A server may be slow, away, or wrong: an answer is bounded in size and time, checked, and what is wrong is one sentence.
Redirects are not followed, so that texts go to the host that was named and to no other. The key, if it asks for one, is
SBERT_ENDPOINT_KEY in the environment; OPENAI_API_KEY is not read: it is meant for OpenAI, and any host can be named.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from training.errors import InputError, Stopped, first_line
from training.names import Endpoint
from training.progress import ShouldStop

KEY = "SBERT_ENDPOINT_KEY"
SECONDS = 120.0  # for one answer
DELAYS = (0.5, 1.0, 2.0, 4.0)  # seconds before each new attempt, unless the server asks for more
LONGEST_DELAY, POLL_SECONDS = 30.0, 0.1
BUSY = (429, 500, 502, 503, 504)
MOST_BYTES, MOST_ERROR_BYTES = 64 << 20, 64 << 10  # of an answer
MOST_DIMENSIONS = 16_384


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: the redirect becomes an error."""


def fetch_vectors(endpoint: Endpoint, texts: Sequence[str], should_stop: ShouldStop | None = None) -> np.ndarray:
    """The vectors of one request, float32 (n, D), as the server gives them.

    Raises:
        InputError: the server is away, stays busy, refuses, or does not answer with n vectors of finite numbers.
        Stopped: ``should_stop`` said yes while a busy server was waited for.
    """
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):  # the error of http.client would quote it
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
                asked = error.headers.get("Retry-After") or ""  # seconds, or a date
                _wait(max(delay, min(float(asked), LONGEST_DELAY) if asked.isdecimal() else 0), should_stop)
        except (OSError, HTTPException, UnicodeError, OverflowError) as error:
            reason = first_line(getattr(error, "reason", None) or error)
            raise InputError(
                f"{endpoint.address} does not answer ({reason}); start its server, or correct the address"
            ) from error
    raise AssertionError("unreachable")


def _read(response: Any, most: int) -> bytes:
    """The body, or of one that is too long a little more than ``most`` bytes."""
    data, until = bytearray(), time.monotonic() + SECONDS
    while len(data) <= most and (part := response.read1(1 << 16)):
        data += part
        if time.monotonic() > until:
            raise TimeoutError(f"its answer is not complete after {SECONDS:.0f} s")
    return bytes(data)


def _wait(seconds: float, should_stop: ShouldStop | None) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if should_stop is not None and should_stop():
            raise Stopped
        time.sleep(POLL_SECONDS)


def _refusal(model: str, error: HTTPError, key: str) -> str:
    """What a status other than 200 means, with what the server says about it, in which the key is not repeated."""
    if 300 <= error.code < 400:
        return "redirects to another address, which is not followed; name that one"
    try:
        said = _read(error, MOST_ERROR_BYTES).decode("utf-8", "replace").strip()
        found = json.loads(said)["error"]
        said = str(found["message"] if isinstance(found, dict) else found)
    except (OSError, HTTPException):
        said = ""
    except (ValueError, LookupError, TypeError, RecursionError):  # no JSON, or another shape: said as it is
        pass
    said = first_line(Exception(said.replace(key, "…") if key else said)) if said else str(error.reason)
    tried = f" after {len(DELAYS) + 1} attempts" if error.code in BUSY else ""
    advice = f"; put its key into {KEY}" if error.code in (401, 403) else ""
    return f"refuses {model} with status {error.code}{tried}: {said}{advice}"


def _vectors(answer: bytes, count: int, address: str) -> np.ndarray:
    """The vectors of an answer in the order of the texts. InputError if there is not one of finite numbers for each."""
    wrong = f"{address} does not answer with embeddings as OpenAI's API does"
    if len(answer) > MOST_BYTES:
        raise InputError(f"{wrong}, but with more than {MOST_BYTES >> 20} MB")
    try:
        items = json.loads(answer)["data"]
        order = [int(item.get("index", place)) for place, item in enumerate(items)]
        with np.errstate(over="ignore"):
            rows = [_numbers(item["embedding"]) for item in items]
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


def _numbers(embedding: Any) -> np.ndarray:
    """Numbers, or little-endian float32 in base64 -> float32."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    return np.asarray(embedding, dtype=np.float32)
