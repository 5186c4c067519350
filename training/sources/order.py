"""The order of sources: each has a model or data, or says why not, and the first that has it is taken.

The log (``sbert_lab.sources``) says where something was found and why not earlier: a folder on this machine, the home
folder, the Hub's local cache, the Hub (`training.sources.hub`), and for the built-in models and data the package index
(`training.sources.package_index`). What no source has is one `InputError` that names each source with its reason.
Offline (HF_HUB_OFFLINE=1 or `set_offline`) neither the Hub nor the package index is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from training.errors import NotFoundError
from training.sources import hub, package_index
from training.sources.home import is_offline

log = logging.getLogger("sbert_lab.sources")


class ResolvedFolder(NamedTuple):
    """A folder with a model or a data set, and in words where it came from."""

    path: Path
    source: str


Source = tuple[str, Callable[[], ResolvedFolder]]  # a name, and a function that raises OSError if it has nothing


def first_available(what: str, sources: Sequence[Source], remedy: str, meant: str = "") -> ResolvedFolder:
    """The result of the first source that has it; InputError with every source's reason if none has."""
    reasons = []
    for source, resolve in sources:
        try:
            return logged(what, resolve())
        except OSError as error:
            reasons.append(f"{source}: {' '.join(str(error).split())}")
            log.info("%s not from %s", what, reasons[-1])
    raise NotFoundError(
        f"{what} was not found ({'; '.join(reasons)}); check the name and the network, or {remedy}{meant}",
        summary=f"{what} was not found; check the name and the network{meant}",
        details=(*reasons, f"without a network: {remedy}"),
    )


def logged(what: str, folder: ResolvedFolder) -> ResolvedFolder:
    """The folder; the log says where it is from."""
    log.info("%s from %s: %s", what, folder.source, folder.path)
    return folder


def in_home(folder: Path, why_not: Callable[[Path], str]) -> Source:
    """A folder in the home folder; ``why_not`` says in words what it lacks, "" if it is complete."""

    def from_home() -> ResolvedFolder:
        if why := why_not(folder):
            raise FileNotFoundError(why)
        return ResolvedFolder(folder, "home folder")

    return "home folder", from_home


def of_bundle(bundle: package_index.Bundle, target: Path) -> tuple[Source, Source]:
    """The folder of a bundle in the home folder, and the package index, which fills it."""

    def from_index() -> ResolvedFolder:
        _require_network()
        package_index.fetch(bundle, target)
        return ResolvedFolder(target, bundle.source)

    return in_home(target, bundle.missing_from), ("package index", from_index)


def of_hub(repo: hub.Repo, pick: hub.Pick) -> tuple[Source, Source, Source]:
    """The Hub's local cache, the Hub, and the cache as it is."""

    def from_cache(find: Callable[[hub.Repo, hub.Pick], Path], source: str) -> ResolvedFolder:
        return ResolvedFolder(find(repo, pick), source)

    def from_hub() -> ResolvedFolder:
        _require_network()
        return ResolvedFolder(hub.download(repo, pick), f"Hub {hub.endpoint()}")

    return (
        ("Hub cache", partial(from_cache, hub.cached, "Hub cache")),
        (f"Hub {hub.endpoint()}", from_hub),
        ("Hub cache in part", partial(from_cache, hub.cached_in_part, "Hub cache in part")),
    )


def _require_network() -> None:
    if is_offline():
        raise ConnectionError("not asked, because offline (HF_HUB_OFFLINE)")
