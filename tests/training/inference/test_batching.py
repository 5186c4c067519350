"""Smart batching: every sentence once, within the budget, similar lengths together, padded only where needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.inference.batching import pad, plan

lengths_lists = st.lists(st.integers(0, 600), max_size=80)
budgets = st.integers(1, 2_000)
rows_lists = st.lists(st.lists(st.integers(1, 30_000), max_size=12), min_size=1, max_size=12).filter(any)


@given(lengths=lengths_lists, budget=budgets)
def test_the_batches_are_a_partition(lengths: list[int], budget: int):
    planned = [int(i) for rows in plan(lengths, budget) for i in rows]
    assert sorted(planned) == list(range(len(lengths)))


@given(lengths=lengths_lists, budget=budgets)
def test_a_padded_batch_stays_within_the_budget_or_is_one_row(lengths: list[int], budget: int):
    for rows in plan(lengths, budget):
        assert len(rows) >= 1
        assert len(rows) == 1 or len(rows) * max(lengths[i] for i in rows) <= budget


@given(lengths=lengths_lists, budget=budgets)
def test_no_batch_could_have_taken_the_next_row_too(lengths: list[int], budget: int):
    batches = list(plan(lengths, budget))
    for rows in batches[:-1]:
        assert (len(rows) + 1) * max(1, *(lengths[i] for i in rows)) > budget


@given(lengths=lengths_lists, budget=budgets)
def test_the_longest_come_first(lengths: list[int], budget: int):
    in_order = [lengths[i] for rows in plan(lengths, budget) for i in rows]
    assert in_order == sorted(lengths, reverse=True)


def test_rows_of_one_length_keep_their_order_and_nothing_makes_no_batch():
    assert [rows.tolist() for rows in plan([3, 3, 3, 3, 3], 6)] == [[0, 1], [2, 3], [4]]
    assert list(plan([], 100)) == []


@given(lengths=st.lists(st.integers(1, 64), min_size=1, max_size=60), budget=budgets)
def test_scattering_the_results_restores_the_callers_order(lengths: list[int], budget: int):
    results = np.full(len(lengths), -1)
    for rows in plan(lengths, budget):
        results[rows] = [lengths[i] for i in rows]
    assert results.tolist() == lengths


@given(rows=rows_lists)
def test_padding_keeps_every_token_and_marks_the_rest(rows: list[list[int]]):
    batch = pad(rows, pad_id=0)
    longest = max(len(row) for row in rows)
    assert batch.ids.shape == (len(rows), longest)
    if batch.mask is None:
        assert batch.ids.tolist() == rows
        return
    assert [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)] == rows
    assert bool((batch.ids[~batch.mask] == 0).all())
    assert batch.mask.sum(dim=1).tolist() == [len(row) for row in rows]


@given(rows=rows_lists)
def test_a_mask_exists_only_where_something_is_padded(rows: list[list[int]]):
    assert (pad(rows, pad_id=0).mask is None) == (len({len(row) for row in rows}) == 1)


@pytest.mark.parametrize("pad_id", [0, 1, 50_283])
def test_the_tokenizers_own_padding_token_is_used(pad_id: int):
    assert pad([[5, 6], [7]], pad_id).ids.tolist() == [[5, 6], [7, pad_id]]
