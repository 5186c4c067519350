"""Finds the folders of models, runs and the built-in data, and downloads them if necessary.

A folder comes from the first of several sources that has it: a folder on this machine, the home
folder, the Hub's local cache, the Hub (`training.sources.hub`), and for the built-in models and
data the package index (`training.sources.package_index`). The log (``sbert_lab.sources``) says
where a folder comes from, and why it does not come from an earlier source. If no source has it, one
`InputError` names each source with its reason. The Hub and the package index are not used offline
(HF_HUB_OFFLINE=1 or `set_offline`). Only safetensors weights are accepted, never pickles.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from training.catalogue import (
    BASELINES,
    CROSS_ENCODERS,
    DEFAULT_MODEL,
    ENCODERS,
    LARGE_MODEL,
    RAW_BERT,
    asset,
)
from training.errors import InputError, NotFoundError, did_you_mean, in_one_line
from training.names import ModelName, existing_path, is_id, is_repo_id
from training.sources import hub, package_index
from training.sources.home import home_folder, is_offline

log = logging.getLogger("sbert_lab.sources")

EMBEDDED = {DEFAULT_MODEL: package_index.MINILM, LARGE_MODEL: package_index.MPNET}
HUB_ORG = "sentence-transformers/"
# The place of GloVe in the home folder.
GLOVE_FOLDER = "data/glove.6B.50d"
# Formats of converted weights, which cannot be trained, and the names of their files.
OTHER_WEIGHTS = {"GGUF": "*.gguf", "ONNX": "*.onnx", "OpenVINO": "openvino*.xml"}


class ResolvedFolder(NamedTuple):
    """A folder with a model or a data set, and where it came from, in words."""

    path: Path
    source: str


class Source(NamedTuple):
    """A place that may have a folder. ``find`` returns the folder, or raises OSError with the reason in words."""

    name: str
    find: Callable[[], Path]
    is_remote: bool = False
    # A more detailed name, for the source of the folder; "" if ``name`` says all.
    full_name: str = ""


def model_folder(name: str, home: str | Path | None = None, fetch: bool = True) -> ResolvedFolder:
    """Finds the folder of a model: config.json or modules.json, tokenizer, safetensors weights.

    ``name`` is a folder; or ``all-MiniLM-L6-v2`` or ``all-mpnet-base-v2``, with or without
    sentence-transformers/ before it; or ``raw-bert-mini``; or a Hub id; or a folder in home/models;
    or ``run:<id or name>``. Without ``fetch`` only this machine is searched. InputError if it is
    not available, or does not have safetensors weights.
    """
    root = home_folder(home)
    run_name = ModelName(name).run_id
    if run_name is not None:
        # The folder of the model, inside the folder of the run.
        folder = run_folder(run_name, root)
        run = folder.parent.name
        why = _why_no_model(folder)
        if why:
            raise InputError(f"run {run} has no model yet ({why}): let it finish, or resume it")
        return _logged(f"run:{run}", ResolvedFolder(folder, f"run {run}"))
    if name == RAW_BERT:
        return _logged(f"model {name}", ResolvedFolder(asset(RAW_BERT), "a part of SBERT Lab"))
    local = existing_path(name)
    if local:
        local = local.absolute()
    if local and not _why_no_model(local):
        return _logged(f"model {name}", ResolvedFolder(local, "local folder"))
    if not is_repo_id(name):
        if local:
            raise InputError(f"{name} holds no model: {_why_no_model(local)}")
        raise InputError(
            f"model {name[:100]!r} is neither a folder nor a name such as {DEFAULT_MODEL} or org/name"
        )
    short = name.removeprefix(HUB_ORG)
    bundle = EMBEDDED.get(short)
    target = root / "models" / name
    repo_id = name
    why_not = _why_no_model
    if bundle:
        target = root / "models" / short
        repo_id = HUB_ORG + short
        why_not = bundle.missing_from
    repo = hub.Repo(repo_id, "model")
    pick = partial(hub.pick_model, repo_id)
    sources = []
    if local:
        # The folder holds no model. It is among the sources so that the error says why.
        sources.append(_in_home(local, _why_no_model)._replace(name="local folder"))
    sources.append(_in_home(target, why_not))
    sources.append(Source("Hub cache", partial(hub.cached, repo, pick)))
    if fetch:
        sources.append(
            Source(f"Hub {hub.endpoint()}", partial(hub.download, repo, pick), is_remote=True)
        )
    if fetch and bundle:
        sources.append(_in_index(bundle, target))
    # The last resort is a snapshot that other programs have downloaded in part. The log calls it by
    # its full name.
    sources.append(
        Source("Hub cache", partial(hub.cached_in_part, repo, pick), full_name="Hub cache in part")
    )
    names = [*ENCODERS, *CROSS_ENCODERS, *BASELINES]
    names += [folder.name for folder in (root / "models").glob("*")]
    remedy = f"put the model's files into {target}"
    return _first_available(f"model {name}", sources, remedy, did_you_mean(short, names))


def run_folder(run: str, home: str | Path | None = None) -> Path:
    """Returns the folder of a run's model, which need not exist yet. ``run`` is as in `find_run`."""
    return home_folder(home) / "runs" / find_run(run, home) / "model"


