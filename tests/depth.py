"""How deep the gate goes: few examples of a property, always the same, and few cases of a matrix.

$HYPOTHESIS_PROFILE chooses: "gate", as in `make test`, or "full", as in `make test-slow` and where
nothing is said.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

GATE_EXAMPLES = 25
FUZZ_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))

settings.register_profile("gate", deadline=None, max_examples=GATE_EXAMPLES, derandomize=True)
settings.register_profile("full", deadline=None)  # a slow moment of the machine is no failure
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "full")


def load_profile() -> None:
    """For the whole session. Settings that a test states are based on it."""
    settings.load_profile(PROFILE)


def examples(count: int) -> int:
    """For ``@settings(max_examples=examples(60))``: the gate takes no more than `GATE_EXAMPLES`."""
    return min(count, GATE_EXAMPLES) if PROFILE == "gate" else count


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """For ``@pytest.mark.parametrize("name", first(2, CASES))``: the gate runs the first cases, the others are slow."""
    return [
        case
        if place < count
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
