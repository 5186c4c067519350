"""Pooling: ways to make one vector of many, and padding never enters any of them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from training.errors import InputError
from training.pooling import PAPER_POOLINGS, POOLINGS, parse_pooling, pooling_function

DIMENSION = 4


def table(rows: list[list[list[float]]]) -> tuple[Tensor, Tensor]:
    """Ragged lists of token vectors -> (hidden (B, T, D), mask (B, T)), padded with zeros on the right."""
    longest = max(len(row) for row in rows)
    hidden = torch.zeros(len(rows), longest, DIMENSION)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        hidden[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = True
    return hidden, mask


token = st.lists(st.floats(-1e3, 1e3, width=32), min_size=DIMENSION, max_size=DIMENSION)
batches = st.lists(st.lists(token, min_size=1, max_size=6), min_size=1, max_size=5).map(table)
every_pooling = pytest.mark.parametrize("name", POOLINGS)
# The poolings of sentence-transformers, which open in its folders.
REFEREED = ("mean", "max", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")


def test_the_poolings_hold_every_strategy_of_the_referee():
    assert set(Pooling.POOLING_MODES) == set(REFEREED) <= set(POOLINGS)
    assert tuple(POOLINGS)[:3] == PAPER_POOLINGS == ("mean", "max", "cls")


def test_means_are_summed_in_float32():
    # A bfloat16 sum would stick at 256.
    hidden = torch.ones(1, 512, DIMENSION, dtype=torch.bfloat16)
    assert POOLINGS["mean"](hidden, None).tolist() == [[1.0] * DIMENSION]
    assert POOLINGS["mean"](hidden, torch.ones(1, 512, dtype=torch.bool)).tolist() == [
        [1.0] * DIMENSION
    ]


@pytest.mark.parametrize("name", ["sum", "mean+", "", "mean+sum", "+"])
def test_an_unknown_name_is_refused(name: str):
    with pytest.raises(InputError, match="choose mean, max, cls"):
        parse_pooling(name)


@every_pooling
@given(batch=batches, rubbish=st.sampled_from([math.nan, math.inf, -math.inf, 1e30]))
def test_the_content_of_the_padding_changes_nothing(
    name: str, batch: tuple[Tensor, Tensor], rubbish: float
):
    hidden, mask = batch
    spoilt = hidden.masked_fill(~mask.unsqueeze(-1), rubbish)
    torch.testing.assert_close(
        POOLINGS[name](spoilt, mask), POOLINGS[name](hidden, mask), rtol=0, atol=0
    )


@every_pooling
@given(batch=batches)
def test_a_sentence_is_pooled_alike_alone_and_in_company(name: str, batch: tuple[Tensor, Tensor]):
    hidden, mask = batch
    together = POOLINGS[name](hidden, mask)
    for i, length in enumerate(mask.sum(dim=1).tolist()):
        alone = POOLINGS[name](hidden[i : i + 1, :length], None)
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("names", [*REFEREED, "mean+max", "lasttoken+cls+weightedmean"])
@given(batch=batches, skipped=st.integers(0, 2), side=st.sampled_from(["right", "left"]))
def test_pooling_leaves_out_a_prompt_with_padding_on_either_side(
    names: str, batch: tuple[Tensor, Tensor], skipped: int, side: str
):
    """Of sentences that are longer than the prompt; of shorter ones the referee keeps nothing."""
    hidden, mask = batch
    rows = mask.sum(dim=1) > skipped
    hidden = hidden[rows]
    mask = mask[rows]
    if side == "left":
        hidden = hidden.flip(1)
        mask = mask.flip(1)
    features = {"token_embeddings": hidden, "attention_mask": mask.long(), "prompt_length": skipped}
    if len(hidden):
        theirs = Pooling(DIMENSION, pooling_mode=names.split("+"), include_prompt=False)(features)
        ours = pooling_function(names, skipped)(hidden, mask)
        torch.testing.assert_close(ours, theirs["sentence_embedding"], rtol=1e-6, atol=1e-3)


@every_pooling
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_result_is_float32_whatever_comes_in(name: str, dtype: torch.dtype):
    hidden, mask = table([[[1.0, 2, 3, 4]] * 3, [[-1.0, -2, -3, -4]]])
    for pooled in (POOLINGS[name](hidden.to(dtype), mask), POOLINGS[name](hidden.to(dtype), None)):
        assert (pooled.dtype, pooled.shape) == (torch.float32, (2, DIMENSION))


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("mean", [True, True, True]),
        ("max", [True, True, True]),
        ("cls", [True, False, False]),
        ("lasttoken", [False, False, True]),
        ("weightedmean", [True, True, True]),
        ("mean_sqrt_len_tokens", [True, True, True]),
    ],
)
def test_gradients_reach_the_tokens_that_a_pooling_reads_and_never_padding(
    name: str, reached: list[bool]
):
    hidden, mask = table([[[1.0, 2, 3, 4], [4, 3, 2, 1], [0, 0, 9, 0]], [[5.0, 6, 7, 8]]])
    hidden.requires_grad_(True)
    POOLINGS[name](hidden, mask).sum().backward()
    assert hidden.grad is not None
    assert (hidden.grad.abs().sum(dim=2) > 0).tolist() == [reached, [True, False, False]]
