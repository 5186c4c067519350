"""The trainee: what makes a step cheaper does not change it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.config import RunConfig
from training.encoder import Encoder
from training.objectives import Regression
from training.trainee import Dropout, Trainee, UsedRows

SENTENCES = ["A man plays a guitar.", "Someone is cooking.", "A dog runs in the snow.", "Two cats sleep."]


@pytest.fixture
def encoder() -> Encoder:
    return Encoder.load("scratch:2x32", dtype="float32", device="cpu", seed=1)


def steps(trainee: Trainee, encoder: Encoder, count: int = 3) -> list[float]:
    """A few steps of Adam on two pairs -> the losses."""
    ids = encoder.tokenize(SENTENCES)
    adam = torch.optim.AdamW(trainee.groups(0.0), lr=1e-3, fused=True)
    losses = []
    for _ in range(count):
        loss = trainee([ids[:2], ids[2:]], torch.tensor([0.2, 0.9]))
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def test_training_the_used_rows_is_training_all_rows(encoder):
    twin = Encoder.load("scratch:2x32", dtype="float32", device="cpu", seed=1)
    used = {token for row in encoder.tokenize(SENTENCES) for token in row}
    few, all_rows = Trainee(encoder, Regression(), used), Trainee(twin, Regression(), None)
    results = []
    for trainee, model in ((few, encoder), (all_rows, twin)):
        torch.manual_seed(0)
        losses = steps(trainee, model)
        with trainee.whole() as whole:
            results.append((losses, whole.backbone.get_input_embeddings().weight.clone(), whole.encode(SENTENCES)))
    (losses, table, vectors), (other_losses, other_table, other_vectors) = results
    assert losses == pytest.approx(other_losses, abs=1e-6)
    assert torch.allclose(table, other_table, atol=1e-6)
    assert np.allclose(vectors, other_vectors, atol=1e-5)


def test_only_the_rows_used_move(encoder):
    before = encoder.backbone.get_input_embeddings().weight.detach().clone()
    used = sorted({token for row in encoder.tokenize(SENTENCES) for token in row})
    trainee = Trainee(encoder, Regression(), used)
    steps(trainee, encoder)
    with trainee.whole() as whole:
        moved = (whole.backbone.get_input_embeddings().weight != before).any(dim=1).nonzero().flatten()
    assert moved.tolist() == used


def test_the_gradient_of_used_rows_is_that_of_an_embedding():
    table = torch.nn.Embedding(20, 4)
    rows = UsedRows(table, [3, 5, 7, 11])
    for ids in (torch.tensor([[3, 5], [5, 11]]), torch.tensor([[7, 7], [3, 7]])):  # the second forgets the first
        upstream = torch.randn(2, 2, 4)
        table.zero_grad()
        (table(ids) * upstream).sum().backward()
        (rows(ids) * upstream).sum().backward()
        assert torch.equal(rows(ids), table(ids))
        assert torch.allclose(rows.rows.grad, table.weight.grad[[3, 5, 7, 11]])


def test_encoding_in_between_does_not_disturb_training(encoder):
    torch.manual_seed(0)
    trainee = Trainee(encoder, Regression(), {token for row in encoder.tokenize(SENTENCES) for token in row})
    with trainee.whole() as whole:
        assert not whole.backbone.training
        one = whole.encode(SENTENCES)
        assert np.array_equal(one, whole.encode(SENTENCES))
    assert encoder.backbone.training
    steps(trainee, encoder)
    with trainee.whole() as whole:
        assert not np.allclose(one, whole.encode(SENTENCES), atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_drops_and_scales(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(301, 1001, dtype=dtype, requires_grad=True)
    y = Dropout(p)(x)
    dropped = y == 0
    assert dropped.float().mean().item() == pytest.approx(p, abs=0.005)
    assert torch.allclose(y[~dropped].float(), torch.tensor(1 / (1 - p)), rtol=4e-3)
    assert dropped.float().mean(dim=0).std() < 0.05  # no column is favoured
    y.backward(torch.ones_like(y))
    assert torch.equal(x.grad, y.detach())


def test_dropout_draws_anew_and_repeats_with_the_seed():
    x, dropout = torch.ones(64, 64), Dropout(0.3)
    torch.manual_seed(4)
    one, two = dropout(x), dropout(x)
    torch.manual_seed(4)
    assert torch.equal(one, dropout(x))
    assert not torch.equal(one, two)


def test_no_dropout_when_encoding():
    x = torch.randn(5, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_lora_trains_little_and_merges(encoder):
    before = encoder.encode(SENTENCES)
    torch.manual_seed(0)
    trainee = Trainee(encoder, Regression(), None, rank=4)
    trained = [name for name, weight in trainee.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    with trainee.whole() as whole:
        assert np.allclose(whole.encode(SENTENCES), before, atol=1e-5)  # LoRA begins at zero
    steps(trainee, encoder)
    with trainee.whole() as whole:
        assert type(whole.backbone).__name__ == "BertModel"
        after = whole.encode(SENTENCES)
    trainee.eval()
    with torch.no_grad():
        direct = torch.nn.functional.normalize(encoder.embed(encoder.tokenize(SENTENCES)), dim=1)
    assert np.allclose(direct.numpy(), after, atol=1e-5)
    assert not np.allclose(after, before, atol=1e-4)


def test_biases_and_norms_are_not_decayed(encoder):
    decayed, spared = Trainee(encoder, Regression(), None).groups(RunConfig("mnrl", weight_decay=0.01).weight_decay)
    assert decayed["weight_decay"] == 0.01
    assert spared["weight_decay"] == 0.0
    assert all(weight.ndim == 1 for weight in spared["params"])
