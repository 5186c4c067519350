"""`results/decisions.py`: triplets by accuracy, inference labels by rank correlation, Wilson's interval."""

import numpy as np
import pytest
from scipy import stats

from sbert_app.services.results.decisions import score_labels
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.bootstrap import wilson_interval
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder

TRIPLETS = Dataset(
    "toy",
    (
        ["A man plays the guitar.", "The dog sleeps."],
        ["Someone is making music on a guitar.", "A dog is asleep."],
        ["Stocks fell on Monday.", "The minister resigned."],
    ),
)
NLI = Dataset(
    "toy",
    (
        ["A man plays the guitar."] * 3,
        ["A man makes music.", "A man sings too.", "Nobody plays anything."],
    ),
    labels=[0, 1, 2],
    label_names=("entailment", "neutral", "contradiction"),
)


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load("all-MiniLM-L6-v2", dtype="float32")


def test_the_accuracy_of_triplets_has_wilsons_interval(encoder):
    found = evaluate(encoder, TRIPLETS)
    assert (found["n"], found["ties"], found["accuracy"]["cosine"]) == (2, 0, 1.0)
    assert found["interval"] == wilson_interval(2, 2)._asdict()


def test_ties_of_triplets_are_counted(encoder):
    same = Dataset("toy", (TRIPLETS.columns[0], TRIPLETS.columns[1], TRIPLETS.columns[1]))
    found = evaluate(encoder, same)
    assert (found["ties"], found["accuracy"]["cosine"]) == (2, 0.0)


def test_two_labels_or_more_are_an_order_from_entailment_to_contradiction(encoder):
    found = score_labels(encoder, NLI)
    u, v = (encoder.encode(column) for column in NLI.columns)
    assert found.rho == pytest.approx(stats.spearmanr((u * v).sum(1), [1, 0, -1])[0])
    assert list(found.by_label) == ["entailment", "neutral", "contradiction"]
    binary = Dataset("mine", NLI.columns, labels=[1, 1, 0], label_names=("0", "1"))
    assert list(score_labels(encoder, binary).by_label) == ["1", "0"]


def test_other_labels_and_other_forms_are_refused(encoder):
    other = Dataset("mine", NLI.columns, labels=[0, 1, 0], label_names=("spam", "ham"))
    with pytest.raises(
        InputError, match=r"the labels of mine \(spam, ham\) do not say which pairs are matches"
    ):
        score_labels(encoder, other)
    with pytest.raises(InputError, match="needs triplets, or pairs with labels"):
        score_labels(encoder, Dataset("pairs", NLI.columns))


def test_the_wilson_interval_is_that_of_its_formula():
    """Wilson 1927: the proportions that a z-test at 5% does not reject."""
    n = 100
    p = 0.83
    z = 1.959964
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    margin = z / (1 + z**2 / n) * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    np.testing.assert_allclose(
        wilson_interval(83, 100)[:2], (centre - margin, centre + margin), atol=1e-6
    )
