"""Serves the app: the address that it listens on, uvicorn in a thread, and the end at a signal."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import uvicorn

from sbert_app.hosts import WILDCARDS
from sbert_app.process import is_ending
from sbert_app.server.connections import BACKLOG, LimitedConnection
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.errors import InputError

# Requests that are being answered when a signal comes have so many seconds.
LAST_SECONDS = 2
# The main thread looks so often, as a signal that another thread gets does not wake it.
WAKE_SECONDS = 0.25


def serve(settings: Settings, show: Callable[[str], object] = lambda url: None) -> NoReturn:
    """Serves the app until a signal comes, and ends the process.

    Args:
        settings: the settings of the app.
        show: called with the address, in the main thread, once the app listens.

    Raises:
        InputError: the port is taken, or this machine has no such address.
    """
    if sys.platform != "win32":
        # What visitors write, and the processes that the app starts, is for its own account.
        os.umask(0o077)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(settings.temp_folder)
    if settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    listening = listen(settings.host, settings.port)
    # Gradio reads the environment as it is imported.
    from sbert_app.server.app import create_app

    services = Services.start(settings)
    config = uvicorn.Config(
        create_app(services),
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
    threading.Thread(target=services.warm, name="warm-up", daemon=True).start()
    serving = threading.Thread(target=server.run, args=([listening],), name="server", daemon=True)
    serving.start()
    code = 1
    try:
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


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; port 0 is any that is free. InputError if that is impossible."""
    try:
        family, _, _, _, target = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(target[:2], family=family, backlog=2_048)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InputError(f"port {port} is taken; choose another with --port") from error
        raise InputError(f"this machine has no address {host} to listen on; choose another with --host") from error


def address(host: str, port: int) -> str:
    """The address of the app for a browser on this machine."""
    bare = host.strip("[]")
    name = "localhost" if bare in WILDCARDS else f"[{bare}]" if ":" in bare else bare
    return f"http://{name}:{port}/"
