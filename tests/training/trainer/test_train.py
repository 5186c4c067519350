"""Training runs: events, files, every objective, resuming to the bit, stopping, failing in words."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from paths import ROOT
from safetensors import SafetensorError
from safetensors.torch import load_file

from training import parallel
from training.data.load import load_data
from training.errors import InputError
from training.models.encoder import Encoder
from training.objectives import Regression
from training.trainer import trainer
from training.trainer.config import CHOICES, RunConfig
from training.trainer.events import EventLog, read_events
from training.trainer.train import train


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    """160 scored pairs of the STS benchmark: a third alike, a third related, a third neither."""
    data = load_data("stsb:dev")
    chosen: list[int] = []
    for low, high in ((0, 1), (2, 3), (4, 5)):
        chosen += [i for i, score in enumerate(data.scores) if low <= score <= high][:54]
    rows = [f"{data.columns[0][i]}\t{data.columns[1][i]}\t{data.scores[i]}" for i in chosen]
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def config(pairs) -> RunConfig:
    """Twelve steps of a tiny random encoder, in float32, where every bit can be compared."""
    return RunConfig(
        "regression",
        base="scratch:1x32",
        train_data=pairs,
        eval_data=pairs,
        max_steps=12,
        eval_every=5,
        learning_rate=1e-3,
        dtype="float32",
    )


def run(config: RunConfig, folder: Path | None = None, **more):
    """The result and the events of a run."""
    events: list[dict] = []
    return train(config, events.append, folder, **more), events


def of_kind(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["kind"] == kind]


def stop_at(step: int, events: list[dict]):
    """A should_stop that says yes once ``step`` has been told."""
    return lambda: any(event["kind"] == "train" and event["step"] >= step for event in events)


# ---------------------------------------------------------------- what a run tells and leaves


def test_a_run_tells_its_course(config, tmp_path):
    result, events = run(config, tmp_path / "r1")
    states = of_kind(events, "state")
    assert [event["state"] for event in states] == ["running", "finished"]
    assert (states[0]["steps"], states[0]["rows"], states[0]["resumed_from"]) == (12, 162, None)
    assert [event["step"] for event in of_kind(events, "eval")] == [0, 5, 10, 12]
    steps = of_kind(events, "train")
    assert [event["step"] for event in steps] == list(range(1, 13))
    assert {"loss", "lr", "epoch", "steps", "sentences_per_second", "seconds_left"} <= set(steps[0])
    assert steps[0]["lr"] == 0
    assert max(event["lr"] for event in steps) == pytest.approx(1e-3)
    measured = of_kind(events, "eval")[-1]
    assert {"spearman", "loss", "random_cosine", "plain_cosine", "uniformity", "alignment", "effective_rank"} <= set(
        measured
    )
    assert (result.status, result.steps, result.id) == ("finished", 12, "r1")
    assert result.best["spearman"] == max(e["spearman"] for e in of_kind(events, "eval") if e["step"] > 0)
    assert result.final["step"] == 12
    assert result.baseline["step"] == 0
    json.dumps(events)  # plain values only


def test_a_run_leaves_its_files(config, tmp_path):
    result, events = run(replace(config, name="A <b>run</b>"), tmp_path / "r1")
    folder = tmp_path / "r1"
    assert RunConfig.from_json((folder / "config.json").read_text()) == replace(config, name="A <b>run</b>")
    assert read_events(folder / "events.jsonl") == events
    assert not (folder / "checkpoint").exists()
    assert result.path == str(folder / "model")
    card = (folder / "model/README.md").read_text()
    assert "regression: (cos(u, v) − gold)²" in card
    assert "| Spearman ρ ×100 (cosine) |" in card
    assert not list(folder.rglob("*.bin")) + list(folder.rglob("*.pt"))  # no pickle anywhere


def test_the_model_that_is_kept_is_the_best_one(config, tmp_path):
    from training.evaluation.scoring import evaluate

    result, _ = run(config, tmp_path / "r1")
    kept = Encoder.load(result.path, dtype="float32")
    again = evaluate(kept, load_data(config.train_data))
    assert again["spearman"]["cosine"] == pytest.approx(result.best["spearman"], abs=1e-6)


def test_sentence_transformers_opens_the_model(config, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    result, _ = run(config, tmp_path / "r1")
    sentences = ["A man plays a guitar.", "Nobody is there."]
    ours = Encoder.load(result.path, dtype="float32").encode(sentences, normalize=None)
    theirs = sentence_transformers.SentenceTransformer(result.path, device="cpu").encode(sentences)
    assert np.allclose(ours, theirs, atol=1e-5)


def test_without_a_folder_nothing_is_written(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result, _ = run(replace(config, max_steps=2, name="mine"))
    assert (result.id, result.path, result.status) == ("mine", None, "finished")
    assert not list(tmp_path.iterdir())


def test_the_same_config_gives_the_same_curve(config):
    (_, one), (_, two) = run(config), run(config)
    (_, other) = run(replace(config, seed=1))
    assert curve(one) == curve(two)
    assert curve(one) != curve(other)


def test_a_run_goes_on_with_its_own_shares_on_another_number_of_cores(config, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "num_threads", lambda: 2)
    _, whole = run(config)
    events: list[dict] = []
    train(config, events.append, tmp_path / "r", stop_at(5, events))
    monkeypatch.setattr(parallel, "num_threads", lambda: 1)
    _, resumed = run(config, tmp_path / "r", resume=True)
    assert resumed[0]["shares"] == whole[0]["shares"] == 2
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole)


def test_steps_come_from_the_epochs(config):
    result, events = run(replace(config, max_steps=None, epochs=0.5, batch_size=50, eval_every=None))
    assert result.steps == 2  # half of ceil(162 / 50)
    assert of_kind(events, "train")[-1]["epoch"] == 0.5


# ---------------------------------------------------------------- every objective learns


@pytest.mark.parametrize("objective", CHOICES["objective"])
def test_every_objective_beats_its_own_starting_loss(config, objective):
    lesson = replace(config, objective=objective, base="scratch:2x64", max_steps=25, eval_every=25)
    result, _ = run(lesson)
    assert result.final["loss"] < result.baseline["loss"]


@pytest.mark.parametrize("concatenation", CHOICES["concatenation"])
def test_every_concatenation_beats_its_own_starting_loss(config, concatenation):
    lesson = replace(
        config,
        objective="classification",
        concatenation=concatenation,
        base="scratch:2x64",
        max_steps=40,
        eval_every=40,
        learning_rate=3e-3,
    )
    result, _ = run(lesson)
    assert result.final["loss"] < result.baseline["loss"]


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_every_pooling_learns(config, pooling):
    result, events = run(replace(config, pooling=pooling, max_steps=20, eval_every=20))
    assert events[0]["pooling"] == pooling
    assert result.final["loss"] < result.baseline["loss"]


def test_lora_learns(config):
    result, _ = run(replace(config, lora_rank=8, max_steps=20, eval_every=20, learning_rate=1e-2))
    assert result.final["loss"] < result.baseline["loss"]


def test_bfloat16_learns_with_float32_weights(config, tmp_path):
    result, events = run(replace(config, dtype="bfloat16", max_steps=20, eval_every=20), tmp_path / "r")
    assert events[0]["dtype"] == "bfloat16"
    assert result.final["loss"] < result.baseline["loss"]
    weights = load_file(tmp_path / "r/model/model.safetensors")
    assert all(weight.dtype == torch.float32 for weight in weights.values())


def test_two_stages(config, home):
    """A run's best model is the base of the next."""
    first, _ = run(config, home / "runs/first")
    second, _ = run(replace(config, base="run:first", max_steps=2, eval_every=2), home / "runs/second")
    assert second.baseline["spearman"] == pytest.approx(first.best["spearman"], abs=1e-6)


