"""Resolution of model and data names to folders, from the network if need be.

A name is looked for in this order, and the log (``sbert_lab.sources``) says where it was found and why not earlier:
a folder on this machine, the home folder, the Hub's local cache, the Hub (`training.sources.hub`), and for the
built-in models and data the package index (`training.sources.package_index`). Only for the STS benchmark the package
index comes before the Hub, because it has the published files, the Hub a copy without genres.

Every function returns the folder or the files and, in words, their source. What is found nowhere is one `InputError`
that names each source with its reason. Only safetensors weights are accepted, never a pickle. Offline
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
from training.catalogue import BASELINES, CROSS_ENCODERS, DEFAULT_MODEL, ENCODERS, LARGE_MODEL
from training.errors import InputError, NotFoundError, did_you_mean
from training.names import ModelName, is_id, is_repo_id
from training.sources import hub, package_index
from training.sources.home import home_folder, is_offline
from training.sources.hub import endpoint

log = logging.getLogger("sbert_lab.sources")

EMBEDDED = {DEFAULT_MODEL: package_index.MINILM, LARGE_MODEL: package_index.MPNET}
HUB_ORG = "sentence-transformers/"  # of the built-in models


@dataclass(frozen=True)
class ResolvedFolder:
    """A folder with a model or a data set, and in words where it came from."""

    path: Path
    source: str


@dataclass(frozen=True)
class ResolvedFiles:
    """Files of a data set in the order of their names, and in words where they came from."""

    paths: tuple[Path, ...]
    source: str


Source = tuple[str, Callable[[], ResolvedFolder]]  # a name, and a function that raises OSError if it has nothing


# ---------------------------------------------------------------- models


def model_folder(name: str, home: str | Path | None = None, fetch: bool = True) -> ResolvedFolder:
    """The folder of a model: config.json or modules.json, tokenizer, safetensors weights.

    ``name`` is a folder; or ``all-MiniLM-L6-v2`` or ``all-mpnet-base-v2``, with or without sentence-transformers/
    before it; or a Hub id; or a folder in home/models; or ``run:<id or name>``. InputError if it is none of
    these, is not available, or has no safetensors weights. Without ``fetch`` only this machine is searched.
    """
    root = home_folder(home)
    if (run := ModelName(name).run_id) is not None:
        folder = run_folder(run, root)
        run = folder.parent.name
        if why := _why_no_model(folder):
            raise InputError(f"run {run} has no model yet ({why}): let it finish, or resume it")
        return _logged(f"run:{run}", ResolvedFolder(folder, f"run {run}"))
    local = _folder_named(name)
    if local and not _why_no_model(local):
        return _logged(f"model {name}", ResolvedFolder(local, "local folder"))
    if not is_repo_id(name):
        if local:
            raise InputError(f"the folder {name} holds no model: {_why_no_model(local)}")
        raise InputError(f"model {name[:100]!r} is neither a folder nor a name such as {DEFAULT_MODEL} or org/name")
    short = name.removeprefix(HUB_ORG)
    bundle = EMBEDDED.get(short)
    target = root / "models" / (short if bundle else name)
    repo = hub.Repo(HUB_ORG + short if bundle else name, "model")
    cached, online, in_part = _hub_sources(repo, partial(hub.pick_model, repo.id))
    at_home: Source = ("home folder", partial(_in_folder, target, _why_no_model))
    remote = [online]
    if bundle:
        at_home, index = _bundle_sources(bundle, target)
        remote = [online, index]
    sources = [at_home, cached, *(remote if fetch else ()), in_part]
    here = [*ENCODERS, *CROSS_ENCODERS, *BASELINES, *(folder.name for folder in (root / "models").glob("*"))]
    meant = did_you_mean(short, here)
    return _first_available(f"model {name}", sources, f"put the model's files into {target}", meant)


def run_folder(run: str, home: str | Path | None = None) -> Path:
    """Where the model of a run is, found as in `find_run`; the run may not have one yet."""
    return home_folder(home) / "runs" / find_run(run, home) / "model"


def find_run(run: str, home: str | Path | None = None) -> str:
    """The id of a run by its id, its name or a beginning of its id. InputError if there is none, or several are."""
    runs = home_folder(home) / "runs"
    if is_id(run) and (runs / run).is_dir():
        return run
    name = " ".join(run.split())
    named = sorted(file.parent.name for file in runs.glob("[!.]*/name.txt") if name and _text(file) == name)
    if not named and is_id(run):
        named = sorted(file.parent.name for file in runs.glob(f"{run}*/run.json"))
    if not named:
        raise InputError(f"there is no run {name[:100]!r} in {runs}: `sbert-lab runs list` names them all")
    if len(named) > 1:
        which = f"run:{', run:'.join(named[:5])}"
        raise InputError(f"{len(named)} runs are called {name!r} or begin so: choose one of {which}")
    return named[0]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # deleted meanwhile, or damaged
        return ""


def _folder_named(name: str) -> Path | None:
    try:
        folder = Path(name).expanduser()
        return folder.absolute() if name.strip() and folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long, the home of ~nobody, a NUL: no folder has such a name
        return None


def _why_no_model(folder: Path) -> str:
    """Why ``folder`` is not a model; empty if it is one."""
    if not folder.is_dir():
        return "not there"
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return "it has no config.json"
    if not any(True for depth in ("*", "*/*") for _ in folder.glob(f"{depth}.safetensors")):
        return "it has no safetensors weights, and pickled ones are not loaded because they can run code"
    return ""


# ---------------------------------------------------------------- data


def stsb_folder(home: str | Path | None = None) -> ResolvedFolder:
    """The STS benchmark (Cer et al. 2017): sts-train.csv, sts-dev.csv and sts-test.csv, 5,749/1,500/1,379 pairs.

    Tab separated, never quoted: genre, file, year, id, gold score 0–5, sentence 1, sentence 2. InputError if it
    is not available.
    """
    target = home_folder(home) / "data/stsb"
    sources = [*_bundle_sources(package_index.STSB, target), *_hub_sources(_STSB, _pick_stsb)]
    found = _first_available("STS benchmark", sources, f"put sts-train.csv, sts-dev.csv and sts-test.csv into {target}")
    if found.path == target:
        return found
    create_folder(target, lambda folder: not package_index.STSB.missing_from(folder), partial(_write_stsb, found.path))
    return ResolvedFolder(target, found.source)


def glove_folder(home: str | Path | None = None) -> ResolvedFolder:
    """GloVe 6B, 50 dimensions: glove_6B_50d_emb.npy (float32 [400000, 50]) and glove_6B_index.parquet (words).

    InputError if it is not available. Fetched when first used: 76 MB from the package index.
    """
    target = home_folder(home) / "data/glove.6B.50d"
    remedy = f"put {' and '.join(package_index.GLOVE.files)} into {target}"
    return _first_available("GloVe 6B 50d", _bundle_sources(package_index.GLOVE, target), remedy)


def has_glove(home: str | Path | None = None) -> bool:
    """Whether `glove_folder` needs no download."""
    return not package_index.GLOVE.missing_from(home_folder(home) / "data/glove.6B.50d")


def dataset_files(repo_id: str, patterns: Sequence[str], home: str | Path | None = None) -> ResolvedFiles:
    """Files of a data set on the Hub that match the first of the ``patterns`` that any file matches.

    ``*`` in a pattern matches slashes too. Only Parquet, JSON, JSON Lines, CSV and TSV, gzipped or not: no script is
    ever fetched. Files in home/data/<repo_id> come first. InputError if there are no such files or no such data set.
    """
    pick, sources = _data_sources(repo_id, patterns, home)
    target = home_folder(home) / "data" / repo_id
    found = _first_available(f"data set {repo_id}", sources, f"put {' or '.join(patterns)} into {target}")
    return _picked(found, pick)


def local_dataset_files(repo_id: str, patterns: Sequence[str], home: str | Path | None = None) -> ResolvedFiles | None:
    """The same from the home folder or the Hub's local cache; None if neither has them. No network is needed."""
    pick, (at_home, cached, _, in_part) = _data_sources(repo_id, patterns, home)
    for _, resolve in (at_home, cached, *([in_part] if is_offline() else [])):
        try:
            return _picked(_logged(f"data set {repo_id}", resolve()), pick)
        except FileNotFoundError:
            continue
    return None


