"""The stream of tokens: every token once, few gaps, and both ways between stream and rows are exact."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.inference.packing import TOKEN_MULTIPLE as ROW_STEP
from training.inference.packing import pack, round_up
from training.trainer.unpadded_batch import TOKEN_MULTIPLE, unpad_batch

sentence_lists = st.lists(st.lists(st.integers(1, 30_000), min_size=1, max_size=90), min_size=1, max_size=20)


@given(sentences=sentence_lists)
def test_each_sentence_is_found_in_order(sentences: list[list[int]]):
    tokens = unpad_batch(sentences, torch.float32)
    mask = torch.ones_like(tokens.places, dtype=torch.bool) if tokens.mask is None else tokens.mask
    assert [own[real].tolist() for own, real in zip(tokens.ids[tokens.places], mask, strict=True)] == sentences
    positions = [own[real].tolist() for own, real in zip(tokens.positions[tokens.places], mask, strict=True)]
    assert positions == [list(range(len(ids))) for ids in sentences]


@given(sentences=sentence_lists)
def test_the_stream_is_hardly_longer_than_the_sentences(sentences: list[list[int]]):
    tokens, real = unpad_batch(sentences, torch.float32), sum(map(len, sentences))
    cells = tokens.row_positions.numel()
    assert len(tokens.ids) == min(cells, round_up(real, TOKEN_MULTIPLE))
    assert len(tokens.ids) == len(tokens.positions) == len(tokens.cells) == len(set(tokens.cells.tolist()))
    assert tokens.rows * tokens.row_positions.shape[1] == cells == len(tokens.tokens)


@given(sentences=sentence_lists)
def test_rows_hold_each_sentence_once_and_are_wide_enough(sentences: list[list[int]]):
    lengths = [len(ids) for ids in sentences]
    rows = pack(lengths)
    assert sorted(sentence for row in rows for sentence in row) == list(range(len(sentences)))
    assert max(sum(lengths[sentence] for sentence in row) for row in rows) <= round_up(max(lengths), ROW_STEP)


@given(sentences=sentence_lists)
def test_there_and_back_nothing_changes_and_gaps_give_no_gradient(sentences: list[list[int]]):
    tokens = unpad_batch(sentences, torch.float64)
    x = torch.randn(len(tokens.ids), 3, dtype=torch.float64)
    spread = tokens.spread(x)
    assert spread.shape == (tokens.row_positions.numel(), 3)
    assert torch.equal(tokens.gather(spread), x)
    rows = torch.randn_like(spread).requires_grad_()
    tokens.gather(rows).backward(x)
    assert torch.equal(tokens.spread_gradient(x), rows.grad)


def test_attention_never_looks_across_sentences():
    tokens = unpad_batch([[1] * 20, [2] * 10, [3] * 30], torch.float32)
    assert tokens.bias is not None
    owners = torch.zeros(tokens.row_positions.numel(), dtype=torch.int64)
    owners[tokens.cells] = tokens.ids
    owners = owners.view(tokens.rows, -1)
    together = owners[:, :, None] == owners[:, None, :]
    assert torch.equal(tokens.bias[:, 0] == 0, together)
