"""The worker processes of a home folder: they outlive the app that has started them, but not a test or a benchmark."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

ENDING_SECONDS = 10.0  # in which a run writes its checkpoint


def workers_of(home: Path) -> list[psutil.Process]:
    """Those that run, however they were started: by the app, or as ``sbert-lab worker``."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        is_worker = {"worker", "sbert_app.services.jobs.worker"} & set(line) and str(home) in line
        if is_worker and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def end_workers(home: Path) -> None:
    """End them with their runs, which write into the folder until they have ended; kill those that take too long."""
    processes = []
    for worker in workers_of(home):
        with suppress(psutil.NoSuchProcess):
            processes += [worker, *worker.children(recursive=True)]
            worker.terminate()
    _, alive = psutil.wait_procs(processes, ENDING_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, ENDING_SECONDS)
