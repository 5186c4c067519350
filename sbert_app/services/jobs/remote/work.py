"""work(): a worker takes a run of another home folder: fetches it from the store, executes it, brings it back.

The run lives in ``home/remote/<attempt>/<id>`` of the worker's home folder meanwhile.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sbert_app.services.jobs.execution import execute
from sbert_app.services.jobs.remote.offer import CLAIM, DATA, MODELS, Job, prefix
from sbert_app.services.jobs.remote.push import Pusher, Status
from sbert_app.services.jobs.remote.shared_store import SharedStore, StoreUnreachable
from sbert_app.services.runs.errors import RunNotFound
from sbert_app.services.runs.record import AT_WORK, RunRecord, one_line
from sbert_app.services.runs.store import RunStore
from training.atomic import create_folder, write_text
from training.data.reference import parse_file, split_names
from training.errors import UserFacingError
from training.models.reference import parse_reference
from training.trainer.config import RunConfig

log = logging.getLogger("sbert_lab.remote")


def work(
    shared: SharedStore, home: Path, run_id: str, job: Job, worker: str, should_end: threading.Event
) -> str | None:
    """Execute one attempt of a run, unless another worker has it -> the state in which it ended; None if not taken.

    Args:
        shared: the store.
        home: this worker's home folder, for models and data.
        run_id: of the run.
        job: what the queue said.
        worker: the name of this one.
        should_end: set when this process has to end.

    Raises:
        StoreUnreachable: the run could not be fetched; it is still queued.
        UserFacingError: its config, base or data cannot be used. The run is then failed.
    """
    place = prefix(run_id, job.attempt)
    if not shared.exists(f"{place}/job.json") or shared.exists(f"{place}/stop"):
        log.info("run %s is not wanted any more", run_id)
        return None
    if not shared.create(f"{place}/{CLAIM}", json.dumps({"worker": worker}).encode()):
        log.info("run %s has been taken by another worker", run_id)
        return None
    store = RunStore(home, home / "remote" / f"{job.attempt:03d}")
    folder = store.folder / run_id
    _fetch(shared, home, place, folder, job, worker)
    pusher = Pusher(shared, place, folder, worker)

    def is_ending() -> bool:
        return should_end.is_set() or pusher.is_superseded.is_set()

    try:
        with pusher.pushing():
            execute(store, run_id, should_end=is_ending, worker=worker)
    finally:
        state = RunRecord.read(folder).state
        _bring_back(pusher, should_end)
    return state


def _bring_back(pusher: Pusher, should_end: threading.Event) -> None:
    if pusher.push_end(should_end):
        shutil.rmtree(pusher.folder, ignore_errors=True)
    else:
        log.error("the end of %s is not in the store; it is in %s", pusher.place, pusher.folder)


def fetch_job(shared: SharedStore, run_id: str) -> Job | None:
    """The last job of a run in the store, for a worker that has no queue; None if there is none."""
    attempts = shared.names(f"runs/{run_id}")
    values = shared.read_json(f"runs/{run_id}/{max(attempts)}/job.json") if attempts else None
    return None if values is None else Job(**values)


def recover(shared: SharedStore, home: Path, worker: str, should_end: threading.Event) -> None:
    """Bring back what earlier workers of this home folder could not, and remove what killed ones have left."""
    for folder in (home / "remote").glob("[0-9]*/*"):
        lock = FileLock(folder / "lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:  # a worker is at it
            continue
        lock.release()
        try:
            has_ended = RunRecord.read(folder).state not in AT_WORK
        except RunNotFound:
            has_ended = False
        if has_ended:
            _bring_back(Pusher(shared, prefix(folder.name, int(folder.parent.name)), folder, worker), should_end)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _fetch(shared: SharedStore, home: Path, place: str, folder: Path, job: Job, worker: str) -> None:
    """Write the run's folder. What cannot be used fails the run, with the reason."""
    try:
        inputs = {name: _fetch_input(shared, home, input, job.files[input]) for name, input in job.inputs.items()}
        _prepare(shared, place, folder, job, inputs)
    except StoreUnreachable:
        raise
    except UserFacingError as error:
        status = Status("failed", one_line(error), None, time.time(), worker, beat=1)
        shared.write_json(f"{place}/status.json", asdict(status))
        raise


def _fetch_input(shared: SharedStore, home: Path, place: str, files: list[str]) -> Path:
    """A file or folder of the other home folder -> where it is here."""
    target = home / "remote" / place

    def fill(fresh: Path) -> None:
        shared.get_folder(place, files, fresh)

    create_folder(target, lambda folder: folder.is_dir(), fill)
    return target / files[0].split("/")[0]


def _prepare(shared: SharedStore, place: str, folder: Path, job: Job, inputs: dict[str, Path]) -> None:
    """Write the run's folder as it is in the other home folder, with the paths of this machine."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    origin = f"{place}/from"
    before = job.files.get(origin)
    if before:
        shared.get_folder(origin, before, folder)
    config = RunConfig.from_dict(_with_local_names(job.config, inputs))
    write_text(folder / "config.json", config.to_json() + "\n")
    write_text(folder / "name.txt", job.name)
    RunRecord("queued", job.created, started=None if before is None else job.created).write(folder)


def _with_local_names(config: dict[str, Any], inputs: dict[str, Path]) -> dict[str, Any]:
    """The config with the names of inputs replaced by their paths here."""
    changed = dict(config)
    for key in DATA:
        if changed.get(key):
            files = [parse_file(part) for part in _parts(changed[key], inputs)]
            changed[key] = "+".join(str(file._replace(path=str(inputs.get(file.path, file.path)))) for file in files)
    for key in MODELS:
        if changed.get(key):
            reference = parse_reference(changed[key])
            if reference.name in inputs:
                changed[key] = str(reference._replace(name=str(inputs[reference.name])))
    return changed


def _parts(name: str, inputs: dict[str, Path]) -> list[str]:
    """A file of the other home folder may have a plus in its name."""
    return [name] if parse_file(name).path in inputs else split_names(name)
