"""Names of hosts: under which names the app may be reached, and whether a request comes from one of its own pages."""

import os
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


class AllowedHosts:
    """The host names under which the app may be reached.

    ``bound`` is the address that the server listens on. ``extra`` are further names, such as the name
    of a reverse proxy, without a port.
    """

    def __init__(self, bound: str, extra: Iterable[str] = ()) -> None:
        self._any_address = bound in WILDCARDS
        names = {*LOOPBACK, bound, *extra}
        if self._any_address:
            names |= {socket.gethostname(), socket.getfqdn()}
        # Hugging Face Spaces set this variable. Without it, the name "" is added, which is one of
        # WILDCARDS and removed below.
        names.update(os.environ.get("SPACE_HOST", "").split(","))
        self._names = {name.strip("[]").lower() for name in names} - WILDCARDS

    def allows(self, host: str) -> bool:
        """Whether a Host header, such as ``127.0.0.1:7860``, names this app.

        If the app listens on all addresses, any address is allowed, because DNS rebinding needs a
        name.
        """
        name = host_name(host)
        if name in self._names:
            return True
        if not self._any_address:
            return False
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def host_name(host: str) -> str:
    """The name in a Host header, such as ``::1`` in ``[::1]:7860``, in lower case; "" if the header is malformed."""
    # urlsplit would read a user and a path, which a Host header cannot have.
    if "@" in host or "/" in host:
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_same_origin(origin: str, host: str) -> bool:
    """Whether the page that sent a request was loaded from the host that the request goes to.

    The scheme is not compared, because a proxy that ends TLS sends plain HTTP to the app.
    """
    try:
        # The netloc of the origin "null" is "", as is a missing Host header.
        return host != "" and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
