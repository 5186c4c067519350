"""The connection of runs (`runs.on_ray`) and sharded files (`files.shards`) to Ray, its room and its errors."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from sbert_app.settings import Settings
from training.errors import InputError, UserFacingError, first_line, install_command

LOCAL = "local"
MISSING = f"Ray is not installed: {install_command('ray')} installs it"
CONNECT_SECONDS = 5.0

_connecting = threading.Lock()


class ActorLostError(Exception):
    """An actor has died, alone or with its node."""


@dataclass
class RayCluster:
    """The address of a Ray cluster, and the resources of a run on it.

    Args:
        address: auto, ray://host:10001, or local, which starts Ray on this machine.
        gpus: for a run; None is one if the cluster has any.
        cpus: for a run; None is one beside a GPU, else as many as the smallest node has.
    """

    address: str
    gpus: float | None = None
    cpus: float | None = None
    # Where Ray's process on this machine listens; "" for a client, ray://, which has none.
    _raylet: str = ""
    # Actors that have imported what a run needs. They hold their room until `release`.
    idle: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings) -> RayCluster | None:
        """The cluster that the settings name; None if runs are executed on this machine."""
        return cls(settings.ray, settings.ray_gpus, settings.ray_cpus) if settings.ray else None

    def connect(self) -> Any:
        """The module ``ray``, connected. InputError if it is missing, or there is no cluster at the address."""
        # No call starts a Ray by itself.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        if self.address == LOCAL:
            # Whoever reaches Ray executes code. Without clusters of several machines, an option that Ray documents for
            # Windows and macOS but reads everywhere, it listens on 127.0.0.1 alone, and other accounts need the token.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ["RAY_AUTH_TOKEN"] = os.environ.get("RAY_AUTH_TOKEN") or token_hex(32)
        try:
            import ray
        except ImportError as error:
            raise InputError(MISSING) from error
        with _connecting:
            place = _place(self.address)
            if not ray.is_initialized():
                handler = signal.getsignal(signal.SIGTERM)
                try:
                    # Where nothing answers, Ray itself would try for minutes.
                    if place.rpartition(":")[2].isdecimal():
                        _connect(place)
                    ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    raise InputError(f"there is no Ray cluster at {self.address}: {first_line(error)}") from error
                finally:
                    # Ray's own handler would end the process at once.
                    if threading.current_thread() is threading.main_thread():
                        signal.signal(signal.SIGTERM, handler)
            if not self._raylet and not place.startswith("ray://"):
                here = ray.get_runtime_context().get_node_id()
                (node,) = (node for node in ray.nodes() if node["NodeID"] == here)
                self._raylet = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        return ray

    def take(self, kind: type) -> Any:
        """An actor for a run: an idle one, or a new one, which waits for room."""
        with suppress(IndexError):
            return self.idle.pop()
        taken = self.resources()
        return self.connect().remote(kind).options(num_cpus=taken["CPU"], num_gpus=taken["GPU"]).remote()

    def release(self, is_over: bool) -> None:
        """Give back the room of idle actors, as no run waits; if ``is_over``, end the connection."""
        with suppress(InputError, ActorLostError), ray_errors():
            while self.idle:
                self.connect().kill(self.idle.pop())
        if is_over:
            disconnect()

    def check(self) -> None:
        """Raises ConnectionError if Ray's process on this machine is gone, after which Ray would end this process."""
        if self._raylet:
            _connect(self._raylet)

    def resources(self) -> dict[str, float]:
        """The resources of a run by the names that Ray gives them: CPU, GPU. InputError as `connect`."""
        nodes = self.nodes()
        gpus = self.gpus if self.gpus is not None else float(any(node.get("GPU") for node in nodes))
        least = 1.0 if gpus else min((node["CPU"] for node in nodes if node.get("CPU")), default=1.0)
        return {"CPU": least if self.cpus is None else self.cpus, "GPU": gpus}

    def room(self) -> int:
        """The number of runs that the cluster can execute at once, at least one. InputError as `connect`."""
        taken = {name: amount for name, amount in self.resources().items() if amount}
        nodes = self.nodes() if taken else []
        return max(1, int(sum(min(node.get(name, 0) // taken[name] for name in taken) for node in nodes)))

    def nodes(self) -> list[dict[str, float]]:
        """The resources of each node that is alive. InputError as `connect`."""
        return [node["Resources"] for node in self.connect().nodes() if node["Alive"]]


def disconnect() -> None:
    """End the connection, and with it a Ray that `RayCluster.connect` has started."""
    if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
        ray.shutdown()


def _place(address: str) -> str:
    """The address; for "auto", as ``ray.init`` documents, $RAY_ADDRESS or that in the file of the latest cluster."""
    last = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    if address != "auto":
        return address
    return os.environ.get("RAY_ADDRESS") or (last.read_text(encoding="utf-8").strip() if last.exists() else "")


def _connect(place: str) -> None:
    host, _, port = place.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at {host}:{port}") from error


@contextmanager
def ray_errors() -> Iterator[None]:
    """Turn the errors of Ray into `ActorLostError`, if the actor has died, or into InputErrors."""
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        cause = error.cause
        reason = str(cause) if isinstance(cause, UserFacingError) else f"{type(cause).__name__}: {first_line(cause)}"
        raise InputError(reason) from error
    except (RayError, ConnectionError) as error:
        if isinstance(error, RayActorError) and error.actor_init_failed:
            reason = str(error).strip().rpartition("\n")[2]
            raise InputError(f"the run cannot be executed on a node of Ray: {reason[:200]}") from error
        if isinstance(error, RayActorError):
            raise ActorLostError(first_line(error)) from error
        raise InputError(f"Ray cannot go on: {first_line(error)}; resume the run when it is back") from error
