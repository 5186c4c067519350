"""The command line: what goes in, what comes out on which stream, and with which exit code."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import SENTENCES, Run, read_csv
from paths import ROOT, linked_home

from sbert_app import cli
from sbert_app.commands import options
from sbert_app.services.runs.execution import PROCESS_ENDED
from sbert_app.settings import Settings
from training.errors import StoppedError


def left_over(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} - {"pairs.csv", "sentences.jsonl", "home"}


def test_encode_writes_rows_in_input_order(run: Run, folder: Path, model: Path):
    from training.models.encoder import Encoder

    said = run(
        "encode", "sentences.jsonl", "out.npy", "--model", model, "--dtype", "float32", "--json"
    ).json
    vectors = np.load(folder / "out.npy", mmap_mode="r")
    assert (vectors.dtype, vectors.shape) == (np.float32, (5, 32))
    expected = Encoder.load(str(model), dtype="float32").encode(SENTENCES)
    expected[2] = np.nan  # a row without text has no vector
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    counted = {
        key: said[key]
        for key in ("rows", "missing_text", "truncated", "dimension", "column", "pooling")
    }
    assert counted == {
        "rows": 5, "missing_text": 1, "truncated": 1, "dimension": 32, "column": "sentence", "pooling": "mean"
    }  # fmt: skip
    assert left_over(folder) == {"out.npy"}


def test_encode_takes_a_column_and_the_settings_of_a_model(run: Run, folder: Path, model: Path):
    from training.models.encoder import Encoder

    settings = ("--dim", "8", "--prompt", "the ", "--pooling", "max", "--no-normalize")
    run("encode", "pairs.csv", "out.npy", "--columns", "sentence2", "--model", model, *settings)
    encoder = Encoder.load(f"{model}?dim=8&prompt=the+", "max")
    expected = encoder.encode(["a man", "a dog", "on a guitar"], normalize=False)
    np.testing.assert_allclose(np.load(folder / "out.npy"), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 9, 10, 99, 20_000])
def test_the_header_of_a_npy_file_has_room_for_any_number_of_rows(tmp_path: Path, rows: int):
    from sbert_app.services.files.writers import NpyWriter
    from training.data.tables.rows import RowBatch

    file = NpyWriter(tmp_path / "x.npy", [], {"embedding": 3})
    vectors = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    for part in np.array_split(vectors, 3):
        file.write(RowBatch(1, {}), {"embedding": part})
    file.finish()
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), vectors)


def test_score_adds_columns_and_keeps_the_rest(run: Run, folder: Path, model: Path):
    said = run("score", "pairs.csv", "scored.csv", "--model", model, "--json").json
    assert (said["rows"], said["scored"], said["report"]["cosine_gold"]["n"]) == (3, 3, 3)
    figures = {"mean", "sampled", "cosine_gold", "cross_gold", "cosine_cross", "decision"}
    assert said["report"].keys() == figures, "neither histograms nor rows"
    assert "missing" not in said["gold"]
    rows = read_csv(folder / "scored.csv")
    assert list(rows[0]) == ["sentence1", "sentence2", "score", "cosine", "note"]
    assert [row["sentence1"] for row in rows] == ["the man", "the cat", "the cat is in the food"]
    assert all(-1 <= float(row["cosine"]) <= 1 for row in rows)
    assert left_over(folder) == {"scored.csv"}
    in_words = run(
        "score", "pairs.csv", "scored.parquet", "--model", model, "--columns", "sentence2,sentence1"
    )
    assert "3 rows: 3 scored" in in_words.out


def test_score_and_evaluate_choose_a_threshold(run: Run, folder: Path, model: Path):
    rows = "".join(f"the man {i},the man {i},1\nthe cat {i},a dog sleeps,0\n" for i in range(8))
    (folder / "labelled.csv").write_text(f"sentence1,sentence2,label\n{rows}")
    score = ("score", "labelled.csv", "matched.csv", "--model", model)
    lists = ("--groups", "groups.csv", "--deduplicated", "rest.csv")
    scored = run(*score, "--threshold", "best-f1", *lists, "--json").json
    assert (scored["matches"]["pairs"], scored["matches"]["matches"]) == (16, 8)
    assert scored["report"]["decision"]["choices"][0]["criterion"] == "best-f1"
    assert [row["match"] for row in read_csv(folder / "matched.csv")] == ["true", "false"] * 8
    assert len(read_csv(folder / "rest.csv")) == scored["matches"]["remaining"]
    assert "of duplicates among" in run(*score, "--threshold", "0.99").out
    assert not list(folder.glob(".sbert-lab-*")), "the scores in between"

    evaluate = (
        "evaluate",
        "--data",
        "labelled.csv",
        "--model",
        model,
        "--threshold",
        "best-f1,precision=0.9,2",
    )
    report = run(*evaluate, "--json").json
    assert (report["n"], report["matches"], report["match"]) == (16, 8, "1 is a match, 0 is not")
    assert [choice.get("criterion") for choice in report["choices"]][::3] == ["best-f1", "2"]
    assert report["choices"][0]["f1"]["value"] == 1.0
    assert "chosen on 8 pairs, measured on the other 8: precision" in run(*evaluate).out
    match_from = ("--threshold", "best-f1", "--match-from", "3")
    text = run("evaluate", "--data", "pairs.csv", "--model", model, *match_from).out
    assert "a gold score of at least 3 (of 5) is a match" in text


def test_threshold_chooses_a_cosine_and_carries_over_an_old_threshold(
    run: Run, folder: Path, model: Path
):
    rows = "".join(f"the man {i},the man {i},1\nthe cat {i},a dog sleeps,0\n" for i in range(8))
    (folder / "labelled.csv").write_text(f"sentence1,sentence2,label\n{rows}")
    command = (
        "threshold",
        "--model",
        model,
        "--was",
        "tfidf@0.9",
        "--data",
        "labelled.csv",
        "--precision",
        "0.6",
    )
    text = run(*command, "--figure", "threshold.html").out
    assert "precision=0.6: cosine from" in text
    assert "0.9 under TF-IDF accepts 50.0% of these pairs, of which 100% match" in text
    assert "<html" in (folder / "threshold.html").read_text(encoding="utf-8")
    answer = run(*command, "--json").json
    assert answer["was"] == {"model": "tfidf", "threshold": 0.9}
    assert answer["carried"]["accepted"] == 0.5
    assert [choice["criterion"] for choice in answer["choices"]] == ["precision=0.6", "best-f1"]
    assert "must be a model and its threshold" in run("threshold", "--was", "tfidf").complaint


def test_evaluate_answers_in_json_or_words(run: Run, folder: Path, model: Path, home: Path):
    said = run(
        "evaluate", "--data", "pairs.csv", "--model", model, "--pooling", "max", "--json"
    ).json
    assert {"model", "pooling", "data", "n", "spearman", "pearson", "seconds"} <= set(said)
    assert (said["pooling"], said["n"]) == ("max", 3)
    assert (
        set(said["spearman"]) == set(said["pearson"]) == {"cosine", "dot", "euclidean", "manhattan"}
    )
    assert all(-1 <= value <= 1 for value in said["spearman"].values())
    words = run("evaluate", "--data", "pairs.csv", "--model", model).out
    assert "Spearman ρ ×100" in words and "95% interval" in words
    default = run("evaluate", "--data", "pairs.csv", "--home", home, "--json").json
    assert (default["model"], default["pooling"], default["n"]) == ("all-MiniLM-L6-v2", "mean", 3)
    (folder / "same.csv").write_text(
        "sentence1,sentence2,score\nthe man,a man,3\nthe cat,a dog,3\n"
    )
    assert (
        run("evaluate", "--data", "same.csv", "--model", model, "--json").json["spearman"]["cosine"]
        is None
    )


def test_evaluate_calibrates_and_checks_on_other_pairs(
    run: Run, folder: Path, model: Path, tmp_path: Path
):
    for name, start in (("fit.csv", 0), ("other.csv", 40)):
        rows = "".join(f"the man {i},a dog {i % 7},{i % 6}\n" for i in range(start, start + 60))
        (folder / name).write_text(f"sentence1,sentence2,score\n{rows}")
    asked = ("evaluate", "--data", "fit.csv", "--model", model, "--home", tmp_path)
    said = run(*asked, "--calibrate", "other.csv", "--json").json
    check = said["check"]
    assert (check["fitted_on"], check["pairs"], check["left_out"]) == ("fit.csv", 40, 20)
    assert 0 <= check["interval"]["low"] <= check["coverage"] <= 1
    assert list((tmp_path / "calibration" / "own").glob("*.json")) == [Path(said["file"])]
    again = run(*asked, "--calibrate", "fit.csv")
    assert (again.code, "has 0 pairs that the calibration was not fitted on" in again.err) == (
        2,
        True,
    )


def test_evaluate_measures_retrieval(run: Run, folder: Path):
    (folder / "set/qrels").mkdir(parents=True)
    for name, texts in {
        "corpus": ["the man", "a cat", "a dog"],
        "queries": ["cat", "dog", "food"],
    }.items():
        rows = [json.dumps({"_id": f"{name[0]}{i}", "text": text}) for i, text in enumerate(texts)]
        (folder / f"set/{name}.jsonl").write_text("\n".join(rows))
    (folder / "set/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tc1\t1\nq1\tc2\t1\n")
    said = run("evaluate", "--data", "beir:set", "--model", "bm25", "--json")
    assert (said.json["ndcg@10"], said.json["mrr@10"], said.json["recall@10"]) == (1.0, 1.0, 1.0)
    assert said.json["intervals"]["ndcg@10"] == {"low": 1.0, "high": 1.0}
    assert "set: 1 queries without a relevant document are left out" in said.err
    assert (
        "recall@100    100.00   (95% 100.00 to 100.00)"
        in run("evaluate", "--data", "beir:set:test", "--model", "bm25").out
    )
    for wrong in (("--threshold", "best-f1"), ("--model", "minilm-stsb"), ("--data", "beir:no")):
        assert run("evaluate", "--data", "beir:set", *wrong).code == cli.WRONG_INPUT


def test_several_seeds_are_summed_up(run: Run, folder: Path, home: Path):
    at = ("--home", folder / "home")
    linked_home(home, folder / "home")
    what = (
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--train-data",
        "pairs.csv",
        "--name",
        "mine",
    )
    more = ("--eval-data", "pairs.csv", "--max-steps", 1, "--batch-size", 2)
    said = run("train", *what, *more, "--seeds", "0-1", *at, "--json").json
    runs = [run("runs", "show", name, *at, "--json").json for name in said["runs"].values()]
    assert [each["config"]["seed"] for each in runs] == [0, 1]
    best = [100 * each["best"]["spearman"] for each in runs]
    assert said["best"]["mean"] == pytest.approx(sum(best) / 2)
    assert (said["state"], said["best"]["n"], said["test"]) == ("finished", 2, None)
    assert "leave out --seed" in run("train", *what, "--seeds", "0-1", "--seed", 1, *at).complaint
    assert "such as 0-4" in run("train", *what, *more, "--seeds", "many", *at).complaint


def test_a_run_from_training_to_deletion(run: Run, folder: Path, home: Path):
    at = ("--home", folder / "home")
    linked_home(home, folder / "home")
    what = ("--objective", "regression", "--base", "scratch:1x32", "--train-data", "pairs.csv")
    said = run(
        "train",
        *what,
        "--eval-data",
        "pairs.csv",
        "--max-steps",
        3,
        "--batch-size",
        2,
        *at,
        "--json",
    ).json
    assert (said["status"], said["steps"]) == ("finished", 3)
    assert set(said["best"]) >= {"step", "spearman"}
    assert Path(said["path"]).is_dir()
    name = said["id"]

    [listed] = run("runs", "list", *at, "--json").json["runs"]
    assert (listed["id"], listed["state"], listed["config"]["base"]) == (
        name,
        "finished",
        "scratch:1x32",
    )
    assert run("runs", *at, "--json").json == run("runs", "list", *at, "--json").json
    assert name in run("runs", "list", *at).out
    shown = run("runs", "show", name, *at).out
    assert "scratch:1x32" in shown
    settings = shown.partition("\nlog:")[0].splitlines()[1:]
    # Paths are as long as they are.
    assert all(len(line) <= 80 or "/" in line for line in settings)
    assert all(len(line.split()) > 1 for line in settings)
    assert "contrastive_margin" not in shown, "a setting of other objectives"

    assert run("runs", "export", name, "exported", *at, "--json").json["path"] == str(
        folder / "exported"
    )
    by_folder = run("evaluate", "--model", "exported", "--data", "pairs.csv", "--json").json
    by_id = run("evaluate", "--model", f"run:{name}", "--data", "pairs.csv", *at, "--json").json
    assert by_folder["spearman"] == by_id["spearman"]
    # The data that it was trained on.
    assert by_id["overlap"]["equal"] == by_id["overlap"]["rows"] == by_id["n"]
    assert "overlap" not in by_folder  # of which that is not known

    for refused in ("stop", "resume"):
        assert run("runs", refused, name, *at).code == cli.WRONG_INPUT
    assert "is finished" in run("train", "--resume", name, *at).complaint
    assert run("runs", "delete", name, "--yes", *at, "--json").json == {"id": name, "deleted": True}
    assert run("runs", "list", *at, "--json").json == {"runs": []}


def test_the_list_of_runs_says_where_older_ones_begin_unless_there_are_none(
    run: Run, tmp_path: Path
):
    from sbert_app.services.runs.store import RunStore
    from training.trainer.config import RunConfig

    store = RunStore(tmp_path)
    for _ in range(4):
        store.create(RunConfig("regression"))
    second = store.list()[1].id
    page = ("runs", "list", "--home", tmp_path, "--limit", 2)
    assert f"4 runs in all; older ones: --cursor {second}" in run(*page).out
    assert "older ones" not in run(*page, "--cursor", second).out


def test_home_and_json_before_a_command_of_runs_hold_for_the_command(run: Run, tmp_path: Path):
    from sbert_app.services.runs.store import RunStore
    from training.trainer.config import RunConfig

    here, elsewhere = (
        RunStore(tmp_path / name).create(RunConfig("regression")) for name in ("here", "elsewhere")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SBERT_HOME", str(tmp_path / "here"))
        assert [one["id"] for one in run("runs", "--json", "list").json["runs"]] == [here.id]
        assert elsewhere.id in run("runs", "--home", tmp_path / "elsewhere", "list").out
        assert (
            run("runs", "--home", tmp_path / "none", "delete", here.id, "--yes").code
            == cli.WRONG_INPUT
        )
        assert here.folder.is_dir(), "another home was named: nothing is deleted in the default one"
        both = run(
            "runs", "--home", tmp_path / "none", "list", "--home", tmp_path / "elsewhere", "--json"
        ).json
        assert [one["id"] for one in both["runs"]] == [elsewhere.id], (
            "the option nearest to the command counts"
        )


def test_evaluate_says_how_a_file_was_understood(run: Run, folder: Path):
    rows = "".join(f"Кот номер {i} спит.,Кошка {i} дремлет.,{i % 6}\n" for i in range(12))
    (folder / "old.csv").write_text("sentence1,sentence2,score\n" + rows, encoding="koi8-r")
    asked = ("evaluate", "--data", "old.csv", "--model", "tfidf", "--json")
    assert "old.csv: The text is not UTF-8; it is read as" in run(*asked).err
    assert "not UTF-8" not in run(*asked, "--encoding", "koi8-r").err


def test_training_on_data_that_does_not_suit_leaves_no_run(run: Run, folder: Path):
    (folder / "plain.csv").write_text("sentence1,sentence2\nthe man,a man\nthe cat,a dog\n")
    at = ("--home", folder / "home")
    said = run(
        "train",
        "--objective",
        "classification",
        "--train-data",
        "plain.csv",
        "--eval-data",
        "none",
        *at,
    )
    assert said.code == cli.WRONG_INPUT
    assert "plain.csv holds pairs" in said.complaint
    assert run("runs", "list", *at, "--json").json == {"runs": []}


def test_train_resume_takes_no_settings(run: Run, folder: Path):
    said = run("train", "--resume", "some-run", "--lr", "1e-3", "--seed", "3", "--home", folder)
    assert (said.code, "leave out learning_rate, seed" in said.complaint) == (cli.WRONG_INPUT, True)


def test_mined_negatives_are_shown_without_or_before_training(run: Run, folder: Path, home: Path):
    from training.data.load import load_data
    from training.objectives.ranking import MultipleNegativesRanking

    linked_home(home, folder / "home")
    data = MultipleNegativesRanking.transform(load_data("stsb:dev"))
    rows = [f"{a}\t{b}" for a, b in zip(*data.columns, strict=True)][:80]
    (folder / "together.tsv").write_text(
        "\n".join(["sentence1\tsentence2", *rows]) + "\n", encoding="utf-8"
    )
    at = (
        "--home",
        folder / "home",
        "--base",
        "scratch:1x32",
        "--train-data",
        "together.tsv",
        "--eval-data",
        "none",
    )
    found = run("train", "--objective", "mnrl", "--mine-negatives", "--preview", *at, "--json").json
    assert len(found["triplets"]) == 12
    assert all(
        each["negative_cosine"] <= 0.95 * each["positive_cosine"] + 1e-6
        for each in found["triplets"]
    )
    assert found["rows"] <= 80
    assert run("runs", "list", "--home", folder / "home", "--json").json == {"runs": []}
    trained = run(
        "train", "--objective", "mnrl", "--mine-negatives", "--max-steps", 2, *at, "--json"
    )
    assert trained.json["status"] == "finished"
    assert trained.err.count("negative  ") == 5


def test_several_data_sets_are_named_with_an_objective_each(run: Run, folder: Path):
    names = (
        "--train-data",
        "pairs.csv=cosent",
        "--train-data",
        "pairs.csv=regression",
        "--mix",
        "round-robin",
    )
    at = ("--home", folder / "home", "--base", "scratch:1x32", "--eval-data", "none")
    run_id = run("train", *names, *at, "--no-start", "--json").json["id"]
    config = json.loads((folder / "home/runs" / run_id / "config.json").read_text())
    file = folder / "pairs.csv"
    assert (config["objective"], config["mix"]) == ("cosent", "round-robin")
    assert config["train_data"] == f"{file}=cosent+{file}=regression"


def test_a_run_that_fails_is_exit_1_with_its_reason(
    run: Run, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    from training.trainer.trainer import Trainer

    def too_much(_: Trainer) -> None:
        raise MemoryError

    monkeypatch.setattr(Trainer, "run", too_much)
    linked_home(home, folder / "home")
    what = (
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--train-data",
        "pairs.csv",
        "--eval-data",
        "none",
    )
    said = run("train", *what, "--home", folder / "home", "--json")
    assert (said.code, json.loads(said.out)["status"]) == (cli.BROKEN, "failed")
    assert said.err.splitlines()[-1].startswith("error: run ")
    assert "not enough memory" in said.err.splitlines()[-1]


WRONG: dict[str, tuple[str, str]] = {
    "no such command": ("frobnicate", "No such command"),
    "an argument is missing": ("encode pairs.csv", "Missing argument 'OUT'"),
    "no such file": ("encode no.csv out.npy", "no.csv"),
    "a folder in place of a file": ("encode . out.npy", "not a file"),
    "no column of sentences": ("encode pairs3.csv out.npy", "a, b, c"),
    "an output of no known kind": (
        "encode pairs.csv out.txt --columns score",
        ".npy, .jsonl, .parquet",
    ),
    "an output that is the input": ("encode in.parquet in.parquet", "in.parquet"),
    "no such device": ("encode sentences.jsonl out.npy --device abacus", "cannot be used"),
    "no such model": ("encode sentences.jsonl out.npy --model no-such-model", "no-such-model"),
    "a home that is a file": ("encode sentences.jsonl out.npy --home pairs.csv", "is a file"),
    "score onto itself": ("score pairs.csv pairs.csv --model MODEL", "the input itself"),
    "no such data": ("evaluate --data zork", "the sets are stsb"),
    "train without an objective": ("train", "needs an objective"),
    "no such objective": (
        "train --objective zork",
        "choose classification, regression, cosent, angle",
    ),
    "no such run to resume": ("train --resume nobody", "there is no run 'nobody'"),
    "a run outside the home": ("runs delete ../../etc --yes", "there is no run"),
    "export to no known kind": ("export sentences.jsonl out.csv", "has to end with .parquet"),
    "export fewer than no clusters": (
        "export sentences.jsonl out.parquet --clusters -1",
        "--clusters",
    ),
    "groups without a threshold": (
        "score plain.csv out.csv --groups groups.csv",
        "need --threshold",
    ),
    "no such threshold": ("score plain.csv out.csv --threshold f2", "must be best-f1"),
    "an encoding of no file": (
        "evaluate --data stsb:dev --encoding koi8-r",
        "--encoding is an option for files",
    ),
    "columns of no file": (
        "search stsb:dev cat --columns text",
        "--columns is an option for files",
    ),
    "a sentence that begins as options do": (
        "compare '-5 degrees' cold",
        "No such option: -5; put -- before a sentence",
    ),
    "a scale of sentences": ("search plain.csv?scale=1-7 cat", "?scale= is not for this command"),
    "labels of parts": ("score plain.csv out/ --labels a:1,b:0", "for one file, not for parts"),
    "groups of parts": ("score plain.csv out/ --groups groups.csv", "for one file, not for parts"),
    "a limit of no threshold": ("evaluate --data plain.csv --match-from 3", "name a threshold"),
    "a preview of no negatives": ("train --objective mnrl --preview", "add --mine-negatives"),
    "a calibration of words": (
        "evaluate --data pairs.csv --model tfidf --calibrate pairs.csv",
        "is not a bi-encoder",
    ),
    "parts from nowhere": ("score nosuch://bucket/x.csv out/", "Protocol not known"),
    "parts of an address without Ray": (
        "score pairs.csv out/ --address auto",
        "options of --engine ray",
    ),
    "a password without a name": ("serve --auth secret", "USER:PASSWORD"),
}


@pytest.mark.parametrize(("command", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_exit_2_and_one_line(
    run: Run, folder: Path, home: Path, model: Path, command: str, said: str
):
    (folder / "plain.csv").write_text("sentence1,sentence2\nthe man,a man\nthe cat,a dog\n")
    (folder / "pairs3.csv").write_text("a,b,c\n1,2,3\n")
    (folder / "in.parquet").write_bytes(b"PAR1")
    there = left_over(folder)
    answer = run(*(str(model) if word == "MODEL" else word for word in shlex.split(command)))
    assert answer.code == cli.WRONG_INPUT
    assert answer.complaint.startswith("error: ")
    assert said in answer.complaint
    assert left_over(folder) == there


FAILURES = [
    (RuntimeError("boom\nand more"), cli.BROKEN, "error: RuntimeError: boom and more"),
    (
        FileNotFoundError(2, "No such file or directory", "x.csv"),
        cli.WRONG_INPUT,
        "error: x.csv: No such file or",
    ),
    (
        PermissionError(13, "Permission denied", "x.csv"),
        cli.WRONG_INPUT,
        "error: x.csv: Permission denied",
    ),
    (OSError(5, "Input/output error"), cli.BROKEN, "error: a file: Input/output error"),
    (StoppedError(), cli.INTERRUPTED, "stopped"),
    (KeyboardInterrupt(), cli.INTERRUPTED, "stopped"),
]


@pytest.mark.parametrize(
    ("error", "code", "said"), FAILURES, ids=lambda value: type(value).__name__
)
def test_each_kind_of_failure_has_its_code_and_one_line(
    run: Run,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    said: str,
):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(options, "load_encoder", fail)
    answer = run("encode", "sentences.jsonl", "out.npy", "--json")
    assert answer.code == code
    assert answer.complaint.startswith(said)


def test_the_traceback_is_there_for_those_who_ask(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SBERT_DEBUG", "1")
    monkeypatch.setattr(options, "load_encoder", lambda *_: 1 / 0)
    answer = run("encode", "sentences.jsonl", "out.npy")
    assert answer.code == cli.BROKEN
    assert "Traceback (most recent call last)" in answer.err
    assert answer.err.splitlines()[-1] == "error: ZeroDivisionError: division by zero"


def test_without_arguments_it_says_what_it_can_do(run: Run):
    answer = run()
    assert answer.code == cli.GOOD
    assert all(
        command in answer.out
        for command in ("serve", "encode", "score", "evaluate", "train", "runs")
    )


def test_offline_is_for_this_process_and_its_children(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    from training.sources.home import is_offline

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    run(
        "encode",
        "sentences.jsonl",
        "out.npy",
        "--model",
        "some-org/some-model",
        "--home",
        folder / "home",
        "--offline",
    )
    assert is_offline()


def test_serve_gives_the_settings_to_the_pages(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    from sbert_app.server import run as server

    served: list[Settings] = []
    monkeypatch.setattr(server, "serve", lambda settings, show: served.append(settings))
    monkeypatch.setenv("SBERT_PORT", "8001")
    monkeypatch.setenv("SBERT_HOST", "0.0.0.0")  # noqa: S104 - nothing listens
    assert (
        run("serve", "--port", 8002, "--auth", "ann:pass:word", "--home", folder / "home").code
        == cli.GOOD
    )
    [settings] = served
    assert (settings.host, settings.port, settings.auth) == ("0.0.0.0", 8002, ("ann", "pass:word"))  # noqa: S104
    assert settings.home == folder / "home"


def interrupt_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, calls: int) -> None:
    """Press Ctrl-C after a number of calls of the method. A second Ctrl-C would end this process."""
    original = getattr(owner, name)
    times = count(1)

    def interrupted(*arguments: Any) -> None:
        original(*arguments)
        if next(times) == calls:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(owner, name, interrupted)


def test_ctrl_c_keeps_the_rows_that_are_scored(
    run: Run, folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch
):
    from sbert_app.services.files.writers import DelimitedWriter

    total = 9_000
    rows = "".join(f"the cat {i},a dog\n" for i in range(total))
    (folder / "many.csv").write_text("sentence1,sentence2\n" + rows)
    interrupt_after(monkeypatch, DelimitedWriter, "write", 1)
    answer = run("score", "many.csv", "out.csv", "--model", model)
    scored = len((folder / "out.csv").read_text().splitlines()) - 1
    assert 0 < scored < total
    last = f"stopped: the {scored:,} rows before are scored in out.csv"
    assert (answer.code, answer.out, answer.err.strip().splitlines()[-1]) == (
        cli.INTERRUPTED,
        "",
        last,
    )
    assert left_over(folder) == {"many.csv", "out.csv"}


def test_ctrl_c_keeps_a_checkpoint_and_train_resumes_the_run(
    run: Run, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    from training.trainer.trainer import Trainer

    linked_home(home, folder / "home")
    at = ("--home", folder / "home")
    what = (
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--train-data",
        "pairs.csv",
        "--eval-data",
        "none",
    )
    with monkeypatch.context() as patch:
        interrupt_after(patch, Trainer, "_train_step", 3)
        answer = run("train", *what, "--max-steps", 6, "--eval-every", 6, *at)
    assert (answer.code, answer.out) == (cli.INTERRUPTED, "")
    [listed] = run("runs", "list", *at, "--json").json["runs"]
    assert answer.err.strip().splitlines()[-1].startswith(f"stopped: {listed['id']} at step 3")
    assert (listed["state"], listed["step"]) == ("interrupted", 3)
    resumed = run("train", "--resume", listed["id"], *at, "--json").json
    assert (resumed["id"], resumed["status"], resumed["steps"]) == (listed["id"], "finished", 6)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_signal_while_a_run_is_loaded_ends_it_at_once(
    run: Run, folder: Path, home: Path, monkeypatch, loaded: bool
):
    """Before its first step there is nothing to keep; the run can be resumed."""
    from training.trainer.prepare import Preparation
    from training.trainer.trainer import Trainer

    linked_home(home, folder / "home")
    at = ("--home", folder / "home")
    what = (
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--train-data",
        "pairs.csv",
        "--eval-data",
        "none",
    )
    owner, place = (Trainer, "_run_steps") if loaded else (Preparation, "_load_encoder")
    original = getattr(owner, place)

    def interrupted(trainer: Any, *arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        assert loaded, "it went on loading"
        return original(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, place, interrupted)
        answer = run("train", *what, "--max-steps", 3, *at)
    assert answer.code == cli.INTERRUPTED
    [listed] = run("runs", "list", *at, "--json").json["runs"]
    where = "at step 0" if loaded else "before its next step"
    last = answer.err.strip().splitlines()[-1]
    assert last == f"stopped: {listed['id']} {where}; resume it with: train --resume {listed['id']}"
    assert listed["state"] == "interrupted"
    assert listed["reason"] == PROCESS_ENDED
    assert run("train", "--resume", listed["id"], *at, "--json").json["status"] == "finished"


def test_a_reader_who_leaves_early_causes_no_traceback(folder: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SBERT_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "sbert_app", "runs", "list"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
