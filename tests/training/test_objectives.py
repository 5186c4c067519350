"""`training/objectives/`: values and gradients are those of sentence-transformers' losses."""

import math

import pytest
import torch
from torch import Tensor, nn

from training.errors import InputError
from training.objectives import OBJECTIVES
from training.objectives.pairs import (
    CONCATENATIONS,
    AnglE,
    Classification,
    Contrastive,
    CoSENT,
    Regression,
)
from training.objectives.ranking import (
    MarginMSE,
    MeanSquaredError,
    MultipleNegativesRanking,
    Triplet,
    false_negatives,
)
from training.similarities import DISTANCES
from training.trainer.config import CHOICES, RunConfig
from training.trainer.training_model import Loss, all_dims

losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
B = 7
D = 12
K = 3


def vectors(columns: int, seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(B, D, generator=random, requires_grad=True) for _ in range(columns)]


class Lookup(nn.Module):
    """In the place of sentence-transformers' model: column i holds the given vectors."""

    device = torch.device("cpu")

    def __init__(self, columns: list[Tensor]) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": torch.cat([self.columns[i] for i in features["column"]])}

    def get_embedding_dimension(self) -> int:
        return D


def theirs(loss: nn.Module, columns: list[Tensor], labels: Tensor | None) -> Tensor:
    """Their loss, or MatryoshkaLoss of it, of columns of vectors."""
    module = __import__(type(getattr(loss, "loss", loss)).__module__, fromlist=["embed_columns"])
    features = [{"column": torch.tensor([i])} for i in range(len(columns))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module,
            "embed_columns",
            lambda model, features: [model(dict(each))["sentence_embedding"] for each in features],
            raising=False,
        )
        return loss(features, labels)


def assert_same(
    ours: Tensor, other: Tensor, columns: list[Tensor], *weights: tuple[Tensor, Tensor]
) -> None:
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
    columns = vectors(2)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 1])
    ours = Classification(D, K, concatenation)
    parts = concatenation.split("+")
    other = losses.SoftmaxLoss(
        Lookup(columns),
        embedding_dimension=D,
        num_labels=K,
        concatenation_sent_rep="uv" in parts,
        concatenation_sent_difference="diff" in parts,
        concatenation_sent_multiplication="mul" in parts,
    )
    other.classifier.load_state_dict(ours.classifier.state_dict())
    weights = zip(ours.classifier.parameters(), other.classifier.parameters(), strict=True)
    assert_same(ours(columns, labels), theirs(other, columns, labels), columns, *weights)


def test_regression_and_mse_of_scores_are_their_cosine_similarity_loss():
    columns = vectors(2)
    gold = torch.linspace(0, 1, B)
    assert_same(
        Regression()(columns, gold),
        theirs(losses.CosineSimilarityLoss(Lookup(columns)), columns, gold),
        columns,
    )
    columns = vectors(2)
    other = theirs(losses.CosineSimilarityLoss(Lookup(columns)), columns, GOLD)
    assert_same(MeanSquaredError()(columns, GOLD), other, columns)


@pytest.mark.parametrize("metric", DISTANCES)
def test_triplet_is_their_triplet_loss(metric):
    columns = vectors(3)
    margin = 5.0
    theirs_metric = getattr(losses.TripletDistanceMetric, metric.upper())
    other = losses.TripletLoss(
        Lookup(columns), distance_metric=theirs_metric, triplet_margin=margin
    )
    assert_same(Triplet(metric, margin)(columns), theirs(other, columns, None), columns)


