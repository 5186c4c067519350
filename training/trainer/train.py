"""The training of a model by any of the objectives, with events, checkpoints, resuming and stopping.

Each event is a dictionary, passed to ``on_event`` and written as a line of JSON to ``events.jsonl``. All events have
``t`` (seconds since 1970), ``step`` (optimiser steps done) and ``kind``:

    state   state         running, finished, failed or stopped; every run ends with one of the last three
            reason        why it failed, or why it finished before its last step, in one line; else null
            with running: steps, rows, processes, device, dtype, micro_batches (per batch), base, pooling,
                          notes (what was done to the data), negatives (examples of mined ones, see
                          `training.trainer.negatives`), guess (the loss of guessing, or null),
                          resumed_from (a step, or null)
    train   loss          mean over the steps since the last train event
            loss_by_data  of several data sets with an objective each: the mean of each, by "data=objective"
            lr, gradient_norm (before it is clipped), epoch, steps (in total), sentences_per_second, seconds_left (an
            estimate), memory_gb (of a GPU: the most that was held so far, else null)
    eval    spearman / accuracy / loss, by_dimension (see `training.trainer.evaluator`), random_cosine,
            random_cosine_std, plain_cosine, plain_cosine_std, uniformity, alignment, effective_rank, collapsed (null,
            or the reason in words), best (whether it is the best so far), seconds (its duration), seconds_left
    test    data, spearman: of the best model on the test split of the dev data, once, where the home folder has it

Non-finite figures are null. The eval event of step 0 is that of the base. A run's folder, if given, gets config.json,
events.jsonl, checkpoint/ (the last state, see `training.trainer.checkpoint`; removed when the run is finished) and
model/ (of the best evaluation after step 0, in the sentence-transformers format with a model card). A resumed run
continues from the checkpoint and writes the same curve as an uninterrupted one: in float32 on a CPU, bit for bit.

Objects that cannot be written into a config, such as data in memory, an objective or evaluators, are arguments of
`train`; the eval event has the figures of such evaluators too. ``own.json`` in the folder lists the objects
(`training.trainer.run_extras`).

Mistakes of the user (in the config, a name, a file) raise `InputError` before the first step. Failures during the run
(a loss that is not finite, a full disk, too little memory) end it as failed, with a reason.

The config's ``report_to`` writes the figures to experiment trackers too (`training.trainer.events`).

Several processes: ``accelerate launch`` a script that calls `train`; each process takes a batch of its own in every
step, the main process evaluates and writes.
"""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError

from training.atomic import recover, write_text
from training.data.dataset import Data, Dataset, as_dataset, html_table
from training.errors import InputError, StoppedError
from training.models.encoder import Encoder
from training.models.model import open_model
from training.names import RUN
from training.trainer import negatives
from training.trainer.checkpoint import TrainingState, read_checkpoint
from training.trainer.config import RunConfig
from training.trainer.events import EventLog, OnEvent, printing, read_events
from training.trainer.language_model import VOCABULARY
from training.trainer.run_extras import RunExtras, read_object, run_folder, tracked_run
from training.trainer.run_metrics import Figures, line_of_figures
from training.trainer.trainer import NonFiniteLossError, Trainer

log = logging.getLogger("sbert_lab.train")


@dataclass(frozen=True)
class RunResult:
    """The end of a run: its ``status`` is finished, failed or stopped.

    ``id`` is the name of the folder, or the config's name. ``best``, ``final`` and ``baseline`` are the figures of an
    eval event, with its step; ``test`` has the Spearman's ρ of the best model on the test split of the dev data. The
    best model, once there is one, is in the folder ``path``, and was selected by the figure ``metric``. ``reason`` says
    in one line why the run failed or ended before its last step. ``seconds`` and ``evaluations`` include those before
    the run was resumed.
    """

    id: str
    status: str
    steps: int
    seconds: float
    best: Figures | None = None
    final: Figures | None = None
    baseline: Figures | None = None
    test: Figures | None = None
    path: str | None = None
    reason: str | None = None
    metric: str | None = None
    evaluations: tuple[Figures, ...] = ()

    @cached_property
    def encoder(self) -> Any:
        """The best model, opened: an `Encoder`, or what the objective trained. InputError if the run has kept none."""
        if self.path is None:
            raise InputError(f"the run {self.id} has no model: it had no evaluation after a step, or folder was None")
        return open_model(self.path)

    def __repr__(self) -> str:
        metric = self.metric or ""
        values = [event[metric] for event in (self.baseline, self.best) if event and event.get(metric) is not None]
        figures = f", {metric} {' → '.join(f'{value:.4f}' for value in values)}" if values else ""
        reason = f", {self.reason}" if self.reason else ""
        return (
            f"RunResult({self.id!r}, {self.status} after {self.steps:,} steps in {self.seconds:.0f} s{figures}{reason})"
        )

    def _repr_html_(self) -> str:
        lines = [line_of_figures(event) for event in self.evaluations]
        names = list(dict.fromkeys(chain.from_iterable(lines)))
        rows = [
            (event["step"], *(f"{figures[name]:.4f}" if name in figures else "" for name in names))
            for event, figures in zip(self.evaluations, lines, strict=True)
        ]
        return html_table(("step", *names), rows, repr(self))


