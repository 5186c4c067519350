"""A run through the queue and a worker process, stopped and resumed, beside the same run uninterrupted.

    python -m scripts.resume_run [--base BASE] [--steps N] [--data DATA] [--eval-data DATA]

Prints one JSON object: the losses and Spearman's ρ of both runs, and their differences. The runs are
written into the home folder ($SBERT_HOME) and stay there. Needs neither gradio nor a network.
`scripts/gpu_run.sh` executes it on a GPU.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from sbert_app.services.background.watch import AT_WORK, State
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.sources.home import home_folder
from training.trainer.config import RunConfig

# The most seconds that a run may take.
LONGEST_SECONDS = 240.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="all-MiniLM-L6-v2")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--data", default="stsb:train")
    parser.add_argument("--eval-data", default="stsb:dev")
    options = parser.parse_args()
    store = RunStore(home_folder(None))
    queue = RunQueue(store)
    config = RunConfig(
        "regression",
        base=options.base,
        train_data=options.data,
        eval_data=options.eval_data,
        max_steps=options.steps,
        eval_every=options.steps // 3,
    )
    whole = wait(store, queue.start(config).id)
    if whole.state != State.FINISHED:
        sys.exit(f"the run {whole.state}: {whole.record.reason}; {log_of(store.home)}")
    run = queue.start(config)
    step = 0
    while step < options.steps // 2:
        time.sleep(0.01)
        step = store.get(run.id).progress.step or 0
    store.stop(run.id)
    stopped = wait(store, run.id)
    has_checkpoint = (stopped.folder / "checkpoint").is_dir()
    queue.resume(run.id)
    resumed = wait(store, run.id)
    devices = []
    for event in whole.events:
        if event["kind"] == "state" and "device" in event:
            devices.append(event["device"])
    result = {
        "states": [str(attempt.state) for attempt in (whole, stopped, resumed)],
        "stopped_after_step": stopped.progress.step,
        "asked_after_step": step,
        "checkpoint": has_checkpoint,
        "losses": differences(whole, resumed, "train", "loss"),
        "spearman": differences(whole, resumed, "eval", "spearman"),
        "device": devices,
    }
    print(json.dumps(result))


def wait(store: RunStore, run_id: str) -> Run:
    """The run once it has ended. RuntimeError after `LONGEST_SECONDS`."""
    end = time.monotonic() + LONGEST_SECONDS
    while store.state(run_id) in {*AT_WORK, State.QUEUED}:
        if time.monotonic() > end:
            raise RuntimeError(f"the run has not ended: {log_of(store.home)}")
        time.sleep(0.1)
    return store.get(run_id)


def log_of(home: Path) -> str:
    """The logs of the workers."""
    return "\n".join(file.read_text() for file in home.glob("worker-*.log"))


def differences(whole: Run, resumed: Run, kind: str, name: str) -> dict[str, Any]:
    """A figure of both runs by step, and the largest difference."""

    def by_step(run: Run) -> dict[int, float]:
        return {event["step"]: event[name] for event in run.events if event["kind"] == kind}

    first = by_step(whole)
    second = by_step(resumed)
    common_steps = first.keys() & second.keys()
    return {
        "steps": list(first),
        "whole": list(first.values()),
        "resumed": [second.get(step) for step in first],
        "largest_difference": max(abs(first[step] - second[step]) for step in common_steps),
    }


if __name__ == "__main__":
    main()
