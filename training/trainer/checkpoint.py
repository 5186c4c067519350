"""A run's checkpoint: everything that its next step depends on, without pickle.

    checkpoint/state.json             the run's progress: step, losses and figures so far
    checkpoint/weights.safetensors    the trained weights, float32, by name
    checkpoint/optimiser.safetensors  the optimiser's moments and step counts, the states of PyTorch's random generators

The order of the data, and dropout on a CPU, are functions of the seed and the step and need no state. A checkpoint
replaces the previous one atomically: a process that dies at any moment leaves one of them complete
(`training.atomic.recover`).
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.atomic import replace_folder
from training.errors import InputError, first_line
from training.trainer.run_metrics import Figures
from training.trainer.training_model import TrainingModel

# The state that AdamW has for each weight.
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
# The prefix of the states of the random generators, as in "random:cpu".
RANDOM = "random"


@dataclass
class TrainingState:
    """The state of a run beside its weights."""

    step: int
    # The step of the last evaluation.
    evaluated: int = -1
    # The losses of the batches since the last train event.
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    # The number in a batch decides the rounding of sums and the dropout; 0 is not determined yet.
    micro_batches: int = 0
    baseline: Figures | None = None
    # The cosines of the eval pairs at the first evaluation, with which later ones are compared.
    cosines: list[float] | None = None
    best: Figures | None = None
    final: Figures | None = None
    # The figures of the best model on the test split, at the end.
    test: Figures | None = None


def save_checkpoint(folder: Path, model: TrainingModel, optimiser: torch.optim.Optimizer, state: TrainingState) -> None:
    """Replaces the checkpoint in ``folder``. OSError if the disk is full; the previous one is still there then."""
    weights = _trained_weights(model)
    moments = {
        f"{key}:{name}": torch.as_tensor(value)
        for name, weight in weights.items()
        for key, value in optimiser.state[weight].items()
        if value is not None
    }
    with replace_folder(folder, synchronises=True) as fresh:
        (fresh / "state.json").write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
        tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
        save_file(tensors, fresh / "weights.safetensors")
        states = {f"{RANDOM}:cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            states[f"{RANDOM}:cuda"] = torch.cuda.get_rng_state()
        save_file({**moments, **states}, fresh / "optimiser.safetensors")


def read_checkpoint(folder: Path) -> TrainingState | None:
    """The state of the checkpoint in ``folder``; None if there is no checkpoint. InputError if it is damaged."""
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
    weights = _trained_weights(model)
    saved = _load(folder / "weights.safetensors")
    moments = _load(folder / "optimiser.safetensors")
    shapes, saved_shapes = ({name: tensor.shape for name, tensor in part.items()} for part in (weights, saved))
    if shapes != saved_shapes:
        raise InputError(f"the checkpoint in {folder} is of another model or other data; start the run anew")
    for name, weight in weights.items():
        weight.copy_(saved[name])
    try:
        for key, value in moments.items():
            kind, _, name = key.partition(":")
            if kind != RANDOM:
                weight = weights[name]
                # The step count is on the CPU unless the fused kernel keeps it beside the weights.
                device = weight.device if kind != "step" or optimiser.param_groups[0].get("fused") else "cpu"
                optimiser.state[weight][kind] = value.to(device).expand(() if kind == "step" else weight.shape)
        torch.set_rng_state(moments[f"{RANDOM}:cpu"])
        if torch.cuda.is_available() and f"{RANDOM}:cuda" in moments:
            torch.cuda.set_rng_state(moments[f"{RANDOM}:cuda"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise _damaged(folder / "optimiser.safetensors", error) from error
    # An optimiser of the caller's may have any state.
    is_adam = isinstance(optimiser, torch.optim.AdamW)
    if is_adam and any(not state.keys() >= MOMENTS for state in optimiser.state.values()):
        raise _damaged(folder / "optimiser.safetensors", "a moment is missing")


def _load(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, why: Exception | str) -> InputError:
    why = why if isinstance(why, str) else first_line(why)
    return InputError(f"{file} is damaged ({why}); remove the folder {file.parent} to begin the run anew")


def _trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
