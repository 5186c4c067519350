"""The Hugging Face Hub and its local cache: which files of a repository, and where they lie.

`cached`, `download` and `cached_in_part` each take a repository and a function that picks names out of its listing, and
return the folder that has those files. Only what is picked is downloaded, so no pickle reaches the disk.
HF_ENDPOINT, HF_HOME, HF_TOKEN and proxies count as everywhere in huggingface_hub. `check_reachable` comes before
every request, so that nobody waits for a Hub that is out of reach.
"""

from __future__ import annotations

import glob
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from training.errors import InputError, first_line
from training.sources import progress

MOST_NAMED = 12  # files, configurations or splits that an error lists
ANSWER_SECONDS = 8.0  # for the first answer, once connected

MODEL_FILES = ("*.json", "*.txt", "*.model", "README.md", "model*.safetensors", "*/model*.safetensors")

GATED = "the {} is gated: accept its terms on the Hub and set HF_TOKEN"
NOT_FOUND = "it has no {} of this name (misspelt, or private?)"

Pick = Callable[[list[str]], list[str]]  # a listing -> the names wanted; InputError if it has none


class Repo(NamedTuple):
    """A repository of the Hub; ``kind`` is model or dataset."""

    id: str
    kind: str


def names_in(folder: Path) -> list[str]:
    """The files in a folder as a repository would list them: relative, with slashes, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def cached(repo: Repo, pick: Pick) -> Path:
    """The snapshot in the local cache, if it knows the repository's listing and has every file picked.

    FileNotFoundError otherwise. InputError from ``pick``, if the repository holds nothing of use.
    """
    from huggingface_hub import errors, get_cached_repo_tree

    try:
        # What transformers alone has loaded lacks files that are needed here, such as the pooling's, without a trace.
        listing = [file.path for file in get_cached_repo_tree(repo.id, repo_type=repo.kind)]
        return _snapshot(repo, pick(listing), local_files_only=True)
    except errors.CachedRepoTreeNotFoundError as error:
        raise FileNotFoundError("not there as a whole") from error
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError("incomplete") from error


def cached_in_part(repo: Repo, pick: Pick) -> Path:
    """The snapshot in the local cache as it is, for when nothing else is left. FileNotFoundError if it lacks files."""
    from huggingface_hub import errors

    try:
        snapshot = _snapshot(repo, None, local_files_only=True)
    except errors.IncompleteSnapshotError as error:
        snapshot = Path(error.snapshot_path)
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError("not there") from error
    try:
        pick(names_in(snapshot))
    except InputError as error:
        raise FileNotFoundError("incomplete") from error
    return snapshot


def download(repo: Repo, pick: Pick) -> Path:
    """From the Hub into the local cache.

    ConnectionError if the Hub cannot be reached, FileNotFoundError if it has no such repository, each with the
    reason in words. InputError from ``pick``, if the repository holds nothing of use; then nothing is downloaded.
    """
    info = repo_info(repo, sizes=True)
    names = pick([file.rfilename for file in info.siblings or ()])
    megabytes = sum(file.size or 0 for file in info.siblings or () if file.rfilename in set(names)) / 1e6
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo.id, repo_type=repo.kind)
    with _translated_errors(repo):
        return progress.watch(repo.id, folder, megabytes, lambda: _snapshot(repo, names, local_files_only=False))


def repo_info(repo: Repo, sizes: bool = False) -> Any:
    """The Hub's description of a repository: id, sha (the commit of main), siblings (files, with ``sizes`` in bytes).

    ConnectionError and FileNotFoundError as in `download`.
    """
    check_reachable()
    from huggingface_hub import HfApi

    with _translated_errors(repo):
        api = HfApi(endpoint=endpoint())
        return api.repo_info(repo.id, repo_type=repo.kind, timeout=ANSWER_SECONDS, files_metadata=sizes)


def _snapshot(repo: Repo, names: list[str] | None, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            repo.id,
            repo_type=repo.kind,
            allow_patterns=None if names is None else [glob.escape(name) for name in names],
            local_files_only=local_files_only,
            endpoint=endpoint(),
        )
    )


@contextmanager
def _translated_errors(repo: Repo) -> Iterator[None]:
    """The client's many errors as ConnectionError and FileNotFoundError, each with one sentence."""
    from huggingface_hub import errors

    noun = {"model": "model", "dataset": "data set"}[repo.kind]
    try:
        yield
    except errors.GatedRepoError as error:
        raise FileNotFoundError(GATED.format(noun)) from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(NOT_FOUND.format(noun)) from error
    except errors.HfHubHTTPError as error:
        raise ConnectionError(f"it answered with status {error.response.status_code}") from error
    except (errors.HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        why = f"no answer ({type(error).__name__}: {first_line(error)})"
        remember_failure(why)
        raise ConnectionError(why) from error
    except errors.XetDownloadError as error:
        raise ConnectionError(f"the download broke off ({error})") from error
    except (ValueError, KeyError, TypeError) as error:
        # Such as the log-in page of a hotel.
        raise ConnectionError("what answers there is not a Hub") from error


# ---------------------------------------------------------------- which files


def pick_model(name: str, listing: list[str]) -> list[str]:
    """Configuration, tokenizer and safetensors weights. InputError if there are no such weights."""
    picked = [file for file in listing if any(fnmatchcase(file, pattern) for pattern in MODEL_FILES)]
    if not any(file.endswith(".safetensors") for file in picked):
        raise InputError(
            f"model {name} has no safetensors weights on the Hub, and pickled ones are not loaded because they can "
            "run code: choose a model that has a model.safetensors"
        )
    return picked


def some_of(names: Sequence[str]) -> str:
    """The first names, and how many there are more, as an error lists them."""
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED:,} more" if names[MOST_NAMED:] else "")


