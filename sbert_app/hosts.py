"""Names of hosts: those under which the app may be reached, and whether a request comes from a page of its own."""

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


class AllowedHosts:
    """The host names under which the app may be reached.

    These are those of ``bound``, the address that the server listens on, and ``extra`` ones, such
    as that of a reverse proxy, which are matched whole and without a port.
    """

    def __init__(self, bound: str, extra: Iterable[str] = ()) -> None:
        self._any_address = bound in WILDCARDS
        names = set(LOOPBACK) | {bound.strip("[]")} | {name.strip("[]") for name in extra}
        if self._any_address:
            names |= {socket.gethostname(), socket.getfqdn()}
        # Hugging Face Spaces set this variable.
        if space := os.environ.get("SPACE_HOST"):
            names |= set(space.split(","))
        self._names = {name.lower() for name in names if name and name not in WILDCARDS}

    def allows(self, host: str) -> bool:
        """Whether a Host header, such as ``127.0.0.1:7860``, names this app.

        An address (not a name) is enough where the app listens on all of them: rebinding needs a
        name.
        """
        name = host_name(host)
        with suppress(ValueError):
            return name in self._names or (self._any_address and bool(ip_address(name)))
        return False


def host_name(host: str) -> str:
    """The name in a Host header: ``::1`` of ``[::1]:7860``, in lower case; empty if the header is malformed."""
    if "@" in host or "/" in host:
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_same_origin(origin: str, host: str) -> bool:
    """Whether the page that sent a request was loaded from the host that the request goes to.

    The scheme is not compared: behind a proxy that ends TLS the app itself is asked in plain HTTP.
    """
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False
