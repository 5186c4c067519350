"""What a figure was measured on and with: without this beside it, a figure means nothing."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from training.device import has_native_bfloat16
from training.inference.fused_bert import fused_linear

PACKAGES = ("torch", "transformers", "tokenizers", "sentence-transformers", "numpy")
PRODUCT = 2_048  # rows and columns of the matrices whose product is the peak


def describe() -> dict[str, Any]:
    """Processor, threads, versions, and how busy the machine is, as plain JSON."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "native_bfloat16": has_native_bfloat16("cpu"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "waiting": os.environ.get("OMP_WAIT_POLICY", "default").lower(),  # of OpenMP's idle threads
        "load": round(os.getloadavg()[0], 2),  # processes that wanted a core, in the last minute
        "date": time.strftime("%Y-%m-%d"),
    }


def product_peak(dtype: torch.dtype) -> float:
    """Multiplications and additions a second, in units of 1e9, of one large matrix product on all cores.

    By PyTorch's own product and by oneDNN on a weight in its own layout; the faster of the two, best of 6.
    """
    linear = torch.nn.Linear(PRODUCT, PRODUCT)
    packed = fused_linear([linear], 1.0, dtype)
    a, b = torch.randn(PRODUCT, PRODUCT).to(dtype), linear.weight.detach().to(dtype)
    ways: list[Callable[[], Any]] = [lambda: a @ b, lambda: packed(a)]
    with torch.inference_mode():
        return 2 * PRODUCT**3 / min(took(way).wall for way in ways for _ in range(6)) / 1e9


class Took(NamedTuple):
    """How long something took, in seconds."""

    wall: float  # by the clock
    processor: float  # on all cores together; says more than the clock where others use the machine too


def took(work: Callable[[], Any]) -> Took:
    """Do it once."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - wall, time.process_time() - processor)


def alternate(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Took]]:
    """Each side's times, A B C A B C …: what disturbs the machine disturbs all sides alike."""
    times: dict[str, list[Took]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            times[name].append(took(work))
    return times


def summary(times: list[Took]) -> dict[str, float]:
    """Medians by the clock and on the processor, and the fastest and slowest by the clock."""
    return {
        "seconds": round(statistics.median(time.wall for time in times), 4),
        "fastest": round(min(times).wall, 4),
        "slowest": round(max(times).wall, 4),
        "processor_seconds": round(statistics.median(time.processor for time in times), 4),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
