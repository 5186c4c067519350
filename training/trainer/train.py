"""Training of a model with any of the objectives, with events, checkpoints, resuming and stopping.

Each event is a dictionary, passed to ``on_event`` and written as a line of JSON to
``events.jsonl``. All events have ``t`` (seconds since 1970), ``step`` (optimiser steps done) and
``kind``:

    state   state         running, finished, failed or stopped; every run ends with one of the last three
            reason        why it failed, or why it finished before its last step, in one line; else null
            with running: steps, rows, processes, device, dtype, micro_batches (per batch), base, pooling,
                          notes (what was done to the data), negatives (examples of mined ones, see
                          `training.trainer.negatives`), guess (the loss of guessing, or null),
                          resumed_from (a step, or null)
    train   loss          mean over the steps since the last train event
            loss_by_data  for data sets with an objective each: the mean for each of them, by "data=objective"
            lr, gradient_norm (before clipping), epoch, steps (in total), sentences_per_second, seconds_left (an
            estimate), memory_gb (peak memory of a GPU so far, else null)
    eval    spearman / accuracy / loss, by_dimension (see `training.trainer.evaluator`), random_cosine,
            random_cosine_std, plain_cosine, plain_cosine_std, uniformity, alignment,
            effective_rank, collapsed (null, or the reason in words), best (whether it is the best
            so far), seconds (its duration), seconds_left
    test    data, spearman: the best model on the test split of the dev data, once, if the home folder has that split

Non-finite figures are null. The eval event of step 0 describes the base. A run's folder, if there
is one, gets:

    config.json, events.jsonl
    checkpoint/   the last state (`training.trainer.checkpoint`), removed when the run is finished
    model/        the best evaluation after step 0, in the sentence-transformers format with a model card
    own.json      a list of the objects that cannot be written into a config (`training.trainer.run_extras`)

A resumed run continues from the checkpoint and writes the same curve as an uninterrupted one: in
float32 on a CPU, bit for bit. Mistakes of the user (in the config, a name, a file) raise
`InputError` before the first step. Failures during the run (a loss that is not finite, a full disk,
too little memory) end it as failed, with a reason.

To train with several processes, ``accelerate launch`` a script that calls `train`. Each process
takes its own batch in every step. The main process evaluates and writes.
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
from training.errors import InputError, StoppedError, in_one_line
from training.models.encoder import Encoder
from training.models.model import open_model
from training.names import RUN
from training.trainer import negatives
from training.trainer.checkpoint import TrainingState, read_checkpoint
from training.trainer.config import RunConfig
from training.trainer.events import EventLog, OnEvent, printing, read_events
from training.trainer.language_model import VOCABULARY
from training.trainer.run_extras import RunExtras, read_object, record_run, run_folder
from training.trainer.run_metrics import Figures, line_of_figures
from training.trainer.trainer import NonFiniteLossError, Trainer

log = logging.getLogger("sbert_lab.train")


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        id: the name of the folder, or the config's name.
        status: finished, failed or stopped.
        steps: the optimiser steps that were done.
        seconds: the duration, including the time before the run was resumed.
        best, final, baseline: the figures of an eval event, with its step. ``baseline`` is the
            base.
        test: Spearman's ρ of the best model on the test split of the dev data.
        path: the folder of the best model; None if none was saved.
        reason: why the run failed or ended before its last step, in one line.
        metric: the figure that selected the best model.
        evaluations: the figures of all evaluations.
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
        """The best model, opened: an `Encoder`, or what the objective trained. InputError if none was saved."""
        if self.path is None:
            raise InputError(
                f"the run {self.id} has no model: it had no evaluation after a step, or folder was None"
            )
        return open_model(self.path)

    def __repr__(self) -> str:
        text = f"RunResult({self.id!r}, {self.status} after {self.steps:,} steps in {self.seconds:.0f} s"
        metric = self.metric or ""
        values = []
        for event in (self.baseline, self.best):
            if event and event.get(metric) is not None:
                values.append(f"{event[metric]:.4f}")
        if values:
            text += f", {metric} {' → '.join(values)}"
        if self.reason:
            text += f", {self.reason}"
        return f"{text})"

    def _repr_html_(self) -> str:
        lines = [line_of_figures(event) for event in self.evaluations]
        names = list(dict.fromkeys(chain.from_iterable(lines)))
        rows = []
        for event, figures in zip(self.evaluations, lines, strict=True):
            cells = [f"{figures[name]:.4f}" if name in figures else "" for name in names]
            rows.append((event["step"], *cells))
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

    Args:
        config: the settings of the run.
        on_event: called with every event; None prints a line for each evaluation.
        folder: the run's folder. The default is a new folder in the runs of the home folder, which
            the list of runs shows and can stop; ``run:NAME`` is home/runs/NAME. None writes no
            files.
        should_stop: called at every step; once it returns true the run stops within two seconds,
            with a checkpoint.
        resume: continue from the folder's checkpoint, or from the start if there is none yet.
        overwrite: replace the run that is in the folder, with its model.
        train_data: replaces the config's: a name, a path, a `Dataset`, or rows as `as_dataset`
            takes them.
        eval_data: replaces the config's; None evaluates on random pairs only. Without it, and
            without any in the config, a tenth of your own training data is held out
            (`training.objectives.base.hold_out`).
        objective: replaces the config's: a function from vectors, (B, D) float32 for each column,
            and a target to a scalar loss. The target is (B,), labels as int64 or gold scores from 0
            to 1, or None. The parameters of a `torch.nn.Module` are trained too.
        evaluators: functions that take the `Encoder` and return figures by name, called at each
            evaluation.
        metric_for_best_model: the figure that selects the best model; None = the first that is
            measured of spearman, average_precision, accuracy, ndcg@10, mrr@10 and loss.
        greater_is_better: whether a higher value of this figure is better.
        callbacks: objects with any of the methods on_step(step, loss), on_evaluate(figures,
            encoder), on_checkpoint(folder) and on_end(result); one of the first three that returns
            true stops the run.
        optimizer: makes an optimiser from parameter groups, such as ``partial(torch.optim.SGD,
            lr=0.1)``; None = AdamW.
        schedule: a function from the step, counted from 0, and the number of steps to the factor on
            the learning rate; None = linear.
        progress: whether to print evaluations and a progress bar; None prints them unless there is
            ``on_event``, with a bar in a terminal and in a notebook.

    Returns:
        The result of the run, finished, failed or stopped.

    Raises:
        InputError: the config, the data or the base cannot be used, or the folder holds another
            run.

    Example::

        from sbert_lab import RunConfig, train

        config = RunConfig("regression", base="scratch:1x32", train_data="stsb:train", max_steps=5)
        result = train(config, folder=None)
        print(result.status, result.best["spearman"])
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
    # Names belong to the config, and data in memory to the extras. The default is ``...``, as None
    # is a name: no data.
    for field, data in (("train_data", train_data), ("eval_data", eval_data)):
        if data is None or isinstance(data, str | Path):
            names[field] = data
        elif data is not ...:
            sets[field] = as_dataset(data, field)
    extras = RunExtras(
        objective,
        optimizer,
        schedule,
        evaluators,
        callbacks,
        metric_for_best_model,
        greater_is_better,
        **sets,
    )
    config = extras.named(config.replace(**names))

    # The main process makes a new folder, and tells the others.
    path = None
    if is_main or folder != RUN:
        path = run_folder(folder, home, config)
    if folder == RUN and accelerator.num_processes > 1:
        [path] = broadcast_object_list([path])
    state = None
    if path is not None:
        # The main process writes or removes files. The others open the folder as it has left it.
        with accelerator.main_process_first():
            state = _open_folder(path, config, resume, overwrite, is_main, extras)

    # Only the main process writes. The others read the checkpoint from ``path``.
    written_folder = path if is_main else None
    step = state.step if state else None
    run_id = path.name if path else config.name
    # The result if the run fails before its first step.
    result = RunResult(run_id or "unsaved", "failed", steps=0, seconds=0.0)
    with (
        record_run(written_folder, home) as run_status,
        printing(on_event, progress) as show,
        EventLog(written_folder, show if is_main else lambda _: None, step) as events,
    ):

        def is_stopped() -> bool:
            if run_status.stop is not None and run_status.stop.exists():
                return True
            return should_stop is not None and should_stop()

        def make_trainer() -> Trainer:
            if is_main:
                events.open_trackers(config, path, step)
            return Trainer(config, accelerator, events, path, is_stopped, state, home, extras)

        result = _run(make_trainer, events, config, result)
        try:
            events.emit("state", result.steps, state=result.status, reason=result.reason)
            # The checkpoint is removed only after the end of the run has been written.
            if result.status == "finished" and written_folder is not None:
                shutil.rmtree(written_folder / "checkpoint", ignore_errors=True)
        except OSError as error:
            log.error("the end of the run could not be written: %s", error.strerror or error)  # noqa: TRY400
        run_status.state = result.status
        run_status.reason = result.reason
    if is_main:
        for hook in extras.hooks("on_end"):
            hook(result)
    return result


def _run(
    make_trainer: Callable[[], Trainer], events: EventLog, config: RunConfig, result: RunResult
) -> RunResult:
    """Makes a trainer and runs it. A failure that the user can understand and mend is returned as a result."""
    trainer: Trainer | None = None
    try:
        trainer = make_trainer()
        status, reason = trainer.run()
        result = replace(result, status=status, reason=reason)
    # `Trainer.run` returns after a stop. This error comes from a stop while the trainer was made.
    except StoppedError:
        result = replace(result, status="stopped")
    except (OSError, RuntimeError, MemoryError, SafetensorError, NonFiniteLossError) as error:
        reason = _explain(error, config)
        is_unexplained = isinstance(error, RuntimeError) and reason == in_one_line(error)
        # A full disk needs no traceback.
        log.error("the run failed: %s", reason, exc_info=is_unexplained)  # noqa: TRY400
        # The status of the given ``result`` is "failed".
        result = replace(result, reason=reason)
    # The caller gets any other error: the input is wrong, or it is a bug.
    except Exception as error:
        events.emit("state", 0, state="failed", reason=str(error) or type(error).__name__)
        raise
    if trainer is None:
        return result
    return replace(result, **trainer.outcome(), evaluations=tuple(events.evaluations))


def _open_folder(
    folder: Path, config: RunConfig, resume: bool, overwrite: bool, is_main: bool, extras: RunExtras
) -> TrainingState | None:
    """Prepares the run's folder, and returns the state to resume from, or None. Only the main process writes."""
    config_file = folder / "config.json"
    checkpoint = folder / "checkpoint"
    if resume:
        values = read_object(config_file, "without it the run cannot be resumed")
        if values is None:
            raise InputError(f"there is no run to resume in {folder}")
        extras.check_same(folder)
        stored_config = RunConfig(**values)
        # The name does not change the curve, so it may differ.
        if stored_config.replace(name=config.name) != config:
            raise InputError(f"the run in {folder} has another config; resume it with its own")
        last_state = None
        for event in read_events(folder / "events.jsonl"):
            if event["kind"] == "state":
                last_state = event.get("state")
        if last_state == "finished":
            raise InputError(f"the run in {folder} is finished; there is nothing to resume")
        if is_main:
            # The process of the run may have been killed while it replaced one of the folders.
            recover(checkpoint)
            recover(folder / "model")
        state = read_checkpoint(checkpoint)
        if state is not None:
            return state
        # Without a checkpoint the run begins anew.
    if not is_main:
        return None
    holds_run = any((folder / name).exists() for name in ("events.jsonl", "checkpoint", "model"))
    if holds_run and not (resume or overwrite):
        raise InputError(
            f"{folder} holds another run: name another folder, or pass resume=True or overwrite=True"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # The files of a run that is overwritten, or that was interrupted before its first checkpoint.
    shutil.rmtree(checkpoint, ignore_errors=True)
    shutil.rmtree(folder / "model", ignore_errors=True)
    (folder / negatives.FILE).unlink(missing_ok=True)
    (folder / VOCABULARY).unlink(missing_ok=True)
    write_text(config_file, config.to_json() + "\n")
    extras.write(folder)
    return None


def _explain(error: Exception, config: RunConfig) -> str:
    """Explains in one line why the run failed and what to do."""
    text = in_one_line(error)
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
    return text
