"""The machine and the software that a measurement depends on, and the timing of functions."""

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
from training.inference.layers import fused_linear

PACKAGES = ("torch", "transformers", "tokenizers", "sentence-transformers", "numpy")
# Rows and columns of the matrices that are multiplied.
PRODUCT_SIZE = 2_048


def describe() -> dict[str, Any]:
    """Processor, threads, versions and load of the machine, as plain JSON."""
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        # A container may use only some of the cores.
        cores = len(os.sched_getaffinity(0))
    return {
        "processor": _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "native_bfloat16": has_native_bfloat16("cpu"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        # How OpenMP's idle threads wait.
        "waiting": os.environ.get("OMP_WAIT_POLICY", "default").lower(),
        # The average number of runnable processes in the last minute.
        "load": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d"),
    }


def product_peak(dtype: torch.dtype) -> float:
    """GFLOP/s of a large matrix product on all cores: the best of six runs of PyTorch's product and of oneDNN's.

    oneDNN multiplies by a weight that was reordered to its own memory layout.
    """
    linear = torch.nn.Linear(PRODUCT_SIZE, PRODUCT_SIZE)
    packed = fused_linear(linear.weight, linear.bias, dtype)
    a = torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(dtype)
    b = linear.weight.detach().to(dtype)
    products: list[Callable[[], Any]] = [lambda: a @ b, lambda: packed(a)]
    with torch.inference_mode():
        seconds = min(time_call(product).wall for product in products for _ in range(6))
    return 2 * PRODUCT_SIZE**3 / seconds / 1e9


def rate() -> dict[str, int]:
    """`product_peak` in bfloat16, or in float32 where bfloat16 is emulated and a product takes minutes."""
    dtype = "bfloat16" if has_native_bfloat16("cpu") else "float32"
    return {f"gflops_{dtype}": round(product_peak(getattr(torch, dtype)))}


class Timing(NamedTuple):
    """The duration of a call in seconds."""

    # Elapsed seconds.
    wall: float
    # Seconds of CPU time on all cores, which other processes affect less.
    processor: float


def time_call(work: Callable[[], Any]) -> Timing:
    """Call a function once and measure it."""
    wall = time.perf_counter()
    processor = time.process_time()
    work()
    return Timing(time.perf_counter() - wall, time.process_time() - processor)


def alternate(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Timing]]:
    """Time all sides in alternation, A B C A B C …, so that disturbances of the machine affect them equally."""
    times: dict[str, list[Timing]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            times[name].append(time_call(work))
    return times


def summary(times: list[Timing]) -> dict[str, float]:
    """Medians of elapsed and CPU time, and the fastest and slowest elapsed time."""
    return {
        "seconds": round(statistics.median(time.wall for time in times), 4),
        "fastest": round(min(times).wall, 4),
        "slowest": round(max(times).wall, 4),
        "processor_seconds": round(statistics.median(time.processor for time in times), 4),
    }


def compare(rows: list[dict[str, Any]]) -> None:
    """Add the time of each row divided by that of the first, which is our default."""
    for row in rows:
        row["times_ours"] = round(row["seconds"] / rows[0]["seconds"], 2)
        row["processor_times_ours"] = round(
            row["processor_seconds"] / rows[0]["processor_seconds"], 2
        )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
