"""The Hugging Face Hub and its local cache: downloads, uploads, and whether the Hub can be reached.

`cached`, `download` and `cached_in_part` each take a repository and a function that picks names out of its listing, and
return the folder that has those files. Only the picked files are downloaded, so that no pickle reaches the disk.
HF_ENDPOINT, HF_HOME, HF_TOKEN and proxies count as everywhere in huggingface_hub. `check_reachable` comes before
every request, so that nobody waits for a Hub that is out of reach.
"""

import glob
import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from training import progress
from training.errors import InputError, first_line
from training.names import is_repo_id
from training.sources.home import is_offline

ANSWER_SECONDS = 8.0  # the limit for the first answer, once connected

MODEL_FILES = (
    *("*.json", "*.txt", "*.model", "*.jinja", "artifact.metadata", "README.md"),
    *("model*.safetensors", "*/model*.safetensors", "adapter_model.safetensors", "head.safetensors"),
)

GATED = "the {} is gated: accept its terms on the Hub and set HF_TOKEN"
NOT_FOUND = "it has no {} of this name (misspelt, or private?)"

# A function that picks names out of a listing, and raises InputError if it has none of use.
Pick = Callable[[list[str]], list[str]]


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
        # A snapshot of transformers alone lacks files that are needed here, such as the pooling's, without a trace.
        listing = [file.path for file in get_cached_repo_tree(repo.id, repo_type=repo.kind)]
        return _snapshot(repo, pick(listing), local_files_only=True)
    except errors.CachedRepoTreeNotFoundError as error:
        raise FileNotFoundError("not there") from error
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError("incomplete") from error


def cached_in_part(repo: Repo, pick: Pick) -> Path:
    """The snapshot in the local cache without its listing, the last resort. FileNotFoundError if it lacks files."""
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
    """Downloads from the Hub into the local cache, and returns the snapshot.

    ConnectionError if the Hub cannot be reached, FileNotFoundError if it has no such repository, each with the
    reason in words. InputError from ``pick``, if the repository holds nothing of use; then nothing is downloaded.
    """
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    names, megabytes = to_download(repo, pick)
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo.id, repo_type=repo.kind)
    with _translated_errors(repo):
        return progress.watch(repo.id, folder, megabytes, lambda: _snapshot(repo, names, local_files_only=False))


def to_download(repo: Repo, pick: Pick) -> tuple[list[str], float]:
    """The names and the megabytes of what `download` would fetch, with its errors; only the listing is asked for."""
    sizes = {file.rfilename: file.size or 0 for file in repo_info(repo).siblings or ()}
    names = pick(list(sizes))
    return names, sum(sizes[name] for name in names) / 1e6


def repo_info(repo: Repo) -> Any:
    """A repository: id, sha (the commit of main), siblings (files, with sizes in bytes). Errors as in `download`."""
    check_reachable()
    from huggingface_hub import HfApi

    with _translated_errors(repo):
        api = HfApi(endpoint=endpoint())
        return api.repo_info(repo.id, repo_type=repo.kind, timeout=ANSWER_SECONDS, files_metadata=True)


def read_file(repo: Repo, name: str, revision: str) -> str:
    """The text of a small file of a repository. Errors as in `repo_info`."""
    from huggingface_hub import hf_hub_download

    with _translated_errors(repo):
        where = {"repo_type": repo.kind, "revision": revision, "endpoint": endpoint()}
        return Path(hf_hub_download(repo.id, name, **where)).read_text(encoding="utf-8", errors="replace")


