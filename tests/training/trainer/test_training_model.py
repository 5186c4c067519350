"""The trainee: what makes a step cheaper does not change it."""

from __future__ import annotations

import copy
import gc
import time
import weakref
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import ARCHITECTURES, make_model

from training import parallel
from training.inference import fused_bert
from training.inference.packing import round_up
from training.models.encoder import Encoder
from training.objectives import Classification, Regression
from training.trainer.config import RunConfig
from training.trainer.dropout import Dropout, attention, drawing_from, kept
from training.trainer.fused_replica import FusedReplica
from training.trainer.replica import AutogradReplica
from training.trainer.training_model import TrainingModel, default_micro_batches, split_rows
from training.trainer.unpadded_batch import TOKEN_MULTIPLE

SENTENCES = ["A man plays a guitar.", "Someone is cooking.", "A dog runs in the deep snow.", "Two cats sleep."]
GOLD = torch.tensor([0.2, 0.9])


def load(pooling: str = "mean") -> Encoder:
    return Encoder.load("scratch:2x32", pooling, dtype="float32", device="cpu", seed=1)


@pytest.fixture
def encoder() -> Encoder:
    return load()


def columns(encoder: Encoder) -> list[list[list[int]]]:
    ids = encoder.tokenize(SENTENCES)
    return [ids[:2], ids[2:]]


def used(encoder: Encoder) -> list[int]:
    return sorted({token for row in encoder.tokenize(SENTENCES) for token in row})


def without_dropout(encoder: Encoder) -> Encoder:
    encoder.backbone.config.hidden_dropout_prob = encoder.backbone.config.attention_probs_dropout_prob = 0.0
    for module in encoder.backbone.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return encoder


def steps(training_model: TrainingModel, count: int = 3) -> list[float]:
    """A few steps of Adam on two pairs -> the losses."""
    adam = torch.optim.AdamW(training_model.groups(0.0), lr=1e-3, fused=True)
    losses = []
    for number in range(count):
        losses.append(learn(training_model, columns(training_model.encoder), GOLD, number).item())
        adam.step()
    return losses


def learn(
    training_model: TrainingModel, ids: list[list[list[int]]], target: torch.Tensor, step: int = 0
) -> torch.Tensor:
    """A step's way forward and back -> the loss."""
    loss, _ = training_model.gradients(training_model.collate(ids, target, step))
    return loss


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("shares", [1, 2, 3])
@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_gradients_are_those_of_the_plain_way(shares, pooling):
    """Encoder.embed, the objective, backward: what no share, no table of used words has touched."""
    plain, encoder = load(pooling), load(pooling)
    objective = Classification(32, 3)
    other = copy.deepcopy(objective)
    target = torch.tensor([0, 2])
    ids = plain.tokenize(SENTENCES)
    expected = objective(plain.embed(ids).chunk(2), target)
    expected.backward()

    training_model = TrainingModel(without_dropout(encoder), other, used(encoder), shares=shares)
    loss = learn(training_model, columns(encoder), target)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    table = plain.backbone.get_input_embeddings().weight.grad
    assert torch.allclose(training_model.words.rows.grad, table[training_model.words.used], atol=1e-6)
    weights = dict(encoder.backbone.named_parameters())
    for name, weight in plain.backbone.named_parameters():
        if "word_embeddings" not in name and weight.grad is not None:
            assert torch.allclose(weights[name].grad, weight.grad, atol=1e-6), name
    assert torch.allclose(other.classifier.weight.grad, objective.classifier.weight.grad, atol=1e-6)


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("shares", [1, 2])
def test_the_length_of_the_gradient_is_that_of_all_gradients_together(encoder, shares, rank):
    training_model = TrainingModel(encoder, Classification(32, 3), used(encoder), rank=rank, shares=shares)
    for step in range(2):  # the second finds the gradients of the first
        _, length = training_model.gradients(training_model.collate(columns(encoder), torch.tensor([0, 2]), step))
        every = [weight.grad for weight in training_model.parameters() if weight.grad is not None]
        assert length.item() == pytest.approx(torch.nn.utils.get_total_norm(every).item(), rel=1e-5)


