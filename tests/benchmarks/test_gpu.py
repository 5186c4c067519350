"""The GPU benchmark on a CPU: every part gives its rows, without any model; late and broken parts are said."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import ROOT

from benchmarks import gpu, gpu_home, gpu_parts
from benchmarks.gpu_parts import PARTS, SMALL, Bench
from training.errors import InputError
from training.inference.runner import TOKEN_BUDGET
from training.models.encoder import Encoder


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder as on a machine without any model and without a network."""
    folder = tmp_path_factory.mktemp("stand-in")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBERT_HOME", str(tmp_path_factory.mktemp("empty")))
        home, weights = gpu_home.prepared(folder)
    assert (home, weights) == (folder, "random")
    return home


@pytest.fixture
def bench(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("SBERT_HOME", str(stand_in))
    return Bench(torch.device("cpu"), SMALL, tmp_path)


def rows(part: str, bench: Bench) -> list[dict[str, Any]]:
    """The rows of a part, as the table that is printed needs them: plain, with the same columns."""
    found = json.loads(json.dumps(list(PARTS[part](bench))))
    assert all(row.keys() == found[0].keys() for row in found)
    return found


def test_check_says_what_the_device_can_do(bench: Bench):
    for row in rows("check", bench):
        assert not row["unpadded"]
        assert row["lowest_cosine_with_float32"] > 0.99
        assert row["peak_tflops"] > 0


def test_encode_has_a_rate_for_each_side_and_shape(bench: Bench):
    found = rows("encode", bench)
    sides = ["SBERT Lab", "tokenising alone", *["sentence-transformers"] * 2]
    assert [row["side"].split(",")[0] for row in found] == 2 * sides
    assert [row["model"] for row in found] == ["BERT-base"] * 4 + ["MiniLM-L6"] * 4
    assert all(row["sentences_per_second"] > 0 and row["share_of_peak"] > 0 for row in found)


@pytest.mark.slow
def test_train_has_a_step_of_each_side_and_an_estimate_of_the_papers_run(bench: Bench):
    found = rows("train", bench)
    assert [row["side"] for row in found] == [
        "SBERT Lab",
        "sentence-transformers, plain loop, bfloat16",
        "sentence-transformers, trainer, bfloat16",
        "SBERT Lab, classification",
        "SBERT Lab, compiled",
    ]
    assert all(row["seconds_per_step"] > 0 and row["steps"] == 8 for row in found)
    assert found[3]["seconds_of_nli"] == pytest.approx(942_000 / 4 * found[3]["seconds_per_step"])
    ours, loop = found[0]["mean_loss"], found[1]["mean_loss"]
    assert ours == pytest.approx(loop, abs=0.25), "other random weights and batches, the same loss"
    assert found[4]["mean_loss"] == pytest.approx(ours, abs=0.02), "compiled is the same run"


def test_cross_and_pairs(bench: Bench):
    assert [row["side"].split(",")[0] for row in rows("cross", bench)] == ["SBERT Lab", *["sentence-transformers"] * 2]
    [row] = rows("pairs", bench)
    assert row["seconds"] == row["encoding"] + row["comparing"] > 0


@pytest.mark.slow
def test_profile_names_kernels_and_the_compiled_rate(bench: Bench):
    found = rows("profile", bench)
    assert {row["model"] for row in found} == {"BERT-base"}
    assert "compiled by eager" in found[-1]["what"]
    assert len(found) > 5


def test_sentences_are_as_many_different_strings_as_asked_for(bench: Bench):
    sentences = gpu_parts.some_sentences(1_000)
    assert len(set(sentences)) == 1_000
    known = {" ".join(sorted(sentence.split())) for sentence in gpu_home.sentences()}
    assert {" ".join(sorted(sentence.split())) for sentence in sentences} <= known


def fake_part(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let every part be a process that runs ``code``."""
    start = subprocess.Popen
    monkeypatch.setattr(gpu.subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", code], **options))


class TestPartsThatFail:
    def test_rows_before_the_time_was_up_are_kept(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        fake_part(monkeypatch, "import time; print('{\"a\": 1}', flush=True); time.sleep(60)")
        assert gpu.measure("encode", "cpu", True, tmp_path, 3) == ([{"a": 1}], "stopped after 3 s")

    def test_an_error_is_said_and_its_rows_are_kept(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        fake_part(monkeypatch, "print('{\"a\": 1}'); raise RuntimeError('CUDA error: an illegal memory access')")
        found = gpu.measure("encode", "cpu", True, tmp_path, 60)
        assert found == ([{"a": 1}], "failed: RuntimeError: CUDA error: an illegal memory access")

    def test_what_was_found_is_handed_on_after_every_part(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(gpu, "measure", lambda part, *_: ([{"part": part}], ""))
        seen: list[int] = []
        result = gpu.run("cpu", small=True, on_partial=lambda found: seen.append(len(found.keys() & PARTS.keys())))
        assert seen == list(range(1, len(PARTS) + 1))
        assert result["train"] == [{"part": "train"}]
        assert gpu.run("cpu", small=True, seconds=0)["notes"][0]["note"] == "left out: the time was up"

    def test_without_a_gpu_it_says_so(self, monkeypatch: pytest.MonkeyPatch):
        with pytest.raises(InputError, match="no GPU here; --device cpu --small"):
            gpu.run("cpu")
        monkeypatch.setattr(gpu, "PACKAGES", ("torch", "no_such_package"))
        with pytest.raises(InputError, match="pip install no_such_package"):
            gpu.run("cpu", small=True)


@pytest.mark.slow
def test_the_command_gives_every_figure(tmp_path: Path):
    """The whole of it, as on a machine with a GPU: no part is left out, stopped or broken, and no figure is missing."""
    command = [sys.executable, "-m", "benchmarks", "gpu", "--device", "cpu", "--small", "--json", "--no-save"]
    environment = {**os.environ, "SBERT_HOME": str(tmp_path)}
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
    result = json.loads(ran.stdout)
    assert (result["device"], result["weights"], result["notes"]) == ("cpu", "random", [])
    for part in gpu.PARTS:
        assert result[part], part
        for row in result[part]:
            missing = {name for name, value in row.items() if value is None}
            assert missing <= {"seconds_of_nli"}, (part, row)
            assert all(math.isfinite(value) for value in row.values() if isinstance(value, float)), (part, row)
    sides = {part: {row["side"].split(",")[0] for row in result[part]} for part in ("encode", "train", "cross")}
    assert all({"SBERT Lab", "sentence-transformers"} <= each for each in sides.values())
    assert any(row["seconds_of_nli"] for row in result["train"])


def test_every_side_is_measured_with_batches_of_512_and_more():
    assert min(gpu_parts.FULL.batches) >= 512
    lengths = [len(ids) for ids in Encoder.load("scratch:2x64").tokenize(gpu_parts.some_sentences(2_000))]
    assert TOKEN_BUDGET["cuda"] / (sum(lengths) / len(lengths)) > 512


def test_the_limits_add_up_to_eight_minutes():
    assert sum(gpu.PARTS.values()) <= 480
    assert gpu.PARTS.keys() == PARTS.keys()


def test_what_is_taken_along_is_small_and_opens(tmp_path: Path):
    gpu_home.pack(tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 50e6
    full = Encoder.load("all-MiniLM-L6-v2", dtype="float32").encode(["A man is playing a guitar."])
    packed = Encoder.load("all-MiniLM-L6-v2", dtype="float32", home=tmp_path).encode(["A man is playing a guitar."])
    assert (full @ packed.T).item() > 0.999


@pytest.mark.slow
def test_neither_gradio_nor_datasets_is_needed(stand_in: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SBERT_HOME", str(stand_in))
    absent = ("gradio", "datasets", "plotly", "faiss", "pyarrow", "typer", "rich", "peft", "huey", "umap")
    code = (
        f"import sys; sys.modules |= dict.fromkeys({absent}); import benchmarks.__main__, benchmarks.gpu_parts as parts"
    )
    call = "sys.argv = ['', 'pairs', '--device', 'cpu', '--small']; parts.main()"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}; {call}"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert json.loads(ran.stdout)["sentences"] == SMALL.sentences