def _data_sources(repo_id: str, patterns: Sequence[str], home: str | Path | None) -> tuple[hub.Pick, list[Source]]:
    if not is_repo_id(repo_id):
        raise InputError(f"data set {repo_id[:100]!r} is no name of the Hub, such as mteb/sts12-sts")
    pick = partial(hub.pick_data, repo_id, patterns)
    target = home_folder(home) / "data" / repo_id

    def why_no_data(folder: Path) -> str:
        try:
            pick(hub.names_in(folder))
        except InputError:
            return "not there"
        return ""

    at_home: Source = ("home folder", partial(_in_folder, target, why_no_data))
    return pick, [at_home, *_hub_sources(hub.Repo(repo_id, "dataset"), pick)]


def _picked(found: ResolvedFolder, pick: hub.Pick) -> ResolvedFiles:
    """The folder has all files picked from the listing and none that is not listed, so the same are picked again."""
    return ResolvedFiles(tuple(found.path / name for name in pick(hub.names_in(found.path))), found.source)


# ---------------------------------------------------------------- for use without a network


def embed(home: str | Path | None = None) -> tuple[ResolvedFolder, ResolvedFolder]:
    """Put the default model and the STS benchmark into the home folder, so that the app works without a network.

    Returns both, with their sources. InputError if one is not available.
    """
    bundle = EMBEDDED[DEFAULT_MODEL]
    target = home_folder(home) / "models" / DEFAULT_MODEL
    model = model_folder(DEFAULT_MODEL, home)
    if model.path != target:
        if why := bundle.missing_from(model.path):
            raise InputError(f"model {DEFAULT_MODEL} in the {model.source} is {why}: connect to the network once")

        def copy(fresh: Path) -> None:
            for name in bundle.files:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model.path / name, fresh / name)

        create_folder(target, lambda folder: not bundle.missing_from(folder), copy)
    return ResolvedFolder(target, model.source), stsb_folder(home)


