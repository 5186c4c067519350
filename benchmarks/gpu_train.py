"""The part "train" of the GPU benchmark: optimiser steps of regression on pairs, beside sentence-transformers' trainer.

The targets and the weights are random, which suffices to compare the time of a step and the mean
loss.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks import gpu_home
from benchmarks.train import Curve, TrainFunction, sbert_lab, sentence_transformers
from training.data.load import load_data
from training.models.encoder import Encoder
from training.trainer.trainer import Trainer, learning_rate

# The pairs of STSb train.
PAIRS = 5_749
# The pairs of SNLI and MultiNLI, as in the paper's training.
NLI_PAIRS = 942_000
ROUNDS = 1
# The optimiser steps by batch size. With batches of 16, an epoch of the STS benchmark has 360.
STEPS = {16: 120, 64: 40}
SMALL_STEPS = {4: 8}

Row = dict[str, Any]


def rows(device: torch.device, base: str, folder: Path, small: bool) -> Iterator[Row]:
    """A row for each batch size and side, and an estimate of the paper's NLI run. The sides take turns."""
    Encoder.load(base, device="cpu", dtype="float32").save(folder / "base")
    scored, labelled = write_pairs(folder, 64 if small else PAIRS)
    model = str(folder / "base")
    batches = SMALL_STEPS if small else STEPS
    for batch_size, steps in batches.items():
        sides = {
            "SBERT Lab": sbert_lab(model, "auto", batch_size, scored),
            "sentence-transformers, plain loop, bfloat16": plain_loop(
                model, batch_size, scored, device
            ),
        }
        if has_datasets():
            sides["sentence-transformers, trainer, bfloat16"] = sentence_transformers(
                model, bf16=True, batch_size=batch_size, data=scored
            )
        measured: dict[str, list[Measured]] = {side: [] for side in sides}
        rounds = 1 if small else ROUNDS
        for seed in range(rounds):
            for side, train_once in sides.items():
                measured[side].append(measure(train_once, steps, seed, device))
                if seed == rounds - 1:
                    yield row(side, batch_size, measured[side])
    # The first batch size, 16, is the paper's.
    batch_size, steps = next(iter(batches.items()))
    classification = sbert_lab(model, "auto", batch_size, labelled, "classification")
    nli = row("SBERT Lab, classification", batch_size, [measure(classification, steps, 0, device)])
    yield {**nli, "seconds_of_nli": NLI_PAIRS / batch_size * nli["seconds_per_step"]}
    compiled = with_compilation(sbert_lab(model, "auto", batch_size, scored), device)
    yield row("SBERT Lab, compiled", batch_size, [measure(compiled, steps, 0, device)])


def has_datasets() -> bool:
    """Whether the package datasets, which the trainer of sentence-transformers needs, can be imported."""
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        print(f"without the trainer of sentence-transformers: {error}", file=sys.stderr)
        return False
    return True


@dataclass(frozen=True)
class Measured:
    """A side's run of one round."""

    curve: Curve
    # The peak of the device's memory; None on a CPU.
    memory_gb: float | None


def measure(train_once: TrainFunction, steps: int, seed: int, device: torch.device) -> Measured:
    """Train once."""
    if device.type != "cuda":
        return Measured(train_once(steps, seed), None)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    curve = train_once(steps, seed)
    return Measured(curve, torch.cuda.max_memory_allocated() / 1e9)


def row(side: str, batch_size: int, rounds: Sequence[Measured]) -> Row:
    """The figures of one side: medians of the rounds."""
    seconds = statistics.median(measured.curve.seconds_per_step for measured in rounds)
    steps = rounds[0].curve.steps
    return {
        "side": side,
        "batch_size": batch_size,
        "steps": steps,
        "seconds_per_step": seconds,
        "seconds": seconds * steps,
        "mean_loss": statistics.mean(loss for measured in rounds for loss in measured.curve.losses),
        # Of the first round, as others may still hold memory in later ones.
        "memory_gb": rounds[0].memory_gb,
        # The paper's run is an epoch of SNLI and MultiNLI.
        "seconds_of_nli": None,
    }


def plain_loop(model: str, batch_size: int, data: str, device: torch.device) -> TrainFunction:
    """Model and loss of sentence-transformers in the shortest loop of the same steps, which its trainer cannot beat."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    loaded = load_data(data)
    assert loaded.scores is not None
    pairs = list(zip(*loaded.columns, loaded.scores, strict=True))

    def train_once(steps: int, seed: int) -> Curve:
        curve = Curve(steps=steps)
        draw = random.Random(seed)
        theirs = SentenceTransformer(model, device=str(device), local_files_only=True).train()
        loss_of = CosineSimilarityLoss(theirs)
        optimiser = torch.optim.AdamW(theirs.parameters(), 2e-5, fused=True)
        for step in range(steps):
            first, second, scores = zip(*draw.sample(pairs, batch_size), strict=True)
            columns = [_to(theirs.preprocess(list(column)), device) for column in (first, second)]
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, steps, 2e-5, 0.1)
            with torch.autocast(device.type, torch.bfloat16):
                # Gold scores from 0 to 5 become cosines from 0 to 1.
                loss = loss_of(columns, torch.tensor(scores, device=device) / 5)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            curve.losses.append(loss.item())
            curve.ends.append(time.perf_counter())
        return curve

    return train_once


def _to(features: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {
        name: feature.to(device) if isinstance(feature, torch.Tensor) else feature
        for name, feature in features.items()
    }


def with_compilation(train_once: TrainFunction, device: torch.device) -> TrainFunction:
    """Training with the replica's forward and backward pass compiled by torch.compile."""
    train_step = Trainer._train_step

    def compile_first(trainer: Trainer) -> None:
        if trainer.progress.step == 0:
            backend = "inductor" if device.type == "cuda" else "eager"
            trainer.model.replica.module.compile(dynamic=True, backend=backend)
        train_step(trainer)

    def run(steps: int, seed: int) -> Curve:
        with patch.object(Trainer, "_train_step", compile_first):
            return train_once(steps, seed)

    return run


def write_pairs(folder: Path, count: int) -> tuple[str, str]:
    """Files of pairs of sentences: with random gold scores, and with random labels."""
    draw = random.Random(0)
    sentences = gpu_home.sentences()
    labels = ("contradiction", "entailment", "neutral")
    scored = []
    labelled = []
    for _ in range(count):
        pair = {"sentence1": draw.choice(sentences), "sentence2": draw.choice(sentences)}
        scored.append(json.dumps({**pair, "score": draw.randint(0, 5)}))
        labelled.append(json.dumps({**pair, "label": draw.choice(labels)}))
    scored_file = folder / "scored.jsonl"
    labelled_file = folder / "labelled.jsonl"
    scored_file.write_text("\n".join(scored), encoding="utf-8")
    labelled_file.write_text("\n".join(labelled), encoding="utf-8")
    return str(scored_file), str(labelled_file)
