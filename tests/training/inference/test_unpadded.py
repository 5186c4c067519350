"""`inference/layers.py`, batches without padding: a GPU's attention, emulated by a mask between the sentences."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from test_runner import alone, assert_close, backbone, run, sentences
from tiny_models import make_model
from torch import Tensor

from training.inference import fused_bert, layers
from training.inference.batching import plan_unpadded
from training.inference.layers import attention_alone, has_varlen, varlen_agrees
from training.inference.runner import PackedRunner, build_runner
from training.models.cross_encoder import CrossEncoder

CPU = torch.device("cpu")


def masked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """`torch.nn.attention.varlen.varlen_attn` by its documentation: (N, H, d) each -> (N, H, d)."""
    assert cu_seq_q.dtype == torch.int32
    assert cu_seq_q[0] == 0
    assert cu_seq_q[-1] == len(query)
    lengths = cu_seq_q.diff()
    assert lengths.min() > 0
    assert max_q == max_k == lengths.max()
    sentence = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    mask = sentence[:, None] == sentence
    if window_size != (-1, -1):
        place = torch.arange(len(query))
        mask &= (place[:, None] - place).abs() <= window_size[0]
    parts = (part.transpose(0, 1) for part in (query, key, value))
    return F.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale).transpose(0, 1)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this machine had a GPU's operator."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", masked_attention)
    monkeypatch.setattr(fused_bert, "has_varlen", lambda *_: True)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize("lengths", [[1], [3, 64, 17, 17, 1, 40, 2]])
def test_without_padding_each_sentence_is_computed_as_if_alone(
    tmp_path: Path, emulated: None, architecture: str, lengths: list[int]
):
    model = backbone(tmp_path, architecture)
    ids = sentences(lengths)
    runner = build_runner(model, torch.float32, pad_id=0)
    assert isinstance(runner, PackedRunner)
    assert runner.transformer.unpadded
    assert_close(run(runner, ids), alone(model, ids))


def test_local_attention_sees_its_window_without_padding(tmp_path: Path, emulated: None):
    model = backbone(tmp_path, "modernbert", max_position_embeddings=400, local_attention=16)
    ids = sentences([300, 5, 30])
    assert_close(run(build_runner(model, torch.float32, pad_id=0), ids), alone(model, ids))


def test_a_position_bias_keeps_mpnet_in_packed_rows(tmp_path: Path, emulated: None):
    model = backbone(tmp_path, "mpnet")
    ids = sentences([9, 30, 1])
    runner = build_runner(model, torch.float32, pad_id=0)
    assert not runner.transformer.unpadded
    assert_close(run(runner, ids), alone(model, ids))


def test_pairs_are_scored_as_in_packed_rows(tmp_path: Path, request: pytest.FixtureRequest):
    folder = str(make_model(tmp_path, "bert"))
    config = transformers.AutoConfig.from_pretrained(folder, num_labels=1)
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    pairs = [
        ("a man", "a woman is playing"),
        ("", "the dog"),
        ("the cat is eating food", "the cat"),
        ("a", "a"),
    ]
    expected = CrossEncoder.load(folder, dtype="float32").predict(pairs)
    request.getfixturevalue("emulated")
    scorer = CrossEncoder.load(folder, dtype="float32")
    assert scorer.inference.unpadded
    np.testing.assert_allclose(scorer.predict(pairs), expected, atol=1e-6)


def test_batches_hold_every_sentence_once_within_the_budget():
    lengths = [5, 60, 7, 7, 30, 1, 64]
    batches = list(plan_unpadded(lengths, 128))
    assert all(len(rows) == 1 for rows in batches)
    assert sorted(i for [row] in batches for i in row) == list(range(len(lengths)))
    assert all(len(row) * max(lengths[i] for i in row) <= 128 for [row] in batches)


class TestTheCapabilityCheck:
    def test_a_cpu_has_no_such_operator_and_the_reference_is_pytorchs(self):
        assert not has_varlen(CPU, torch.bfloat16, 64)
        projected = torch.randn(5, 3 * 2 * 8)
        query, key, value = projected.view(5, 3, 2, 8).unbind(1)
        weights = torch.einsum("qhd,khd->hqk", query, key).softmax(-1)
        expected = torch.einsum("hqk,khd->qhd", weights, value).flatten(1)
        torch.testing.assert_close(attention_alone(projected, 2, [5]), expected)

    @pytest.mark.parametrize("window", [None, 8])
    def test_an_operator_that_computes_attention_is_taken(self, emulated: None, window: int | None):
        assert varlen_agrees(CPU, torch.float32, 32, window)

    @pytest.mark.parametrize("fault", ["sentences see each other", "another scale"])
    def test_one_that_computes_something_else_is_not(
        self, monkeypatch: pytest.MonkeyPatch, fault: str
    ):
        def wrong(
            query: Tensor, key: Tensor, value: Tensor, *where: object, **settings: object
        ) -> Tensor:
            if fault == "another scale":
                return masked_attention(query, key, value, *where, scale=0.1)
            parts = (part.transpose(0, 1) for part in (query, key, value))
            return F.scaled_dot_product_attention(*parts, scale=1.0).transpose(0, 1)

        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", wrong)
        assert not varlen_agrees(CPU, torch.float32, 32)

    @pytest.mark.parametrize("error", [ImportError, TypeError, RuntimeError])
    def test_where_it_is_missing_or_fails_packed_rows_are_used(
        self, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ):
        def fail(*_: object) -> bool:
            raise error("no kernel for this GPU")

        monkeypatch.setattr(layers, "varlen_agrees", fail)
        assert not has_varlen.__wrapped__(torch.device("cuda:0"), torch.bfloat16, 64)
        monkeypatch.setattr(layers, "varlen_agrees", lambda *_: True)
        assert has_varlen.__wrapped__(torch.device("cuda:0"), torch.bfloat16, 64)
        assert not has_varlen.__wrapped__(torch.device("cuda:0"), torch.float32, 64), (
            "it takes 16 bits alone"
        )
