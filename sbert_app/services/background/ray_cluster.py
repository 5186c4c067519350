"""The connection of runs (`runs.on_ray`) and sharded files (`files.shards`) to Ray, its resources and its errors."""

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

# All instances of `RayCluster` share the one connection of this process, which is made by one
# thread.
_connecting = threading.Lock()


class ActorLostError(Exception):
    """An actor has died, possibly with its whole node."""


@dataclass
class RayCluster:
    """The address of a Ray cluster, and the resources of a run on it.

    Args:
        address: auto, ray://host:10001, or local, which starts Ray on this machine.
        gpus: the GPUs of a run; None means one if the cluster has any.
        cpus: the CPUs of a run; None means one with a GPU, otherwise as many as the smallest node
            has.
    """

    address: str
    gpus: float | None = None
    cpus: float | None = None
    # The host:port of Ray's process on this machine; "" before `connect`, and for a client
    # (ray://), which has no such process.
    _raylet: str = ""
    # Actors that have imported the packages of a run. They occupy their resources until `release`.
    idle: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings) -> RayCluster | None:
        """The cluster that the settings name; None if runs are executed on this machine."""
        if not settings.ray:
            return None
        return cls(settings.ray, settings.ray_gpus, settings.ray_cpus)

    def connect(self) -> Any:
        """The module ``ray``, connected. Raises InputError if it is not installed, or no cluster has the address."""
        # Otherwise any call of Ray would start a cluster by itself.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        if self.address == LOCAL:
            # Everybody who can reach Ray can execute code. Ray listens only on 127.0.0.1 while this
            # option for clusters of several machines is off; Ray documents it for Windows and
            # macOS, but reads it everywhere. Other accounts of the machine need the token.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ["RAY_AUTH_TOKEN"] = os.environ.get("RAY_AUTH_TOKEN") or token_hex(32)
        try:
            import ray
        except ImportError as error:
            raise InputError(MISSING) from error
        with _connecting:
            address = _resolved(self.address)
            if not ray.is_initialized():
                handler = signal.getsignal(signal.SIGTERM)
                try:
                    # Ray would try for minutes to reach an address at which nothing answers. Only
                    # an address with a port can be checked beforehand.
                    has_port = address.rpartition(":")[2].isdecimal()
                    if has_port:
                        _check_answers(address)
                    ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    raise InputError(
                        f"there is no Ray cluster at {self.address}: {first_line(error)}"
                    ) from error
                finally:
                    # Ray's own handler would end the process at once.
                    if threading.current_thread() is threading.main_thread():
                        signal.signal(signal.SIGTERM, handler)
            # `check` needs the address of Ray's process on this machine, which a client (ray://)
            # does not have.
            if not self._raylet and not address.startswith("ray://"):
                node_id = ray.get_runtime_context().get_node_id()
                # The node on which this process runs.
                [node] = [node for node in ray.nodes() if node["NodeID"] == node_id]
                self._raylet = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        return ray

    def take(self, kind: type) -> Any:
        """An actor of the class ``kind`` for a run: an idle one, or a new one, which waits for free resources."""
        with suppress(IndexError):
            return self.idle.pop()
        amounts = self.resources()
        actor_class = self.connect().remote(kind)
        return actor_class.options(num_cpus=amounts["CPU"], num_gpus=amounts["GPU"]).remote()

    def release(self, is_over: bool) -> None:
        """Ends idle actors, which frees their resources; if ``is_over``, also ends the connection."""
        # Actors of a cluster that is gone have ended already.
        with suppress(InputError, ActorLostError), ray_errors():
            while self.idle:
                self.connect().kill(self.idle.pop())
        if is_over:
            disconnect()

    def check(self) -> None:
        """Raises ConnectionError if Ray's process on this machine is gone.

        Without this check, Ray would find out by itself, and end this process.
        """
        if self._raylet:
            _check_answers(self._raylet)

    def resources(self) -> dict[str, float]:
        """The resources of a run by Ray's names: CPU, GPU. Raises InputError if the cluster cannot be reached."""
        nodes = self.nodes()
        gpus = self.gpus
        if gpus is None:
            has_gpu = any(node.get("GPU") for node in nodes)
            gpus = 1.0 if has_gpu else 0.0
        cpus = self.cpus
        if cpus is None:
            cpus = 1.0
            # Without a GPU, a run gets as many CPUs as the smallest node has, to fit on every node.
            if not gpus:
                cpus = min((node["CPU"] for node in nodes if node.get("CPU")), default=1.0)
        return {"CPU": cpus, "GPU": gpus}

    def room(self) -> int:
        """The number of runs that the cluster can execute at the same time, at least one.

        Raises InputError if the cluster cannot be reached.
        """
        # Amounts of 0 are left out, as the resources of a node are divided by the amounts.
        run_resources = {name: amount for name, amount in self.resources().items() if amount}
        runs = 0
        if run_resources:
            for node in self.nodes():
                # The scarcest resource of a node limits its runs.
                room = min(node.get(name, 0) // amount for name, amount in run_resources.items())
                runs += int(room)
        # One run may always be submitted, as its actor waits for free resources (`take`).
        return max(1, runs)

    def nodes(self) -> list[dict[str, float]]:
        """The resources of each node that is alive. Raises InputError if the cluster cannot be reached."""
        return [node["Resources"] for node in self.connect().nodes() if node["Alive"]]


def disconnect() -> None:
    """Ends the connection, and a cluster that `RayCluster.connect` has started."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


def _resolved(address: str) -> str:
    """Returns the address, or the one that "auto" stands for; "" if "auto" finds no cluster.

    As ``ray.init`` documents, "auto" stands for $RAY_ADDRESS, or else for the address in the file of
    the latest cluster.
    """
    if address != "auto":
        return address
    if os.environ.get("RAY_ADDRESS"):
        return os.environ["RAY_ADDRESS"]
    folder = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray")
    latest = folder / "ray_current_cluster"
    return latest.read_text(encoding="utf-8").strip() if latest.exists() else ""


def _check_answers(address: str) -> None:
    """Raises ConnectionError if nothing answers at an address with a port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at {host}:{port}") from error


@contextmanager
def ray_errors() -> Iterator[None]:
    """Turns the errors of Ray into `ActorLostError` if the actor has died, and otherwise into InputError."""
    # Ray is an optional package.
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        cause = error.cause
        reason = str(cause)
        if not isinstance(cause, UserFacingError):
            reason = f"{type(cause).__name__}: {first_line(cause)}"
        raise InputError(reason) from error
    except RayActorError as error:
        if not error.actor_init_failed:
            raise ActorLostError(first_line(error)) from error
        # The actor could not be created on its node. The message is a traceback, whose last line is
        # the error.
        reason = str(error).strip().rpartition("\n")[2]
        raise InputError(f"the run cannot be executed on a node of Ray: {reason[:200]}") from error
    except (RayError, ConnectionError) as error:
        raise InputError(
            f"Ray cannot go on: {first_line(error)}; resume the run when it is back"
        ) from error
