"""Which device to compute on, and in which precision.

"auto" is a CUDA GPU if there is one, else Apple's, else the CPU; bfloat16 where the hardware multiplies it natively,
float32 elsewhere. Emulated bfloat16 is slower than float32, so that PyTorch supports it is not enough: the hardware
must have the instruction (AVX512-BF16 or AMX on x86, BF16 on Arm, compute capability 8.0 on NVIDIA).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from training.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
DEVICE_TYPES = ("cpu", "cuda", "mps")
CPU_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # of processors that multiply bfloat16, in /proc/cpuinfo


def pick_device(name: str = "auto") -> torch.device:
    """The device called auto, cpu, cuda, cuda:1 or mps. InputError if it cannot be used on this machine."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    cause: Exception | None = None
    if name.partition(":")[0] in DEVICE_TYPES:
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            cause = error
    raise InputError(f"device {name!r} cannot be used on this machine; try 'auto' or 'cpu'") from cause


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype called auto, float32 or bfloat16, of weights and activations in inference. InputError otherwise."""
    if name == "auto":
        return torch.bfloat16 if has_native_bfloat16(device.type) else torch.float32
    if name not in DTYPES:
        raise InputError(f"dtype {name!r} is unknown; choose auto, {' or '.join(DTYPES)}")
    return DTYPES[name]


@cache
def has_native_bfloat16(device_type: str) -> bool:
    """Whether the hardware multiplies bfloat16 natively."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device_type != "cpu":
        return False
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and not CPU_FLAGS.isdisjoint(cpuinfo.read_text(errors="replace").split())
