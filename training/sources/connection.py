"""Whether the Hub can be reached, found out in under three seconds.

The Hub's client retries with long timeouts, and a machine without a network should not make its user wait. So one
TCP connection is tried before the first request, name resolution included, and a failure is remembered for five
minutes (not for longer: a server that was started before the network came up must find it later).
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

ADDRESS_SECONDS = 1.2  # for one address of the Hub; it may have several, and the first may not answer
CONNECT_SECONDS = 2.5  # for name resolution and all addresses together
REMEMBER_SECONDS = 300.0

_failures: dict[str, tuple[float, str]] = {}  # endpoint -> until when it is not tried again, and why


def endpoint() -> str:
    """The address of the Hub: $HF_ENDPOINT or https://huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check_reachable() -> None:
    """Raise ConnectionError with the reason if nothing accepts connections at `endpoint`, or lately did not."""
    until, why = _failures.get(endpoint(), (0.0, ""))
    if time.monotonic() < until:
        raise ConnectionError(why)
    if why := _why_unreachable(endpoint()):
        remember_failure(why)
        raise ConnectionError(why)


def remember_failure(why: str) -> None:
    """Let `check_reachable` fail at once for the next `REMEMBER_SECONDS`."""
    _failures[endpoint()] = (time.monotonic() + REMEMBER_SECONDS, why)


def host_port(url: str) -> tuple[str, int]:
    """Host and port that a request to ``url`` connects to: its own, or its proxy's. ValueError if it has none."""
    target = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    if proxy and target.hostname and not proxy_bypass(target.hostname):
        target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = target.port or {"http": 80, "https": 443, "socks5": 1080}.get(target.scheme)
    if not target.hostname or not port:
        raise ValueError(url)
    return target.hostname, port


def _why_unreachable(url: str) -> str:
    """Why no connection can be made, in words; empty if one can."""
    try:
        address = host_port(url)
    except ValueError:
        return f"{url!r} is not an address"
    outcome: queue.SimpleQueue[str] = queue.SimpleQueue()

    def connect() -> None:
        try:
            socket.create_connection(address, ADDRESS_SECONDS).close()
            outcome.put("")
        except OSError as error:
            outcome.put(f"cannot connect to {address[0]} ({error.strerror or error})")

    threading.Thread(target=connect, daemon=True).start()  # a thread, because name resolution has no timeout
    try:
        return outcome.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        return f"cannot connect to {address[0]} (no answer in {CONNECT_SECONDS} s)"
