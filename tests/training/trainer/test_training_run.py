"""`trainer/trainer.py`: the events and files of a run, evaluation, early stopping, several processes."""

import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from paths import ROOT
from run_helpers import curve, of_kind, run, stop_and_resume, stop_at
from safetensors.torch import load_file

from training import parallel
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.similarities import cosine
from training.trainer.config import RunConfig
from training.trainer.evaluator import Evaluator
from training.trainer.events import read_events
from training.trainer.train import train
from training.trainer.trainer import learning_rate


def test_the_events_of_a_run(config, tmp_path):
    result, events = run(config, tmp_path / "r1")
    states = of_kind(events, "state")
    assert [event["state"] for event in states] == ["running", "finished"]
    assert (states[0]["steps"], states[0]["rows"], states[0]["resumed_from"]) == (12, 162, None)
    assert states[0]["notes"][-1].startswith(
        "162 of 162 scored pairs of pairs.tsv are in the training data"
    )
    assert [event["step"] for event in of_kind(events, "eval")] == [0, 5, 10, 12]
    steps = of_kind(events, "train")
    assert [event["step"] for event in steps] == list(range(1, 13))
    assert {"loss", "lr", "epoch", "steps", "sentences_per_second", "seconds_left"} <= set(steps[0])
    assert steps[0]["lr"] == 0
    assert max(event["lr"] for event in steps) == pytest.approx(1e-3)
    measured = of_kind(events, "eval")[-1]
    assert {
        "spearman",
        "loss",
        "random_cosine",
        "plain_cosine",
        "uniformity",
        "alignment",
        "effective_rank",
    } <= set(measured)
    assert (result.status, result.steps, result.id) == ("finished", 12, "r1")
    assert result.best["spearman"] == max(
        e["spearman"] for e in of_kind(events, "eval") if e["step"] > 0
    )
    assert result.final["step"] == 12
    assert result.baseline["step"] == 0
    json.dumps(events)  # plain values only


@pytest.mark.parametrize(("patience", "ends_at"), [(1, 2), (2, 5), (None, 7)])
def test_patience_ends_a_run_early_without_a_better_figure(
    config, tmp_path, monkeypatch, patience, ends_at
):
    """Of the evaluations at steps 0 to 7 those at 1 and 3 are the best so far; a run of 7 steps has no more."""
    figures = [0.9, 0.6, 0.5, 0.7, 0.6, 0.65, 0.6, 0.6]
    monkeypatch.setattr(Evaluator, "measure", lambda *_: {"spearman": figures.pop(0)})
    config = config.replace(patience=patience, eval_every=1, max_steps=7)
    events: list = []
    result = train(config, events.append, tmp_path / "r1", should_stop=stop_at(2, events))
    while result.status == "stopped":
        result = train(config, events.append, tmp_path / "r1", resume=True)
    assert (result.status, result.steps) == ("finished", ends_at)
    early = ends_at < config.max_steps
    assert result.reason == (f"no better figure in {patience} evaluations" if early else None)
    assert events[-1]["reason"] == result.reason
    assert result.best["step"] == (1 if patience == 1 else 3)


def test_what_was_chosen_on_dev_is_measured_on_test(config, tmp_path):
    result, events = run(config.replace(eval_data="stsb:dev", max_steps=2), tmp_path / "r1")
    card = (tmp_path / "r1/model/README.md").read_text()
    assert "of the checkpoint that was best on stsb:dev" in card
    expected = evaluate(Encoder.load(result.path, dtype="float32"), "stsb:test")["spearman"][
        "cosine"
    ]
    assert (result.test["data"], result.test["step"]) == ("stsb:test", 2)
    assert result.test["spearman"] == pytest.approx(expected, abs=1e-9)
    assert [event["spearman"] for event in of_kind(events, "test")] == [result.test["spearman"]]
    assert f"on stsb:test | – | {100 * expected:.2f} |" in card


