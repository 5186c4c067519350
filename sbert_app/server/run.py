"""Serves the app: the address that it listens on, uvicorn in a thread, its connections, and the end at a signal.

The number of connections is limited, of an address and in all, and so is the time for the header of each request: a
header that never ends holds its connection for good, and each connection is an open file, of which a process may have
a certain number. A client that does not read its answer keeps it in memory, and is given up.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import uvicorn
from pydantic import IPvAnyNetwork
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from sbert_app.hosts import WILDCARDS
from sbert_app.process import is_ending
from sbert_app.services.container import Services
from sbert_app.services.maps.projection import compile_umap
from sbert_app.settings import Settings
from training.errors import InputError

if TYPE_CHECKING:
    from sbert_app.server.pages import Pages

# Requests that are being answered when a signal comes have so many seconds.
LAST_SECONDS = 2
# Models are loaded after the first page, or after so many seconds.
FIRST_PAGE_SECONDS = 1.0
# The main thread looks so often whether the server has started.
START_SECONDS = 0.01
# The main thread looks so often, as a signal that another thread gets does not wake it.
WAKE_SECONDS = 0.25


def serve(settings: Settings, show: Callable[[str], object] = lambda url: None) -> NoReturn:
    """Serves the app until a signal comes, and ends the process.

    ``show`` is called with the address, in the main thread, once the app listens. InputError if the port is taken, or
    this machine has no such address.
    """
    if sys.platform != "win32":
        # What visitors write, and the processes that the app starts, is for its own account.
        os.umask(0o077)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(settings.temp_folder)
    if settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    listening = listen(settings.host, settings.port)
    services = Services.start(settings)
    # Gradio reads the environment as it is imported, which takes seconds: a home that cannot be used is named before.
    from sbert_app.server.app import create_app

    app = create_app(services)
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        log_level="warning",
        timeout_graceful_shutdown=LAST_SECONDS,
        backlog=BACKLOG,
        # Anybody may write X-Forwarded-For. Of the addresses in it, the last that no proxy has is the visitor's.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=[*map(str, settings.proxies)],
        # Nothing here speaks it, and a connection that changes its protocol would be counted for ever.
        ws="none",
    )
    LimitedConnection.limit(settings.proxies)
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run, args=([listening],), name="server", daemon=True)
    serving.start()
    code = 1
    try:
        while serving.is_alive() and not server.started:
            serving.join(START_SECONDS)
        threading.Thread(target=warm_up, args=(services, app.state.pages), name="warm-up", daemon=True).start()
        url = address(settings.host, listening.getsockname()[1])
        print(f"SBERT Lab is at {url}", flush=True)
        show(url)
        while serving.is_alive():
            serving.join(WAKE_SECONDS)
    except KeyboardInterrupt:
        code = 0
    is_ending.set()
    server.should_exit = True
    # The server waits for requests, and these for what is computed. Until it has ended they may begin something more.
    services.close()
    serving.join(2 * LAST_SECONDS)
    services.close()
    # What daemon threads still compute is lost with them, and no library needs to be taken down in order.
    sys.stdout.flush()
    os._exit(code)


def warm_up(services: Services, pages: Pages) -> None:
    """Prepares what people ask for next: first the default models, then the other pages, then maps."""
    # A browser that waits for its first page is not held up by imports.
    pages.has_answered.wait(FIRST_PAGE_SECONDS)
    services.warm()
    pages.build_all()
    compile_umap(services.settings.home)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; port 0 is any that is free. InputError if that is impossible."""
    try:
        family, _, _, _, target = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        bound = socket.create_server(target[:2], family=family, backlog=2_048)
        # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it an answer may wait for 40 ms.
        return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InputError(f"port {port} is taken; choose another with --port") from error
        raise InputError(f"this machine has no address {host} to listen on; choose another with --host") from error


def address(host: str, port: int) -> str:
    """The address of the app for a browser on this machine."""
    bare = host.strip("[]")
    name = "localhost" if bare in WILDCARDS else f"[{bare}]" if ":" in bare else bare
    return f"http://{name}:{port}/"


# A browser opens six, and a class may share an address.
MOST_OF_ADDRESS, MOST = 1_024, 4_096
# Those that may wait to be accepted; where more come at once, the system resets some.
BACKLOG = 1_024
HEADER_SECONDS = 10.0
# The most files that are asked for; the usual limit is 1,024.
FILES = 16_384
# An answer of which a client reads nothing for so long is dropped.
UNREAD_SECONDS = 60.0


class LimitedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection of uvicorn's that is closed if a header does not come, or an answer is not read.

    Where there are too many, the oldest of those that still owe theirs goes, or else the new one.
    """

    _open: ClassVar[Counter[str]] = Counter()
    _without_header: ClassVar[dict[LimitedConnection, None]] = {}
    _most: ClassVar[int] = MOST
    _proxies: ClassVar[Collection[IPvAnyNetwork]] = ()
    _address: str | None = None
    _timer: asyncio.TimerHandle
    _reading: asyncio.TimerHandle | None = None

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
        self._await_header()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._address is None:
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            # A request is being answered. Its body has a time of its own.
            self._header_is_here()
        elif self not in self._without_header:
            self._await_header()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_awaiting_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is None:
            return
        self._open[self._address] -= 1
        if not self._open[self._address]:
            del self._open[self._address]
        self._header_is_here()
        self._stop_awaiting_reading()
        super().connection_lost(exc)

    def _await_header(self) -> None:
        self._without_header[self] = None
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._close)

    def _header_is_here(self) -> None:
        self._without_header.pop(self, None)
        self._timer.cancel()

    def _await_reading(self) -> None:
        """Closes the connection unless the client has read some of its answer in time; then asks again."""
        unread = self._connection.get_write_buffer_size()

        def look() -> None:
            if self._connection.get_write_buffer_size() >= unread:
                self._close()
            else:
                self._await_reading()

        self._reading = asyncio.get_running_loop().call_later(UNREAD_SECONDS, look)

    def _stop_awaiting_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def _close(self) -> None:
        self._header_is_here()
        self._connection.abort()
