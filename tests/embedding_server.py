"""A real server of OpenAI's embeddings on a free port of loopback, which answers as a test tells it to.

with embedding_server(answer) as server:          answer(body, request) -> what is sent back
    f"endpoint:{server.url}/v1#any"
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


@dataclass
class Server:
    """One that answers; ``requests`` are (path, headers, body) of all that have come."""

    url: str
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """All that were sent."""
        return [text for _, _, body in self.requests for text in body["input"]]


def vectors(*rows: Any, status: int = 200, **headers: str) -> Answer:
    """The answer with these vectors."""
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    return status, headers, json.dumps({"object": "list", "data": data}).encode()


@contextmanager
def embedding_server(answer: Callable[[str, dict[str, Any]], Answer]) -> Iterator[Server]:
    """``answer`` gets the path and the body of each POST, in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append((self.path, dict(self.headers), body))
            status, headers, data = answer(self.path, body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet: ``requests`` is the log."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
