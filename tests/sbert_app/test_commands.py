"""`commands/`: answers to a question, pipes, columns by name, runs by name, options of every command."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Run
from paths import ROOT
from tiny_models import WORDS

from sbert_app import cli
from sbert_app.services.runs.store import RunStore
from sbert_app.terminal import ProgressBar
from training.trainer.config import RunConfig


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch):
    """Put text on standard input."""

    def put(text: str, encoding: str = "utf-8") -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode(encoding))))

    return put


def test_lines_become_vectors_in_a_pipe(run: Run, folder: Path, model: Path, piped):
    piped('the man\n\na dog, "quoted"\n')
    said = run("encode", "-", "-", "--model", model)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["sentence"] for row in rows] == ["the man", None, 'a dog, "quoted"']
    assert [row["embedding"] and len(row["embedding"]) for row in rows] == [32, None, 32]
    assert "3 rows of sentence -> -" in said.err
    assert not list(folder.glob("*output*"))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_table_is_scored_in_a_pipe(run: Run, folder: Path, model: Path, piped, kind: str):
    piped("left\tright\nthe man\ta man\n")
    said = run("score", "-", "-", "--model", model, "--columns", "left,right", "--format", kind)
    assert said.code == cli.GOOD, said.err
    head, *_ = said.out.splitlines()
    assert (
        list(json.loads(head))[:2] == ["left", "right"]
        if kind == "jsonl"
        else head.startswith("left")
    )
    assert "1 row: 1 scored" in said.err


def test_vectors_of_numpy_go_through_a_pipe(
    folder: Path, model: Path, capsysbinary: pytest.CaptureFixture[bytes]
):
    assert (
        cli.main(["encode", "sentences.jsonl", "-", "--format", "npy", "--model", str(model)])
        == cli.GOOD
    )
    assert np.load(io.BytesIO(capsysbinary.readouterr().out)).shape == (5, 32)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("encode sentences.jsonl out.npy --format jsonl", "--format is for standard output"),
        ("encode sentences.jsonl - --json", "both print to standard output"),
        ("encode sentences.jsonl - --format txt", "has to end with"),
    ],
)
def test_options_that_do_not_go_with_a_pipe_are_refused(
    run: Run, folder: Path, command: str, said: str
):
    answer = run(*command.split())
    assert (answer.code, said in answer.complaint) == (cli.WRONG_INPUT, True)


def test_json_lines_are_written_and_read_again(run: Run, folder: Path, model: Path):
    run("score", "pairs.csv", "scored.jsonl", "--model", model)
    rows = [json.loads(line) for line in (folder / "scored.jsonl").read_text().splitlines()]
    assert list(rows[0]) == ["sentence1", "sentence2", "score", "cosine", "note"]
    assert rows[0]["note"] is None
    assert run("evaluate", "--data", "scored.jsonl", "--model", model, "--json").json["n"] == 3


def test_evaluate_reads_standard_input(run: Run, folder: Path, model: Path, piped):
    piped((folder / "pairs.csv").read_text())
    assert run("evaluate", "--data", "-", "--model", model, "--json").json["n"] == 3


def test_columns_are_named_on_every_command(run: Run, folder: Path, model: Path):
    """The file's own names say nothing."""
    text = (
        (folder / "pairs.csv")
        .read_text()
        .replace("sentence1,sentence2,score", "left,right,gold, how")
    )
    (folder / "own.csv").write_text(text)
    by_name = run("evaluate", "--data", "pairs.csv", "--model", model, "--json").json
    for told in (("own.csv", "--columns", "left,right,gold"), ("own.csv?columns=left,right,gold",)):
        said = run("evaluate", "--data", *told, "--model", model, "--json").json
        assert said["spearman"] == by_name["spearman"]
    at = (
        "--home",
        folder / "home",
        "--base",
        "scratch:1x32",
        "--objective",
        "regression",
        "--eval-data",
        "none",
    )
    said = run(
        "train",
        "--train-data",
        "own.csv",
        "--columns",
        "left,right,gold",
        "--no-start",
        *at,
        "--json",
    ).json
    config = RunStore(folder / "home").get(said["id"]).config
    assert config.train_data == f"{folder / 'own.csv'}?columns=left,right,gold"
    assert run("encode", "own.csv?columns=right", "out.npy", "--model", model).code == cli.GOOD
    words = ["yes,no", "no,no", "no,yes"]
    rows = [
        f"A man plays the flute number {n}.,Somebody plays music number {n}.,{words[n % 3]}"
        for n in range(20)
    ]
    (folder / "unclear.csv").write_text("\n".join(["left,right,first,second", *rows]))
    asked = run("evaluate", "--data", "unclear.csv", "--model", model)
    assert asked.code == cli.WRONG_INPUT
    assert (
        "unclear.csv: which column says how alike the two sentences are? first (" in asked.complaint
    )
    assert "Type --columns left,right,first" in asked.complaint
    typed = run(
        "evaluate", "--data", "own.csv", "--columns", "left,rigt", "--model", model
    ).complaint
    assert "did you mean right?" in typed
    assert (
        "name one with --data"
        in run("evaluate", "--data", "stsb:dev", "--columns", "a,b").complaint
    )
    said = run("encode", "pairs.csv", "out.npy", "--model", model)
    assert "pairs.csv has several columns of sentences: sentence1 alone is encoded" in said.err