def test_the_saved_model_is_the_best_one_and_opens_elsewhere(config, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "r1"
    result, events = run(config, folder)
    assert RunConfig.model_validate_json((folder / "config.json").read_text()) == config
    assert read_events(folder / "events.jsonl") == events
    assert not (folder / "checkpoint").exists()
    assert result.path == str(folder / "model") and result.test is None
    card = (folder / "model/README.md").read_text()
    assert "regression: (cos(u, v) − gold)²" in card
    assert "| Spearman ρ ×100 |" in card and "of the checkpoint that was best on pairs.tsv" in card
    assert not list(folder.rglob("*.bin")) + list(folder.rglob("*.pt"))  # no pickle anywhere
    saved = Encoder.load(result.path, dtype="float32")
    again = evaluate(saved, load_data(config.train_data))
    assert again["spearman"]["cosine"] == pytest.approx(result.best["spearman"], abs=1e-6)
    sentences = ["A man plays a guitar.", "Nobody is there."]
    theirs = sentence_transformers.SentenceTransformer(result.path, device="cpu").encode(sentences)
    assert np.allclose(saved.encode(sentences, normalize=None), theirs, atol=1e-5)


def test_a_wall_clock_that_jumps_changes_no_durations(config, tmp_path, monkeypatch):
    jumps = itertools.cycle([0.0, 86_400.0, -86_400.0, 1e9])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + next(jumps))
    result, events = run(config, tmp_path / "jumping")
    assert result.status == "finished"
    assert all(0 < event["sentences_per_second"] < 1e6 for event in of_kind(events, "train"))
    assert all(
        0 <= (event["seconds_left"] or 0) < 600 for event in events if "seconds_left" in event
    )
    assert all(0 <= event["seconds"] < 600 for event in of_kind(events, "eval"))


def test_a_resumed_run_keeps_its_micro_batches_on_another_number_of_cores(
    config, tmp_path, monkeypatch
):
    monkeypatch.setattr(parallel, "num_threads", lambda: 2)
    _, whole = run(config)
    events: list[dict] = []
    train(config, events.append, tmp_path / "r", stop_at(5, events))
    monkeypatch.setattr(parallel, "num_threads", lambda: 1)
    _, resumed = run(config, tmp_path / "r", resume=True)
    assert resumed[0]["micro_batches"] == whole[0]["micro_batches"] == 2
    assert curve(read_events(tmp_path / "r/events.jsonl")) == curve(whole)


def test_bfloat16_learns_with_float32_weights(config, tmp_path):
    result, events = run(
        config.replace(dtype="bfloat16", max_steps=20, eval_every=20), tmp_path / "r"
    )
    assert events[0]["dtype"] == "bfloat16"
    assert result.final["loss"] < result.baseline["loss"]
    weights = load_file(tmp_path / "r/model/model.safetensors")
    assert all(weight.dtype == torch.float32 for weight in weights.values())


def test_a_run_can_start_from_the_best_model_of_another(config, home):
    first, _ = run(config, home / "runs/first")
    second, _ = run(
        config.replace(base="run:first", max_steps=2, eval_every=2), home / "runs/second"
    )
    assert second.baseline["spearman"] == pytest.approx(first.best["spearman"], abs=1e-6)


def test_a_collapse_is_reported(config, tmp_path):
    """All gold scores are 5: giving every sentence the same vector minimises the loss."""
    path = tmp_path / "same.tsv"
    texts = load_data(config.train_data).columns
    path.write_text(
        "sentence1\tsentence2\tscore\n"
        + "".join(f"{a}\t{b}\t5\n" for a, b in zip(*texts, strict=True)),
        encoding="utf-8",
    )
    _, events = run(
        config.replace(train_data=str(path), max_steps=60, eval_every=60, learning_rate=1e-2)
    )
    assert (
        "random pairs of the training data have a mean cosine of"
        in of_kind(events, "eval")[-1]["collapsed"]
    )


def test_max_length_and_patience_are_checked(config):
    assert run(config.replace(max_steps=1, max_length=6))[0].status == "finished"
    with pytest.raises(
        InputError, match=r"max_length is 5000, but scratch:1x32 takes \d+ tokens at most"
    ):
        run(config.replace(max_length=5000))
    with pytest.raises(
        InputError, match="patience waits for a better figure on dev data; name some"
    ):
        RunConfig("mnrl", eval_data=None, patience=3)


def test_gradient_accumulation_makes_three_batches_one_step(config, tmp_path):
    """Of 11 batches an epoch three make a step; the curve is that of a run that is stopped and resumed."""
    config = config.replace(
        gradient_accumulation_steps=3, max_steps=None, epochs=3, weight_decay=0.01
    )
    result, events = run(config)
    trained = of_kind(events, "train")
    assert result.steps == 11 and trained[-1]["epoch"] == pytest.approx(3.0)
    assert of_kind(events, "eval")[-1]["loss"] < of_kind(events, "eval")[0]["loss"]
    assert curve(stop_and_resume(config, tmp_path / "run", 4)) == curve(events)


