"""An app behind a company's proxy: it asks itself without it, and downloads go through it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from remote import closed_door
from running_app import running_app


class _Proxy(BaseHTTPRequestHandler):
    """Refuses all that it is asked for, and remembers it."""

    asked: list[str]

    def _refuse(self) -> None:
        self.asked.append(self.path)
        self.send_error(502)

    do_GET = do_HEAD = do_POST = do_CONNECT = _refuse  # noqa: N815 - the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Not to stderr."""


@pytest.fixture
def refusing_proxy() -> Iterator[tuple[str, list[str]]]:
    """The address of a proxy that answers 502, and what it was asked for."""
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Proxy", (_Proxy,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def through(proxy: str) -> dict[str, str]:
    """The environment of a machine whose requests go through a proxy, with no exception for its own address."""
    return dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy) | {
        "NO_PROXY": "",
        "no_proxy": "",
    }


@pytest.mark.slow
def test_a_proxy_that_is_away_does_not_keep_the_app_from_starting(home: Path, tmp_path: Path):
    with running_app(home, tmp_path, **through(closed_door())) as app:
        assert "SBERT Lab" in app.ask("/").text
        assert app.call("compare", "A cat.", "A dog.").status == 200


@pytest.mark.slow
def test_a_proxy_is_asked_for_downloads_alone(home: Path, tmp_path: Path, refusing_proxy: tuple[str, list[str]]):
    proxy, asked = refusing_proxy
    with running_app(home, tmp_path, **through(proxy), HF_ENDPOINT="http://hub.invalid") as app:
        assert "SBERT Lab" in app.ask("/").text
        assert not [path for path in asked if str(app.port) in path]
        assert app.call("compare", "A cat.", "A dog.", "someone/some-model").status != 200
    assert any("hub.invalid" in path for path in asked)