def test_compare_says_what_each_word_adds(run: Run, folder: Path, model: Path):
    said = run(
        "compare", "the man", "a man", "--model", model, "--cross-encoder", "none", "--json"
    ).json
    assert -1 <= said["cosine"] <= 1
    assert said["usage"]["prompt_tokens"] > 4
    assert run(
        "compare", "the man", "a man", "--model", model, "--cross-encoder", "none"
    ).out.startswith("cosine")


def test_search_finds_the_nearest_in_a_file(run: Run, folder: Path, model: Path, tmp_path: Path):
    at = ("--model", model, "--home", tmp_path / "home")
    said = run("search", "sentences.jsonl", "a dog", "-k", "2", *at, "--json").json
    assert (said["hits"][0]["sentence"], len(said["hits"]), said["searched"]) == ("a dog", 2, 4)
    rows = (folder / "sentences.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(rows[said["hits"][0]["row"] - 1])["sentence"] == "a dog", (
        "rows count from 1, as in the table"
    )
    text = run("search", "pairs.csv", "the man", *at, "--columns", "sentence2").out
    assert "3 sentences of pairs.csv" in text


def test_cluster_writes_each_sentence_with_its_cluster(
    run: Run, folder: Path, model: Path, tmp_path: Path
):
    texts = [f"the man {i}" for i in range(6)] + [f"a dog in the food {i}" for i in range(6)]
    (folder / "many.txt").write_text("\n".join(texts))
    at = ("--model", model, "--home", tmp_path / "home", "--method", "k-means", "--clusters", "2")
    said = run("cluster", "many.txt", "out.jsonl", *at, "--json").json
    assert sum(each["sentences"] for each in said["clusters"]) == 12
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["sentence"] for row in rows] == texts
    assert {row["cluster"] for row in rows} == {each["cluster"] for each in said["clusters"]}
    assert "2 clusters by k-means" in run("cluster", "many.txt", *at).out


def test_models_and_data_are_listed(run: Run, folder: Path, tmp_path: Path, home: Path):
    by_name = {
        each["name"]: each for each in run("models", "--home", home, "--json").json["models"]
    }
    assert by_name["all-MiniLM-L6-v2"]["here"] is True
    assert by_name["minilm-stsb"]["kind"] == "cross-encoder"
    new = {
        each["name"]: each["here"]
        for each in run("models", "--home", tmp_path / "new", "--json").json["models"]
    }
    assert [name for name, here in new.items() if here] == ["raw-bert-mini", "tfidf", "bm25"], (
        "what the package holds"
    )
    assert run("data", "--json").json["data"]["stsb"]["form"] == "scored pairs"
    found = run("data", "pairs.csv", "--json").json
    assert (found["form"], found["rows"], found["first"][0]) == (
        "scored pairs",
        3,
        ["the man", "a man", 4.5],
    )
    assert "row 1: the man  |  a man  |  4.5" in run("data", "pairs.csv").out


def test_a_model_is_shown(run: Run, model: Path, home: Path):
    bi_encoder = run("models", model, "--home", home, "--json").json
    assert (bi_encoder["kind"], bi_encoder["pooling"], bi_encoder["dimension"]) == (
        "bi-encoder",
        "mean",
        32,
    )
    assert (bi_encoder["similarity"], bi_encoder["max_length"], bi_encoder["prompts"]) == (
        "cosine",
        64,
        {},
    )
    assert "kind         cross-encoder" in run("models", "minilm-stsb", "--home", home).out
    words = run("models", "tfidf", "--home", home, "--json").json
    assert (words["dtype"], words["max_length"]) == (None, None), "what a model has not is null"
    assert (
        "nowhere was not found" in run("models", "nowhere", "--home", home, "--offline").complaint
    )


def test_the_doctor_says_what_is_here(run: Run, folder: Path, home: Path):
    said = run("doctor", "--home", home, "--offline", "--json").json
    assert said["failed"] == []
    assert "sentences/s with all-MiniLM-L6-v2" in said["speed"]
    assert "not asked" in said["Hub"]
    assert "GPU" in said["device"] or "cuda" in said["device"], "it says why there is no GPU"
    (folder / "file").touch()
    broken = run("doctor", "--home", folder / "file", "--offline", "--json")
    assert broken.code == cli.BROKEN
    assert "home" in json.loads(broken.out)["failed"]


def test_the_doctor_names_an_extra_only_if_nothing_of_it_is_missing(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "sbert_app.commands.doctor.find_spec", lambda name: name in {"jinja2", "ray"} or None
    )
    monkeypatch.setattr("sbert_app.commands.doctor._speed", lambda computing: "not measured")
    assert run("doctor", "--home", home, "--offline", "--json").json["extras"] == "ray"


