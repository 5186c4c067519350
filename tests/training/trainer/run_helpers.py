"""Running `train` in tests and reading its events."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.trainer.config import RunConfig
from training.trainer.events import read_events
from training.trainer.train import RunResult, train

Events = list[dict[str, Any]]


def run(config: RunConfig, folder: Path | None = None, **options: Any) -> tuple[RunResult, Events]:
    """The result and the events of a run."""
    events: Events = []
    return train(config, events.append, folder, **options), events


def of_kind(events: Events, kind: str) -> Events:
    return [event for event in events if event["kind"] == kind]


def stop_at(step: int, events: Events) -> Callable[[], bool]:
    """A should_stop that returns true once there is a train event of ``step``."""
    return lambda: any(event["kind"] == "train" and event["step"] >= step for event in events)


def stop_and_resume(config: RunConfig, folder: Path, step: int) -> Events:
    """The events of a run that is stopped after ``step`` and resumed, as its folder has them."""
    events: Events = []
    stopped = train(config, events.append, folder, should_stop=stop_at(step, events))
    assert stopped.status == "stopped"
    assert run(config, folder, resume=True)[0].status == "finished"
    return read_events(folder / "events.jsonl")


def curve(events: Events) -> Events:
    """Train and eval events without times: what must be equal bit for bit."""
    times = {"t", "seconds", "seconds_left", "sentences_per_second"}
    return [
        {key: value for key, value in event.items() if key not in times}
        for event in events
        if event["kind"] != "state"
    ]
