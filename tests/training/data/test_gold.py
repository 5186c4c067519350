"""Columns of scores and labels: how their cells are read, and how else the user can say that they are."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.catalogue import LABELLED, NLI_LABELS, SCORED
from training.data.dataset import Dataset, parse_dataset
from training.data.gold import GoldColumn, scale_of
from training.data.transforms import match_labels
from training.errors import InputError


def scored(
    cells: list,
    pair: tuple[str, str] = ("sentence1", "sentence2"),
    target: str = "score",
    **read_as: str,
) -> Dataset:
    n = len(cells)
    return parse_dataset("x", {pair[0]: ["a"] * n, pair[1]: ["b"] * n, target: cells}, **read_as)


def labelled(cells: list) -> Dataset:
    return scored(cells, target="label")


@pytest.mark.parametrize(
    ("scores", "gold", "note"),
    [
        ([0, 5, 2.5], [0, 5, 2.5], ""),
        ([-1, 0, 1], [0, 2.5, 5], "read as: scores from -1 to 1 stretched to 0–5"),
        (["-1", "0.5", "1"], [0, 3.75, 5], "read as: scores from -1 to 1 stretched to 0–5"),
        ([10, 0], [5, 0], "read as: scores from 0 to 10 stretched to 0–5"),
        (
            [1, 4, 7],
            [0, 2.5, 5],
            "read as: scores from 1 to 7 stretched to 0–5; ?scale=0-10 reads them otherwise",
        ),
        ([1, 5], [1, 5], "read as: scores from 0 to 5; ?scale=1-5 reads them otherwise"),
        (
            ["85%", "7.5 %", "0%"],
            [4.25, 0.375, 0],
            "read as: shares as scores from 0 to 100 stretched to 0–5",
        ),
        (["4/5", "2.5 / 5", "0/5"], [4, 2.5, 0], "read as: shares as scores from 0 to 5"),
        (["4 of 5", "2.5 out of 5"], [4, 2.5], "read as: shares as scores from 0 to 5"),
        (["4.5", "N/A", "NA", "<NA>", "0"], [4.5, 0], ""),
        (["−1", "0", "1"], [0, 2.5, 5], "read as: scores from -1 to 1 stretched to 0–5"),
        (
            ["1/10", "10/10", ""],
            [0.5, 5],
            "read as: shares as scores from 0 to 10 stretched to 0–5",
        ),
    ],
)
def test_scores_become_gold_scores_on_the_scale_that_they_fit(scores, gold, note):
    data = scored(scores)
    assert (data.scores, data.notes[-1] if data.notes and "read as" in data.notes[-1] else "") == (
        gold,
        note,
    )


def test_a_named_scale_and_named_labels_come_before_the_evidence():
    assert scored([0, 1, 2], scale="0-2").scores == [0, 2.5, 5]
    assert scored([1, 5], scale="1-5").scores == [0, 5]
    assert scored([-3, 3], scale="-3..3").scores == [0, 5]
    assert scored([1, 4, 2.5], scale="4-1").scores == [5, 0, 2.5], "1 is most similar"
    assert scored(["low", "high", "?"], labels="low:0,high:1").label_names == ("0", "1")
    assert scored(["low", "mid", "high"], labels="low:0,mid:2.5,high:5").scores == [0, 2.5, 5]
    with pytest.raises(InputError, match=r"row 2, column score: .7. is not in 1 to 5"):
        scored([1, 7], scale="1-5")
    for read_as in ({"scale": "5-5"}, {"scale": "often"}, {"labels": "high"}):
        with pytest.raises(InputError, match=r"is no scale|names no labels"):
            scored([1, 5], **read_as)


def test_labels_that_all_have_one_value_need_a_scale():
    with pytest.raises(InputError, match="all labels have the value 200; name the scale"):
        scored(["same", "same"], labels="same:200")
    assert scored(["same", "same"], labels="same:200", scale="0-400").scores == [2.5, 2.5]


@pytest.mark.parametrize(
    "cells",
    [
        ["85%", "4"],
        ["4/5", "9/10"],
        ["0/0", "1/0"],
        ["6/5", "1/5"],
        ["★★★★☆", "★"],
        ["4-May", "3"],
        ["04. Mai", "3"],
    ],
)
def test_scores_that_are_mixed_shares_or_dates_are_refused(cells):
    with pytest.raises(InputError, match=r"is not a number|is not in 0 to 5"):
        scored(cells)


def test_shares_are_stretched_from_the_scale_that_is_given():
    assert scored(["85%", "50%"], scale="50-100").scores == pytest.approx([3.5, 0])


def test_distances_are_no_scores():
    for name in (
        "distance",
        "Cosine dist",
        "edit_distance",
        "dissimilarity",
        "is_different",
        "not_duplicate",
    ):
        with pytest.raises(InputError, match=f"{name} grows as sentences differ"):
            GoldColumn.of(name, ["0.1", "0.9"])


def test_grades_beside_a_query_rise_with_relevance():
    for first, second in (("query", "passage"), ("question", "answer")):
        assert scored([0, 1, 2], (first, second), target="label").scores == [0, 2.5, 5]
    assert scored([0, 1, 2], ("premise", "hypothesis"), target="label").kind == LABELLED
    assert labelled([1, 2, 3, 4]).scores == [1, 2, 3, 4]


def test_labels_say_in_many_words_what_is_a_match():
    words = "WAHR|FALSCH да|нет t|f Match|Non-Match similar|dissimilar duplicate|not_duplicate related|unrelated"
    words += " pos|neg ✓|✗ ✔️|❌ 1.0|0.0 WAAR|ONWAAR IGAZ|HAMIS PRAVDA|NEPRAVDA 相同|不同 ○|×"
    for yes, no in (*(pair.split("|") for pair in words.split()), ("match", "no match"), (1, -1)):
        data = labelled([no, yes, "", no, "?"])
        matches, _ = match_labels(data)
        assert (matches.tolist(), len(data)) == ([False, True, False], 3)


def test_labels_that_do_not_say_what_matches_are_refused_by_name():
    data = labelled(["ham", "spam"])
    with pytest.raises(
        InputError, match=r"of x \(ham, spam\) do not say which pairs are matches; .*labels="
    ):
        match_labels(data)
    assert data.notes == (
        "read as: labels (ham, spam) that do not say which pairs are matches; ?labels=ham:1,spam:0 says it",
    )


def test_neutral_beside_words_of_agreement_is_no_label_of_inference():
    data = labelled(["agree", "neutral", "disagree"])
    assert data.label_names == ("agree", "disagree", "neutral")
    assert "that do not say which pairs are matches" in data.notes[-1]


@pytest.mark.parametrize("cell", [math.nan, math.inf, 1e308, "1e999"])
def test_a_number_that_is_no_score_is_none(cell):
    column = GoldColumn.of("score", [1, cell, 4.5])
    values, bad = column.read([1, cell, 4.5])
    assert (column.scale, np.isnan(values).tolist()) == ((0, 5), [False, True, False])
    assert list(bad) == ([] if cell != cell else [1])


def test_codes_of_missing_values_beside_ratings_are_no_scores():
    data = scored([1, 99, 3, -999, 4, "."])
    assert data.scores == [1, 3, 4]
    assert data.notes == (
        "3 rows without a score left out",
        "read as: scores from 0 to 5; ?scale=0-4 reads them otherwise; -999 and 99 as no score",
    )


def test_a_label_that_is_named_is_not_a_missing_value():
    assert GoldColumn.of("label", ["yes", "?"], labels="yes:1,?:0").read(["?"])[0].tolist() == [0]
    assert not GoldColumn.of("label", ["yes", "?"], labels="yes:1,?:0").is_missing("?")


def test_a_scale_with_room_for_99_takes_it_for_a_score():
    assert scored([10, 99, 50, 70]).scores == pytest.approx([0.5, 4.95, 2.5, 3.5])
    assert "?scale=0-6" in scored([0, 6, 3, 1]).notes[0]


@given(st.lists(st.floats(-1, 100, allow_subnormal=False), min_size=1))
def test_stretching_keeps_the_order_and_the_bounds(scores):
    if scale_of(min(scores), max(scores)) is None:
        assert min(scores) < 0
        return
    gold = GoldColumn.of("score", scores)
    gold = gold.gold(gold.read(scores)[0]).tolist()
    assert all(math.isnan(score) or 0 <= score <= 5 for score in gold)
    order = [
        i for i in sorted(range(len(scores)), key=lambda i: scores[i]) if not math.isnan(gold[i])
    ]
    assert all(gold[i] <= gold[j] for i, j in pairwise(order))


def test_labels_are_numbered_in_order():
    assert labelled(["neutral", "Contradiction", "entailment"]).labels == [1, 2, 0]
    numbered = labelled([2, 0, 1])
    assert (numbered.labels, numbered.label_names) == ([2, 0, 1], NLI_LABELS)
    assert numbered.notes == (
        "read as: entailment (0), neutral (1), contradiction (2); ?scale=0-2 reads them as scores",
    )
    assert labelled(["spam", "ham", "spam"]).labels == [1, 0, 1]
    many = labelled([10, 9, "9", 10.0])
    assert (many.labels, many.label_names) == ([1, 0, 0, 1], ("9", "10"))


def test_fractions_are_scores_and_not_labels():
    similar = labelled([0.5, 1.0, 0.0])
    assert (similar.kind, similar.scores) == (SCORED, [2.5, 5.0, 0.0])
    assert similar.notes == ("read as: scores from 0 to 1 stretched to 0–5",)


@pytest.mark.parametrize("count", [1001, 100_000])
def test_too_many_different_labels_are_refused(count):
    with pytest.raises(InputError, match="more than 1,000 different labels, the first 'label 0'"):
        labelled([f"label {i}" for i in range(count)])
