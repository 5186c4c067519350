"""`trainer/replica.py`: dropout from NumPy's bit generators: its rate, its scale, its seed."""

import numpy as np
import pytest
import torch
from torch import nn

from training.trainer.replica import Dropout, attention, use_generator


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_zeroes_with_probability_p_and_scales_the_rest(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(301, 1001, dtype=dtype, requires_grad=True)
    y = Dropout(p)(x)
    dropped = y == 0
    assert dropped.float().mean().item() == pytest.approx(p, abs=0.005)
    assert torch.allclose(y[~dropped].float(), torch.tensor(1 / (1 - p)), rtol=4e-3)
    assert dropped.float().mean(dim=0).std() < 0.05  # no column is favoured
    y.backward(torch.ones_like(y))
    assert torch.equal(x.grad, y.detach())


def test_dropout_is_seeded_by_pytorch_and_there_is_none_in_evaluation_mode():
    x = torch.ones(64, 64)
    dropout = Dropout(0.3)
    torch.manual_seed(4)
    one = dropout(x)
    two = dropout(x)
    torch.manual_seed(4)
    assert torch.equal(one, dropout(x))
    assert not torch.equal(one, two)
    x = torch.randn(5, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_inside_use_generator_dropout_draws_from_that_generator_alone():
    x = torch.ones(64, 64)
    dropout = Dropout(0.3)
    state = torch.get_rng_state()
    with use_generator(np.random.default_rng(1)):
        one = dropout(x)
        with use_generator(np.random.default_rng(2)):
            assert not torch.equal(one, dropout(x))
        two = dropout(x)
    generator = np.random.default_rng(1)
    with use_generator(generator):
        assert torch.equal(one, dropout(x))
        assert torch.equal(two, dropout(x))
    assert torch.equal(state, torch.get_rng_state())


def test_attention_equals_that_of_pytorch():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
    mask = torch.zeros(2, 1, 5, 5).masked_fill(
        torch.rand(2, 1, 1, 5) < 0.3, torch.finfo(torch.float32).min
    )
    context, _ = attention(nn.Module().eval(), q, k, v, mask, dropout=0.5)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(context, expected.transpose(1, 2), atol=1e-6)


def test_attention_drops_weights_in_training_mode():
    ones = torch.ones(1, 1, 400, 1)
    with use_generator(np.random.default_rng(0)):
        context, _ = attention(nn.Module(), ones, ones, ones, None, dropout=0.25)
    # Of each row, the fraction of its 400 equal weights that are kept.
    kept = context.flatten() * 0.75
    assert kept.mean().item() == pytest.approx(0.75, abs=0.01)
    assert 0.01 < kept.std() < 0.04
