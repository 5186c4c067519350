"""Diagnostics: how vectors lie on the sphere, and when they have collapsed."""

import math

import numpy as np
import pytest
import torch

from training.evaluation.diagnostics import (
    COLLAPSED_FROM,
    alignment,
    collapsed,
    diagnose,
    effective_rank,
    random_cosines,
    uniformity,
)
from training.pooling import normalize_rows


def draw(n: int, dimension: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, dimension)).astype(np.float32)


def test_random_cosines_are_those_of_all_pairs():
    vectors = draw(6, 4)
    cosines = [
        float(normalize_rows(vectors)[i] @ normalize_rows(vectors)[j])
        for i in range(6)
        for j in range(i)
    ]
    mean, std = random_cosines(vectors)
    assert mean == pytest.approx(np.mean(cosines), abs=1e-6)
    assert std == pytest.approx(np.std(cosines), abs=1e-6)


def test_uniformity_and_alignment_are_wang_and_isolas():
    # Their code, https://github.com/SsnL/align_uniform: pdist(x).pow(2).mul(-t).exp().mean().log(),
    # t = 2.
    x = torch.nn.functional.normalize(torch.tensor(draw(20, 8)), dim=1)
    expected = torch.pdist(x, p=2).pow(2).mul(-2).exp().mean().log()
    assert uniformity(x.numpy()) == pytest.approx(expected.item(), abs=1e-5)
    x = draw(10, 8)
    y = draw(10, 8, seed=1)
    assert alignment(x, x * 3) == pytest.approx(0, abs=1e-6)
    assert alignment(np.eye(2), np.eye(2)[::-1]) == pytest.approx(2)
    expected = (
        (torch.tensor(normalize_rows(x)) - torch.tensor(normalize_rows(y)))
        .norm(dim=1)
        .pow(2)
        .mean()
    )
    assert alignment(x, y) == pytest.approx(expected.item(), abs=1e-5)


def test_effective_rank_of_orthogonal_directions_is_their_number():
    for rank in (1, 3, 8):
        vectors = np.repeat(np.eye(8)[:rank], 5, axis=0)
        assert effective_rank(vectors) == pytest.approx(rank, abs=1e-4)


def test_lengths_of_vectors_do_not_matter():
    vectors = draw(8, 4)
    assert diagnose(vectors * 100, vectors) == pytest.approx(diagnose(vectors, vectors), abs=1e-4)


def test_a_healthy_cloud_of_vectors_is_not_flagged_as_collapsed():
    figures = diagnose(draw(100, 64), draw(100, 64, 1))
    assert abs(figures["random_cosine"]) < 0.05
    assert collapsed(figures) is None


def test_too_few_sentences_give_no_figure():
    assert math.isnan(uniformity(draw(1, 4)))
    assert math.isnan(random_cosines(draw(1, 4))[0])
    assert collapsed({"random_cosine": float("nan")}) is None


def test_one_direction_is_a_collapse_and_the_reason_says_where():
    narrow = 1 + 0.01 * draw(50, 16)
    both = diagnose(narrow, narrow)
    assert both["random_cosine"] > COLLAPSED_FROM
    assert both["effective_rank"] < 3
    assert "of the training data have a mean cosine of 1.00 and random pairs of plain" in collapsed(
        both
    )
    elsewhere = collapsed(diagnose(draw(50, 16), narrow))
    assert "plain sentences from other domains" in elsewhere
    assert "training" not in elsewhere
