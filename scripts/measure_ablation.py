"""Measure an ablation for assets/ablation/<name>.json: the tables that the Ablation page opens with.

    python -m scripts.measure_ablation pooling --seeds 10
    python -m scripts.measure_ablation concat --seeds 5 --max-steps 200 --nli snli-dev.csv snli-test.csv

One seed after another, all variants of each, so that an interrupted table is balanced but for its last seed. The file
is written after every run; called again, it goes on with what is missing. Another setting needs another file.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from sbert_app.services.experiments.ablations import ABLATIONS, AT_THE_END, Ablation
from sbert_app.services.experiments.precomputed import SHIPPED, PrecomputedRun, PrecomputedTable
from training.errors import InputError
from training.trainer.config import RunConfig
from training.trainer.events import Event


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. 0: every run is there; 1: the time was up before; 2: the input is wrong."""
    asked = _parse(arguments)
    ablation = ABLATIONS[asked.ablation]
    changes: dict[str, Any] = {"max_steps": asked.max_steps} if asked.max_steps else {}
    if asked.nli:
        changes["train_data"] = "+".join(str(path) for path in asked.nli)
    deadline = time.monotonic() + 60 * asked.minutes
    try:
        table = _open_table(asked, ablation, changes)
        for seed in range(asked.seeds):
            for variant in ablation.variants:
                if table.has(variant, seed):
                    continue
                if time.monotonic() > deadline:
                    return _say(f"the time is up; {len(table.runs)} runs are in {asked.out}", 1)
                run, events = measure(ablation.config(variant, seed, **changes), variant, deadline)
                if run is None:
                    return _say(f"the time is up; {len(table.runs)} runs are in {asked.out}", 1)
                table = replace(
                    table,
                    runs=[*table.runs, run],
                    measured=date.today().isoformat(),
                    training_rows=max(table.training_rows, events[0]["rows"]),  # views of a set differ
                    machine=machine(events[0]["device"], events[0]["dtype"]),
                )
                table.write(asked.out)
                _say(f"{variant}, seed {seed}: {100 * run.before:.2f} -> {100 * run.after:.2f}, {run.seconds:.0f} s", 0)
    except InputError as error:
        return _say(f"error: {error}", 2)
    return 0


def measure(config: RunConfig, variant: str, deadline: float) -> tuple[PrecomputedRun | None, list[Event]]:
    """One run in this process, without a folder. No run if the deadline (`time.monotonic`) came first."""
    from training.trainer.train import train

    events: list[Event] = []
    result = train(config, on_event=events.append, should_stop=lambda: time.monotonic() > deadline)
    if result.status == "failed":
        raise InputError(f"{config.name} failed: {result.reason}")
    if result.status == "stopped" or result.baseline is None or result.final is None:
        return None, events
    run = PrecomputedRun(
        variant=variant,
        seed=config.seed,
        before=round(result.baseline["spearman"], 6),
        after=round(result.final["spearman"], 6),
        random_cosine=round(result.final["random_cosine"], 6),
        steps=result.steps,
        seconds=round(result.seconds, 1),
    )
    return run, events


def machine(device: str, dtype: str) -> dict[str, str]:
    """What kind of machine this is: enough to judge a time by, nothing that tells whose it is."""
    import torch

    place = torch.cuda.get_device_name() if device.startswith("cuda") else f"{_processor()}, {os.cpu_count()} cores"
    threads = {} if device.startswith("cuda") else {"threads": str(torch.get_num_threads())}
    return {"device": place, **threads, "dtype": dtype, "torch": torch.__version__}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _open_table(asked: argparse.Namespace, ablation: Ablation, changes: dict[str, Any]) -> PrecomputedTable:
    """The table so far, or an empty one. InputError if it was made with other settings."""
    settings = _settings(ablation.config(ablation.default, 0, **changes), ablation)
    if asked.nli:
        settings["train_data"] = " + ".join(path.name for path in asked.nli)
    command = f"python -m scripts.measure_ablation {asked.ablation} --seeds {asked.seeds}"
    command += f" --max-steps {asked.max_steps}" if asked.max_steps else ""
    command += f" --nli {' '.join(path.name for path in asked.nli)}" if asked.nli else ""
    if not asked.out.exists():
        return PrecomputedTable(asked.ablation, settings, 0, {}, command, "", [])
    table = PrecomputedTable.read(asked.out)
    if (table.ablation, table.settings) != (asked.ablation, settings):
        raise InputError(
            f"{asked.out} was measured with other settings, {table.settings}; name another file with --out"
        )
    return replace(table, command=command)


def _settings(config: RunConfig, ablation: Ablation) -> dict[str, Any]:
    """Every field that decides the runs, but those that the ablation varies."""
    varied = {name for variant in ablation.variants.values() for name in variant.changes} | {"seed", "name"}
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in varied}
    if values["eval_every"] == AT_THE_END:
        values["eval_every"] = "before the first and after the last step"
    return values


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts.measure_ablation", description="Measure an ablation.")
    parser.add_argument("ablation", choices=ABLATIONS)
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 to this, without it")
    parser.add_argument("--max-steps", type=int, help="optimiser steps a run; without it one epoch")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long, with what is done")
    parser.add_argument("--nli", type=Path, nargs="+", help="files of labelled pairs to train on")
    parser.add_argument("--out", type=Path, help="the table [assets/ablation/<name>.json]")
    asked = parser.parse_args(arguments)
    asked.out = asked.out or SHIPPED / f"{asked.ablation}.json"
    return asked


def _say(line: str, code: int) -> int:
    print(line, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
