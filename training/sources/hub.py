"""The Hugging Face Hub and its local cache: which files of a repository, and where they lie.

`cached`, `download` and `cached_in_part` each take a repository and a function that picks the wanted names out of
its listing, and return the folder that has them. Only what is picked is downloaded, so no pickle reaches the disk.
HF_ENDPOINT, HF_HOME, HF_TOKEN and proxies count as everywhere in huggingface_hub.

Where there is no Hub, nobody should wait for it: before the first request one connection is tried, with name
look-up and all in under three seconds, and a refusal is remembered for five minutes (not for ever: a server that
was started before the network came up must find it later).
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
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from training.errors import InputError

ADDRESS_SECONDS = 1.2  # for one address of the Hub; it may have several, and the first may lead nowhere
CONNECT_SECONDS = 2.5  # for the look-up of its name and all addresses together
ANSWER_SECONDS = 8.0  # for the first answer, once connected
REMEMBER_SECONDS = 300.0

MODEL_FILES = ("*.json", "*.txt", "*.model", "README.md", "model*.safetensors", "*/model*.safetensors")
DATA_FILES = tuple(f"*.{kind}{gz}" for kind in ("parquet", "jsonl", "json", "csv", "tsv") for gz in ("", ".gz"))

Pick = Callable[[list[str]], list[str]]  # the files wanted of a listing; InputError if it has none


class Repo(NamedTuple):
    """A repository of the Hub; ``kind`` is model or dataset."""

    id: str
    kind: str


def endpoint() -> str:
    """The address of the Hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def names_in(folder: Path) -> list[str]:
    """The files in a folder as a repository would list them: relative, with slashes, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def cached(repo: Repo, pick: Pick) -> Path:
    """From the local cache, if it knows the repository's listing and has every file picked.

    FileNotFoundError otherwise. InputError from ``pick``, if the repository holds nothing of use.
    """
    import huggingface_hub
    from huggingface_hub import errors

    # What transformers alone has loaded lacks files that we need, such as the pooling, and nothing in it says so.
    listing_of = getattr(huggingface_hub, "get_cached_repo_tree", None)
    if listing_of is None:  # huggingface_hub 1
        raise FileNotFoundError("not there as a whole")
    try:
        names = [file.path for file in listing_of(repo.id, repo_type=repo.kind)]
    except errors.CachedRepoTreeNotFoundError as error:
        raise FileNotFoundError("not there as a whole") from error
    names = pick(names)
    try:
        return _snapshot(repo, names, local_files_only=True)
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError("incomplete") from error


def cached_in_part(repo: Repo, pick: Pick) -> Path:
    """From the local cache as it is, for when there is no better place. FileNotFoundError if it has too little."""
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE) / f"{repo.kind}s--{repo.id.replace('/', '--')}"
    try:
        folder = place / "snapshots" / (place / "refs" / "main").read_text().strip()
    except FileNotFoundError as error:
        raise FileNotFoundError("not there") from error
    try:
        pick(names_in(folder))
    except InputError as error:
        raise FileNotFoundError("incomplete") from error
    return folder


def download(repo: Repo, pick: Pick) -> Path:
    """From the Hub into the local cache.

    ConnectionError if the Hub is out of reach, FileNotFoundError if it has no such repository, each with the reason
    in words. InputError from ``pick``, if the repository holds nothing of use; then nothing is downloaded.
    """
    _knock()
    from huggingface_hub import HfApi

    with _plain_words(repo):
        info = HfApi(endpoint=endpoint()).repo_info(repo.id, repo_type=repo.kind, timeout=ANSWER_SECONDS)
    names = pick([file.rfilename for file in info.siblings or ()])
    with _plain_words(repo):
        return _snapshot(repo, names, local_files_only=False)


def _snapshot(repo: Repo, names: list[str], local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            repo.id,
            repo_type=repo.kind,
            allow_patterns=[glob.escape(name) for name in names],
            local_files_only=local_files_only,
            endpoint=endpoint(),
        )
    )


@contextmanager
def _plain_words(repo: Repo) -> Iterator[None]:
    """The client's many errors as two of Python's own, each with one sentence."""
    from huggingface_hub import errors

    noun = {"model": "model", "dataset": "data set"}[repo.kind]
    try:
        yield
    except errors.GatedRepoError as error:
        raise FileNotFoundError(f"the {noun} is gated: accept its terms on the Hub and set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(f"it has no {noun} of this name (misspelt, or private?)") from error
    except errors.HfHubHTTPError as error:
        raise ConnectionError(f"it answered with status {error.response.status_code}") from error
    except (errors.HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        why = f"no answer ({type(error).__name__}: {str(error)[:200]})"
        _remember(why)
        raise ConnectionError(why) from error
    except errors.XetDownloadError as error:
        raise ConnectionError(f"the download broke off ({error})") from error
    except (ValueError, KeyError, TypeError) as error:  # such as the log-in page of a hotel
        raise ConnectionError("what answers there is not a Hub") from error


# ---------------------------------------------------------------- which files?


def pick_model(name: str, listing: list[str]) -> list[str]:
    picked = [file for file in listing if any(fnmatchcase(file, pattern) for pattern in MODEL_FILES)]
    if not any(file.endswith(".safetensors") for file in picked):
        raise InputError(
            f"model {name} has no safetensors weights on the Hub, and pickled ones are not loaded because they can "
            "run code: choose a model that has a model.safetensors"
        )
    return picked


def pick_data(repo_id: str, patterns: Sequence[str], listing: list[str]) -> list[str]:
    data = sorted(name for name in listing if any(fnmatchcase(name, kind) for kind in DATA_FILES))
    for pattern in patterns:
        if picked := [name for name in data if fnmatchcase(name, pattern)]:
            return picked
    raise InputError(f"data set {repo_id} has no file {' or '.join(patterns)} on the Hub; it has {_some(data)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "") or "no data file"


# ---------------------------------------------------------------- is anybody there?

_refusals: dict[str, tuple[float, str]] = {}  # address of a Hub -> until when it is not asked, and why


def _remember(why: str) -> None:
    _refusals[endpoint()] = (time.monotonic() + REMEMBER_SECONDS, why)


def _knock() -> None:
    """ConnectionError if nobody listens at the Hub's address, at once if that is known from before."""
    until, why = _refusals.get(endpoint(), (0.0, ""))
    if time.monotonic() < until:
        raise ConnectionError(why)
    if why := _why_unreachable(endpoint()):
        _remember(why)
        raise ConnectionError(why)


def _why_unreachable(url: str) -> str:
    try:
        door = _door(url)
    except ValueError:
        return f"{url!r} is not an address"
    verdict: queue.SimpleQueue[str] = queue.SimpleQueue()

    def knock() -> None:
        try:
            socket.create_connection(door, ADDRESS_SECONDS).close()
            verdict.put("")
        except OSError as error:
            verdict.put(f"cannot connect to {door[0]} ({error.strerror or error})")

    # In a thread of its own, because the look-up of a name has no timeout.
    threading.Thread(target=knock, daemon=True).start()
    try:
        return verdict.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        return f"cannot connect to {door[0]} (no answer in {CONNECT_SECONDS} s)"


def _door(url: str) -> tuple[str, int]:
    """Host and port to connect to: the Hub's, or those of the proxy in front of it. ValueError if it has none."""
    target = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    if proxy and target.hostname and not proxy_bypass(target.hostname):
        target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = target.port or {"http": 80, "https": 443, "socks5": 1080}.get(target.scheme)
    if not target.hostname or not port:
        raise ValueError(url)
    return target.hostname, port
