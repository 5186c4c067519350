"""What a run tells: one dictionary an event, to the caller and as a line of JSON in ``events.jsonl``.

Every line is flushed, so that any process can follow the file while the run goes on. A run that is resumed goes on
from its checkpoint: the lines of the steps after it are taken out first, so that the file holds one curve. (A
reader that remembers a position in the file must begin anew when the file has become shorter.)
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
    """Writes events. Without a folder they go to the caller only."""

    def __init__(self, folder: Path | None, on_event: OnEvent, keep_to_step: int | None = None) -> None:
        self._tell = on_event
        self._file: TextIO | None = None
        if folder is not None:
            path = folder / "events.jsonl"
            kept = [] if keep_to_step is None else read_events(path)
            _rewrite(path, [event for event in kept if event["step"] <= (keep_to_step or 0)])
            self._file = path.open("a", encoding="utf-8")

    def emit(self, kind: str, step: int, **figures: object) -> Event:
        """Add the time, write the line, tell the caller. Numbers that are not finite become null."""
        event = {"t": round(time.time(), 3), "step": step, "kind": kind, **_plain(figures)}
        try:
            if self._file is not None:
                self._file.write(json.dumps(event, ensure_ascii=False) + "\n")
                self._file.flush()
        finally:  # a full disk keeps the line from the file, not the event from the caller
            self._tell(event)
        return event

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def read_events(path: Path) -> list[Event]:
    """All whole lines of an ``events.jsonl``; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines if line]


def _rewrite(path: Path, events: list[Event]) -> None:
    write_text(path, "".join(json.dumps(e, ensure_ascii=False) + "\n" for e in events))


def _plain(figures: dict[str, object]) -> dict[str, object]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in figures.items()
    }
