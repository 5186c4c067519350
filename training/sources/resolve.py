"""Where models and data come from: the one place that touches the network.

A name is looked for in this order, and the log (``sbert_lab.sources``) says where it was found and why not before:
a folder on this machine, the home folder, the Hub's local cache, the Hub (`training.sources.hub`), and for what
SBERT Lab
brings along the package index (`training.sources.package_index`). Only the STS benchmark asks the package index
before the Hub: there are the published files, on the Hub a copy without genres.

All return a `ResolvedModel`: the folder to read from, and in plain words where it came from. What is found nowhere
is one `InputError` that names each place with its reason. Only safetensors weights are taken, never a pickle. Offline
(HF_HUB_OFFLINE=1 or `set_offline`) neither the Hub nor the package index is asked.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from training.atomic import create_folder
from training.errors import InputError
from training.registry import DEFAULT_MODEL, LARGE_MODEL
from training.sources import hub, package_index, stsb
from training.sources.connection import endpoint
from training.sources.home import home_folder, is_offline

log = logging.getLogger("sbert_lab.sources")

EMBEDDED = {DEFAULT_MODEL: package_index.MINILM, LARGE_MODEL: package_index.MPNET}
EMBEDDED_ON_HUB = "sentence-transformers/"  # + the name

_RUN_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)


@dataclass(frozen=True)
class ResolvedModel:
    """A folder, and in plain words where it came from."""

    path: Path
    source: str


@dataclass(frozen=True)
class ResolvedFiles:
    """Files of a data set in the order of their names, and in plain words where they came from."""

    paths: tuple[Path, ...]
    source: str


Place = tuple[str, Callable[[], ResolvedModel]]  # its name, and the look into it: OSError with the reason if in vain


# ---------------------------------------------------------------- models


def model_folder(name: str, home: str | Path | None = None) -> ResolvedModel:
    """The folder of a model: config.json or modules.json, tokenizer, safetensors weights.

    ``name`` is a folder; or ``all-MiniLM-L6-v2`` or ``all-mpnet-base-v2``, with or without sentence-transformers/
    before it; or a Hub id; or a folder in home/models; or ``run:<id>``. InputError if it is none of these, or
    cannot be had, or has no safetensors weights.
    """
    root = home_folder(home)
    if name.startswith("run:"):
        return _run_folder(name.removeprefix("run:"), root)
    local = _folder_named(name)
    if local and not _no_model(local):
        return _say(f"model {name}", ResolvedModel(local, "local folder"))
    if not hub.is_repo_id(name):
        if local:
            raise InputError(f"the folder {name} holds no model: {_no_model(local)}")
        raise InputError(f"model {name[:100]!r} is neither a folder nor a name such as {DEFAULT_MODEL} or org/name")
    short = name.removeprefix(EMBEDDED_ON_HUB)
    bundle = EMBEDDED.get(short)
    target = root / "models" / (short if bundle else name)
    repo = hub.Repo(EMBEDDED_ON_HUB + short if bundle else name, "model")
    whole, online, in_part = _hub_places(repo, partial(hub.pick_model, repo.id))
    if bundle:
        at_home, index = _bundle_places(bundle, target)
        places = [at_home, whole, online, index, in_part]
    else:
        places = [("home folder", partial(_in_folder, target, _no_model)), whole, online, in_part]
    return _first(f"model {name}", places, f"put the model's files into {target}")


def _run_folder(run: str, root: Path) -> ResolvedModel:
    runs = root / "runs"
    if not _RUN_ID.fullmatch(run):
        raise InputError(f"{run[:100]!r} is no run's id: those are made of letters, digits, dots and dashes")
    if not (runs / run).is_dir():
        raise InputError(f"there is no run {run} in {runs}: `python -m sbert_app runs list` names those there are")
    if why := _no_model(runs / run / "model"):
        raise InputError(f"run {run} has no model yet ({why}): let it finish, or resume it")
    return _say(f"run:{run}", ResolvedModel(runs / run / "model", f"run {run}"))


def _folder_named(name: str) -> Path | None:
    try:
        folder = Path(name).expanduser()
        return folder.absolute() if name.strip() and folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long, the home of ~nobody, a NUL: no folder has such a name
        return None


def _no_model(folder: Path) -> str:
    """Why ``folder`` is not a model; empty if it is one."""
    if not folder.is_dir():
        return "not there"
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return "it has no config.json"
    if not any(True for depth in ("*", "*/*") for _ in folder.glob(f"{depth}.safetensors")):
        return "it has no safetensors weights, and pickled ones are not loaded because they can run code"
    return ""


# ---------------------------------------------------------------- data


def stsb_folder(home: str | Path | None = None) -> ResolvedModel:
    """The STS benchmark (Cer et al. 2017): sts-train.csv, sts-dev.csv and sts-test.csv, 5,749/1,500/1,379 pairs.

    Tab separated, never quoted: genre, file, year, id, gold score 0–5, sentence 1, sentence 2. InputError if it
    cannot be had.
    """
    target = home_folder(home) / "data/stsb"
    places = [*_bundle_places(package_index.STSB, target), *_hub_places(stsb.REPO, stsb.pick)]
    found = _first("STS benchmark", places, f"put sts-train.csv, sts-dev.csv and sts-test.csv into {target}")
    if found.path == target:
        return found
    create_folder(target, lambda folder: not package_index.STSB.lacking(folder), partial(stsb.write, found.path))
    return ResolvedModel(target, found.source)


def glove_folder(home: str | Path | None = None) -> ResolvedModel:
    """GloVe 6B, 50 dimensions: glove_6B_50d_emb.npy (float32 [400000, 50]) and glove_6B_index.parquet (words).

    InputError if it cannot be had. On demand: 76 MB from the package index.
    """
    target = home_folder(home) / "data/glove.6B.50d"
    remedy = f"put {' and '.join(package_index.GLOVE.files)} into {target}"
    return _first("GloVe 6B 50d", _bundle_places(package_index.GLOVE, target), remedy)


def dataset_files(repo_id: str, patterns: Sequence[str], home: str | Path | None = None) -> ResolvedFiles:
    """Files of a data set on the Hub: of the ``patterns``, those that the first that fits any file fits.

    ``*`` in a pattern fits slashes too. Only Parquet, JSON, JSON lines, CSV and TSV, gzipped or not: no script is
    ever fetched. Files in home/data/<repo_id> come first. InputError if the data set or such files cannot be had.
    """
    if not hub.is_repo_id(repo_id):
        raise InputError(f"data set {repo_id[:100]!r} is no name of the Hub, such as mteb/sts12-sts")
    pick = partial(hub.pick_data, repo_id, patterns)
    target = home_folder(home) / "data" / repo_id
    at_home: Place = ("home folder", partial(_in_folder, target, partial(_no_data, pick)))
    places = [at_home, *_hub_places(hub.Repo(repo_id, "dataset"), pick)]
    found = _first(f"data set {repo_id}", places, f"put {' or '.join(patterns)} into {target}")
    # What was picked from the listing is what is picked from the folder: all of it is there, and nothing unlisted.
    return ResolvedFiles(tuple(found.path / name for name in pick(hub.names_in(found.path))), found.source)


def _no_data(pick: hub.Pick, folder: Path) -> str:
    try:
        pick(hub.names_in(folder))
    except InputError:
        return "not there"
    return ""


# ---------------------------------------------------------------- what SBERT Lab brings along


def embed(home: str | Path | None = None) -> tuple[ResolvedModel, ResolvedModel]:
    """Make the home folder hold the default model and the STS benchmark, so that all works without a network.

    Returns both, with where they came from this time. InputError if one cannot be had.
    """
    bundle = EMBEDDED[DEFAULT_MODEL]
    target = home_folder(home) / "models" / DEFAULT_MODEL
    model = model_folder(DEFAULT_MODEL, home)
    if model.path != target:
        if why := bundle.lacking(model.path):
            raise InputError(f"model {DEFAULT_MODEL} in the {model.source} is {why}: connect to the network once")

        def copy(fresh: Path) -> None:
            for name in bundle.files:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model.path / name, fresh / name)

        create_folder(target, lambda folder: not bundle.lacking(folder), copy)
    return ResolvedModel(target, model.source), stsb_folder(home)


# ---------------------------------------------------------------- the order of places


def _first(what: str, places: Sequence[Place], remedy: str) -> ResolvedModel:
    """The first place that has it; InputError with every place's reason if none has."""
    reasons = []
    for place, look in places:
        try:
            return _say(what, look())
        except OSError as error:
            reasons.append(f"{place}: {' '.join(str(error).split())}")
            log.info("%s not from %s", what, reasons[-1])
    raise InputError(f"{what} was not found ({'; '.join(reasons)}); check the name and the network, or {remedy}")


