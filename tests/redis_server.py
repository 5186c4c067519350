"""A Redis server for tests, in a folder and on a port of its own, that can be killed and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

PATIENCE = 30.0  # seconds


class RedisServer:
    """With ``keeps`` it writes each change to its disk, and knows after a restart what it knew before."""

    def __init__(self, folder: Path, keeps: bool = True) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("there is no redis-server; sh scripts/find_redis.sh installs one")
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        kept = ["--appendonly", "yes", "--appendfsync", "always"] if keeps else ["--appendonly", "no"]
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder), "--save", "", *kept]
        self._command = [program, *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For $SBERT_QUEUE."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(16).startswith(b"+PONG"):
                        return self
            except OSError:
                pass
            assert time.monotonic() < deadline, "the Redis server does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """As a machine that loses its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
