"""The order of a run's rows, and its learning rate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.trainer.sampler import LengthGroupedSampler, learning_rate

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=300)


@given(lengths, st.integers(1, 40), st.integers(0, 99), st.integers(0, 3))
def test_an_epoch_is_every_row_once(lengths, batch_size, seed, epoch):
    order = LengthGroupedSampler(lengths, batch_size, seed)
    first = epoch * order.steps_per_epoch
    batches = [order.rows(first + i) for i in range(order.steps_per_epoch)]
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(len(batch) <= batch_size for batch in batches)


def test_a_step_can_be_asked_for_without_those_before_it():
    sizes = np.random.default_rng(0).integers(4, 40, 500)
    walked, jumped = LengthGroupedSampler(sizes, 16, 3), LengthGroupedSampler(sizes, 16, 3)
    steps = [walked.rows(step).tolist() for step in range(80)]
    assert [jumped.rows(step).tolist() for step in (79, 12, 40)] == [steps[79], steps[12], steps[40]]


def test_epochs_and_seeds_differ():
    sizes = list(range(1, 400))
    order = LengthGroupedSampler(sizes, 16, 0)
    assert order.rows(0).tolist() != order.rows(order.steps_per_epoch).tolist()
    assert order.rows(0).tolist() != LengthGroupedSampler(sizes, 16, 1).rows(0).tolist()


def test_batches_hold_similar_lengths():
    sizes = np.random.default_rng(0).integers(4, 60, 2_000)
    order = LengthGroupedSampler(sizes, 16, 0)
    padded = sum(sizes[order.rows(step)].max() * len(order.rows(step)) for step in range(order.steps_per_epoch))
    assert padded < 1.1 * sizes.sum()


@given(st.integers(1, 120), st.integers(1, 9), st.integers(2, 4))
def test_processes_share_an_epoch(n, batch_size, processes):
    order = LengthGroupedSampler([5] * n, batch_size, 0, processes=processes)
    seen = [
        row
        for step in range(order.steps_per_epoch)
        for process in range(processes)
        for row in order.rows(step, process)
    ]
    assert set(seen) == set(range(n))
    assert len(seen) <= n + processes * batch_size


def test_rows_that_share_a_sentence_are_kept_apart():
    """Row i is (i // 2, i): each first sentence stands in two rows."""
    rows = [frozenset({f"a{i // 2}", f"b{i}"}) for i in range(64)]
    order = LengthGroupedSampler([10] * 64, 8, 0, rows)
    for step in range(order.steps_per_epoch):
        texts = [text for row in order.rows(step) for text in rows[row]]
        assert len(texts) == len(set(texts))


def test_where_they_cannot_be_kept_apart_no_row_is_lost():
    order = LengthGroupedSampler([10] * 20, 8, 0, [frozenset({"the same", f"b{i}"}) for i in range(20)])
    assert order.steps_per_epoch == 3
    assert sorted(np.concatenate([order.rows(step) for step in range(3)])) == list(range(20))


@pytest.mark.parametrize(("total", "warmup"), [(360, 0.1), (7, 0.1), (1, 0.1), (50, 0.0), (10, 1.0)])
def test_the_learning_rate_is_that_of_transformers(total, warmup):
    import math

    from transformers import get_linear_schedule_with_warmup

    adam = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=2e-5)
    theirs = get_linear_schedule_with_warmup(adam, math.ceil(total * warmup), total)
    for step in range(total):
        assert learning_rate(step, total, 2e-5, warmup) == pytest.approx(theirs.get_last_lr()[0])
        adam.step()
        theirs.step()
