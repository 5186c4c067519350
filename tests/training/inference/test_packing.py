"""`inference/batching.py`, packed rows: every sentence once, within its width, seeing only its own tokens."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.inference.batching import GAP, TOKEN_MULTIPLE, collate, plan_rows

lengths_lists = st.lists(st.integers(1, 300), max_size=80)
budgets = st.integers(1, 2_000)
sentence_lists = st.lists(
    st.lists(st.integers(1, 30_000), min_size=1, max_size=90), min_size=1, max_size=20
)


def width_of(row: list[int], lengths: list[int]) -> int:
    return -(-sum(lengths[i] for i in row) // TOKEN_MULTIPLE) * TOKEN_MULTIPLE


@given(lengths=lengths_lists, budget=budgets)
def test_every_sentence_has_one_place_in_packed_rows_within_the_budget(
    lengths: list[int], budget: int
):
    batches = list(plan_rows(lengths, budget))
    assert sorted(i for rows in batches for row in rows for i in row) == list(range(len(lengths)))
    for rows in batches:
        widths = {width_of(row, lengths) for row in rows}
        assert len(widths) == 1
        assert len(rows) == 1 or len(rows) * widths.pop() <= budget
        assert collate([[1] * length for length in lengths], rows).ids.shape[1] == width_of(
            rows[0], lengths
        )


@given(lengths=lengths_lists)
def test_no_gap_is_left_that_another_row_could_have_filled(lengths: list[int]):
    rows = [row for batch in plan_rows(lengths, 1) for row in batch]
    room = [width_of(row, lengths) - sum(lengths[i] for i in row) for row in rows]
    shortest = [min(lengths[i] for i in row) for row in rows]
    for a, b in itertools.combinations(range(len(rows)), 2):
        assert room[a] < shortest[b] or room[b] < shortest[a]


def test_a_padding_gap_is_closed_by_a_wider_row():
    # 32 would hold one, 64 hold all three
    assert list(plan_rows([20, 20, 20], 64)) == [[[0, 1, 2]]]
    assert list(plan_rows([TOKEN_MULTIPLE - GAP, 33], 64)) == [[[1, 0]]]
    assert list(plan_rows([TOKEN_MULTIPLE - GAP, 32], 64)) == [[[1], [0]]]


def test_full_rows_without_padding_need_no_mask():
    full = collate([[7] * 64, [8] * 64], [[0], [1]])
    assert full.mask is None
    assert full.attention_bias(torch.float32) is None


@given(sentences=sentence_lists)
def test_unpacking_gives_back_each_sentence_and_a_token_sees_its_own_alone(
    sentences: list[list[int]],
):
    for rows in plan_rows([len(ids) for ids in sentences], 400):
        packed = collate(sentences, rows)
        assert packed.ids.shape == packed.positions.shape == packed.sequence_ids.shape
        expected = [sentences[i] for row in rows for i in row]
        states = packed.unpack(torch.stack([packed.ids, packed.positions], dim=2))
        mask = (
            torch.ones(states.shape[:2], dtype=torch.bool) if packed.mask is None else packed.mask
        )
        assert [own[real, 0].tolist() for own, real in zip(states, mask, strict=True)] == expected
        assert [own[real, 1].tolist() for own, real in zip(states, mask, strict=True)] == [
            list(range(len(ids))) for ids in expected
        ]
        bias = packed.attention_bias(torch.float32)
        same = packed.sequence_ids[:, :, None] == packed.sequence_ids[:, None, :]
        if bias is None:
            assert bool(same.all())
            continue
        assert torch.equal(bias[:, 0] == 0, same)
        assert bool((bias[:, 0][~same] == torch.finfo(torch.float32).min).all())
