"""Where the time of a piece of work goes: PyTorch's operators by kind, as shares of the processor's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from benchmarks import machine

KINDS = {  # kind -> operators whose names begin so, what they call left out
    "products of the weights": ("mkldnn::_linear_pointwise", "aten::mm", "aten::addmm", "aten::linear"),
    "attention": ("aten::bmm", "aten::_softmax", "aten::add_", "aten::masked_fill"),
    "norms": ("aten::native_layer_norm",),
    "activations": ("aten::gelu",),
    "copies": ("aten::copy_", "aten::clone", "aten::contiguous"),
    "dropout": ("aten::random_", "aten::ge", "aten::mul"),
    "optimiser": ("aten::_fused_adam", "aten::linalg_vector_norm", "aten::_foreach"),
}


def shares(work: Callable[[], Any]) -> dict[str, float]:
    """Do it twice -> the share of each of ``KINDS``; "other operators"; and "Python, tokenising" for what is left.

    The whole is measured without the profiler, which slows Python down but hardly the operators.
    """
    whole = machine.took(work).processor
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=every_thread) as seen:
        work()
    seconds = dict.fromkeys([*KINDS, "other operators"], 0.0)
    for event in seen.key_averages():
        if event.key.startswith(("aten::", "mkldnn::")):
            seconds[_kind(event.key)] += event.self_cpu_time_total / 1e6
    found = {kind: round(took / whole, 3) for kind, took in seconds.items() if took / whole >= 0.001}
    return {**found, "Python, tokenising": round(max(0.0, 1 - sum(found.values())), 3)}


def _kind(operator: str) -> str:
    return next((kind for kind, names in KINDS.items() if operator.startswith(names)), "other operators")