def test_runs_are_named_by_a_beginning_or_by_their_name(run: Run, tmp_path: Path):
    store = RunStore(tmp_path)
    at = ("--home", tmp_path)
    first, second = (store.create(RunConfig("regression", name=name)) for name in ("mine", "other"))
    assert run("runs", "show", "mine", *at, "--json").json["id"] == first.id
    assert run("runs", "rename", second.id[:-2], "my second", *at, "--json").json["id"] == second.id
    both = run("runs", "show", first.id[:8], *at)
    assert (both.code, "2 runs" in both.complaint) == (cli.WRONG_INPUT, True)
    assert run("runs", "stop", "my second", *at, "--json").json["state"] == "stopped"
    assert f"run {first.id} is queued" in run("train", "--resume", "mine", *at).complaint


def test_nothing_is_deleted_where_nobody_can_be_asked(run: Run, tmp_path: Path, piped):
    made = RunStore(tmp_path).create(RunConfig("regression"))
    at = ("--home", tmp_path)
    piped("")
    said = run("runs", "delete", made.id, *at)
    assert (said.code, "add --yes" in said.complaint, made.folder.is_dir()) == (
        cli.WRONG_INPUT,
        True,
        True,
    )
    assert run("runs", "delete", made.id, "--yes", *at).code == cli.GOOD
    assert not made.folder.exists()


def test_options_of_the_whole_line_may_stand_anywhere(run: Run, folder: Path, model: Path):
    verbose = run("encode", "sentences.jsonl", "out.npy", "--model", model, "-v")
    assert "local folder" in verbose.err
    quiet = run("-q", "encode", "pairs.csv", "out.npy", "--model", model, "--columns", "sentence1")
    assert (quiet.err, "3 rows" in quiet.out) == ("", True)
    run("models", "--no-progress")
    assert ProgressBar.is_wanted is False


def test_other_spellings_work_and_are_not_shown(run: Run, folder: Path, model: Path):
    at = ("--home", folder / "home", "--eval-data", "none", "--no-start", "--json")
    said = run(
        "train",
        "--model",
        "scratch:1x32",
        "--objective",
        "regression",
        "--train-data",
        "pairs.csv",
        *at,
    ).json
    assert RunStore(folder / "home").get(said["id"]).config.base == "scratch:1x32"
    assert "--model" not in run("train", "--help").out
    assert run("help", "encode").out == run("encode", "--help").out


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("encode sentences.jsonl out.npy --model all-MiniLM-L6", "did you mean all-MiniLM-L6-v2?"),
        ("evaluate --data stbs:dev", "did you mean stsb?"),
        ("encodd a b", "encode"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    run: Run, folder: Path, tmp_path: Path, command: str, meant: str
):
    assert meant in run(*command.split()).complaint


@pytest.mark.parametrize("command", cli.EXAMPLES, ids=lambda command: command.__name__)
def test_the_help_ends_with_an_example_of_the_docs(run: Run, command: Callable[..., object]):
    shown = run("help", command.__name__).out.rstrip().splitlines()[-1].strip()
    assert shown == f"sbert-lab {cli.EXAMPLES[command]}"
    documented = "".join(
        (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("cli.md", "install.md")
    )
    assert shown in re.sub(r"(?m)^(sbert-lab \w+) +", r"\1 ", documented)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a display")
def test_a_window_needs_a_display(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert "sbert-lab serve" in run("desktop").complaint


def test_bash_completes_the_names_of_models(run: Run, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("_SBERT_LAB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "sbert-lab train --base all-Mini")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        run()
    assert "all-MiniLM-L6-v2" in capsys.readouterr().out.split()


@pytest.mark.slow
def test_export_writes_the_columns_that_embedding_atlas_reads(
    run: Run, tmp_path: Path, model: Path, home: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/numba").symlink_to(home / "numba")  # what UMAP has compiled
    lines = [f"{WORDS[n % 14]} {WORDS[n % 9]} {WORDS[n % 5]},{n}" for n in range(40)]
    (tmp_path / "in.csv").write_text("\n".join(["text,n", *lines]))
    options = ("--model", model, "--clusters", "3", "--home", tmp_path / "home")
    opened = "embedding-atlas out.parquet --text sentence --x projection_x --y projection_y --neighbors neighbors"
    answer = run("export", "in.csv", "out.parquet", *options, "--json").json
    assert answer == {"output": "out.parquet", "rows": 40, "drawn": 40, "command": opened}
    neighbors = pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float32()))])
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == [
        "sentence",
        "projection_x",
        "projection_y",
        "cluster",
        "neighbors",
        "n",
    ]
    assert (
        table.schema.field("projection_x").type
        == table.schema.field("projection_y").type
        == pa.float32()
    )
    assert table.schema.field("cluster").type == pa.string()
    assert table.schema.field("neighbors").type == neighbors
    assert table["n"].to_pylist() == [str(n) for n in range(40)]
    assert len(set(table["cluster"].to_pylist())) == 3
    assert {entry.name for entry in tmp_path.iterdir()} == {"in.csv", "home", "out.parquet"}
