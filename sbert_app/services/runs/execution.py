"""The execution of one run in this process, for the worker and for ``train`` on the command line.

The run's ``log.txt`` records the sources of the model and the data, every evaluation, and the
traceback of an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.background.watch import State
from sbert_app.services.runs.record import QUEUED, Event
from sbert_app.services.runs.store import PROCESS_ENDED, RunStore
from training.errors import InputError, UserFacingError
from training.trainer.events import in_words

if TYPE_CHECKING:
    from training.trainer.train import RunResult

log = logging.getLogger("sbert_lab.run")

# The traceback goes only to log.txt, as the command line prints a single line.
_traceback_log = logging.getLogger("run")


def execute(
    store: RunStore,
    run_id: str,
    on_event: Callable[[Event], object] = lambda event: None,
    should_end: Callable[[], bool] = lambda: False,
    states: Collection[str] = QUEUED,
) -> RunResult:
    """Trains with the config of a run that is in one of ``states``, from its checkpoint if it has one.

    When ``should_end`` returns True, the run writes a checkpoint and is interrupted. Raises
    RunError if the run is in another state, or another process works on it; InputError if its
    config, base or data cannot be used, and the run has failed then.
    """
    with store.lease(run_id, states) as lease, _log_to(lease.run.folder / "log.txt"):
        stop = lease.run.folder / "stop"

        def handle(event: Event) -> None:
            _log_event(event)
            on_event(event)

        try:
            # The import of torch takes seconds.
            from training.trainer.train import train

            result = train(
                lease.run.config,
                on_event=handle,
                folder=lease.run.folder,
                should_stop=lambda: stop.exists() or should_end(),
                resume=lease.resume,
                home=store.home,
            )
        except KeyboardInterrupt:
            log.info("interrupted: %s", PROCESS_ENDED)
            # The lease takes the message as the reason.
            raise KeyboardInterrupt(PROCESS_ENDED) from None
        except UserFacingError as error:
            log.info("failed: %s", error)
            raise
        except OSError as error:
            log.info("failed: %s", error)
            why = f"{error.filename or 'a file'}: {error.strerror or error}"
            raise InputError(f"the run cannot go on: {why}") from error
        except Exception:
            _traceback_log.exception("failed")
            raise
        lease.end(result)
        log.info(
            "%s after %s steps%s",
            lease.state,
            result.steps,
            f": {lease.reason}" if lease.reason else "",
        )
        return result


@contextmanager
def _log_to(file: Path) -> Iterator[None]:
    """Writes the log records of the block to ``file``, too."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%Y-%m-%d %H:%M:%S"))
    app_logger = logging.getLogger("sbert_lab")
    # The handler is added to the root, which also gets the records of `_traceback_log`.
    root = logging.getLogger()
    level = app_logger.level
    app_logger.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        app_logger.setLevel(level)
        handler.close()


def _log_event(event: Event) -> None:
    """Logs the start, each of its settings and each evaluation in a line. Training steps are only in the events."""
    state = event.get("state")
    # `execute` logs the state in which the run ends.
    if event["kind"] == "train" or state not in (None, State.RUNNING):
        return
    log.info("%s", in_words(event))
    if state == State.RUNNING:
        for key in ("base", "pooling", "device", "dtype", "rows", "steps", "resumed_from"):
            log.info("%s: %s", key, event.get(key))
