"""Packing: every sentence once, each row within its width, nothing lost, nothing seen that is not one's own."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.data.load import load_data
from training.inference.batching import GAP, TOKEN_MULTIPLE, collate, plan_rows
from training.models.encoder import Encoder

lengths_lists = st.lists(st.integers(1, 300), max_size=80)
budgets = st.integers(1, 2_000)
sentence_lists = st.lists(st.lists(st.integers(1, 30_000), min_size=1, max_size=90), min_size=1, max_size=20)


def width_of(row: list[int], lengths: list[int]) -> int:
    return -(-sum(lengths[i] for i in row) // TOKEN_MULTIPLE) * TOKEN_MULTIPLE


@given(lengths=lengths_lists, budget=budgets)
def test_every_sentence_has_one_place(lengths: list[int], budget: int):
    planned = [i for rows in plan_rows(lengths, budget) for row in rows for i in row]
    assert sorted(planned) == list(range(len(lengths)))


@given(lengths=lengths_lists, budget=budgets)
def test_a_batch_has_rows_of_one_width_within_the_budget_or_is_one_row(lengths: list[int], budget: int):
    for rows in plan_rows(lengths, budget):
        widths = {width_of(row, lengths) for row in rows}
        assert len(widths) == 1
        assert len(rows) == 1 or len(rows) * widths.pop() <= budget
        assert collate([[1] * length for length in lengths], rows).ids.shape[1] == width_of(rows[0], lengths)


@given(lengths=lengths_lists)
def test_no_gap_is_left_that_another_row_could_have_filled(lengths: list[int]):
    rows = [row for batch in plan_rows(lengths, 1) for row in batch]
    room = [width_of(row, lengths) - sum(lengths[i] for i in row) for row in rows]
    shortest = [min(lengths[i] for i in row) for row in rows]
    for a, b in itertools.combinations(range(len(rows)), 2):
        assert room[a] < shortest[b] or room[b] < shortest[a]


def test_a_gap_is_closed_by_a_wider_row_and_a_mask_exists_only_where_it_is_needed():
    assert list(plan_rows([20, 20, 20], 64)) == [[[0, 1, 2]]]  # 32 would hold one, 64 hold all three
    assert list(plan_rows([TOKEN_MULTIPLE - GAP, 33], 64)) == [[[1, 0]]]
    assert list(plan_rows([TOKEN_MULTIPLE - GAP, 32], 64)) == [[[1], [0]]]
    full = collate([[7] * 64, [8] * 64], [[0], [1]])
    assert full.mask is None
    assert full.attention_bias(torch.float32) is None


def test_sentences_of_a_benchmark_leave_almost_nothing_empty():
    lengths = Encoder.load("all-MiniLM-L6-v2").tokenize(load_data("stsb:test").columns[0])
    tokens = [len(ids) for ids in lengths]
    cells = sum(width_of(row, tokens) for rows in plan_rows(tokens, 1_024) for row in rows)
    assert cells < 1.02 * sum(tokens)


@given(sentences=sentence_lists)
def test_unpacking_gives_back_each_sentence(sentences: list[list[int]]):
    for rows in plan_rows([len(ids) for ids in sentences], 400):
        packed = collate(sentences, rows)
        chosen = [sentences[i] for row in rows for i in row]
        states = packed.unpack(torch.stack([packed.ids, packed.positions], dim=2))
        mask = torch.ones(states.shape[:2], dtype=torch.bool) if packed.mask is None else packed.mask
        assert [own[real, 0].tolist() for own, real in zip(states, mask, strict=True)] == chosen
        assert [own[real, 1].tolist() for own, real in zip(states, mask, strict=True)] == [
            list(range(len(ids))) for ids in chosen
        ]


@given(sentences=sentence_lists)
def test_a_token_sees_its_own_sentence_and_no_other(sentences: list[list[int]]):
    for rows in plan_rows([len(ids) for ids in sentences], 400):
        packed = collate(sentences, rows)
        bias = packed.attention_bias(torch.float32)
        same = packed.sequence_ids[:, :, None] == packed.sequence_ids[:, None, :]
        if bias is None:
            assert bool(same.all())
            continue
        assert torch.equal(bias[:, 0] == 0, same)
        assert bool((bias[:, 0][~same] == torch.finfo(torch.float32).min).all())


@given(sentences=sentence_lists)
def test_widths_are_whole_steps(sentences: list[list[int]]):
    for rows in plan_rows([len(ids) for ids in sentences], 400):
        packed = collate(sentences, rows)
        assert packed.ids.shape == packed.positions.shape == packed.sequence_ids.shape
        assert packed.ids.shape[1] % TOKEN_MULTIPLE == 0


@pytest.mark.parametrize("sentence", [1, 31, 32])
def test_a_single_short_sentence_takes_a_short_row(sentence: int):
    assert collate([[5] * sentence], [[0]]).ids.shape == (1, 32)
