"""Where models and data come from: the order of places, what is refused, and that nothing is left half-done."""

import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from remote import MINILM_ID, model, write

from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.sources import resolve
from training.sources.home import home_folder, is_offline, set_offline
from training.sources.resolve import ResolvedFolder


def test_home_is_the_argument_then_the_variable_then_the_platforms(tmp_path, monkeypatch):
    monkeypatch.setenv("SBERT_HOME", str(tmp_path / "variable"))
    assert home_folder(tmp_path / "argument") == tmp_path / "argument"
    assert home_folder() == tmp_path / "variable"
    monkeypatch.delenv("SBERT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert home_folder() == tmp_path / "sbert-lab"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert home_folder() == Path.home() / "Library/Application Support/sbert-lab"


def test_a_folder_is_a_model_by_its_path_or_in_home(alone, tmp_path):
    folder = model(tmp_path / "mine")
    assert resolve.model_folder(str(folder)) == ResolvedFolder(folder, "local folder")
    assert resolve.model_folder("mine").path == folder
    folder = model(alone / "models/org/small")
    assert resolve.model_folder("org/small") == ResolvedFolder(folder, "home folder")


def test_offline_can_be_set_in_the_program(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for value in (True, False):
        set_offline(value)
        assert is_offline() is value


def test_both_names_of_an_embedded_model_are_the_same(home):
    for name in (DEFAULT_MODEL, MINILM_ID):
        assert resolve.model_folder(name) == ResolvedFolder(
            home / "models/all-MiniLM-L6-v2", "home folder"
        )


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (("small-q8_0.gguf",), "it has GGUF weights alone; fetch the safetensors"),
        (("config.json", "openvino/openvino_model_qint8.xml"), "it has OpenVINO weights alone"),
        (
            ("checkpoint-500/config.json", "checkpoint-500/tokenizer.json"),
            "checkpoint-500 looks like a model",
        ),
        (
            ("refs/main", "snapshots/0ab1/config.json", "snapshots/0ab1/tokenizer.json"),
            "snapshots/0ab1 looks like",
        ),
        (("1_Pooling/config.json",), "it has no config.json$"),
        (
            ("config.json", "pytorch_model.bin"),
            r"holds no model: it has no safetensors weights, .* can run code",
        ),
    ],
)
def test_a_folder_without_a_model_says_what_to_do(
    alone, tmp_path, files: tuple[str, ...], reason: str
):
    for file in files:
        write((tmp_path / "old" / file).parent, Path(file).name)
    with pytest.raises(InputError, match=reason):
        resolve.model_folder(str(tmp_path / "old"))


def test_a_folder_whose_path_is_a_name_too_says_why_it_holds_no_model(alone, tmp_path, monkeypatch):
    write(tmp_path / "out/model", "config.json", "model.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="local folder: it has ONNX weights alone"):
        resolve.model_folder("out/model")
    for file in ("out/model/model.onnx", "out/model/config.json"):
        with pytest.raises(InputError, match="it is a file; name the folder of a model"):
            resolve.model_folder(file)


def test_an_embedded_model_with_a_file_missing_is_not_taken(alone):
    write(alone / "models/all-MiniLM-L6-v2", "config.json", "model.safetensors")
    with pytest.raises(
        InputError, match=r"home folder: incomplete, README.md, .*1_Pooling/config.json missing"
    ):
        resolve.model_folder(DEFAULT_MODEL)


def test_a_run_is_a_model_once_it_has_one(alone):
    with pytest.raises(InputError, match="there is no run 'first'"):
        resolve.model_folder("run:first")
    write(alone / "runs/first", "config.json")
    with pytest.raises(InputError, match="run first has no model yet"):
        resolve.model_folder("run:first")
    folder = model(alone / "runs/first/model")
    assert resolve.model_folder("run:first") == ResolvedFolder(folder, "run first")


def test_a_runs_id_does_not_leave_its_folder(alone):
    model(alone / "runs/first/model")
    model(alone / "model")
    for run in ("", ".", "..", "../runs/first", "a/b", "a\\b", "/etc", "first\n", "-x", "x" * 200):
        with pytest.raises(InputError, match="there is no run"):
            resolve.model_folder(f"run:{run}")


@given(st.text(max_size=40) | st.from_regex(r"\A[./~a-b\\:%-]{1,12}\Z"))
@example("../../etc")
@example("org/../../etc")
@example("a\0b")
@example("x" * 5000)
@example("~nobody-here/x")
@example("scratch:2x32")
@example("name.git")
@example("org/name-")
def test_any_name_is_a_model_or_one_line(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(InputError) as refused:
            resolve.model_folder(name)
    assert len(str(refused.value).splitlines()) == 1


def test_a_run_is_found_by_its_name_if_one_run_alone_has_it(alone):
    folder = model(alone / "runs/20261121-demo/model")
    (alone / "runs/20261121-demo/name.txt").write_text("60-second demo")
    assert resolve.model_folder("run:60-second demo") == ResolvedFolder(folder, "run 20261121-demo")
    write(alone / "runs/20261122-demo", "name.txt")
    (alone / "runs/20261122-demo/name.txt").write_text("60-second demo")
    with pytest.raises(
        InputError,
        match="2 runs are called '60-second demo' or begin so: choose one of run:20261121-demo, run:2",
    ):
        resolve.find_run("60-second demo", alone)
