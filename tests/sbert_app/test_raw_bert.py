"""The commands of the paper from bert-base-uncased, as on a machine that reaches the Hub; a tiny BERT stands for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import HubServer
from paths import ROOT
from tiny_models import make_model

from sbert_app.process import child_environment

LABELS = ("entailment", "neutral", "contradiction")


@pytest.mark.slow
def test_bert_base_uncased_of_the_hub_is_measured_and_trained_on_nli_then_on_scores(tmp_path: Path):
    nli, scored = tmp_path / "nli.csv", tmp_path / "scored.csv"
    rows = [(f"the man is playing {i}", f"a cat is eating {i}") for i in range(30)]
    nli.write_text(
        "sentence1,sentence2,label\n" + "".join(f"{a},{b},{LABELS[i % 3]}\n" for i, (a, b) in enumerate(rows))
    )
    scored.write_text("sentence1,sentence2,score\n" + "".join(f"{a},{b},{i % 6}\n" for i, (a, b) in enumerate(rows)))

    with HubServer(models={"bert-base-uncased": make_model(tmp_path / "repo")}) as hub:
        environment = child_environment() | hub.environment(tmp_path / "hf") | {"SBERT_HOME": str(tmp_path / "home")}

        def call(*arguments: str) -> dict:
            command = [sys.executable, "-m", "sbert_app", *arguments, "--json"]
            done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        training = ("--max-steps", "2", "--eval-data", str(scored))
        raw = [
            call("evaluate", "--model", f"bert-base-uncased{pooling}", "--data", str(scored))
            for pooling in ("", ":cls")
        ]
        assert [result["pooling"] for result in raw] == ["mean", "cls"]
        first = call(
            "train", "--objective", "classification", "--base", "bert-base-uncased", "--train-data", str(nli), *training
        )
        second = call(
            "train", "--objective", "regression", "--base", f"run:{first['id']}", "--train-data", str(scored), *training
        )
        words = call(
            "train", "--objective", "mlm", "--base", "bert-base-uncased", "--train-data", str(scored), *training
        )
    assert {first["status"], second["status"], words["status"]} == {"finished"}
    assert first["baseline"]["spearman"] == pytest.approx(raw[0]["spearman"]["cosine"], abs=0.02)
    assert second["baseline"]["spearman"] == pytest.approx(first["best"]["spearman"], abs=1e-6)
