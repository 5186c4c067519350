"""TrainingModel: a step's gradients equal plain autograd on the module, whatever makes the step cheaper."""

import copy
import weakref
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import ARCHITECTURES, WORDS, make_model
from torch import Tensor, nn

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.folder import ModelFormat
from training.models.model import VectorModel, open_model, required
from training.models.modules import Dense, EncoderParts, LayerNorm
from training.models.random_weights import PADDING_TOKEN
from training.models.word_networks import WordBackbone
from training.objectives.pairs import Classification, Regression
from training.objectives.ranking import MultipleNegativesRanking
from training.trainer.replica import Dropout
from training.trainer.training_model import TrainingModel, default_micro_batches, split_by_length

SENTENCES = [
    "A man plays a guitar.",
    "Someone is cooking.",
    "A dog runs in the deep snow.",
    "Two cats sleep.",
]
UNEQUAL = [
    "a man is playing the guitar",
    "food",
    "a cat " * 20,
    "the dog is eating " * 4,
    "a woman",
    "was on food in",
]
GOLD = torch.tensor([0.2, 0.9])
# Names of the word embeddings.
TABLES = ("word_embeddings", "tok_embeddings", "shared", "embed_tokens", "emb_layer")


def load(pooling: str = "mean") -> Encoder:
    return Encoder.load("scratch:2x32", pooling, dtype="float32", device="cpu", seed=1)


@pytest.fixture
def encoder() -> Encoder:
    return load()


