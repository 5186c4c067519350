"""What evaluation data has in common with training data: rows in either order, single sentences."""

import re

import numpy as np
import pytest

from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.overlap import overlap
from training.models.model import default_encode

TRAINING = Dataset("training", (["A cat sleeps.", "It rains."], ["A dog barks.", "A man sings."]))


def test_rows_are_equal_in_either_order_share_sentences_or_nothing():
    firsts = ["a dog  BARKS.", "A cat sleeps.", "It rains.", "It snows."]
    seconds = ["A cat sleeps.", "A man sings.", "Somebody else", "Nobody"]
    found = overlap(Dataset("dev", (firsts, seconds), scores=[5, 0, 0, 0]), [TRAINING])
    assert (found.rows, found.equal, found.shared) == (4, 1, 3)
    assert (
        str(found)
        == "1 of 4 scored pairs of dev are in the training data, 3 share a sentence with it"
    )
    triplets = Dataset("triplets", (["a"], ["b"], ["c"]))
    assert overlap(Dataset("dev", (["c", "a"], ["a", "d"])), [TRAINING, triplets]).equal == 1
    assert overlap(triplets, [Dataset("pairs", (["a"], ["b"]))]).equal == 0
    found = overlap(Dataset("dev", (["x"], ["y"])), [TRAINING])
    assert str(found) == "none of the 1 pairs of dev share a sentence with the training data"


def vectors(sentences: list[str]) -> np.ndarray:
    """A direction for each sentence, articles and signs aside."""
    names = [re.sub(r"\b(a|the)\b|\W", "", text) for text in sentences]
    return np.array(
        [[name == each for each in dict.fromkeys(names)] for name in names], dtype=np.float32
    )


def test_a_row_is_nearly_known_if_both_sentences_are_near_one_row():
    known = Dataset("known", (["A cat sleeps.", "It rains."], ["Dogs bark.", "Men sing."]))
    near = [("The dogs bark!", "The cat sleeps"), ("it rains", "The men sing.")]
    others = [
        ("The cat sleeps", "men sing."),  # of two rows
        ("The cat sleeps", "Dogs run, bark."),  # one sentence alone
        ("a cat sleeps.", "dogs bark."),  # equal
        ("Completely", "different"),
    ]
    found = overlap(Dataset("dev", tuple(zip(*near, *others, strict=True))), [known], vectors)
    assert (found.equal, found.near) == (1, 2)
    assert (
        "1 of 6 pairs of dev are in the training data, 2 more nearly (cosines above 0.95 by all-MiniLM"
        in str(found)
    )
    triplets = Dataset("triplets", (["It rains"], ["A goat"], ["The men sing"]))
    assert overlap(Dataset("dev", (["men sing."], ["it rains."])), [triplets], vectors).near == 1


def test_nothing_is_encoded_where_no_words_are_shared():
    def refuse(sentences: list[str]) -> np.ndarray:
        raise AssertionError(sentences)

    found = overlap(
        Dataset("dev", (["x", "A cat sleeps."], ["y", "A dog barks."])), [TRAINING], refuse
    )
    assert (found.equal, found.near) == (1, 0)


def test_an_overlap_that_would_take_too_long_is_not_counted(monkeypatch):
    for bound in ("MOST_ROWS", "MOST_PAIRS"):
        with monkeypatch.context() as patch:
            patch.setattr(f"training.data.overlap.{bound}", 0)
            found = overlap(
                Dataset("dev", (["The cat sleeps."], ["The dog barks."])),
                [TRAINING, TRAINING],
                vectors,
            )
        assert found.near is None
        assert "nearly" not in str(found)


@pytest.mark.slow
def test_the_sts_benchmark():
    found = overlap(load_data("stsb:test"), [load_data("stsb:train")], default_encode())
    assert (found.equal, found.shared) == (12, 249)
    assert abs(found.near - 19) <= 1  # bfloat16 and float32 differ at the border
