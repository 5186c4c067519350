"""Trains raw-bert-mini: python -m scripts.train_raw_bert FOLDER DATA [--seconds N | --steps N] [--shape 4x256]

A BERT of random weights learns to predict masked tokens of the sentences of DATA (files and named
sets, joined by +), and of nothing else. FOLDER gets the run with its curve, and ``raw-bert-mini``,
the model in float16. With --seconds the number of steps is chosen by the speed of a short run, which
is trained on --trial-data, or by default on DATA.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from training.trainer.config import RunConfig
from training.trainer.train import train

MAX_LENGTH = 128
TRIAL_STEPS = 60


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("data")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--trial-data")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--shape", default="4x256")
    parser.add_argument("--vocabulary-size", type=int, default=8_192)
    parser.add_argument("--batch-size", type=int, default=1_024)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    options = parser.parse_args()
    config = RunConfig(
        "mlm",
        base=f"scratch:{options.shape}",
        train_data=options.data,
        eval_data="stsb:dev",
        max_steps=options.steps,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        weight_decay=0.01,
        max_length=MAX_LENGTH,
        vocabulary_size=options.vocabulary_size,
        name="raw-bert-mini",
    )
    if options.seconds:
        trial = config.replace(train_data=options.trial_data or options.data)
        steps = int(options.seconds / seconds_per_step(trial))
        config = config.replace(max_steps=steps, eval_every=max(1, steps // 15))
    started = time.perf_counter()
    result = train(config, on_event=show, folder=options.folder / "run")
    seconds = time.perf_counter() - started
    summary = {
        "status": result.status,
        "reason": result.reason,
        "steps": result.steps,
        "seconds": seconds,
    }
    print(json.dumps(summary))
    export(options.folder / "run/model", options.folder / "raw-bert-mini")
    shutil.copy(options.folder / "run/events.jsonl", options.folder / "events.jsonl")


def seconds_per_step(config: RunConfig) -> float:
    """The time of a step, without evaluations and without the first third of the steps."""
    times: dict[int, float] = {}

    def record(event: dict[str, Any]) -> None:
        if event["kind"] == "train":
            times[event["step"]] = time.perf_counter()

    # More steps between two evaluations than the run has.
    trial = config.replace(max_steps=TRIAL_STEPS, eval_every=10**6, eval_data=None)
    train(trial, on_event=record, folder=None)
    first = sorted(times)[len(times) // 3]
    last = max(times)
    return (times[last] - times[first]) / (last - first)


def show(event: dict[str, Any]) -> None:
    """Prints the figures of an evaluation, and of every 200th step."""
    if event["kind"] != "train" or event["step"] % 200 == 0:
        figures = {key: value for key, value in event.items() if key != "negatives"}
        print(json.dumps(figures), flush=True)


def export(model: Path, target: Path) -> None:
    """Copies a model's folder, with its weights in float16."""
    shutil.copytree(model, target, dirs_exist_ok=True)
    weights = load_file(target / "model.safetensors")
    halves = {name: weight.to(torch.float16) for name, weight in weights.items()}
    save_file(halves, target / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
