"""Process-wide settings are applied when a process starts, by the app and the command line alone; no output is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

import training
from sbert_app.__main__ import hide_password, is_serving, without_option
from sbert_app.process import ENVIRONMENT
from sbert_app.settings import Settings

UNSET = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}


def python(
    *arguments: str, environment: dict[str, str] | None = None, **streams: object
) -> tuple[int, str, str]:
    """The exit code, output and errors of a fresh Python in the clone."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        check=False,
        timeout=1800,
        **options,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, ["PASSIVE", "0", "512", "64"]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", "0", "512", "64"]),
    ],
)
def test_idle_threads_sleep_unless_the_user_has_set_otherwise(
    user: dict[str, str], expected: list[str]
) -> None:
    code = """
import json, os, sys
from sbert_app.process import ENVIRONMENT, configure_process
configure_process()
print(json.dumps([os.environ[name] for name in ENVIRONMENT]), 'torch' in sys.modules)"""
    _, output, _ = python("-c", code, environment=UNSET | user)
    assert output == f"{json.dumps(expected)} False\n"


def test_a_user_without_a_home_has_that_of_the_app() -> None:
    code = """
import os
from pathlib import Path
def nobody():
    raise RuntimeError("Could not determine home directory.")
Path.home, os.environ["SBERT_HOME"] = nobody, "/srv/sbert"
from sbert_app.process import configure_process
configure_process()
print(os.environ["HOME"])"""
    assert python("-c", code)[1] == "/srv/sbert\n"


def test_the_library_changes_no_process_wide_setting(home: Path) -> None:
    code = """
import gc, os
import torch
def settings():
    waiting = [os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")]
    return gc.get_threshold(), gc.get_freeze_count(), waiting, torch.get_num_threads()
before = settings()
from training import Encoder
Encoder.load("scratch:1x32").encode(["a dog"] * 3)
print(settings() == before)"""
    _, output, errors = python("-c", code, environment=UNSET)
    assert output.splitlines()[-1] == "True", errors


def test_the_exit_code_is_that_of_the_command() -> None:
    assert python("app.py", "--nonsense")[0] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_lost_output_is_no_success() -> None:
    # Buffered, so that the output is written at the end.
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        code, _, errors = python("-m", "sbert_app", "--help", environment=environment, stdout=full)
    assert code != 0
    assert "No space left on device" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "rest", "value"),
    [
        (["python", "app.py", "--port", "1"], ["python", "app.py", "--port", "1"], None),
        (["python", "app.py", "--auth", "a:b c", "--mcp"], ["python", "app.py", "--mcp"], "a:b c"),
        (
            ["python", "-m", "sbert_app", "serve", "--auth=a:b=c"],
            ["python", "-m", "sbert_app", "serve"],
            "a:b=c",
        ),
        (["x", "--auth-file", "f"], ["x", "--auth-file", "f"], None),
        (["x", "--auth"], ["x", "--auth"], None),
        (["x", "--auth", "a:1", "--auth", "a:2"], ["x"], "a:2"),
    ],
)
def test_the_password_leaves_the_command_line_and_nothing_else_does(arguments, rest, value):
    assert without_option(arguments, "--auth") == (rest, value)


@pytest.mark.skipif(sys.platform == "win32", reason="the process is not replaced")
def test_a_password_on_the_command_line_takes_precedence_over_files(monkeypatch):
    replaced = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: replaced.append(arguments[1:]))
    monkeypatch.setattr(
        sys, "orig_argv", ["python", "app.py", "--auth", "ada:flag", "--auth-file", "f", "--mcp"]
    )
    monkeypatch.setenv("SBERT_AUTH", "ada:environment")
    monkeypatch.setenv("SBERT_AUTH_FILE", "g")
    hide_password()
    assert replaced == [["app.py", "--mcp"]]
    assert Settings.gather().auth == ("ada", "flag")


def test_wrong_files_are_named_and_pages_built_before_torch_is_imported(tmp_path: Path):
    code = """
import sys
from pathlib import Path
from sbert_app.cli import main
slow = {"torch", "transformers", "scipy.stats", "datasets", "umap", "plotly.graph_objs"}
print(main(["encode", "no-such-file.csv", "out.npy"]), slow & set(sys.modules))
from sbert_app.server.app import create_app
from sbert_app.services.container import Services
from sbert_app.settings import Settings
create_app(Services.start(Settings(home=Path(sys.argv[1]))))
print(slow & set(sys.modules))"""
    _, output, errors = python("-c", code, str(tmp_path))
    assert output == "2 set()\nset()\n", errors


@pytest.mark.parametrize("arguments", [["serve", "--port", "0"], ["serve"]])
def test_serving_says_at_once_that_the_app_is_starting(arguments):
    assert is_serving(arguments)


@pytest.mark.parametrize("arguments", [["serve", "--help"], ["encode", "serve"], []])
def test_other_commands_do_not_say_that_the_app_is_starting(arguments):
    assert not is_serving(arguments)


def test_the_public_names_are_those_of_the_core():
    names = {
        "Encoder",
        "CrossEncoder",
        "RunConfig",
        "load_data",
        "evaluate",
        "train",
        "attribute",
        "InputError",
    }
    assert set(training.__all__) >= names and set(dir(training)) >= names
