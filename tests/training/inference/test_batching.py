"""Smart batching: every sentence once, within the budget, similar lengths together, padded only where needed."""

from hypothesis import given
from hypothesis import strategies as st

from training.inference.batching import pad, plan

lengths_lists = st.lists(st.integers(0, 600), max_size=80)
budgets = st.integers(1, 2_000)
rows_lists = st.lists(
    st.lists(st.integers(1, 30_000), max_size=12), min_size=1, max_size=12
).filter(any)


@given(lengths=lengths_lists, budget=budgets)
def test_batches_are_a_partition_longest_first_and_full_to_the_budget(
    lengths: list[int], budget: int
):
    batches = list(plan(lengths, budget))
    planned = [int(i) for rows in batches for i in rows]
    assert sorted(planned) == list(range(len(lengths)))
    assert [lengths[i] for i in planned] == sorted(lengths, reverse=True)
    for rows in batches:
        assert len(rows) == 1 or len(rows) * max(lengths[i] for i in rows) <= budget
    for rows in batches[:-1]:
        assert (len(rows) + 1) * max(1, *(lengths[i] for i in rows)) > budget


def test_rows_of_one_length_keep_their_order():
    assert [rows.tolist() for rows in plan([3, 3, 3, 3, 3], 6)] == [[0, 1], [2, 3], [4]]


def test_no_rows_make_no_batch():
    assert list(plan([], 100)) == []


@given(rows=rows_lists, pad_id=st.sampled_from([0, 1, 50_283]))
def test_padding_keeps_every_token_and_marks_the_rest(rows: list[list[int]], pad_id: int):
    batch = pad(rows, pad_id)
    longest = max(len(row) for row in rows)
    assert batch.ids.shape == (len(rows), longest)
    assert (batch.mask is None) == (len({len(row) for row in rows}) == 1)
    if batch.mask is None:
        assert batch.ids.tolist() == rows
        return
    assert [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)] == rows
    assert bool((batch.ids[~batch.mask] == pad_id).all())
    assert batch.mask.sum(dim=1).tolist() == [len(row) for row in rows]
