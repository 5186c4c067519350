"""Calibration: a monotone curve from cosine to gold score, fitted once and stored."""

import json
from itertools import pairwise

import numpy as np
import pytest
from depth import first
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.services.compare import calibration
from sbert_app.services.compare.calibration import Calibration, fit_isotonic, load_calibration, meaning
from training.data.load import load_data
from training.evaluation.metrics import cosine
from training.models.encoder import Encoder


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 5)), min_size=2, max_size=300))
def test_a_larger_cosine_never_means_a_lower_gold_score(points):
    x, y = np.array(points).T
    curve = fit_isotonic(x, y)
    read = [curve.gold_score(value) for value in np.linspace(-1, 1, 50)]
    assert all(b >= a - 1e-9 for a, b in pairwise(read))
    assert 0 <= min(read) <= max(read) <= 5


@pytest.mark.parametrize("pooling", first(1, ["mean", "max", "cls"]))
def test_the_shipped_curves_predict_gold_scores_of_pairs_they_were_not_fitted_on(pooling, tmp_path):
    curve = load_calibration("all-MiniLM-L6-v2", pooling, tmp_path)
    data = load_data("stsb:dev").select(range(400))
    vectors = Encoder.load("all-MiniLM-L6-v2", pooling).encode([*data.columns[0], *data.columns[1]])
    guess = np.array([curve.gold_score(value) for value in cosine(*np.split(vectors, 2))])
    gold = np.array(data.scores)
    assert np.abs(guess - gold).mean() < 0.75 * np.abs(gold.mean() - gold).mean()
    low, high = np.array([curve.band(value) for value in cosine(*np.split(vectors, 2))]).T
    assert 0.72 <= np.mean((low <= gold) & (gold <= high)) <= 0.9


def test_equal_sentences_score_5_and_a_band_holds_its_curve():
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, 2_000)
    curve = fit_isotonic(0.1 + 0.15 * gold + random.normal(0, 0.1, 2_000), gold)
    assert curve.gold_score(1.0) == 5
    assert curve.gold_score(curve.cosines[-1]) == pytest.approx(curve.gold[-1])
    assert all(a <= b <= c for a, b, c in zip(curve.low, curve.gold, curve.high, strict=True))
    assert curve.band(0.5)[1] - curve.band(0.5)[0] == pytest.approx(2 * 1.28 * 0.1 / 0.15, rel=0.15)


def test_curves_of_earlier_versions_have_no_band(tmp_path):
    file = calibration._file("m", "mean", tmp_path)
    file.parent.mkdir()
    file.write_text('{"m|mean": {"fitted_on": "stsb:train", "cosines": [0, 0.9], "gold": [0, 4]}}')
    curve = load_calibration("m", "mean", tmp_path)
    assert (curve.band(0.5), curve.gold_score(1)) == (None, 5)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"m|mean": 3}', b"\xff\xfe", b'{"m|mean": {"cosines": [0]}}'])
def test_a_damaged_file_of_curves_is_fitted_anew(tmp_path, content):
    file = calibration._file("m", "mean", tmp_path)
    file.parent.mkdir()
    file.write_bytes(content)
    assert load_calibration("m", "mean", tmp_path) is None
    curve = Calibration((0.0, 1.0), (0.0, 5.0))
    calibration.save_calibration("m", "mean", curve, file)
    assert load_calibration("m", "mean", tmp_path) == curve


def test_meanings_follow_the_scale():
    assert meaning(5) == "the same meaning"
    assert meaning(0) == "different topics"
    assert len({meaning(gold) for gold in range(6)}) == 6


def test_a_fitted_curve_is_stored(tmp_path, monkeypatch):
    measured = []

    def fit_on_stsb(encoder, home, pairs):
        measured.append(encoder.name)
        return Calibration((0.0, 1.0), (1.0, 4.0))

    monkeypatch.setattr(calibration, "fit_on_stsb", fit_on_stsb)
    encoder = Encoder.load("scratch:1x32")
    assert load_calibration("scratch:1x32", "mean", tmp_path) is None
    for _ in range(2):
        assert calibration.calibrate(encoder, tmp_path).gold_score(0.5) == 2.5
    assert measured == ["scratch:1x32"]
    kept = [json.loads(file.read_text()) for file in (tmp_path / "calibration").iterdir()]
    assert kept[0]["scratch:1x32|mean"]["fitted_on"] == "stsb:train"
