"""What evaluation data has in common with training data: rows in either order, single sentences."""

from __future__ import annotations

import pytest

from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.overlap import overlap

TRAINING = Dataset("training", (["A cat sleeps.", "It rains."], ["A dog barks.", "A man sings."]))


def test_rows_are_equal_in_either_order_and_share_single_sentences():
    firsts = ["a dog  BARKS.", "A cat sleeps.", "It rains.", "It snows."]
    seconds = ["A cat sleeps.", "A man sings.", "Somebody else", "Nobody"]
    found = overlap(Dataset("dev", (firsts, seconds), scores=[5, 0, 0, 0]), [TRAINING])
    assert (found.rows, found.equal, found.shared) == (4, 1, 3)
    assert str(found) == "1 of 4 scored pairs of dev are in the training data, 3 share a sentence with it"


def test_a_pair_of_a_training_triplet_is_in_the_training_data():
    triplets = Dataset("triplets", (["a"], ["b"], ["c"]))
    assert overlap(Dataset("dev", (["c", "a"], ["a", "d"])), [TRAINING, triplets]).equal == 1
    assert overlap(triplets, [Dataset("pairs", (["a"], ["b"]))]).equal == 0


def test_nothing_in_common_is_said_too():
    found = overlap(Dataset("dev", (["x"], ["y"])), [TRAINING])
    assert str(found) == "none of the 1 pairs of dev share a sentence with the training data"


@pytest.mark.parametrize(("split", "equal", "shared"), [("dev", 7, 252), ("test", 12, 249)])
def test_the_sts_benchmark(split, equal, shared):
    found = overlap(load_data(f"stsb:{split}"), [load_data("stsb:train")])
    assert (found.equal, found.shared) == (equal, shared)
