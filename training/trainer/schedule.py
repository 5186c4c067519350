"""The learning rate as a function of the step."""

from __future__ import annotations

import math


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Linear warm-up over the first ``warmup`` fraction of ``total`` steps, then linear decay to 0.

    The paper's schedule (section 3.1). ``step`` counts from 0; the rate of the first step is 0, as in transformers'
    ``get_linear_schedule_with_warmup``.
    """
    warmup_steps = math.ceil(total * warmup)
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0, total - step) / max(1, total - warmup_steps)
