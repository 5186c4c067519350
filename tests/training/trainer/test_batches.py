"""LengthGroupedSampler: every row once per epoch, batches of similar length, a function of seed and epoch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.trainer.batches import LengthGroupedSampler

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=300)


@given(lengths, st.integers(1, 40), st.integers(0, 99), st.integers(0, 3))
def test_an_epoch_is_every_row_once(lengths, batch_size, seed, epoch):
    sampler = LengthGroupedSampler(lengths, batch_size, seed)
    first = epoch * sampler.steps_per_epoch
    batches = [sampler.rows(first + i) for i in range(sampler.steps_per_epoch)]
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(len(batch) <= batch_size for batch in batches)


def test_a_step_does_not_depend_on_the_calls_before_it():
    sizes = np.random.default_rng(0).integers(4, 40, 500)
    sequential = LengthGroupedSampler(sizes, 16, 3)
    random_access = LengthGroupedSampler(sizes, 16, 3)
    steps = [sequential.rows(step).tolist() for step in range(80)]
    assert [random_access.rows(step).tolist() for step in (79, 12, 40)] == [
        steps[79],
        steps[12],
        steps[40],
    ]


def test_epochs_and_seeds_have_different_batches():
    sizes = list(range(1, 400))
    sampler = LengthGroupedSampler(sizes, 16, 0)
    assert sampler.rows(0).tolist() != sampler.rows(sampler.steps_per_epoch).tolist()
    assert sampler.rows(0).tolist() != LengthGroupedSampler(sizes, 16, 1).rows(0).tolist()


def test_batches_hold_similar_lengths():
    sizes = np.random.default_rng(0).integers(4, 60, 2_000)
    sampler = LengthGroupedSampler(sizes, 16, 0)
    padded = sum(
        sizes[sampler.rows(step)].max() * len(sampler.rows(step))
        for step in range(sampler.steps_per_epoch)
    )
    assert padded < 1.1 * sizes.sum()


@given(st.integers(1, 120), st.integers(1, 9), st.integers(2, 4))
def test_processes_divide_an_epoch(n, batch_size, processes):
    sampler = LengthGroupedSampler([5] * n, batch_size, 0, processes=processes)
    seen = [
        row
        for step in range(sampler.steps_per_epoch)
        for process in range(processes)
        for row in sampler.rows(step, process)
    ]
    assert set(seen) == set(range(n))
    assert len(seen) <= n + processes * batch_size


def test_rows_that_share_a_sentence_are_in_different_batches():
    # Row i is (i // 2, i): each first sentence stands in two rows.
    rows = [frozenset({f"a{i // 2}", f"b{i}"}) for i in range(64)]
    sampler = LengthGroupedSampler([10] * 64, 8, 0, rows)
    for step in range(sampler.steps_per_epoch):
        texts = [text for row in sampler.rows(step) for text in rows[row]]
        assert len(texts) == len(set(texts))


def test_no_row_is_lost_where_all_share_a_sentence():
    sampler = LengthGroupedSampler(
        [10] * 20, 8, 0, [frozenset({"the same", f"b{i}"}) for i in range(20)]
    )
    assert sampler.steps_per_epoch == 3
    assert sorted(np.concatenate([sampler.rows(step) for step in range(3)])) == list(range(20))
