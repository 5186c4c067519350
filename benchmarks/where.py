"""Which kinds of PyTorch operators a function spends its CPU time on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from benchmarks import machine

KINDS = {  # kind -> prefixes of operators, without the operators that they call
    "products of the weights": ("mkldnn::_linear_pointwise", "aten::mm", "aten::addmm", "aten::linear"),
    "attention": ("aten::bmm", "aten::_softmax", "aten::add_", "aten::masked_fill"),
    "norms": ("aten::native_layer_norm",),
    "activations": ("aten::gelu",),
    "copies": ("aten::copy_", "aten::clone", "aten::contiguous"),
    "dropout": ("aten::random_", "aten::ge", "aten::mul"),
    "optimiser": ("aten::_fused_adam", "aten::linalg_vector_norm", "aten::_foreach"),
}


def shares(work: Callable[[], Any]) -> dict[str, float]:
    """Run ``work`` twice -> the share of each of ``KINDS``, of "other operators", and of "Python, tokenising".

    The total is measured without the profiler, which slows down Python but hardly the operators.
    """
    total = machine.time_call(work).processor
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=every_thread) as profiler:
        work()
    seconds = dict.fromkeys([*KINDS, "other operators"], 0.0)
    for event in profiler.key_averages():
        if event.key.startswith(("aten::", "mkldnn::")):
            seconds[_kind(event.key)] += event.self_cpu_time_total / 1e6
    fractions = {kind: round(spent / total, 3) for kind, spent in seconds.items() if spent / total >= 0.001}
    return {**fractions, "Python, tokenising": round(max(0.0, 1 - sum(fractions.values())), 3)}


def _kind(operator: str) -> str:
    return next((kind for kind, names in KINDS.items() if operator.startswith(names)), "other operators")
