"""The device to compute on, and the precision.

The device "auto" is a CUDA GPU if there is one, else Apple's GPU, else the CPU. The precision
"auto" is bfloat16 if the hardware multiplies it natively, else float32. It is not enough that
PyTorch supports bfloat16, as emulation is slower than float32: the hardware must have the
instruction (AVX512-BF16 or AMX on x86, BF16 on Arm, compute capability 8.0 on NVIDIA).
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.catalogue import AUTO, DTYPES
from training.errors import InputError

DEVICE_TYPES = ("cpu", "cuda", "mps")
GB = 1 << 30
CPU_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def pick_device(name: str | torch.device = "auto") -> torch.device:
    """Returns the device auto, cpu, cuda, cuda:1 or mps. InputError if it cannot be used on this machine."""
    name = str(name)
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    cause: Exception | None = None
    if name.partition(":")[0] in DEVICE_TYPES:
        try:
            # A tensor can only be made on a device that works.
            return torch.empty(0, device=name).device
        # A PyTorch without CUDA raises AssertionError.
        except (RuntimeError, AssertionError) as error:
            cause = error
    raise InputError(
        f"device {name!r} cannot be used on this machine; try 'auto' or 'cpu'"
    ) from cause


def pick_dtype(name: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Returns the dtype of weights and activations in inference: auto, float32, bfloat16 or int8. InputError otherwise.

    auto never chooses int8, as it reduces the accuracy a little (`training.inference.layers`).
    """
    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(f"dtype {name!r} is unknown; choose {', '.join(DTYPES)}")
    if name == AUTO:
        return torch.bfloat16 if has_native_bfloat16(device.type) else torch.float32
    return getattr(torch, name)


@cache
def has_native_bfloat16(device_type: str) -> bool:
    """Tells whether the hardware multiplies bfloat16 natively, and ATEN_CPU_CAPABILITY lets PyTorch use it."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # ATEN_CPU_CAPABILITY=avx2 keeps PyTorch from using the instructions.
    if device_type != "cpu" or torch.backends.cpu.get_cpu_capability() == "AVX2":
        return False
    # Only Linux lists the instructions of the CPU in a file.
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    return not CPU_FLAGS.isdisjoint(cpuinfo.read_text(errors="replace").split())


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copies values to the device; to a GPU through pinned memory, so that the copy does not wait for computations."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device, non_blocking=True)
    return values.pin_memory().to(device, non_blocking=True)


def to_host(values: Tensor) -> np.ndarray:
    """Copies values to NumPy; from a GPU through pinned memory, so that this thread waits for these values only."""
    if not values.is_cuda:
        return values.cpu().numpy()
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    end_of_copy = torch.cuda.Event()
    end_of_copy.record(torch.cuda.current_stream(values.device))
    end_of_copy.synchronize()
    return host.numpy()


def describe_device(device: torch.device) -> str:
    """Describes a device, such as "cuda:0, NVIDIA H200 (139 GB)", "cpu" or "mps"."""
    if device.type != "cuda":
        return str(device)
    about = torch.cuda.get_device_properties(device)
    return f"{device}, {about.name} ({about.total_memory / GB:.0f} GB)"


def held_memory(device: torch.device) -> float | None:
    """Returns the peak memory of PyTorch on this GPU in GB; None for other devices."""
    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_reserved(device) / GB, 2)
