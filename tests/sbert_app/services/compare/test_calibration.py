"""Calibration: a monotone curve from cosine to gold score, fitted once and stored."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from depth import first
from hypothesis import given
from hypothesis import strategies as st

import training
from sbert_app.services.compare import calibration
from sbert_app.services.compare.calibration import load_calibration
from sbert_app.services.corpus.embedded import weights_key
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.calibration import (
    Calibration,
    fit_isotonic,
    fit_pairs,
    meaning,
    reliability,
)
from training.models.encoder import Encoder
from training.similarities import cosine

CURVE = Calibration((0.0, 1.0), (1.0, 4.0), (0.5, 3.5), (1.5, 4.5))


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 5)), min_size=2, max_size=300))
def test_a_larger_cosine_never_means_a_lower_gold_score(points):
    x, y = np.array(points).T
    curve = fit_isotonic(x, y)
    read = [curve.gold_score(value) for value in np.linspace(-1, 1, 50)]
    assert all(b >= a - 1e-9 for a, b in pairwise(read))
    assert 0 <= min(read) <= max(read) <= 5


@pytest.mark.parametrize("pooling", first(1, ["mean", "cls"]))
def test_shipped_curves_predict_gold_scores_of_pairs_not_fitted_on(pooling, tmp_path):
    curve = load_calibration("all-MiniLM-L6-v2", pooling, tmp_path)
    data = load_data("stsb:dev").select(range(400))
    vectors = Encoder.load("all-MiniLM-L6-v2", pooling).encode([*data.columns[0], *data.columns[1]])
    guess = np.array([curve.gold_score(value) for value in cosine(*np.split(vectors, 2))])
    gold = np.array(data.scores)
    assert np.abs(guess - gold).mean() < 0.75 * np.abs(gold.mean() - gold).mean()
    low, high = np.array([curve.band(value) for value in cosine(*np.split(vectors, 2))]).T
    assert 0.72 <= np.mean((low <= gold) & (gold <= high)) <= 0.9


def test_equal_sentences_score_5_and_the_band_contains_the_curve():
    random = np.random.default_rng(0)
    gold = random.uniform(0, 5, 2_000)
    curve = fit_isotonic(0.1 + 0.15 * gold + random.normal(0, 0.1, 2_000), gold)
    assert curve.gold_score(1.0) == 5
    assert curve.gold_score(curve.cosines[-1]) == pytest.approx(curve.gold[-1])
    assert all(a <= b <= c for a, b, c in zip(curve.low, curve.gold, curve.high, strict=True))
    assert curve.band(0.5)[1] - curve.band(0.5)[0] == pytest.approx(2 * 1.28 * 0.1 / 0.15, rel=0.15)
    curve = fit_isotonic(np.repeat([0.2, 0.6, 1.0], 40), np.repeat([1.0, 3.0, 4.2], 40))
    assert curve.gold_score(1.0) == curve.gold_score(1 - 1e-7) == 5
    assert curve.gold_score(0.6) == pytest.approx(3, abs=0.4)
    assert (meaning(5), meaning(0)) == ("the same meaning", "different topics")


def test_a_damaged_file_of_a_curve_is_fitted_anew(tmp_path):
    store = calibration.computed_curves(tmp_path)
    key = calibration.curve_key("m", "mean")
    store.put(key, {"m|mean": CURVE})
    assert load_calibration("m", "mean", tmp_path) == CURVE
    for content in (b"", b"[]", b'{"m|mean": {"cosines": [0]}}'):
        store.path(key).write_bytes(content)
        assert load_calibration("m", "mean", tmp_path) is None


def test_a_fitted_curve_is_stored(tmp_path, monkeypatch):
    measured = []

    def calibrate(encoder, data, *_):
        measured.append((encoder.name, len(data)))
        return CURVE

    monkeypatch.setattr(calibration, "calibrate", calibrate)
    encoder = Encoder.load("scratch:1x32")
    assert load_calibration("scratch:1x32", "mean", tmp_path) is None
    for _ in range(2):
        curve = calibration.stored_curve(encoder, tmp_path)
        assert curve.gold_score(0.5) == pytest.approx(3)  # equal sentences score 5
    assert measured == [("scratch:1x32", 2_000)]
    [stored] = calibration.computed_curves(tmp_path).list().documents.values()
    assert stored["scratch:1x32|mean"].fitted_on == "stsb:train"


def test_a_curve_belongs_to_the_weights_and_not_to_the_name(tmp_path):
    before, after = (Encoder.load("scratch:1x32", seed=seed) for seed in (0, 1))
    keys = [weights_key(encoder) for encoder in (before, before.with_pooling("max"), after)]
    assert keys[0] == keys[1] != keys[2]
    own = calibration.fit_own("folder", "mean", *rated(60, 0), tmp_path, keys[0])
    assert load_calibration("folder", "mean", tmp_path, keys[0]) == own
    # The folder was replaced in place.
    assert load_calibration("folder", "mean", tmp_path, keys[2]) is None
    set_aside = [
        calibration.is_set_aside("folder", pooling, tmp_path, keys[2])
        for pooling in ("mean", "max")
    ]
    assert set_aside == [True, False] and not calibration.is_set_aside(
        "folder", "mean", tmp_path, keys[0]
    )
    curve = replace(CURVE, weights=keys[0])
    calibration.computed_curves(tmp_path).put(
        calibration.curve_key("folder", "mean"), {"folder|mean": curve}
    )
    found = [calibration.computed_curve("folder", "mean", tmp_path, key) for key in keys]
    assert found == [curve, curve, None]


def test_calibrate_fits_a_curve_in_one_line_of_python():
    encoder = Encoder.load("scratch:1x32")
    data = load_data("stsb:dev").select(range(200))
    curve = training.calibrate(encoder, data)
    assert (curve.fitted_on, curve.pairs, curve.gold_score(1.0)) == ("stsb:dev", 200, 5)
    vectors = encoder.encode([*data.columns[0], *data.columns[1]])
    alike = fit_isotonic(cosine(*np.split(vectors, 2)), data.scores)
    assert [curve.gold_score(x / 10) for x in range(10)] == pytest.approx(
        [alike.gold_score(x / 10) for x in range(10)], abs=0.01
    )
    with pytest.raises(InputError, match="holds pairs; a calibration takes pairs with gold scores"):
        training.calibrate(encoder, [("a", "b")])


def rated(n, seed, name="mine.csv"):
    """Pairs with gold scores, and cosines from whose squares the scores differ by noise."""
    random = np.random.default_rng(seed)
    cosines = random.uniform(0, 1, n)
    gold = np.clip(0.6 + 3.6 * cosines**2 + random.normal(0, 0.4, n), 0, 5)
    texts = [[f"{side} {seed} {i}" for i in range(n)] for side in "ab"]
    return Dataset.from_pairs(*texts, gold.tolist(), name=name), cosines


class TestOwnCalibration:
    def test_a_curve_of_the_user_is_used_until_it_is_deleted(self, tmp_path):
        model = "all-MiniLM-L6-v2", "mean"
        shipped = load_calibration(*model, tmp_path)
        assert (shipped.fitted_on, shipped.pairs) == ("stsb:train", 5749)
        own = calibration.fit_own(*model, *rated(200, 0), tmp_path)
        assert load_calibration(*model, tmp_path) == own
        assert (own.fitted_on, own.pairs) == ("mine.csv", 200)
        assert own.gold_score(0.7) == pytest.approx(0.6 + 3.6 * 0.7**2, abs=0.35)
        assert calibration.computed_curve(*model, tmp_path) == shipped
        calibration.own_curves(tmp_path).delete(calibration.curve_key(*model))
        assert load_calibration(*model, tmp_path) == shipped

    def test_a_damaged_one_is_a_sentence_and_stays(self, tmp_path):
        calibration.fit_own("m", "mean", *rated(60, 0), tmp_path)
        file = calibration.own_curves(tmp_path).path(calibration.curve_key("m", "mean"))
        file.write_bytes(b"{")
        with pytest.raises(InputError, match=f"own/{file.name} cannot be read"):
            load_calibration("m", "mean", tmp_path)
        assert file.read_bytes() == b"{"

    def test_too_few_pairs_and_labels_are_refused(self, tmp_path):
        with pytest.raises(
            InputError, match=r"mine\.csv has 49 pairs with scores; a calibration takes at least 50"
        ):
            calibration.fit_own("m", "mean", *rated(49, 0), tmp_path)
        labels = Dataset.from_pairs(["a"] * 60, ["b"] * 60, [0, 5] * 30)
        cosines = np.linspace(0, 1, 60)
        with pytest.raises(InputError, match="2 different scores"):
            calibration.fit_own("m", "mean", labels, cosines, tmp_path)

    def test_its_band_holds_80_percent_of_new_pairs(self, tmp_path):
        held = [
            reliability(
                calibration.fit_own("m", "mean", *rated(100, seed), tmp_path),
                *rated(500, 1_000),
                tmp_path,
            )
            for seed in range(20)
        ]
        assert np.mean([result.coverage for result in held]) == pytest.approx(0.8, abs=0.06)


class TestReliability:
    def test_it_is_measured_on_pairs_that_the_curve_was_not_fitted_on(self, tmp_path):
        data, cosines = rated(200, 0)
        curve = calibration.fit_own("m", "mean", data.select(range(100)), cosines[:100], tmp_path)
        turned = replace(data, columns=data.columns[::-1], name="second.csv")
        found = reliability(curve, turned, cosines, tmp_path)
        assert (found.pairs, found.left_out) == (100, 100)
        assert sum(each.pairs for each in found.bins) == 100
        assert all(abs(each.predicted - each.gold) < 0.6 for each in found.bins)
        assert found.description.startswith("On 100 pairs of second.csv, the 80% band holds ")
        assert found.description.endswith(
            " 100 more pairs are left out because it was fitted on them."
        )
        with pytest.raises(
            InputError, match=r"mine\.csv has 0 pairs that the calibration was not fitted on"
        ):
            reliability(curve, data.select(range(100)), cosines[:100], tmp_path)

    def test_pairs_of_stsb_train_are_left_out_for_a_shipped_curve(self, home):
        data = load_data("stsb:train", home).select(range(30))
        curve = load_calibration("all-MiniLM-L6-v2", "mean", home)
        with pytest.raises(InputError, match="has 0 pairs that the calibration was not fitted on"):
            reliability(curve, data, np.zeros(30), home)

    def test_a_curve_without_keys_leaves_out_the_pairs_of_its_data(self, home):
        data = load_data("stsb:dev", home)
        cosines = np.array(data.scores) / 5
        curve = fit_pairs(data, cosines)
        with pytest.raises(InputError, match="has 0 pairs that the calibration was not fitted on"):
            reliability(curve, data, cosines, home)
