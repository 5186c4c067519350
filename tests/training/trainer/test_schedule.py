"""The learning rate."""

from __future__ import annotations

import math

import pytest
import torch

from training.trainer.trainer import learning_rate


@pytest.mark.parametrize(("total", "warmup"), [(360, 0.1), (7, 0.1), (1, 0.1), (50, 0.0), (10, 1.0)])
def test_the_learning_rate_equals_that_of_transformers(total, warmup):
    from transformers import get_linear_schedule_with_warmup

    adam = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=2e-5)
    scheduler = get_linear_schedule_with_warmup(adam, math.ceil(total * warmup), total)
    for step in range(total):
        assert learning_rate(step, total, 2e-5, warmup) == pytest.approx(scheduler.get_last_lr()[0])
        adam.step()
        scheduler.step()
