"""Ctrl-C, SIGTERM and SIGHUP end every command alike: one line, exit code 130, nothing half-written."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from depth import first
from paths import ROOT
from started import StartedProcesses
from waiting import wait_until

from sbert_app import signals
from sbert_app.cli import main
from sbert_app.commands import benchmark, options
from sbert_app.signals import ENDING, interruptible, on_ending_signal, stop_repeating

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


def test_score_does_not_load_its_model_to_the_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "in.csv").write_text("sentence1,sentence2\na,b\n")
    loaded = []

    def load(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        loaded.append("to the end")

    monkeypatch.setattr(options, "load_encoder", load)
    assert main(["score", str(tmp_path / "in.csv"), str(tmp_path / "out.csv")]) == 130
    assert not loaded
    assert [file.name for file in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("number", first(1, ENDING))
def test_a_half_written_output_is_removed(tmp_path, home, lines, number):
    command = [sys.executable, "-m", "sbert_app", "encode", "--home", str(home), str(lines), str(tmp_path / "out.npy")]
    with subprocess.Popen(
        [sys.executable, "-c", RESET, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_until(lambda: list(tmp_path.glob(".*.part")) or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(number)
        errors = process.communicate()[1]
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "stopped"
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", first(1, ENDING))
def test_a_benchmark_that_is_stopped_leaves_no_process(number, monkeypatch, tmp_path):
    """Not what it has started either: a benchmark starts apps."""
    script = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); open('started', 'w'); time.sleep(60)"
    started, children, ours = tmp_path / "started", [], StartedProcesses()
    monkeypatch.setattr(benchmark, "CLONE", tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "__main__.py").write_text(script)

    def interrupt() -> None:
        while not started.exists():
            time.sleep(0.05)
        children.extend(ours.there())
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), interruptible():
        benchmark.benchmark("encode")
    assert len(children) == 2
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert len(gone) == 2


@pytest.mark.parametrize("number", ENDING)
def test_each_interrupts_what_is_interruptible(number):
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)
        time.sleep(1)


def test_an_interrupt_that_a_library_swallows_is_raised_again():
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except KeyboardInterrupt:
            pass  # as where a callback or a finaliser is interrupted
        time.sleep(10)
        pytest.fail("the process went on")


def test_an_interrupt_that_had_its_effect_is_not_raised_again():
    """As in the app: the web server has ended, and files that are being scored take a second to be put in order."""
    with interruptible():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
            pytest.fail("it had no effect")
        except KeyboardInterrupt:
            pass
        stop_repeating()
        time.sleep(1)
    with pytest.raises(KeyboardInterrupt), interruptible():
        stop_repeating()
        os.kill(os.getpid(), signal.SIGTERM)  # a new one
        time.sleep(1)


@pytest.mark.slow  # for the import of the pages
def test_a_signal_that_the_system_gives_to_another_thread_ends_the_wait_of_serve():
    """Such a signal wakes nobody: an app that scored a file went on with it, to its end."""
    from sbert_app.pages import _wait

    ended, late = threading.Event(), []

    def other() -> None:
        time.sleep(0.3)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        if not ended.wait(30):
            late.append("only a second signal, to the main thread, ended it")
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(KeyboardInterrupt), interruptible():
        _wait()
    ended.set()
    thread.join()
    assert not late


@pytest.fixture
def slow_module(tmp_path, monkeypatch) -> Iterator[str]:
    """The name of a module that a signal comes to while it is imported, and that is there half a second later."""
    (tmp_path / "slow_to_import.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.5)\n"
        "if os.environ.get('TWICE'): os.kill(os.getpid(), signal.SIGTERM); time.sleep(1)\n"
        "done = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_to_import"
    sys.modules.pop("slow_to_import", None)


def test_an_interrupt_waits_for_an_import(slow_module):
    with pytest.raises(KeyboardInterrupt), interruptible():
        importlib.import_module(slow_module)
        time.sleep(1)
    assert sys.modules[slow_module].done


@pytest.mark.parametrize("twice", [True, False])
def test_but_not_for_long_and_a_second_one_does_not_wait(slow_module, monkeypatch, twice):
    if twice:
        monkeypatch.setenv("TWICE", "1")
    else:
        monkeypatch.setattr(signals, "IMPORT_SECONDS", 0.1)
    with pytest.raises(KeyboardInterrupt), interruptible():
        importlib.import_module(slow_module)
    assert slow_module not in sys.modules


def test_what_removes_files_after_an_interrupt_is_not_interrupted_again(monkeypatch):
    monkeypatch.setattr(signals, "AGAIN_SECONDS", 0.1)
    removed = []

    @contextmanager
    def temporary() -> Iterator[None]:
        try:
            yield
        finally:
            time.sleep(0.3)
            removed.append("in a context manager")

    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            with temporary():
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
        finally:
            time.sleep(0.3)
            removed.append("in a finally block")
    time.sleep(0.3)
    assert removed == ["in a context manager", "in a finally block"]


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