def _snapshot(repo: Repo, names: list[str] | None, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    patterns = None if names is None else [glob.escape(name) for name in names]
    where = {"repo_type": repo.kind, "endpoint": endpoint(), "local_files_only": local_files_only}
    return Path(snapshot_download(repo.id, allow_patterns=patterns, **where))


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
        # It may be the log-in page of a hotel.
        raise ConnectionError("what answers there is not a Hub") from error


def pick_model(name: str, listing: list[str]) -> list[str]:
    """Configuration, tokenizer and safetensors weights. InputError if there are no such weights."""
    picked = [file for file in listing if any(fnmatchcase(file, pattern) for pattern in MODEL_FILES)]
    if not any(file.endswith(".safetensors") for file in picked):
        raise InputError(
            f"model {name} has no safetensors weights on the Hub, and pickled ones are not loaded because they can "
            "run code: choose a model that has a model.safetensors"
        )
    return picked


def push_folder(write: Callable[[Path], object], repo: str, token: str | None, private: bool, message: str) -> str:
    """Uploads a model's folder to the repository ``repo`` (org/name), which is created if need be. Returns its address.

    ``write`` creates the folder of this path, in a temporary place, and fills it. ``token`` has the right to write, and
    appears in no message and no file; None for that of HF_TOKEN or ``hf auth login``. ``private`` is for a new
    repository. InputError if the name or the token cannot be used, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi, errors, get_token

    repo, token = repo.strip(), (token if token is not None else get_token() or "").strip()
    if not is_repo_id(repo) or "/" not in repo:
        raise InputError(f"{repo[:80]!r} is no repository; give org/name, such as my-name/my-model")
    if not token.isascii() or not token.isprintable() or not token:
        raise InputError("a token with the right to write is needed; make one at huggingface.co/settings/tokens")
    if is_offline():
        raise InputError("the Hub is switched off (--offline or HF_HUB_OFFLINE=1); start without that to push a model")
    api = HfApi(endpoint=endpoint(), token=token)
    try:
        check_reachable()
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "model")
            api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=Path(folder) / "model", commit_message=message)
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        reasons = {
            401: "the Hub does not know this token; make one with the right to write at huggingface.co/settings/tokens",
            403: f"this token may not write to {repo}; give it that right, or choose a repository of your own",
        }
        raise InputError(reasons.get(status, f"the Hub refused {repo}: {_message(error, token)}")) from None
    except (errors.HTTPError, OSError, ValueError) as error:
        # There is no connection, the disk is full, or the answer is not the Hub's.
        raise InputError(f"the model could not be pushed to {repo}: {_message(error, token)}") from None
    return f"{endpoint()}/{repo}"


def _message(error: BaseException, token: str) -> str:
    return (" ".join(str(error).split()) or type(error).__name__).replace(token, "…")


# The Hub's client retries with long timeouts, and a machine without a network should not make its user wait. So one
# TCP connection is tried before the first request, name resolution included, and a failure is remembered for five
# minutes (not for longer: a server that was started before the network came up must find it later).

ADDRESS_SECONDS = 1.2  # the limit for one address of the Hub; it may have several, and the first may not answer
# The limit for name resolution and all addresses together.
CONNECT_SECONDS = 2.5
REMEMBER_SECONDS = 300.0

# For each endpoint the time until which it is not tried again, and the reason.
_failures: dict[str, tuple[float, str]] = {}


def endpoint() -> str:
    """The address of the Hub: $HF_ENDPOINT or https://huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check_reachable() -> None:
    """Raises ConnectionError with the reason if nothing accepts connections at `endpoint`, or lately did not."""
    until, why = _failures.get(endpoint(), (0.0, ""))
    if time.monotonic() < until:
        raise ConnectionError(why)
    if why := _why_unreachable(endpoint()):
        remember_failure(why)
        raise ConnectionError(why)
    _confine_redirects()


@cache
def _confine_redirects() -> None:
    """Gives huggingface_hub, once, a client that no redirect leads into the network of this machine."""
    import httpx2
    from huggingface_hub import get_session, set_client_factory

    hooks = {"request": [*get_session().event_hooks["request"], _refuse_inside]}
    # The library limits the time of each request itself.
    set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None))


def _refuse_inside(request: Any) -> None:
    """Refuses redirects to addresses of this machine and its network, where the Hub itself may be."""
    host = request.url.host
    if host == urlsplit(endpoint()).hostname or {"http", "https", "all"} & {*getproxies()}:
        # A proxy decides itself what it reaches.
        return
    for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        if not ip_address(str(address[0]).partition("%")[0]).is_global:
            raise ValueError(f"{host} is an address inside of the network")


def remember_failure(why: str) -> None:
    """Lets `check_reachable` fail at once for the next `REMEMBER_SECONDS`."""
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
    """The reason in words why no connection can be made; empty if one can."""
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

    # A thread, because name resolution has no timeout.
    threading.Thread(target=connect, daemon=True).start()
    try:
        return outcome.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        return f"cannot connect to {address[0]} (no answer in {CONNECT_SECONDS} s)"
