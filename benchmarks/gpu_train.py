"""The part "train" of the GPU benchmark: optimiser steps of regression on pairs, beside sentence-transformers' trainer.

The targets are random, as the weights are: what is compared is the time of a step and the mean loss, which do not need
better. With batches of 16 as many steps are done as an epoch of the STS benchmark has.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks import gpu_home
from benchmarks.train import Curve, TrainFunction, sbert_lab, sentence_transformers
from training.data.load import load_data
from training.models.encoder import Encoder
from training.trainer.trainer import Trainer, learning_rate

PAIRS = 5_749  # of STSb train
NLI_PAIRS = 942_000  # SNLI and MultiNLI, as in the paper's training
STEPS = {16: 360, 64: 120, 512: 30}  # batch size -> optimiser steps
SMALL_STEPS = {4: 8}

Row = dict[str, Any]


def rows(device: torch.device, base: str, folder: Path, small: bool) -> Iterator[Row]:
    """A row for each batch size and side, and an estimate of the paper's NLI run."""
    Encoder.load(base, device="cpu", dtype="float32").save(folder / "base")
    scored, labelled = write_pairs(folder, 64 if small else PAIRS)
    model, batches = str(folder / "base"), SMALL_STEPS if small else STEPS
    for batch_size, steps in batches.items():
        ours = sbert_lab(model, "auto", batch_size, scored)
        yield row("SBERT Lab", batch_size, ours(steps, 0))
        yield row(
            "sentence-transformers, plain loop, bfloat16",
            batch_size,
            plain_loop(model, batch_size, scored, device)(steps, 0),
        )
        if find_spec("datasets") is not None:  # which the trainer needs
            theirs = sentence_transformers(model, True, batch_size, scored)
            yield row("sentence-transformers, trainer, bfloat16", batch_size, theirs(steps, 0))
    batch_size, steps = next(iter(batches.items()))
    nli = row(
        "SBERT Lab, classification",
        batch_size,
        sbert_lab(model, "auto", batch_size, labelled, "classification")(steps, 0),
    )
    yield {**nli, "seconds_of_nli": NLI_PAIRS / batch_size * nli["seconds_per_step"]}
    for batch_size, steps in batches.items():  # last: compiling takes its time
        ours = compiled(sbert_lab(model, "auto", batch_size, scored), device)
        yield row("SBERT Lab, compiled", batch_size, ours(steps, 0))


def row(side: str, batch_size: int, curve: Curve) -> Row:
    """The figures of one side."""
    return {
        "side": side,
        "batch_size": batch_size,
        "steps": curve.steps,
        "seconds_per_step": curve.seconds_per_step,
        "seconds": curve.seconds_per_step * curve.steps,
        "mean_loss": statistics.mean(curve.losses),
        "seconds_of_nli": None,  # the paper's run: an epoch of SNLI and MultiNLI
    }


def plain_loop(model: str, batch_size: int, data: str, device: torch.device) -> TrainFunction:
    """Model and loss of sentence-transformers in the shortest loop of the same steps: its trainer is no faster."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    loaded = load_data(data)
    assert loaded.scores is not None
    pairs = list(zip(*loaded.columns, loaded.scores, strict=True))

    def train_once(steps: int, seed: int) -> Curve:
        curve, draw = Curve(steps=steps), random.Random(seed)
        theirs = SentenceTransformer(model, device=str(device), local_files_only=True).train()
        loss_of = CosineSimilarityLoss(theirs)
        optimiser = torch.optim.AdamW(theirs.parameters(), 2e-5, fused=True)
        for step in range(steps):
            first, second, scores = zip(*draw.sample(pairs, batch_size), strict=True)
            columns = [_to(theirs.preprocess(list(column)), device) for column in (first, second)]
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, steps, 2e-5, 0.1)
            with torch.autocast(device.type, torch.bfloat16):
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
    return {name: each.to(device) if isinstance(each, torch.Tensor) else each for name, each in features.items()}


def compiled(train_once: TrainFunction, device: torch.device) -> TrainFunction:
    """The same with the replica's forward and backward pass compiled by torch.compile."""
    step = Trainer._train_step

    def compile_first(trainer: Trainer) -> None:
        if trainer.progress.step == 0:
            backend = "inductor" if device.type == "cuda" else "eager"
            trainer.model.replica.module.compile(dynamic=True, backend=backend)
        step(trainer)

    def run(steps: int, seed: int) -> Curve:
        with patch.object(Trainer, "_train_step", compile_first):
            return train_once(steps, seed)

    return run


def write_pairs(folder: Path, count: int) -> tuple[str, str]:
    """Files of pairs of sentences: with random gold scores, and with random labels."""
    draw, known = random.Random(0), gpu_home.sentences()
    pairs = [{"sentence1": draw.choice(known), "sentence2": draw.choice(known)} for _ in range(count)]
    files = (folder / "scored.jsonl", folder / "labelled.jsonl")
    labels = ("contradiction", "entailment", "neutral")
    scored = [json.dumps({**pair, "score": draw.randint(0, 5)}) for pair in pairs]
    labelled = [json.dumps({**pair, "label": draw.choice(labels)}) for pair in pairs]
    for file, lines in zip(files, (scored, labelled), strict=True):
        file.write_text("\n".join(lines), encoding="utf-8")
    return str(files[0]), str(files[1])
