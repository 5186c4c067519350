"""`server/run.py`: a connection is closed whose header does not come, or whose answer is not read; ports."""

import asyncio
import errno
import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_network
from unittest.mock import Mock

import pytest
import uvicorn
from fastapi import FastAPI, Response
from uvicorn.server import ServerState
from waiting import wait_until

from sbert_app.server import run
from sbert_app.server.run import LimitedConnection
from training.errors import InputError

LARGE = 64 << 20


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(run, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(run, "UNREAD_SECONDS", 1.0)
    app = FastAPI()

    @app.get("/small")
    def small() -> str:
        return "small"

    @app.get("/large")
    def large() -> Response:
        return Response(b"x" * LARGE)

    config = uvicorn.Config(
        app, port=0, log_level="warning", http=LimitedConnection, timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join(10)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(30)
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "before", [b"", b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["first", "second"]
)
def test_a_header_that_does_not_come_closes_its_connection(port, before):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        if before:
            connection.sendall(before)
            assert b"200 OK" in connection.recv(1_000)
        connection.sendall(b"GET /small HTTP/1.1\r\nX-A: ")
        assert is_closed(connection)


def test_an_answer_that_is_not_read_is_dropped(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: not LimitedConnection._open)


def test_an_answer_that_is_read_arrives_whole(port):
    received = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while piece := connection.recv(1 << 20):
            received += len(piece)
    assert received > LARGE


def test_a_peer_without_an_address_is_accepted_behind_proxies(monkeypatch):
    monkeypatch.setattr(LimitedConnection, "_proxies", (ip_network("10.0.0.0/8"),))
    config = uvicorn.Config(FastAPI(), http=LimitedConnection)
    config.load()

    async def connect() -> str | None:
        connection = LimitedConnection(config, ServerState(), {})
        transport = Mock(asyncio.Transport)
        transport.get_extra_info.return_value = None
        connection.connection_made(transport)
        address = connection._address
        connection.connection_lost(None)
        return address

    assert asyncio.run(connect()) == ""


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EADDRINUSE, "port 80 is taken"),
        (errno.EACCES, "this account may not listen on port 80"),
        (errno.EADDRNOTAVAIL, "this machine has no address 127.0.0.1"),
    ],
)
def test_a_port_that_cannot_be_listened_on_is_refused_with_the_reason(monkeypatch, number, message):
    def create_server(*_: object, **__: object) -> socket.socket:
        raise OSError(number, "refused")

    monkeypatch.setattr(socket, "create_server", create_server)
    with pytest.raises(InputError, match=message):
        run.listen("127.0.0.1", 80)
