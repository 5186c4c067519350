"""Serves the app: opens the socket, runs uvicorn in a thread, limits connections, and ends the process at a signal.

The number of connections is limited, in all and for each address, because each connection is an open
file, and the number of open files of a process is limited. The time for the header of a request is
limited, too: a client that never sends the rest would hold its connection for ever. A client that
does not read its answer is disconnected, as the answer takes memory.
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

# The time that requests have to end after a signal.
LAST_SECONDS = 2
# Models are loaded when the first page has been sent, or after this time.
FIRST_PAGE_SECONDS = 1.0
# The main thread checks this often whether the server has started.
START_SECONDS = 0.01
# The main thread wakes up this often, because a signal that another thread receives does not wake
# it.
WAKE_SECONDS = 0.25
# The maximum number of connections of one address, which a class may share, and in all. A browser
# opens six.
MOST_OF_ADDRESS = 1_024
MOST = 4_096
# The connections that the kernel keeps until the app accepts them. It resets any further ones.
BACKLOG = 1_024
# The header of a request has to arrive within this time.
HEADER_SECONDS = 10.0
# The limit of open files that is requested; the usual one is 1,024.
FILES = 16_384
# A client that reads nothing of its answer for this time is disconnected.
UNREAD_SECONDS = 60.0


def serve(settings: Settings, show: Callable[[str], object] | None = None) -> NoReturn:
    """Serves the app until a signal comes, and ends the process.

    Args:
        show: called in the main thread with the address of the app, once it listens.

    Raises:
        InputError: the port is taken or not permitted, or this machine does not have the address.
    """
    if sys.platform != "win32":
        # Only the account of the app can read the files that the app and its processes write.
        os.umask(0o077)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(settings.temp_folder)
    if settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    listening = listen(settings.host, settings.port)
    services = Services.start(settings)
    # Imported here because Gradio reads the environment when it is imported. That takes seconds,
    # and an error of the home folder is reported before.
    from sbert_app.server.app import create_app

    app = create_app(services)
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        log_level="warning",
        timeout_graceful_shutdown=LAST_SECONDS,
        backlog=BACKLOG,
        # Any client can set X-Forwarded-For. The visitor's address is the last one in it that is not
        # the address of a proxy.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=[str(network) for network in settings.proxies],
        # The app has no web sockets, and a connection that changes its protocol would be counted
        # for ever.
        ws="none",
    )
    LimitedConnection.limit(settings.proxies)
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run, args=([listening],), name="server", daemon=True)
    serving.start()
    # The exit code if the server ends by itself.
    code = 1
    try:
        while serving.is_alive() and not server.started:
            serving.join(START_SECONDS)
        warming = threading.Thread(
            target=warm_up, args=(services, app.state.pages), name="warm-up", daemon=True
        )
        warming.start()
        url = address(settings.host, listening.getsockname()[1])
        print(f"SBERT Lab is at {url}", flush=True)
        if show:
            show(url)
        while serving.is_alive():
            serving.join(WAKE_SECONDS)
    except KeyboardInterrupt:
        # A signal, or the end of `show`: the window of ``desktop`` was closed.
        code = 0
    is_ending.set()
    server.should_exit = True
    # The server waits for requests, which wait for the services, so the services are closed first.
    # Requests may start more work until the server has ended, so they are closed again afterwards.
    services.close()
    serving.join(2 * LAST_SECONDS)
    services.close()
    # No library needs an orderly shutdown, and nobody waits for the results of daemon threads any
    # more.
    sys.stdout.flush()
    os._exit(code)


def warm_up(services: Services, pages: Pages) -> None:
    """Prepares what people need next: the default models, then the other pages, then maps."""
    # Imports would delay the first page.
    pages.has_answered.wait(FIRST_PAGE_SECONDS)
    services.warm()
    pages.build_all()
    compile_umap(services.settings.home)


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on this address; port 0 is any free one. Raises InputError if this fails."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, _, _, _, target = addresses[0]
        # Host and port. An address of IPv6 has two more parts.
        bound = socket.create_server(target[:2], family=family, backlog=BACKLOG)
        # asyncio sets TCP_NODELAY only on sockets that state their protocol. Without it an answer
        # may wait for 40 ms.
        return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} is taken; choose another with --port") from error
        if error.errno == errno.EACCES:
            raise InputError(
                f"this account may not listen on port {port}; choose another with --port"
            ) from error
        raise InputError(
            f"this machine has no address {host} to listen on; choose another with --host"
        ) from error


def address(host: str, port: int) -> str:
    """Returns the address of the app for a browser on this machine."""
    name = host.strip("[]")
    if name in WILDCARDS:
        name = "localhost"
    elif ":" in name:
        name = f"[{name}]"
    return f"http://{name}:{port}/"


class LimitedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection of uvicorn that is closed if a header does not arrive, or an answer is not read.

    If there are too many connections, the oldest one that waits for a header is closed, or else the
    new one.
    """

    # The number of open connections of each address.
    _open: ClassVar[Counter[str]] = Counter()
    # The connections that wait for a header, the oldest first. A dict keeps their order.
    _without_header: ClassVar[dict[LimitedConnection, None]] = {}
    _most: ClassVar[int] = MOST
    _proxies: ClassVar[Collection[IPvAnyNetwork]] = ()
    # The address of the client; None if the connection was refused.
    _address: str | None = None
    _header_timer: asyncio.TimerHandle
    _reading_timer: asyncio.TimerHandle | None = None

    @classmethod
    def limit(cls, proxies: Collection[IPvAnyNetwork] = ()) -> None:
        """Raises the limit of open files, and sets the limits of connections accordingly.

        Args:
            proxies: the networks of proxies. Each of them may open all connections of the app.
        """
        cls._proxies = proxies
        try:
            import resource
        except ImportError:
            # Windows has no such limit.
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        if soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        # Half of the open files are left for other files.
        cls._most = min(MOST, max(soft, files) // 2)

    def connection_made(self, transport: Any) -> None:
        """Counts a new connection, or refuses it if there are too many and none can be closed for it."""
        self._connection = transport
        peer = transport.get_extra_info("peername") or ("",)
        address = str(peer[0])
        # A peer that has already left may have no address.
        is_proxy = bool(address) and any(
            ip_address(address) in network for network in self._proxies
        )
        is_full = self._open.total() >= self._most
        most_of_address = min(MOST_OF_ADDRESS, self._most // 2)
        is_address_full = not is_proxy and self._open[address] >= most_of_address
        if is_full or is_address_full:
            # The oldest connection that waits for a header is closed for the new one.
            candidates = list(self._without_header)
            # If only the address has too many connections, one of its own is closed.
            if not is_full:
                candidates = [other for other in candidates if other._address == address]
            if not candidates:
                transport.abort()
                return
            candidates[0]._close()
        self._address = address
        self._open[address] += 1
        self._await_header()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Passes data on to uvicorn. The header of a request has a time limit until the request is being answered."""
        if self._address is None:
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            # A request is being answered. Its body has a time limit of its own.
            self._stop_awaiting_header()
        elif self not in self._without_header:
            # The header of another request has begun to arrive.
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
        self._stop_awaiting_header()
        self._stop_awaiting_reading()
        super().connection_lost(exc)

    def _await_header(self) -> None:
        self._without_header[self] = None
        self._header_timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._close)

    def _stop_awaiting_header(self) -> None:
        self._without_header.pop(self, None)
        self._header_timer.cancel()

    def _await_reading(self) -> None:
        """Closes the connection if the client reads nothing of its answer in time; otherwise waits again."""
        unread = self._connection.get_write_buffer_size()

        def check() -> None:
            if self._connection.get_write_buffer_size() >= unread:
                self._close()
            else:
                self._await_reading()

        self._reading_timer = asyncio.get_running_loop().call_later(UNREAD_SECONDS, check)

    def _stop_awaiting_reading(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()

    def _close(self) -> None:
        self._stop_awaiting_header()
        self._connection.abort()
