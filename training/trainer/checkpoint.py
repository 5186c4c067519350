"""A run's checkpoint: everything that its next step depends on, without a pickle.

    checkpoint/state.json             step, figures so far, the config
    checkpoint/weights.safetensors    the trained weights, float32, by name
    checkpoint/optimiser.safetensors  Adam's moments and step counts, the state of PyTorch's random generators

The order of the data, and what dropout drops on a CPU, are functions of the seed and the step, so they need no
state. A checkpoint is written beside the old one and then takes its place: a process that dies at any moment leaves
one of them whole (`training.atomic.recover`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.atomic import replace_folder
from training.errors import InputError
from training.trainer.training_model import TrainingModel

CheckpointState = dict[str, Any]


def save_checkpoint(
    folder: Path, module: TrainingModel, optimiser: torch.optim.Optimizer, state: CheckpointState
) -> None:
    """Write ``folder`` anew. OSError when the disk is full; the old checkpoint is still there then."""
    from safetensors.torch import save_file

    names = _trained(module)
    moments = {
        f"{key}:{name}": value for name, weight in names.items() for key, value in optimiser.state[weight].items()
    }
    with replace_folder(folder) as fresh:
        (fresh / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
        save_file({name: weight.detach().contiguous() for name, weight in names.items()}, fresh / "weights.safetensors")
        save_file({**moments, **_random_states()}, fresh / "optimiser.safetensors")


def read_checkpoint(folder: Path) -> CheckpointState | None:
    """The state of the checkpoint in ``folder``, None if there is none."""
    file = folder / "state.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


@torch.no_grad()
def load_checkpoint(folder: Path, module: TrainingModel, optimiser: torch.optim.Optimizer) -> None:
    """Put weights, moments and random generators back. InputError if they are those of another model."""
    from safetensors.torch import load_file

    names = _trained(module)
    weights, moments = load_file(folder / "weights.safetensors"), load_file(folder / "optimiser.safetensors")
    if {name: weight.shape for name, weight in names.items()} != {name: w.shape for name, w in weights.items()}:
        raise InputError(f"the checkpoint in {folder} is of another model or other data; start the run anew")
    for name, weight in names.items():
        weight.copy_(weights[name])
    for key, value in moments.items():
        kind, _, name = key.partition(":")
        if kind != RANDOM:
            weight = names[name]
            # The step count lives on the CPU unless the fused kernel keeps it beside the weights.
            place = weight.device if kind != "step" or optimiser.param_groups[0].get("fused") else "cpu"
            optimiser.state[weight][kind] = value.to(place)
    torch.set_rng_state(moments[f"{RANDOM}:cpu"])
    if torch.cuda.is_available() and f"{RANDOM}:cuda" in moments:
        torch.cuda.set_rng_state(moments[f"{RANDOM}:cuda"])


RANDOM = "random"


def _random_states() -> dict[str, Tensor]:
    states = {f"{RANDOM}:cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states[f"{RANDOM}:cuda"] = torch.cuda.get_rng_state()
    return states


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
