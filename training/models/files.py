"""Reads and writes the files of a model's folder: JSON and safetensors.

A folder may come from anybody. A file may be missing, damaged, a device, or larger than it claims
to be. Each such mistake raises one sentence. Pickled weights are never read, as a pickle can run
code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from training.errors import InputError, in_one_line

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST_JSON = 64 << 20  # bytes: the largest tokenizers have 40 MB
WEIGHTS = "model.safetensors"
LFS = b"version https://git-lfs.github.com/spec/"
PICKLES = ("pytorch_model.bin", "adapter_model.bin", "model.pt", "model.ckpt")
ONLY_PICKLES = (
    "has no .safetensors weights; pickled weights (.bin, .pt) are not loaded because they can run code: convert the "
    "model to safetensors"
)


def check_pointers(folder: Path) -> None:
    """Raises InputError if a file of the model in ``folder``, or of one of its modules, is a Git LFS pointer."""
    for file in (*folder.glob("*"), *folder.glob("*/*")):
        if file.suffix in (".json", ".model", ".safetensors", ".txt") and file.is_file():
            # An unreadable file may not belong to the model.
            with suppress(PermissionError), file.open("rb") as opened:
                if opened.read(len(LFS)) == LFS:
                    raise InputError(
                        f"{file} is a Git LFS pointer and not the file: run git lfs pull"
                    )


def check_pickles(folder: Path) -> None:
    """Raises InputError if a folder has only pickled weights. A library would read them, and a pickle can run code."""
    is_pickled = any((folder / name).is_file() for name in PICKLES)
    # The pattern leaves out the hidden files that macOS adds, such as ._model.safetensors.
    if is_pickled and not any(folder.glob("[!.]*.safetensors")):
        raise InputError(f"{folder} {ONLY_PICKLES}")


def read_json(file: Path) -> Any:
    """Parses a JSON file. InputError if it is not a regular file (a device, a pipe), too large, or not JSON."""
    if not file.is_file():
        raise InputError(f"{file} is missing, or is no file; fetch the model again")
    with file.open("rb") as opened:
        content = opened.read(MOST_JSON + 1)
    if len(content) > MOST_JSON:
        raise InputError(
            f"{file} is larger than {MOST_JSON >> 20} MB: this is no settings file of a model"
        )
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise InputError(f"{file} is nested too deeply; fetch the model again") from error
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON ({error}); fetch the model again") from error


def read_object(file: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Reads the JSON object in ``file``. A missing file gives ``default``, or InputError without one."""
    if not file.exists():
        if default is None:
            raise InputError(f"{file} is missing; fetch the model again")
        return default
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file} holds no settings; fetch the model again")
    return value


def write_json(file: Path, value: Any) -> None:
    """Writes ``value`` as indented UTF-8 JSON."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_tensors(folder: Path, name: str = WEIGHTS) -> dict[str, Tensor]:
    """Reads the tensors of a file, on the CPU. InputError if they are missing, pickled or damaged."""
    # The command line reads settings without torch, which takes seconds to import.
    from safetensors.torch import load_file

    file = folder / name
    if not file.is_file():
        if any((folder / pickled).is_file() for pickled in PICKLES):
            raise InputError(f"{folder} {ONLY_PICKLES}")
        raise InputError(f"{file} is missing; fetch the model again")
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{file} is damaged ({in_one_line(error)}); fetch the model again"
        ) from error
    check_finite(tensors.items(), file)
    return tensors


def check_finite(tensors: Iterable[tuple[str, Tensor]], path: Path) -> None:
    """Raises InputError if one of these weights in ``path`` has a number that is not finite."""
    import torch

    for name, tensor in tensors:
        # The sum is finite only if all numbers are. It needs no second tensor of the same size.
        if not tensor.sum(dtype=torch.float64).isfinite():
            raise InputError(
                f"the weights {name} in {path} are not all numbers (NaN or infinite); fetch the model again"
            )


def write_tensors(folder: Path, tensors: dict[str, Tensor], name: str = WEIGHTS) -> None:
    """Writes a file that `read_tensors` reads."""
    from safetensors.torch import save_file

    # safetensors writes contiguous tensors only.
    copies = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    save_file(copies, folder / name)


def load_weights(module: nn.Module, folder: Path) -> None:
    """Copies the tensors in ``folder`` into ``module``, as float32. InputError if they do not fit."""
    tensors = read_tensors(folder)
    if shapes_of(tensors) != shapes_of(module.state_dict()):
        raise InputError(
            f"the weights in {folder} do not fit its configuration; fetch the model again"
        )
    module.load_state_dict({name: value.float() for name, value in tensors.items()})


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the shape of each tensor, by name."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def check_replaceable(folder: str | Path) -> Path:
    """Returns the absolute path of a folder for a model. InputError if it has other files, which are never replaced."""
    target = Path(folder).expanduser().absolute()
    if not target.exists():
        return target
    if not target.is_dir():
        raise InputError(f"{target} is a file; name a folder for the model")
    names = {entry.name for entry in target.iterdir()}
    # One of these files shows that the folder holds a model, which may be replaced.
    if names and not names & {"config.json", "modules.json", "adapter_config.json"}:
        raise InputError(f"{target} holds other files; name a new folder for the model")
    return target
