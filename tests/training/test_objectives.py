"""Objectives: values and gradients are those of sentence-transformers' losses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from training.objectives import (
    CONCATENATIONS,
    METRICS,
    OBJECTIVES,
    Classification,
    MultipleNegativesRanking,
    Regression,
    Triplet,
    concatenate,
    width,
)
from training.trainer.config import CHOICES, RunConfig

losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
B, D, K = 7, 12, 3


def vectors(columns: int, seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(B, D, generator=random, requires_grad=True) for _ in range(columns)]


class Fixed(nn.Module):
    """In the place of sentence-transformers' model: each column's vectors as they were given."""

    device = torch.device("cpu")

    def __init__(self, columns: list[Tensor]) -> None:
        super().__init__()
        self.columns = columns


def theirs(loss: nn.Module, columns: list[Tensor], labels: Tensor | None) -> Tensor:
    """Their loss on given vectors: past the model, into what they compute from its output."""
    if hasattr(loss, "compute_loss_from_embeddings"):
        return loss.compute_loss_from_embeddings(columns, labels)
    module = __import__(type(loss).__module__, fromlist=["embed_columns"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "embed_columns", lambda model, features: model.columns)
        return loss([], labels)


def assert_same(ours: Tensor, other: Tensor, columns: list[Tensor], *weights: tuple[Tensor, Tensor]) -> None:
    assert torch.allclose(ours, other, rtol=1e-6, atol=1e-7)
    inputs = [*columns, *(weight for pair in weights for weight in pair)]
    mine = torch.autograd.grad(ours, inputs, retain_graph=True, allow_unused=True)
    their = torch.autograd.grad(other, inputs, allow_unused=True)
    for a, b in zip(mine[: len(columns)], their[: len(columns)], strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    for i in range(len(columns), len(inputs), 2):  # each pair is (our weight, their weight)
        assert torch.allclose(mine[i], their[i + 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("concatenation", CONCATENATIONS)
def test_classification_is_their_softmax_loss(concatenation):
    columns, labels = vectors(2), torch.tensor([0, 1, 2, 0, 1, 2, 1])
    ours = Classification(D, K, concatenation)
    parts = concatenation.split("+")
    other = losses.SoftmaxLoss(
        Fixed(columns),
        embedding_dimension=D,
        num_labels=K,
        concatenation_sent_rep="uv" in parts,
        concatenation_sent_difference="diff" in parts,
        concatenation_sent_multiplication="mul" in parts,
    )
    other.classifier.load_state_dict(ours.classifier.state_dict())
    weights = zip(ours.classifier.parameters(), other.classifier.parameters(), strict=True)
    assert_same(ours(columns, labels), theirs(other, columns, labels), columns, *weights)


def test_regression_is_their_cosine_similarity_loss():
    columns, gold = vectors(2), torch.linspace(0, 1, B)
    assert_same(
        Regression()(columns, gold), theirs(losses.CosineSimilarityLoss(Fixed(columns)), columns, gold), columns
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("margin", [1.0, 5.0])
def test_triplet_is_their_triplet_loss(metric, margin):
    columns = vectors(3)
    theirs_metric = getattr(losses.TripletDistanceMetric, metric.upper())
    other = losses.TripletLoss(Fixed(columns), distance_metric=theirs_metric, triplet_margin=margin)
    assert_same(Triplet(metric, margin)(columns), theirs(other, columns, None), columns)


@pytest.mark.filterwarnings("ignore:The MultipleNegativesSymmetricRankingLoss is deprecated")
@pytest.mark.parametrize("columns", [2, 3], ids=["in-batch negatives", "hard negatives"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_mnrl_is_their_ranking_loss(columns, symmetric):
    given_vectors = vectors(columns)
    kind = losses.MultipleNegativesSymmetricRankingLoss if symmetric else losses.MultipleNegativesRankingLoss
    other = kind(Fixed(given_vectors), scale=20.0)
    ours = MultipleNegativesRanking(20.0, symmetric)(given_vectors)
    assert_same(ours, theirs(other, given_vectors, torch.empty(0)), given_vectors)


def test_concatenations_by_hand():
    u, v = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    assert concatenate(u, v, "uv+diff+mul").tolist() == [[1, 2, 3, -1, 2, 3, 3, -2]]
    assert concatenate(u, v, "diff").tolist() == [[2, 3]]


@pytest.mark.parametrize("concatenation", CONCATENATIONS)
def test_width_is_the_width(concatenation):
    u, v = torch.zeros(2, 5), torch.zeros(2, 5)
    assert concatenate(u, v, concatenation).shape == (2, 5 * width(concatenation))


def test_values_by_hand():
    same, other = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert Regression()([same, other], torch.tensor([0.5])).item() == pytest.approx(0.25)
    assert Triplet()([same, same, other]).item() == 0.0  # the negative is further by more than the margin
    assert Triplet(margin=5.0)([same, same, other]).item() == pytest.approx(5 - math.sqrt(13), abs=1e-5)
    flat = Classification(2, 4)
    nn.init.zeros_(flat.classifier.weight)
    nn.init.zeros_(flat.classifier.bias)
    assert flat([same, other], torch.tensor([1])).item() == pytest.approx(math.log(4))


def test_mnrl_of_identical_vectors_is_a_uniform_guess():
    ones = torch.ones(B, D)
    assert MultipleNegativesRanking()([ones, ones]).item() == pytest.approx(math.log(B))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.1, 10))
def test_objectives_of_cosines_do_not_see_lengths(seed, factor):
    u, v = (column.detach() for column in vectors(2, seed))
    gold = torch.rand(B)
    assert torch.allclose(Regression()([u, v], gold), Regression()([u * factor, v], gold), atol=1e-5)
    rank = MultipleNegativesRanking()
    assert torch.allclose(rank([u, v]), rank([u, v * factor]), atol=1e-4)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_the_order_of_the_rows_does_not_matter(seed):
    columns = [column.detach() for column in vectors(3, seed)]
    order = torch.randperm(B)
    for objective in (Triplet(), MultipleNegativesRanking(symmetric=True)):
        assert torch.allclose(objective(columns), objective([column[order] for column in columns]), atol=1e-5)


def test_a_missing_target_is_not_taken_for_zero():
    with pytest.raises(TypeError, match="target"):
        Regression()(vectors(2), None)


def test_the_table_builds_what_the_config_says():
    assert tuple(OBJECTIVES) == CHOICES["objective"]
    assert tuple(METRICS) == CHOICES["triplet_metric"]
    assert set(CONCATENATIONS) == set(CHOICES["concatenation"])
    config = RunConfig("mnrl", concatenation="mul", triplet_metric="cosine", triplet_margin=2, mnrl_symmetric=True)
    classification = OBJECTIVES["classification"].build(config, D, 4)
    assert classification.classifier.weight.shape == (4, D)
    assert OBJECTIVES["triplet"].build(config, D, 0).margin == 2
    assert OBJECTIVES["mnrl"].build(config, D, 0).symmetric