@pytest.mark.filterwarnings("ignore:The MultipleNegativesSymmetricRankingLoss is deprecated")
@pytest.mark.parametrize("columns", [2, 3], ids=["in-batch negatives", "hard negatives"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_mnrl_is_their_ranking_loss(columns, symmetric):
    given_vectors = vectors(columns)
    kind = (
        losses.MultipleNegativesSymmetricRankingLoss
        if symmetric
        else losses.MultipleNegativesRankingLoss
    )
    other = kind(Lookup(given_vectors), scale=20.0)
    different_texts = torch.arange(B * columns).view(B, columns)
    for texts in (None, different_texts):
        ours = MultipleNegativesRanking(20.0, symmetric)(given_vectors, texts)
        assert_same(ours, theirs(other, given_vectors, torch.empty(0)), given_vectors)


def test_equal_texts_of_a_batch_are_no_negatives():
    """Rows 0 and 1 have the same positive: neither is a negative of the other, both are of row 2."""
    anchors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    positives = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    texts = torch.tensor([[0, 1], [2, 1], [3, 4]])
    e = math.e
    from_anchors = -(math.log(e / (e + 1)) + math.log(1 / (1 + e)) + math.log(1 / (2 * e + 1))) / 3
    from_positives = (
        -(math.log(e / (e + e)) + math.log(1 / (1 + e)) + math.log(1 / (1 + e + 1))) / 3
    )
    assert MultipleNegativesRanking(1.0)([anchors, positives], texts).item() == pytest.approx(
        from_anchors
    )
    both = MultipleNegativesRanking(1.0, True)([anchors, positives], texts).item()
    assert both == pytest.approx((from_anchors + from_positives) / 2)


def test_texts_of_the_own_pair_are_false_negatives():
    # The anchor's own text, its positive's text, and the positives of its other rows; their
    # negatives stay.
    texts = torch.tensor([[0, 1, 2], [0, 3, 4], [5, 0, 1]])
    expected = [[0, 1, 1, 0, 0, 1], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert false_negatives(texts).int().tolist() == expected


def test_a_batch_of_equal_texts_has_nothing_to_learn():
    columns = vectors(2)
    loss = MultipleNegativesRanking()(columns, torch.zeros(B, 2, dtype=torch.int64))
    assert loss.item() == 0
    assert all(not gradient.any() for gradient in torch.autograd.grad(loss, columns))
    ones = torch.ones(B, D)
    assert MultipleNegativesRanking()([ones, ones]).item() == pytest.approx(math.log(B))


GOLD = torch.tensor([0.2, 0.9, 0.9, 0.0, 0.55, 0.2, 1.0])  # with ties


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize(("kind", "loss"), [(CoSENT, "CoSENTLoss"), (AnglE, "AnglELoss")])
@pytest.mark.parametrize("dimension", [D, 7], ids=["even", "odd"])
def test_cosent_and_angle_are_their_losses(kind, loss, scale, dimension):
    columns = [column[:, :dimension] for column in vectors(2)]
    other = getattr(losses, loss)(Lookup(columns), scale=scale)
    assert_same(kind(scale)(columns, GOLD), theirs(other, columns, GOLD), columns)
    assert kind(scale)(columns, torch.full((B,), 0.5)).item() == 0.0, "nothing to order"


@pytest.mark.parametrize("margin", [0.5, 1.2])
def test_contrastive_is_their_contrastive_loss(margin):
    columns = vectors(2)
    labels = torch.tensor([0, 1, 0, 0, 1, 1, 0])
    other = losses.ContrastiveLoss(Lookup(columns), margin=margin)
    assert_same(Contrastive(margin)(columns, labels), theirs(other, columns, labels), columns)


@pytest.mark.parametrize("columns", [1, 2])
def test_mse_of_vectors_is_their_mse_loss(columns):
    student = vectors(columns)
    teacher = torch.stack(vectors(columns, seed=1), dim=1).detach()
    other = losses.MSELoss(Lookup(student)).compute_loss_from_embeddings(
        student, list(teacher.unbind(1))
    )
    assert_same(MeanSquaredError()(student, teacher), other, student)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_margin_mse_is_their_margin_mse_loss(similarity):
    util = pytest.importorskip("sentence_transformers.util")
    function = {"dot": util.pairwise_dot_score, "cosine": util.pairwise_cos_sim}[similarity]
    columns = vectors(3)
    other = losses.MarginMSELoss(Lookup(columns), similarity_fct=function)
    assert_same(MarginMSE(similarity)(columns, GOLD), theirs(other, columns, GOLD), columns)


@pytest.mark.parametrize(
    ("ours", "name", "columns", "target"),
    [
        (
            MultipleNegativesRanking(),
            "MultipleNegativesRankingLoss",
            2,
            torch.arange(2 * B).view(B, 2),
        ),
        (CoSENT(), "CoSENTLoss", 2, GOLD),
        (Triplet(margin=5.0), "TripletLoss", 3, torch.empty(0)),
        (MarginMSE(), "MarginMSELoss", 3, GOLD),
        (
            MeanSquaredError(),
            "MSELoss",
            2,
            torch.randn(B, 2, D, generator=torch.Generator().manual_seed(3)),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_matryoshka_is_their_matryoshka_loss(ours, name, columns, target):
    dims = [D, 6, 3]
    given_vectors = vectors(columns)
    model = Lookup(given_vectors)
    other = theirs(
        losses.MatryoshkaLoss(model, getattr(losses, name)(model), dims), given_vectors, target
    )
    assert_same(Loss(ours, dims)(given_vectors, target), other, given_vectors)


def test_matryoshka_classifies_truncated_vectors_by_truncated_weights():
    columns = [column.detach() for column in vectors(2)]
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 1])
    whole = Classification(D, K)
    short = Classification(4, K)
    with torch.no_grad():
        short.classifier.weight.copy_(
            whole.classifier.weight.view(K, 3, D)[:, :, :4].reshape(K, 12)
        )
        short.classifier.bias.copy_(whole.classifier.bias)
    units = [[nn.functional.normalize(column[:, :d], dim=1) for column in columns] for d in (D, 4)]
    expected = whole(units[0], labels) + short(units[1], labels)
    assert Loss(whole, [4, D])(columns, labels).item() == pytest.approx(expected.item(), abs=1e-6)


def test_a_missing_target_is_an_error_and_not_zero():
    with pytest.raises(TypeError, match="target"):
        Regression()(vectors(2), None)


def test_matryoshka_trains_the_whole_vector_too():
    assert all_dims([4, 8], D) == [12, 8, 4]
    assert all_dims([], D) == []
    with pytest.raises(
        InputError, match="matryoshka_dims has 13, but the base's vectors have 12 dimensions"
    ):
        all_dims([13], D)


def test_the_table_builds_what_the_config_says():
    assert tuple(OBJECTIVES) == CHOICES["objective"]
    assert CHOICES["triplet_metric"] == DISTANCES
    assert set(CONCATENATIONS) == set(CHOICES["concatenation"])
    config = RunConfig(
        "mnrl", concatenation="mul", triplet_metric="cosine", triplet_margin=2, mnrl_symmetric=True
    )
    classification = OBJECTIVES["classification"].build(config, D, 4)
    assert classification.classifier.weight.shape == (4, D)
    assert OBJECTIVES["triplet"].build(config, D, 0).margin == 2
    assert OBJECTIVES["mnrl"].build(config, D, 0).symmetric
    config = RunConfig("angle", cosent_scale=5, contrastive_margin=1.5)
    assert {OBJECTIVES[name].build(config, D, 0).scale for name in ("cosent", "angle")} == {5}
    assert OBJECTIVES["contrastive"].build(config, D, 0).margin == 1.5


def test_distillation_compares_unit_vectors_of_models_whose_output_is():
    assert Loss([MeanSquaredError(), Regression()], normalizes=True).normalizes == [True, False]
    assert Loss(MeanSquaredError()).normalizes == [False]
    columns = [column.detach() for column in vectors(3)]
    cosine = MarginMSE("cosine")(columns, GOLD)
    assert Loss(MarginMSE(), normalizes=True)(columns, GOLD).item() == pytest.approx(cosine.item())