def test_each_column_has_its_prompt(config, tmp_path):
    prompts = {"query_prompt": "query: ", "document_prompt": "passage: "}
    result, events = run(config.replace(**prompts), tmp_path / "run")
    model = Encoder.load(result.path, dtype="float32", device="cpu")
    assert model.prompts == {"query": "query: ", "document": "passage: "} and model.prompt == ""
    data = load_data(config.eval_data)
    sides = model.encode_query(data.columns[0]), model.encode_document(data.columns[1])
    assert result.best["spearman"] == pytest.approx(
        spearman(cosine(*sides), np.array(data.scores)), abs=1e-6
    )
    written = [
        [text + each for each in column]
        for text, column in zip(prompts.values(), data.columns, strict=True)
    ]
    as_text = train(
        config,
        lambda _: None,
        train_data=(own := Dataset.from_pairs(*written, data.scores)),
        eval_data=own,
    )
    assert [e["loss"] for e in as_text.evaluations] == pytest.approx(
        [e["loss"] for e in of_kind(events, "eval")], abs=1e-6
    )
    with pytest.raises(InputError, match="leave out pooling, matryoshka_dims and prompts"):
        RunConfig("cross-encoder", **prompts)


def test_retrieval_chooses_the_best_model(config, tmp_path):
    """By nDCG@10 of the first sentence of each pair that belongs together, among all second ones."""
    data = load_data(config.train_data)
    judged = tmp_path / "judged.jsonl"
    rows = zip(*data.columns, data.scores, strict=True)
    found = [{"query": a, "document": b, "relevance": int(score >= 4)} for a, b, score in rows]
    judged.write_text("".join(json.dumps(row) + "\n" for row in found))
    result, _ = run(config.replace(eval_data=f"beir:{judged}", eval_every=4), tmp_path / "run")
    assert result.metric == "ndcg@10"
    assert result.best["ndcg@10"] == max(
        each["ndcg@10"] for each in result.evaluations if each["step"]
    )
    model = Encoder.load(result.path, dtype="float32", device="cpu")
    measured = evaluate(model, f"beir:{judged}")
    for name in ("ndcg@10", "mrr@10", "recall@10"):
        assert result.best[name] == pytest.approx(measured[name], abs=1e-6)
    with pytest.raises(InputError, match="cross-encoder is evaluated on pairs"):
        config.replace(objective="cross-encoder", eval_data="beir:stsb:dev")


def test_without_eval_data_random_pairs_are_still_measured(config, tmp_path):
    result, events = run(config.replace(eval_data=None), tmp_path / "r")
    assert "spearman" not in of_kind(events, "eval")[-1]
    assert of_kind(events, "eval")[-1]["random_cosine"] is not None
    # Without a selection metric the last model is kept, and no evaluation is called the best.
    assert result.best["step"] == 12
    assert not any(event["best"] for event in of_kind(events, "eval"))
    assert (tmp_path / "r/model/model.safetensors").exists()


@pytest.mark.parametrize("objective", ["regression", "cross-encoder"])
def test_a_correlation_with_equal_gold_scores_is_undefined(config, tmp_path, capsys, objective):
    """The loss chooses the best model in its place."""
    data = load_data(config.eval_data)
    equal = Dataset.from_pairs(*data.columns, [4.0] * len(data))
    config = config.replace(
        objective=objective, **({"matryoshka_dims": (8,)} if objective == "regression" else {})
    )
    result = train(config, folder=tmp_path / "run", eval_data=equal, progress=True)
    events = of_kind(read_events(tmp_path / "run/events.jsonl"), "eval")
    assert {event["undefined"] for event in events} == {"undefined: all gold scores are equal"}
    assert {event["spearman"] for event in events} == {None}
    assert result.metric == "loss"
    assert result.best["loss"] == min(event["loss"] for event in events if event["step"])
    printed = "".join(capsys.readouterr())
    assert "spearman undefined: all gold scores are equal" in printed and "nan" not in printed
    card = (tmp_path / "run/model/README.md").read_text()
    assert "Spearman’s ρ is undefined: all gold scores are equal." in card and "nan" not in card
    json.dumps([result.best, result.final], allow_nan=False)


def test_an_evaluation_without_a_correlation_is_worse_than_one_with_it(
    config, tmp_path, monkeypatch
):
    figures = [{"loss": 9.0}, {"loss": 0.3}, {"spearman": 0.5, "loss": 0.4}, {"loss": 0.2}]
    monkeypatch.setattr(Evaluator, "measure", lambda *_: {"spearman": None, **figures.pop(0)})
    result, _ = run(config.replace(eval_every=1, max_steps=3), tmp_path / "run")
    assert (result.best["step"], result.metric) == (2, "spearman")


