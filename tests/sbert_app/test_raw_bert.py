"""The commands of the paper from bert-base-uncased, as on a machine that reaches the Hub; a tiny BERT stands for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import HubServer
from paths import ROOT
from tiny_models import make_model

from sbert_app.process import child_environment

# All in one process, as each would import torch anew.
PROGRAM = """
import json, sys
from sbert_app.cli import main
sys.exit(max(main(command) for command in json.load(sys.stdin)))
"""
LABELS = ("entailment", "neutral", "contradiction")


@pytest.mark.slow
def test_bert_base_uncased_of_the_hub_is_measured_and_trained(tmp_path: Path):
    nli = tmp_path / "nli.csv"
    scored = tmp_path / "scored.csv"
    rows = [(f"the man is playing {i}", f"a cat is eating {i}") for i in range(30)]
    nli.write_text(
        "sentence1,sentence2,label\n"
        + "".join(f"{a},{b},{LABELS[i % 3]}\n" for i, (a, b) in enumerate(rows))
    )
    scored.write_text(
        "sentence1,sentence2,score\n"
        + "".join(f"{a},{b},{i % 6}\n" for i, (a, b) in enumerate(rows))
    )

    training = ("--max-steps", "2", "--eval-data", scored)
    base = ("--base", "bert-base-uncased")
    commands = [
        ("evaluate", "--model", "bert-base-uncased:cls", "--data", scored),
        ("evaluate", "--model", "bert-base-uncased", "--data", scored),
        (
            "train",
            "--objective",
            "classification",
            *base,
            "--train-data",
            nli,
            "--name",
            "nli",
            *training,
        ),
        (
            "train",
            "--objective",
            "regression",
            "--base",
            "run:nli",
            "--train-data",
            scored,
            *training,
        ),
        ("train", "--objective", "mlm", *base, "--train-data", scored, *training),
    ]
    with HubServer(models={"bert-base-uncased": make_model(tmp_path / "repo")}) as hub:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps([[*map(str, command), "--json"] for command in commands]),
            env=child_environment()
            | hub.environment(tmp_path / "hf")
            | {"SBERT_HOME": str(tmp_path / "home")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    by_cls, raw, first, second, words = map(json.loads, done.stdout.splitlines())
    assert [result["pooling"] for result in (raw, by_cls)] == ["mean", "cls"]
    assert {first["status"], second["status"], words["status"]} == {"finished"}
    assert first["baseline"]["spearman"] == pytest.approx(raw["spearman"]["cosine"], abs=0.02)
    assert second["baseline"]["spearman"] == pytest.approx(first["best"]["spearman"], abs=1e-6)