# ---------------------------------------------------------------- the order of sources


def _first_available(what: str, sources: Sequence[Source], remedy: str, meant: str = "") -> ResolvedFolder:
    """The result of the first source that has it; InputError with every source's reason if none has."""
    reasons = []
    for source, resolve in sources:
        try:
            return _logged(what, resolve())
        except OSError as error:
            reasons.append(f"{source}: {' '.join(str(error).split())}")
            log.info("%s not from %s", what, reasons[-1])
    raise NotFoundError(
        f"{what} was not found ({'; '.join(reasons)}); check the name and the network, or {remedy}{meant}",
        summary=f"{what} was not found; check the name and the network{meant}",
        details=(*reasons, f"without a network: {remedy}"),
    )


def _logged(what: str, found: ResolvedFolder) -> ResolvedFolder:
    log.info("%s from %s: %s", what, found.source, found.path)
    return found


def _in_folder(folder: Path, why_not: Callable[[Path], str]) -> ResolvedFolder:
    if why := why_not(folder):
        raise FileNotFoundError(why)
    return ResolvedFolder(folder, "home folder")


def _bundle_sources(bundle: package_index.Bundle, target: Path) -> tuple[Source, Source]:
    def from_index() -> ResolvedFolder:
        _require_network()
        package_index.fetch(bundle, target)
        return ResolvedFolder(target, bundle.source)

    return ("home folder", partial(_in_folder, target, bundle.missing_from)), ("package index", from_index)


def _hub_sources(repo: hub.Repo, pick: hub.Pick) -> tuple[Source, Source, Source]:
    def from_hub() -> ResolvedFolder:
        _require_network()
        return ResolvedFolder(hub.download(repo, pick), f"Hub {endpoint()}")

    return (
        ("Hub cache", lambda: ResolvedFolder(hub.cached(repo, pick), "Hub cache")),
        (f"Hub {endpoint()}", from_hub),
        ("Hub cache in part", lambda: ResolvedFolder(hub.cached_in_part(repo, pick), "Hub cache in part")),
    )


def _require_network() -> None:
    if is_offline():
        raise ConnectionError("not asked, because offline (HF_HUB_OFFLINE)")


# ---------------------------------------------------------------- the Hub's copy of the STS benchmark

# Three Parquet files, scores divided by 5, without genre, file and year. They are written back as the published files,
# the only format that the rest of the code reads: tab separated, never quoted.

_STSB = hub.Repo("sentence-transformers/stsb", "dataset")
_STSB_FILES = {"train": "sts-train.csv", "validation": "sts-dev.csv", "test": "sts-test.csv"}


def _pick_stsb(listing: list[str]) -> list[str]:
    """The Parquet files of the three splits. InputError if one has none."""
    return [name for split in _STSB_FILES for name in _files_of(split, listing)]


def _files_of(split: str, listing: list[str]) -> list[str]:
    return hub.pick_data(_STSB.id, [f"*{split}-*.parquet"], listing)


def _write_stsb(snapshot: Path, fresh: Path) -> None:
    """sts-train.csv, sts-dev.csv and sts-test.csv in ``fresh`` from the Parquet files in ``snapshot``."""
    import pyarrow.parquet as pq

    listing = hub.names_in(snapshot)
    for split, name in _STSB_FILES.items():
        rows = [row for file in _files_of(split, listing) for row in pq.read_table(snapshot / file).to_pylist()]
        lines = []
        for number, row in enumerate(rows):  # genre, file and year, which are unknown; id, gold score 0–5, sentences
            sentences = (re.sub(r"[\t\r\n]+", " ", row[column]) for column in ("sentence1", "sentence2"))
            lines.append("\t".join(["", "", "", f"{number:04}", f"{row['score'] * 5:.9g}", *sentences]) + "\n")
        (fresh / name).write_text("".join(lines), encoding="utf-8")
