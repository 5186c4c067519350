"""Each pair is chosen for the reason that it states."""

import numpy as np
import pytest
from scipy.stats import rankdata

from sbert_app.services.annotations.selection import (
    DISAGREE,
    RANDOM,
    THRESHOLD,
    ProjectRequest,
    choose_pairs,
    pick,
)
from sbert_app.services.models.cache import ModelCache
from training.errors import InputError


def test_a_third_for_each_reason_and_no_pair_twice():
    random = np.random.default_rng(0)
    first = random.random(200)
    second = random.random(200)
    chosen = pick(first, second, 0.5, 60, random)
    rows = {
        reason: [row for row, why in chosen if why == reason]
        for reason in (DISAGREE, THRESHOLD, RANDOM)
    }
    assert [len(each) for each in rows.values()] == [20, 20, 20]
    assert len({row for row, _ in chosen}) == 60
    gap = np.abs(rankdata(first) - rankdata(second))
    distance = np.abs(first - 0.5)
    others = set(range(200)) - {row for row, _ in chosen}
    assert min(gap[rows[DISAGREE]]) >= max(gap[row] for row in others)
    assert min(distance[row] for row in others) >= max(distance[rows[THRESHOLD]])


def test_the_random_third_is_drawn_evenly_from_all_pairs():
    first = np.linspace(0, 1, 30)
    drawn = [{row for row, why in pick(first, first[::-1], 0.5, 9, np.random.default_rng(seed)) if why == RANDOM}
             for seed in range(300)]  # fmt: skip
    counts = np.bincount([row for each in drawn for row in each], minlength=30)
    assert counts.min() > 10 and counts.max() < 60  # 30 expected of each


def test_too_few_pairs_are_all_chosen():
    chosen = pick(np.arange(5) / 5, np.arange(5) / 5, 0.5, 60, np.random.default_rng(0))
    assert sorted(row for row, _ in chosen) == [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def models(home):
    return ModelCache(home)


def test_a_file_of_sentences_becomes_pairs_of_neighbours_and_random_ones(models, home, tmp_path):
    file = tmp_path / "lines.csv"
    topics = ("A dog runs in the park.", "The bank raised its rates.", "She cooks rice for dinner.")
    file.write_text(
        "sentence\n" + "".join(f'"{topic} Number {i}."\n' for i in range(5) for topic in topics)
    )
    wanted = ProjectRequest("x", str(file), "all-MiniLM-L6-v2", "minilm-stsb", count=15)
    info, pairs = choose_pairs(wanted, models, home)
    assert len(pairs) == 15 and info.source == "lines.csv"
    assert len({(pair.first, pair.second) for pair in pairs}) == 15
    assert all(pair.first != pair.second for pair in pairs)
    again = choose_pairs(wanted, models, home)[1]
    assert again == pairs  # the same seed, the same pairs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "minilm-stsb"}, "cannot be trained later"),
        ({"count": 2}, "3 to 1,000 pairs"),
        ({"threshold": 2.0}, "a cosine from -1 to 1"),
        ({}, r"two\.csv has 2 different pairs; at least 3 are needed"),
    ],
)
def test_wrong_settings_of_a_project_are_refused_in_one_sentence(
    models, home, tmp_path, changes, message
):
    file = tmp_path / "two.csv"
    file.write_text("sentence1,sentence2\na b,c d\ne f,g h\n")
    values = {
        "name": "x",
        "data": str(file),
        "model": "all-MiniLM-L6-v2",
        "second_model": "minilm-stsb",
        **changes,
    }
    with pytest.raises(InputError, match=message):
        choose_pairs(ProjectRequest(**values), models, home)


def test_texts_that_are_equal_after_they_are_cut_are_no_pair(models, home, tmp_path):
    start = "the same words " * 200
    lines = [f"{start} one\t{start} two"]
    lines += [f"A dog runs {number}.\tA cat sleeps {number}." for number in range(3)]
    file = tmp_path / "long.tsv"
    file.write_text("sentence1\tsentence2\n" + "\n".join(lines))
    wanted = ProjectRequest("long", str(file), "all-MiniLM-L6-v2", "minilm-stsb")
    _, pairs = choose_pairs(wanted, models, home)
    assert len(pairs) == 3
