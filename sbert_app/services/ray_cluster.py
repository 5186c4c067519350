"""The connection to Ray, what a cluster has room for, and its errors as sentences.

Runs (`sbert_app.services.runs.on_ray`) and files in parts (`sbert_app.services.shards.on_ray`) go through it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbert_app.settings import Settings
from training.errors import InputError, first_line

MISSING = "Ray is not installed: pip install 'sbert-lab[ray]'"
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 30.0  # without an answer, after which a stopped run is given up, and a cluster that is gone

_connecting = threading.Lock()


class Lost(Exception):  # noqa: N818 - reads as a state
    """An actor has died, alone or with its node."""


@dataclass(frozen=True)
class Cluster:
    """Where Ray runs, and what it gives each run.

    Args:
        address: auto, ray://host:10001; local starts Ray on this machine.
        gpus: of a run; None is one if the cluster has any.
        cpus: of a run; None is one beside a GPU, else as many as the smallest node has.
    """

    address: str
    gpus: float | None = None
    cpus: float | None = None
    _idle: list[Any] = field(default_factory=list)  # actors that have imported what a run needs

    def connect(self) -> Any:
        """The module ``ray``, connected. InputError if it is missing, or there is no cluster at the address."""
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # no call starts a Ray by itself
        try:
            import ray
            from ray._private import worker
        except ImportError as error:
            raise InputError(MISSING) from error
        with _connecting:
            if ray.is_initialized():
                return ray
            check_listening(self.address)
            worker.print_to_stdstream = lambda *_, **__: None  # of the end of a node it prints a page
            handler = signal.getsignal(signal.SIGTERM)
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"there is no Ray cluster at {self.address}: {first_line(error)}") from error
            finally:  # Ray's own would end the process at once
                if threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGTERM, handler)
        return ray

    def take(self, kind: type) -> Any:
        """An actor for a run: one that is idle, or a new one, which waits for room."""
        if self._idle:
            return self._idle.pop()
        wanted = self.resources()
        options = {"num_cpus": wanted["CPU"], "num_gpus": wanted["GPU"], "max_restarts": 0, "max_task_retries": 0}
        return self.connect().remote(kind).options(**options).remote()

    def put(self, actor: Any) -> None:
        """Keep an actor for the next run. It holds its room until then."""
        self._idle.append(actor)

    def release(self, is_over: bool) -> None:
        """No run waits: give back the room of idle actors; if none is under way either, end the connection."""
        while self._idle:
            with suppress(InputError, Lost), ray_errors():
                self.connect().kill(self._idle.pop())
        if is_over:
            disconnect()

    def resources(self) -> dict[str, float]:
        """What a run takes, as Ray names it: CPU, GPU. InputError as `connect`."""
        nodes = self._nodes()
        gpus = self.gpus if self.gpus is not None else float(any(node.get("GPU") for node in nodes))
        least = 1.0 if gpus else min((node["CPU"] for node in nodes if node.get("CPU")), default=1.0)
        return {"CPU": least if self.cpus is None else self.cpus, "GPU": gpus}

    def room(self) -> int:
        """How many runs it can execute at once, at least one. InputError as `connect`."""
        wanted = {name: amount for name, amount in self.resources().items() if amount}
        each = (min(node.get(name, 0) // amount for name, amount in wanted.items()) for node in self._nodes() if wanted)
        return max(1, int(sum(each)))

    def check(self, silent_since: float) -> None:
        """ConnectionError if Ray is gone from this machine, or after half a minute of silence from where it was.

        Ray itself would end this process without a word. ``silent_since``: a time of `time.monotonic`.
        """
        from ray._private.worker import global_worker

        node = global_worker.node  # None of a client, ray://
        if node is not None:
            _connect(f"{node.node_ip_address}:{node.node_manager_port}")
        if time.monotonic() - silent_since > SILENCE_SECONDS:
            _connect(self.address if node is None else node.gcs_address)

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.connect().nodes() if node["Alive"]]


def cluster_of(settings: Settings) -> Cluster | None:
    """The cluster that the settings name; None if runs are executed here."""
    return Cluster(settings.ray, settings.ray_gpus, settings.ray_cpus) if settings.ray else None


def disconnect() -> None:
    """End the connection if there is one, and with it a Ray that `connect` has started."""
    if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
        ray.shutdown()


def check_listening(address: str) -> None:
    """InputError at once if nothing answers at the address of a cluster. Ray itself would try for minutes.

    "auto" is $RAY_ADDRESS, else the cluster that was started last on this machine, which may have ended since.
    """
    place = address
    if address == "auto":
        last = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
        place = os.environ.get("RAY_ADDRESS") or (last.read_text(encoding="utf-8").strip() if last.exists() else "")
    if not place.rpartition(":")[2].isdecimal():  # "local", or a form that Ray judges
        return
    try:
        _connect(place)
    except ConnectionError as error:
        raise InputError(f"there is no Ray cluster at {address}: {error}") from error


def _connect(place: str) -> None:
    host, _, port = place.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at {host}:{port}") from error


@contextmanager
def ray_errors() -> Iterator[None]:
    """Turn what Ray raises for a run into `Lost`, if the actor has died, and sentences."""
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        yield
    except (RayError, ConnectionError) as error:
        if isinstance(error, RayTaskError) or "creation task" in str(error):  # what the actor raised comes last
            said = str(error).strip().rpartition("\n")[2]
            raise InputError(f"the run cannot be executed on a node of Ray: {said[:200]}") from error
        if isinstance(error, RayActorError):
            raise Lost(first_line(error)) from error
        raise InputError(f"Ray cannot go on: {first_line(error)}; resume the run when it is back") from error
