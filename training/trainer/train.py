"""train(config): one loop for every objective. Events out; checkpoints, resume, stop.

Each event is a dictionary, given to ``on_event`` and written as a line of JSON to ``events.jsonl``. All of them
have ``t`` (seconds since 1970), ``step`` (optimiser steps done) and ``kind``:

    state   state        running, finished, failed or stopped; every run ends with one of the last three
            reason       failed: one line; with running: steps, rows, processes, device, dtype, shares (of a batch,
                         side by side), base, pooling, notes (what was done to the data), resumed_from (a step, or
                         null)
    train   loss         mean over the steps since the last train event
            lr, epoch, steps (in all), sentences_per_second, seconds_left (an estimate)
    eval    spearman / accuracy / loss (see `training.trainer.evaluator`), random_cosine, random_cosine_std,
    plain_cosine, plain_cosine_std, uniformity, alignment, effective_rank, collapsed (null, or the reason in words),
            best (is it the best so far), seconds (how long it took), seconds_left

A figure that is not finite is null. Step 0 has an eval event, the base as it came. A folder, if given, gets
config.json, events.jsonl, checkpoint/ (the last state, see `training.trainer.checkpoint`; gone once finished) and
model/ (the
best evaluation after step 0, in the sentence-transformers layout with a model card). A resumed run goes on from
the checkpoint and writes the same curve as one that was never interrupted: on a CPU in float32, bit for bit.

What the user can mend (the config, a name, a file) raises `InputError`, before the first step. What happens on the
way (a loss that is not finite, a full disk, too little memory) ends the run as failed, with a reason.

Several processes: ``accelerate launch`` a script that calls `train`; each takes its own batch of every step, the
first evaluates and writes.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError

from training.atomic import recover, write_text
from training.errors import InputError, Stopped
from training.trainer.checkpoint import CheckpointState, read_checkpoint
from training.trainer.config import RunConfig
from training.trainer.evaluator import Figures
from training.trainer.events import Event, EventLog, OnEvent, read_events
from training.trainer.trainer import NonFiniteLoss, Trainer

log = logging.getLogger("sbert_lab.train")


@dataclass(frozen=True)
class RunResult:
    """How a run ended. ``best``, ``final`` and ``baseline`` are the figures of an eval event, with its step."""

    id: str  # the name of the folder, or the config's name
    status: str  # finished, failed or stopped
    steps: int  # optimiser steps done
    seconds: float  # of work, all sessions together
    best: Figures | None = None
    final: Figures | None = None
    baseline: Figures | None = None
    path: str | None = None  # of the best model, once there is one
    reason: str | None = None  # why it failed, in one line


def train(
    config: RunConfig,
    on_event: OnEvent = print,
    folder: str | Path | None = None,
    should_stop: Callable[[], bool] | None = None,
    resume: bool = False,
    home: str | Path | None = None,
) -> RunResult:
    """Fine-tune ``config.base`` as ``config`` says.

    Args:
        config: see `RunConfig`.
        on_event: called with every event.
        folder: the run's folder; None keeps nothing but the figures.
        should_stop: asked at every step; a yes stops the run within two seconds and keeps a checkpoint.
        resume: go on from the folder's checkpoint, or from the start if the run had not come to one.
        home: where models and data are; None = $SBERT_HOME or the platform's.

    Raises:
        InputError: the config, the data or the base cannot be used, or the folder is that of another run.
    """
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="no")  # precision is the trainee's affair
    main = accelerator.is_main_process
    place = None if folder is None else Path(folder).expanduser().absolute()
    with accelerator.main_process_first():  # the others find the folder as the first has left it
        state = None if place is None else _open_folder(place, config, resume, main)
    result = RunResult(place.name if place else config.name or "unsaved", "failed", 0, 0.0)
    with EventLog(place if main else None, on_event if main else _ignore, state["step"] if state else None) as events:
        session: Trainer | None = None
        try:
            session = Trainer(config, accelerator, events, place, should_stop or (lambda: False), state, home)
            result = replace(result, status=session.work())
        except Stopped:  # before the first step
            result = replace(result, status="stopped")
        except InputError as error:
            events.emit("state", 0, state="failed", reason=str(error))
            raise
        except (OSError, RuntimeError, MemoryError, SafetensorError, NonFiniteLoss) as error:
            log.exception("the run failed")
            result = replace(result, reason=_explain(error, config))
        if session is not None:
            result = replace(result, **session.outcome())
        try:
            events.emit("state", result.steps, state=result.status, reason=result.reason)
            if result.status == "finished" and place is not None and main:  # not before its end is written down
                shutil.rmtree(place / "checkpoint", ignore_errors=True)
        except OSError:
            log.exception("the end of the run could not be written")
    return result


def _ignore(event: Event) -> None:
    """What the other processes tell: nothing."""


def _open_folder(folder: Path, config: RunConfig, resume: bool, main: bool) -> CheckpointState | None:
    """Make the folder this run's -> the state to go on from, or None to begin. Only the main process writes."""
    written = folder / "config.json"
    checkpoint = folder / "checkpoint"
    if resume:
        if not written.exists():
            raise InputError(f"there is no run to resume in {folder}")
        before = RunConfig.from_json(written.read_text(encoding="utf-8"))
        if replace(before, name=config.name) != config:
            raise InputError(f"the run in {folder} has another config; resume it with its own")
        ends = [event.get("state") for event in read_events(folder / "events.jsonl") if event["kind"] == "state"]
        if ends and ends[-1] == "finished":
            raise InputError(f"the run in {folder} is finished; there is nothing to resume")
        if main:
            for replaced in (checkpoint, folder / "model"):
                recover(replaced)
        state = read_checkpoint(checkpoint)
        if state is not None:
            return state
    if not main:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for left_over in (checkpoint, folder / "model"):
        shutil.rmtree(left_over, ignore_errors=True)
    write_text(written, config.to_json() + "\n")
    return None


def _explain(error: Exception, config: RunConfig) -> str:
    """One line on why the run failed and what to do."""
    text = " ".join(str(error).split())
    if os.strerror(errno.ENOSPC) in text:
        return "the disk is full: make room and resume the run"
    if isinstance(error, OSError | SafetensorError):
        return f"a file could not be read or written: {text}"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        return f"not enough memory for batches of {config.batch_size}: use a smaller batch_size or max_length"
    return text or type(error).__name__