def columns(encoder: Encoder, sentences: list[str] = SENTENCES) -> list[list[list[int]]]:
    """Two columns of token ids."""
    ids = encoder.tokenize(sentences)
    return [ids[: len(ids) // 2], ids[len(ids) // 2 :]]


def used(encoder: Encoder, sentences: list[str] = SENTENCES) -> list[int]:
    return sorted({token for row in encoder.tokenize(sentences) for token in row})


def without_dropout(model: TrainingModel) -> TrainingModel:
    """Set every dropout of the replica to 0."""
    for module in model.replica.module.modules():
        for name, value in vars(module).items():
            # The rate of attention is an attribute of its module.
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
        if isinstance(module, Dropout):
            module.p = 0.0
    return model


def forward_backward(
    model: TrainingModel, ids: list[list[list[int]]], target: Tensor, step: int = 0
) -> Tensor:
    """The loss of a step, with the gradients set."""
    loss, _ = model.forward_backward(model.collate(ids, target, step))
    return loss


def train_steps(model: TrainingModel, count: int = 3) -> list[float]:
    """The losses of a few steps of Adam on two pairs."""
    adam = torch.optim.AdamW(model.parameter_groups(0.0), lr=1e-3, fused=True)
    losses = []
    for step in range(count):
        losses.append(forward_backward(model, columns(model.encoder), GOLD, step).item())
        adam.step()
    return losses


def evaluation_loss(encoder: Encoder) -> float:
    """The loss of regression without dropout."""
    vectors = torch.from_numpy(encoder.encode(SENTENCES))
    return Regression()(vectors.chunk(2), GOLD).item()


def expected_gradients(
    encoder: Encoder, objective: nn.Module, sentences: list[str], target: Tensor
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Loss and gradients by plain autograd in float32: `Encoder.embed`, the objective, backward."""
    loss = objective(encoder.embed(encoder.tokenize(sentences)).chunk(2), target)
    loss.backward()
    return loss, {name: weight.grad for name, weight in encoder.backbone.named_parameters()}


def assert_gradients_equal(
    model: TrainingModel, expected: dict[str, Tensor | None], atol: float
) -> None:
    compared = 0
    for name, weight in model.backbone.named_parameters():
        gradient = expected[name]
        if name.rpartition(".weight")[0].endswith(TABLES):
            assert gradient is not None
            assert torch.allclose(
                model.embeddings.weight.grad, gradient[model.embeddings.used], atol=atol
            )
        elif gradient is None:  # BERT's pooler is not part of the sentence vector
            assert weight.grad is None, name
        else:
            assert torch.allclose(weight.grad, gradient, atol=atol), name
            compared += 1
    assert compared > 12


def dense_model(folder: Path) -> str:
    """A transformer, its pooling and a Dense layer with Tanh, then LayerNorm and Normalize."""
    encoder = Encoder.load(
        str(make_model(folder / "plain", initializer_range=0.2)), dtype="float32", device="cpu"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = nn.Sequential(Dense(32, 24), LayerNorm(24))
    layout = replace(encoder.model_format, normalizes=True)
    parts = EncoderParts(encoder.backbone, encoder.tokenizer, layout, "", head)
    Encoder("", parts, encoder.dtype).save(folder / "dense")
    return str(folder / "dense")


CASES = [
    *product(["bert"], ["mean", "max", "cls"], [1, 3]),
    *product([*ARCHITECTURES][1:], ["mean"], [2]),
    *product(["dense"], ["mean"], [1, 2]),
]


@pytest.mark.parametrize(("architecture", "pooling", "num_micro_batches"), CASES)
def test_gradients_equal_plain_autograd(architecture, pooling, num_micro_batches, tmp_path):
    if architecture == "dense":
        folder = dense_model(tmp_path)
    else:
        folder = str(make_model(tmp_path / architecture, architecture, initializer_range=0.2))
    plain, encoder = (
        Encoder.load(folder, pooling, dtype="float32", device="cpu") for _ in range(2)
    )
    objective = Classification(encoder.dimension, 3)
    target = torch.tensor([0, 2, 1])
    model = TrainingModel(
        encoder,
        copy.deepcopy(objective),
        used(encoder, UNEQUAL),
        num_micro_batches=num_micro_batches,
    )
    expected_loss, expected = expected_gradients(plain, objective, UNEQUAL, target)
    loss, norm = without_dropout(model).forward_backward(
        model.collate(columns(encoder, UNEQUAL), target, 0)
    )
    assert loss.item() == pytest.approx(expected_loss.item(), abs=1e-6)
    assert_gradients_equal(model, expected, atol=1e-5)
    for name, weight in plain.head.named_parameters():
        assert torch.allclose(model.head.get_parameter(name).grad, weight.grad, atol=1e-6), name
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert norm.item() == pytest.approx(torch.nn.utils.get_total_norm(gradients).item(), rel=1e-5)
    assert torch.allclose(
        model.objective.classifier.weight.grad, objective.classifier.weight.grad, atol=1e-6
    )


def test_modules_after_the_pooling_are_saved_as_trained_and_kept_by_lora(tmp_path):
    for rank in (0, 4):
        encoder = Encoder.load(dense_model(tmp_path / str(rank)), dtype="float32", device="cpu")
        before = copy.deepcopy(encoder.head.state_dict())
        model = TrainingModel(encoder, Regression(), used(encoder), rank=rank)
        train_steps(model)
        with model.export_encoder() as exported:
            exported.save(tmp_path / f"saved{rank}")
            expected = exported.encode(SENTENCES)
        again = Encoder.load(str(tmp_path / f"saved{rank}"), dtype="float32", device="cpu")
        assert np.allclose(again.encode(SENTENCES), expected, atol=1e-5)
        is_same = [
            torch.equal(value, before[name]) for name, value in again.head.state_dict().items()
        ]
        assert all(is_same) if rank else not any(is_same)


@pytest.mark.parametrize("kind", ["frozen", "updated"])
def test_word_vectors_and_lstms_are_trained(tmp_path, kind):
    plain, encoder = (word_model(kind) for _ in range(2))
    model = TrainingModel(encoder, Regression(), used(encoder, UNEQUAL), num_micro_batches=2)
    expected_loss, expected = expected_gradients(
        plain, Regression(), UNEQUAL, torch.tensor([0.2, 0.9, 0.4])
    )
    loss = forward_backward(model, columns(encoder, UNEQUAL), torch.tensor([0.2, 0.9, 0.4]))
    assert loss.item() == pytest.approx(expected_loss.item(), abs=1e-6)
    table = model.embeddings.weight.grad
    gradient = expected["words.emb_layer.weight"]
    if kind == "frozen":
        assert table is None
        assert gradient is None
    else:
        assert torch.allclose(table, gradient[used(encoder, UNEQUAL)], atol=1e-6)
    for name, weight in model.backbone.named_parameters():
        if not name.startswith("words"):
            assert torch.allclose(weight.grad, expected[name], atol=1e-6), name
    adam = torch.optim.AdamW(model.parameter_groups(0.0), lr=1e-2, fused=True)
    adam.step()
    with model.export_encoder() as exported:
        exported.save(tmp_path / "saved")
        after = exported.encode(UNEQUAL)
    assert not np.allclose(after, plain.encode(UNEQUAL), atol=1e-4)
    again = required(open_model(tmp_path / "saved", dtype="float32"), VectorModel)
    assert np.allclose(again.encode(UNEQUAL), after, atol=1e-6)


def word_model(kind: str) -> Encoder:
    """Word vectors with an LSTM as in InferSent."""
    from sentence_transformers.sentence_transformer.modules import LSTM, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    draw = torch.Generator().manual_seed(0)
    table = torch.cat([torch.zeros(1, 12), torch.randn(len(WORDS), 12, generator=draw)])
    tokenizer = WhitespaceTokenizer([PADDING_TOKEN, *WORDS], stop_words=[])
    torch.manual_seed(0)
    backbone = WordBackbone(
        WordEmbeddings(tokenizer, table, update_embeddings=kind == "updated"), LSTM(12, 6)
    )
    parts = EncoderParts(
        backbone, tokenizer, ModelFormat(pooling="max", max_length=100), "", nn.Sequential()
    )
    return Encoder("words", parts, torch.float32).eval()


def test_lora_is_refused_for_word_vectors():
    with pytest.raises(InputError, match="lora_rank 0"):
        TrainingModel(word_model("frozen"), Regression(), rank=4)


def test_bfloat16_replicas_give_gradients_close_to_those_of_float32(encoder):
    plain = load()
    encoder.dtype = torch.bfloat16
    model = without_dropout(
        TrainingModel(encoder, Regression(), used(encoder), num_micro_batches=2)
    )
    _, expected = expected_gradients(plain, Regression(), SENTENCES, GOLD)
    forward_backward(model, columns(encoder), GOLD)
    for name, weight in model.backbone.named_parameters():
        if weight.grad is not None:
            assert weight.dtype == weight.grad.dtype == torch.float32
            similarity = nn.functional.cosine_similarity(
                weight.grad.flatten(), expected[name].flatten(), dim=0
            )
            assert similarity > 0.98 or expected[name].norm() < 1e-3, name


def test_a_bfloat16_replica_follows_the_master_weights(encoder):
    encoder.dtype = torch.bfloat16
    model = without_dropout(TrainingModel(encoder, Regression(), used(encoder)))
    before = forward_backward(model, columns(encoder), GOLD)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(0)
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=draw), alpha=0.1)
    assert forward_backward(model, columns(encoder), GOLD) != pytest.approx(before.item(), abs=1e-3)
    for weight, replica in zip(model.replica.weights, model.replica.copies, strict=True):
        assert torch.equal(weight.bfloat16(), replica)


def test_gradients_of_a_step_do_not_depend_on_the_step_before(encoder):
    model = without_dropout(TrainingModel(encoder, Regression(), used(encoder)))
    ids = encoder.tokenize(SENTENCES)
    forward_backward(model, [ids[2:3], ids[3:]], GOLD[1:])
    expected = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    forward_backward(model, [ids[:1], ids[1:2]], GOLD[:1])
    forward_backward(model, [ids[2:3], ids[3:]], GOLD[1:])
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            assert torch.equal(weight.grad, expected[name]), name
    touched = model.embeddings.weight.grad.abs().sum(dim=1) > 0
    assert {
        token for token, is_touched in zip(used(encoder), touched, strict=True) if is_touched
    } == {token for row in ids[2:] for token in row}


def test_dropout_is_a_function_of_seed_step_and_micro_batch(encoder):
    ids = encoder.tokenize(SENTENCES[:1])[0]
    same = [[ids, ids], [ids, ids]]  # both micro-batches hold the same sentences

    def vectors(seed: int, step: int) -> list[Tensor]:
        model = TrainingModel(load(), Regression(), used(encoder), seed=seed, num_micro_batches=2)
        return [
            model.replica.forward(each).vectors
            for each in model.collate(same, GOLD, step).micro_batches
        ]

    first, second = vectors(seed=5, step=7)
    assert all(map(torch.equal, (first, second), vectors(seed=5, step=7)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, vectors(seed=5, step=8)[0])
    assert not torch.equal(first, vectors(seed=6, step=7)[0])


@pytest.mark.parametrize("rank", [0, 4])
def test_micro_batches_in_parallel_threads_repeat_exactly(rank):
    def losses(seed: int) -> list[float]:
        torch.manual_seed(0)  # of the random initial weights of LoRA
        encoder = load()
        return train_steps(
            TrainingModel(encoder, Regression(), used(encoder), seed, rank, num_micro_batches=3), 4
        )

    first = losses(5)
    assert all(losses(5) == first for _ in range(2))
    assert losses(6) != first


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200), st.integers(1, 12))
def test_micro_batches_hold_every_row_once_sorted_by_length(lengths, parts):
    groups = split_by_length(lengths, parts)
    assert 1 <= len(groups) <= parts
    rows = [row for group in groups for row in group]
    assert sorted(rows) == list(range(len(lengths)))
    assert all(lengths[a] >= lengths[b] for a, b in pairwise(rows))


def test_one_micro_batch_per_core_but_none_of_a_few_sentences(monkeypatch):
    monkeypatch.setattr("training.trainer.training_model.num_threads", lambda: 8)
    cpu = torch.device("cpu")
    assert [default_micro_batches(cpu, sentences) for sentences in (4, 32, 48, 1_000)] == [
        1,
        4,
        6,
        8,
    ]
    assert default_micro_batches(torch.device("cuda"), 1_000) == 1


def test_training_the_embeddings_in_use_equals_training_all(encoder):
    compact = TrainingModel(load(), Regression(), used(encoder))
    whole = TrainingModel(load(), Regression())
    assert train_steps(compact) == pytest.approx(train_steps(whole), abs=1e-6)
    with compact.export_encoder() as one, whole.export_encoder() as two:
        tables = [each.backbone.get_input_embeddings().weight for each in (one, two)]
        assert torch.allclose(*tables, atol=1e-6)


def test_only_the_embeddings_in_use_are_changed(encoder):
    before = encoder.backbone.get_input_embeddings().weight.detach().clone()
    model = TrainingModel(encoder, Regression(), used(encoder))
    train_steps(model)
    with model.export_encoder() as exported:
        changed = (
            (exported.backbone.get_input_embeddings().weight != before)
            .any(dim=1)
            .nonzero()
            .flatten()
        )
    assert changed.tolist() == used(encoder)


def test_encoding_between_steps_does_not_change_training():
    def losses(encodes: bool) -> list[float]:
        model = TrainingModel(encoder := load(), Regression(), used(encoder), num_micro_batches=2)
        if encodes:
            with model.export_encoder() as exported:
                exported.encode(SENTENCES)
        return train_steps(model)

    assert losses(encodes=True) == losses(encodes=False)


@pytest.mark.parametrize(
    ("architecture", "rank"),
    [("bert", 0), ("modernbert", 4), ("t5", 0), ("t5", 4), ("qwen3", 0), ("gemma3", 4)],
)
def test_an_architecture_trains_and_is_saved(architecture, rank, tmp_path):
    encoder = Encoder.load(
        str(make_model(tmp_path / architecture, architecture)), dtype="float32", device="cpu"
    )
    before = evaluation_loss(encoder)
    model = TrainingModel(encoder, Regression(), used(encoder), rank=rank, num_micro_batches=2)
    train_steps(model, 24)
    with model.export_encoder() as exported:
        assert evaluation_loss(exported) < before
        exported.save(tmp_path / "saved")
        expected = exported.encode(SENTENCES)
    assert np.allclose(
        Encoder.load(str(tmp_path / "saved"), dtype="float32").encode(SENTENCES),
        expected,
        atol=1e-5,
    )
    assert "sbert_lab" not in Path(tmp_path / "saved/config.json").read_text()


def test_lora_trains_adapters_only_and_is_merged_on_export(encoder):
    before = encoder.encode(SENTENCES)
    model = TrainingModel(encoder, Regression(), rank=4)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    with model.export_encoder() as exported:
        # The product of the adapters starts at zero.
        assert np.allclose(exported.encode(SENTENCES), before, atol=1e-5)
    train_steps(model)
    with model.export_encoder() as exported:
        assert type(exported.backbone).__name__ == "BertModel"
        after = exported.encode(SENTENCES)
    with torch.no_grad():
        model.backbone.eval()
        encoder.backbone = model.backbone
        unmerged = nn.functional.normalize(encoder.embed(encoder.tokenize(SENTENCES)), dim=1)
    assert np.allclose(unmerged.numpy(), after, atol=1e-5)
    assert not np.allclose(after, before, atol=1e-4)


def test_weight_decay_leaves_out_biases_and_norms(encoder):
    model = TrainingModel(encoder, Regression())
    decayed, spared = model.parameter_groups(0.01)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    assert all(weight.ndim == 1 for weight in spared["params"])
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    assert len(decayed["params"]) + len(spared["params"]) == len(trained)


def gradients(model: TrainingModel) -> dict[str, Tensor]:
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


MANY = [
    f"{'a man and ' * (row % 5)}the {word} number {row}"
    for row, word in enumerate(["cat", "dog"] * 16)
]


@pytest.mark.parametrize("options", [{}, {"mini_batch_size": 3}])
def test_accumulated_gradients_are_the_mean_of_those_of_the_batches(options):
    encoder = load()
    objective = Classification(32, 3)
    model = without_dropout(TrainingModel(encoder, objective, used(encoder, MANY), **options))
    ids = columns(encoder, MANY)
    halves = [
        [[column[row] for row in rows] for column in ids] for rows in (range(8), range(8, 16))
    ]
    batches = [
        model.collate(half, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]), step)
        for step, half in enumerate(halves)
    ]
    each = []
    for batch in batches:
        loss, _ = model.forward_backward(batch)
        each.append((loss.item(), gradients(model)))
    losses, norm = model.forward_backward(*batches)
    assert losses.tolist() == pytest.approx([loss for loss, _ in each], rel=1e-6)
    found = gradients(model)
    for name, gradient in found.items():
        torch.testing.assert_close(
            gradient, (each[0][1][name] + each[1][1][name]) / 2, atol=1e-6, rtol=1e-4
        )
    assert norm.item() == pytest.approx(
        torch.linalg.vector_norm(torch.stack([g.norm() for g in found.values()])).item()
    )


def test_max_tokens_limits_the_tokens_that_are_computed_at_a_time(encoder):
    for num_micro_batches in (1, 2):
        model = TrainingModel(
            encoder, Regression(), num_micro_batches=num_micro_batches, max_tokens=64
        )
        batch = model.collate(columns(encoder, MANY), None, 0)
        sizes = [each.rows.numel() for each in batch.micro_batches]
        assert max(sizes) <= 64 // num_micro_batches < sum(sizes)
        assert sorted(batch.order.tolist()) == list(range(sum(batch.sizes)))
    whole = TrainingModel(encoder, Regression(), num_micro_batches=2, max_tokens=10_000)
    # Every core has work.
    assert len(whole.collate(columns(encoder, MANY), None, 0).micro_batches) == 2


@pytest.mark.parametrize(
    ("options", "num_micro_batches", "rank"),
    [
        ({"mini_batch_size": 3}, 2, 0),
        ({"mini_batch_size": 5}, 1, 4),
        ({"max_tokens": 64}, 2, 0),
    ],
)
def test_gradients_of_mini_batches_are_those_of_the_whole_batch(options, num_micro_batches, rank):
    def step(**options) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        torch.manual_seed(0)  # of the random initial weights of LoRA
        encoder = load()
        objective = MultipleNegativesRanking()
        model = without_dropout(
            TrainingModel(encoder, objective, used(encoder, MANY), rank=rank, **options)
        )
        with torch.no_grad():
            for name, weight in model.named_parameters():
                # Zero at first, which would leave the other factor without a gradient.
                if "lora_B" in name:
                    weight.normal_(std=0.05)
        for number in range(2):  # the second replaces the gradients of the first
            loss, norm = model.forward_backward(model.collate(columns(encoder, MANY), None, number))
        return loss, norm, gradients(model)

    loss, norm, expected = step()
    cached_loss, cached_norm, found = step(**options, num_micro_batches=num_micro_batches)
    assert cached_loss.item() == pytest.approx(loss.item(), rel=1e-6)
    assert cached_norm.item() == pytest.approx(norm.item(), rel=1e-5)
    assert found.keys() == expected.keys()
    assert len(found) > 8
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-5), name


def test_mini_batches_repeat_their_dropout_in_the_backward_pass():
    """The same four micro-batches, at once and one after another: the same bits are dropped."""

    def step(**options) -> tuple[Tensor, dict[str, Tensor], int]:
        encoder = load()
        model = TrainingModel(
            encoder, MultipleNegativesRanking(), used(encoder, MANY), seed=3, **options
        )
        batch = model.collate(columns(encoder, MANY), None, 7)
        loss, _ = model.forward_backward(batch)
        return loss, gradients(model), len(batch.micro_batches)

    loss, expected, parts = step(num_micro_batches=4)
    cached_loss, found, rounds = step(num_micro_batches=1, mini_batch_size=4)
    assert parts == rounds == 4
    assert cached_loss.item() == loss.item()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-6), name


def test_only_the_graphs_of_a_mini_batch_are_in_memory(encoder, monkeypatch):
    model = TrainingModel(
        encoder, MultipleNegativesRanking(), used(encoder, MANY), mini_batch_size=2
    )
    graphs = []
    most = 0
    forward = model.replica.forward

    def recorded(batch):
        nonlocal most
        output = forward(batch)
        if output.vectors.requires_grad:
            graphs.append(weakref.ref(output.vectors))
        most = max(most, sum(graph() is not None for graph in graphs))
        return output

    monkeypatch.setattr(model.replica, "forward", recorded)
    batch = model.collate(columns(encoder, MANY), None, 0)
    model.forward_backward(batch)
    assert len(graphs) == len(batch.micro_batches) >= 7
    assert most == 1
