"""offer(): put what a worker without the home folder needs into the store: config, data, base, checkpoint.

Files and models of this home folder that the config names travel as ``inputs`` under a hash of their content, once
for all runs; names of the Hub and built-in ones a worker resolves itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sbert_app.services.jobs.remote.push import FILES, FOLDERS
from sbert_app.services.jobs.remote.shared_store import SharedStore
from sbert_app.services.runs.store import RunStore
from training.data.reference import parse_file, split_names
from training.errors import InputError
from training.models.reference import parse_reference
from training.sources.home import home_folder
from training.sources.resolve import find_run
from training.trainer.config import RunConfig

DATA, MODELS = ("train_data", "eval_data"), ("base", "teacher")
CLAIM = "claim.json"


@dataclass(frozen=True)
class Job:
    """What a worker gets through the queue."""

    attempt: int
    config: dict[str, Any]
    name: str
    created: float
    inputs: dict[str, str] = field(default_factory=dict)  # a path or run:<id> in the config -> folder in the store
    files: dict[str, list[str]] = field(default_factory=dict)  # folder in the store -> the files in it


def prefix(run_id: str, attempt: int) -> str:
    """The folder of an attempt in the store."""
    return f"runs/{run_id}/{attempt:03d}"


def offer(store: RunStore, shared: SharedStore, run_id: str) -> Job:
    """Put a queued run into the store as its next attempt. InputError if it cannot be read or written."""
    run = store.get(run_id)
    attempt = run.record.attempt + 1
    if run.record.attempt:
        shared.remove(prefix(run_id, run.record.attempt))
    inputs, files = dict[str, str](), dict[str, list[str]]()
    for name, path in _local_inputs(run.config, store.home):
        inputs[name], found = _put_input(shared, path)
        files[inputs[name]] = found
    origin = f"{prefix(run_id, attempt)}/from"
    if run.record.started is not None:  # it has been worked on, here or elsewhere
        files[origin] = []
        for each in FILES:
            if (run.folder / each).exists():
                shared.write(f"{origin}/{each}", (run.folder / each).read_bytes())
                files[origin].append(each)
        for each in FOLDERS:
            found = shared.put_folder(run.folder / each, f"{origin}/{each}")
            files[origin] += [f"{each}/{file}" for file in found]
    job = Job(attempt, run.config.to_dict(), run.name, run.record.created, inputs, files)
    shared.write_json(f"{prefix(run_id, attempt)}/job.json", asdict(job))
    store.set_remote(run_id, attempt)
    return job


def offered(store: RunStore, shared: SharedStore, run_id: str) -> Job | None:
    """The job of a queued run, offered now if it has not been; None if a worker has taken it."""
    record = store.get(run_id).record
    place = prefix(run_id, record.attempt)
    found = shared.read_json(f"{place}/job.json") if record.is_remote else None
    if found is None:
        return offer(store, shared, run_id)
    return None if shared.exists(f"{place}/{CLAIM}") else Job(**found)


def _local_inputs(config: RunConfig, home: Path) -> Iterator[tuple[str, Path]]:
    """Parts of the config that only this home folder has, and where they are."""
    for key in DATA:
        for part in split_names(getattr(config, key) or ""):
            name = parse_file(part).path
            path = Path(name).expanduser()
            if name and path.is_file():
                yield name, path
    for key in MODELS:
        named = getattr(config, key)
        if not named:
            continue
        name = parse_reference(named).name
        if name.startswith("run:"):
            yield name, home_folder(home) / "runs" / find_run(name.removeprefix("run:"), home) / "model"
        elif Path(name).expanduser().is_dir():
            yield name, Path(name).expanduser()


def _put_input(shared: SharedStore, path: Path) -> tuple[str, list[str]]:
    """Copy a file or folder to a place that is named by its content, unless it is there -> that, and its files."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise InputError(f"{path} is empty; a run on another machine needs its files")
    root = path.parent
    names = [file.relative_to(root).as_posix() for file in files]
    digest = hashlib.sha256()
    for name, file in zip(names, files, strict=True):
        digest.update(name.encode() + b"\0")
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    place = f"inputs/{digest.hexdigest()[:32]}"
    if not shared.exists(f"{place}/complete"):
        for name, file in zip(names, files, strict=True):
            shared.put_file(file, f"{place}/{name}")
        shared.write(f"{place}/complete", b"")
    return place, names
