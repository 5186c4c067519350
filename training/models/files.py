"""The files of a model's folder: JSON and safetensors, read with care and written.

A folder is somebody else's. A file may be missing, damaged, a device, or larger than what it claims to be; each such
mistake is one sentence. Pickled weights are never read: a pickle can run code.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.errors import InputError

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
    """InputError if a file of the model in ``folder``, or of one of its modules, is a Git LFS pointer."""
    for file in (file for depth in ("*", "*/*") for file in folder.glob(depth)):
        if file.suffix in (".json", ".model", ".safetensors", ".txt") and file.is_file():
            # A file that cannot be read may be none of the model's.
            with suppress(PermissionError), file.open("rb") as opened:
                if opened.read(len(LFS)) == LFS:
                    raise InputError(f"{file} is a Git LFS pointer and not the file: run git lfs pull")


def check_pickles(folder: Path) -> None:
    """InputError if a folder has pickled weights alone, which a library would read: a pickle can run code."""
    is_pickled = any((folder / name).is_file() for name in PICKLES)
    if is_pickled and not any(folder.glob("*.safetensors")):
        raise InputError(f"{folder} {ONLY_PICKLES}")


def read_json(file: Path) -> Any:
    """Parse a JSON file. InputError if it is no regular file (but a device, a pipe), too large, or not JSON."""
    if not file.is_file():
        raise InputError(f"{file} is missing, or is no file; fetch the model again")
    with file.open("rb") as opened:
        content = opened.read(MOST_JSON + 1)
    if len(content) > MOST_JSON:
        raise InputError(f"{file} is larger than {MOST_JSON >> 20} MB: this is no settings file of a model")
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise InputError(f"{file} is nested too deeply; fetch the model again") from error
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON ({error}); fetch the model again") from error


def read_object(file: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object in ``file``; if there is no such file ``default``, or InputError without a default."""
    if not file.exists():
        if default is None:
            raise InputError(f"{file} is missing; fetch the model again")
        return default
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file} holds no settings; fetch the model again")
    return value


def write_json(file: Path, value: Any) -> None:
    """Write ``value`` as indented UTF-8 JSON."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_tensors(folder: Path, name: str = WEIGHTS) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU. InputError if they are missing, pickled or damaged."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / name
    if not file.is_file():
        if any((folder / pickled).is_file() for pickled in PICKLES):
            raise InputError(f"{folder} {ONLY_PICKLES}")
        raise InputError(f"{file} is missing; fetch the model again")
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} is damaged ({' '.join(str(error).split())}); fetch the model again") from error
    wrong = next((name for name, tensor in tensors.items() if not tensor.sum(dtype=torch.float64).isfinite()), None)
    if wrong is not None:
        raise InputError(f"the weights {wrong} in {file} are not all numbers (NaN or infinite); fetch the model again")
    return tensors


def write_tensors(folder: Path, tensors: dict[str, Tensor], name: str = WEIGHTS) -> None:
    """Write a file that `read_tensors` reads."""
    from safetensors.torch import save_file

    save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, folder / name)


def load_weights(module: nn.Module, folder: Path) -> None:
    """Copy the tensors in ``folder`` into ``module``, as float32. InputError if they do not fit."""
    tensors = read_tensors(folder)
    expected = module.state_dict()
    if {name: value.shape for name, value in tensors.items()} != {name: v.shape for name, v in expected.items()}:
        raise InputError(f"the weights in {folder} do not fit its configuration; fetch the model again")
    module.load_state_dict({name: value.float() for name, value in tensors.items()})


def check_replaceable(folder: str | Path) -> Path:
    """The absolute path of a folder for a model. InputError if it has other files, which are never replaced."""
    target = Path(folder).expanduser().absolute()
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; name a folder for the model")
    names = {entry.name for entry in target.iterdir()} if target.exists() else set()
    if names and not names & {"config.json", "modules.json", "adapter_config.json"}:
        raise InputError(f"{target} holds other files; name a new folder for the model")
    return target