def test_a_collapse_is_named(config, tmp_path):
    """All scores 5: the shortest way to cosine 1 is to give every sentence the same vector."""
    path = tmp_path / "same.tsv"
    texts = load_data(config.train_data).columns
    path.write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t5\n" for a, b in zip(*texts, strict=True)),
        encoding="utf-8",
    )
    _, events = run(replace(config, train_data=str(path), max_steps=60, eval_every=60, learning_rate=1e-2))
    assert (
        "collapsed: random pairs of the training data have a mean cosine of" in of_kind(events, "eval")[-1]["collapsed"]
    )


def test_the_length_can_be_limited(config):
    assert run(replace(config, max_steps=1, max_length=6))[0].status == "finished"
    with pytest.raises(InputError, match=r"max_length is 5000, but scratch:1x32 takes \d+ tokens at most"):
        run(replace(config, max_length=5000))


def test_without_eval_data_random_pairs_are_still_watched(config, tmp_path):
    result, events = run(replace(config, eval_data=None), tmp_path / "r")
    assert "spearman" not in of_kind(events, "eval")[-1]
    assert of_kind(events, "eval")[-1]["random_cosine"] is not None
    assert result.best["step"] == 12  # without a measure the last is the best
    assert (tmp_path / "r/model/model.safetensors").exists()


