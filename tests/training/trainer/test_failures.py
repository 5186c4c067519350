"""`trainer/train.py`: runs that cannot start or do not finish: one clear sentence each."""

import errno
import json
import re
from unittest.mock import Mock

import pytest
import torch
from run_helpers import Events, run
from safetensors import SafetensorError

from training.errors import InputError
from training.models.encoder import Encoder
from training.objectives.pairs import Regression
from training.trainer import training_model
from training.trainer.events import EventLog, read_events
from training.trainer.train import train


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_rows(config, monkeypatch):
    forward = Regression.__call__
    steps = []

    def poisoned(self, vectors, target):
        loss = forward(self, vectors, target)
        if not torch.is_grad_enabled():
            return loss
        steps.append(loss)
        return loss * float("nan") if len(steps) == 3 else loss

    monkeypatch.setattr(Regression, "__call__", poisoned)
    result, events = run(config)
    assert (result.status, result.steps) == ("failed", 3)
    sentence = re.fullmatch(
        r"the loss of step 3 is nan, on rows ([\d, ]+) of pairs.tsv: lower the .*", result.reason
    )
    rows = [int(row) for row in sentence[1].split(", ")]
    assert len(rows) == config.batch_size
    assert all(1 <= row <= 162 for row in rows)
    assert (events[-1]["state"], events[-1]["reason"]) == ("failed", result.reason)


def test_a_figure_that_is_not_finite_is_written_as_null(tmp_path):
    events: Events = []
    with EventLog(tmp_path, events.append) as log:
        log.emit("train", 1, loss=float("inf"))
    assert json.loads((tmp_path / "events.jsonl").read_text())["loss"] is None
    assert events[0]["loss"] is None


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
FULL = SafetensorError("I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        (
            {},
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            "not enough memory for batches of 16, 16 ",
        ),
        (
            {},
            MemoryError(),
            "not enough .*, 16 rows at a time: set mini_batch_size to 8, which computes the same",
        ),
        (
            {"mini_batch_size": 6},
            OUT_OF_MEMORY,
            "not enough .*, 6 rows at a time: set mini_batch_size to 3",
        ),
        (
            {"mini_batch_size": 1},
            OUT_OF_MEMORY,
            "not enough .*, one row at a time: choose a smaller base",
        ),
        (
            {"max_tokens": 4_096},
            OUT_OF_MEMORY,
            "not enough .*, 4,096 tokens at a time: lower max_tokens",
        ),
        (
            {},
            OSError(errno.ENOSPC, "No space left on device"),
            "the disk is full: make room and resume the run",
        ),
        ({}, FULL, "the disk is full"),
        (
            {},
            PermissionError(errno.EACCES, "Permission denied", "model"),
            "a file could not be read or .*: .*model",
        ),
        ({}, RuntimeError("kernel\n  launch failed"), "kernel launch failed"),
    ],
)
def test_a_failure_during_the_run_is_a_reason_in_one_line(
    config, tmp_path, monkeypatch, settings, error, reason
):
    monkeypatch.setattr(training_model.TrainingModel, "forward_backward", Mock(side_effect=error))
    result, events = run(config.replace(**settings), tmp_path / "r")
    assert result.status == "failed"
    assert re.match(reason, result.reason)
    assert "\n" not in result.reason
    assert read_events(tmp_path / "r/events.jsonl")[-1] == events[-1]
    assert (events[-1]["state"], events[-1]["reason"]) == ("failed", result.reason)


def test_a_model_that_could_not_be_saved_has_no_path(config, tmp_path, monkeypatch):
    def full(self, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Encoder, "save", full)
    result, _ = run(config, tmp_path / "r")
    assert (result.status, result.path) == ("failed", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_data": "nowhere.csv"}, "neither a file nor a known set"),
        ({"base": "no-such/folder/here"}, "no-such/folder/here"),
    ],
)
def test_mistakes_of_the_user_are_reported_before_the_first_step(config, tmp_path, change, message):
    events: Events = []
    with pytest.raises(InputError, match=message):
        train(config.replace(**change), events.append, tmp_path / "r")
    assert [event["kind"] for event in events] == ["state"]
    assert events[0]["state"] == "failed"
    assert message in events[0]["reason"]


def test_data_of_the_wrong_form_is_refused_before_the_run(config, tmp_path):
    plain = tmp_path / "plain.csv"
    plain.write_text("sentence1,sentence2\na cat,a kitten\n")
    with pytest.raises(
        InputError, match=r"classification needs pairs with a label .* mnrl learns from pairs"
    ):
        run(config.replace(objective="classification", train_data=str(plain)))