def test_dropout_is_a_function_of_the_seed_the_step_and_the_share(encoder):
    ids = encoder.tokenize(SENTENCES[:1])[0]
    training_model = TrainingModel(encoder, Regression(), used(encoder), seed=5, shares=2)
    same = [[ids, ids], [ids, ids]]  # both shares hold the same sentences

    def drawn(step: int) -> list[torch.Tensor]:
        return [share.dropped[0].hidden for share in training_model.collate(same, GOLD, step).shares]

    first, again, other = drawn(7), drawn(7), drawn(8)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_a_batch_forgets_the_one_before_it(encoder):
    training_model = TrainingModel(without_dropout(encoder), Regression(), used(encoder))
    ids = encoder.tokenize(SENTENCES)
    learn(training_model, [ids[:1], ids[1:2]], GOLD[:1])
    learn(training_model, [ids[2:3], ids[3:]], GOLD[1:])
    touched = training_model.words.rows.grad.abs().sum(dim=1) > 0
    expected = {token for row in ids[2:] for token in row}
    assert {token for token, moved in zip(used(encoder), touched, strict=True) if moved} == expected


def test_training_the_used_rows_is_training_all_rows():
    encoder, twin = load(), load()
    few, all_rows = TrainingModel(encoder, Regression(), used(encoder)), TrainingModel(twin, Regression())
    assert steps(few) == pytest.approx(steps(all_rows), abs=1e-6)
    with few.whole() as one, all_rows.whole() as other:
        assert torch.allclose(
            one.backbone.get_input_embeddings().weight, other.backbone.get_input_embeddings().weight, atol=1e-6
        )


def test_only_the_rows_used_move(encoder):
    before = encoder.backbone.get_input_embeddings().weight.detach().clone()
    training_model = TrainingModel(encoder, Regression(), used(encoder))
    steps(training_model)
    with training_model.whole() as whole:
        moved = (whole.backbone.get_input_embeddings().weight != before).any(dim=1).nonzero().flatten()
    assert moved.tolist() == used(encoder)


@pytest.mark.parametrize("rank", [0, 4])
def test_shares_that_run_side_by_side_repeat_exactly(rank):
    def curve(seed: int) -> list[float]:
        torch.manual_seed(0)  # LoRA begins at random
        encoder = load()
        return steps(TrainingModel(encoder, Regression(), used(encoder), seed, rank, shares=3), 8)

    first = curve(5)
    assert all(curve(5) == first for _ in range(4))
    assert curve(6) != first


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200), st.integers(1, 12))
def test_shares_hold_every_row_once_and_about_equal_work(lengths, shares):
    parts = split_rows(lengths, shares)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    assert 1 <= len(parts) <= shares
    most = max(sum(lengths[row] for row in part) for part in parts)
    assert (
        most <= sum(lengths) / shares + max(lengths) + TOKEN_MULTIPLE
    )  # a share's tokens become a round number anyway
    assert all(lengths[a] >= lengths[b] for part in parts for a, b in pairwise(part))


def test_shares_are_full_so_that_round_numbers_cost_little():
    """Each of two shares by itself would be rounded up by half a STEP, and be as far from the other."""
    random = np.random.default_rng(0)
    added, apart = [], []
    for _ in range(300):
        lengths = np.clip(random.gamma(4, 3.5, size=32).astype(int) + 2, 4, 60).tolist()
        tokens = [round_up(sum(lengths[row] for row in part), TOKEN_MULTIPLE) for part in split_rows(lengths, 2)]
        added.append(sum(tokens) - sum(lengths))
        apart.append(max(tokens) - min(tokens))
    assert np.mean(added) < 0.7 * TOKEN_MULTIPLE
    assert np.mean(apart) < 0.7 * TOKEN_MULTIPLE


def test_a_core_each_but_no_crumbs(monkeypatch):
    monkeypatch.setattr(parallel, "num_threads", lambda: 8)
    cpu = torch.device("cpu")
    assert [default_micro_batches(cpu, sentences) for sentences in (4, 32, 48, 1_000)] == [1, 4, 6, 8]
    assert default_micro_batches(torch.device("cuda"), 1_000) == 1