def test_triplets_are_measured_by_accuracy(config, tmp_path):
    triplets = tmp_path / "t.csv"
    triplets.write_text("anchor,positive,negative\n" + "a cat,a kitten,tax law\nsnow,ice,a violin\n" * 8)
    result, _ = run(replace(config, objective="triplet", train_data=str(triplets), eval_data=str(triplets)))
    assert 0 <= result.final["accuracy"] <= 1


# ---------------------------------------------------------------- stopping, dying, going on


def curve(events: list[dict]) -> list[dict]:
    """What must be equal to the last bit: everything but the clock."""
    clock = {"t", "seconds", "seconds_left", "sentences_per_second"}
    kept = [event for event in events if event["kind"] != "state"]
    return [{key: value for key, value in event.items() if key not in clock} for event in kept]


@pytest.mark.parametrize("stop", [0, 1, 5, 7, 11])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(config, tmp_path, stop):
    _, whole = run(config, tmp_path / "whole")
    events: list[dict] = []
    stopped = train(
        config, events.append, tmp_path / "parts", should_stop=stop_at(stop, events) if stop else lambda: True
    )
    assert stopped.status == "stopped"
    result, _ = run(config, tmp_path / "parts", resume=True)
    assert (result.status, result.steps) == ("finished", 12)
    assert curve(read_events(tmp_path / "parts/events.jsonl")) == curve(whole)
    one, two = (load_file(tmp_path / name / "model/model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_stopping_in_the_middle_of_an_evaluation(config, tmp_path, monkeypatch):
    _, whole = run(config)
    events: list[dict] = []
    asked = {"evaluating": False}
    measure = trainer.Evaluator.measure

    def measuring(self, encoder, objective, should_stop=None):
        asked["evaluating"] = sum(event["kind"] == "eval" for event in events) == 1
        return measure(self, encoder, objective, should_stop)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Evaluator, "measure", measuring)
        stopped = train(config, events.append, tmp_path / "r", should_stop=lambda: asked["evaluating"])
    assert (stopped.status, stopped.steps) == ("stopped", 5)
    run(config, tmp_path / "r", resume=True)
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole)


KILLED = """
import json, sys, time
from training.trainer import trainer
from training.trainer.config import RunConfig
from training.trainer.train import train

def tell(event):
    print(json.dumps(event), flush=True)
    if event["kind"] == "train" and event["step"] == 10:
        time.sleep(600)  # the end is not reached, however late the kill

trainer.CHECKPOINT_SECONDS = 0.0
train(RunConfig.from_json(sys.argv[1]), on_event=tell, folder=sys.argv[2])
"""


@pytest.mark.parametrize("training", ["full", "lora"])
def test_a_killed_run_goes_on_from_its_checkpoint(config, tmp_path, training):
    config = replace(config, lora_rank=4 if training == "lora" else 0)
    folder = tmp_path / "r"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, config.to_json(), str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["kind"] == "train" and event["step"] == 8:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    result, resumed = run(config, folder, resume=True)
    assert resumed[0]["resumed_from"] >= 6
    _, whole = run(config)
    assert curve(read_events(folder / "events.jsonl")) == curve(whole)
    assert result.status == "finished"


