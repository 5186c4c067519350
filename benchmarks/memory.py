"""Memory of a training step: large batches with and without gradient caching.

Each case trains by mnrl on 2,048 rows, the pairs of STSb train that belong together, in a process of its own. The
figure is the peak of that process's memory less its peak before the first step: with the model loaded and the data
tokenised. It includes Adam's moments (182 MB for MiniLM) and what oneDNN keeps for each shape of a batch that it has
seen, which is why every case sees as many rows. Memory does not depend on the load of the machine; the seconds of a
step do.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import machine
from sbert_app.process import configure_process

ROOT = Path(__file__).parents[1]
ROWS = 2_048
CASES: list[tuple[int, int | None]] = [(32, None), (1_024, 32), (1_024, None)]  # batch size, mini-batch size
UNIT = 1 if sys.platform == "darwin" else 1_024  # of ru_maxrss, in bytes


def run(base: str = "all-MiniLM-L6-v2") -> dict[str, Any]:
    """Measure each case once.

    Returns:
        Plain JSON; ``rows`` have the memory of a step in MB beyond that of the loaded model, and seconds per step.
    """
    rows = []
    for batch_size, mini_batch_size in CASES:
        arguments = [base, str(batch_size), str(mini_batch_size or 0)]
        command = [sys.executable, "-m", "benchmarks.memory", *arguments]
        process = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        rows.append(json.loads(process.stdout.splitlines()[-1]))
    for row in rows:
        row["times_batch_32"] = round(row["step_mb"] / rows[0]["step_mb"], 2)
    return {"benchmark": "memory", "base": base, "training_rows": ROWS, "rows": rows, "machine": machine.describe()}


def measure(base: str, batch_size: int, mini_batch_size: int | None) -> dict[str, Any]:
    """One case, in this process."""
    from training.trainer.config import RunConfig
    from training.trainer.train import train
    from training.trainer.trainer import Trainer

    config = RunConfig(
        "mnrl",
        base=base,
        batch_size=batch_size,
        mini_batch_size=mini_batch_size,
        max_steps=ROWS // batch_size,
        eval_data=None,
        eval_every=10**7,
    )
    before: list[int] = []
    seconds: list[float] = []
    step = Trainer._train_step

    def recorded(trainer: Trainer) -> None:
        if not before:
            before.append(_peak())
        timing = machine.time_call(lambda: step(trainer))
        seconds.append(timing.wall)

    def not_evaluated(trainer: Trainer) -> None:
        trainer.progress.evaluated = trainer.progress.step

    with (
        patch.object(Trainer, "_train_step", recorded),
        patch.object(Trainer, "_evaluate", not_evaluated),
    ):
        result = train(config, on_event=lambda event: None)
    if result.status != "finished":
        raise RuntimeError(f"the run {result.status}: {result.reason}")
    return {
        "batch_size": batch_size,
        "mini_batch_size": mini_batch_size,
        "loaded_mb": round(before[0] / 1e6),
        "step_mb": round((_peak() - before[0]) / 1e6),
        "seconds_per_step": round(min(seconds), 2),
    }


def _peak() -> int:
    """The largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


if __name__ == "__main__":
    configure_process()  # as the app does
    name, size, mini = sys.argv[1:]
    print(json.dumps(measure(name, int(size), int(mini) or None)))
