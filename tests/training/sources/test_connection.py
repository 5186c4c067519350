"""`sources/hub.py`: whether the Hub can be reached is known soon, and a failure is remembered for a while."""

import socket
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from training.errors import InputError
from training.sources import hub as connection
from training.sources import resolve


def test_a_name_that_is_resolved_for_ever_is_waited_for_once(alone, monkeypatch):
    attempts = []
    never = threading.Event()

    def resolve_for_ever(*address):
        attempts.append(address)
        never.wait()
        raise OSError("the test is over")

    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(socket, "create_connection", resolve_for_ever)
    for _ in range(3):
        with pytest.raises(InputError, match=r"cannot connect to 127.0.0.1 \(no answer in 0.2 s\)"):
            resolve.model_folder("org/tiny")
    assert len(attempts) == 1
    never.set()


def test_a_failure_is_forgotten_after_a_while(alone, monkeypatch):
    """A server that was started before the network came up finds the Hub later."""
    with pytest.raises(ConnectionError, match="Connection refused"):
        connection.check_reachable()
    with socket.create_server(connection.host_port(connection.endpoint())):
        with pytest.raises(ConnectionError, match="Connection refused"):
            connection.check_reachable()
        now = connection.time.monotonic()
        monkeypatch.setattr(
            connection.time, "monotonic", lambda: now + connection.REMEMBER_SECONDS + 1
        )
        connection.check_reachable()


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, ("huggingface.co", 443)),
        ({"HF_ENDPOINT": "http://mirror.local:8080/hub/"}, ("mirror.local", 8080)),
        ({"HTTPS_PROXY": "http://proxy.local:3128"}, ("proxy.local", 3128)),
        ({"HTTPS_PROXY": "proxy.local:3128"}, ("proxy.local", 3128)),
        ({"ALL_PROXY": "socks5://proxy.local"}, ("proxy.local", 1080)),
        (
            {"HTTPS_PROXY": "http://proxy.local:3128", "NO_PROXY": "huggingface.co"},
            ("huggingface.co", 443),
        ),
    ],
)
def test_the_connection_goes_to_the_hub_or_its_proxy(variables, address, monkeypatch):
    for name in ("HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert connection.host_port(connection.endpoint()) == address


def test_an_address_that_is_none_is_said_so(alone, monkeypatch):
    for address in ("nonsense", "http://", "http://host:port", "ftp://host"):
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(InputError, match="is not an address"):
            resolve.model_folder("org/tiny")


@pytest.mark.parametrize(
    ("host", "is_refused"), [("127.0.0.1", True), ("10.0.0.1", True), ("127.0.0.2", False)]
)
def test_the_hub_cannot_redirect_into_the_network(monkeypatch, host: str, is_refused: bool):
    from huggingface_hub import get_session

    # The Hub itself may be there.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.2:9")
    monkeypatch.setattr(connection, "getproxies", lambda: {"no": "127.0.0.1"})
    monkeypatch.setattr(connection, "_why_unreachable", lambda _: "")
    connection.check_reachable()
    connection.check_reachable()
    hooks = get_session().event_hooks["request"]
    assert hooks.count(hooks[-1]) == 1
    request = SimpleNamespace(url=SimpleNamespace(host=host))
    with pytest.raises(ValueError, match="inside of the network") if is_refused else nullcontext():
        hooks[-1](request)
