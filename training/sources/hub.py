"""The Hugging Face Hub and its local cache: downloads, uploads, and whether the Hub can be reached.

`cached`, `download` and `cached_in_part` each take a repository and a function that selects names
from its listing, and return the folder with these files. Only the selected files are downloaded, so
no pickle reaches the disk. HF_ENDPOINT, HF_HOME, HF_TOKEN and proxies are used as by
huggingface_hub. `check_reachable` is called before every request, so that nobody waits for a Hub
that is out of reach.
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
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import huggingface_hub
from huggingface_hub import constants, errors
from huggingface_hub.file_download import repo_folder_name

from training import progress
from training.errors import InputError, first_line, in_one_line
from training.names import is_repo_id
from training.sources.home import is_offline

# The limit for the first answer, once connected.
ANSWER_SECONDS = 8.0

MODEL_FILES = (
    "*.json",
    "*.txt",
    "*.model",
    "*.jinja",
    "artifact.metadata",
    "README.md",
    "model*.safetensors",
    "*/model*.safetensors",
    "adapter_model.safetensors",
    "head.safetensors",
)

GATED = "the {} is gated: accept its terms on the Hub and set HF_TOKEN"
NOT_FOUND = "it has no {} of this name (misspelt, or private?)"

# A function that selects names from a listing, and raises InputError if nothing can be used.
Pick = Callable[[list[str]], list[str]]


class Repo(NamedTuple):
    """A repository on the Hub. ``kind`` is model or dataset."""

    id: str
    kind: str


def names_in(folder: Path) -> list[str]:
    """Lists the files in a folder as a repository would: relative, with slashes, sorted."""
    names = []
    for path in folder.rglob("*"):
        if path.is_file():
            names.append(path.relative_to(folder).as_posix())
    return sorted(names)


def cached(repo: Repo, pick: Pick) -> Path:
    """Returns the snapshot in the local cache, if it has the repository's listing and every selected file.

    FileNotFoundError otherwise. InputError from ``pick`` if nothing in the repository can be used.
    """
    try:
        # transformers downloads no more than it needs. Its snapshots may lack other files, such as
        # the pooling's, so the listing of the repository says which files there are.
        tree = huggingface_hub.get_cached_repo_tree(repo.id, repo_type=repo.kind)
        names = pick([file.path for file in tree])
        return _snapshot(repo, names, local_files_only=True)
    except errors.CachedRepoTreeNotFoundError as error:
        raise FileNotFoundError("not there") from error
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError("incomplete") from error


def cached_in_part(repo: Repo, pick: Pick) -> Path:
    """Returns a snapshot in the local cache, as a last resort: its own files replace the repository's listing.

    FileNotFoundError if it lacks files.
    """
    try:
        snapshot = _snapshot(repo, None, local_files_only=True)
    except errors.IncompleteSnapshotError as error:
        snapshot = Path(error.snapshot_path)
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError("not there") from error
    try:
        # Called only for its InputError, if the files in the snapshot do not suffice.
        pick(names_in(snapshot))
    except InputError as error:
        raise FileNotFoundError("incomplete") from error
    return snapshot


def download(repo: Repo, pick: Pick) -> Path:
    """Downloads from the Hub into the local cache, and returns the snapshot.

    ConnectionError if the Hub cannot be reached, FileNotFoundError if it does not have the
    repository, each with the reason in words. InputError from ``pick``, before anything is downloaded, if
    nothing in the repository can be used.
    """
    names, megabytes = to_download(repo, pick)
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo.id, repo_type=repo.kind)
    fetch = partial(_snapshot, repo, names, local_files_only=False)
    with _translated_errors(repo):
        return progress.watch(repo.id, folder, megabytes, fetch)


def to_download(repo: Repo, pick: Pick) -> tuple[list[str], float]:
    """Returns the names and the megabytes of the files that `download` would fetch. Raises the errors of `download`."""
    sizes = {file.rfilename: file.size or 0 for file in repo_info(repo).siblings or ()}
    names = pick(list(sizes))
    return names, sum(sizes[name] for name in names) / 1e6


def repo_info(repo: Repo) -> Any:
    """Returns a repository's id, sha (the commit of main) and siblings (files, with sizes in bytes).

    Errors as in `download`.
    """
    check_reachable()
    with _translated_errors(repo):
        api = huggingface_hub.HfApi(endpoint=endpoint())
        return api.repo_info(
            repo.id, repo_type=repo.kind, timeout=ANSWER_SECONDS, files_metadata=True
        )


def read_file(repo: Repo, name: str, revision: str) -> str:
    """Reads a small text file of a repository.

    ConnectionError if the download fails, FileNotFoundError if the repository cannot be had, each
    with the reason in words. The ``revision`` comes from `repo_info`, which has checked that the
    Hub can be reached.
    """
    with _translated_errors(repo):
        file = huggingface_hub.hf_hub_download(
            repo.id,
            name,
            repo_type=repo.kind,
            revision=revision,
            endpoint=endpoint(),
        )
        return Path(file).read_text(encoding="utf-8", errors="replace")


def _snapshot(repo: Repo, names: list[str] | None, local_files_only: bool) -> Path:
    """Returns the folder of the newest snapshot, with these files, or with all if ``names`` is None."""
    patterns = None
    if names is not None:
        patterns = [glob.escape(name) for name in names]
    folder = huggingface_hub.snapshot_download(
        repo.id,
        allow_patterns=patterns,
        repo_type=repo.kind,
        endpoint=endpoint(),
        local_files_only=local_files_only,
    )
    return Path(folder)


@contextmanager
def _translated_errors(repo: Repo) -> Iterator[None]:
    """Converts the client's many errors to ConnectionError and FileNotFoundError, each with one sentence."""
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
        # The answer may be the log-in page of a hotel, or a redirect that `_refuse_inside` refused.
        raise ConnectionError("what answers there is not a Hub") from error


