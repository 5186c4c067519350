"""Connections to the app: so many of an address and in all, and a time for the first header of each.

A header that never ends holds its connection for good, and each connection is an open file, of which a process may have
a certain number.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any, ClassVar

from pydantic import IPvAnyNetwork
from uvicorn.protocols.http.auto import AutoHTTPProtocol

# A browser opens six, and a class may share an address.
MOST_OF_ADDRESS, MOST = 1_024, 4_096
# Those that are accepted before the next one is looked at.
BACKLOG = 64
HEADER_SECONDS = 10.0
# The most files that are asked for; the usual limit is 1,024.
FILES = 16_384
HEADER_END = b"\r\n\r\n"


class LimitedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection of uvicorn's that is closed if its header does not come.

    Where there are too many, the oldest of those that still owe theirs goes, or else the new one.
    """

    _open: ClassVar[Counter[str]] = Counter()
    _without_header: ClassVar[dict[LimitedConnection, None]] = {}
    _most: ClassVar[int] = MOST
    _proxies: ClassVar[Collection[IPvAnyNetwork]] = ()
    _address: str | None = None
    _start = b""
    _timer: asyncio.TimerHandle

    @classmethod
    def limit(cls, proxies: Collection[IPvAnyNetwork] = ()) -> None:
        """Raises the limit of open files, and sets those of connections. Those of ``proxies`` count in all alone."""
        cls._proxies = proxies
        try:
            import resource
        except ImportError:
            # On Windows.
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        if soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        # The other half is for files.
        cls._most = min(MOST, max(soft, files) // 2)

    def connection_made(self, transport: Any) -> None:
        self._connection, address = transport, str((transport.get_extra_info("peername") or ("",))[0])
        is_proxy = any(ip_address(address) in network for network in self._proxies)
        is_full = self._open.total() >= self._most
        if is_full or (self._open[address] >= min(MOST_OF_ADDRESS, self._most // 2) and not is_proxy):
            slow = (other for other in self._without_header if is_full or other._address == address)
            if (oldest := next(slow, None)) is None:
                transport.abort()
                return
            oldest._close()
        self._address = address
        self._open[address] += 1
        self._without_header[self] = None
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._close)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self in self._without_header:
            self._start = self._start[1 - len(HEADER_END) :] + data
            if HEADER_END in self._start:
                self._header_is_here()
        if self._address is not None:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is None:
            return
        self._open[self._address] -= 1
        if not self._open[self._address]:
            del self._open[self._address]
        self._header_is_here()
        super().connection_lost(exc)

    def _header_is_here(self) -> None:
        self._without_header.pop(self, None)
        self._timer.cancel()

    def _close(self) -> None:
        self._header_is_here()
        self._connection.abort()
