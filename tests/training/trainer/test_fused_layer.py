"""A layer's way back, written out: the gradients are those that autograd finds, dropout and all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from training.inference.fused_bert import ARCHITECTURES
from training.trainer.dropout import drawing_from
from training.trainer.fused_layer import Dropped, Rates, TrainedLayer, Way, drop
from training.trainer.fused_parts import Tape, TrainedDense, TrainedNorm, TrainedTable
from training.trainer.replica import MasterParameter
from training.trainer.unpadded_batch import UnpaddedBatch, unpad_batch

WIDTH, HEADS = 24, 3


def make_layer() -> tuple[TrainedLayer, list[TrainedDense | TrainedNorm]]:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    torch.manual_seed(0)
    config = BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=40, initializer_range=0.3)
    layer = BertLayer(config).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    parts: list[TrainedDense | TrainedNorm] = []

    def product(linears: list[nn.Linear], scale: float) -> TrainedDense:
        parts.append(TrainedDense(linears, scale, torch.float64))
        return parts[-1]

    def norm(module: nn.LayerNorm) -> TrainedNorm:
        parts.append(TrainedNorm(module, torch.float64))
        return parts[-1]

    return TrainedLayer(layer, ARCHITECTURES["bert"], HEADS, product, norm), parts


def share_of(lengths: list[int], rates: Rates) -> tuple[Way, Dropped, Tensor, Tensor]:
    """Sentences of these lengths: the way through, what is dropped, hidden states, the gradient of what they become."""
    tokens = unpad_batch([[1] * length for length in lengths], torch.float64)
    x = torch.randn(len(tokens.ids), WIDTH, dtype=torch.float64)
    with drawing_from(np.random.default_rng(len(lengths))):
        dropped = drop(tokens, HEADS, WIDTH, rates, torch.float64)
    return Way(tokens, HEADS, tokens.bias), dropped, x, torch.randn_like(x) * real_tokens(tokens)


def real_tokens(tokens: UnpaddedBatch) -> Tensor:
    """(M, 1) bool: the number of tokens is rounded up, and what comes along is no sentence's."""
    real = torch.zeros(len(tokens.ids), 1, dtype=torch.bool)
    real[tokens.places if tokens.mask is None else tokens.places[tokens.mask]] = True
    return real


def gradient_of(link: MasterParameter) -> Tensor:
    """Of the twin: the weight's, without the scale between them."""
    assert link.weight.grad is not None
    return link.weight.grad / link.scale


RATES = [Rates(0.0, 0.0, 0.0), Rates(0.2, 0.3, 0.4), Rates(0.5, 0.0, 0.1)]


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("lengths", [[5, 9, 17], [32], [3, 3, 4], [40, 7], [1]])
def test_the_gradient_of_the_hidden_states_is_autograds(lengths: list[int], rates: Rates) -> None:
    layer, _ = make_layer()
    way, dropped, x, upstream = share_of(lengths, rates)
    with torch.no_grad():
        trace = layer.forward(x, way, dropped)
        ours, _ = layer.backward(upstream, trace, way, {})
    x.requires_grad_()
    again = layer.forward(x, way, dropped).end.y
    assert torch.equal(again, trace.end.y)
    (theirs,) = torch.autograd.grad(again, x, upstream)
    assert torch.allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("rates", RATES)
def test_the_gradients_of_the_weights_are_autograds_over_all_shares(rates: Rates) -> None:
    layer, parts = make_layer()
    shares = [share_of(own, rates) for own in ([5, 9, 17], [1], [40, 7])]
    tapes: list[Tape] = []
    for way, dropped, x, upstream in shares:
        tapes.append({})
        with torch.no_grad():
            layer.backward(upstream, layer.forward(x, way, dropped), way, tapes[-1])
    for part in parts:
        part.receive([tape[part] for tape in tapes])

    weights = [weight.requires_grad_() for part in parts for weight in (part.weight, part.bias)]
    total = torch.zeros((), dtype=torch.float64)
    for way, dropped, x, upstream in shares:
        total = total + (layer.forward(x, way, dropped).end.y * upstream).sum()
    theirs = iter(torch.autograd.grad(total, weights))
    for part in parts:
        of_weight, of_bias = next(theirs), next(theirs)
        half = len(part.links) // 2  # the links of the weight, then those of the bias
        assert torch.allclose(torch.cat([gradient_of(link) for link in part.links[:half]]), of_weight, atol=1e-9)
        assert torch.allclose(torch.cat([gradient_of(link) for link in part.links[half:]]), of_bias, atol=1e-9)


def test_the_gradient_of_the_logits_is_autograds() -> None:
    layer, _ = make_layer()
    way, dropped, x, upstream = share_of([5, 9, 17], Rates(0.3, 0.0, 0.0))
    assert way.bias is not None
    bias = way.bias.repeat(1, HEADS, 1, 1).requires_grad_()
    way = way._replace(bias=bias)
    (theirs,) = torch.autograd.grad(layer.forward(x, way, dropped).end.y, bias, upstream)
    with torch.no_grad():
        _, ours = layer.backward(upstream, layer.forward(x, way, dropped), way, {})
    assert torch.allclose(ours, theirs, atol=1e-9)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_gaps_have_no_part_in_any_gradient(lengths: list[int]) -> None:
    layer, parts = make_layer()
    way, dropped, x, upstream = share_of(lengths, Rates(0.0, 0.0, 0.0))
    real = real_tokens(way.tokens)
    found = []
    for other in (x, torch.where(real, x, torch.randn_like(x))):
        tape: Tape = {}
        with torch.no_grad():
            of_x, _ = layer.backward(upstream, layer.forward(other, way, dropped), way, tape)
        for part in parts:
            part.receive([tape[part]])
        found.append([of_x[real[:, 0]], *(gradient_of(link).clone() for part in parts for link in part.links)])
        assert torch.count_nonzero(of_x[~real[:, 0]]) == 0
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, atol=1e-9)


def test_a_table_gets_the_sum_of_what_comes_back_to_each_row() -> None:
    weight = nn.Parameter(torch.randn(5, 3))
    table, tapes = TrainedTable(weight, torch.float32), [Tape(), Tape()]
    for number, tape in enumerate(tapes):
        table.backward(torch.ones(4, 3) * (number + 1), torch.tensor([0, 2, 2, 4]), tape)
    table.receive([tape[table] for tape in tapes])
    assert weight.grad is not None
    assert weight.grad.tolist() == [[3.0] * 3, [0.0] * 3, [6.0] * 3, [0.0] * 3, [3.0] * 3]
