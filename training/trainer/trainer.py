"""A session: one process at work on a run, from its first step or from a checkpoint until it ends or is stopped.

`training.trainer.train.train` opens it and closes it; what it tells and writes is described there. The constructor
loads and checks everything and raises `InputError`; `work` does the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from training import parallel
from training.atomic import write_text
from training.data.load import load_data
from training.data.transforms import training_data
from training.errors import InputError, Stopped
from training.models.encoder import Encoder
from training.objectives import OBJECTIVES
from training.parallel import run_parallel
from training.trainer.batches import TokenizedBatches
from training.trainer.checkpoint import CheckpointState, load_checkpoint, save_checkpoint
from training.trainer.config import RunConfig
from training.trainer.evaluator import Evaluator, Figures, selection_metric
from training.trainer.events import EventLog
from training.trainer.model_card import model_card
from training.trainer.sampler import learning_rate
from training.trainer.throughput import ThroughputMeter
from training.trainer.training_model import TrainingBatch, TrainingModel, default_micro_batches

if TYPE_CHECKING:
    from accelerate import Accelerator

TRAIN_EVENTS = 100  # a run, about
CHECKPOINT_SECONDS = 30.0  # between two checkpoints; one is also written when the run is stopped


class NonFiniteLoss(Exception):  # noqa: N818 - an outcome of a run, not a mistake in the program
    """The loss of a step was infinite or not a number."""


@dataclass
class Progress:
    """What the run knows beside the weights; all of it is in the checkpoint."""

    step: int = 0  # optimiser steps done
    evaluated: int = -1  # the step of the last evaluation
    losses: list[float] = field(default_factory=list)  # of the steps since the last train event
    seconds: float = 0.0  # of work
    shares: int = 0  # into which each batch is cut: sums are rounded by it; 0 before the first step
    baseline: Figures | None = None
    best: Figures | None = None
    final: Figures | None = None


class Trainer:
    """See the module. Arguments as in `training.trainer.train.train`; ``state`` is that of a checkpoint, or None."""

    def __init__(
        self,
        config: RunConfig,
        accelerator: Accelerator,
        events: EventLog,
        folder: Path | None,
        should_stop: Callable[[], bool],
        state: CheckpointState | None,
        home: str | Path | None,
    ) -> None:
        self.config, self.accelerator = config, accelerator
        self.events, self.folder, self.should_stop = events, folder, should_stop
        self.progress = Progress(**(state or {}))
        self.pending: list[Tensor] = []  # losses that are still on the device
        self.ahead: TrainingBatch | None = None  # the next step's, laid out
        self.clock = ThroughputMeter(self.progress.seconds)
        torch.manual_seed(config.seed)
        self.data = training_data(config.train_data, config.objective, config.seed, home)
        watched = None if config.eval_data is None else load_data(config.eval_data, home, split="dev")
        self.watch = Evaluator(config, self.data, watched)
        encoder = self._load_encoder(home)
        self.feed = TokenizedBatches(self.data, encoder, config, accelerator.num_processes, should_stop)
        self.progress.shares = self.progress.shares or default_micro_batches(
            encoder.device, config.batch_size * len(self.data.columns)
        )
        self.training_model = TrainingModel(
            encoder,
            OBJECTIVES[config.objective].build(config, encoder.dimension, len(self.data.label_names)),
            None if config.weight_decay else self.feed.used,
            seed=1_000 * (config.seed * accelerator.num_processes + accelerator.process_index),
            rank=config.lora_rank,
            shares=self.progress.shares,
        )
        fused = encoder.device.type in ("cpu", "cuda")
        self.optimiser = torch.optim.AdamW(
            self.training_model.groups(config.weight_decay), config.learning_rate, fused=fused
        )
        if state is not None and folder is not None:
            load_checkpoint(folder / "checkpoint", self.training_model, self.optimiser)
        self.total = config.max_steps or max(1, math.ceil(config.epochs * self.feed.steps_per_epoch))
        self.eval_every = config.evaluate_every(self.total)
        self.train_every = max(1, min(50, self.total // TRAIN_EVENTS))
        self.clock.checkpoint()
        self._announce(resumed_from=None if state is None else self.progress.step)

    def work(self) -> str:
        """All steps that are left -> "finished" or "stopped". `NonFiniteLoss` when it cannot go on."""
        try:
            with parallel.single_threaded_ops() if self.training_model.shares > 1 else nullcontext():
                self._work()
        except Stopped:
            self.checkpoint()
            return "stopped"
        return "finished"

    def _work(self) -> None:
        while True:
            step = self.progress.step
            if step != self.progress.evaluated and (step % self.eval_every == 0 or step == self.total):
                self._evaluate()
            if step == self.total:
                return
            if self._asked_to_stop():
                raise Stopped
            if self.clock.since_checkpoint() > CHECKPOINT_SECONDS:
                self.checkpoint()
            self._optimise()

    def checkpoint(self) -> None:
        """Write down everything that the next step depends on, if there is a folder."""
        if self.folder is None or not self.accelerator.is_main_process:
            return
        self._settle()
        self.progress.seconds = self.clock.seconds()
        save_checkpoint(self.folder / "checkpoint", self.training_model, self.optimiser, asdict(self.progress))
        self.clock.checkpoint()

    def outcome(self) -> dict[str, Any]:
        """What `RunResult` says of the work, whatever its end."""
        progress = self.progress
        model = None if self.folder is None else self.folder / "model"
        return {
            "steps": progress.step,
            "seconds": round(self.clock.seconds(), 3),
            "baseline": progress.baseline,
            "best": progress.best,
            "final": progress.final,
            "path": str(model) if model is not None and model.is_dir() else None,
        }

    def _load_encoder(self, home: str | Path | None) -> Encoder:
        config = self.config
        device = str(self.accelerator.device)
        encoder = Encoder.load(config.base, config.pooling, config.dtype, device, home, config.seed)
        longest = config.max_length or encoder.max_length
        if longest > encoder.max_length:
            raise InputError(f"max_length is {longest}, but {config.base} takes {encoder.max_length} tokens at most")
        layout = replace(encoder.layout, max_length=longest)
        return Encoder(encoder.name, encoder.backbone, encoder.tokenizer, layout, encoder.dtype, encoder.source)

    def _announce(self, resumed_from: int | None) -> None:
        encoder = self.training_model.encoder
        self.events.emit(
            "state",
            self.progress.step,
            state="running",
            steps=self.total,
            rows=len(self.data),
            processes=self.accelerator.num_processes,
            device=str(encoder.device),
            dtype=str(encoder.dtype).removeprefix("torch."),
            shares=self.training_model.shares,
            base=encoder.name,
            pooling=encoder.pooling,
            notes=list(self.data.notes),
            resumed_from=resumed_from,
        )

    def _asked_to_stop(self) -> bool:
        asked = self.should_stop()
        if self.accelerator.num_processes == 1:
            return asked
        flag = torch.tensor(float(asked), device=self.accelerator.device)
        return bool(self.accelerator.reduce(flag, reduction="sum"))

    def _optimise(self) -> None:
        """One step of Adam on one batch."""
        progress = self.progress
        batch = self.ahead or self._lay_out(progress.step)
        loss, length = self.training_model.gradients(batch)
        _clip(self.training_model, self.config.max_grad_norm, self._agree(length))
        rate = learning_rate(progress.step, self.total, self.config.learning_rate, self.config.warmup)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        progress.step += 1
        self._update()
        self.pending.append(loss)
        self.clock.step(sum(batch.sizes) * self.accelerator.num_processes)
        due = progress.step == 1 or progress.step % self.train_every == 0 or progress.step == self.total
        if due or loss.device.type == "cpu":
            self._settle()
        if due:
            self._tell_losses(rate)

    def _lay_out(self, step: int) -> TrainingBatch:
        return self.training_model.collate(*self.feed.batch(step, self.accelerator.process_index), step)

    def _update(self) -> None:
        """Adam, and beside it the next batch: Adam waits for memory, which leaves a core, or a GPU's host, idle."""
        work: list[Callable[[], Any]] = [self.optimiser.step]
        if self.progress.step < self.total:
            work.append(partial(self._lay_out, self.progress.step))
        _, *ahead = run_parallel(work) if self.training_model.shares > 1 else [piece() for piece in work]
        self.ahead = ahead[0] if ahead else None

    def _agree(self, length: Tensor) -> Tensor:
        """The mean of all processes' gradients, in each of them. The length of this one's -> that of the mean."""
        if self.accelerator.num_processes == 1:
            return length
        weights = [weight for weight in self.training_model.parameters() if weight.grad is not None]
        for weight in weights:
            weight.grad = self.accelerator.reduce(weight.grad, reduction="mean")
        return torch.nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])

    def _settle(self) -> None:
        """Fetch the losses that are still on the device: a look at each of them at once would make a GPU wait."""
        progress = self.progress
        losses = torch.stack(self.pending).tolist() if self.pending else []
        for step, loss in enumerate(losses, progress.step - len(losses)):
            if not math.isfinite(loss):
                rows = self.feed.rows_of(step, self.accelerator.process_index)
                raise NonFiniteLoss(
                    f"the loss of step {step + 1} is {loss}, on {rows}: lower the learning rate, or look at these rows"
                )
        progress.losses += losses
        self.pending = []

    def _tell_losses(self, rate: float) -> None:
        progress = self.progress
        self.events.emit(
            "train",
            progress.step,
            loss=math.fsum(progress.losses) / len(progress.losses),
            lr=rate,
            epoch=round(progress.step / self.feed.steps_per_epoch, 4),
            steps=self.total,
            sentences_per_second=self.clock.rate(),
            seconds_left=self._seconds_left(),
        )
        progress.losses = []

    def _evaluate(self) -> None:
        """Measure, keep the best, tell."""
        if not self.accelerator.is_main_process:
            self.progress.evaluated = self.progress.step
            return
        self._settle()
        progress = self.progress
        with self.training_model.whole() as encoder:
            alone = self.accelerator.num_processes == 1  # the others would wait for one that has stopped
            found = self.watch.measure(encoder, self.training_model.objective, self.should_stop if alone else None)
            figures: Figures = {"step": progress.step, **found}
            is_best = progress.step > 0 and _is_better(figures, progress.best)
            if is_best:
                progress.best = figures
                self._save_model(encoder)
        if progress.step == 0:
            progress.baseline = figures
        progress.final, progress.evaluated = figures, progress.step
        seconds = self.clock.evaluation()
        told = {key: value for key, value in figures.items() if key != "step"}
        self.events.emit(
            "eval",
            progress.step,
            **told,
            best=is_best,
            seconds=round(seconds, 3),
            seconds_left=self._seconds_left(),
        )

    def _save_model(self, encoder: Encoder) -> None:
        if self.folder is None:
            return
        progress = self.progress
        encoder.save(self.folder / "model")
        card = model_card(self.config, self.data, progress.baseline or {}, progress.best or {}, encoder.pooling)
        write_text(self.folder / "model/README.md", card)

    def _seconds_left(self) -> float | None:
        step, every = self.progress.step, self.eval_every
        evaluations = math.ceil(self.total / every) - step // every  # the last step always has one
        return self.clock.left(self.total - step, evaluations)


def _is_better(figures: Figures, best: Figures | None) -> bool:
    """Whether an evaluation beats the best so far; without any measure the last is the best."""
    ours, theirs = selection_metric(figures), None if best is None else selection_metric(best)
    return ours is None or theirs is None or ours[1] > theirs[1]


@torch.no_grad()
def _clip(module: nn.Module, longest: float, length: Tensor) -> None:
    """Scale the gradient, which is so long, down to ``longest`` where it is longer."""
    if length.is_cuda or length > longest:  # a look at it would make a GPU wait
        torch.nn.utils.clip_grads_with_norm_(module.parameters(), longest, length)
