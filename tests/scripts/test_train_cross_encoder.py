"""An adapter is a run's model: its folder is like those that ship, and its scores are those of the run."""

import json
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from tiny_models import make_model

from scripts import train_cross_encoder
from training.models.cross_encoder import CrossEncoder

PAIRS = [("a man plays the guitar", "the dog is eating"), ("a cat", "a cat was on the woman"), ("", "the man")]


@pytest.fixture
def scored_by_run(monkeypatch) -> list[np.ndarray]:
    """The scores of `PAIRS` by the model of each run, before its folder is removed."""
    scores, write = [], train_cross_encoder.write_adapter

    def write_and_score(folder: Path, model: str, base: str, rank: int) -> None:
        scores.append(CrossEncoder.load(model, "float32").predict(PAIRS))
        write(folder, model, base, rank)

    monkeypatch.setattr(train_cross_encoder, "write_adapter", write_and_score)
    return scores


@pytest.fixture
def small_data(tmp_path, monkeypatch) -> None:
    """A few pairs in place of the STS benchmark."""
    for name, start in (("TRAIN", 0), ("DEV", 100), ("TEST", 200)):
        file = tmp_path / f"{name.lower()}.csv"
        rows = [f"a man {i} is eating,the woman {start + i * i} is playing,{i % 6}" for i in range(start, start + 40)]
        file.write_text("\n".join(["sentence1,sentence2,score", *rows, ""]))
        monkeypatch.setattr(train_cross_encoder, name, str(file))


def test_an_adapter_is_made_by_a_run_alone_and_from_a_teacher(tmp_path, small_data, scored_by_run, capsys):
    base, more = make_model(tmp_path / "base", initializer_range=0.1), tmp_path / "more.csv"
    more.write_text("sentence1,sentence2\n" + "".join(f"a man {i},a dog {i}\n" for i in range(300, 330)))
    options = ["--base", str(base), "--rank", "4", "--max-steps", "4", "--batch-size", "8", "--lr", "0.01"]
    train_cross_encoder.main([str(tmp_path / "first"), *options])
    taught = ["--teacher", str(tmp_path / "first"), "--taught", "20", "--pairs", str(more)]
    train_cross_encoder.main([str(tmp_path / "second"), *options, *taught])
    for name, by_run in zip(("first", "second"), scored_by_run, strict=True):
        folder = tmp_path / name
        shipped = {file.name for file in (ROOT / "assets/cross-encoder/minilm-stsb").iterdir()}
        assert {file.name for file in folder.iterdir()} == shipped
        assert CrossEncoder.load(str(folder), "float32").predict(PAIRS) == pytest.approx(by_run, abs=2e-3)
    card = json.loads((tmp_path / "second/card.json").read_text())
    assert (card["settings"]["rank"], card["pairs_from"][1:]) == (4, ["more.csv"])
    assert card["data"].endswith(f"; 20 more pairs scored by {tmp_path / 'first'}")
    assert list(card["dev_by_step"]) == ["0", "1", "2", "3", "4"]
    train_cross_encoder.main([str(tmp_path / "second"), "--measure"])
    assert "second: " in capsys.readouterr().out
