"""The event log of a run: each event is a dictionary, passed to a callback and appended to ``events.jsonl``.

Every line is flushed, so other processes can follow the file during the run. Resuming from a checkpoint first removes
the events after it, so that the file holds one curve; a reader that keeps a position in the file has to start again
when the file has become shorter.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from training.atomic import write_text

Event = dict[str, Any]
OnEvent = Callable[[Event], object]


class EventLog:
    """A context manager that writes events.

    Args:
        folder: of the run; None writes no file.
        on_event: called with every event.
        keep_to_step: keep the events of the file up to this step; None starts an empty file.
    """

    def __init__(self, folder: Path | None, on_event: OnEvent, keep_to_step: int | None = None) -> None:
        self._on_event = on_event
        self._file: TextIO | None = None
        if folder is not None:
            path = folder / "events.jsonl"
            events = [] if keep_to_step is None else read_events(path)
            kept = [event for event in events if event["step"] <= (keep_to_step or 0)]
            write_text(path, "".join(_line(event) for event in kept))
            self._file = path.open("a", encoding="utf-8")

    def emit(self, kind: str, step: int, **values: object) -> Event:
        """Write an event with the current time and pass it to the callback. Non-finite numbers become null."""
        event = {"t": round(time.time(), 3), "step": step, "kind": kind, **_finite(values)}
        try:
            if self._file is not None:
                self._file.write(_line(event))
                self._file.flush()
        finally:  # on a full disk the callback still gets the event
            self._on_event(event)
        return event

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def read_events(path: Path) -> list[Event]:
    """All complete lines of an ``events.jsonl``; a last line cut short by a crash is ignored."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines if line]


def _line(event: Event) -> str:
    return json.dumps(event, ensure_ascii=False) + "\n"


def _finite(values: dict[str, object]) -> dict[str, object]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }
