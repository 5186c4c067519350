"""`trainer/evaluator.py`: runs on pairs without a judgement; whether each held-out sentence finds its partner."""

from pathlib import Path

import numpy as np
import pytest
from run_helpers import curve, of_kind, run, stop_and_resume

from training import Encoder, RunConfig
from training.data.load import RetrievalData, load_data
from training.evaluation.retrieval import evaluate_retrieval, find_partners
from training.objectives.base import hold_out
from training.similarities import cosine
from training.trainer.events import read_events

STEPS = {
    "base": "scratch:1x32",
    "max_steps": 12,
    "eval_every": 4,
    "learning_rate": 1e-3,
    "dtype": "float32",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> str:
    """The alike pairs of STSb dev without their scores."""
    data = load_data("stsb:dev")
    alike = [row for row, score in enumerate(data.scores) if score >= 4][:200]
    rows = [f"{data.columns[0][row]}\t{data.columns[1][row]}" for row in alike]
    file = tmp_path_factory.mktemp("own") / "pairs.tsv"
    file.write_text("question\tparaphrase\n" + "\n".join(rows), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("objective", ["mnrl", "simcse"])
def test_own_pairs_are_judged_by_whether_sentences_find_their_partners(own, objective, tmp_path):
    config = RunConfig(objective, train_data=own, **STEPS)
    result, events = run(config, tmp_path / "run")
    evaluations = of_kind(events, "eval")
    assert result.metric == "mrr@10"
    _, held = hold_out(load_data(own), objective)
    first, second = ({text: text for text in column} for column in held.columns)
    partners = {
        text: [b for a, b in zip(*held.columns, strict=True) if a == text] for text in first
    }
    retrieval = RetrievalData.from_dicts(first, second, partners)
    best = Encoder.load(str(tmp_path / "run/model"), dtype="float32")
    expected = evaluate_retrieval(best, retrieval, cutoffs=(1, 10)).values
    assert result.best["mrr@10"] == pytest.approx(expected["mrr@10"].mean(), abs=1e-4)
    assert result.best["accuracy@1"] == pytest.approx(expected["mrr@1"].mean(), abs=1e-4)
    assert result.best["queries"] == len(held)
    assert result.best["mrr@10"] == max(event["mrr@10"] for event in evaluations if event["step"])
    assert "accuracy@1" in result.baseline and "changed" not in result.baseline
    assert "cosines" not in evaluations[0], "they are kept in the checkpoint alone"


@pytest.mark.slow
def test_the_pair_that_changed_most_is_named_also_after_a_resume(own, tmp_path):
    config = RunConfig("mnrl", train_data=own, **STEPS)
    result, _ = run(config, tmp_path / "whole")
    _, held = hold_out(load_data(own), "mnrl")
    models = (Encoder.load("scratch:1x32", dtype="float32"), result.encoder)
    before, after = (cosine(*(model.encode(column) for column in held.columns)) for model in models)
    row = int(np.abs(after - before).argmax())
    assert result.best["changed"] == [column[row] for column in held.columns]
    resumed = stop_and_resume(config, tmp_path / "resumed", 6)
    assert curve(resumed) == curve(read_events(tmp_path / "whole/events.jsonl"))


def test_of_equal_ranks_the_lower_loss_is_the_better_checkpoint(tmp_path):
    """Partners that share all words are found from the start: MRR cannot rise."""
    words = [f"word{i} thing{i} {chr(97 + i % 26) * 4}" for i in range(150)]
    file = Path(tmp_path, "same.tsv")
    file.write_text("a\tb\n" + "\n".join(f"{text}\t{text}." for text in words))
    result, events = run(
        RunConfig("mnrl", train_data=file, **STEPS | {"learning_rate": 1e-2}), tmp_path / "run"
    )
    later = [event for event in of_kind(events, "eval") if event["step"]]
    equal = [event for event in later if event["mrr@10"] == result.best["mrr@10"]]
    assert len(equal) > 1 and len({event["loss"] for event in equal}) > 1
    assert result.best["loss"] == min(event["loss"] for event in equal)


def test_any_partner_of_a_first_sentence_counts(own):
    pairs = load_data(own).select([0, 0, 1])
    pairs.columns[1][1] = "another partner"
    one, other, third = np.eye(3, dtype=np.float32)
    first = np.stack([one, one, other])
    assert find_partners(pairs, [first, np.stack([third, one, other])]) == {
        "accuracy@1": 1.0,
        "mrr@10": 1.0,
        "queries": 3,
    }
    crossed = np.stack([third, other, one + other / 2])
    assert find_partners(pairs, [first, crossed]) == {
        "accuracy@1": 0.0,
        "mrr@10": 0.5,
        "queries": 3,
    }
