"""`process.py`: Ctrl-C, SIGTERM and SIGHUP end every command alike, by one line, with nothing half-written."""

import os
import re
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT
from waiting import wait_until

from sbert_app.__main__ import run
from sbert_app.cli import main
from sbert_app.commands import options
from sbert_app.process import ENDING, interrupt, on_ending_signal
from sbert_app.terminal import ProgressBar

SLOW = "This is sentence {i} of many, and it is as long as sentences are in files that people really have.\n"
# What ignores a signal hands that on to what it starts.
RESET = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """A shell's background jobs ignore Ctrl-C, what nohup starts a closed terminal, and so would the tests."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_score_does_not_load_its_model_to_the_end_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "in.csv").write_text("sentence1,sentence2\na,b\n")
    loaded = []

    def load(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        loaded.append("to the end")

    monkeypatch.setattr(options, "load_encoder", load)
    assert main(["score", str(tmp_path / "in.csv"), str(tmp_path / "out.csv")]) == 130
    assert not loaded
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


def test_a_signal_that_a_destructor_swallows_ends_the_command_all_the_same(monkeypatch):
    class Fragile:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with pytest.raises(KeyboardInterrupt), on_ending_signal(interrupt):
        Fragile()
        ProgressBar("scoring")(1)


def test_a_sweep_does_not_load_its_data_and_model_to_the_end_first(tmp_path, monkeypatch, capsys):
    loaded = []

    def execute(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        loaded.append("to the end")

    monkeypatch.setattr("sbert_app.commands.ablate.executor", lambda cluster: execute)
    options = ["--preset", "pooling", "--seeds", "1", "--max-steps", "2", "--home", str(tmp_path)]
    assert main(["ablate", *options]) == 130
    assert not loaded
    assert re.fullmatch(
        r"sweep (\S+)\nstopped: resume it with: ablate --resume \1\n", capsys.readouterr().err
    )


def test_a_signal_while_the_commands_are_imported_is_one_line(monkeypatch, capsys):
    class Importing(types.ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sbert_app.cli", Importing("sbert_app.cli"))
    with pytest.raises(SystemExit) as end:
        run(["runs", "list"])
    assert end.value.code == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_half_written_output_is_removed(tmp_path, home):
    lines = tmp_path / "in.txt"
    lines.write_text("".join(SLOW.format(i=i) for i in range(100_000)))
    options = ["--home", str(home), "--model", "scratch:1x32"]
    command = [
        sys.executable,
        "-m",
        "sbert_app",
        "encode",
        *options,
        str(lines),
        str(tmp_path / "out.npy"),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", RESET, *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_until(lambda: list(tmp_path.glob(".*.part")) or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        errors = process.communicate()[1]
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "stopped"
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == [lines]


@pytest.mark.parametrize("number", ENDING)
def test_each_signal_interrupts_a_command_and_handlers_are_restored(number):
    before = [signal.getsignal(number) for number in ENDING]
    with pytest.raises(KeyboardInterrupt), on_ending_signal(interrupt):
        os.kill(os.getpid(), number)
        time.sleep(1)
    assert [signal.getsignal(number) for number in ENDING] == before


SWALLOWED = """
import os, signal, sys, time
from sbert_app.process import interrupt, on_ending_signal
with on_ending_signal(interrupt):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    except KeyboardInterrupt:
        print("swallowed", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""


def test_a_second_signal_ends_the_process_at_once():
    """A library may swallow the interrupt, where a callback or a finaliser is interrupted, or go on computing."""
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "swallowed\n", "")


def test_a_signal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        received = []
        with on_ending_signal(lambda number, _: received.append(number)):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
        assert received == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
