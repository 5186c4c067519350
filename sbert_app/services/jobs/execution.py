"""execute(store, run_id): work on one queued run in this process, from its lock to its last event.

The worker does this, and so does ``train`` on the command line. What goes on is in the run's ``log.txt``: where the
model and the data came from, every evaluation, and the traceback of whatever went wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.runs.events import MEASURES, Event
from sbert_app.services.runs.record import QUEUED, RESUMABLE
from sbert_app.services.runs.store import RunStore
from training.errors import InputError

if TYPE_CHECKING:
    from training.trainer.train import RunResult

log = logging.getLogger("sbert_lab.run")

TOLD_TO_END = "its process was told to end; it can be resumed"


def execute(
    store: RunStore,
    run_id: str,
    on_event: Callable[[Event], object] = lambda event: None,
    should_end: Callable[[], bool] = lambda: False,
    foreground: bool = False,
) -> RunResult:
    """Train as the run's config says; go on from its checkpoint if it was worked on before.

    Args:
        store: where the run is.
        run_id: a queued run; in the ``foreground`` one that waits for nobody (`RunStore.create` with ``queue`` off,
            or one that can be resumed).
        on_event: called with every event.
        should_end: whether this process has to end; the run is interrupted then, with a checkpoint.

    Raises:
        InputError: the run is not there for the taking; or its config, base or data cannot be used: then it failed.
    """
    with store.lease(run_id, RESUMABLE if foreground else QUEUED) as work, _log_into(work.run.folder / "log.txt"):
        stop = work.run.folder / "stop"

        def tell(event: Event) -> None:
            _log_event(event)
            on_event(event)

        try:
            from training.trainer.train import train  # seconds, the first time

            result = train(
                work.run.config,
                on_event=tell,
                folder=work.run.folder,
                should_stop=lambda: stop.exists() or should_end(),
                resume=work.resume,
                home=store.home,
            )
        except InputError as error:
            log.info("failed: %s", error)
            raise
        except Exception:
            log.exception("failed")
            raise
        work.state, work.reason = result.status, result.reason
        if result.status == "stopped" and not stop.exists():
            work.state, work.reason = "interrupted", TOLD_TO_END
        log.info("%s after %s steps%s", work.state, result.steps, f": {work.reason}" if work.reason else "")
        return result


@contextmanager
def _log_into(file: Path) -> Iterator[None]:
    """Everything that is logged inside the block goes to ``file`` too."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%Y-%m-%d %H:%M:%S"))
    ours, root = logging.getLogger("sbert_lab"), logging.getLogger()
    level = ours.level
    ours.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(level)
        handler.close()


def _log_event(event: Event) -> None:
    """An evaluation and a change of state are a line each; the steps between are in the events."""
    if event["kind"] == "eval":
        told = ", ".join(
            f"{name} {event[key] * factor:.4g}"
            for key, (name, factor) in MEASURES.items()
            if event.get(key) is not None
        )
        log.info("step %s: %s%s", event["step"], told, f"; {event['collapsed']}" if event.get("collapsed") else "")
    elif event["kind"] == "state" and event.get("state") == "running":
        resumed = event.get("resumed_from")
        log.info("%s", f"resumed from step {resumed}" if resumed else "begun")
        for key in ("base", "pooling", "device", "dtype", "rows", "steps"):
            log.info("%s: %s", key, event.get(key))
        for note in event.get("notes") or ():
            log.info("data: %s", note)
