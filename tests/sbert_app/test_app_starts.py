"""An app starts behind a company's proxy, which it asks for downloads alone, and on any port that is free."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from running_app import starting_app
from waiting import wait_until

PAIR = {"sentence_a": "A cat.", "sentence_b": "A dog."}


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


@pytest.mark.slow
def test_behind_a_proxy_the_app_starts_at_any_free_port(home: Path, tmp_path: Path, refusing_proxy):
    """No variable says that the machine's own address is asked without the proxy."""
    proxy, asked = refusing_proxy
    variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    variables |= {"NO_PROXY": "", "no_proxy": "", "HF_ENDPOINT": "http://hub.invalid"}
    with starting_app(home, tmp_path, "--port", "0", **variables) as (app, printed):
        wait_until(lambda: "is at" in printed.read_text() or app.process.poll() is not None)
        port = urlsplit(printed.read_text().split()[-1]).port
        assert port
        app = replace(app, port=port)
        assert "SBERT Lab" in app.ask("/").text
        assert app.call("compare", **PAIR, model="scratch:1x32", cross_encoder="none").status == 200
        assert not [path for path in asked if str(port) in path]
        assert app.call("compare", **PAIR, model="someone/some-model").status != 200
        assert any("hub.invalid" in path for path in asked)
        (tmp_path / "other").mkdir()
        with starting_app(home, tmp_path / "other", "--port", str(port)) as (other, _):
            assert other.process.wait() == 2
