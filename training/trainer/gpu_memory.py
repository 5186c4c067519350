"""After a batch that did not fit into the memory of a GPU: what would fit."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from training.device import describe_device

if TYPE_CHECKING:
    from training.trainer.replica import TokenIds
    from training.trainer.trainer import Trainer


def explain(trainer: Trainer, error: torch.OutOfMemoryError) -> str:
    """Why a run ended that ran out of a GPU's memory, and what to do: measured, by trying smaller batches."""
    traceback.clear_frames(error.__traceback__)  # they hold the activations that were computed when it happened
    config = trainer.config
    at_a_time = min(config.batch_size, config.mini_batch_size or config.batch_size)
    what = f"batches of {config.batch_size} rows" + (f", {at_a_time} at a time" if config.mini_batch_size else "")
    begins = f"not enough memory on {describe_device(trainer.model.encoder.device)} for {what}"
    rows = rows_that_fit(trainer, at_a_time)
    if not rows:
        return f"{begins}, nor for a single row: choose a smaller base or max_length, or train adapters with lora_rank"
    if config.mini_batch_size:
        return f"{begins}; {rows} fit: set mini_batch_size to {rows}"
    return (
        f"{begins}; {rows} fit: set mini_batch_size to {rows}, which computes the same batches in parts, or batch_size"
    )


def rows_that_fit(trainer: Trainer, tried: int) -> int:
    """The first of a half, a quarter, … of the rows ``tried`` of which a step fits; 0 if not even one row does.

    The rows are the longest of the batch that did not fit. The gradients are lost.
    """
    model, optimiser = trainer.model, trainer.optimiser
    trainer.drop_batch()
    columns, target = trainer.batches.batch(trainer.progress.step, trainer.accelerator.process_index)
    order = sorted(range(len(columns[0])), key=lambda row: -max(len(column[row]) for column in columns))
    mini_batch_size, model.mini_batch_size = model.mini_batch_size, None
    try:
        rows = min(tried, len(order)) // 2
        while rows:
            chosen = order[:rows]
            part: list[TokenIds] = [[column[row] for row in chosen] for column in columns]
            if _fits(trainer, part, None if target is None else target[torch.tensor(chosen)]):
                return rows
            rows //= 2
        return 0
    finally:
        optimiser.zero_grad(set_to_none=True)
        model.mini_batch_size = mini_batch_size


def _fits(trainer: Trainer, columns: Sequence[TokenIds], target: torch.Tensor | None) -> bool:
    """Whether a forward and backward pass fits beside Adam's moments."""
    trainer.optimiser.zero_grad(set_to_none=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        trained = [weight for group in trainer.optimiser.param_groups for weight in group["params"]]
        moments = [torch.empty_like(weight) for weight in trained for _ in range(2) if not trainer.optimiser.state]
        trainer.model.forward_backward(trainer.model.collate(columns, target, trainer.progress.step))
    except RuntimeError:  # OutOfMemoryError is one; some libraries say it in their own way
        return False
    del moments
    return True