def _say(what: str, found: ResolvedModel) -> ResolvedModel:
    log.info("%s from %s: %s", what, found.source, found.path)
    return found


def _in_folder(folder: Path, lacking: Callable[[Path], str]) -> ResolvedModel:
    if why := lacking(folder):
        raise FileNotFoundError(why)
    return ResolvedModel(folder, "home folder")


def _bundle_places(bundle: package_index.Bundle, target: Path) -> tuple[Place, Place]:
    def from_index() -> ResolvedModel:
        _need_network()
        package_index.fetch(bundle, target)
        return ResolvedModel(target, bundle.source)

    return ("home folder", partial(_in_folder, target, bundle.lacking)), ("package index", from_index)


def _hub_places(repo: hub.Repo, pick: hub.Pick) -> tuple[Place, Place, Place]:
    def from_hub() -> ResolvedModel:
        _need_network()
        return ResolvedModel(hub.download(repo, pick), f"Hub {endpoint()}")

    return (
        ("Hub cache", lambda: ResolvedModel(hub.cached(repo, pick), "Hub cache")),
        (f"Hub {endpoint()}", from_hub),
        ("Hub cache in part", lambda: ResolvedModel(hub.cached_in_part(repo, pick), "Hub cache in part")),
    )


def _need_network() -> None:
    if is_offline():
        raise ConnectionError("not asked, because offline (HF_HUB_OFFLINE)")
