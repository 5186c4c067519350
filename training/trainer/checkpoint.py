"""A run's checkpoint: everything that its next step depends on, without pickle.

    checkpoint/state.json             the run's progress: step, losses and figures so far
    checkpoint/weights.safetensors    the trained weights, float32, by name
    checkpoint/optimiser.safetensors  the optimiser's moments and step counts, the states of PyTorch's random generators

The order of the data, and dropout on a CPU, are functions of the seed and the step and need no
state. A checkpoint replaces the previous one atomically: a process that dies at any moment leaves
one of them complete (`training.atomic.recover`).
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.atomic import replace_folder
from training.errors import InputError, first_line
from training.models.files import shapes_of
from training.trainer.replica import trained_weights
from training.trainer.run_metrics import Figures
from training.trainer.training_model import TrainingModel

# The state of AdamW for each weight.
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
# The prefix of the states of the random generators, as in "random:cpu".
RANDOM = "random"


@dataclass
class TrainingState:
    """The state of a run, without its weights."""

    step: int
    # The step of the last evaluation, -1 before the first one.
    evaluated: int = -1
    # The losses of the batches since the last train event.
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    # The number of micro-batches in a batch, which decides the rounding of sums and the dropout; 0
    # if not yet chosen.
    micro_batches: int = 0
    # The figures of the evaluation at step 0, and below of the best and of the last one.
    baseline: Figures | None = None
    # The cosines of the eval pairs at the first evaluation. Later evaluations are compared with
    # them.
    cosines: list[float] | None = None
    best: Figures | None = None
    final: Figures | None = None
    # The figures of the best model on the test split, measured at the end.
    test: Figures | None = None


def save_checkpoint(
    folder: Path, model: TrainingModel, optimiser: torch.optim.Optimizer, state: TrainingState
) -> None:
    """Replaces the checkpoint in ``folder``. OSError if the disk is full, which keeps the previous checkpoint."""
    weights = {}
    optimiser_state = {f"{RANDOM}:cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        optimiser_state[f"{RANDOM}:cuda"] = torch.cuda.get_rng_state()
    for name, weight in trained_weights(model).items():
        weights[name] = weight.detach().contiguous()
        for key, value in optimiser.state[weight].items():
            # The caller's own optimiser may have states that are not set.
            if value is not None:
                optimiser_state[f"{key}:{name}"] = torch.as_tensor(value)
    with replace_folder(folder, synchronises=True) as fresh:
        (fresh / "state.json").write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
        save_file(weights, fresh / "weights.safetensors")
        save_file(optimiser_state, fresh / "optimiser.safetensors")


def read_checkpoint(folder: Path) -> TrainingState | None:
    """Reads the state of the checkpoint in ``folder``; None without a checkpoint. InputError if it is damaged."""
    file = folder / "state.json"
    if not os.path.lexists(file):
        return None
    try:
        return TypeAdapter(TrainingState).validate_json(file.read_bytes(), strict=True)
    except (OSError, ValidationError) as error:
        raise _damaged(file, error) from error


@torch.no_grad()
def load_checkpoint(folder: Path, model: TrainingModel, optimiser: torch.optim.Optimizer) -> None:
    """Restores weights, moments and random generators. InputError if they belong to another model, or are damaged."""
    weights = trained_weights(model)
    saved = _load(folder / "weights.safetensors")
    optimiser_state = _load(folder / "optimiser.safetensors")
    if shapes_of(weights) != shapes_of(saved):
        raise InputError(
            f"the checkpoint in {folder} is of another model or other data; start the run anew"
        )
    for name, weight in weights.items():
        weight.copy_(saved[name])
    is_fused = optimiser.param_groups[0].get("fused")
    try:
        # The keys are such as "random:cpu" and "exp_avg:embeddings.weight".
        for key, value in optimiser_state.items():
            kind, _, name = key.partition(":")
            # The random generators have no weight. They are set after the loop.
            if kind == RANDOM:
                continue
            weight = weights[name]
            # `expand` raises RuntimeError for a shape that does not fit.
            if kind == "step":
                # The step count is on the CPU unless the fused kernel keeps it beside the weights.
                step = value.to(weight.device if is_fused else "cpu")
                optimiser.state[weight][kind] = step.expand(())
            else:
                optimiser.state[weight][kind] = value.to(weight.device).expand(weight.shape)
        torch.set_rng_state(optimiser_state[f"{RANDOM}:cpu"])
        if torch.cuda.is_available() and f"{RANDOM}:cuda" in optimiser_state:
            torch.cuda.set_rng_state(optimiser_state[f"{RANDOM}:cuda"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise _damaged(folder / "optimiser.safetensors", error) from error
    # The caller's own optimiser may have any state.
    if isinstance(optimiser, torch.optim.AdamW):
        for state in optimiser.state.values():
            if not state.keys() >= MOMENTS:
                raise _damaged(folder / "optimiser.safetensors", "a moment is missing")


def _load(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, why: Exception | str) -> InputError:
    reason = why if isinstance(why, str) else first_line(why)
    return InputError(
        f"{file} is damaged ({reason}); remove the folder {file.parent} to begin the run anew"
    )
