"""Mined hard negatives: the nearest sentence that is clearly less similar than the positive, and no known positive."""

import numpy as np
import pytest
from run_helpers import of_kind, run

from training.data.dataset import Dataset
from training.errors import InputError
from training.models.encoder import Encoder
from training.trainer.config import RunConfig
from training.trainer.negatives import MinedNegatives, mine_negatives

ANGLES = {
    "a": 0,
    "b": 90,
    "near a": 10,
    "near b": 100,
    "false negative": 12,
    "hard": 40,
    "easy": 170,
}


class Compass:
    """In the place of an encoder: each sentence is a direction in the plane."""

    device = "cpu"

    def encode(self, sentences, on_progress=None, should_stop=None):
        angles = np.deg2rad([ANGLES[text] for text in sentences])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def mined(*rows: tuple[str, ...], margin: float = 0.05) -> MinedNegatives:
    return mine_negatives(
        Compass(), Dataset("mine", tuple(map(list, zip(*rows, strict=True)))), margin
    )


def test_a_hard_negative_is_the_nearest_beyond_the_margin():
    rows = [("a", "near a"), ("b", "near b"), ("b", "hard"), ("b", "easy")]
    found = mined(*rows).data
    assert found.kind == "triplets"
    assert found.columns[2][0] == "hard"  # not the nearest to b, and not "easy"
    # Cos 12° > 0.95 cos 10°.
    assert mined(*rows, ("b", "false negative")).data.columns[2][0] == "hard"
    nearer = mined(*rows, ("b", "false negative"), margin=0.0).data
    assert nearer.columns[2][0] == "false negative"


def test_a_known_positive_is_not_a_hard_negative():
    # Of the anchor, whichever row says so, and whichever side it stands on.
    rows = [("a", "near a"), ("b", "near b"), ("b", "easy")]
    assert mined(*rows, ("b", "hard")).data.columns[2][0] == "hard"
    assert mined(*rows, ("b", "hard"), ("a", "hard")).data.columns[2][0] != "hard"
    assert mined(*rows, ("b", "hard"), ("hard", "a")).data.columns[2][0] != "hard"


def test_examples_of_hard_negatives_have_their_cosines():
    found = mined(("a", "near a"), ("b", "hard"))
    assert found.cosines[0] == pytest.approx(np.cos(np.deg2rad([10, 40])), abs=1e-6)
    [example] = found.examples(1)
    assert (example.anchor, example.positive, example.negative) == ("a", "near a", "hard")
    assert example.negative_cosine == pytest.approx(np.cos(np.deg2rad(40)), abs=1e-6)


def test_hard_negatives_are_not_mined_for_scored_pairs():
    data = Dataset("mine", (["a"], ["b"]), scores=[1.0])
    with pytest.raises(
        InputError, match="mined for pairs that belong together, but mine holds scored pairs"
    ):
        mine_negatives(Compass(), data, 0.05)


def test_a_pair_without_a_negative_is_left_out_and_counted():
    found = mined(("a", "easy"), ("b", "near b"))
    assert found.data.columns[0] == ["b"]  # everything is nearer to a than its positive
    assert found.data.rows == [2]
    assert "1 of 2 rows have none and are left out" in found.data.notes[-1]
    with pytest.raises(InputError, match="no pair of mine has a negative that is 5% less similar"):
        mined(("a", "easy"))


def test_hard_negatives_are_read_as_they_were_written(tmp_path):
    found = mined(("a", "near a"), ("b", "hard"), ("b", "near b"))
    found.write(tmp_path)
    read = MinedNegatives.read(tmp_path, found.data)
    assert read.data.columns == found.data.columns
    assert (list(read.data.rows), read.data.notes) == (list(found.data.rows), found.data.notes)
    assert np.allclose(read.cosines, found.cosines)
    assert MinedNegatives.read(tmp_path / "other", found.data) is None
    head, *rows = (tmp_path / "negatives.jsonl").read_bytes().split(b"\n")
    for damaged in (
        b"",
        b"[]",
        head,
        b"\n".join([head, *rows[1:]]),
        b"\xff" + head,
        head + b"\nnull",
        bytes(300),
    ):
        (tmp_path / "negatives.jsonl").write_bytes(damaged)
        with pytest.raises(InputError, match=r"negatives\.jsonl .*damaged"):
            MinedNegatives.read(tmp_path, found.data)


def test_blocks_do_not_change_the_hard_negatives(monkeypatch):
    from training.data.load import load_data
    from training.objectives.ranking import MultipleNegativesRanking
    from training.trainer import negatives

    data = MultipleNegativesRanking.transform(load_data("stsb:dev").select(range(300)))
    encoder = Encoder.load("scratch:1x32", dtype="float32", device="cpu")
    whole = mine_negatives(encoder, data, 0.05)
    monkeypatch.setattr(negatives, "ANCHORS", 7)
    assert mine_negatives(encoder, data, 0.05).data.columns == whole.data.columns


def test_a_run_learns_from_hard_negatives_and_resumes_with_the_same_ones(pairs, tmp_path):
    config = RunConfig(
        "mnrl",
        base="scratch:1x32",
        train_data=pairs,
        eval_data=None,
        max_steps=3,
        mine_negatives=True,
        dtype="float32",
    )
    result, events = run(config, tmp_path / "run")
    assert result.status == "finished"
    start = of_kind(events, "state")[0]
    assert "hard negatives are mined" in start["notes"][-1]
    shown = start["negatives"][0]
    assert shown["negative_cosine"] < 0.95 * shown["positive_cosine"] + 1e-6
    stored = MinedNegatives.read(tmp_path / "run", Dataset("pairs", ([""], [""])))
    assert len(stored.data) == start["rows"]

    stopped, _ = run(config, tmp_path / "other", should_stop=lambda: True)
    assert stopped.status == "stopped"
    file = tmp_path / "other/negatives.jsonl"
    if file.exists():  # it was stopped after they were mined
        before = file.read_text()
        resumed, _ = run(config, tmp_path / "other", resume=True)
        assert (resumed.status, file.read_text()) == ("finished", before)