def train(
    config: RunConfig,
    on_event: OnEvent | None = None,
    folder: str | Path | None = RUN,
    should_stop: Callable[[], bool] | None = None,
    resume: bool = False,
    home: str | Path | None = None,
    *,
    overwrite: bool = False,
    train_data: Data = ...,
    eval_data: Data = ...,
    objective: Callable[..., torch.Tensor] | None = None,
    evaluators: Sequence[Callable[[Encoder], Mapping[str, float]]] = (),
    metric_for_best_model: str | None = None,
    greater_is_better: bool = True,
    callbacks: Sequence[Any] = (),
    optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer] | None = None,
    schedule: Callable[[int, int], float] | None = None,
    progress: bool | None = None,
) -> RunResult:
    """Fine-tunes ``config.base``.

    InputError if the config, the data or the base cannot be used, or the folder holds another run.

    Args:
        config: see `RunConfig`.
        on_event: called with every event; None prints a line for each evaluation.
        folder: the run's folder. By default it is a new one of the home folder's runs, which the list of runs shows
            and can stop; ``run:NAME`` is home/runs/NAME. None keeps nothing but the figures.
        should_stop: called at every step; once it returns true the run stops within two seconds, with a checkpoint.
        resume: continue from the folder's checkpoint, or from the start if there is none yet.
        overwrite: replace the run that is in the folder, with its model.
        train_data: in place of the config's: a name, a path, a `Dataset`, or rows as `as_dataset` takes them.
        eval_data: in place of the config's, as ``train_data``; None for random pairs alone. Without it, and without any
            in the config, a tenth of your own training data is held out (`training.objectives.base.hold_out`).
        objective: in place of the config's: vectors, (B, D) float32 a column, and target -> loss, a scalar tensor;
            the target is (B,): labels as int64, or gold scores from 0 to 1; or None. A `torch.nn.Module` is trained.
        evaluators: functions of the `Encoder` that return figures by name; called at each evaluation.
        metric_for_best_model: the figure that chooses the best model; None = spearman, accuracy or loss.
        greater_is_better: whether a higher value of it is the better one.
        callbacks: objects with any of the methods on_step(step, loss), on_evaluate(figures, encoder),
            on_checkpoint(folder) and on_end(result); one of the first three that returns true stops the run.
        optimizer: makes an optimiser of parameter groups, as ``partial(torch.optim.SGD, lr=0.1)`` does; None = AdamW.
        schedule: step, counted from 0, and number of steps -> the factor on the learning rate; None = linear.
        progress: whether to print evaluations, with a bar of the steps; None prints them unless there is ``on_event``,
            and has a bar in a terminal and in a notebook.
    """
    if not isinstance(config, RunConfig):
        raise InputError(
            "train takes a RunConfig, such as RunConfig('regression', base='all-MiniLM-L6-v2'), which names its base; "
            f"this is a {type(config).__name__}"
        )
    # The replica has its own precision.
    accelerator = Accelerator(mixed_precision="no")
    is_main = accelerator.is_main_process
    names: dict[str, Any] = {}
    sets: dict[str, Dataset] = {}
    for field, data in (("train_data", train_data), ("eval_data", eval_data)):
        if data is None or isinstance(data, str | Path):
            names[field] = data
        elif data is not ...:
            sets[field] = as_dataset(data, field)
    extras = RunExtras(
        objective, optimizer, schedule, evaluators, callbacks, metric_for_best_model, greater_is_better, **sets
    )
    config = extras.named(config.replace(**names))
    # The main process makes a new folder, and tells the others.
    path = None if folder == RUN and not is_main else run_folder(folder, home, config)
    if folder == RUN and accelerator.num_processes > 1:
        [path] = broadcast_object_list([path])
    # The other processes find the folder as the main process has left it.
    with accelerator.main_process_first():
        state = None if path is None else _open_folder(path, config, resume, overwrite, is_main, extras)
    result = RunResult(path.name if path else config.name or "unsaved", "failed", 0, 0.0)
    step = state.step if state else None
    with (
        tracked_run(path if is_main else None, home) as run_state,
        printing(on_event, progress) as show,
        EventLog(path if is_main else None, show if is_main else lambda _: None, step) as events,
    ):
        trainer: Trainer | None = None

        def is_stopped() -> bool:
            is_asked = run_state.stop is not None and run_state.stop.exists()
            return is_asked or (should_stop is not None and should_stop())

        try:
            if is_main:
                events.open_trackers(config, path, step)
            trainer = Trainer(config, accelerator, events, path, is_stopped, state, home, extras)
            status, reason = trainer.run()
            result = replace(result, status=status, reason=reason)
        except StoppedError:
            result = replace(result, status="stopped")
        except (OSError, RuntimeError, MemoryError, SafetensorError, NonFiniteLossError) as error:
            reason = _explain(error, config)
            is_fault = isinstance(error, RuntimeError) and reason == " ".join(str(error).split())
            log.error("the run failed: %s", reason, exc_info=is_fault)  # noqa: TRY400 - a full disk needs no traceback
            result = replace(result, reason=reason)
        except Exception as error:
            events.emit("state", 0, state="failed", reason=str(error) or type(error).__name__)
            raise
        if trainer is not None:
            result = replace(result, **trainer.outcome(), evaluations=tuple(events.evaluations))
        try:
            events.emit("state", result.steps, state=result.status, reason=result.reason)
            # The checkpoint goes only after the end of the run has been written.
            if result.status == "finished" and path is not None and is_main:
                shutil.rmtree(path / "checkpoint", ignore_errors=True)
        except OSError as error:
            log.error("the end of the run could not be written: %s", error.strerror or error)  # noqa: TRY400
        run_state.state = result.status
        run_state.reason = result.reason
    for hook in extras.hooks("on_end") if is_main else ():
        hook(result)
    return result