def test_a_run_killed_between_two_checkpoints_goes_on_from_the_old_one(config, tmp_path):
    """Killed in `training.atomic.replace_folder`: the old folder moved aside, the new one not yet renamed."""
    _, whole = run(config)
    events: list[dict] = []
    train(config, events.append, tmp_path / "r", should_stop=stop_at(7, events))
    for name in ("checkpoint", "model"):
        aside = tmp_path / f"r/.{name}.x.aside"
        aside.mkdir()
        (tmp_path / "r" / name).rename(aside / name)
        (tmp_path / f"r/.{name}.y.fresh").mkdir()
    result, resumed = run(config, tmp_path / "r", resume=True)
    assert (result.status, resumed[0]["resumed_from"]) == ("finished", 7)
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole)
    assert sorted(entry.name for entry in (tmp_path / "r").iterdir()) == ["config.json", "events.jsonl", "model"]


def test_a_run_killed_on_its_last_step_need_not_begin_anew(config, tmp_path, monkeypatch):
    """The checkpoint goes when the end is written down, not before."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    events: list[dict] = []
    train(config, events.append, tmp_path / "r", should_stop=stop_at(11, events))
    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "outcome", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "r", resume=True)
    result, resumed = run(config, tmp_path / "r", resume=True)
    assert (result.status, result.steps, resumed[0]["resumed_from"]) == ("finished", 12, 11)
    assert not (tmp_path / "r/checkpoint").exists()


def test_a_run_stops_within_two_seconds_of_being_asked(config, tmp_path):
    began: list[float] = []
    events: list[dict] = []

    def should_stop() -> bool:
        if len(events) > 8:
            began.append(time.monotonic())
        return bool(began)

    train(replace(config, max_steps=10_000), events.append, tmp_path / "r", should_stop=should_stop)
    assert len(began) == 1  # the first yes was enough


def test_resuming_what_never_came_to_a_checkpoint_begins_anew(config, tmp_path):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "config.json").write_text(config.to_json())
    (folder / "events.jsonl").write_text('{"t": 1, "step": 3, "kind": "train", "loss": 1}\n{"t": 2, "st')
    result, events = run(config, folder, resume=True)
    assert (result.status, events[0]["resumed_from"]) == ("finished", None)
    assert read_events(folder / "events.jsonl") == events


def test_resuming_is_refused_where_it_makes_no_sense(config, tmp_path):
    with pytest.raises(InputError, match="no run to resume"):
        run(config, tmp_path / "nothing", resume=True)
    run(replace(config, max_steps=1), tmp_path / "r")
    with pytest.raises(InputError, match="another config"):
        run(replace(config, max_steps=1, seed=9), tmp_path / "r", resume=True)
    with pytest.raises(InputError, match="is finished"):
        run(replace(config, max_steps=1, name="renamed"), tmp_path / "r", resume=True)


def test_a_checkpoint_that_fails_leaves_the_old_one(config, tmp_path, monkeypatch):
    from training.trainer import checkpoint

    events: list[dict] = []
    train(config, events.append, tmp_path / "r", should_stop=stop_at(4, events))
    before = (tmp_path / "r/checkpoint/state.json").read_text()

    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "_random_states", full)
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    result, told = run(config, tmp_path / "r", resume=True)
    assert (result.status, result.reason) == ("failed", "the disk is full: make room and resume the run")
    assert told[-1]["reason"] == result.reason
    assert (tmp_path / "r/checkpoint/state.json").read_text() == before
    monkeypatch.undo()
    assert run(config, tmp_path / "r", resume=True)[0].status == "finished"


# ---------------------------------------------------------------- failing in words


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_rows(config, monkeypatch):
    honest, steps = Regression.forward, []

    def poisoned(self, vectors, target):
        loss = honest(self, vectors, target)
        if not torch.is_grad_enabled():
            return loss
        steps.append(loss)
        return loss * float("nan") if len(steps) == 3 else loss

    monkeypatch.setattr(Regression, "forward", poisoned)
    result, events = run(config)
    assert (result.status, result.steps) == ("failed", 3)
    found = re.fullmatch(r"the loss of step 3 is nan, on rows ([\d, ]+) of pairs.tsv: lower the .*", result.reason)
    rows = [int(row) for row in found[1].split(", ")]
    assert len(rows) == config.batch_size
    assert all(1 <= row <= 162 for row in rows)
    assert (events[-1]["state"], events[-1]["reason"]) == ("failed", result.reason)


def test_a_figure_that_is_not_finite_is_null(tmp_path):
    events: list[dict] = []
    with EventLog(tmp_path, events.append) as log:
        log.emit("train", 1, loss=float("inf"))
    assert json.loads((tmp_path / "events.jsonl").read_text())["loss"] is None
    assert events[0]["loss"] is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory for batches of 16: use a"),
        (torch.OutOfMemoryError("CUDA out of memory."), "not enough memory for batches of 16"),
        (MemoryError(), "not enough memory for batches of 16"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full: make room and resume the run"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "model"), "a file could not be read or written: .*model"),
        (RuntimeError("kernel\n  launch failed"), "kernel launch failed"),
    ],
)
def test_what_goes_wrong_on_the_way_is_a_reason_in_one_line(config, tmp_path, monkeypatch, error, reason):
    def fail(self, batch):
        raise error

    monkeypatch.setattr(trainer.TrainingModel, "gradients", fail)
    result, events = run(config, tmp_path / "r")
    assert result.status == "failed"
    assert re.match(reason, result.reason)
    assert "\n" not in result.reason
    assert read_events(tmp_path / "r/events.jsonl")[-1] == events[-1]
    assert (events[-1]["state"], events[-1]["reason"]) == ("failed", result.reason)


def test_a_model_that_could_not_be_saved_is_not_offered(config, tmp_path, monkeypatch):
    def full(self, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Encoder, "save", full)
    result, _ = run(config, tmp_path / "r")
    assert (result.status, result.path) == ("failed", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_data": "nowhere.csv"}, "neither a file nor a known set"),
        ({"eval_data": "nowhere.csv"}, "neither a file nor a known set"),
        ({"base": "no-such/folder/here"}, "no-such/folder/here"),
    ],
)
def test_what_the_user_can_mend_is_said_before_the_first_step(config, tmp_path, change, message):
    events: list[dict] = []
    with pytest.raises(InputError, match=message):
        train(replace(config, **change), events.append, tmp_path / "r")
    assert [event["kind"] for event in events] == ["state"]
    assert events[0]["state"] == "failed"
    assert message in events[0]["reason"]


def test_a_form_that_cannot_work_says_so_before_the_run(config, tmp_path):
    plain = tmp_path / "plain.csv"
    plain.write_text("sentence1,sentence2\na cat,a kitten\n")
    with pytest.raises(InputError, match=r"classification needs pairs with a label .* mnrl learns from pairs"):
        run(replace(config, objective="classification", train_data=str(plain)))


def test_events_after_the_checkpoint_are_taken_back(tmp_path):
    with EventLog(tmp_path, lambda event: None) as log:
        for step in range(5):
            log.emit("train", step, loss=0.5)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"t": 3, "step": 5, "ki')  # cut short by a crash
    with EventLog(tmp_path, lambda event: None, keep_to_step=2) as log:
        log.emit("train", 3, loss=0.25)
    assert [(event["step"], event["loss"]) for event in read_events(tmp_path / "events.jsonl")] == [
        (0, 0.5),
        (1, 0.5),
        (2, 0.5),
        (3, 0.25),
    ]


@pytest.mark.slow
def test_two_processes_train_one_model(config, tmp_path):
    """As `accelerate launch` starts them: half of the steps, the same rows, one folder."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom training.trainer.config import RunConfig\nfrom training.trainer.train import train\n"
        "result = train(RunConfig.from_json(sys.argv[1]), on_event=lambda e: None, folder=sys.argv[2])\n"
        "assert result.status == 'finished', result\n"
    )
    lesson = replace(config, max_steps=None, epochs=1, eval_every=None)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    subprocess.run(
        [sys.executable, *command, str(script), lesson.to_json(), str(tmp_path / "r")],
        check=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        timeout=300,
    )
    events = read_events(tmp_path / "r/events.jsonl")
    assert (events[0]["processes"], events[0]["steps"]) == (2, 6)  # half of ceil(162 / 16)
    assert of_kind(events, "eval")[-1]["loss"] < of_kind(events, "eval")[0]["loss"]