def find_run(run: str, home: str | Path | None = None) -> str:
    """Finds the id of a run by its id, its name or the beginning of its id. InputError if no run or several match."""
    runs = home_folder(home) / "runs"
    if is_id(run) and (runs / run).is_dir():
        return run
    name = " ".join(run.split())
    ids = []
    if name:
        # The folder of a run that is being deleted begins with a dot.
        for file in runs.glob("[!.]*/name.txt"):
            if _text(file) == name:
                ids.append(file.parent.name)
    if not ids and is_id(run):
        # `is_id` allows no wildcards and no slashes.
        ids = [file.parent.name for file in runs.glob(f"{run}*/run.json")]
    if not ids:
        raise InputError(
            f"there is no run {name[:100]!r} in {runs}: `sbert-lab runs list` names them all"
        )
    if len(ids) > 1:
        which = f"run:{', run:'.join(sorted(ids)[:5])}"
        raise InputError(f"{len(ids)} runs are called {name!r} or begin so: choose one of {which}")
    return ids[0]


def stsb_folder(home: str | Path | None = None) -> ResolvedFolder:
    """Finds the STS benchmark (Cer et al. 2017): sts-train.csv, sts-dev.csv, sts-test.csv, 5,749/1,500/1,379 pairs.

    Tab separated, never quoted: genre, file, year, id, gold score 0–5, sentence 1, sentence 2.
    InputError if it is not available.
    """
    return _bundled("STS benchmark", package_index.STSB, home_folder(home) / "data/stsb")


def glove_folder(home: str | Path | None = None) -> ResolvedFolder:
    """Finds GloVe 6B, 50 dimensions: glove_6B_50d_emb.npy (float32 [400000, 50]), glove_6B_index.parquet (words).

    InputError if it is not available. It is downloaded when first used: 76 MB from the package
    index.
    """
    return _bundled("GloVe 6B 50d", package_index.GLOVE, home_folder(home) / GLOVE_FOLDER)


def has_glove(home: str | Path | None = None) -> bool:
    """Tells whether GloVe is on this machine."""
    return not package_index.GLOVE.missing_from(home_folder(home) / GLOVE_FOLDER)


def _bundled(what: str, bundle: package_index.Bundle, target: Path) -> ResolvedFolder:
    """Finds ``target``, or fills it from the package index."""
    sources = [_in_home(target, bundle.missing_from), _in_index(bundle, target)]
    return _first_available(what, sources, f"put {', '.join(bundle.files)} into {target}")


def _in_home(folder: Path, why_not: Callable[[Path], str]) -> Source:
    """Makes the source of a folder on this machine. ``why_not`` says what a folder lacks, "" if it is complete."""

    def find() -> Path:
        why = why_not(folder)
        if why:
            raise FileNotFoundError(why)
        return folder

    return Source("home folder", find)


def _in_index(bundle: package_index.Bundle, target: Path) -> Source:
    """Makes the source that fills ``target`` from the package index."""
    fetch = partial(package_index.fetch, bundle, target)
    return Source("package index", fetch, is_remote=True, full_name=bundle.source)


def _first_available(
    what: str, sources: Sequence[Source], remedy: str, meant: str = ""
) -> ResolvedFolder:
    """Returns the folder of the first source that has it.

    NotFoundError if none has it, with the reason of each, the ``remedy``, and ``meant``, a question
    about a similar name.
    """
    reasons = []
    for source in sources:
        try:
            if source.is_remote and is_offline():
                # It is caught below, where it becomes one of the reasons.
                raise ConnectionError("not asked, because offline (HF_HUB_OFFLINE)")
            return _logged(what, ResolvedFolder(source.find(), source.full_name or source.name))
        except OSError as error:
            reasons.append(f"{source.name}: {in_one_line(error)}")
            # It is normal that a folder on this machine does not have a model or the data.
            level = logging.INFO if source.is_remote else logging.DEBUG
            log.log(level, "%s not from %s", what, reasons[-1])
    # Two sources have the name "Hub cache", and both may give the same reason.
    reasons = list(dict.fromkeys(reasons))
    raise NotFoundError(
        f"{what} was not found ({'; '.join(reasons)}); check the name and the network, or {remedy}{meant}",
        summary=f"{what} was not found; check the name and the network{meant}",
        details=(*reasons, f"without a network: {remedy}"),
    )


def _logged(what: str, folder: ResolvedFolder) -> ResolvedFolder:
    """Returns the folder, after its source is logged."""
    log.info("%s from %s: %s", what, folder.source, folder.path)
    return folder


def _text(file: Path) -> str:
    """Returns the text of a file; "" if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        # Another process has deleted it, or it is damaged.
        return ""


def _why_no_model(folder: Path) -> str:
    """Returns the reason why ``folder`` is not a model; "" if it is one."""
    if folder.is_file():
        return "it is a file; name the folder of a model, unpacked"
    if not folder.is_dir():
        return "not there"
    files = [*folder.glob("*"), *folder.glob("*/*")]
    suffixes = {file.suffix for file in files}
    has_weights = ".safetensors" in suffixes
    others = []
    for kind, pattern in OTHER_WEIGHTS.items():
        if any(file.match(pattern) for file in files):
            others.append(kind)
    if others and not has_weights:
        return f"it has {' and '.join(others)} weights alone; fetch the safetensors of the model they were made from"
    has_config = (folder / "config.json").is_file()
    if not has_config and not (folder / "modules.json").is_file():
        # The model may be one or two folders further down: checkpoints, the Hub's cache, an
        # unpacked archive.
        tokenizers = [*folder.glob("*/tokenizer.json"), *folder.glob("*/*/tokenizer.json")]
        newest = max(tokenizers, key=lambda file: file.parent.stat().st_mtime, default=None)
        advice = f"; {newest.parent} looks like a model: name that folder" if newest else ""
        return f"it has no config.json{advice}"
    if has_weights:
        return ""
    if suffixes & {".bin", ".pt", ".ckpt"}:
        return "it has no safetensors weights, and pickled ones are not loaded because they can run code"
    # Modules such as a bag of words do not have weights.
    return "it has no safetensors weights" if has_config else ""