# ---------------------------------------------------------------- the connection

# Whether the Hub can be reached, found out in under three seconds.
#
# The Hub's client retries with long timeouts, and a machine without a network should not make its user wait. So one
# TCP connection is tried before the first request, name resolution included, and a failure is remembered for five
# minutes (not for longer: a server that was started before the network came up must find it later).


ADDRESS_SECONDS = 1.2  # for one address of the Hub; it may have several, and the first may not answer
CONNECT_SECONDS = 2.5  # for name resolution and all addresses together
REMEMBER_SECONDS = 300.0

_failures: dict[str, tuple[float, str]] = {}  # endpoint -> until when it is not tried again, and why


def endpoint() -> str:
    """The address of the Hub: $HF_ENDPOINT or https://huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check_reachable() -> None:
    """Raise ConnectionError with the reason if nothing accepts connections at `endpoint`, or lately did not."""
    until, why = _failures.get(endpoint(), (0.0, ""))
    if time.monotonic() < until:
        raise ConnectionError(why)
    if why := _why_unreachable(endpoint()):
        remember_failure(why)
        raise ConnectionError(why)


def remember_failure(why: str) -> None:
    """Let `check_reachable` fail at once for the next `REMEMBER_SECONDS`."""
    _failures[endpoint()] = (time.monotonic() + REMEMBER_SECONDS, why)


def host_port(url: str) -> tuple[str, int]:
    """Host and port that a request to ``url`` connects to: its own, or its proxy's. ValueError if it has none."""
    target = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    if proxy and target.hostname and not proxy_bypass(target.hostname):
        target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = target.port or {"http": 80, "https": 443, "socks5": 1080}.get(target.scheme)
    if not target.hostname or not port:
        raise ValueError(url)
    return target.hostname, port


def _why_unreachable(url: str) -> str:
    """Why no connection can be made, in words; empty if one can."""
    try:
        address = host_port(url)
    except ValueError:
        return f"{url!r} is not an address"
    outcome: queue.SimpleQueue[str] = queue.SimpleQueue()

    def connect() -> None:
        try:
            socket.create_connection(address, ADDRESS_SECONDS).close()
            outcome.put("")
        except OSError as error:
            outcome.put(f"cannot connect to {address[0]} ({error.strerror or error})")

    threading.Thread(target=connect, daemon=True).start()  # a thread, because name resolution has no timeout
    try:
        return outcome.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        return f"cannot connect to {address[0]} (no answer in {CONNECT_SECONDS} s)"