def pick_model(name: str, listing: list[str]) -> list[str]:
    """Selects configuration, tokenizer and safetensors weights. InputError if safetensors weights are missing."""
    picked = []
    for file in listing:
        if any(fnmatchcase(file, pattern) for pattern in MODEL_FILES):
            picked.append(file)
    if not any(file.endswith(".safetensors") for file in picked):
        raise InputError(
            f"model {name} has no safetensors weights on the Hub, and pickled ones are not loaded because they can "
            "run code: choose a model that has a model.safetensors"
        )
    return picked


def push_folder(
    write: Callable[[Path], object], repo: str, token: str | None, private: bool, message: str
) -> str:
    """Uploads a model's folder to a repository, which is created if necessary.

    Args:
        write: creates the folder of this path, in a temporary place, and fills it.
        repo: the name, org/name.
        token: a token with the right to write. It never appears in messages or files. None uses
            HF_TOKEN, or the token of ``hf auth login``.
        private: whether a new repository is private.
        message: the message of the commit.

    Returns:
        The address of the repository.

    Raises:
        InputError: the name or the token cannot be used, or the Hub cannot be reached.
    """
    repo = repo.strip()
    if token is None:
        token = huggingface_hub.get_token() or ""
    token = token.strip()
    if not is_repo_id(repo) or "/" not in repo:
        raise InputError(f"{repo[:80]!r} is no repository; give org/name, such as my-name/my-model")
    # A header of HTTP can only hold printable ASCII. The client's error would contain the token.
    is_readable = token.isascii() and token.isprintable()
    if not token or not is_readable:
        raise InputError(
            "a token with the right to write is needed; make one at huggingface.co/settings/tokens"
        )
    if is_offline():
        raise InputError(
            "the Hub is switched off (--offline or HF_HUB_OFFLINE=1); start without that to push a model"
        )
    api = huggingface_hub.HfApi(endpoint=endpoint(), token=token)
    try:
        check_reachable()
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            write(model)
            api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=model, commit_message=message)
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        reasons = {
            401: "the Hub does not know this token; make one with the right to write at huggingface.co/settings/tokens",
            403: f"this token may not write to {repo}; give it that right, or choose a repository of your own",
        }
        # The error itself is not chained, as it may contain the token.
        words = in_one_line(error).replace(token, "…")
        raise InputError(reasons.get(status, f"the Hub refused {repo}: {words}")) from None
    except (errors.HTTPError, OSError, ValueError) as error:
        # The connection failed, the disk is full, or another server has answered.
        words = in_one_line(error).replace(token, "…")
        raise InputError(f"the model could not be pushed to {repo}: {words}") from None
    return f"{endpoint()}/{repo}"


# The Hub's client retries with long timeouts, and users of a machine without a network should not
# wait for it. So one TCP connection is tried before the first request, including name resolution,
# and a failure is remembered, but only for five minutes, because a server may start before the
# network is up.

# The limit for one address of the Hub, which may have several.
ADDRESS_SECONDS = 1.2
# The limit for name resolution and all addresses together.
CONNECT_SECONDS = 2.5
REMEMBER_SECONDS = 300.0

# By endpoint: the time of the next attempt, and the reason of the failure.
_failures: dict[str, tuple[float, str]] = {}


def endpoint() -> str:
    """Returns the address of the Hub: $HF_ENDPOINT or https://huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check_reachable() -> None:
    """Raises ConnectionError with the reason if no server accepts connections at `endpoint`, now or recently.

    As it is called before every request, it also prepares the client (`_confine_redirects`).
    """
    until, why = _failures.get(endpoint(), (0.0, ""))
    if time.monotonic() < until:
        raise ConnectionError(why)
    why = _why_unreachable(endpoint())
    if why:
        remember_failure(why)
        raise ConnectionError(why)
    _confine_redirects()


@cache
def _confine_redirects() -> None:
    """Gives huggingface_hub a client that does not follow redirects into the network of this machine."""
    # The hooks of the library are kept. They are called for every request and every redirect.
    hooks = {"request": [*huggingface_hub.get_session().event_hooks["request"], _refuse_inside]}
    # The library limits the time of each request itself.
    huggingface_hub.set_client_factory(
        lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None),
    )


def _refuse_inside(request: Any) -> None:
    """Refuses redirects to addresses inside the network of this machine. The Hub itself may be inside."""
    host = request.url.host
    has_proxy = bool({"http", "https", "all"} & {*getproxies()})
    # A request to another host follows from an answer of the Hub, such as a redirect. A proxy
    # decides itself which addresses it connects to.
    if host == urlsplit(endpoint()).hostname or has_proxy:
        return
    # An IPv6 address may end with the name of its interface: fe80::1%eth0.
    for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        if not ip_address(str(address[0]).partition("%")[0]).is_global:
            # `_translated_errors` converts it to ConnectionError.
            raise ValueError(f"{host} is an address inside of the network")


def remember_failure(why: str) -> None:
    """Makes `check_reachable` fail immediately for the next `REMEMBER_SECONDS`."""
    _failures[endpoint()] = (time.monotonic() + REMEMBER_SECONDS, why)


def host_port(url: str) -> tuple[str, int]:
    """Returns host and port that a request to ``url`` connects to, or its proxy's. ValueError if there is none."""
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
    """Returns the reason why no connection can be made, in words; "" if one can."""
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

    # Name resolution has no timeout, so it runs in a thread.
    threading.Thread(target=connect, daemon=True).start()
    try:
        return outcome.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        return f"cannot connect to {address[0]} (no answer in {CONNECT_SECONDS} s)"
