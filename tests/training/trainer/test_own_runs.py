"""`trainer/run_extras.py`: runs with own data, objective, evaluators, callbacks, optimizer and schedule."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from run_helpers import curve, of_kind, run
from torch import nn

from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.store import RunStore
from training import InputError, RunConfig, train
from training.data.load import load_data
from training.models.encoder import Encoder
from training.trainer.events import read_events


class Squared(nn.Module):
    """What `regression` minimises."""

    def forward(self, vectors: list[torch.Tensor], target: torch.Tensor | None) -> torch.Tensor:
        first, second = vectors
        return nn.functional.mse_loss(torch.cosine_similarity(first, second), target)


class Scaled(Squared):
    """An objective with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, vectors: list[torch.Tensor], target: torch.Tensor | None) -> torch.Tensor:
        return self.scale * super().forward(vectors, target)


class Recorder:
    """A callback that notes what it is called with, and calls ``stop`` at step 3; it stops the run if that is true."""

    def __init__(self, stop: Callable[[], object] = lambda: None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.stop = stop

    def on_step(self, step: int, loss: float) -> bool:
        self.calls.append(("step", (step, loss)))
        return step == 3 and self.stop() is True

    def on_evaluate(self, figures: dict[str, Any], encoder: Encoder) -> None:
        self.calls.append(("evaluate", (figures["step"], encoder.encode(["a", "b"]).shape)))

    def on_checkpoint(self, folder: Path) -> None:
        self.calls.append(("checkpoint", (folder / "state.json").exists()))

    def on_end(self, result: Any) -> None:
        self.calls.append(("end", result.status))

    def of(self, kind: str) -> list[Any]:
        return [values for name, values in self.calls if name == kind]


def first_is_best(encoder: Encoder) -> dict[str, float]:
    first_is_best.calls += 1  # type: ignore[attr-defined]
    return {"calls": first_is_best.calls, "gap": float("nan")}  # type: ignore[attr-defined]


@pytest.fixture
def short(config: RunConfig) -> RunConfig:
    return config.replace(max_steps=4, eval_every=2, eval_data=None)


def test_own_data_and_an_own_objective_give_the_curve_of_named_ones(short):
    _, named = run(short.replace(eval_data=short.train_data))
    data = load_data(short.train_data)
    _, own = run(short, train_data=data, eval_data=data, objective=Squared())
    assert curve(own) == curve(named)
    rows = [(a, b, score) for a, b, score in zip(*data.columns, data.scores or (), strict=True)]
    result, from_rows = run(short.replace(max_steps=1), train_data=rows, eval_data=rows[:9])
    assert curve(from_rows)[1] == {**curve(named)[1], "steps": 1, "lr": 0}
    assert "spearman" in result.final


def test_a_run_of_own_objects_is_listed_stopped_resumed_and_not_queued(short, tmp_path):
    data = load_data(short.train_data)
    store = RunStore(tmp_path)
    own = {"train_data": data, "objective": Squared(), "home": tmp_path}
    _, whole = run(short, tmp_path / "elsewhere", **own)
    assert not (tmp_path / "elsewhere/run.json").exists()

    seen = Recorder(lambda: store.stop("mine"))
    stopped, _ = run(short, "run:mine", **own, callbacks=[seen])
    assert (stopped.status, stopped.steps) == ("stopped", 3)
    listed = store.get("mine")
    assert (listed.state, listed.config.objective) == ("stopped", "own (test_own_runs:Squared)")
    assert listed.config.train_data.startswith(f"own ({data.name}, 162 scored pairs, ")
    assert set(json.loads((listed.folder / "own.json").read_text())) == {
        "objective",
        "train_data",
        "callbacks",
    }

    for refused in (
        lambda: store.requeue("mine"),
        lambda: store.create(listed.config),
        lambda: execute(store, "mine", states=["stopped"]),
        lambda: run(listed.config, "run:mine", resume=True, home=tmp_path),
        lambda: run(short, "run:mine", resume=True, **own),  # without the callback
        lambda: run(
            short,
            "run:mine",
            resume=True,
            **own | {"train_data": data.select(range(9))},
            callbacks=[seen],
        ),
    ):
        with pytest.raises(
            InputError, match="which no other process has: start or resume it there"
        ):
            refused()

    for file in (listed.folder / name for name in ("run.json", "config.json", "own.json")):
        before = file.read_bytes()
        for damage in (b"", b"[" * 100_000):
            file.write_bytes(damage)
            with pytest.raises(InputError, match=f"{file.name} is damaged"):
                run(short, "run:mine", resume=True, **own, callbacks=[seen])
            assert file.read_bytes() == damage
        file.write_bytes(before)

    resumed, _ = run(short, "run:mine", resume=True, **own, callbacks=[seen])
    assert curve(read_events(store.folder / "mine/events.jsonl")) == curve(whole)
    assert [figures["step"] for figures in resumed.evaluations] == [0, 2, 4]
    assert store.get("mine").state == "finished"
    assert [step for step, _ in seen.of("step")] == [1, 2, 3, 4]
    assert seen.of("evaluate") == [(0, (2, 32)), (2, (2, 32)), (4, (2, 32))]
    assert seen.of("checkpoint") == [True]
    assert seen.of("end") == ["stopped", "finished"]
    assert Encoder.load("run:mine", home=tmp_path).dimension == 32


def test_a_figure_of_an_evaluator_chooses_the_best_model(short, tmp_path):
    first_is_best.calls = 0  # type: ignore[attr-defined]
    own = {"evaluators": [first_is_best], "metric_for_best_model": "calls"}
    result, events = run(short, tmp_path / "r", **own, greater_is_better=False)
    assert [event["calls"] for event in of_kind(events, "eval")] == [1, 2, 3]
    assert [event["gap"] for event in of_kind(events, "eval")] == [None] * 3
    assert (result.metric, result.best["step"]) == ("calls", 2)
    assert repr(result).startswith("RunResult('r', finished after 4 steps in ")
    assert repr(result).endswith("s, calls 1.0000 → 2.0000)")
    html = result._repr_html_()
    assert html.count("<tr>") == 4


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"objective": lambda vectors, target: vectors[0]},
            r"the objective returns a tensor of shape \(16, 32\)",
        ),
        (
            {"objective": lambda vectors, target: vectors[0].detach().sum()},
            "does not depend on the vectors",
        ),
        (
            {"evaluators": [lambda encoder: {"loss": 1.0}]},
            "returns 'loss', which is measured already",
        ),
        (
            {"evaluators": [lambda encoder: {"figure": "high"}]},
            "returns 'high' as figure, which is no number",
        ),
        (
            {"metric_for_best_model": "recall"},
            "metric_for_best_model 'recall' is not measured; there are step,",
        ),
        ({"callbacks": [object()]}, "has none of on_step, on_evaluate, on_checkpoint, on_end"),
        ({"optimizer": "sgd"}, "'sgd' cannot be called"),
        (
            {"train_data": ["one", "two"]},
            "regression needs pairs with a score, but train_data holds sentences",
        ),
        ({"folder": "run:../mine"}, "cannot be a run's name"),
    ],
)
def test_objects_that_cannot_be_used_are_refused_in_one_sentence(short, own, message):
    with pytest.raises(InputError, match=message):
        train(short, lambda event: None, **{"folder": None} | own)


