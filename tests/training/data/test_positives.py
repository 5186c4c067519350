"""`data/transforms.py`: no objective takes a pair that people judged different for a positive."""

import pytest

from training.catalogue import PAIRS
from training.data.dataset import Dataset
from training.data.transforms import transform_for
from training.errors import InputError
from training.objectives import OBJECTIVES

# Those that learn from pairs as they are.
MADE_OF_SENTENCES = ("", "sentences_twice", "distinct_sentences", "without_target")
TAKE_POSITIVES = [
    name
    for name, objective in OBJECTIVES.items()
    if getattr(objective.rows.of.get(PAIRS), "__name__", "") not in MADE_OF_SENTENCES
]
SAME = [
    (f"a man plays the guitar in room {n}", f"someone makes music in room {n}") for n in range(6)
]
OTHER = [
    (f"a man plays the guitar in room {n}", f"prices rose by {n} percent today") for n in range(6)
]


def judged(name, yes, no):
    rows = [{"left": one, "right": other, name: yes} for one, other in SAME]
    return [*rows, *({"left": one, "right": other, name: no} for one, other in OTHER)]


def test_there_are_objectives_that_take_positives():
    assert {"mnrl", "triplet"} <= set(TAKE_POSITIVES)


@pytest.mark.parametrize("name", TAKE_POSITIVES)
@pytest.mark.parametrize(
    ("column", "yes", "no"),
    [
        ("similar", "yes", "no"),
        ("answer", "accept", "reject"),
        ("human_rating", 5, 0),
        ("ergebnis", "ja", "nein"),
    ],
)
def test_pairs_judged_different_are_no_positives(name, column, yes, no):
    data = Dataset.from_list(judged(column, yes, no))
    rows = transform_for(data, OBJECTIVES[name].rows, name)
    firsts, seconds, *_ = rows.columns
    labels = rows.labels or ([1] * len(rows) if rows.scores is None else rows.scores)
    positives = {
        pair for pair, label in zip(zip(firsts, seconds, strict=True), labels, strict=True) if label
    }
    assert positives
    assert positives.isdisjoint(OTHER)


@pytest.mark.parametrize("name", TAKE_POSITIVES)
def test_training_waits_while_a_column_may_be_an_unread_judgement(name):
    data = Dataset.from_list(judged("urteil", "passt genau", "passt gar nicht"))
    assert data.kind == PAIRS
    with pytest.raises(
        InputError, match=r"may one of these columns say which pairs belong together. urteil"
    ):
        transform_for(data, OBJECTIVES[name].rows, name)
    said = Dataset.from_list(
        judged("urteil", "passt genau", "passt gar nicht"), columns="left,right,-"
    )
    assert len(transform_for(said, OBJECTIVES[name].rows, name))
