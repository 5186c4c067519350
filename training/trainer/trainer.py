"""Trainer: the training loop of one process, from the first step or a checkpoint until the run ends or is stopped.

`training.trainer.train` creates it, and documents the events and files that it writes. The
constructor loads and checks everything (`training.trainer.prepare`) and raises `InputError`.
`Trainer.run` does the steps.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from training.atomic import write_text
from training.device import describe_device, held_memory
from training.errors import StoppedError
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.models.folder import JOINT_HEAD
from training.models.model import open_model
from training.names import DataName
from training.parallel import run_parallel, single_threaded_ops
from training.progress import ShouldStop, ThroughputMeter
from training.trainer.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from training.trainer.config import RunConfig
from training.trainer.events import EventLog
from training.trainer.model_card import model_card
from training.trainer.negatives import MinedTriplet
from training.trainer.prepare import Preparation
from training.trainer.run_extras import RunExtras
from training.trainer.run_metrics import Figures
from training.trainer.training_model import TrainingBatch

# The least number of train events of a run, and the most steps between two of them.
TRAIN_EVENTS = 100
MAX_STEPS_PER_EVENT = 50
# The time between two checkpoints. One is also written when the run is stopped.
CHECKPOINT_SECONDS = 30.0


class NonFiniteLossError(Exception):
    """The loss of a step was infinite or not a number."""


class Trainer:
    """The training loop.

    The arguments are as in `training.trainer.train.train`. ``state`` comes from a checkpoint, None
    for a new run.
    """

    def __init__(
        self,
        config: RunConfig,
        accelerator: Accelerator,
        events: EventLog,
        folder: Path | None,
        should_stop: ShouldStop,
        state: TrainingState | None,
        home: str | Path | None,
        extras: RunExtras,
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.events = events
        self.folder = folder
        self.should_stop = should_stop
        self.home = home
        self.extras = extras
        # A function from figures to the name and the value that select the best model, or None.
        self._selection = partial(extras.selection, first=config.objective_class.selected_by)
        self._is_stopped_by_callback = False
        self.progress = state or TrainingState(step=0)
        # Losses that are still on the device.
        self._pending_losses: list[Tensor] = []
        # The batches of the next step, collated during the last one; empty before the first.
        self._next_batches: list[TrainingBatch] = []
        self.meter = ThroughputMeter(self.progress.seconds)

        preparation = Preparation(config, accelerator, should_stop, folder, home, extras)
        # This loads the model and the data, and may take minutes.
        parts = preparation.parts(self.progress.micro_batches, self.progress.cosines)
        self.model = parts.model
        self.batches = parts.batches
        self.evaluator = parts.evaluator
        self.data = parts.data
        self.notes = parts.notes
        self._saved_dimension = parts.saved_dimension
        # The checkpoint stores the number, so that a resumed run computes the same micro-batches.
        self.progress.micro_batches = self.model.num_micro_batches

        groups = self.model.parameter_groups(config.weight_decay)
        self.optimiser: torch.optim.Optimizer
        if extras.optimizer:
            self.optimiser = extras.optimizer(groups)
        else:
            # PyTorch has a fused kernel of AdamW for these devices.
            fused = accelerator.device.type in ("cpu", "cuda")
            self.optimiser = torch.optim.AdamW(groups, config.learning_rate, fused=fused)
        # The highest learning rate of each group of parameters.
        self._peaks = [group["lr"] for group in self.optimiser.param_groups]
        if state is not None and folder is not None:
            load_checkpoint(folder / "checkpoint", self.model, self.optimiser)

        self.total_steps = config.total_steps(self.batches.steps_per_epoch)
        self.eval_every = config.evaluate_every(self.total_steps)
        self.train_event_every = max(1, min(MAX_STEPS_PER_EVENT, self.total_steps // TRAIN_EVENTS))
        # The clock starts anew, as the time of loading is not part of the first step.
        self.meter.end_checkpoint()
        self._emit_running(None if state is None else self.progress.step, parts.negatives)

    def run(self) -> tuple[str, str | None]:
        """Does the remaining steps. Raises NonFiniteLossError if a loss is not finite.

        Returns "finished" or "stopped", and the reason if the run ended before its last step.
        """
        # Micro-batches run in parallel threads, one per core, so each operation uses one thread.
        threads = single_threaded_ops() if self.model.num_micro_batches > 1 else nullcontext()
        try:
            with threads:
                reason = self._run_steps()
        except StoppedError:
            self.save_checkpoint()
            return "stopped", None
        self._test()
        return "finished", reason

    def save_checkpoint(self) -> None:
        """Writes everything that the next step depends on, if the run has a folder."""
        if self.folder is None or not self.accelerator.is_main_process:
            return
        # The state includes the losses that are still on the device.
        self._fetch_losses()
        self.progress.seconds = self.meter.seconds()
        save_checkpoint(self.folder / "checkpoint", self.model, self.optimiser, self.progress)
        self._call("on_checkpoint", self.folder / "checkpoint")
        self.meter.end_checkpoint()

    def outcome(self) -> dict[str, Any]:
        """Returns the fields of `RunResult` that do not depend on how the run ended."""
        progress = self.progress
        metric, _ = self._selection(progress.best) or (None, None)
        path = None
        if self.folder is not None and (self.folder / "model").is_dir():
            path = str(self.folder / "model")
        return {
            "steps": progress.step,
            "seconds": round(self.meter.seconds(), 3),
            "baseline": progress.baseline,
            "best": progress.best,
            "metric": metric,
            "final": progress.final,
            "test": progress.test,
            "path": path,
        }

    def _emit_running(self, resumed_from: int | None, negatives: Sequence[MinedTriplet]) -> None:
        """Emits the event at the start of the run. ``resumed_from`` is None for a new run."""
        encoder = self.model.encoder
        objectives = self.model.objective.objectives
        # The loss of guessing. With Matryoshka dimensions the loss of the run is a sum, and with
        # several objectives each computes it in turn, so it cannot be compared with one guess.
        guess = None
        if len(objectives) == 1 and not self.config.matryoshka_dims:
            data = self.data[0]
            guess = objectives[0].guess(self.config.batch_size, len(data.columns), data.scores)
        self.events.emit(
            "state",
            self.progress.step,
            state="running",
            steps=self.total_steps,
            rows=sum(map(len, self.data)),
            processes=self.accelerator.num_processes,
            device=describe_device(encoder.device),
            dtype=str(encoder.dtype).removeprefix("torch."),
            micro_batches=self.model.num_micro_batches,
            base=encoder.name,
            pooling=encoder.pooling,
            notes=list(self.notes),
            negatives=[asdict(triplet) for triplet in negatives],
            guess=guess,
            resumed_from=resumed_from,
        )

    def _run_steps(self) -> str | None:
        """Does the steps. Returns the reason if the patience ends the run before the last step, else None.

        Raises StoppedError after a stop, and NonFiniteLossError if a loss is not finite.
        """
        while True:
            step = self.progress.step
            is_last = step == self.total_steps
            # A run may be resumed after the evaluation of its step.
            is_evaluated = step == self.progress.evaluated
            if not is_evaluated and (step % self.eval_every == 0 or is_last):
                self._evaluate()
                # The last step ends the run anyway, without a reason.
                if self._any_process(not is_last and self._is_exhausted()):
                    return f"no better figure in {self.config.patience} evaluations"
            if is_last:
                return None
            if self._any_process(self.should_stop() or self._is_stopped_by_callback):
                raise StoppedError
            if self.meter.since_checkpoint() > CHECKPOINT_SECONDS:
                self.save_checkpoint()
            self._train_step()

    def _is_exhausted(self) -> bool:
        """Tells whether the patience is used up. False in a process that does not evaluate."""
        patience = self.config.patience
        best = self.progress.best
        if patience is None or best is None or not self.accelerator.is_main_process:
            return False
        return self.progress.step - best["step"] >= patience * self.eval_every

    def _any_process(self, flag: bool) -> bool:
        """Tells every process whether the flag is true in any of them, so that all end at the same step."""
        if self.accelerator.num_processes == 1:
            return flag
        shared = torch.tensor(float(flag), device=self.accelerator.device)
        return bool(self.accelerator.reduce(shared, reduction="sum"))

    def _train_step(self) -> None:
        """Does one optimiser step, on one batch or on as many as are accumulated."""
        progress = self.progress
        max_norm = self.config.max_grad_norm
        batches = self._next_batches or self._collate(progress.step)
        losses, norm = self.model.forward_backward(*batches)
        norm = self._average_gradients(norm)
        # Comparing on the host would make a GPU wait, so on a GPU the gradients are always scaled,
        # perhaps by 1.
        if norm.is_cuda or norm > max_norm:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), max_norm, norm)
        for group, peak in zip(self.optimiser.param_groups, self._peaks, strict=True):
            group["lr"] = self._learning_rate(peak)
        # The train event reports the rate of the first group of parameters.
        rate = self.optimiser.param_groups[0]["lr"]
        progress.step += 1

        # Adam is bound by memory bandwidth, which leaves a core idle, and on a GPU the host is
        # idle. The next batches are collated at the same time.
        collate = partial(self._collate, progress.step)
        if self.model.num_micro_batches > 1:
            tasks: list[Callable[[], Any]] = [self.optimiser.step, collate]
            _, self._next_batches = run_parallel(tasks)
        else:
            self.optimiser.step()
            self._next_batches = collate()

        self._pending_losses.append(losses)
        sentences = sum(batch.sentences for batch in batches)
        self.meter.end_step(sentences * self.accelerator.num_processes)
        is_first_or_last = progress.step in (1, self.total_steps)
        is_due = is_first_or_last or progress.step % self.train_event_every == 0
        # On a CPU there is no transfer to wait for, so a loss that is not finite ends the run at
        # once.
        if is_due or losses.device.type == "cpu":
            self._fetch_losses()
        if is_due:
            self._emit_train(rate, norm.item())
        # Without callbacks the host need not wait for the loss.
        if self.extras.hooks("on_step"):
            self._call("on_step", progress.step, losses.mean().item())

    def _learning_rate(self, peak: float) -> float:
        """Returns the learning rate of the next step for a group of parameters with this peak."""
        step = self.progress.step
        if self.extras.schedule:
            return peak * self.extras.schedule(step, self.total_steps)
        return learning_rate(step, self.total_steps, peak, self.config.warmup)

    def _call(self, hook: str, *values: object) -> None:
        """Calls a method of the callbacks. The run stops before its next step if one returns true."""
        for callback in self.extras.hooks(hook):
            self._is_stopped_by_callback |= bool(callback(*values))

    def _collate(self, step: int) -> list[TrainingBatch]:
        """Makes the batches of a step; none after the last step."""
        if step >= self.total_steps:
            return []
        collated = []
        # Batches are counted from the start of the run.
        count = self.config.gradient_accumulation_steps
        for number in range(count * step, count * (step + 1)):
            columns, target, part = self.batches.batch(number, self.accelerator.process_index)
            collated.append(self.model.collate(columns, target, number, part))
        return collated

    def _average_gradients(self, norm: Tensor) -> Tensor:
        """Averages the gradients over all processes. Returns their norm, which is ``norm`` if there is one process."""
        if self.accelerator.num_processes == 1:
            return norm
        gradients = []
        for weight in self.model.parameters():
            if weight.grad is not None:
                weight.grad = self.accelerator.reduce(weight.grad, reduction="mean")
                gradients.append(weight.grad)
        return torch.nn.utils.get_total_norm(gradients)

    def _fetch_losses(self) -> None:
        """Moves pending losses to the host, several at a time because each transfer makes a GPU wait.

        Raises NonFiniteLossError if one of them is not finite.
        """
        progress = self.progress
        losses = torch.cat(self._pending_losses).tolist() if self._pending_losses else []
        # The losses of the last batches that were done, one for each batch.
        for batch, loss in enumerate(losses, start=self.batches_done - len(losses)):
            if not math.isfinite(loss):
                rows = self.batches.describe_rows(batch, self.accelerator.process_index)
                step = batch // self.config.gradient_accumulation_steps + 1
                raise NonFiniteLossError(
                    f"the loss of step {step} is {loss}, on {rows}: lower the learning rate, or look at these rows"
                )
        progress.losses += losses
        self._pending_losses = []

    def _emit_train(self, rate: float, gradient_norm: float) -> None:
        """Emits a train event, with the mean loss of the steps since the one before it."""
        progress = self.progress
        by_data: dict[str, dict[str, float]] = {}
        if len(self.data) > 1:
            by_data["loss_by_data"] = self._loss_by_data()
        self.events.emit(
            "train",
            progress.step,
            loss=fmean(progress.losses),
            **by_data,
            lr=rate,
            gradient_norm=gradient_norm,
            epoch=round(self.batches_done / self.batches.steps_per_epoch, 4),
            steps=self.total_steps,
            sentences_per_second=self.meter.sentences_per_second(),
            memory_gb=held_memory(self.model.encoder.device),
            seconds_left=self._seconds_left(),
        )
        progress.losses = []

    def _loss_by_data(self) -> dict[str, float]:
        """Returns the mean loss of each part of the data that had a batch since the last train event."""
        losses = self.progress.losses
        losses_of: dict[int, list[float]] = {}
        # The losses of the last batches that were done, one for each batch.
        for batch, loss in enumerate(losses, start=self.batches_done - len(losses)):
            part, _ = self.batches.part(batch)
            losses_of.setdefault(part, []).append(loss)
        means = {}
        for part in sorted(losses_of):
            name = f"{self.data[part].name}={self.config.parts[part].objective}"
            means[name] = fmean(losses_of[part])
        return means

    @property
    def batches_done(self) -> int:
        """The batches of all steps so far. With gradient accumulation a step has several."""
        return self.config.gradient_accumulation_steps * self.progress.step

    def _evaluate(self) -> None:
        """Evaluates, saves the model if it is the best so far, and emits the event. Only the main process does this."""
        progress = self.progress
        if not self.accelerator.is_main_process:
            progress.evaluated = progress.step
            return
        self._fetch_losses()
        with self.model.export_encoder() as encoder:
            # With several processes the others would wait for one that has stopped here.
            should_stop = self.should_stop if self.accelerator.num_processes == 1 else None
            measured = self.evaluator.measure(encoder, self.model.objective, should_stop)
            # Only the first evaluation returns cosines, which the checkpoint keeps.
            progress.cosines = measured.pop("cosines", progress.cosines)
            measured |= self.extras.measure(encoder)
            figures: Figures = {"step": progress.step, **measured}
            # The base itself, at step 0, is not a result of the run.
            is_best = progress.step > 0 and self._is_better(figures)
            if is_best:
                progress.best = figures
                if self.folder is not None:
                    saved_encoder = encoder
                    if isinstance(encoder, Encoder):
                        saved_encoder = encoder.with_dimension(self._saved_dimension)
                    saved_encoder.save(self.folder / "model")
                    self._write_card(encoder, self.folder)
            self._call("on_evaluate", figures, encoder)
        if progress.step == 0:
            progress.baseline = figures
        progress.final = figures
        progress.evaluated = progress.step
        seconds = round(self.meter.end_evaluation(), 3)
        left = self._seconds_left()
        self.events.emit(
            "eval",
            progress.step,
            **measured,
            # Without a metric the last model is kept, and none is the best.
            best=is_best and self._selection(figures) is not None,
            seconds=seconds,
            seconds_left=left,
        )

    def _is_better(self, figures: Figures) -> bool:
        """Tells whether an evaluation is better than the best so far."""
        best = self.progress.best or {}
        new = self._selection(figures)
        old = self._selection(best)
        if old is None:
            # This is the first evaluation after step 0, or no figure was measured that selects a
            # model. Then the last evaluation is the best.
            return True
        if new is None:
            return False
        new_metric, new_value = new
        old_metric, old_value = old
        if new_metric != old_metric:
            # The loss selects the model while the correlation is undefined. Any evaluation with a
            # correlation is better.
            return old_metric == "loss"
        if new_value == old_value:
            # With few pairs, correlations are often equal. Then the lower loss decides. Without a
            # loss, the earlier evaluation stays the best.
            return figures.get("loss", 0.0) < best.get("loss", 0.0)
        return new_value > old_value

    def _test(self) -> None:
        """Evaluates the best model, if one was saved, on the test split of the dev data, if there is one."""
        name = DataName.parse(self.config.eval_data or "").test_split
        best = self.progress.best
        # No model was saved.
        if self.folder is None or best is None:
            return
        # ``name`` is None if the dev data has no test split.
        if name is None or not self.accelerator.is_main_process:
            return
        device = str(self.accelerator.device)
        model = open_model(
            str(self.folder / "model"), dtype=self.config.dtype, device=device, home=self.home
        )
        # The steps are over, so a stop during the test leaves the run finished, without a test.
        with suppress(StoppedError):
            measured = evaluate(model, name, self.home, should_stop=self.should_stop)
            # The first similarity is the cosine, or the only score of the model.
            rho = next(iter(measured["spearman"].values()))
            if math.isfinite(rho):
                self.progress.test = {"step": best["step"], "data": name, "spearman": rho}
                self._write_card(model, self.folder)
                self.events.emit("test", **self.progress.test)

    def _write_card(self, encoder: Any, folder: Path) -> None:
        """Writes the card of the saved model in the run's ``folder``, in place of an earlier card."""
        progress = self.progress
        # sentence-transformers cannot open a model with a joint head.
        has_joint_head = (folder / "model" / JOINT_HEAD).is_file()
        library = "sbert-lab" if has_joint_head else "sentence-transformers"
        card = model_card(
            self.config,
            library,
            training=self.data,
            notes=self.notes,
            # A `CrossEncoder` has no pooling.
            pooling=getattr(encoder, "pooling", None),
            before=progress.baseline or {},
            best=progress.best or {},
            test=progress.test or {},
        )
        write_text(folder / "model/README.md", card)

    def _seconds_left(self) -> float | None:
        step = self.progress.step
        every = self.eval_every
        # The last step always has an evaluation. The evaluations up to this step are done.
        evaluations = math.ceil(self.total_steps / every) - step // every
        return self.meter.seconds_left(self.total_steps - step, evaluations)


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Computes the rate of a linear warm-up over the fraction ``warmup`` of the steps, then linear decay to 0.

    The paper's schedule (section 3.1). ``step`` counts from 0; the rate of the first step is 0, as
    in transformers' ``get_linear_schedule_with_warmup``.
    """
    warmup_steps = math.ceil(total * warmup)
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0, total - step) / max(1, total - warmup_steps)
