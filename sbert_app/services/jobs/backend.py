"""What holds the queue: SQLite in the home folder, or Redis; and what is said if it cannot be reached."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huey import Huey, SqliteHuey
from huey.registry import Message
from huey.serializer import Serializer

from training.errors import InputError
from training.sources.home import make_home

NAME = "sbert-lab"
SCHEMES = ("redis://", "rediss://", "unix://")


class JsonSerializer(Serializer):
    """Huey's messages as JSON. Its default is pickle, which can execute code when it is read."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps(data).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(bytes(data)))


class QueueUnreachable(InputError):  # noqa: N818 - reads as a state
    """The Redis server does not answer now. Runs that are written as queued are queued when it does."""


def open_queue(home: Path) -> Huey:
    """The queue of this home folder, or the one in $SBERT_QUEUE. InputError if it cannot be opened."""
    options: dict[str, Any] = {"results": False, "serializer": JsonSerializer()}
    address = os.environ.get("SBERT_QUEUE", "")
    if not address:
        make_home(home)
        return SqliteHuey(NAME, filename=str(home / "jobs.sqlite"), strict_fifo=True, **options)
    if not address.startswith(SCHEMES):
        raise InputError(f"SBERT_QUEUE is {address!r}; it must look like redis://host:6379/0")
    from huey import RedisHuey
    from huey.exceptions import ConfigurationError

    try:
        return RedisHuey(NAME, url=address, **options)
    except ConfigurationError as error:
        raise InputError("SBERT_QUEUE names a Redis server, but the package redis is missing: install it") from error
    except ValueError as error:  # such as a port that is no number
        raise InputError(f"SBERT_QUEUE cannot be used: {error}; it must look like redis://host:6379/0") from error


def is_shared(queue: Huey) -> bool:
    """Whether workers on other machines can reach it; then they are started by hand."""
    return not isinstance(queue, SqliteHuey)


@contextmanager
def reachable() -> Iterator[None]:
    """Turn errors of the Redis server in the block into `QueueUnreachable`. Errors of SQLite pass."""
    try:
        yield
    except sqlite3.Error:
        raise
    except Exception as error:
        if not _is_from_redis(error):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise QueueUnreachable(
            f"the queue {_shown(os.environ.get('SBERT_QUEUE', ''))} cannot be reached ({reason}): start the Redis "
            "server, or check SBERT_QUEUE"
        ) from error


def _is_from_redis(error: Exception) -> bool:
    return any(each.__module__.partition(".")[0] == "redis" for each in type(error).__mro__)


def _shown(address: str) -> str:
    """The address without its password."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
