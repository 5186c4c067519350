"""A real app on a free port of loopback, with a home folder of its own that borrows models and data.

with running_app(home, tmp_path, "--auth", "teacher:right") as app:
    app.call("list_runs") -> Answer(status, headers, text)
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn
from fastapi import FastAPI
from paths import ROOT

from scripts.running import end_workers

START_UP_SECONDS = 240
# From a signal on. The app gives itself two.
PROCESSOR_SECONDS_TO_END = 5.0


@dataclass(frozen=True)
class Answer:
    """What came back; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def data(self) -> Any:
        """The value of an endpoint."""
        return json.loads(self.text)


@dataclass(frozen=True)
class RunningApp:
    """An app that answers."""

    process: subprocess.Popen[bytes]
    port: int
    home: Path
    # Of every request.
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
        timeout: float = 120,
    ) -> Answer:
        """A request; a body that is neither bytes nor None is sent as JSON."""
        sent = {**self.headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **sent}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            # A stream of events has no end: what comes first is enough.
            stream = "event-stream" in fields.get("content-type", "")
            content = answer.readline() if stream else answer.read()
            return Answer(answer.status, fields, content.decode("utf-8", "replace"))
        finally:
            connection.close()

    def call(self, name: str, **arguments: object) -> Answer:
        """An endpoint."""
        return self.ask(f"/api/{name}", arguments)

    def end(self, number: int) -> int:
        """The exit code after this signal. The test fails if the app uses more than its processor time to end."""
        app = psutil.Process(self.process.pid)
        before = used = sum(app.cpu_times()[:2])
        self.process.send_signal(number)
        while self.process.poll() is None:
            with suppress(psutil.Error):  # it has just ended
                used = sum(app.cpu_times()[:2])
            if used - before >= PROCESSOR_SECONDS_TO_END:
                # Faulthandler prints what each thread does.
                self.process.send_signal(signal.SIGABRT)
                self.process.wait()
                pytest.fail(f"it goes on after {used - before:.1f} s of processor time")
            time.sleep(0.02)
        return self.process.returncode

    def upload(self, name: str, content: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """A file."""
        head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
        kind = {"Content-Type": "multipart/form-data; boundary=x", **(headers or {})}
        return self.ask("/gradio_api/upload", head + content + b"\r\n--x--\r\n", kind)


@contextmanager
def running_app(home: Path, own: Path, *options: str, **variables: str) -> Iterator[RunningApp]:
    """An app that has started, with ``own`` as its home folder, in which models and data are those of ``home``."""
    with starting_app(home, own, *options, **variables) as (app, printed):
        wait_for_app(app.process, printed)
        yield app


def wait_for_app(process: subprocess.Popen[bytes], printed: Path) -> None:
    """Until the app has started; ``printed`` is the file that has what it prints."""
    deadline = time.monotonic() + START_UP_SECONDS
    while "SBERT Lab is at" not in printed.read_text():
        assert process.poll() is None, f"the app ended: {printed.read_text()}"
        assert time.monotonic() < deadline, "the app did not start"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def starting_app(
    home: Path, own: Path, *options: str, **variables: str
) -> Iterator[tuple[RunningApp, Path]]:
    """The same at once, and the file that has what it prints."""
    for kind in ("models", "data", "numba"):
        if not (own / kind).exists():
            (own / kind).symlink_to(home / kind)
    port = free_port()
    command = [sys.executable, "app.py", "--port", str(port), "--home", str(own), *options]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **variables}
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed.txt"
        with printed.open("w") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output)
        try:
            yield RunningApp(process, port, own), printed
        finally:
            process.terminate()
            process.wait(30)
            end_workers(own)


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of a real server of ``app``, for clients that make their own connections."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)
