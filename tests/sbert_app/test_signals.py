"""Ctrl-C, SIGTERM and SIGHUP end every command alike: one line, exit code 130, nothing half-written."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from sbert_app.signals import ENDING, interruptible, on_ending_signal

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


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("signals") / "in.txt"
    file.write_text("".join(SLOW.format(i=i) for i in range(100_000)))
    return file


@pytest.mark.parametrize("number", ENDING)
def test_a_half_written_output_is_removed(tmp_path, home, lines, number):
    command = [sys.executable, "-m", "sbert_app", "encode", "--home", str(home), str(lines), str(tmp_path / "out.npy")]
    with subprocess.Popen(
        [sys.executable, "-c", RESET, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob(".*.part")) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "stopped"
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ENDING)
def test_each_interrupts_what_is_interruptible(number):
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)
        time.sleep(1)


def test_what_is_ignored_stays_ignored_as_under_nohup():
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


def test_afterwards_the_handlers_are_those_of_before():
    before = [signal.getsignal(number) for number in ENDING]
    with interruptible():
        assert [signal.getsignal(number) for number in ENDING] != before
    assert [signal.getsignal(number) for number in ENDING] == before