def test_a_fault_in_an_object_of_the_caller_is_raised_and_fails_the_run(short, tmp_path):
    def broken(encoder: Encoder) -> dict[str, float]:
        raise KeyError("queries")

    with pytest.raises(KeyError):
        run(short, "run:mine", evaluators=[broken], home=tmp_path)
    listed = RunStore(tmp_path).get("mine")
    assert (listed.state, listed.record.reason) == ("failed", "'queries'")


def test_own_weights_optimizer_and_schedule_resume_to_the_same_curve(short, tmp_path):
    objective = Scaled()
    own = {
        "optimizer": partial(torch.optim.SGD, lr=0.5, momentum=0.9),
        "schedule": lambda step, steps: 1 / (1 + step),
    }
    _, whole = run(short, tmp_path / "whole", objective=objective, **own)
    assert objective.scale.item() != 1.0
    own["objective"] = Scaled()
    assert [event["lr"] for event in of_kind(whole, "train")] == pytest.approx(
        [0.5, 0.25, 0.5 / 3, 0.125]
    )
    assert (
        "the optimizer is torch.optim.sgd:SGD" in (tmp_path / "whole/model/README.md").read_text()
    )
    own["callbacks"] = [Recorder(lambda: True)]
    assert run(short, tmp_path / "r", **own)[0].status == "stopped"
    run(short, tmp_path / "r", **own, resume=True)
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole)


def test_train_prints_a_line_for_each_evaluation(short, capsys):
    train(short.replace(max_steps=1), folder=None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("step")] == [
        ["step", "0"],
        ["step", "1"],
    ]
    assert not any("{" in line for line in lines)
    train(short.replace(max_steps=1), progress=False, folder=None)
    assert capsys.readouterr() == ("", "")
    train(short.replace(max_steps=1), lambda event: None, progress=True, folder=None)
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "running" and captured.out.splitlines()[-1] == "finished"
    assert "Training" in captured.err
