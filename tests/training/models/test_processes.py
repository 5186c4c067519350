"""encode on several devices, in a process each: what one process gives, in the same order."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from started import StartedProcesses
from tiny_models import WORDS, make_model

from training.errors import InputError, Stopped
from training.models.encoder import Encoder
from training.models.texts import ReadReport

DEVICES = ["cpu", "cpu"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(str(make_model(tmp_path_factory.mktemp("model") / "tiny")), "max", dtype="float32")


def some_sentences(count: int) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 30))) for _ in range(count)]


def test_the_vectors_are_those_of_one_process_in_the_same_order(encoder: Encoder):
    """Also of weights, a pooling, a prompt and a dimension that are not the folder's."""
    sentences = [*some_sentences(300), "", "the cat " * 200]
    trained = Encoder.load(encoder.name, "max", dtype="float32")
    for weight in trained.backbone.parameters():
        weight.data.mul_(0.9)
    changed = trained.with_dimension(20).with_prompt("the man: ")
    reports, steps = [ReadReport(), ReadReport()], list[tuple[int, int | None]]()
    one = changed.encode(sentences, report=reports[0])
    several = changed.encode(
        sentences,
        device=DEVICES,
        report=reports[1],
        on_progress=lambda done, total: steps.append((done, total)),
        batch_size=7,
    )
    np.testing.assert_allclose(several, one, atol=1e-6)
    assert (several.dtype, several.shape) == (np.float32, (302, 20))
    assert (reports[1].inputs, reports[1].truncated) == (302, reports[0].truncated) == (302, 1)
    assert steps[-1] == (302, 302)
    assert steps == sorted(steps)


def test_a_mistake_is_one_sentence_before_any_process_starts(encoder: Encoder):
    assert encoder.encode([], device=DEVICES).shape == (0, encoder.dimension)
    for device, sentences, complaint in (
        *((cpu, ["a"], r"device takes a list, .* such as \['cpu'\] \* 2") for cpu in ("cpu", torch.device("cpu"))),
        ([], ["a"], "device is an empty list"),
        (["cpu", "cuda:7"], ["a"], "device 'cuda:7' cannot be used on this machine"),
        (DEVICES, ["a", None], "sentence 2 is NoneType, not text"),
    ):
        with pytest.raises(InputError, match=complaint):
            encoder.encode(sentences, device=device)  # type: ignore[arg-type]


def test_an_error_in_a_process_is_raised_as_it_is(encoder: Encoder, monkeypatch: pytest.MonkeyPatch):
    """Here the folder that it opens is damaged."""

    def save(self: Encoder, folder: Path) -> None:
        Path(folder).mkdir()
        (Path(folder) / "config.json").write_text("{")

    monkeypatch.setattr(Encoder, "save", save)
    with pytest.raises(InputError, match="encoder"):
        encoder.encode(some_sentences(10), device=["cpu"])


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11, 5), reason="the pool of this Python hangs then (CPython issue 94777)")
def test_one_that_dies_is_reported_one_that_is_stopped_ends_and_both_leave_nothing(encoder: Encoder):
    started = StartedProcesses()

    def kill(done: int, total: int | None) -> None:
        for child in started.there():
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(InputError, match="a process on one of cpu ended unexpectedly"):
        encoder.encode(some_sentences(4_000), device=["cpu"], on_progress=kill)
    assert started.there() == []
    with pytest.raises(Stopped):
        encoder.encode(some_sentences(4_000), device=["cpu"], should_stop=lambda: True)
    assert started.there() == []