def test_encoding_in_between_does_not_disturb_training(encoder):
    training_model = TrainingModel(encoder, Regression(), used(encoder))
    with training_model.whole() as whole:
        assert not whole.backbone.training
        one = whole.encode(SENTENCES)
        assert np.array_equal(one, whole.encode(SENTENCES))
    steps(training_model)
    with training_model.whole() as whole:
        assert not np.allclose(one, whole.encode(SENTENCES), atol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_trains(architecture, tmp_path):
    encoder = Encoder.load(str(make_model(tmp_path / architecture, architecture)), dtype="float32", device="cpu")
    training_model = TrainingModel(encoder, Regression(), used(encoder), shares=2)
    losses = steps(training_model, 24)
    assert sum(losses[-4:]) < sum(losses[:4])  # dropout makes each of them noisy
    with training_model.whole() as whole:
        whole.save(tmp_path / "saved")
        expected = whole.encode(SENTENCES)
    assert np.allclose(Encoder.load(str(tmp_path / "saved"), dtype="float32").encode(SENTENCES), expected, atol=1e-5)
    assert "sbert_lab" not in (tmp_path / "saved/config.json").read_text()


# ---------------------------------------------------------------- the two kinds of twin

FUSED = [name for name in ARCHITECTURES if name in fused_bert.ARCHITECTURES]
MANY = ["a man is playing the guitar", "food", "a cat " * 25, "the dog is eating " * 4, "a woman", "was on food in"]


def both_twins(
    monkeypatch: pytest.MonkeyPatch, folder: Path, architecture: str, pooling: str = "mean", **settings: float
) -> list[TrainingModel]:
    """The same encoder trained as written out, and as the module that it is."""
    model = str(make_model(folder / architecture, architecture, initializer_range=0.2, **settings))
    found = []
    for kind in (FusedReplica, AutogradReplica):
        monkeypatch.setattr(
            "training.trainer.training_model.supports_fused", lambda backbone, kind=kind: kind is FusedReplica
        )
        encoder = Encoder.load(model, pooling, dtype="float32", device="cpu")
        ids = {token for row in encoder.tokenize(MANY) for token in row}
        found.append(TrainingModel(encoder, Regression(), ids, seed=3, shares=2))
        assert type(found[-1].twin) is kind
    return found


def dropouts(architecture: str, hidden: float, attention: float) -> dict[str, float]:
    names = fused_bert.ARCHITECTURES[architecture]
    return {names.dropout: hidden, names.attention_dropout: attention}


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
@pytest.mark.parametrize("architecture", FUSED)
def test_written_out_the_gradients_are_those_of_the_module(architecture, pooling, tmp_path, monkeypatch):
    found = []
    for one in both_twins(monkeypatch, tmp_path, architecture, pooling, **dropouts(architecture, 0.0, 0.0)):
        ids = one.encoder.tokenize(MANY)
        loss = learn(one, [ids[:3], ids[3:]], torch.tensor([0.1, 0.9, 0.4]))
        found.append((loss, {name: weight.grad for name, weight in one.named_parameters()}))
    (loss, ours), (expected, theirs) = found
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert ours.keys() == theirs.keys()
    assert sum(gradient is not None for gradient in ours.values()) > 30
    for name, gradient in theirs.items():
        if gradient is None:  # BERT's pooler has no part in the vectors
            assert ours[name] is None, name
        else:
            assert torch.allclose(ours[name], gradient, atol=1e-5), name


@pytest.mark.parametrize("architecture", FUSED)
def test_written_out_there_is_dropout_where_the_module_has_it(architecture, tmp_path, monkeypatch):
    drawn: list[float] = []

    def counting(bits: torch.Tensor, p: float, dtype: torch.dtype) -> torch.Tensor:
        drawn.append(p)
        return kept(bits, p, dtype)

    for module in ("dropout", "fused_replica", "fused_layer"):
        monkeypatch.setattr(f"training.trainer.{module}.kept", counting)
    found = []
    for one in both_twins(monkeypatch, tmp_path, architecture, **dropouts(architecture, 0.25, 0.125)):
        one.twin.forward(one.twin.collate(one.encoder.tokenize(MANY), np.random.default_rng(0)))
        found.append(list(drawn))
        drawn.clear()
    ours, theirs = found
    assert ours == theirs
    assert set(ours) == {0.125, 0.25}


def test_a_step_leaves_nothing_behind_that_only_the_collector_would_find(encoder, monkeypatch):
    training_model, begun = TrainingModel(encoder, Regression(), used(encoder), shares=2), []
    forward = training_model.twin.forward

    def watched(share):
        part = forward(share)
        begun.append(weakref.ref(part.hidden))
        return part

    monkeypatch.setattr(training_model.twin, "forward", watched)
    gc.disable()
    try:
        learn(training_model, columns(encoder), GOLD)
        until = time.monotonic() + 10  # a worker lets go of its piece an instant after it is done
        while any(each() is not None for each in begun) and time.monotonic() < until:
            time.sleep(0.01)
        assert [each() for each in begun] == [None, None]
    finally:
        gc.enable()


def test_what_is_dropped_carries_no_gradient(tmp_path, monkeypatch):
    """With everything dropped but the residual's way the products learn nothing."""
    ours, _ = both_twins(monkeypatch, tmp_path, "bert", hidden_dropout_prob=0.999, attention_probs_dropout_prob=0.0)
    ids = ours.encoder.tokenize(MANY)
    learn(ours, [ids[:3], ids[3:]], torch.tensor([0.1, 0.9, 0.4]))
    dropped = dict(ours.backbone.named_parameters())["encoder.layer.0.output.dense.weight"].grad
    plain, _ = both_twins(monkeypatch, tmp_path, "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    learn(plain, [ids[:3], ids[3:]], torch.tensor([0.1, 0.9, 0.4]))
    whole = dict(plain.backbone.named_parameters())["encoder.layer.0.output.dense.weight"].grad
    assert (dropped == 0).float().mean() > 0.5 > (whole == 0).float().mean()


# ---------------------------------------------------------------- dropout


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


def test_dropout_draws_from_the_generator_that_is_named():
    x, dropout = torch.ones(64, 64), Dropout(0.3)
    before = torch.get_rng_state()
    with drawing_from(np.random.default_rng(1)):
        one = dropout(x)
    with drawing_from(np.random.default_rng(1)):
        assert torch.equal(one, dropout(x))
    assert torch.equal(before, torch.get_rng_state())


def test_no_dropout_when_encoding():
    x = torch.randn(5, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_attention_is_that_of_pytorch():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
    mask = torch.zeros(2, 1, 5, 5).masked_fill(torch.rand(2, 1, 1, 5) < 0.3, torch.finfo(torch.float32).min)
    ours, _ = attention(torch.nn.Module().eval(), q, k, v, mask, dropout=0.5)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(ours, theirs.transpose(1, 2), atol=1e-6)


# ---------------------------------------------------------------- LoRA


def test_lora_trains_little_and_merges(encoder):
    before = encoder.encode(SENTENCES)
    training_model = TrainingModel(encoder, Regression(), rank=4)
    trained = [name for name, weight in training_model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    with training_model.whole() as whole:
        assert np.allclose(whole.encode(SENTENCES), before, atol=1e-5)  # LoRA begins at zero
    steps(training_model)
    with training_model.whole() as whole:
        assert type(whole.backbone).__name__ == "BertModel"
        after = whole.encode(SENTENCES)
    with torch.no_grad():
        training_model.backbone.eval()
        encoder.backbone = training_model.backbone
        direct = torch.nn.functional.normalize(encoder.embed(encoder.tokenize(SENTENCES)), dim=1)
    assert np.allclose(direct.numpy(), after, atol=1e-5)
    assert not np.allclose(after, before, atol=1e-4)


def test_biases_and_norms_are_not_decayed(encoder):
    decayed, spared = TrainingModel(encoder, Regression()).groups(RunConfig("mnrl", weight_decay=0.01).weight_decay)
    assert decayed["weight_decay"] == 0.01
    assert spared["weight_decay"] == 0.0
    assert all(weight.ndim == 1 for weight in spared["params"])
