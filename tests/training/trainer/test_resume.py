"""`trainer/checkpoint.py`: the curve of a stopped or killed run that is resumed equals an uninterrupted one's."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from paths import ROOT
from run_helpers import Events, curve, run, stop_at
from safetensors.torch import load_file

from training.errors import InputError
from training.trainer import evaluator, trainer
from training.trainer.events import read_events
from training.trainer.train import train


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory) -> tuple[Events, Path]:
    """The events of the run that nothing interrupts, and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "r"
    return run(config, folder)[1], folder


@pytest.mark.parametrize("stop", [0, 7])
def test_a_stopped_run_resumes_to_the_same_curve_and_model(config, whole, tmp_path, stop):
    events: Events = []
    stopped = train(
        config,
        events.append,
        tmp_path / "parts",
        should_stop=stop_at(stop, events) if stop else lambda: True,
    )
    assert stopped.status == "stopped"
    result, _ = run(config, tmp_path / "parts", resume=True)
    assert (result.status, result.steps) == ("finished", 12)
    assert curve(read_events(tmp_path / "parts/events.jsonl")) == curve(whole[0])
    one, two = (
        load_file(folder / "model/model.safetensors") for folder in (whole[1], tmp_path / "parts")
    )
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_run_can_be_stopped_during_an_evaluation(config, whole, tmp_path, monkeypatch):
    events: Events = []
    asked = {"evaluating": False}
    measure = evaluator.Evaluator.measure

    def measuring(self, encoder, objective, should_stop=None):
        asked["evaluating"] = sum(event["kind"] == "eval" for event in events) == 1
        return measure(self, encoder, objective, should_stop)

    with monkeypatch.context() as patch:
        patch.setattr(evaluator.Evaluator, "measure", measuring)
        stopped = train(
            config, events.append, tmp_path / "r", should_stop=lambda: asked["evaluating"]
        )
    assert (stopped.status, stopped.steps) == ("stopped", 5)
    run(config, tmp_path / "r", resume=True)
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole[0])


def test_a_run_can_be_stopped_during_the_search_for_overlap(config, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "training.trainer.prepare.overlap", lambda data, training, encode: encode(["A dog sleeps."])
    )
    monkeypatch.setattr("training.trainer.prepare.MixedBatches", None)  # which comes after that
    assert run(config, tmp_path / "r", should_stop=lambda: True)[0].status == "stopped"


KILLED = """
import json, sys, time
from training.trainer import trainer
from training.trainer.config import RunConfig
from training.trainer.train import train

def on_event(event):
    print(json.dumps(event), flush=True)
    if event["kind"] == "train" and event["step"] == 10:
        time.sleep(600)  # so that the run cannot end before it is killed

trainer.CHECKPOINT_SECONDS = 0.0
train(RunConfig.model_validate_json(sys.argv[1]), on_event=on_event, folder=sys.argv[2])
"""


def test_a_killed_run_resumes_from_its_checkpoint(config, whole, tmp_path):
    folder = tmp_path / "r"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, config.to_json(), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
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
    assert curve(read_events(folder / "events.jsonl")) == curve(whole[0])
    assert result.status == "finished"


def test_a_run_killed_while_replacing_a_checkpoint_resumes_from_the_old(config, whole, tmp_path):
    """Killed in `training.atomic.replace_folder`: the old folder moved aside, the new one not yet renamed."""
    events: Events = []
    train(config, events.append, tmp_path / "r", should_stop=stop_at(7, events))
    for name in ("checkpoint", "model"):
        aside = tmp_path / f"r/.{name}.x.aside"
        aside.mkdir()
        (tmp_path / "r" / name).rename(aside / name)
        (tmp_path / f"r/.{name}.y.fresh").mkdir()
    result, resumed = run(config, tmp_path / "r", resume=True)
    assert (result.status, resumed[0]["resumed_from"]) == ("finished", 7)
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole[0])
    assert sorted(entry.name for entry in (tmp_path / "r").iterdir()) == [
        "config.json",
        "events.jsonl",
        "model",
    ]


def test_a_run_killed_on_its_last_step_is_resumed(config, tmp_path, monkeypatch):
    """The checkpoint is removed only after the end has been written."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    events: Events = []
    train(config, events.append, tmp_path / "r", should_stop=stop_at(11, events))
    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "outcome", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "r", resume=True)
    result, resumed = run(config, tmp_path / "r", resume=True)
    assert (result.status, result.steps, resumed[0]["resumed_from"]) == ("finished", 12, 11)
    assert not (tmp_path / "r/checkpoint").exists()


def test_resuming_without_a_checkpoint_starts_anew(config, tmp_path):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "config.json").write_text(config.to_json())
    (folder / "events.jsonl").write_text(
        '{"t": 1, "step": 3, "kind": "train", "loss": 1}\n{"t": 2, "st'
    )
    result, events = run(config, folder, resume=True)
    assert (result.status, events[0]["resumed_from"]) == ("finished", None)
    assert read_events(folder / "events.jsonl") == events


def test_a_run_that_cannot_be_resumed_is_refused(config, tmp_path):
    with pytest.raises(InputError, match="no run to resume"):
        run(config, tmp_path / "nothing", resume=True)
    run(config.replace(max_steps=1), tmp_path / "r")
    with pytest.raises(InputError, match="another config"):
        run(config.replace(max_steps=1, seed=9), tmp_path / "r", resume=True)
    with pytest.raises(InputError, match="is finished"):
        run(config.replace(max_steps=1, name="renamed"), tmp_path / "r", resume=True)


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory) -> Path:
    """The folder of a run with a checkpoint of its first step."""
    events: Events = []
    folder = tmp_path_factory.mktemp("stopped") / "r"
    train(config, events.append, folder, should_stop=stop_at(1, events))
    return folder


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *product(["state.json"], [b"", "a folder", b"null", b"[" * 100_000]),
        *product(["weights.safetensors", "optimiser.safetensors"], [b"9" * 5_000]),
    ],
    ids=lambda value: str(value[:8]),
)
def test_a_damaged_checkpoint_is_one_sentence_and_stays(config, stopped, tmp_path, name, damage):
    shutil.copytree(stopped, tmp_path / "r")
    file = tmp_path / "r/checkpoint" / name
    file.unlink()
    file.mkdir() if damage == "a folder" else file.write_bytes(damage)
    with pytest.raises(
        InputError, match=rf"{name} .*remove the folder .*checkpoint to begin the run anew"
    ) as error:
        run(config, tmp_path / "r", resume=True)
    assert "\n" not in str(error.value)
    assert file.is_dir() if damage == "a folder" else file.read_bytes() == damage


def test_a_failed_checkpoint_leaves_the_old_one(config, tmp_path, monkeypatch):
    events: Events = []
    train(config, events.append, tmp_path / "r", should_stop=stop_at(4, events))
    before = (tmp_path / "r/checkpoint/state.json").read_text()

    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "get_rng_state", full)
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    result, told = run(config, tmp_path / "r", resume=True)
    assert (result.status, result.reason) == (
        "failed",
        "the disk is full: make room and resume the run",
    )
    assert told[-1]["reason"] == result.reason
    assert (tmp_path / "r/checkpoint/state.json").read_text() == before
    monkeypatch.undo()
    assert run(config, tmp_path / "r", resume=True)[0].status == "finished"