def test_triplets_are_evaluated_by_accuracy(config, tmp_path):
    """An anchor is nearest to itself under any weights: three triplets of four are right."""
    triplets = tmp_path / "t.csv"
    right = "a cat,a cat,tax law\nsnow,snow,a violin\na dog,a dog,the sea\n"
    triplets.write_text("anchor,positive,negative\n" + (right + "a house,the moon,a house\n") * 4)
    result, events = run(
        config.replace(objective="triplet", train_data=str(triplets), eval_data=str(triplets))
    )
    assert {event["accuracy"] for event in of_kind(events, "eval")} == {0.75}
    losses = {event["step"]: event["loss"] for event in of_kind(events, "eval") if event["step"]}
    assert result.best["step"] == min(losses, key=losses.__getitem__), (
        "of equal ones the lower loss decides"
    )


TRAIN_AND_SAVE = """
import sys
from pathlib import Path
from safetensors.torch import save_file
from training.trainer.config import RunConfig
from training.trainer.train import train
from training.trainer.trainer import learning_rate
from training.trainer.trainer import Trainer

outcome = Trainer.outcome

def saving(self):
    weights = {name: weight.detach().clone() for name, weight in self.model.named_parameters() if weight.requires_grad}
    save_file(weights, Path(sys.argv[2]).parent / f"{self.accelerator.process_index}.safetensors")
    return outcome(self)

Trainer.outcome = saving
result = train(RunConfig.model_validate_json(sys.argv[1]), on_event=lambda event: None, folder=sys.argv[2])
assert result.status == "finished", result
"""


def run_in_two_processes(code: str, config: RunConfig, folder: Path) -> None:
    """Runs Python code with a config and the folder of a run, as `accelerate launch` would."""
    script = folder / "script.py"
    script.write_text(code)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "1",
    }
    subprocess.run(
        [sys.executable, *launcher, str(script), config.to_json(), str(folder / "r")],
        check=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        timeout=300,
    )


@pytest.mark.slow
def test_two_processes_train_one_model(config, tmp_path):
    """Half of the steps, gradients averaged, one folder."""
    config = config.replace(max_steps=None, epochs=1, eval_every=None)
    run_in_two_processes(TRAIN_AND_SAVE, config, tmp_path)
    # Each process sees other rows, so the weights are equal only if the gradients are averaged in
    # every step.
    one, two = (load_file(tmp_path / f"{process}.safetensors") for process in range(2))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    events = read_events(tmp_path / "r/events.jsonl")
    assert (events[0]["processes"], events[0]["steps"]) == (2, 6)  # half of ceil(162 / 16)
    # Written by one process.
    assert [event["step"] for event in of_kind(events, "train")] == [1, 2, 3, 4, 5, 6]
    assert of_kind(events, "eval")[-1]["loss"] < of_kind(events, "eval")[0]["loss"]


STOP_AND_RESUME = """
import sys
from training.trainer.config import RunConfig
from training.trainer.evaluator import Evaluator
from training.trainer.train import train

# The run is stopped after step 1. The resumed run is better at the steps 2 and 3, and not after them.
losses = iter([9.0, 8.0, 7.0, 6.0, 6.0, 6.0, 6.0])
Evaluator.measure = lambda *_: {"loss": next(losses)}
config = RunConfig.model_validate_json(sys.argv[1])
evaluated = []

def on_event(event):
    if event["kind"] == "eval":
        evaluated.append(event["step"])

stopped = train(config, on_event, sys.argv[2], should_stop=lambda: 1 in evaluated)
assert stopped.status == "stopped", stopped
train(config, on_event, sys.argv[2], resume=True)
"""


@pytest.mark.slow
def test_only_the_main_process_of_a_resumed_run_judges_patience(config, tmp_path):
    """The other processes do not evaluate. For them the best figure is still the checkpoint's."""
    config = config.replace(max_steps=6, eval_every=1, patience=2)
    run_in_two_processes(STOP_AND_RESUME, config, tmp_path)
    events = read_events(tmp_path / "r/events.jsonl")
    assert [event["step"] for event in of_kind(events, "eval")] == [0, 1, 2, 3, 4, 5]
    assert events[-1]["reason"] == "no better figure in 2 evaluations"


@pytest.mark.parametrize(("total", "warmup"), [(7, 0.1), (1, 0.1), (50, 0.0), (10, 1.0)])
def test_the_learning_rate_schedule_and_warmup_equal_transformers(total, warmup):
    from transformers import get_linear_schedule_with_warmup

    adam = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=2e-5)
    scheduler = get_linear_schedule_with_warmup(adam, math.ceil(total * warmup), total)
    for step in range(total):
        assert learning_rate(step, total, 2e-5, warmup) == pytest.approx(scheduler.get_last_lr()[0])
        adam.step()
        scheduler.step()