def _open_folder(
    folder: Path, config: RunConfig, resume: bool, overwrite: bool, is_main: bool, extras: RunExtras
) -> TrainingState | None:
    """Prepares the run's folder, and returns the state to resume from, None to start. The main process alone writes."""
    config_file = folder / "config.json"
    checkpoint = folder / "checkpoint"
    if resume:
        values = read_object(config_file, "without it the run cannot be resumed")
        if values is None:
            raise InputError(f"there is no run to resume in {folder}")
        extras.check_same(folder)
        written = RunConfig(**values)
        if written.replace(name=config.name) != config:
            raise InputError(f"the run in {folder} has another config; resume it with its own")
        states = [event.get("state") for event in read_events(folder / "events.jsonl") if event["kind"] == "state"]
        if states and states[-1] == "finished":
            raise InputError(f"the run in {folder} is finished; there is nothing to resume")
        if is_main:
            for replaced in (checkpoint, folder / "model"):
                recover(replaced)
        state = read_checkpoint(checkpoint)
        if state is not None:
            return state
    if not is_main:
        return None
    if not (resume or overwrite) and any((folder / name).exists() for name in ("events.jsonl", "checkpoint", "model")):
        raise InputError(f"{folder} holds another run: name another folder, or pass resume=True or overwrite=True")
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (checkpoint, folder / "model"):
        shutil.rmtree(stale, ignore_errors=True)
    for file in (negatives.FILE, VOCABULARY):
        (folder / file).unlink(missing_ok=True)
    write_text(config_file, config.to_json() + "\n")
    extras.write(folder)
    return None


def _explain(error: Exception, config: RunConfig) -> str:
    """Why the run failed and what to do, in one line."""
    text = " ".join(str(error).split())
    if os.strerror(errno.ENOSPC) in text:
        return "the disk is full: make room and resume the run"
    if isinstance(error, OSError | SafetensorError):
        return f"a file could not be read or written: {text}"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        rows = config.mini_batch_size or config.batch_size
        problem = f"not enough memory for batches of {config.batch_size}"
        if config.max_tokens:
            return f"{problem}, {config.max_tokens:,} tokens at a time: lower max_tokens"
        if rows == 1:
            return f"{problem}, one row at a time: choose a smaller base or max_length, or adapters with lora_rank"
        return (
            f"{problem}, {rows} rows at a time: set mini_batch_size to {rows // 2}, which computes the same batches in "
            "parts, or use a smaller batch_size or max_length"
        )
    return text or type(error).__name__
