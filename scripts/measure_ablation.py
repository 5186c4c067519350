"""Measure an ablation for assets/ablation/<name>.json, the precomputed tables of the Ablation page.

    python -m scripts.measure_ablation pooling --seeds 10
    python -m scripts.measure_ablation concat --seeds 5 --max-steps 200 --nli snli-dev.csv snli-test.csv
    python -m scripts.measure_ablation base --seeds 5 --nli snli-dev.csv snli-test.csv --keep models/

All variants of a seed are run before the next seed, so an interrupted table is balanced except for
its last seed. The file is written after every run; when called again, the script continues with the
missing runs. Other settings need another file. ``--nli`` gives files to the variants that learn
from NLI; ``--keep`` keeps the models of these runs.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from sbert_app.services.experiments.ablations import (
    ABLATIONS,
    AT_THE_END,
    SHIPPED,
    Ablation,
    PrecomputedRun,
    PrecomputedTable,
)
from sbert_app.services.results.cost import describe_processor
from sbert_app.services.store.documents import read_document, write_document
from training.errors import InputError
from training.trainer.config import RunConfig
from training.trainer.events import Event

# These are 19,666 labelled pairs.
NLI = ABLATIONS["concat"].common["train_data"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 if the table is complete, 1 if the time limit came first, 2 for invalid input."""
    args = _parse(arguments)
    ablation = ABLATIONS[args.ablation]
    changes: dict[str, Any] = {}
    if args.max_steps:
        changes["max_steps"] = args.max_steps
    if args.base:
        changes["base"] = args.base
    if args.lr:
        changes["learning_rate"] = args.lr
    deadline = time.monotonic() + 60 * args.minutes
    try:
        table = _open_table(args, ablation, changes)
        for seed in range(args.seeds):
            for variant in ablation.variants:
                if any((run.variant, run.seed) == (variant, seed) for run in table.runs):
                    continue
                config = ablation.config(variant, seed, **changes)
                if args.nli and config.train_data == NLI:
                    config = config.replace(
                        train_data="+".join(map(str, args.nli)), eval_data=config.eval_data
                    )
                model_folder = args.keep and args.keep / f"{variant}-{seed}"
                run, events = measure(config, variant, deadline, model_folder)
                if run is None:
                    print(
                        f"time limit reached; {args.out} has {len(table.runs)} runs",
                        file=sys.stderr,
                    )
                    return 1
                table = replace(
                    table,
                    runs=[*table.runs, run],
                    measured=date.today().isoformat(),
                    training_rows=max(table.training_rows, events[0]["rows"]),
                    machine=_machine_of(table, events[0]["device"], events[0]["dtype"]),
                )
                args.out.parent.mkdir(parents=True, exist_ok=True)
                write_document(args.out, table)
                rho = f"{100 * run.before:.2f} -> {100 * run.after:.2f}"
                print(f"{variant}, seed {seed}: {rho}, {run.seconds:.0f} s", file=sys.stderr)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def measure(
    config: RunConfig, variant: str, deadline: float, model: Path | None = None
) -> tuple[PrecomputedRun | None, list[Event]]:
    """Trains once in this process. Returns the run and its events.

    The run is None if the deadline (`time.monotonic`) came first. ``model`` is the folder that keeps
    the model; None keeps no model.
    """
    from training.trainer.train import train

    events: list[Event] = []
    if time.monotonic() > deadline:
        return None, events
    with tempfile.TemporaryDirectory() as folder:
        # Without a folder, a run writes nothing.
        run_folder = None if model is None else Path(folder) / "run"
        result = train(
            config, events.append, run_folder, should_stop=lambda: time.monotonic() > deadline
        )
        if model is not None and result.path is not None:
            shutil.copytree(result.path, model, dirs_exist_ok=True)
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


def _machine_of(table: PrecomputedTable, device: str, dtype: str) -> dict[str, str]:
    """The machine of the last run, and the dtypes of all runs: word vectors are not computed in bfloat16."""
    dtypes = []
    if "dtype" in table.machine:
        dtypes = table.machine["dtype"].split(" and ")
    if dtype not in dtypes:
        dtypes.append(dtype)
    return {**machine(device, dtype), "dtype": " and ".join(dtypes)}


def machine(device: str, dtype: str) -> dict[str, str]:
    """A description of the machine to judge times by, without anything that identifies its owner."""
    import torch

    if device.startswith("cuda"):
        about = {"device": torch.cuda.get_device_name()}
    else:
        about = {"device": describe_processor(), "threads": str(torch.get_num_threads())}
    return {**about, "dtype": dtype, "torch": torch.__version__}


def _open_table(
    args: argparse.Namespace, ablation: Ablation, changes: dict[str, Any]
) -> PrecomputedTable:
    """The table so far, or an empty one. Raises InputError if it was measured with other settings."""
    settings = _settings(ablation.config(ablation.default, 0, **changes), ablation)
    if args.nli and settings.get("train_data") == NLI:
        settings["train_data"] = " + ".join(path.name for path in args.nli)
    command = f"python -m scripts.measure_ablation {args.ablation} --seeds {args.seeds}"
    command += f" --base {args.base}" if args.base else ""
    command += f" --lr {args.lr}" if args.lr else ""
    command += f" --max-steps {args.max_steps}" if args.max_steps else ""
    command += f" --nli {' '.join(path.name for path in args.nli)}" if args.nli else ""
    if not args.out.exists():
        return PrecomputedTable(args.ablation, settings, 0, {}, command, "", [])
    table = read_document(args.out, PrecomputedTable)
    # A table of an earlier version lacks the fields that came later. Its runs had their defaults.
    defaults = RunConfig("regression").to_dict()
    settings_of_table = {}
    for name in settings:
        settings_of_table[name] = table.settings.get(name, defaults.get(name))
    if table.ablation != args.ablation or settings_of_table != settings:
        raise InputError(
            f"{args.out} was measured with other settings, {table.settings}; name another file with --out"
        )
    return replace(table, command=command, settings=settings)


def _settings(config: RunConfig, ablation: Ablation) -> dict[str, Any]:
    """Every field of the configuration except those that the ablation varies."""
    varied = {"seed", "name"}
    for variant in ablation.variants.values():
        varied.update(variant.changes)
    values = {name: value for name, value in config.to_dict().items() if name not in varied}
    if values["eval_every"] == AT_THE_END:
        values["eval_every"] = "before the first and after the last step"
    return values


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts.measure_ablation", description="Measure an ablation."
    )
    parser.add_argument("ablation", choices=ABLATIONS)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 0")
    parser.add_argument("--base", help="the base of the variants that do not vary it")
    parser.add_argument("--lr", type=float, help="their learning rate, unless they vary it")
    parser.add_argument(
        "--max-steps", type=int, help="optimiser steps of a run; default: one epoch"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="time limit; completed runs are kept"
    )
    parser.add_argument(
        "--nli", type=Path, nargs="+", help="files of labelled pairs, where a variant trains on NLI"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the models, <variant>-<seed>")
    parser.add_argument(
        "--out", type=Path, help="the table [assets/ablation/<name>.json, or <name>-<base>.json]"
    )
    args = parser.parse_args(arguments)
    if args.out is None:
        name = f"{args.ablation}-{args.base}" if args.base else args.ablation
        args.out = SHIPPED / f"{name}.json"
    return args


if __name__ == "__main__":
    sys.exit(main())
